/* SPDX-License-Identifier: MIT */
/* How long to wait before trying again. */
#include "base/backoff.h"

#include <stdlib.h>
#include <sys/random.h>

uint64_t jitter(uint64_t value, uint32_t percent, uint32_t random)
{
	uint64_t share = percent < 100 ? percent : 100;
	uint64_t span = value / 100 * share + value % 100 * share / 100;
	if (span == 0)
		return value;
	return value - span + random % (2 * span + 1);
}

uint32_t backoff_next_ms(struct backoff *b, uint32_t random)
{
	uint64_t delay = b->first_ms;
	/* 32 doublings reach every cap; more would only be counted for the log. */
	for (uint32_t i = 0; i < b->step && i < 32 && delay < b->cap_ms; i++)
		delay *= 2;
	if (delay > b->cap_ms)
		delay = b->cap_ms;
	if (b->step != UINT32_MAX)
		b->step++;
	return (uint32_t)jitter(delay, b->jitter_percent, random);
}

void backoff_reset(struct backoff *b)
{
	b->step = 0;
}

uint64_t random_u64(void)
{
	uint64_t v = 0;
	if (getrandom(&v, sizeof v, 0) != (ssize_t)sizeof v)
		abort();
	return v;
}

uint32_t random_u32(void)
{
	return (uint32_t)random_u64();
}

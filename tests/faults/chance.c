/* SPDX-License-Identifier: MIT */
#include "chance.h"

#include "../integration/harness.h"

#include <stdlib.h>
#include <unistd.h>

struct chance chance_begin(void)
{
	const char *v = getenv("INBOXD_FAULT_SEED");
	uint64_t seed = v != NULL ? strtoull(v, NULL, 10)
				  : (uint64_t)now_ms() * 7919 % 1000003 + (uint64_t)getpid();
	return (struct chance){.seed = seed, .state = seed};
}

/* splitmix64: every seed is a good one. */
static uint64_t next(struct chance *c)
{
	uint64_t z = (c->state += 0x9e3779b97f4a7c15);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

unsigned chance_below(struct chance *c, unsigned n)
{
	return (unsigned)(next(c) % n);
}

bool chance_percent(struct chance *c, unsigned percent)
{
	return chance_below(c, 100) < percent;
}

int chance_setting(const char *variable, int standard)
{
	const char *v = getenv(variable);
	return v != NULL ? atoi(v) : standard;
}

/* SPDX-License-Identifier: MIT */
/* The limits on starting again. */
#include "supervisor/restart.h"

#include "base/backoff.h"

enum {
	LIVED_LONG_MS = 5000,
	FIRST_MS = 100,
	CAP_MS = 10000,
	BAD_CONFIGURATION_MS = 30000,
};

uint64_t restart_delay_ms(
	struct restart *r, uint64_t lived_ms, bool says_bad_configuration, uint32_t random)
{
	if (says_bad_configuration)
		return BAD_CONFIGURATION_MS;
	if (lived_ms >= LIVED_LONG_MS) {
		r->quick_deaths = 0;
		return 0;
	}
	struct backoff b = {.first_ms = FIRST_MS,
		.cap_ms = CAP_MS,
		.jitter_percent = 20,
		.step = r->quick_deaths};
	uint32_t delay_ms = backoff_next_ms(&b, random);
	r->quick_deaths = b.step;
	return delay_ms;
}

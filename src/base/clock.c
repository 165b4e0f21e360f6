/* SPDX-License-Identifier: MIT */
/* The one place that reads a clock. */
#include "base/clock.h"

#include <time.h>

uint64_t clock_us(void)
{
	struct timespec ts;
	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

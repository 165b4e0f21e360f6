/* SPDX-License-Identifier: MIT */
/* Monotonic time for timers and limits.  Decisions take it as an argument and never read it. */
#ifndef INBOXD_BASE_CLOCK_H
#define INBOXD_BASE_CLOCK_H

#include <stdint.h>

uint64_t clock_us(void); /* CLOCK_MONOTONIC, microseconds; what sd-event calls the same */
static inline uint64_t clock_ms(void)
{
	return clock_us() / 1000;
}

#endif

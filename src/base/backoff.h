/* SPDX-License-Identifier: MIT */
/* Capped exponential back-off with jitter; pure. */
#ifndef INBOXD_BASE_BACKOFF_H
#define INBOXD_BASE_BACKOFF_H

#include <stdint.h>

struct backoff {
	uint32_t first_ms;
	uint32_t cap_ms;
	uint32_t jitter_percent; /* the delay lies within +- this share */
	uint32_t step;           /* failures since the last reset */
};

/* The delay before the next try, and one failure more; `random` is any 32 random bits. */
uint32_t backoff_next_ms(struct backoff *b, uint32_t random);
void backoff_reset(struct backoff *b);

/* Spreads value by +- percent. */
uint64_t jitter(uint64_t value, uint32_t percent, uint32_t random);

uint32_t random_u32(void); /* from the kernel; for jitter and tokens */
uint64_t random_u64(void);

#endif

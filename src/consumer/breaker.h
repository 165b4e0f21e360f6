/* SPDX-License-Identifier: MIT */
/* Keeps a handler that fails everything, or a mistyped key, from draining the queue into the
 * database: after so many parkings in a row only one message at a time is tried, until one is done.
 * Pure. */
#ifndef INBOXD_CONSUMER_BREAKER_H
#define INBOXD_CONSUMER_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

struct breaker {
	uint32_t limit;    /* parkings in a row that open it */
	uint64_t pause_ms; /* between tries while it is open */
	uint32_t in_row;
	bool is_open;
	bool is_trying; /* a message was let through and its fate is not known yet */
	uint64_t try_at_ms;
};

/* A message was parked.  True when this opens the breaker. */
bool breaker_parked(struct breaker *b, uint64_t now_ms);
/* A message was done.  True when this closes it. */
bool breaker_done(struct breaker *b);
/* What was tried told nothing (a duplicate, a key in hand elsewhere, an outage): the next may be
 * tried. */
void breaker_neither(struct breaker *b);

/* Whether a message may be run now; while it is open, only one, and breaker_try tells that it is.
 */
bool breaker_lets_through(const struct breaker *b, uint64_t now_ms);
void breaker_try(struct breaker *b);

/* When the next message may be tried; UINT64_MAX: that is no question of time. */
uint64_t breaker_next_ms(const struct breaker *b);

#endif

/* SPDX-License-Identifier: MIT */
/* The breaker. */
#include "consumer/breaker.h"

bool breaker_parked(struct breaker *b, uint64_t now_ms)
{
	bool opens = !b->is_open && ++b->in_row >= b->limit;
	b->is_open = b->is_open || opens;
	if (opens || b->is_trying)
		b->try_at_ms = now_ms + b->pause_ms;
	b->is_trying = false;
	return opens;
}

bool breaker_done(struct breaker *b)
{
	bool closes = b->is_open;
	b->in_row = 0;
	b->is_open = b->is_trying = false;
	return closes;
}

void breaker_neither(struct breaker *b)
{
	b->is_trying = false;
}

bool breaker_lets_through(const struct breaker *b, uint64_t now_ms)
{
	return !b->is_open || (!b->is_trying && now_ms >= b->try_at_ms);
}

void breaker_try(struct breaker *b)
{
	b->is_trying = b->is_open;
}

uint64_t breaker_next_ms(const struct breaker *b)
{
	return b->is_open && !b->is_trying ? b->try_at_ms : UINT64_MAX;
}

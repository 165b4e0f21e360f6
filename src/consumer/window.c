/* SPDX-License-Identifier: MIT */
/* The window of deliveries. */
#include "consumer/window.h"

#include <assert.h>
#include <utlist.h>

enum { BUSY_FIRST_MS = 200, BUSY_CAP_MS = 5000 };

void window_init(struct window *w)
{
	*w = (struct window){.first = 1, .next = 1};
}

/* What is still arriving is not counted yet. */
static void release_message(struct window *w, struct entry *e)
{
	if (e->state != ENTRY_RECEIVING)
		w->bytes -= e->message.size;
	buf_done(&e->message);
}

static void entry_free(struct window *w, struct entry *e)
{
	release_message(w, e);
	free(e->park_detail);
	free(e->key);
	free(e);
}

void window_reset(struct window *w)
{
	uint32_t generation = w->generation + 1;
	struct entry *next, *e = w->by_tag;
	HASH_CLEAR(hh, w->by_key);
	HASH_CLEAR(tag_hh, w->by_tag);
	for (; e != NULL; e = next) {
		next = e->tag_hh.next;
		entry_free(w, e);
	}
	*w = (struct window){.generation = generation, .first = 1, .next = 1};
}

void window_done(struct window *w)
{
	window_reset(w);
}

struct entry *window_add(struct window *w, uint64_t tag)
{
	if (tag != w->next)
		return NULL;
	struct entry *e = xcalloc(1, sizeof *e);
	e->tag = tag;
	e->state = ENTRY_RECEIVING;
	HASH_ADD(tag_hh, w->by_tag, tag, sizeof e->tag, e);
	w->next++;
	w->n_held++;
	return e;
}

struct entry *window_find(struct window *w, const struct delivery_ref *ref)
{
	struct entry *e = NULL;
	if (ref->generation == w->generation)
		HASH_FIND(tag_hh, w->by_tag, &ref->tag, sizeof ref->tag, e);
	return e;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void make_ready(struct window *w, struct entry *e)
{
	struct entry *at = w->ready;
	e->state = ENTRY_READY;
	w->n_ready++;
	/* New ones are the youngest; those that come back are among the oldest. */
	if (at == NULL || w->ready->prev->tag < e->tag) {
		DL_APPEND(w->ready, e);
		return;
	}
	while (at->tag < e->tag)
		at = at->next;
	DL_PREPEND_ELEM(w->ready, at, e);
}

struct entry *window_peek(const struct window *w)
{
	return w->ready;
}

void window_take(struct window *w, struct entry *e)
{
	assert(e->state == ENTRY_READY);
	DL_DELETE(w->ready, e);
	w->n_ready--;
	w->n_in_hand++;
	e->state = ENTRY_IN_HAND;
}

uint64_t window_busy_delay_ms(uint32_t times)
{
	uint64_t delay = BUSY_FIRST_MS;
	for (uint32_t i = 1; i < times && delay < BUSY_CAP_MS; i++)
		delay *= 2;
	return delay < BUSY_CAP_MS ? delay : BUSY_CAP_MS;
}

uint64_t window_wake(struct window *w, uint64_t now_ms)
{
	uint64_t next = UINT64_MAX;
	struct entry *e, *tmp;
	DL_FOREACH_SAFE(w->later, e, tmp)
	{
		if (e->later_at_ms > now_ms) {
			next = e->later_at_ms < next ? e->later_at_ms : next;
			continue;
		}
		DL_DELETE(w->later, e);
		make_ready(w, e);
	}
	return next;
}

/* ---- keys ------------------------------------------------------------------------------------- */

/* True if the entry is the oldest unsettled one of its key, else it stands behind its twins. */
static bool lead_key(struct window *w, struct entry *e)
{
	struct entry *leader = NULL;
	if (e->key == NULL)
		return true;
	HASH_FIND(hh, w->by_key, e->key, e->key_size, leader);
	if (leader == NULL) {
		HASH_ADD_KEYPTR(hh, w->by_key, e->key, e->key_size, e);
		return true;
	}
	while (leader->twin != NULL)
		leader = leader->twin;
	leader->twin = e;
	e->state = ENTRY_BEHIND;
	e->flags |= ITEM_CONCURRENT;
	return false;
}

/* The entry is settled: its next twin takes its place. */
static void leave_key(struct window *w, struct entry *e)
{
	struct entry *twin = e->twin;
	if (e->key == NULL)
		return;
	HASH_DEL(w->by_key, e);
	e->twin = NULL;
	if (twin != NULL) {
		HASH_ADD_KEYPTR(hh, w->by_key, twin->key, twin->key_size, twin);
		make_ready(w, twin);
	}
}

void window_complete(struct window *w, struct entry *e, struct bytes key)
{
	w->bytes += e->message.size;
	if (key.size != 0) {
		e->key = xmalloc(key.size);
		memcpy(e->key, key.data, key.size);
		e->key_size = (uint16_t)key.size;
	}
	if (lead_key(w, e))
		make_ready(w, e);
}

static void set_parking(struct entry *e, enum park_reason reason, const char *detail)
{
	free(e->park_detail);
	e->is_parking = true;
	e->park_reason = reason;
	e->park_detail = detail != NULL ? xstrdup(detail) : NULL;
}

void window_complete_parking(
	struct window *w, struct entry *e, enum park_reason reason, const char *detail)
{
	w->bytes += e->message.size;
	set_parking(e, reason, detail);
	make_ready(w, e);
}

/* ---- verdicts ----------------------------------------------------------------------------------- */

static void settle(struct window *w, struct entry *e, uint64_t now_ms)
{
	release_message(w, e);
	e->state = ENTRY_SETTLED;
	e->settled_at_ms = now_ms;
	w->n_held--;
	w->n_loose++;
	DL_APPEND(w->loose, e);
	leave_key(w, e);
}

static void postpone(struct window *w, struct entry *e, uint64_t until_ms)
{
	e->state = ENTRY_LATER;
	e->later_at_ms = until_ms;
	DL_APPEND(w->later, e);
}

/* Each time later, or one message would have one session after the other ended for it. */
static void run_later(struct window *w, struct entry *e, uint64_t now_ms)
{
	if (e->losses < UINT16_MAX)
		e->losses++;
	uint64_t delay_ms = loss_delay_ms(e->losses);
	e->flags |= ITEM_ALONE | ITEM_AGAIN;
	if (delay_ms == 0)
		make_ready(w, e);
	else
		postpone(w, e, now_ms + delay_ms);
}

bool window_is_held_up(const struct window *w, const struct entry *e)
{
	const struct entry *other;
	DL_FOREACH(w->later, other)
	{
		if (other->losses != 0 && other->tag < e->tag)
			return true;
	}
	return false;
}

/* A run of it ended with its worker, or its session, and it is to blame. */
static void charge_crash(
	struct window *w, struct entry *e, enum park_reason reason, const char *detail)
{
	e->flags |= ITEM_ALONE | ITEM_AGAIN;
	e->losses = 0;
	e->crashes++;
	set_parking(e, reason, detail);
	make_ready(w, e);
}

void window_verdict(struct window *w, struct entry *e, enum verdict v, uint64_t now_ms)
{
	assert(e->state == ENTRY_IN_HAND);
	w->n_in_hand--;
	if (v != VERDICT_BUSY)
		e->busy_times = 0;
	switch (v) {
	case VERDICT_DONE:
	case VERDICT_PARKED:
	case VERDICT_DUPLICATE:
	case VERDICT_KEPT:
		settle(w, e, now_ms);
		break;
	case VERDICT_BUSY:
		postpone(w, e, now_ms + window_busy_delay_ms(++e->busy_times));
		break;
	case VERDICT_ALONE:
		e->flags |= ITEM_ALONE;
		make_ready(w, e);
		break;
	case VERDICT_LOST:
		run_later(w, e, now_ms);
		break;
	case VERDICT_CRASHED:
		charge_crash(w, e, PARK_CRASHED, "the session was lost while the handler ran");
		break;
	case VERDICT_AGAIN:
	case VERDICT_COUNT:
		e->flags |= ITEM_AGAIN;
		make_ready(w, e);
		break;
	}
}

void window_crashed(struct window *w, struct entry *e, bool was_alone, enum park_reason reason,
	const char *detail)
{
	assert(e->state == ENTRY_IN_HAND);
	w->n_in_hand--;
	if (was_alone && !e->is_parking) {
		charge_crash(w, e, reason, detail);
		return;
	}
	e->flags |= ITEM_ALONE | ITEM_AGAIN;
	make_ready(w, e);
}

void window_put_off(struct window *w, struct entry *e, uint64_t until_ms)
{
	assert(e->state == ENTRY_IN_HAND);
	w->n_in_hand--;
	w->n_put_off++;
	e->is_put_off = true;
	postpone(w, e, until_ms);
}

struct entry *window_put_off_over(const struct window *w)
{
	struct entry *e = w->n_put_off != 0 ? w->ready : NULL;
	while (e != NULL && !e->is_put_off)
		e = e->next;
	return e;
}

void window_give_back(struct window *w, struct entry *e)
{
	assert(e->state == ENTRY_IN_HAND);
	w->n_in_hand--;
	make_ready(w, e);
}

/* Nothing more is to be said of it: one that is held for long must not make us keep, and look through,
 * everything that came after it. */
static void forget(struct window *w, struct entry *e)
{
	HASH_DELETE(tag_hh, w->by_tag, e);
	entry_free(w, e);
	/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the hash has it no more */
	w->first = w->by_tag != NULL ? w->by_tag->tag : w->next;
}

void window_drop(struct window *w, struct entry *e)
{
	switch (e->state) {
	case ENTRY_IN_HAND:
		w->n_in_hand--;
		break;
	case ENTRY_READY:
		DL_DELETE(w->ready, e);
		w->n_ready--;
		break;
	case ENTRY_LATER:
		DL_DELETE(w->later, e);
		break;
	case ENTRY_RECEIVING:
	case ENTRY_NONE:
	case ENTRY_BEHIND:
	case ENTRY_SETTLED:
		assert(e->state == ENTRY_RECEIVING);
		break;
	}
	w->n_held--;
	w->n_put_off -= e->is_put_off;
	leave_key(w, e);
	forget(w, e);
}

/* ---- acknowledgements ---------------------------------------------------------------------------- */

static void acknowledged(struct window *w, struct entry *e)
{
	DL_DELETE(w->loose, e);
	w->n_loose--;
	forget(w, e);
}

/* The settled ones in front of the oldest that is held, by the name of the last of them. */
static bool prefix_ack(struct window *w, uint64_t *ret_tag, bool *ret_multiple)
{
	size_t n = 0;
	while (w->by_tag != NULL && w->by_tag->state == ENTRY_SETTLED) {
		*ret_tag = w->by_tag->tag;
		acknowledged(w, w->by_tag);
		n++;
	}
	*ret_multiple = n > 1;
	return n != 0;
}

bool window_next_ack(struct window *w, uint64_t now_ms, uint64_t hold_ms, uint64_t *ret_tag,
	bool *ret_multiple, uint64_t *ret_wait_ms)
{
	struct entry *e = w->loose;
	*ret_wait_ms = UINT64_MAX;
	if (e == NULL)
		return false;
	if (prefix_ack(w, ret_tag, ret_multiple))
		return true;
	if (e->settled_at_ms + hold_ms > now_ms) {
		*ret_wait_ms = e->settled_at_ms + hold_ms - now_ms;
		return false;
	}
	*ret_tag = e->tag;
	*ret_multiple = false;
	acknowledged(w, e);
	return true;
}

uint32_t window_batch_limit(
	uint32_t limit, uint32_t max, uint64_t took_us, uint64_t limit_us, bool failed)
{
	if (failed || took_us > limit_us)
		return limit > 1 ? limit / 2 : 1;
	limit += limit / 4 + 1;
	return limit < max ? limit : max;
}

/* SPDX-License-Identifier: MIT */
/* The window of deliveries. */
#include "consumer/window.h"

#include <assert.h>
#include <utlist.h>

enum { FIRST_RING = 256, BUSY_FIRST_MS = 200, BUSY_CAP_MS = 5000 };

void window_init(struct window *w)
{
	*w = (struct window){.first = 1, .next = 1};
	w->ring_size = FIRST_RING;
	w->ring = xcalloc(w->ring_size, sizeof(struct entry *));
}

static struct entry **place(const struct window *w, uint64_t tag)
{
	return &w->ring[tag & (w->ring_size - 1)];
}

static void entry_free(struct window *w, struct entry *e)
{
	w->bytes -= e->message.size;
	buf_done(&e->message);
	free(e->park_detail);
	free(e->key);
	free(e);
}

void window_reset(struct window *w)
{
	uint32_t generation = w->generation + 1;
	HASH_CLEAR(hh, w->by_key);
	for (uint64_t tag = w->first; tag < w->next; tag++)
		if (*place(w, tag) != NULL)
			entry_free(w, *place(w, tag));
	memset(w->ring, 0, w->ring_size * sizeof(struct entry *));
	struct entry **ring = w->ring;
	size_t size = w->ring_size;
	*w = (struct window){
		.generation = generation, .ring = ring, .ring_size = size, .first = 1, .next = 1};
}

void window_done(struct window *w)
{
	window_reset(w);
	free(w->ring);
	w->ring = NULL;
}

static void grow(struct window *w)
{
	size_t size = 2 * w->ring_size;
	struct entry **ring = xcalloc(size, sizeof *ring);
	for (uint64_t tag = w->first; tag < w->next; tag++)
		ring[tag & (size - 1)] = *place(w, tag);
	free(w->ring);
	w->ring = ring;
	w->ring_size = size;
}

struct entry *window_add(struct window *w, uint64_t tag)
{
	if (tag != w->next)
		return NULL;
	if (w->next - w->first == w->ring_size)
		grow(w);
	struct entry *e = xcalloc(1, sizeof *e);
	e->tag = tag;
	e->state = ENTRY_RECEIVING;
	*place(w, tag) = e;
	w->next++;
	w->n_held++;
	return e;
}

struct entry *window_find(struct window *w, const struct delivery_ref *ref)
{
	if (ref->generation != w->generation || ref->tag < w->first || ref->tag >= w->next)
		return NULL;
	return *place(w, ref->tag);
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

static void release_message(struct window *w, struct entry *e)
{
	w->bytes -= e->message.size;
	buf_done(&e->message);
}

static void settle(struct window *w, struct entry *e, uint64_t now_ms)
{
	e->state = ENTRY_SETTLED;
	e->settled_at_ms = now_ms;
	w->n_held--;
	w->n_loose++;
	release_message(w, e);
	leave_key(w, e);
}

static void postpone(struct window *w, struct entry *e, uint64_t now_ms)
{
	e->state = ENTRY_LATER;
	e->later_at_ms = now_ms + window_busy_delay_ms(++e->busy_times);
	DL_APPEND(w->later, e);
}

void window_verdict(struct window *w, struct entry *e, enum verdict v, uint64_t now_ms)
{
	assert(e->state == ENTRY_IN_HAND);
	w->n_in_hand--;
	switch (v) {
	case VERDICT_DONE:
	case VERDICT_PARKED:
	case VERDICT_DUPLICATE:
		settle(w, e, now_ms);
		break;
	case VERDICT_BUSY:
		postpone(w, e, now_ms);
		break;
	case VERDICT_ALONE:
		e->flags |= ITEM_ALONE;
		make_ready(w, e);
		break;
	case VERDICT_AGAIN:
	case VERDICT_COUNT:
		make_ready(w, e);
		break;
	}
}

void window_crashed(struct window *w, struct entry *e, bool was_alone, enum park_reason reason,
	const char *detail)
{
	assert(e->state == ENTRY_IN_HAND);
	w->n_in_hand--;
	e->flags |= ITEM_ALONE;
	if (was_alone && !e->is_parking) {
		e->crashes++;
		set_parking(e, reason, detail);
	}
	make_ready(w, e);
}

void window_give_back(struct window *w, struct entry *e)
{
	assert(e->state == ENTRY_IN_HAND);
	w->n_in_hand--;
	make_ready(w, e);
}

static void forget_prefix(struct window *w)
{
	while (w->first < w->next) {
		struct entry *e = *place(w, w->first);
		if (e != NULL && e->state != ENTRY_ACKED)
			return;
		if (e != NULL)
			entry_free(w, e);
		*place(w, w->first) = NULL;
		w->first++;
	}
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
	case ENTRY_ACKED:
		assert(e->state == ENTRY_RECEIVING);
		break;
	}
	w->n_held--;
	leave_key(w, e);
	e->state = ENTRY_ACKED; /* nothing more is to be said of it */
	forget_prefix(w);
}

/* ---- acknowledgements ---------------------------------------------------------------------------- */

static bool is_passed(const struct entry *e)
{
	return e == NULL || e->state == ENTRY_SETTLED || e->state == ENTRY_ACKED;
}

/* The contiguous prefix: its last settled tag is named, because one that was acknowledged by itself
 * is unknown to the broker by now. */
static bool prefix_ack(struct window *w, uint64_t *ret_tag, bool *ret_multiple)
{
	uint64_t last = 0, tag;
	size_t n = 0;
	for (tag = w->first; tag < w->next && is_passed(*place(w, tag)); tag++) {
		const struct entry *e = *place(w, tag);
		if (e != NULL && e->state == ENTRY_SETTLED) {
			last = tag;
			n++;
		}
	}
	if (last == 0)
		return false;
	for (tag = w->first; tag <= last; tag++) {
		struct entry *e = *place(w, tag);
		if (e != NULL)
			e->state = ENTRY_ACKED;
	}
	w->n_loose -= n;
	forget_prefix(w);
	*ret_tag = last;
	*ret_multiple = n > 1;
	return true;
}

bool window_next_ack(struct window *w, uint64_t now_ms, uint64_t hold_ms, uint64_t *ret_tag,
	bool *ret_multiple, uint64_t *ret_wait_ms)
{
	*ret_wait_ms = UINT64_MAX;
	if (w->n_loose == 0)
		return false;
	if (prefix_ack(w, ret_tag, ret_multiple))
		return true;
	for (uint64_t tag = w->first; tag < w->next; tag++) {
		struct entry *e = *place(w, tag);
		if (e == NULL || e->state != ENTRY_SETTLED)
			continue;
		if (e->settled_at_ms + hold_ms > now_ms) {
			uint64_t wait = e->settled_at_ms + hold_ms - now_ms;
			*ret_wait_ms = wait < *ret_wait_ms ? wait : *ret_wait_ms;
			continue;
		}
		e->state = ENTRY_ACKED;
		w->n_loose--;
		*ret_tag = tag;
		*ret_multiple = false;
		return true;
	}
	return false;
}

uint64_t window_last_held(const struct window *w)
{
	for (uint64_t tag = w->next; tag > w->first; tag--)
		if (!is_passed(*place(w, tag - 1)))
			return tag - 1;
	return 0;
}

uint32_t window_batch_limit(
	uint32_t limit, uint32_t max, uint64_t took_us, uint64_t limit_us, bool failed)
{
	if (failed || took_us > limit_us)
		return limit > 1 ? limit / 2 : 1;
	limit += limit / 4 + 1;
	return limit < max ? limit : max;
}

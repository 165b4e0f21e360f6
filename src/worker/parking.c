/* SPDX-License-Identifier: MIT */
/* Parking from a worker: of one message, and of a body that passes through in pieces. */
#include "worker/session.h"

#include "base/backoff.h"
#include "base/fault.h"
#include "base/utf8.h"
#include "worker/verdict.h"

#include <assert.h>

static bool is_kept_first(const struct park *park)
{
	return strcmp(park->reason, park_reason_name(PARK_REDELIVERED)) == 0;
}

static enum log_level level_of(const struct park *park, enum park_outcome outcome)
{
	if (outcome == PARK_MISMATCH || strcmp(park->state != NULL ? park->state : "", "failed") == 0)
		return L_WARNING;
	/* After a lost connection these are as many as were held. */
	return is_kept_first(park) ? L_DEBUG : L_INFO;
}

/* A mere look has no state. */
static bool is_waiting(const struct park *park)
{
	return park->state != NULL && strcmp(park->state, "waiting") == 0;
}

static void count_parked(struct worker *w, const struct park *park)
{
	static const char *const of_message[] = {
		"no_key", "unusable_key", "too_large", "undecodable"};
	enum stats_counter c = STATS_failed;
	if (is_waiting(park))
		c = is_kept_first(park) ? STATS_kept : STATS_retried;
	for (size_t i = 0; i < sizeof of_message / sizeof of_message[0]; i++)
		if (strcmp(park->reason, of_message[i]) == 0)
			c = STATS_rejected;
	stats_add(w->slot, c, 1);
}

static void note_due(struct worker *w, uint64_t delay_ms)
{
	if (delay_ms < w->next_due_ms)
		w->next_due_ms = delay_ms;
}

/* What the outcome means for the delivery; counts and logs it. */
static enum verdict conclude(
	struct worker *w, const struct park *park, enum park_outcome outcome, uint8_t item_flags)
{
	const struct message *m = park->message;
	switch (outcome) {
	case PARK_PARKED:
		count_parked(w, park);
		if (is_waiting(park))
			note_due(w, park->delay_ms);
		else
			w->has_outgoing = true;
		worker_log(level_of(park, outcome), "parked", park->key, m, park->attempts,
			park->reason, park->detail);
		return VERDICT_PARKED;
	case PARK_MISMATCH:
		stats_add(w->slot, STATS_mismatches, 1);
		worker_log(level_of(park, outcome), "parked", park->key, m, park->attempts,
			"mismatch", "the key is known with other content");
		return VERDICT_PARKED;
	case PARK_DUPLICATE:
	case PARK_PRESENT:
	case PARK_DROPPED:
		if (park->parked == 0)
			stats_add(w->slot,
				verdict_duplicate_cause(item_flags, m->redelivered), 1);
		return VERDICT_DUPLICATE;
	case PARK_REVIVED:
		note_due(w, 0);
		stats_add(w->slot, STATS_retried, 1);
		worker_log(L_INFO, "revived", park->key, m, 0, "sent_again", NULL);
		return VERDICT_KEPT;
	case PARK_BUSY:
		return VERDICT_BUSY;
	case PARK_AGAIN:
		break;
	}
	return VERDICT_AGAIN;
}

enum verdict worker_park(struct worker *w, const struct park *park, uint8_t item_flags)
{
	struct err err;
	enum park_outcome outcome;
	struct park clean = *park;
	struct message again = *park->message;
	char detail[1024];

	if (w->db == NULL)
		return VERDICT_AGAIN;
	/* Only this tells a copy that somebody sent again from one whose parking nobody heard of.  A row with a
	 * key keeps the broker's own word: only looks need ours. */
	if ((item_flags & ITEM_AGAIN) != 0 && (park->key.size == 0 || park->state == NULL))
		again.redelivered = true;
	clean.message = &again;
	utf8_clean(bytes_str(park->detail != NULL ? park->detail : ""), detail, sizeof detail);
	clean.detail = detail;
	if (inbox_park(&w->inbox, &clean, &outcome, NULL, &err) != RC_OK) {
		/* Lost, or the schema is not what we know: either way the session is of no use. */
		worker_lost(w, &err);
		return VERDICT_AGAIN;
	}
	FAULT("parked");
	return conclude(w, &clean, outcome, item_flags);
}

/* ---- what the consumer found unusable ---------------------------------------------------------- */

struct order {
	enum park_reason reason;
	struct bytes detail;
	struct item item;
};

static void order_decode(struct bytes payload, struct order *ret)
{
	struct reader r = reader_of(payload);
	ret->reason = (enum park_reason)reader_u8(&r);
	ret->detail = short_decode(&r);
	bool ok = item_decode(&r, &ret->item);
	assert(ok && ret->reason < PARK_REASON_COUNT); /* our own consumer encoded it */
}

/* A crash is retried as long as there are crashes left; all else fails at once. */
static void plan(struct worker *w, const struct order *order, char *detail, size_t detail_size,
	struct park *ret)
{
	bool is_crash = order->reason == PARK_CRASHED || order->reason == PARK_TIMED_OUT;
	utf8_clean(order->detail, detail, detail_size);
	*ret = (struct park){
		.message = &order->item.message,
		.key = order->item.key,
		.state = "failed",
		.reason = park_reason_name(order->reason),
		.detail = detail,
	};
	if (!is_crash)
		return;
	ret->crashes = order->item.crashes;
	verdict_dispose_crash(w->consumer, order->item.crashes, random_u32(), ret);
}

/* Once for each run, however often its parking was put off. */
static void count_crash(struct worker *w, enum park_reason reason, enum verdict verdict)
{
	if (verdict != VERDICT_PARKED && verdict != VERDICT_DUPLICATE)
		return;
	if (reason == PARK_CRASHED)
		stats_add(w->slot, STATS_crashed, 1);
	if (reason == PARK_TIMED_OUT)
		stats_add(w->slot, STATS_timed_out, 1);
}

static void add_fingerprint(struct worker *w, struct park *park, struct buf *fingerprint)
{
	struct source_message sm;
	struct err err;
	if (park->key.size == 0)
		return;
	source_message_init(&sm, park->message);
	if (fingerprint_compute(&w->consumer->fingerprint, &sm, fingerprint, &err))
		park->fingerprint = buf_bytes(fingerprint);
	else
		park->key = bytes_of(NULL, 0);
}

void parking_run(struct worker *w, struct bytes payload)
{
	struct order order;
	struct park park;
	char detail[1024];
	struct buf fingerprint = {0};

	FAULT("parking-read");
	order_decode(payload, &order);
	plan(w, &order, detail, sizeof detail, &park);
	add_fingerprint(w, &park, &fingerprint);
	const struct answer answer = {
		.ref = order.item.ref, .verdict = worker_park(w, &park, order.item.flags)};
	count_crash(w, order.reason, answer.verdict);
	buf_done(&fingerprint);
	worker_answer(w, &answer, 1);
}

/* ---- a body in pieces -------------------------------------------------------------------------------- */

static struct bytes keep(struct buf *copy, struct bytes b)
{
	size_t at = copy->size;
	buf_add(copy, b.data, b.size);
	return bytes_of(copy->data + at, b.size);
}

/* The frame goes, the message stays until its end. */
static void keep_message(struct worker *w, const struct message *m)
{
	struct buf *copy = &w->stream.copy;
	buf_clear(copy);
	(void)buf_reserve(copy, m->exchange.size + m->routing_key.size + m->properties.size + 1);
	w->stream.message = (struct message){
		.exchange = keep(copy, m->exchange),
		.routing_key = keep(copy, m->routing_key),
		.properties = keep(copy, m->properties),
		.body_size = m->body_size,
		.redelivered = m->redelivered,
	};
}

void parking_begin(struct worker *w, struct bytes payload)
{
	struct order order;
	struct err err;

	order_decode(payload, &order);
	keep_message(w, &order.item.message);
	plan(w, &order, w->stream.detail, sizeof w->stream.detail, &w->stream.what);
	w->stream.what.message = &w->stream.message;
	w->stream.what.key = bytes_of(NULL, 0);
	w->stream.ref = order.item.ref;
	w->stream.flags = order.item.flags;
	w->stream.is_begun = true;
	w->stream.is_open = false;
	if (w->db == NULL)
		return;
	if (inbox_park_begin(&w->inbox, &w->stream.what, &w->stream.park, &err) == RC_OK)
		w->stream.is_open = true;
	else
		worker_lost(w, &err);
}

void parking_piece(struct worker *w, struct bytes piece)
{
	struct err err;
	FAULT("piece-read");
	if (!w->stream.is_open)
		return; /* read over: it is asked for again */
	if (inbox_park_piece(&w->inbox, &w->stream.park, piece, &err) != RC_OK) {
		w->stream.is_open = false;
		worker_lost(w, &err);
	}
}

static enum verdict end_stream(struct worker *w)
{
	struct err err;
	enum park_outcome outcome;
	if (!w->stream.is_open)
		return VERDICT_AGAIN;
	if (inbox_park_end(&w->inbox, &w->stream.park, &outcome, &err) != RC_OK) {
		worker_lost(w, &err);
		return VERDICT_AGAIN;
	}
	FAULT("stream-parked");
	return conclude(w, &w->stream.what, outcome, w->stream.flags);
}

static void close_stream(struct worker *w)
{
	w->stream.is_open = w->stream.is_begun = false;
	park_stream_done(&w->stream.park);
	buf_done(&w->stream.copy);
}

void parking_end(struct worker *w)
{
	if (!w->stream.is_begun)
		return;
	const struct answer answer = {.ref = w->stream.ref, .verdict = end_stream(w)};
	close_stream(w);
	worker_answer(w, &answer, 1);
}

void parking_abort(struct worker *w)
{
	struct err err;
	if (w->stream.is_open && inbox_park_abort(&w->inbox, &err) != RC_OK)
		worker_lost(w, &err);
	close_stream(w);
}

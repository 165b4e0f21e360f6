/* SPDX-License-Identifier: MIT */
/* Parking from a worker: of one message, and of a body that passes through in pieces. */
#include "worker/session.h"

#include "base/backoff.h"
#include "base/utf8.h"
#include "worker/verdict.h"

#include <assert.h>

static enum log_level level_of(const struct park *park, enum park_outcome outcome)
{
	if (outcome == PARK_MISMATCH || strcmp(park->state != NULL ? park->state : "", "failed") == 0)
		return L_WARNING;
	return L_INFO;
}

static void count_parked(struct worker *w, const struct park *park)
{
	static const char *const of_message[] = {
		"no_key", "unusable_key", "too_large", "undecodable"};
	enum stats_counter c = STATS_failed;
	if (strcmp(park->state, "waiting") == 0)
		c = STATS_retried;
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
		if (strcmp(park->state, "waiting") == 0)
			note_due(w, park->delay_ms);
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
		return VERDICT_PARKED;
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
	char detail[1024];

	if (w->db == NULL)
		return VERDICT_AGAIN;
	utf8_clean(bytes_str(park->detail != NULL ? park->detail : ""), detail, sizeof detail);
	clean.detail = detail;
	if (inbox_park(&w->inbox, &clean, &outcome, NULL, &err) != RC_OK) {
		/* Lost, or the schema is not what we know: either way the session is of no use. */
		worker_lost(w, &err);
		return VERDICT_AGAIN;
	}
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
	const struct config_consumer *c = w->consumer;
	bool is_crash = order->reason == PARK_CRASHED || order->reason == PARK_TIMED_OUT;
	uint32_t crashes = order->item.crashes;
	bool may_wait = is_crash && crashes < c->crash_limit && crashes < retry_attempts_max(c);

	utf8_clean(order->detail, detail, detail_size);
	*ret = (struct park){
		.message = &order->item.message,
		.key = order->item.key,
		.state = may_wait ? "waiting" : "failed",
		.reason = park_reason_name(order->reason),
		.detail = detail,
		.attempts = is_crash ? crashes : 0,
		.crashes = is_crash ? crashes : 0,
		.delay_ms = may_wait ? retry_delay_ms(c, crashes, random_u32()) : 0,
	};
	if (is_crash)
		stats_add(w->slot,
			order->reason == PARK_CRASHED ? STATS_crashed : STATS_timed_out, 1);
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

	order_decode(payload, &order);
	plan(w, &order, detail, sizeof detail, &park);
	add_fingerprint(w, &park, &fingerprint);
	const struct answer answer = {
		.ref = order.item.ref, .verdict = worker_park(w, &park, order.item.flags)};
	buf_done(&fingerprint);
	worker_answer(w, &answer, 1);
}

/* ---- a body in pieces -------------------------------------------------------------------------------- */

void parking_begin(struct worker *w, struct bytes payload)
{
	struct order order;
	struct park park;
	struct err err;
	char detail[1024];
	enum park_outcome outcome = PARK_BUSY;

	order_decode(payload, &order);
	plan(w, &order, detail, sizeof detail, &park);
	park.key = bytes_of(NULL, 0); /* its fingerprint is not known before its end */
	park.is_streamed = true;
	w->stream.is_begun = true;
	w->stream.is_open = false;
	w->stream.seq = 0;
	w->stream.ref = order.item.ref;
	w->stream.verdict = VERDICT_AGAIN;
	if (w->db == NULL)
		return;
	if (inbox_park_begin(&w->inbox, &park, &outcome, &w->stream.id, &err) != RC_OK) {
		worker_lost(w, &err);
		return;
	}
	w->stream.is_open = outcome == PARK_PARKED;
	w->stream.verdict = conclude(w, &park, outcome, order.item.flags);
}

void parking_piece(struct worker *w, struct bytes piece)
{
	struct err err;
	if (!w->stream.is_open)
		return; /* read over: the answer is known already */
	if (inbox_park_piece(&w->inbox, w->stream.id, w->stream.seq++, piece, &err) != RC_OK) {
		w->stream.is_open = false;
		w->stream.verdict = VERDICT_AGAIN;
		worker_lost(w, &err);
	}
}

void parking_end(struct worker *w)
{
	struct err err;
	if (!w->stream.is_begun)
		return;
	if (w->stream.is_open && inbox_park_end(&w->inbox, &err) != RC_OK) {
		w->stream.verdict = VERDICT_AGAIN;
		worker_lost(w, &err);
	}
	w->stream.is_open = w->stream.is_begun = false;
	const struct answer answer = {.ref = w->stream.ref, .verdict = w->stream.verdict};
	worker_answer(w, &answer, 1);
}

void parking_abort(struct worker *w)
{
	struct err err;
	if (w->stream.is_open && inbox_rollback(&w->inbox, &err) != RC_OK)
		worker_lost(w, &err);
	w->stream.is_open = w->stream.is_begun = false;
}

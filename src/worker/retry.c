/* SPDX-License-Identifier: MIT */
/* Retries: take one that is due, run it alone. */
#include "worker/session.h"

#include "base/fault.h"
#include "base/fd.h"

#include <stdio.h>

enum {
	BUSY_MS = 500, /* until a retry whose key is in hand elsewhere is due again */
	LEASE_MARGIN_MS = 30000, /* over the handler's limit: time to be killed and noticed */
};

static void answer(struct worker *w, enum retry_fate fate, const struct outlook *o)
{
	worker_consider_leaving(w);
	size_t at = channel_begin(&w->channel, FROM_RETRY);
	buf_add_byte(&w->channel.out, (uint8_t)fate);
	buf_add_u64(
		&w->channel.out, o->next_due_ms < w->next_due_ms ? o->next_due_ms : w->next_due_ms);
	buf_add_u32(&w->channel.out, o->parked);
	buf_add_byte(&w->channel.out, o->has_kept);
	channel_end(&w->channel, at);
}

/* Without a session nobody knows; the next one tells. */
static struct outlook look_out(struct worker *w)
{
	struct outlook o = {.next_due_ms = UINT64_MAX, .parked = OUTLOOK_UNKNOWN};
	struct err err;
	if (w->db != NULL && inbox_look_out(&w->inbox, &o, &err) != RC_OK)
		worker_lost(w, &err);
	return o;
}

/* The consumer must know which one it is if we die over it. */
static void announce(struct worker *w, const struct due *due)
{
	size_t at = channel_begin(&w->channel, FROM_TAKEN);
	buf_add_u64(&w->channel.out, (uint64_t)due->parked);
	buf_add_u64(&w->channel.out, (uint64_t)due->token);
	channel_end(&w->channel, at);
	FAULT("before-retry-announced");
	(void)!channel_flush(&w->channel);
}

/* The rule finds no key still: as before. */
static enum verdict park_keyless(
	struct worker *w, const struct due *due, enum park_reason reason, const char *detail)
{
	const struct park park = {
		.message = &due->message,
		.state = "failed",
		.reason = park_reason_name(reason),
		.detail = detail,
		.attempts = due->attempts,
		.crashes = due->crashes,
		.parked = due->parked,
		.parked_token = due->token,
	};
	return worker_park(w, &park, 0);
}

static enum verdict run_under_key(
	struct worker *w, const struct due *due, struct bytes key, struct bytes fingerprint)
{
	struct err err;
	enum park_outcome outcome;
	struct due keyed = *due;
	keyed.key = key;
	keyed.fingerprint = fingerprint;
	if (inbox_adopt_key(&w->inbox, due, key, fingerprint, &outcome, &err) != RC_OK) {
		worker_lost(w, &err);
		return VERDICT_AGAIN;
	}
	if (outcome == PARK_PARKED)
		return batch_run_retry(w, &keyed);
	if (outcome == PARK_MISMATCH) {
		stats_add(w->slot, STATS_mismatches, 1);
		worker_log(L_WARNING, "parked", key, &due->message, due->attempts, "mismatch",
			"the key is known with other content");
	}
	return outcome == PARK_BUSY ? VERDICT_BUSY : VERDICT_PARKED;
}

/* Parked without key, and somebody wants it run: the rule may have been mended meanwhile, or the
 * body was never read for being too large. */
static enum verdict run_keyless(struct worker *w, const struct due *due)
{
	AUTO(buf) struct buf key = {0};
	AUTO(buf) struct buf fingerprint = {0};
	struct source_message sm;
	struct err err;
	source_message_init(&sm, &due->message);
	switch (key_extract(&w->consumer->key, &sm, &key, &err)) {
	case KEY_OK:
		break;
	case KEY_NONE:
		return batch_run_retry(w, due);
	case KEY_MISSING:
		return park_keyless(w, due, PARK_NO_KEY, err.text);
	case KEY_UNUSABLE:
		return park_keyless(w, due, PARK_UNUSABLE_KEY, err.text);
	}
	if (!fingerprint_compute(&w->consumer->fingerprint, &sm, &fingerprint, &err))
		return park_keyless(w, due, PARK_UNUSABLE_KEY, err.text);
	return run_under_key(w, due, buf_bytes(&key),
		fingerprint.data != NULL ? buf_bytes(&fingerprint) : bytes_str(""));
}

static enum retry_fate run_due(struct worker *w, const struct due *due)
{
	struct err err;
	enum verdict v = due->key.size != 0 ? batch_run_retry(w, due) : run_keyless(w, due);
	if (v == VERDICT_CRASHED)
		return RETRY_CRASHED;
	if (v != VERDICT_AGAIN && v != VERDICT_BUSY && v != VERDICT_LOST)
		return RETRY_RAN;
	w->owed.parked = due->parked;
	w->owed.token = due->token;
	w->owed.is_lost = v == VERDICT_LOST;
	w->owed.delay_ms = v == VERDICT_BUSY ? BUSY_MS : 0;
	if (v == VERDICT_LOST)
		w->owed.delay_ms = loss_delay_ms(due->losses + 1);
	if (w->db != NULL && retry_repay(w, &err) != RC_OK)
		worker_lost(w, &err);
	return RETRY_RAN;
}

enum rc retry_repay(struct worker *w, struct err *err)
{
	if (w->owed.parked == 0)
		return RC_OK;
	FAULT("before-repay");
	if (inbox_give_back(&w->inbox, w->owed.parked, w->owed.token, w->owed.delay_ms, w->owed.is_lost,
		    err) != RC_OK)
		return err->rc;
	w->owed.parked = 0;
	FAULT("repaid");
	return RC_OK;
}

/* Nobody else tells of it: whoever ran it last is gone. */
static void tell_ended(void *arg, const struct due *d)
{
	struct worker *w = arg;
	AUTO(buf) struct buf reason = {0};
	AUTO(buf) struct buf detail = {0};
	bool is_mismatch = bytes_equal(d->state, bytes_str("mismatch"));
	buf_add(&reason, d->reason.data, d->reason.size);
	buf_add(&detail, d->detail.data, d->detail.size);
	stats_add(w->slot, is_mismatch ? STATS_mismatches : STATS_failed, 1);
	w->has_outgoing = w->has_outgoing || !is_mismatch;
	worker_log(L_WARNING, "parked", d->key, &d->message, d->attempts, buf_str(&reason),
		buf_str(&detail));
}

void retry_run(struct worker *w)
{
	struct due due;
	struct err err;
	bool found = false;
	enum retry_fate fate = RETRY_NONE;
	uint64_t lease_ms = w->consumer->handler_timeout_ms + LEASE_MARGIN_MS;

	if (w->db != NULL && inbox_take_due(&w->inbox, lease_ms, tell_ended, w, &found, &due, &err) != RC_OK)
		worker_lost(w, &err);
	if (w->db != NULL && found) {
		announce(w, &due);
		fate = run_due(w, &due);
		due_done(&due);
	}
	const struct outlook o = look_out(w);
	answer(w, fate, &o);
}

void retry_crashed(struct worker *w, struct bytes payload)
{
	struct reader r = reader_of(payload);
	int64_t parked = (int64_t)reader_u64(&r);
	int64_t token = (int64_t)reader_u64(&r);
	bool timed_out = reader_u8(&r) != 0;
	struct bytes detail = short_decode(&r);
	enum park_outcome outcome = PARK_BUSY;
	struct err err;
	char text[256];

	(void)snprintf(text, sizeof text, "%.*s", (int)detail.size, (const char *)detail.data);
	if (w->db != NULL &&
		inbox_count_crash(&w->inbox, parked, token,
			park_reason_name(timed_out ? PARK_TIMED_OUT : PARK_CRASHED), text, &outcome,
			&err) != RC_OK)
		worker_lost(w, &err);
	FAULT("crash-counted");
	if (outcome == PARK_PARKED) {
		w->has_outgoing = true; /* if it was the last one */
		stats_add(w->slot, timed_out ? STATS_timed_out : STATS_crashed, 1);
		log_event(L_WARNING, "crash_counted", LI("parked", parked),
			LS("reason", park_reason_name(timed_out ? PARK_TIMED_OUT : PARK_CRASHED)),
			LS("detail", text));
	}
	/* Not counted yet (the dead session still holds the key): the consumer asks again. */
	const struct outlook o = look_out(w);
	answer(w, outcome != PARK_BUSY ? RETRY_RAN : RETRY_NONE, &o);
}

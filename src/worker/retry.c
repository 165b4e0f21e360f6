/* SPDX-License-Identifier: MIT */
/* Retries: take one that is due, run it alone. */
#include "worker/session.h"

#include "base/fault.h"

#include <stdio.h>

enum {
	LEASE_MARGIN_MS = 30000, /* over the handler's limit: time to be killed and noticed */
};

static void answer(struct worker *w, bool ran, uint64_t next_due_ms)
{
	size_t at = channel_begin(&w->channel, FROM_RETRY);
	buf_add_byte(&w->channel.out, ran);
	buf_add_u64(&w->channel.out, next_due_ms < w->next_due_ms ? next_due_ms : w->next_due_ms);
	channel_end(&w->channel, at);
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

static void run_due(struct worker *w, const struct due *due)
{
	struct err err;
	enum verdict v = batch_run_retry(w, due);
	if (v != VERDICT_AGAIN && v != VERDICT_BUSY)
		return;
	w->owed.parked = due->parked;
	w->owed.token = due->token;
	if (w->db != NULL && retry_repay(w, &err) != RC_OK)
		worker_lost(w, &err);
}

enum rc retry_repay(struct worker *w, struct err *err)
{
	if (w->owed.parked == 0)
		return RC_OK;
	FAULT("before-repay");
	if (inbox_give_back(&w->inbox, w->owed.parked, w->owed.token, err) != RC_OK)
		return err->rc;
	w->owed.parked = 0;
	FAULT("repaid");
	return RC_OK;
}

void retry_run(struct worker *w)
{
	struct due due;
	struct err err;
	bool found = false;
	uint64_t next_ms = UINT64_MAX;
	uint64_t lease_ms = w->consumer->handler_timeout_ms + LEASE_MARGIN_MS;

	if (w->db != NULL && inbox_take_due(&w->inbox, lease_ms, &found, &due, &err) != RC_OK)
		worker_lost(w, &err);
	if (w->db != NULL && found) {
		announce(w, &due);
		run_due(w, &due);
		due_done(&due);
	}
	if (w->db != NULL && inbox_next_due(&w->inbox, &next_ms, &err) != RC_OK)
		worker_lost(w, &err);
	answer(w, found, next_ms);
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
	if (outcome == PARK_PARKED)
		stats_add(w->slot, timed_out ? STATS_timed_out : STATS_crashed, 1);
	/* Not counted yet (the dead session still holds the key): the consumer asks again. */
	answer(w, outcome != PARK_BUSY, UINT64_MAX);
}

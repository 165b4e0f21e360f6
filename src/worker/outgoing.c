/* SPDX-License-Identifier: MIT */
/* What is to be published: rows taken for the consumer, and what it says of them recorded. */
#include "worker/session.h"
#include "worker/verdict.h"

#include "base/fault.h"
#include "base/fd.h"

enum {
	TAKE_MOST = 100,
	TAKE_BYTES = 4 << 20,
	HOLD_MS = 30000,    /* until it must have been begun to be published */
	CONFIRM_MS = 40000, /* until the broker has answered, and some more */
};

/* The outcome is recorded by a worker that may first have to end what its handler does. */
static uint64_t lease_ms(const struct worker *w)
{
	return HOLD_MS + CONFIRM_MS + (uint64_t)w->consumer->handler_timeout_ms;
}

static void add_rows(struct worker *w, const struct db_result *rows)
{
	AUTO(buf) struct buf properties = {0};
	for (size_t i = 0; i < db_result_rows(rows); i++) {
		struct outgoing o;
		struct letter letter;
		inbox_read_outgoing(&w->inbox, rows, i, &o, &letter);
		buf_clear(&properties);
		letter_encode(&letter, &properties);
		o.properties = buf_bytes(&properties);
		outgoing_encode(&w->channel.out, &o);
	}
}

void outgoing_take(struct worker *w)
{
	AUTO(result) struct db_result *rows = NULL;
	struct err err;
	uint64_t next_ms = UINT64_MAX;
	FAULT("before-outgoing-taken");
	if (w->db != NULL &&
		inbox_take_outgoing(&w->inbox, TAKE_MOST, TAKE_BYTES, lease_ms(w), &rows, &err) !=
			RC_OK)
		worker_lost(w, &err);
	if (w->db != NULL && inbox_next_outgoing(&w->inbox, &next_ms, &err) != RC_OK)
		worker_lost(w, &err);
	size_t at = channel_begin(&w->channel, FROM_OUTGOING);
	buf_add_u64(&w->channel.out, next_ms);
	buf_add_u32(&w->channel.out, HOLD_MS);
	if (rows != NULL)
		add_rows(w, rows);
	if (rows != NULL && db_result_rows(rows) != 0)
		FAULT("outgoing-taken");
	channel_end(&w->channel, at);
}

void outgoing_record(struct worker *w, struct bytes outcomes)
{
	struct err err;
	bool done = false;
	FAULT("before-outcomes-recorded");
	/* An operator's action on many rows may take them in another order: a deadlock is tried again. */
	for (int tries = 0; w->db != NULL && !done; tries++) {
		done = inbox_record_outcomes(&w->inbox, outcomes, &err) == RC_OK;
		if (!done && (!db_error_is_serialization(err.sqlstate) ||
				     tries + 1 >= VERDICT_SERIALIZATION_TRIES))
			worker_lost(w, &err);
	}
	FAULT("outcomes-recorded");
	size_t at = channel_begin(&w->channel, FROM_SENT);
	buf_add_byte(&w->channel.out, done);
	channel_end(&w->channel, at);
}

void outgoing_say_due(struct worker *w)
{
	if (!w->has_outgoing || w->consumer->dead_letter.exchange == NULL)
		return;
	channel_end(&w->channel, channel_begin(&w->channel, FROM_DUE));
	w->has_outgoing = false;
}

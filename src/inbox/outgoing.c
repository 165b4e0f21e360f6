/* SPDX-License-Identifier: MIT */
/* Messages that are to be published: taken by lease, and let go once the broker has them. */
#include "inbox/array.h"
#include "inbox/inbox.h"
#include "inbox/sql.h"

#include "base/fd.h"
#include "base/utf8.h"

enum { ERROR_MAX = 512 };

enum rc inbox_take_outgoing(struct inbox *x, uint32_t most, uint64_t bytes, uint64_t lease_ms,
	struct db_result **ret, struct err *err)
{
	struct number_text id, n, size, lease, body_max;
	const struct db_value args[] = {value_int(&id, x->id), value_text(x->consumer->name),
		value_int(&n, most), value_int(&size, (int64_t)bytes),
		value_int(&lease, (int64_t)lease_ms),
		value_int(&body_max, (int64_t)x->consumer->max_message_bytes)};
	if (inbox_run(x, SQL_TAKE_OUTGOING, 6, args, ret, err) != RC_OK)
		return err_ctx(err, "taking what is to be published");
	return RC_OK;
}

void inbox_read_outgoing(const struct inbox *x, const struct db_result *rows, size_t row,
	struct outgoing *ret, struct letter *ret_letter)
{
	struct bytes body = db_result_value(rows, row, 13);
	*ret = (struct outgoing){
		.id = db_result_int(rows, row, 0),
		.token = db_result_int(rows, row, 1),
		.attempts = (uint32_t)db_result_int(rows, row, 2),
		.exchange = db_result_value(rows, row, 3),
		.routing_key = db_result_value(rows, row, 4),
		.body = body,
	};
	*ret_letter = (struct letter){
		.consumer = bytes_str(x->consumer->identity),
		.parked = db_result_int(rows, row, 5),
		.attempts = (uint32_t)db_result_int(rows, row, 6),
		.reason = db_result_value(rows, row, 7),
		.detail = db_result_value(rows, row, 8),
		.queue = db_result_value(rows, row, 9),
		.exchange = db_result_value(rows, row, 10),
		.routing_key = db_result_value(rows, row, 11),
		.properties = db_result_value(rows, row, 12),
		.is_without_body = body.data == NULL,
		.body_size = (uint64_t)db_result_int(rows, row, 14),
	};
}

enum rc inbox_next_outgoing(struct inbox *x, uint64_t *ret_ms, struct err *err)
{
	struct number_text id;
	const struct db_value args[] = {value_int(&id, x->id), value_text(x->consumer->name)};
	AUTO(result) struct db_result *res = NULL;
	if (db_exec(x->db, x->sql[SQL_NEXT_OUTGOING], 2, args, true, &res, err) != RC_OK)
		return err_ctx(err, "looking for what is to be published");
	bool none = db_result_value(res, 0, 0).data == NULL;
	int64_t ms = db_result_int(res, 0, 0);
	*ret_ms = none ? UINT64_MAX : ms > 0 ? (uint64_t)ms : 0;
	return RC_OK;
}

static enum rc queue_outcome(struct inbox *x, const struct outcome *o, struct err *err)
{
	char error[ERROR_MAX];
	struct number_text id, token, delay;
	utf8_clean(o->error, error, sizeof error);
	const struct db_value args[] = {value_int(&id, o->id), value_int(&token, o->token),
		value_int(&delay, o->delay_ms), value_text(error)};
	return inbox_queue(x, o->is_sent ? SQL_OUTGOING_SENT : SQL_OUTGOING_POSTPONED,
		o->is_sent ? 2 : 4, args, false, err);
}

static enum rc queue_outcomes(
	struct inbox *x, struct bytes outcomes, size_t *ret_n, struct err *err)
{
	struct reader r = reader_of(outcomes);
	struct outcome o;
	size_t n = 0;
	for (; reader_left(&r) != 0 && outcome_decode(&r, &o); n++)
		if (queue_outcome(x, &o, err) != RC_OK)
			return err->rc;
	*ret_n = n;
	return inbox_queue_commit(x, err);
}

enum rc inbox_record_outcomes(struct inbox *x, struct bytes outcomes, struct err *err)
{
	struct err later;
	size_t n = 0;
	enum rc rc = db_queue_begin(x->db, err);
	if (rc == RC_OK)
		rc = queue_outcomes(x, outcomes, &n, err);
	if (rc == RC_OK)
		rc = db_take_begin(x->db, err);
	for (size_t i = 0; rc == RC_OK && i < n; i++)
		rc = db_next(x->db, NULL, err);
	enum rc end = inbox_end_commit(x, rc == RC_OK ? err : &later);
	if (rc == RC_OK)
		rc = end;
	if (rc != RC_OK) {
		inbox_abandon(x);
		return err_ctx(err, "recording what was published");
	}
	return RC_OK;
}

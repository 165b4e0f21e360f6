/* SPDX-License-Identifier: MIT */
/* Retries: parked messages whose time has come, and the schedule. */
#include "inbox/array.h"
#include "inbox/inbox.h"
#include "inbox/sql.h"

#include "base/backoff.h"
#include "base/fault.h"
#include "base/fd.h"

uint32_t retry_attempts_max(const struct config_consumer *c)
{
	return 1 + c->retry_immediate + (uint32_t)c->n_retry_delays;
}

uint64_t retry_delay_ms(const struct config_consumer *c, uint32_t attempts, uint32_t random)
{
	if (attempts <= c->retry_immediate || c->n_retry_delays == 0)
		return 0;
	size_t step = attempts - c->retry_immediate - 1;
	if (step >= c->n_retry_delays)
		step = c->n_retry_delays - 1;
	return jitter(c->retry_delays_ms[step], c->retry_jitter_percent, random);
}

static int64_t number(const struct db_result *res, size_t column)
{
	return db_result_int(res, 0, column);
}

static void read_due(struct due *d, struct db_result *res, size_t row)
{
	struct bytes body = db_result_value(res, row, 10);
	*d = (struct due){
		.parked = db_result_int(res, row, 0),
		.token = db_result_int(res, row, 1),
		.attempts = (uint32_t)db_result_int(res, row, 2),
		.crashes = (uint32_t)db_result_int(res, row, 3),
		.key = db_result_value(res, row, 4),
		.fingerprint = db_result_value(res, row, 5),
		.message =
			{
				.exchange = db_result_value(res, row, 6),
				.routing_key = db_result_value(res, row, 7),
				.redelivered = db_result_int(res, row, 8) != 0,
				.properties = db_result_value(res, row, 9),
				.body = body,
				.body_size = body.size,
			},
		.state = db_result_value(res, row, 11),
		.reason = db_result_value(res, row, 12),
		.detail = db_result_value(res, row, 13),
		.losses = (uint32_t)db_result_int(res, row, 14),
		.result = res,
	};
}

enum rc inbox_take_due(struct inbox *x, uint64_t lease_ms,
	void (*ended)(void *arg, const struct due *d), void *arg, bool *ret_found, struct due *ret,
	struct err *err)
{
	struct number_text id, attempts, crashes, lease, body_max;
	const struct db_value args[] = {value_int(&id, x->id), value_text(x->consumer->name),
		value_int(&attempts, retry_attempts_max(x->consumer)),
		value_int(&crashes, x->consumer->crash_limit), value_int(&lease, (int64_t)lease_ms),
		value_int(&body_max, (int64_t)x->consumer->max_message_bytes)};
	struct db_result *res = NULL;
	FAULT("before-due-taken");
	if (inbox_run(x, SQL_TAKE_DUE, 6, args, &res, err) != RC_OK)
		return err_ctx(err, "taking a message that is due");
	*ret_found = false;
	for (size_t row = 0; row < db_result_rows(res) && !*ret_found; row++) {
		read_due(ret, res, row);
		*ret_found = bytes_equal(ret->state, bytes_str("waiting"));
		if (!*ret_found)
			ended(arg, ret);
	}
	if (!*ret_found)
		db_result_free(res);
	else
		FAULT("due-taken");
	return RC_OK;
}

void due_done(struct due *d)
{
	db_result_free(d->result);
	d->result = NULL;
}

enum rc inbox_look_out(struct inbox *x, struct outlook *ret, struct err *err)
{
	struct number_text id, most;
	const struct db_value args[] = {
		value_int(&id, x->id), value_int(&most, x->consumer->parked_max)};
	AUTO(result) struct db_result *res = NULL;
	if (db_exec(x->db, x->sql[SQL_LOOK_OUT], 2, args, true, &res, err) != RC_OK)
		return err_ctx(err, "looking for parked messages");
	bool none = db_result_value(res, 0, 0).data == NULL;
	int64_t ms = number(res, 0);
	ret->next_due_ms = none ? UINT64_MAX : ms > 0 ? (uint64_t)ms : 0;
	ret->parked = (uint32_t)number(res, 1);
	ret->has_kept = number(res, 2) != 0;
	return RC_OK;
}

static enum park_outcome outcome_of(struct bytes text)
{
	static const struct {
		const char *text;
		enum park_outcome outcome;
	} known[] = {{"busy", PARK_BUSY}, {"dropped", PARK_DROPPED}, {"present", PARK_PRESENT},
		{"mismatch", PARK_MISMATCH}};
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
		if (bytes_equal(text, bytes_str(known[i].text)))
			return known[i].outcome;
	return PARK_PARKED;
}

enum rc inbox_adopt_key(struct inbox *x, const struct due *due, struct bytes key,
	struct bytes fingerprint, enum park_outcome *ret, struct err *err)
{
	struct number_text id, tok;
	const struct db_value args[] = {value_int(&id, due->parked), value_int(&tok, due->token),
		value_bytea(key), value_bytea(fingerprint)};
	AUTO(result) struct db_result *res = NULL;
	if (inbox_run(x, SQL_ADOPT_KEY, 4, args, &res, err) != RC_OK)
		return err_ctx(err, "giving a parked message its key");
	*ret = outcome_of(db_result_value(res, 0, 0));
	return RC_OK;
}

enum rc inbox_give_back(
	struct inbox *x, int64_t parked, int64_t token, uint64_t delay_ms, bool is_lost, struct err *err)
{
	struct number_text id, tok, delay;
	const struct db_value args[] = {value_int(&id, parked), value_int(&tok, token),
		value_int(&delay, (int64_t)delay_ms), value_text(is_lost ? "t" : "f")};
	if (inbox_run(x, SQL_GIVE_BACK, 4, args, NULL, err) != RC_OK)
		return err_ctx(err, "giving an attempt back");
	return RC_OK;
}

enum rc inbox_count_crash(struct inbox *x, int64_t parked, int64_t token, const char *reason,
	const char *detail, enum park_outcome *ret, struct err *err)
{
	struct number_text id, tok, attempts, crashes, delay;
	const struct config_consumer *c = x->consumer;
	const struct db_value args[] = {value_int(&id, parked), value_int(&tok, token),
		value_text(reason), value_text(detail), value_int(&attempts, retry_attempts_max(c)),
		value_int(&crashes, c->crash_limit),
		value_int(&delay, (int64_t)retry_delay_ms(c, c->retry_immediate + 1, random_u32()))};
	AUTO(result) struct db_result *res = NULL;
	if (inbox_run(x, SQL_COUNT_CRASH, 7, args, &res, err) != RC_OK)
		return err_ctx(err, "counting a crash");
	*ret = outcome_of(db_result_value(res, 0, 0));
	return RC_OK;
}

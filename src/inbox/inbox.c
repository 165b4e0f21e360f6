/* SPDX-License-Identifier: MIT */
/* The inbox's statements, and what is checked before any message is taken. */
#include "inbox/inbox.h"

#include "base/backoff.h"
#include "base/fault.h"
#include "base/fd.h"
#include "db/migrate.h"
#include "inbox/array.h"
#include "inbox/sql.h"

#include <stdio.h>

/* A statement of ours takes milliseconds; so long a wait is for something that is not coming. */
enum { OWN_LIMIT_MS = 10000, OWN_PATIENCE_MS = 60000 };

/* @ stands for the schema.  Each text is parsed once per session. */
static const char *const texts[SQL_COUNT] = {
	/* The lock decides who may look; the setting carries what was locked to the next statement,
	 * whose snapshot is therefore younger than the lock: '*' for all of them, as nearly always.  Both
	 * settings end with the transaction: the gate knows by the first that it is still the same one. */
	[SQL_LOCK_ONE] = "SELECT set_config('inboxd.tx', $1, true), set_config('inboxd.held', "
			 "pg_try_advisory_xact_lock($2::bigint)::text, true)",
	[SQL_LOCK_MANY] = "SELECT set_config('inboxd.tx', $1, true), set_config('inboxd.held', "
			  "CASE WHEN count(l.o) = cardinality($2::bigint[]) THEN '*' "
			  "ELSE coalesce(array_agg(l.o)::text, '{}') END, true) "
			  "FROM unnest($2::bigint[]) WITH ORDINALITY AS l (id, o) "
			  "WHERE pg_try_advisory_xact_lock(l.id)",

	/* The insert decides.  A key that is parked is not claimed by a delivery.  Both are looked up
	 * one by one, by scalar subqueries: a join would be planned by the size that a table had when the
	 * session was young, and read all of it when it has grown.  Where nothing is parked for the
	 * consumer, as mostly, one look says so for all keys. */
	[SQL_INSERT_ONE] =
		"INSERT INTO @.inbox (consumer, key, fingerprint) SELECT $1::integer, $2::bytea, "
		"$3::bytea WHERE current_setting('inboxd.held')::boolean AND ($4::boolean OR "
		"NOT EXISTS (SELECT FROM @.parked p WHERE p.consumer = $1::integer AND "
		"p.key = $2::bytea AND (p.state <> 'discarded' OR p.fingerprint = $3::bytea))) "
		"ON CONFLICT DO NOTHING RETURNING 1",
	[SQL_INSERT_MANY] =
		"INSERT INTO @.inbox (consumer, key, fingerprint) "
		"SELECT $1::integer, t.k, t.f "
		"FROM unnest($2::bytea[], $3::bytea[]) WITH ORDINALITY AS t (k, f, o) "
		"WHERE ((SELECT current_setting('inboxd.held') = '*') OR t.o = ANY ("
		"(SELECT nullif(current_setting('inboxd.held'), '*')::bigint[])::bigint[])) AND "
		"(NOT (SELECT EXISTS (SELECT FROM @.parked p WHERE p.consumer = $1::integer AND "
		"p.key IS NOT NULL)) OR (SELECT true FROM @.parked p WHERE p.consumer = $1::integer AND p.key = t.k AND "
		"(p.state <> 'discarded' OR p.fingerprint = t.f) LIMIT 1) IS NULL) "
		"ORDER BY t.o ON CONFLICT DO NOTHING RETURNING key",
	/* A retry's row goes with its work, or there is no work. */
	[SQL_TAKE_ROW] = "DELETE FROM @.parked WHERE id = $1::bigint AND state = 'waiting' AND "
			 "token = $2::bigint RETURNING 1",
	[SQL_FORGET] = "DELETE FROM @.inbox WHERE consumer = $1::integer AND "
		       "key = ANY ($2::bytea[])",
	[SQL_LOOK] = "SELECT (SELECT i.fingerprint FROM @.inbox i WHERE i.consumer = $1::integer AND "
		    "i.key = t.k) FROM unnest($2::bytea[]) WITH ORDINALITY AS t (k, o) ORDER BY t.o",

	[SQL_GUARD] = "INSERT INTO @.guard (backend, tx) VALUES (pg_backend_pid(), $1)",
	[SQL_UNGUARD] = "DELETE FROM @.guard WHERE backend = pg_backend_pid()",
	/* Fails, and with it the COMMIT behind it, unless the claiming transaction is still open. */
	[SQL_GATE] = "SELECT 1 / (current_setting('inboxd.tx', true) IS NOT DISTINCT FROM $1)::integer, "
		     "set_config('inboxd.commit', $1, true), set_config('synchronous_commit', $2, true), "
		     "set_config('statement_timeout', '0', true), "
		     "set_config('client_min_messages', 'warning', true)",
	/* A duplicate is believed by what another transaction has committed, and that may not have reached
	 * the standbys: its wait may have been given up.  With something in the WAL behind it our own COMMIT
	 * waits for both. */
	[SQL_CATCH_UP] = "SELECT @.catch_up()",
	[SQL_COMMIT] = "COMMIT",
	[SQL_ROLLBACK] = "ROLLBACK",
	/* Takes effect for the statements behind it. */
	[SQL_HANDLER_LIMIT] = "SELECT set_config('statement_timeout', $1, true)",
	[SQL_RESULT] = "INSERT INTO @.result (consumer, key, data, content_type) "
		       "VALUES ($1::integer, $2::bytea, $3::bytea, $4)",
	/* The wait for a standby is no statement that takes too long. */
	[SQL_DURABLE] = "SELECT set_config('synchronous_commit', $1, true), "
			"set_config('statement_timeout', '0', true)",

	[SQL_PARK] = "SELECT p.outcome, p.id FROM @.park($1::integer, $2, $3::bytea, $4::bytea, "
		     "$5::bigint, $6, $7, $8, $9, $10::integer, $11::integer, $12::bigint, $13::bigint, "
		     "$14::bigint, $15, $16::bytea, $17::bytea, $18::boolean, $19::bytea, $20::bytea, "
		     "$21::bigint) p",
	[SQL_CHUNK] = "INSERT INTO @.parked_chunk (parked, seq, data) "
		      "VALUES ($1::bigint, $2::integer, $3::bytea)",
	[SQL_NAME_STREAM] =
		"UPDATE @.parked p SET fingerprint = $2::bytea WHERE p.id = $1::bigint AND NOT "
		"(p.redelivered AND EXISTS (SELECT FROM @.parked o WHERE o.consumer = p.consumer AND "
		"o.key IS NULL AND o.fingerprint = $2::bytea)) RETURNING 1",
	[SQL_TAKE_DUE] = "SELECT d.id, d.token, d.attempts, d.crashes, d.key, d.fingerprint, "
			 "d.exchange, d.routing_key, d.redelivered, d.properties, "
			 "CASE WHEN d.state = 'waiting' THEN coalesce(d.body, @.parked_body(d.id)) END, "
			 "d.state, d.reason, d.detail, d.losses FROM @.take_due($1::integer, $2, $3::integer, "
			 "$4::integer, $5::bigint, $6::bigint) d",
	[SQL_LOOK_OUT] = "SELECT (SELECT (extract(epoch FROM min(next_at) - clock_timestamp()) * 1000)::bigint "
			 "FROM @.parked WHERE consumer = $1::integer AND state = 'waiting'), "
			 "(SELECT count(*) FROM (SELECT FROM @.parked WHERE consumer = $1::integer AND "
			 "state <> 'discarded' LIMIT $2::bigint) p), "
			 "(SELECT count(*) FROM (SELECT FROM @.parked WHERE consumer = $1::integer AND "
			 "state = 'waiting' AND next_at <= clock_timestamp() AND "
			 "reason = 'redelivered' AND attempts = 0 LIMIT 1) k)",
	[SQL_ADOPT_KEY] = "SELECT @.adopt_key($1::bigint, $2::bigint, $3::bytea, $4::bytea)",
	[SQL_GIVE_BACK] = "SELECT @.give_back($1::bigint, $2::bigint, $3::bigint, $4::boolean)",
	[SQL_COUNT_CRASH] = "SELECT @.count_crash($1::bigint, $2::bigint, $3, $4, $5::integer, "
			    "$6::integer, $7::bigint)",

	/* A megabyte that must find room, and is rolled back. */
	[SQL_ROOM] = "INSERT INTO @.guard (backend, tx) SELECT 0, repeat('x', 1000) "
		     "FROM generate_series(1, 1000)",
	[SQL_TAKE_OUTGOING] =
		"SELECT o.id, o.token, o.attempts, o.exchange, o.routing_key, (m).id, (m).attempts, "
		"(m).reason, (m).detail, (m).queue, (m).exchange, (m).routing_key, (m).properties, "
		"(m).body, (m).body_size FROM @.take_outgoing($1::integer, $2, $3::integer, "
		"$4::bigint, $5::bigint, $6::bigint) o (id, token, attempts, exchange, routing_key, m)",
	/* Of those that take_outgoing gives out. */
	[SQL_NEXT_OUTGOING] = "SELECT (extract(epoch FROM min(next_at) - clock_timestamp()) * "
			      "1000)::bigint FROM @.outgoing WHERE consumer = $1::integer AND "
			      "entry = $2 AND EXISTS (SELECT FROM @.consumer_entry e WHERE "
			      "e.consumer = $1::integer AND e.entry = $2 AND "
			      "e.dead_letter_exchange IS NOT NULL)",
	[SQL_OUTGOING_SENT] = "SELECT @.outgoing_sent($1::bigint, $2::bigint)",
	[SQL_OUTGOING_POSTPONED] = "SELECT @.outgoing_postponed($1::bigint, $2::bigint, "
				   "$3::bigint, $4)",

	[SQL_LIMITS] = "SELECT current_setting('max_locks_per_transaction')::bigint * "
		       "(current_setting('max_connections')::bigint + "
		       "current_setting('max_prepared_transactions')::bigint)",
	[SQL_REGISTER] = "SELECT r.consumer, r.refused FROM @.register($1, $2, $3, $4, $5, $6, $7, "
			 "$8) r",
};

static char *with_schema(const char *text, const char *schema)
{
	struct buf b = {0};
	for (; *text != '\0'; text++) {
		if (*text == '@')
			buf_add_str(&b, schema);
		else
			buf_add_byte(&b, (uint8_t)*text);
	}
	(void)buf_str(&b);
	return (char *)b.data;
}

void inbox_init(struct inbox *x, struct db_conn *db, const struct config_consumer *consumer)
{
	*x = (struct inbox){.db = db, .consumer = consumer, .nonce = random_u64()};
	for (size_t i = 0; i < SQL_COUNT; i++)
		x->sql[i] = with_schema(texts[i], db_conn_schema(db));
}

void inbox_done(struct inbox *x)
{
	for (size_t i = 0; i < SQL_COUNT; i++) {
		free(x->sql[i]);
		x->sql[i] = NULL;
	}
}

enum rc inbox_queue(struct inbox *x, enum inbox_sql sql, size_t n, const struct db_value *args,
	bool binary_result, struct err *err)
{
	return db_queue(x->db, x->sql[sql], n, args, binary_result, err);
}

enum rc inbox_queue_commit(struct inbox *x, struct err *err)
{
	const struct db_value level = value_text(x->consumer->database->synchronous_commit);
	db_warning_clear(x->db);
	if (inbox_queue(x, SQL_DURABLE, 1, &level, false, err) != RC_OK ||
		inbox_queue(x, SQL_COMMIT, 0, NULL, false, err) != RC_OK ||
		db_sync(x->db, err) != RC_OK)
		return err->rc;
	return RC_OK;
}

enum rc inbox_end_commit(struct inbox *x, struct err *err)
{
	struct db_result *res = NULL;
	bool committed = false;
	enum rc rc = db_next(x->db, NULL, err);
	if (rc == RC_OK)
		rc = db_next(x->db, &res, err);
	if (rc == RC_OK)
		committed = strcmp(db_result_tag(res), "COMMIT") == 0;
	db_result_free(res);
	struct err later;
	enum rc end = db_sync_end(x->db, rc == RC_OK ? err : &later);
	if (rc == RC_OK)
		rc = end;
	if (rc == RC_UNAVAILABLE)
		return err->rc = RC_UNKNOWN;
	if (rc != RC_OK)
		return rc;
	if (!committed)
		return err_set(err, RC_RETRY, "the server rolled the transaction back");
	if (db_warned(x->db))
		return err_set(err, RC_UNKNOWN,
			"committed with a warning: a standby may not have it (synchronous replication)");
	return RC_OK;
}

void inbox_abandon(struct inbox *x)
{
	struct err ignored;
	if (db_tx_state(x->db) == DB_TX_OPEN || db_tx_state(x->db) == DB_TX_FAILED)
		(void)!inbox_rollback(x, &ignored);
}

enum rc inbox_probe(struct inbox *x, struct err *err)
{
	struct err later;
	if (db_queue_begin(x->db, err) != RC_OK ||
		inbox_queue(x, SQL_ROOM, 0, NULL, false, err) != RC_OK || db_sync(x->db, err) != RC_OK)
		return err->rc;
	enum rc rc = db_take_begin(x->db, err);
	if (rc == RC_OK)
		rc = db_next(x->db, NULL, err);
	enum rc end = db_sync_end(x->db, rc == RC_OK ? err : &later);
	enum rc back = inbox_rollback(x, rc == RC_OK && end == RC_OK ? err : &later);
	return rc != RC_OK ? rc : end != RC_OK ? end : back;
}

uint32_t inbox_statement_limit_ms(const struct config_consumer *c)
{
	return c->handler_timeout_ms > OWN_LIMIT_MS ? c->handler_timeout_ms : OWN_LIMIT_MS;
}

void inbox_expect_own(struct inbox *x)
{
	uint32_t limit_ms = inbox_statement_limit_ms(x->consumer);
	db_conn_patience(x->db,
		db_patience_for(limit_ms < OWN_PATIENCE_MS ? limit_ms : OWN_PATIENCE_MS));
}

void inbox_expect_handler(struct inbox *x)
{
	db_conn_patience(x->db, db_patience_for(x->consumer->handler_timeout_ms));
}

enum rc inbox_rollback(struct inbox *x, struct err *err)
{
	x->is_guarded = false;
	inbox_expect_own(x);
	return db_exec(x->db, x->sql[SQL_ROLLBACK], 0, NULL, false, NULL, err);
}

enum rc inbox_run(struct inbox *x, enum inbox_sql sql, size_t n, const struct db_value *args,
	struct db_result **ret, struct err *err)
{
	struct err later;
	struct db_result *res = NULL;
	if (db_queue_begin(x->db, err) != RC_OK || inbox_queue(x, sql, n, args, true, err) != RC_OK ||
		inbox_queue_commit(x, err) != RC_OK)
		return err->rc;
	FAULT("own-commit-sent");
	enum rc rc = db_take_begin(x->db, err);
	if (rc == RC_OK)
		rc = db_next(x->db, &res, err);
	enum rc end = inbox_end_commit(x, rc == RC_OK ? err : &later);
	if (rc == RC_OK)
		rc = end;
	if (rc != RC_OK) {
		db_result_free(res);
		inbox_abandon(x);
		return rc;
	}
	if (ret != NULL)
		*ret = res;
	else
		db_result_free(res);
	return RC_OK;
}

enum rc inbox_check_schema(struct inbox *x, struct err *err)
{
	AUTO(result) struct db_result *limits = NULL;

	if (migrate_check(x->db, err) != RC_OK)
		return err->rc;
	if (db_exec(x->db, x->sql[SQL_LIMITS], 0, NULL, true, &limits, err) != RC_OK)
		return err_ctx(err, "reading the server's limits");
	/* Half of the lock table for us: others lock too. */
	uint64_t most = (uint64_t)db_result_int(limits, 0, 0) / 2;
	uint64_t wanted = (uint64_t)x->consumer->workers * x->consumer->batch_max;
	if (wanted > most)
		return err_set(err, RC_FATAL,
			"workers x batch.max = %llu keys may be locked at once, but the server has "
			"room for %llu: lower batch.max or raise max_locks_per_transaction",
			(unsigned long long)wanted, (unsigned long long)most);
	return RC_OK;
}

enum rc inbox_register(struct inbox *x, const char *vhost, struct err *err)
{
	const struct config_consumer *c = x->consumer;
	const struct db_value args[] = {value_text(c->identity), value_text(c->name),
		value_text(vhost), value_text(c->queue), value_text(c->key.text),
		value_text(c->fingerprint.text), value_text(c->dead_letter.exchange),
		value_text(c->dead_letter.routing_key)};
	AUTO(result) struct db_result *res = NULL;

	if (inbox_run(x, SQL_REGISTER, 8, args, &res, err) != RC_OK)
		return err_ctx(err, "registering consumer \"%s\"", c->name);
	struct bytes refused = db_result_value(res, 0, 1);
	if (refused.data != NULL)
		return err_set(err, RC_FATAL,
			"consumer \"%s\" is registered otherwise: %.*s; if that is meant, run "
			"`inboxctl consumers accept %s`",
			c->name, (int)refused.size, (const char *)refused.data, c->name);
	x->id = (int32_t)db_result_int(res, 0, 0);
	return RC_OK;
}

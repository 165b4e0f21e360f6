/* SPDX-License-Identifier: MIT */
/* The steps of a worker's transaction for one message, up to the point where it would commit. */
#include "ctl/attempt.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "ctl/login.h"
#include "handler/host.h"
#include "inbox/inbox.h"

struct attempt {
	const struct config_consumer *consumer;
	struct transcript *t;
	const struct message *message;
	struct source_message source;
	struct buf key, fingerprint; /* owned */
	struct handler handler;
	struct host *host;
	struct db_conn *db;
	struct inbox inbox;
	struct claim claim;
	struct host_item item;
	bool is_done;
};

static void say(struct attempt *a, const char *name, const char *text)
{
	transcript_fact(a->t, name, bytes_str(text));
}

static struct bytes present(const struct buf *b)
{
	return b->data != NULL ? buf_bytes(b) : bytes_str("");
}

/* ---- key and fingerprint -------------------------------------------------------------------- */

static void say_key(struct attempt *a)
{
	AUTO(buf) struct buf text = {0}, hex = {0};
	key_text(buf_bytes(&a->key), &text);
	transcript_fact(a->t, "key", buf_bytes(&text));
	for (size_t i = 0; i < a->fingerprint.size; i++)
		buf_addf(&hex, "%02x", a->fingerprint.data[i]);
	transcript_fact(a->t, "fingerprint",
		a->fingerprint.size != 0 ? buf_bytes(&hex) : bytes_str("none"));
}

static bool park_only(struct attempt *a, const char *reason, const char *detail)
{
	say(a, "verdict", "not run: a worker would park it");
	say(a, "reason", reason);
	say(a, "detail", detail);
	return false;
}

/* False: the handler would not be run for this message. */
static bool find_key(struct attempt *a)
{
	const struct config_consumer *c = a->consumer;
	struct err err = {0};
	if (a->message->body_size > c->max_message_bytes)
		return park_only(a, "too_large", "the body is larger than max_message_bytes");
	switch (key_extract(&c->key, &a->source, &a->key, &err)) {
	case KEY_NONE:
		say(a, "key", "none: run without deduplication");
		return true;
	case KEY_MISSING:
		return park_only(a, "no_key", err.text);
	case KEY_UNUSABLE:
		return park_only(a, "unusable_key", err.text);
	case KEY_OK:
		break;
	}
	if (!fingerprint_compute(&c->fingerprint, &a->source, &a->fingerprint, &err))
		return park_only(a, "unusable_key", err.text);
	say_key(a);
	return true;
}

/* ---- handler and session -------------------------------------------------------------------- */

static void trace(void *arg, const char *sql, size_t n, const struct db_value *args)
{
	transcript_sql(arg, sql, n, args);
}

static void trace_result(void *arg, const struct db_result *res, const struct err *err)
{
	const char *tag = res != NULL ? db_result_tag(res) : "COPY";
	transcript_result(arg, err != NULL ? err->text : tag);
}

static enum rc find_identity(struct attempt *a, struct err *err)
{
	AUTO(free) char *sql = login_sql(a->db, "SELECT id FROM @.consumer WHERE identity = $1");
	AUTO(result) struct db_result *res = NULL;
	const struct db_value arg = {
		.data = a->consumer->identity, .size = strlen(a->consumer->identity)};
	enum rc rc = db_exec(a->db, sql, 1, &arg, true, &res, err);
	if (rc != RC_OK)
		return rc;
	if (db_result_rows(res) != 0)
		a->inbox.id = (int32_t)db_result_int(res, 0, 0);
	else
		say(a, "identity", "not registered yet");
	return RC_OK;
}

static enum rc connect_database(struct attempt *a, struct buf *errors, struct err *err)
{
	const struct config_consumer *c = a->consumer;
	if (db_conn_open(c->database, "inboxctl try", &a->db, err) != RC_OK)
		return err->rc;
	inbox_init(&a->inbox, a->db, c);
	enum rc rc = db_conn_limit(a->db, c->handler_timeout_ms, 0, err);
	if (rc == RC_OK)
		rc = inbox_check_schema(&a->inbox, err);
	if (rc == RC_OK)
		rc = find_identity(a, err);
	host_set_trace(a->host, trace, a->t);
	host_set_trace_result(a->host, trace_result, a->t);
	return rc == RC_OK ? host_open(a->host, a->db, errors, err) : rc;
}

static enum rc prepare(
	struct attempt *a, const struct config *config, struct buf *errors, struct err *err)
{
	enum rc rc = handler_load(&config->handler_directories, a->consumer->handler,
		config->runtime_directory, &a->handler, err);
	if (rc != RC_OK)
		return rc;
	say(a, "handler", a->handler.file.path);
	a->host = host_new(&a->handler, a->consumer);
	if (host_check(a->host, errors) != RC_OK)
		return err_set(err, RC_FATAL, "the handler refuses its options");
	return connect_database(a, errors, err);
}

static void clean_up(struct attempt *a)
{
	host_item_done(&a->item);
	if (a->db != NULL) {
		if (a->host != NULL)
			host_close(a->host);
		inbox_done(&a->inbox);
	}
	db_conn_close(a->db);
	host_free(a->host);
	handler_unload(&a->handler);
	buf_done(&a->key);
	buf_done(&a->fingerprint);
}

/* ---- a key that is known -------------------------------------------------------------------- */

static enum rc query_key(
	struct attempt *a, const char *text, struct db_result **ret, struct err *err)
{
	AUTO(free) char *sql = login_sql(a->db, text);
	char id[16];
	(void)snprintf(id, sizeof id, "%" PRId32, a->inbox.id);
	const struct db_value args[] = {{.data = id, .size = strlen(id)},
		{.data = a->key.data, .size = a->key.size, .binary = true}};
	return db_exec(a->db, sql, 2, args, true, ret, err);
}

/* The marker is there: same content or not. */
static void say_known(struct attempt *a, struct bytes fingerprint)
{
	if (fingerprint_compare(fingerprint, present(&a->fingerprint)) == FINGERPRINT_DIFFERENT) {
		say(a, "claim", "the key is known with other content");
		say(a, "verdict", "not run: a worker would park it as a mismatch");
		return;
	}
	say(a, "claim", "the key is known, its work is committed");
	say(a, "verdict", "not run: a duplicate");
}

static enum rc look_closer(struct attempt *a, struct err *err)
{
	AUTO(result) struct db_result *marker = NULL;
	AUTO(result) struct db_result *row = NULL;
	enum rc rc = query_key(a,
		"SELECT fingerprint FROM @.inbox WHERE consumer = $1::integer AND key = $2",
		&marker, err);
	if (rc == RC_OK && db_result_rows(marker) != 0) {
		say_known(a, db_result_value(marker, 0, 0));
		return RC_OK;
	}
	if (rc == RC_OK)
		rc = query_key(a,
			"SELECT state || ', id ' || id FROM @.parked WHERE consumer = $1::integer "
			"AND key = $2 "
			"ORDER BY id DESC LIMIT 1",
			&row, err);
	if (rc != RC_OK)
		return rc;
	AUTO(buf) struct buf text = {0};
	struct bytes state = db_result_rows(row) != 0 ? db_result_value(row, 0, 0) : bytes_str("?");
	buf_add_str(&text, "the key is parked: ");
	buf_add(&text, state.data, state.size);
	transcript_fact(a->t, "claim", buf_bytes(&text));
	say(a, "verdict", "not run: the parked message decides");
	return RC_OK;
}

/* ---- the run -------------------------------------------------------------------------------- */

static const char *const verdict_names[] = {
	[HOST_DONE] = "done",
	[HOST_RETRY] = "retry",
	[HOST_REJECT] = "reject",
	[HOST_BROKEN] = "broken",
};

static void say_verdict(struct attempt *a)
{
	const struct host_item *item = &a->item;
	char delay[40];
	say(a, "verdict", verdict_names[item->verdict]);
	if (item->reason[0] != '\0')
		say(a, "reason", item->reason);
	if (item->sqlstate[0] != '\0')
		say(a, "sqlstate", item->sqlstate);
	(void)snprintf(delay, sizeof delay, "%" PRIu64 " ms", item->delay_ms);
	if (item->delay_ms != 0)
		say(a, "delay", delay);
	if (item->has_result)
		transcript_fact(a->t, "stored", present(&item->result));
	a->is_done = item->verdict == HOST_DONE;
}

/* Deferred constraints would speak at COMMIT, which never comes.  Not with the guard: it is one of
 * them. */
static enum rc check_deferred(struct attempt *a, struct err *err)
{
	if (host_uses_conn(a->host))
		return RC_OK;
	return db_queue(a->db, "SET CONSTRAINTS ALL IMMEDIATE", 0, NULL, false, err);
}

/* A statement of ours at the end failed: the handler's work is what it complains about. */
static void blame(struct attempt *a, const struct err *err)
{
	a->item.verdict = err->rc == RC_REJECT ? HOST_REJECT : HOST_RETRY;
	(void)snprintf(a->item.reason, sizeof a->item.reason, "at the end: %.900s", err->text);
	(void)snprintf(a->item.sqlstate, sizeof a->item.sqlstate, "%s", err->sqlstate);
}

/* What the handler queued, and the deferred constraints behind it. */
static enum rc settle(struct attempt *a, struct err *err)
{
	struct err ignored;
	size_t failed;
	enum rc rc = check_deferred(a, err);
	if (rc == RC_OK)
		rc = db_sync(a->db, err);
	if (rc != RC_OK)
		return rc;
	rc = host_settle(a->host, &a->item, 1, &failed, err);
	if (rc == RC_OK && db_queued(a->db) != 0) {
		rc = db_next(a->db, NULL, err);
		if (rc != RC_OK)
			blame(a, err);
	}
	if (db_sync_end(a->db, &ignored) == RC_UNAVAILABLE && rc != RC_UNAVAILABLE) {
		*err = ignored;
		rc = RC_UNAVAILABLE;
	}
	return rc;
}

/* Passes over what a handler had queued before it failed. */
static void drop_queued(struct attempt *a)
{
	struct err ignored;
	if (db_queued(a->db) != 0 && db_sync(a->db, &ignored) == RC_OK)
		(void)!db_sync_end(a->db, &ignored);
}

static enum rc handle(struct attempt *a, struct err *err)
{
	size_t failed = 0;
	enum rc rc = RC_OK;
	a->item = (struct host_item){.message = &a->source, .key = present(&a->key)};
	say(a, "claim", a->key.size != 0 ? "new" : "no key");
	if (host_uses_conn(a->host))
		rc = inbox_guard(&a->inbox, err);
	if (rc != RC_OK)
		return rc;
	rc = host_handle(a->host, &a->item, 1, &failed, err);
	if (rc == RC_OK)
		rc = settle(a, err);
	else
		drop_queued(a);
	if (rc == RC_UNAVAILABLE)
		return rc;
	say_verdict(a);
	return RC_OK;
}

static enum rc run_claimed(struct attempt *a, struct err *err)
{
	switch (a->claim.state) {
	case CLAIM_NEW:
	case CLAIM_UNKEYED:
		return handle(a, err);
	case CLAIM_BUSY:
		say(a, "claim", "another transaction has the key in hand");
		say(a, "verdict", "not run: try again");
		return RC_OK;
	case CLAIM_DUPLICATE:
	case CLAIM_LOOK:
		break;
	}
	return look_closer(a, err);
}

static enum rc run(struct attempt *a, struct err *err)
{
	struct err back = {0};
	a->claim = (struct claim){.key = present(&a->key), .fingerprint = present(&a->fingerprint)};
	enum rc rc = inbox_begin(&a->inbox, &a->claim, 1, err);
	if (rc != RC_OK)
		return rc;
	rc = run_claimed(a, err);
	if (db_tx_state(a->db) != DB_TX_NONE && inbox_rollback(&a->inbox, &back) != RC_OK &&
		rc == RC_OK) {
		*err = back;
		rc = back.rc;
	}
	say(a, "end", "rolled back");
	return rc;
}

enum rc attempt_run(const struct config *config, const struct config_consumer *consumer,
	const struct message *m, struct transcript *t, bool *ret_done, struct buf *errors,
	struct err *err)
{
	struct attempt a = {.consumer = consumer, .t = t, .message = m};
	source_message_init(&a.source, m);
	say(&a, "consumer", consumer->name);
	enum rc rc = RC_OK;
	if (find_key(&a)) {
		rc = prepare(&a, config, errors, err);
		if (rc == RC_OK)
			rc = run(&a, err);
	}
	*ret_done = a.is_done;
	clean_up(&a);
	return rc;
}

/* SPDX-License-Identifier: MIT */
/* Lends the database: statements, COPY, the raw connection.  Whose statement failed is noted here;
 * what follows from it is decided in host.c. */
#include "handler/host_call.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Beyond so many texts a handler is making them up: all are forgotten, and found out again. */
enum { MOST_PARAMETERS = 1024, MOST_STATEMENTS = 256 };

static int32_t result_of(enum rc rc)
{
	if (rc == RC_OK)
		return INBOXD_DONE;
	return rc == RC_REJECT ? INBOXD_REJECT : INBOXD_RETRY;
}

/* ---- failures ------------------------------------------------------------------------ */

static void note_unavailable(struct host *h, const struct err *err)
{
	if (!h->is_unavailable)
		h->lost = *err;
	h->is_unavailable = true;
}

/* What the configuration says of the server's answer; a session that is gone is gone. */
static enum rc class_of(const struct host *h, const struct err *err)
{
	if (err->sqlstate[0] == '\0' || db_tx_state(h->db) == DB_TX_LOST)
		return err->rc;
	return db_error_class_of(h->consumer, err->sqlstate, err->rc);
}

/* Keeps the first failure: those that follow are its consequences. */
static void note_failure(struct host *h, size_t index, struct err *err, bool is_final)
{
	err->rc = class_of(h, err);
	if (err->rc == RC_UNAVAILABLE)
		note_unavailable(h, err);
	if (h->failure.is_set)
		return;
	h->failure = (struct failure){
		.is_set = true, .is_final = is_final, .index = index, .rc = err->rc};
	(void)snprintf(h->failure.sqlstate, sizeof h->failure.sqlstate, "%s", err->sqlstate);
	(void)snprintf(h->failure.text, sizeof h->failure.text, "%s", err->text);
}

static int32_t fail(struct inboxd_call *call, struct err *err)
{
	note_failure(call->host, call->index, err, false);
	call_note(call, "%s", err->text);
	return result_of(err->rc);
}

/* A statement that is not even sent has failed like any other: a handler that did not notice must
 * not commit without it. */
__attribute__((format(printf, 2, 3))) static int32_t refuse(
	struct inboxd_call *call, const char *fmt, ...)
{
	struct err err;
	char text[sizeof err.text];
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	(void)err_set(&err, RC_REJECT, "%s", text);
	return fail(call, &err);
}

/* ---- what is queued ------------------------------------------------------------------ */

static void note_owner(struct host *h, size_t index)
{
	buf_add(&h->owners, &index, sizeof index);
}

size_t host_queued(const struct host *h)
{
	return h->owners.size / sizeof(size_t) - h->owners_taken;
}

static size_t next_owner(struct host *h)
{
	size_t index;
	memcpy(&index, h->owners.data + h->owners_taken++ * sizeof index, sizeof index);
	if (h->owners_taken * sizeof index == h->owners.size) {
		buf_clear(&h->owners);
		h->owners_taken = 0;
	}
	return index;
}

static void trace_result(struct host *h, const struct db_result *result, const struct err *err)
{
	if (h->trace_result != NULL)
		h->trace_result(h->trace_result_arg, result, err);
}

/* The oldest result; ret may be NULL. */
static enum rc take_result(
	struct host *h, bool is_handlers, struct db_result **ret, struct err *err)
{
	struct db_result *result = NULL;
	bool is_wanted = ret != NULL || (is_handlers && h->trace_result != NULL);
	enum rc rc = db_next(h->db, is_wanted ? &result : NULL, err);
	if (is_handlers)
		trace_result(h, rc == RC_OK ? result : NULL, rc == RC_OK ? NULL : err);
	if (ret != NULL)
		*ret = result;
	else
		db_result_free(result);
	return rc;
}

bool host_take_queued(struct host *h)
{
	struct err err;
	while (host_queued(h) != 0) {
		size_t index = next_owner(h);
		if (take_result(h, index != h->n_calls, NULL, &err) == RC_OK)
			continue;
		note_failure(h, index, &err, true);
		buf_clear(&h->owners);
		h->owners_taken = 0;
		return false;
	}
	return true;
}

/* Tells a handler that asks for something now that a statement from before has failed. */
static int32_t fail_by_queued(struct inboxd_call *call)
{
	const struct failure *f = &call->host->failure;
	call_note(call, "%s%s",
		f->index == call->index ? "" : "a message before this one failed: ", f->text);
	return result_of(f->rc);
}

/* Sends what is queued and takes its results, for what needs the session to itself. */
static int32_t settle_now(struct inboxd_call *call)
{
	struct host *h = call->host;
	struct err err;
	if (host_queued(h) == 0)
		return INBOXD_DONE;
	if (db_sync(h->db, &err) != RC_OK)
		return fail(call, &err);
	bool is_good = host_take_queued(h);
	if (db_sync_end(h->db, &err) == RC_UNAVAILABLE)
		return fail(call, &err);
	return is_good ? INBOXD_DONE : fail_by_queued(call);
}

void host_db_begin(struct host *h)
{
	h->failure.is_set = false;
	h->is_unavailable = false;
	h->has_left_transaction = false;
	buf_clear(&h->owners);
	h->owners_taken = 0;
	for (size_t i = db_queued(h->db); i != 0; i--)
		note_owner(h, h->n_calls);
}

/* ---- the loan of the connection ------------------------------------------------------ */

static bool end_loan(struct inboxd_call *call)
{
	struct host *h = call->host;
	struct err err;
	if (h->raw == NULL)
		return true;
	h->raw = NULL;
	switch (db_raw_end(h->db, &err)) {
	case RC_OK:
		return true;
	case RC_REJECT:
		h->has_left_transaction = true;
		call_note(call, "%s", err.text);
		return false;
	case RC_RETRY:
	case RC_UNKNOWN:
	case RC_UNAVAILABLE:
	case RC_FATAL:
		break;
	}
	err.rc = RC_UNAVAILABLE;
	(void)fail(call, &err);
	return false;
}

struct pg_conn *lend_conn(struct inboxd_call *call)
{
	struct host *h = call->host;
	if (h->entry != ENTRY_HANDLE || !host_uses_conn(h)) {
		call_note(call,
			"the raw connection is lent in handle, to handlers with the flag "
			"INBOXD_USES_CONN");
		return NULL;
	}
	if (h->copying != NULL) {
		call_note(
			call, "the raw connection cannot be lent between copy_begin and copy_end");
		return NULL;
	}
	if (h->raw == NULL && !h->has_left_transaction && settle_now(call) == INBOXD_DONE) {
		h->raw = db_raw_begin(h->db);
		call->statements++;
		h->is_dirty = true;
	}
	return h->raw;
}

/* ---- statements ---------------------------------------------------------------------- */

/* Whether the handler may use the session now; takes the connection back. */
static bool may_execute(struct inboxd_call *call, const char *what)
{
	struct host *h = call->host;
	if (h->entry != ENTRY_HANDLE && h->entry != ENTRY_BATCH && h->entry != ENTRY_OPEN) {
		(void)refuse(call, "%s needs the database, which check and close have not", what);
		return false;
	}
	if (h->copying != NULL) {
		(void)refuse(call, "%s between copy_begin and copy_end", what);
		return false;
	}
	return end_loan(call) && !h->has_left_transaction;
}

static const char *statement_error(const char *sql)
{
	switch (statement_parse(sql).kind) {
	case STATEMENT_EMPTY:
		return "there is no statement in it";
	case STATEMENT_COPY:
		return "COPY goes through copy_begin, not exec or queue";
	case STATEMENT_SAVEPOINT:
	case STATEMENT_RELEASE:
	case STATEMENT_ROLLBACK_TO:
	case STATEMENT_OTHER:
		break;
	}
	if (db_verb_of(sql) == DB_VERB_CONTROL)
		return "the transaction belongs to inboxd: BEGIN, COMMIT, ROLLBACK and their kin "
		       "are refused";
	return NULL;
}

void host_forget_statements(struct host *h)
{
	struct known_statement *known, *tmp;
	HASH_ITER(hh, h->statements, known, tmp)
	{
		HASH_DEL(h->statements, known); /* NOLINT(clang-analyzer-unix.Malloc): not freed before */
		free(known->text);
		free(known);
	}
	h->last_statement = NULL;
}

static struct known_statement *learn_statement(struct host *h, const char *sql)
{
	struct known_statement *known = xcalloc(1, sizeof *known);
	if (HASH_COUNT(h->statements) >= MOST_STATEMENTS)
		host_forget_statements(h);
	known->text = xstrdup(sql);
	known->statement = statement_parse(sql);
	known->error = statement_error(sql);
	known->leaves_state = db_verb_of(sql) == DB_VERB_STATE;
	/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): what was forgotten is not in the hash */
	HASH_ADD_KEYPTR(hh, h->statements, known->text, strlen(known->text), known);
	return known;
}

static const struct known_statement *know_statement(struct host *h, const char *sql)
{
	struct known_statement *known = h->last_statement;
	if (known != NULL && strcmp(known->text, sql) == 0)
		return known;
	HASH_FIND_STR(h->statements, sql, known);
	if (known == NULL)
		known = learn_statement(h, sql);
	h->last_statement = known;
	return known;
}

static bool may_run(struct inboxd_call *call, const struct known_statement *known)
{
	if (known->error != NULL) {
		(void)refuse(call, "%s (\"%.40s\")", known->error, known->text);
		return false;
	}
	if (!savepoints_allow(&call->host->savepoints, &known->statement)) {
		(void)refuse(call, "there is no savepoint \"%s\" of this message",
			known->statement.name);
		return false;
	}
	if (known->leaves_state)
		call->host->is_dirty = true;
	return true;
}

/* Text parameters end at a NUL, so one inside would cut the value off; and what has no NUL behind
 * it gets one. */
static const struct db_value *bind(
	struct inboxd_call *call, uint32_t n, const struct inboxd_value *args)
{
	struct host *h = call->host;
	if (n > MOST_PARAMETERS) {
		(void)refuse(call, "a statement has at most %d parameters, not %" PRIu32,
			MOST_PARAMETERS, n);
		return NULL;
	}
	if (h->args_cap <= n) {
		h->args_cap = n + 16;
		h->args = xrealloc(h->args, h->args_cap * sizeof *h->args);
	}
	for (uint32_t i = 0; i < n; i++) {
		struct bytes b = bytes_of(args[i].data, args[i].size);
		if (b.size != 0 && b.data != NULL && memchr(b.data, '\0', b.size) != NULL) {
			(void)refuse(call,
				"parameter $%" PRIu32
				" has a NUL inside, which text cannot hold (bytes for a "
				"bytea go through the function bytea)",
				i + 1);
			return NULL;
		}
		if (!arena_has(&h->arena, b))
			b = arena_copy(&h->arena, b);
		h->args[i] = (struct db_value){.data = b.data, .size = b.size};
	}
	return h->args;
}

/* Checks, binds and queues; *ret is the statement's kind. */
static int32_t send(struct inboxd_call *call, const char *what, const char *sql, uint32_t n,
	const struct inboxd_value *args, struct statement *ret)
{
	struct host *h = call->host;
	struct err err;
	if (!may_execute(call, what))
		return INBOXD_REJECT;
	const struct known_statement *known = know_statement(h, sql);
	*ret = known->statement;
	if (!may_run(call, known))
		return INBOXD_REJECT;
	const struct db_value *values = bind(call, n, args);
	if (values == NULL)
		return INBOXD_REJECT;
	if (h->trace != NULL)
		h->trace(h->trace_arg, sql, n, values);
	call->statements++;
	if (db_queue(h->db, sql, n, values, false, &err) != RC_OK)
		return fail(call, &err);
	return INBOXD_DONE;
}

/* The handler went back to a savepoint: what had failed behind it is undone. */
static void forgive(struct inboxd_call *call)
{
	struct host *h = call->host;
	if (!h->failure.is_set || h->failure.is_final)
		return;
	h->failure.is_set = false;
	if (!call->has_own_reason && call->mark == HOST_DONE)
		call->reason[0] = '\0';
}

static void keep_rows(
	struct inboxd_call *call, struct db_result *take_result, struct inboxd_rows **ret)
{
	struct host *h = call->host;
	struct inboxd_rows *rows = arena_alloc(&h->arena, sizeof *rows);
	*rows = (struct inboxd_rows){.result = take_result, .next = h->rows};
	h->rows = rows;
	*ret = rows;
}

int32_t lend_exec(struct inboxd_call *call, const char *sql, uint32_t n,
	const struct inboxd_value *args, struct inboxd_rows **rows)
{
	struct host *h = call->host;
	struct db_result *result = NULL;
	struct statement statement;
	struct err err, later;
	int32_t sent = send(call, "exec", sql, n, args, &statement);
	if (sent != INBOXD_DONE)
		return sent;
	if (db_sync(h->db, &err) != RC_OK)
		return fail(call, &err);
	bool is_good = host_take_queued(h);
	enum rc rc = is_good ? take_result(h, true, rows != NULL ? &result : NULL, &err) : RC_OK;
	if (db_sync_end(h->db, &later) == RC_UNAVAILABLE && rc == RC_OK && is_good) {
		err = later;
		rc = RC_UNAVAILABLE;
	}
	if (is_good && rc == RC_OK) {
		savepoints_note(&h->savepoints, &statement);
		if (statement.kind == STATEMENT_ROLLBACK_TO)
			forgive(call);
		if (rows != NULL)
			keep_rows(call, result, rows);
		return INBOXD_DONE;
	}
	db_result_free(result);
	return is_good ? fail(call, &err) : fail_by_queued(call);
}

int32_t lend_queue(
	struct inboxd_call *call, const char *sql, uint32_t n, const struct inboxd_value *args)
{
	struct statement statement;
	if (call->host->entry == ENTRY_OPEN)
		return refuse(call, "queue needs a transaction, which open has not");
	int32_t sent = send(call, "queue", sql, n, args, &statement);
	if (sent != INBOXD_DONE)
		return sent;
	savepoints_note(&call->host->savepoints, &statement);
	note_owner(call->host, call->index);
	return INBOXD_DONE;
}

/* ---- rows ---------------------------------------------------------------------------- */

void host_db_forget_rows(struct host *h)
{
	for (; h->rows != NULL; h->rows = h->rows->next)
		db_result_free(h->rows->result);
}

uint32_t lend_rows_count(const struct inboxd_rows *rows)
{
	return (uint32_t)db_result_rows(rows->result);
}

uint32_t lend_rows_columns(const struct inboxd_rows *rows)
{
	return (uint32_t)db_result_columns(rows->result);
}

uint64_t lend_rows_affected(const struct inboxd_rows *rows)
{
	return db_result_affected(rows->result);
}

struct inboxd_value lend_rows_value(const struct inboxd_rows *rows, uint32_t row, uint32_t column)
{
	/* libpq puts a NUL behind each value. */
	struct bytes v = db_result_value(rows->result, row, column);
	return (struct inboxd_value){.data = (const char *)v.data, .size = v.size};
}

struct inboxd_value lend_bytea(struct inboxd_call *call, struct inboxd_value bytes)
{
	static const char digits[] = "0123456789abcdef";
	if (bytes.data == NULL)
		return bytes;
	size_t size = 2 + 2 * bytes.size;
	char *text = arena_alloc(&call->host->arena, size + 1);
	char *p = text;
	*p++ = '\\';
	*p++ = 'x';
	for (size_t i = 0; i < bytes.size; i++) {
		*p++ = digits[(unsigned char)bytes.data[i] >> 4];
		*p++ = digits[(unsigned char)bytes.data[i] & 15];
	}
	*p = '\0';
	return (struct inboxd_value){.data = text, .size = size};
}

/* ---- COPY ---------------------------------------------------------------------------- */

int32_t lend_copy_begin(struct inboxd_call *call, const char *sql)
{
	struct host *h = call->host;
	struct err err;
	if (h->entry == ENTRY_OPEN)
		return refuse(call, "COPY needs a transaction, which open has not");
	if (!may_execute(call, "copy_begin"))
		return INBOXD_REJECT;
	if (statement_parse(sql).kind != STATEMENT_COPY)
		return refuse(call, "copy_begin is for COPY ... FROM STDIN only");
	int32_t settled = settle_now(call);
	if (settled != INBOXD_DONE)
		return settled;
	if (h->trace != NULL)
		h->trace(h->trace_arg, sql, 0, NULL);
	call->statements++;
	if (db_copy_begin(h->db, sql, &err) != RC_OK) {
		trace_result(h, NULL, &err);
		return fail(call, &err);
	}
	h->copying = call;
	return INBOXD_DONE;
}

int32_t lend_copy_data(struct inboxd_call *call, const char *data, size_t size)
{
	struct host *h = call->host;
	struct err err;
	if (h->copying == NULL)
		return refuse(call, "copy_data without copy_begin");
	if (db_copy_data(h->db, bytes_of(data, size), &err) != RC_OK)
		return fail(call, &err);
	return INBOXD_DONE;
}

int32_t lend_copy_end(struct inboxd_call *call)
{
	struct host *h = call->host;
	struct err err;
	if (h->copying == NULL)
		return refuse(call, "copy_end without copy_begin");
	h->copying = NULL;
	enum rc rc = db_copy_end(h->db, &err);
	trace_result(h, NULL, rc == RC_OK ? NULL : &err);
	if (rc != RC_OK)
		return fail(call, &err);
	return INBOXD_DONE;
}

/* ---- the end of an entry ------------------------------------------------------------- */

void host_db_end_entry(struct host *h, struct inboxd_call *call)
{
	if (h->copying != NULL) {
		struct inboxd_call *who = h->copying;
		(void)lend_copy_end(who);
		call_note(who, "the handler returned between copy_begin and copy_end");
		call_mark(who, HOST_REJECT);
	}
	(void)end_loan(call);
}

/* ---- open ---------------------------------------------------------------------------- */

const char *lend_statement_error(struct inboxd_call *call, const char *sql)
{
	(void)call;
	return statement_error(sql);
}

int32_t lend_prepare(struct inboxd_call *call, const char *sql, const char *option_path,
	uint32_t *types, uint32_t *n)
{
	struct host *h = call->host;
	size_t count = 0;
	struct err err;
	if (h->entry != ENTRY_OPEN)
		return refuse(call, "prepare is for open");
	const char *wrong = lend_statement_error(call, sql);
	if (wrong != NULL)
		return lend_bad_option(call, option_path, wrong);
	switch (db_prepare(h->db, sql, types, *n, &count, &err)) {
	case RC_OK:
		*n = (uint32_t)count;
		return INBOXD_DONE;
	case RC_UNAVAILABLE:
		note_unavailable(h, &err);
		call_note(call, "%s", err.text);
		return INBOXD_RETRY;
	case RC_RETRY:
	case RC_REJECT:
	case RC_UNKNOWN:
	case RC_FATAL:
		break;
	}
	return lend_bad_option(call, option_path, err.text);
}

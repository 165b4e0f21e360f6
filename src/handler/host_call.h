/* SPDX-License-Identifier: MIT */
/* Inside of a host; for the files of this room only. */
#ifndef INBOXD_HANDLER_HOST_CALL_H
#define INBOXD_HANDLER_HOST_CALL_H

#include "handler/arena.h"
#include "handler/host.h"
#include "handler/statement.h"

#include <uthash.h>

enum entry { ENTRY_NONE, ENTRY_CHECK, ENTRY_OPEN, ENTRY_HANDLE, ENTRY_BATCH, ENTRY_CLOSE };

/* What a handler knows as its call: one message, or (item NULL) the batch or no message at all. */
struct inboxd_call {
	struct host *host;
	struct host_item *item;   /* borrowed */
	size_t index;             /* among the items; their number where item is NULL */
	struct inboxd_value body; /* in the arena, once asked for */

	enum host_verdict mark; /* not HOST_DONE: the message fails, whatever the entry returns */
	bool is_own_mark;       /* the handler knows: it called retry or reject */
	bool has_own_reason;    /* likewise: no later error replaces it */
	char reason[HOST_REASON_MAX];
	uint64_t delay_ms;
	size_t statements; /* executed or queued for it */
};

/* A statement that failed and was not undone by going back to a savepoint. */
struct failure {
	bool is_set;
	bool is_final; /* it was queued: nothing can undo it */
	size_t index;  /* of the item at fault; their number: of none alone */
	enum rc rc;
	char sqlstate[6];
	char text[HOST_REASON_MAX];
};

struct inboxd_rows {
	struct db_result *result; /* owned */
	struct inboxd_rows *next;
};

struct known_source {
	UT_hash_handle hh; /* by text */
	char *text;
	struct source source;
	char *error; /* owned; NULL: the text is a source */
};

/* What a statement's text says of it, found out once. */
struct known_statement {
	UT_hash_handle hh; /* by text */
	char *text;
	struct statement statement;
	const char *error; /* why handlers may not run it; NULL: they may */
	bool leaves_state; /* in the session */
};

struct host {
	const struct handler *handler;
	const struct config_consumer *consumer;
	struct db_conn *db; /* borrowed; NULL before host_open */
	bool is_open;       /* `open` was run */
	void *state;

	/* Of the entry that runs. */
	enum entry entry;
	struct arena arena;
	struct buf scratch;
	struct inboxd_call whole;
	struct inboxd_call *calls; /* one for each item */
	size_t n_calls, calls_cap;
	struct inboxd_rows *rows;
	bool is_unavailable; /* lost says why */
	struct err lost;
	struct inboxd_call *copying; /* for whom; NULL: no COPY is under way */
	struct pg_conn *raw;         /* lent; NULL: not */
	bool has_left_transaction;
	struct buf *errors; /* check and open: where wrong options go; may be NULL */
	size_t wrong_options;

	/* Of the transaction. */
	struct failure failure;
	struct savepoints savepoints; /* of the message that runs */
	struct buf
		owners; /* size_t for each statement queued, from those that the caller queued on */
	size_t owners_taken;

	struct known_source *sources;
	struct known_statement *statements;
	struct known_statement *last_statement; /* most handlers have one */
	struct db_value *args;
	size_t args_cap;
	bool is_dirty;
	bool is_one_by_one;
	host_trace_fn *trace;
	void *trace_arg;
	host_step_fn *step;
	void *step_arg;
	host_guard_fn *guard;
	void *guard_arg;
	host_trace_result_fn *trace_result;
	void *trace_result_arg;
};

/* Notes why; does nothing where the handler has said it already. */
void call_note(struct inboxd_call *call, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* The message fails, whatever happens; the reason is noted by the caller. */
void call_mark(struct inboxd_call *call, enum host_verdict verdict);

struct inboxd_value call_copy(struct inboxd_call *call, struct bytes b);

/* ---- the database -------------------------------------------------------------------- */

/* Forgets what the last transaction left, and counts the caller's own statements. */
void host_db_begin(struct host *h);

/* Ends what the entry left open: a COPY, the loan of the connection.  What it did wrong is
 * noted. */
void host_db_end_entry(struct host *h, struct inboxd_call *call);

/* Takes the results of what was queued, which has been sent; false, with the failure noted, at the
 * first error: the server skips the rest, and nothing counts as queued any more. */
bool host_take_queued(struct host *h);

void host_db_forget_rows(struct host *h);
void host_forget_statements(struct host *h);

/* ---- what is lent; contracts in inboxd/handler.h ------------------------------------- */

extern const struct inboxd_host host_table;

struct inboxd_value lend_get(struct inboxd_call *call, const char *source);
struct inboxd_value lend_body(struct inboxd_call *call);
int32_t lend_header_kind(struct inboxd_call *call, const char *name);
int32_t lend_header_int(struct inboxd_call *call, const char *name, int64_t *ret);
int32_t lend_header_float(struct inboxd_call *call, const char *name, double *ret);
struct inboxd_value lend_header_name(struct inboxd_call *call, uint32_t i);
int32_t lend_property_int(struct inboxd_call *call, const char *name, uint64_t *ret);
uint32_t lend_attempt(struct inboxd_call *call);
int32_t lend_redelivered(struct inboxd_call *call);
struct inboxd_value lend_idempotency_key(struct inboxd_call *call, const char *step);
uint32_t lend_batch_size(struct inboxd_call *call);
struct inboxd_call *lend_batch_item(struct inboxd_call *call, uint32_t i);
const char *lend_source_error(struct inboxd_call *call, const char *source);
const char *lend_statement_error(struct inboxd_call *call, const char *sql);
void host_forget_sources(struct host *h);

int32_t lend_exec(struct inboxd_call *call, const char *sql, uint32_t n,
	const struct inboxd_value *args, struct inboxd_rows **rows);
int32_t lend_queue(
	struct inboxd_call *call, const char *sql, uint32_t n, const struct inboxd_value *args);
uint32_t lend_rows_count(const struct inboxd_rows *rows);
uint32_t lend_rows_columns(const struct inboxd_rows *rows);
uint64_t lend_rows_affected(const struct inboxd_rows *rows);
struct inboxd_value lend_rows_value(const struct inboxd_rows *rows, uint32_t row, uint32_t column);
struct inboxd_value lend_bytea(struct inboxd_call *call, struct inboxd_value bytes);
int32_t lend_copy_begin(struct inboxd_call *call, const char *sql);
int32_t lend_copy_data(struct inboxd_call *call, const char *data, size_t size);
int32_t lend_copy_end(struct inboxd_call *call);
struct pg_conn *lend_conn(struct inboxd_call *call);
int32_t lend_prepare(struct inboxd_call *call, const char *sql, const char *option_path,
	uint32_t *types, uint32_t *n);

struct inboxd_value lend_option(struct inboxd_call *call, const char *path);
uint32_t lend_option_count(struct inboxd_call *call, const char *path);
struct inboxd_value lend_option_name(struct inboxd_call *call, const char *path, uint32_t i);
int32_t lend_bad_option(struct inboxd_call *call, const char *path, const char *text);
int32_t lend_only_options(
	struct inboxd_call *call, const char *path, uint32_t n, const char *const *names);

#endif

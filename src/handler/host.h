/* SPDX-License-Identifier: MIT */
/* What inboxd lends to a handler, and the calls of its entries. */
#ifndef INBOXD_HANDLER_HOST_H
#define INBOXD_HANDLER_HOST_H

#include "base/err.h"
#include "config/config.h"
#include "db/db.h"
#include "handler/loader.h"
#include "message/source.h"

#define HOST_REASON_MAX 1024
#define HOST_CONTENT_TYPE_MAX 128

enum host_verdict {
	HOST_DONE,
	HOST_RETRY,
	HOST_REJECT,
	HOST_BROKEN,  /* unknown result or own COMMIT: never run again */
	HOST_NOT_RUN, /* not started: host_set_step's function wanted no more */
};

/* One message for the handler, and what became of it. */
struct host_item {
	const struct source_message *message;
	struct bytes key; /* as claimed; empty without one */
	uint32_t attempt; /* runs before this one */

	enum host_verdict verdict;    /* set by host_handle and host_settle; below likewise */
	char reason[HOST_REASON_MAX]; /* UTF-8; "" for HOST_DONE */
	char sqlstate[6];             /* of the statement that failed, or "" */
	uint64_t delay_ms;            /* asked for by the handler; 0: as configured */
	bool has_result;
	struct buf result; /* owned; host_item_done frees */
	char content_type[HOST_CONTENT_TYPE_MAX];
};
void host_item_init(struct host_item *item, const struct source_message *message, struct bytes key,
	uint32_t attempt);
void host_item_done(struct host_item *item);

struct host;

/* handler and consumer are borrowed for the host's life. */
struct host *host_new(const struct handler *handler, const struct config_consumer *consumer);
void host_free(struct host *h);

/* Runs the handler's `check`; errors of options are added to errors in the form of config_load.
 * RC_OK or RC_FATAL. */
enum rc host_check(struct host *h, struct buf *errors) MUST_CHECK;

/* Runs `open` on a fresh session, outside a transaction; db is borrowed until host_close.
 * RC_FATAL, or RC_UNAVAILABLE when a later try may succeed, with what the handler or a statement's
 * PREPARE said; errors (may be NULL) as above. */
enum rc host_open(
	struct host *h, struct db_conn *db, struct buf *errors, struct err *err) MUST_CHECK;
/* Runs `close` if `open` was run, even if that failed. */
void host_close(struct host *h);

bool host_has_batch(const struct host *h);

/* The handler wants the raw connection: the caller gives it one message at a time and arms the
 * guard before each host_handle. */
bool host_uses_conn(const struct host *h);

/* Called before each entry that handles: index is the item's, 0 for handle_batch.  False, of an
 * item but the first: this one and those behind it are not started.  NULL: nobody. */
typedef bool host_step_fn(void *arg, size_t index);
void host_set_step(struct host *h, host_step_fn *step, void *arg);

/* handle for each of several, even where there is handle_batch: what fails then is one message. */
void host_set_one_by_one(struct host *h, bool on);

/* Called when an entry of the handler has returned, before the session is used again.  NULL:
 * nobody. */
typedef void host_guard_fn(void *arg);
void host_set_guard(struct host *h, host_guard_fn *guard, void *arg);

/* Called with every statement a handler executes or queues, before it is sent (inboxctl try); args
 * are the parameters, n of them (0 for COPY).  NULL: nobody. */
typedef void host_trace_fn(void *arg, const char *sql, size_t n, const struct db_value *args);
void host_set_trace(struct host *h, host_trace_fn *trace, void *arg);
/* Called with what became of each of them, in the same order: the result, or the error (both NULL:
 * a COPY that ended well).  What the server skips after an error of a queued statement is not
 * told. */
typedef void host_trace_result_fn(void *arg, const struct db_result *result, const struct err *err);
void host_set_trace_result(struct host *h, host_trace_result_fn *trace, void *arg);

/* Runs the handler for items inside the open transaction: handle for one, handle_batch (or handle
 * for each, in order) for several.  Statements that the caller has queued before may still be
 * without a result, and statements that the handler queued may be left without one: take them with
 * host_settle before a verdict is believed.
 *
 * RC_OK: each item has a verdict.  After handle_batch some may be HOST_RETRY or HOST_REJECT: the
 * handler wrote nothing for those, and the others may commit without them.  All others are
 * HOST_DONE, or HOST_NOT_RUN.
 *
 * RC_RETRY: the transaction must be rolled back; of items up to and including *ret_failed it is
 * certain that they were started, and that one's verdict, reason and sqlstate say what went wrong.
 * *ret_failed == n: no single one is to blame (err says what happened), run each by itself.
 * Statements without result are the caller's to pass over (db_sync, db_sync_end).
 *
 * RC_UNAVAILABLE: the session is lost, or the server says that it lacks something; err. */
enum rc host_handle(struct host *h, struct host_item *items, size_t n, size_t *ret_failed,
	struct err *err) MUST_CHECK;

/* After host_handle returned RC_OK, and after db_sync has sent what it queued (with the gate and
 * COMMIT behind it, perhaps): takes the results of all statements in front of the caller's, the
 * first host_queued.  The first error gives its item a verdict and RC_RETRY or RC_UNAVAILABLE as
 * above; the rest is the caller's to pass over (db_sync_end).  RC_OK also when nothing was
 * queued. */
enum rc host_settle(struct host *h, struct host_item *items, size_t n, size_t *ret_failed,
	struct err *err) MUST_CHECK;

/* Statements not yet taken that were queued before and during host_handle: they stand in front of
 * whatever the caller queues next. */
size_t host_queued(const struct host *h);

/* True if something executed since the last call may have left session state behind. */
bool host_take_dirty(struct host *h);

#endif

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

enum host_verdict {
	HOST_DONE,
	HOST_RETRY,
	HOST_REJECT,
	HOST_BROKEN, /* unknown result, own COMMIT, swallowed error: never run again */
};

/* One message for the handler, and what became of it. */
struct host_item {
	const struct source_message *message;
	struct bytes key; /* as claimed; empty without one */
	uint32_t attempt; /* runs before this one */

	enum host_verdict verdict; /* set by host_handle; below likewise */
	char reason[HOST_REASON_MAX]; /* UTF-8; "" for HOST_DONE */
	char sqlstate[6];             /* of the statement that failed, or "" */
	uint64_t delay_ms;            /* asked for by the handler; 0: as configured */
	bool has_result;
	struct buf result; /* owned; host_item_done frees */
	char content_type[128];
};
void host_item_done(struct host_item *item);

struct host;

/* handler and consumer are borrowed for the host's life. */
struct host *host_new(const struct handler *handler, const struct config_consumer *consumer);
void host_free(struct host *h);

/* Runs the handler's `check`; errors of options are added to errors in the form of config_load. */
enum rc host_check(struct host *h, struct buf *errors) MUST_CHECK;

/* Runs `open` on a fresh session; db is borrowed until host_close.  RC_FATAL or RC_UNAVAILABLE with what
 * the handler or a statement's PREPARE said; errors (may be NULL) as above. */
enum rc host_open(struct host *h, struct db_conn *db, struct buf *errors, struct err *err) MUST_CHECK;
void host_close(struct host *h);

bool host_has_batch(const struct host *h);
bool host_uses_conn(const struct host *h);

/* Called with every statement a handler executes or queues (inboxctl try); NULL: nobody. */
void host_set_trace(struct host *h,
	void (*trace)(void *arg, const char *sql, size_t n, const struct db_value *args), void *arg);

/* Runs the handler for items inside the open transaction: handle for one, handle_batch (or handle for
 * each, in order) for several.  Statements it queued may still be without result: the caller takes
 * their results (host_queued tells how many belong to which item) before it believes a verdict.
 * RC_OK: each item has a verdict.  RC_RETRY: the transaction is broken and must be rolled back; items
 * up to and including *ret_failed have been started, that one failed (its verdict says how).
 * RC_UNAVAILABLE: the session is lost. */
enum rc host_handle(struct host *h, struct host_item *items, size_t n, size_t *ret_failed,
	struct err *err) MUST_CHECK;

/* After host_handle: takes the results of all statements queued by the handler; the first error gives
 * its item a verdict and RC_RETRY as above.  (A no-op when none are queued.) */
enum rc host_settle(struct host *h, struct host_item *items, size_t n, size_t *ret_failed,
	struct err *err) MUST_CHECK;

/* Statements queued for the handler and not yet taken: they stand in front of whatever the caller
 * queues next. */
size_t host_queued(const struct host *h);

/* True if something executed since the last call may have left session state behind. */
bool host_take_dirty(struct host *h);

#endif

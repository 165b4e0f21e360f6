/* SPDX-License-Identifier: MIT */
/* Calls a handler's entries, and makes a verdict of what they return and of what happened
 * meanwhile. */
#include "handler/host_call.h"

#include "base/log.h"
#include "handler/reason.h"
#include "message/key.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { LOG_TEXT_MAX = 8192 };

/* ---- life ---------------------------------------------------------------------------- */

struct host *host_new(const struct handler *handler, const struct config_consumer *consumer)
{
	struct host *h = xcalloc(1, sizeof *h);
	h->handler = handler;
	h->consumer = consumer;
	h->whole.host = h;
	return h;
}

void host_free(struct host *h)
{
	if (h == NULL)
		return;
	host_close(h);
	host_forget_sources(h);
	host_forget_statements(h);
	savepoints_done(&h->savepoints);
	arena_done(&h->arena);
	buf_done(&h->scratch);
	buf_done(&h->owners);
	free(h->calls);
	free(h->args);
	free(h);
}

void host_item_init(struct host_item *item, const struct source_message *message, struct bytes key,
	uint32_t attempt)
{
	item->message = message;
	item->key = key;
	item->attempt = attempt;
	item->verdict = HOST_NOT_RUN;
	item->reason[0] = item->sqlstate[0] = item->content_type[0] = '\0';
	item->delay_ms = 0;
	item->has_result = false;
	item->result = (struct buf){0};
}

void host_item_done(struct host_item *item)
{
	buf_done(&item->result);
	item->has_result = false;
}

bool host_has_batch(const struct host *h)
{
	return h->handler->entries.handle_batch != NULL;
}

bool host_uses_conn(const struct host *h)
{
	return (h->handler->entries.flags & INBOXD_USES_CONN) != 0;
}

void host_set_step(struct host *h, host_step_fn *step, void *arg)
{
	h->step = step;
	h->step_arg = arg;
}

void host_set_guard(struct host *h, host_guard_fn *guard, void *arg)
{
	h->guard = guard;
	h->guard_arg = arg;
}

void host_set_one_by_one(struct host *h, bool on)
{
	h->is_one_by_one = on;
}

static int32_t guarded(const struct host *h, int32_t result)
{
	if (h->guard != NULL)
		h->guard(h->guard_arg);
	return result;
}

void host_set_trace(struct host *h, host_trace_fn *trace, void *arg)
{
	h->trace = trace;
	h->trace_arg = arg;
}

void host_set_trace_result(struct host *h, host_trace_result_fn *trace, void *arg)
{
	h->trace_result = trace;
	h->trace_result_arg = arg;
}

bool host_take_dirty(struct host *h)
{
	bool was_dirty = h->is_dirty;
	h->is_dirty = false;
	return was_dirty;
}

/* ---- calls --------------------------------------------------------------------------- */

void call_note(struct inboxd_call *call, const char *fmt, ...)
{
	char text[2 * HOST_REASON_MAX];
	va_list ap;
	if (call->has_own_reason)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	reason_set(call->reason, sizeof call->reason, bytes_str(text));
}

void call_mark(struct inboxd_call *call, enum host_verdict verdict)
{
	call->mark = verdict;
}

struct inboxd_value call_copy(struct inboxd_call *call, struct bytes b)
{
	b = arena_copy(&call->host->arena, b);
	return (struct inboxd_value){.data = (const char *)b.data, .size = b.size};
}

static void call_reset(struct inboxd_call *call, struct host_item *item, size_t index)
{
	call->item = item;
	call->index = index;
	call->body = (struct inboxd_value){.data = NULL, .size = 0};
	call->mark = HOST_DONE;
	call->is_own_mark = false;
	call->has_own_reason = false;
	call->reason[0] = '\0';
	call->delay_ms = 0;
	call->statements = 0;
}

static void begin_entry(struct host *h, enum entry entry, struct buf *errors)
{
	h->entry = entry;
	h->errors = errors;
	h->wrong_options = 0;
	h->is_unavailable = false;
	savepoints_clear(&h->savepoints);
}

static void end_entry(struct host *h)
{
	host_db_forget_rows(h);
	arena_clear(&h->arena);
	h->entry = ENTRY_NONE;
	h->errors = NULL;
}

/* ---- lent: verdicts, log, state ------------------------------------------------------ */

static void note_own_reason(struct inboxd_call *call, const char *reason)
{
	if (reason == NULL)
		return;
	/* The size of what is copied is bounded, that of what a handler passes is not. */
	reason_set(call->reason, sizeof call->reason,
		bytes_of(reason, strnlen(reason, sizeof call->reason + 1)));
	call->has_own_reason = true;
}

static int32_t lend_retry(struct inboxd_call *call, const char *reason, uint64_t delay_ms)
{
	note_own_reason(call, reason);
	call_mark(call, HOST_RETRY);
	call->is_own_mark = true;
	call->delay_ms = delay_ms;
	return INBOXD_RETRY;
}

static int32_t lend_reject(struct inboxd_call *call, const char *reason)
{
	note_own_reason(call, reason);
	call_mark(call, HOST_REJECT);
	call->is_own_mark = true;
	return INBOXD_REJECT;
}

static int32_t lend_is_failed(struct inboxd_call *call)
{
	const struct failure *f = &call->host->failure;
	return call->mark != HOST_DONE || (f->is_set && (f->is_final || f->index == call->index));
}

static int32_t lend_set_result(
	struct inboxd_call *call, const char *data, size_t size, const char *content_type)
{
	struct host_item *item = call->item;
	if (item == NULL) {
		call_note(call, "a result belongs to a message; in handle_batch use batch_item");
		return INBOXD_REJECT;
	}
	if (content_type != NULL && strlen(content_type) >= sizeof item->content_type) {
		call_note(call, "the result's content type is longer than %zu bytes",
			sizeof item->content_type - 1);
		return INBOXD_REJECT;
	}
	buf_clear(&item->result);
	buf_add(&item->result, data, size);
	item->has_result = true;
	(void)snprintf(item->content_type, sizeof item->content_type, "%s",
		content_type != NULL ? content_type : "");
	return INBOXD_DONE;
}

static void lend_log(struct inboxd_call *call, int32_t level, const char *text)
{
	static const enum log_level levels[] = {
		[INBOXD_LOG_ERROR] = L_ERROR,
		[INBOXD_LOG_WARNING] = L_WARNING,
		[INBOXD_LOG_INFO] = L_INFO,
		[INBOXD_LOG_DEBUG] = L_DEBUG,
	};
	int32_t bounded = level < INBOXD_LOG_ERROR ? INBOXD_LOG_ERROR : level;
	enum log_level l = levels[bounded > INBOXD_LOG_DEBUG ? INBOXD_LOG_DEBUG : bounded];
	struct buf key = {0};
	if (!log_enabled(l))
		return;
	if (call->item != NULL && call->item->key.size != 0)
		key_text(call->item->key, &key);
	log_event(l, "handler says", LB("text", bytes_of(text, strnlen(text, LOG_TEXT_MAX))),
		LS("handler", call->host->consumer->handler), LB("key", buf_bytes(&key)));
	buf_done(&key);
}

static void lend_set_state(struct inboxd_call *call, void *state)
{
	call->host->state = state;
}

static void *lend_state(struct inboxd_call *call)
{
	return call->host->state;
}

const struct inboxd_host host_table = {
	.abi_major = INBOXD_ABI_MAJOR,
	.abi_minor = INBOXD_ABI_MINOR,
	.size = sizeof(struct inboxd_host),
	.get = lend_get,
	.body = lend_body,
	.header_kind = lend_header_kind,
	.header_int = lend_header_int,
	.header_float = lend_header_float,
	.header_name = lend_header_name,
	.property_int = lend_property_int,
	.attempt = lend_attempt,
	.redelivered = lend_redelivered,
	.idempotency_key = lend_idempotency_key,
	.batch_size = lend_batch_size,
	.batch_item = lend_batch_item,
	.exec = lend_exec,
	.queue = lend_queue,
	.rows_count = lend_rows_count,
	.rows_columns = lend_rows_columns,
	.rows_affected = lend_rows_affected,
	.rows_value = lend_rows_value,
	.bytea = lend_bytea,
	.copy_begin = lend_copy_begin,
	.copy_data = lend_copy_data,
	.copy_end = lend_copy_end,
	.conn = lend_conn,
	.retry = lend_retry,
	.reject = lend_reject,
	.is_failed = lend_is_failed,
	.set_result = lend_set_result,
	.log = lend_log,
	.option = lend_option,
	.option_count = lend_option_count,
	.option_name = lend_option_name,
	.bad_option = lend_bad_option,
	.only_options = lend_only_options,
	.prepare = lend_prepare,
	.source_error = lend_source_error,
	.statement_error = lend_statement_error,
	.set_state = lend_set_state,
	.state = lend_state,
};

/* ---- check, open, close -------------------------------------------------------------- */

/* What an entry without a message returned; the reason is its own or says which entry it was. */
static enum rc judge_setup(struct host *h, const char *entry, int32_t result, struct err *err)
{
	if (h->is_unavailable) {
		*err = h->lost;
		return err->rc = RC_UNAVAILABLE;
	}
	if (result == INBOXD_DONE && h->wrong_options == 0 && h->whole.mark == HOST_DONE)
		return RC_OK;
	if (h->whole.reason[0] == '\0' && (uint32_t)result > INBOXD_REJECT)
		call_note(&h->whole, "it returned %d, which is no result", result);
	else if (h->whole.reason[0] == '\0')
		call_note(&h->whole, "it refused without giving a reason");
	bool is_later = result == INBOXD_RETRY && h->wrong_options == 0;
	return err_set(err, is_later ? RC_UNAVAILABLE : RC_FATAL, "handler \"%s\", %s: %s",
		h->consumer->handler, entry, h->whole.reason);
}

enum rc host_check(struct host *h, struct buf *errors)
{
	struct err err;
	const struct inboxd_handler *entries = &h->handler->entries;
	if (entries->check == NULL)
		return RC_OK;
	begin_entry(h, ENTRY_CHECK, errors);
	call_reset(&h->whole, NULL, 0);
	int32_t result = guarded(h, entries->check(&host_table, &h->whole));
	enum rc rc = judge_setup(h, "check", result, &err);
	if (rc != RC_OK && h->wrong_options == 0)
		config_option_error(h->consumer, "", h->whole.reason, errors);
	end_entry(h);
	return rc == RC_OK ? RC_OK : RC_FATAL;
}

enum rc host_open(struct host *h, struct db_conn *db, struct buf *errors, struct err *err)
{
	const struct inboxd_handler *entries = &h->handler->entries;
	assert(!h->is_open);
	h->db = db;
	h->is_open = true;
	h->state = NULL;
	if (entries->open == NULL)
		return RC_OK;
	begin_entry(h, ENTRY_OPEN, errors);
	h->n_calls = 0;
	host_db_begin(h);
	call_reset(&h->whole, NULL, 0);
	int32_t result = guarded(h, entries->open(&host_table, &h->whole));
	enum rc rc = judge_setup(h, "open", result, err);
	if (rc == RC_OK && db_tx_state(db) != DB_TX_NONE)
		rc = err_set(err, RC_UNAVAILABLE, "handler \"%s\", open: the session is lost",
			h->consumer->handler);
	end_entry(h);
	return rc;
}

void host_close(struct host *h)
{
	const struct inboxd_handler *entries = &h->handler->entries;
	if (!h->is_open)
		return;
	h->is_open = false;
	if (entries->close != NULL) {
		begin_entry(h, ENTRY_CLOSE, NULL);
		call_reset(&h->whole, NULL, 0);
		entries->close(&host_table, &h->whole);
		(void)guarded(h, 0);
		end_entry(h);
	}
	h->state = NULL;
	h->db = NULL;
}

/* ---- verdicts ------------------------------------------------------------------------ */

static void set_verdict(
	struct host_item *item, enum host_verdict verdict, const char *sqlstate, const char *reason)
{
	item->verdict = verdict;
	item->reason[0] = item->sqlstate[0] = '\0';
	if (reason[0] != '\0')
		reason_set(item->reason, sizeof item->reason, bytes_str(reason));
	if (sqlstate[0] != '\0')
		(void)snprintf(item->sqlstate, sizeof item->sqlstate, "%s", sqlstate);
	if (verdict != HOST_DONE) {
		buf_clear(&item->result);
		item->has_result = false;
	}
}

static enum host_verdict verdict_of(enum rc rc)
{
	return rc == RC_REJECT ? HOST_REJECT : HOST_RETRY;
}

/* The session or the server: no message is to blame. */
static enum rc judge_session(struct host *h, struct err *err)
{
	if (!h->is_unavailable && db_tx_state(h->db) == DB_TX_LOST) {
		h->is_unavailable = true;
		(void)err_set(
			&h->lost, RC_UNAVAILABLE, "the session was lost while the handler ran");
	}
	if (!h->is_unavailable)
		return RC_OK;
	*err = h->lost;
	return err->rc = RC_UNAVAILABLE;
}

static bool has_left_transaction(const struct host *h)
{
	return h->has_left_transaction || db_tx_state(h->db) == DB_TX_NONE;
}

/* Lays a failed statement at its message's door.  `how` goes in front of the reason. */
static enum rc blame(struct host *h, struct host_item *items, size_t n, const char *how,
	size_t *ret_failed, struct err *err)
{
	char reason[2 * HOST_REASON_MAX];
	const struct failure *f = &h->failure;
	(void)snprintf(reason, sizeof reason, "%s%s", how, f->text);
	if (f->index < n)
		set_verdict(&items[f->index], verdict_of(f->rc), f->sqlstate, reason);
	*ret_failed = f->index < n ? f->index : n;
	return err_set(err, RC_RETRY, "%s", reason);
}

/* The handler's own verdict on one message. */
static enum rc fail_item(struct host *h, struct inboxd_call *call, enum host_verdict verdict,
	const char *otherwise, size_t *ret_failed, struct err *err)
{
	const struct failure *f = &h->failure;
	const char *reason = call->reason[0] != '\0' ? call->reason : otherwise;
	set_verdict(call->item, verdict, f->is_set && f->index == call->index ? f->sqlstate : "",
		reason);
	call->item->delay_ms = verdict == HOST_RETRY ? call->delay_ms : 0;
	*ret_failed = call->index;
	return err_set(err, RC_RETRY, "%s", reason);
}

static const char silent[] = "the handler gave no reason";
static const char swallowed[] = "the handler returned done although a statement had failed: ";

/* After handle, for one message: RC_OK if it is done, RC_RETRY if something failed. */
static enum rc judge_one(struct host *h, struct host_item *items, size_t n,
	struct inboxd_call *call, int32_t result, size_t *ret_failed, struct err *err)
{
	const struct failure *f = &h->failure;
	if (has_left_transaction(h)) {
		call->has_own_reason = false;
		call_note(call, "the handler ended the transaction");
		return fail_item(h, call, HOST_BROKEN, "", ret_failed, err);
	}
	if (f->is_set && f->is_final)
		return blame(h, items, n, "", ret_failed, err);
	if (result == INBOXD_DONE && call->mark != HOST_DONE)
		return fail_item(h, call, call->mark, silent, ret_failed, err);
	if (result == INBOXD_DONE && f->is_set)
		return blame(h, items, n, swallowed, ret_failed, err);
	if (result == INBOXD_DONE && db_tx_state(h->db) == DB_TX_FAILED)
		return fail_item(h, call, HOST_RETRY,
			"the handler returned done although a statement on the raw connection had "
			"failed",
			ret_failed, err);
	if (result == INBOXD_DONE) {
		set_verdict(call->item, HOST_DONE, "", "");
		return RC_OK;
	}
	if (result == INBOXD_RETRY || result == INBOXD_REJECT)
		return fail_item(h, call, result == INBOXD_RETRY ? HOST_RETRY : HOST_REJECT, silent,
			ret_failed, err);
	call->has_own_reason = false;
	call_note(call, "the handler returned %d, which is no result", result);
	return fail_item(h, call, HOST_BROKEN, "", ret_failed, err);
}

/* A message of a batch that failed may be left out if the handler knows it and wrote nothing for
 * it: what was written cannot be told from the rest, and what it did not notice it may have
 * written. */
static bool can_be_left_out(const struct inboxd_call *call)
{
	return call->is_own_mark && call->statements == 0;
}

static enum rc judge_batch_items(struct host *h, size_t *ret_failed, struct err *err)
{
	for (size_t i = 0; i < h->n_calls; i++) {
		struct inboxd_call *call = &h->calls[i];
		if (call->mark == HOST_DONE)
			set_verdict(call->item, HOST_DONE, "", "");
		else if (fail_item(h, call, call->mark, silent, ret_failed, err) != RC_OK &&
			!can_be_left_out(call))
			return err->rc;
	}
	return RC_OK;
}

static enum rc judge_batch(struct host *h, struct host_item *items, size_t n, int32_t result,
	size_t *ret_failed, struct err *err)
{
	if (h->failure.is_set && (h->failure.is_final || result != INBOXD_DONE))
		return blame(h, items, n, "", ret_failed, err);
	if (h->failure.is_set)
		return blame(h, items, n, swallowed, ret_failed, err);
	*ret_failed = n;
	if (has_left_transaction(h))
		return err_set(err, RC_RETRY, "the handler ended the transaction of a batch");
	if (judge_batch_items(h, ret_failed, err) != RC_OK)
		return err->rc;
	*ret_failed = n;
	if (result != INBOXD_DONE || h->whole.mark != HOST_DONE)
		return err_set(err, RC_RETRY, "handle_batch returned %d: %s", result,
			h->whole.reason[0] != '\0' ? h->whole.reason : silent);
	return RC_OK;
}

/* ---- handle -------------------------------------------------------------------------- */

static void prepare_calls(struct host *h, struct host_item *items, size_t n)
{
	if (h->calls_cap < n) {
		free(h->calls);
		h->calls = xcalloc(n, sizeof *h->calls);
		h->calls_cap = n;
	}
	h->n_calls = n;
	for (size_t i = 0; i < n; i++) {
		h->calls[i].host = h;
		call_reset(&h->calls[i], &items[i], i);
		set_verdict(&items[i], HOST_NOT_RUN, "", "");
		items[i].delay_ms = 0;
		items[i].has_result = false;
	}
	call_reset(&h->whole, NULL, n);
}

static enum rc handle_one(struct host *h, struct host_item *items, size_t n, size_t i,
	size_t *ret_failed, struct err *err)
{
	struct inboxd_call *call = &h->calls[i];
	begin_entry(h, ENTRY_HANDLE, NULL);
	int32_t result = guarded(h, h->handler->entries.handle(&host_table, call));
	host_db_end_entry(h, call);
	enum rc rc = judge_session(h, err);
	if (rc == RC_OK)
		rc = judge_one(h, items, n, call, result, ret_failed, err);
	end_entry(h);
	return rc;
}

static enum rc handle_batch(
	struct host *h, struct host_item *items, size_t n, size_t *ret_failed, struct err *err)
{
	begin_entry(h, ENTRY_BATCH, NULL);
	int32_t result = guarded(h, h->handler->entries.handle_batch(&host_table, &h->whole));
	host_db_end_entry(h, &h->whole);
	enum rc rc = judge_session(h, err);
	if (rc == RC_OK)
		rc = judge_batch(h, items, n, result, ret_failed, err);
	end_entry(h);
	return rc;
}

static bool may_start(struct host *h, size_t index)
{
	return h->step == NULL || h->step(h->step_arg, index) || index == 0;
}

enum rc host_handle(
	struct host *h, struct host_item *items, size_t n, size_t *ret_failed, struct err *err)
{
	enum rc rc = RC_OK;
	assert(h->is_open && n > 0);
	prepare_calls(h, items, n);
	host_db_begin(h);
	if (n > 1 && host_has_batch(h) && !h->is_one_by_one) {
		(void)may_start(h, 0);
		return handle_batch(h, items, n, ret_failed, err);
	}
	for (size_t i = 0; i < n && rc == RC_OK && may_start(h, i); i++)
		rc = handle_one(h, items, n, i, ret_failed, err);
	return rc;
}

enum rc host_settle(
	struct host *h, struct host_item *items, size_t n, size_t *ret_failed, struct err *err)
{
	if (host_take_queued(h))
		return RC_OK;
	if (judge_session(h, err) != RC_OK)
		return err->rc;
	return blame(h, items, n, "", ret_failed, err);
}

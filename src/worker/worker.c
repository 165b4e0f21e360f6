/* SPDX-License-Identifier: MIT */
/* The loop of a worker: commands from the consumer, a session that is kept open, nothing else. */
#include "worker/worker.h"

#include "base/backoff.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/proc.h"
#include "worker/session.h"

#include <errno.h>
#include <poll.h>
#include <sysexits.h>

enum {
	IDLE_MARGIN_MS = 60000, /* a transaction may stand idle so much longer than a handler may run */
	RECONNECT_FIRST_MS = 200,
	RECONNECT_CAP_MS = 5000,
	MEMORY_EVERY_MS = 10,
	MOST_UNCHECKED = 16, /* entries; libpq sends what they queued when it has 8 KiB */
};

/* ---- to the consumer ------------------------------------------------------------------------- */

/* What was asked for and never touched is not resident, but counts against the limit all the same. */
static bool is_large(const struct worker *w)
{
	struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
	const struct proc_memory memory = proc_memory(w->surroundings.pid);
	(void)getrlimit(RLIMIT_DATA, &limit);
	return memory.resident > w->consumer->memory_max / 5 * 4 ||
	       (limit.rlim_cur != RLIM_INFINITY && memory.data > limit.rlim_cur / 5 * 4);
}

/* Between two messages only, and only after a handler ran: nothing else grows. */
static enum leaving reason_to_leave(struct worker *w)
{
	const struct config_consumer *c = w->consumer;
	if (w->handled == w->handled_checked)
		return LEAVING_NOT;
	if (w->is_changed)
		return LEAVING_CHANGED;
	if (c->recycle_after != 0 && w->handled >= c->recycle_after)
		return LEAVING_AGE;
	/* A batch of small messages takes less time than a look would be worth. */
	uint64_t now_ms = clock_ms();
	if (now_ms < w->memory_at_ms)
		return LEAVING_NOT;
	w->handled_checked = w->handled;
	w->memory_at_ms = now_ms + MEMORY_EVERY_MS;
	return is_large(w) ? LEAVING_MEMORY : LEAVING_NOT;
}

void worker_consider_leaving(struct worker *w)
{
	enum leaving reason = w->is_leaving ? LEAVING_NOT : reason_to_leave(w);
	/* An attempt that is still to be given back would stay charged. */
	if (reason == LEAVING_NOT || w->owed.parked != 0)
		return;
	w->is_leaving = true;
	stats_set(w->slot, STATS_leaving, reason);
	channel_end(&w->channel, channel_begin(&w->channel, FROM_LEAVING));
}

void worker_answer(struct worker *w, const struct answer *answers, size_t n)
{
	struct buf *out = &w->channel.out;
	worker_consider_leaving(w);
	size_t at = channel_begin(&w->channel, FROM_VERDICTS);
	FAULT("before-verdicts");
	buf_add_u32(out, (uint32_t)n);
	buf_add_u64(out, w->next_due_ms);
	for (size_t i = 0; i < n; i++) {
		ref_encode(out, &answers[i].ref);
		buf_add_byte(out, (uint8_t)answers[i].verdict);
	}
	channel_end(&w->channel, at);
}

static void say_ready(struct worker *w, const struct outlook *outlook)
{
	size_t at = channel_begin(&w->channel, FROM_READY);
	buf_add_byte(&w->channel.out, host_uses_conn(w->host));
	buf_add_u64(&w->channel.out, outlook->next_due_ms);
	buf_add_u32(&w->channel.out, outlook->parked);
	buf_add_byte(&w->channel.out, outlook->has_kept);
	channel_end(&w->channel, at);
}

static void say_down(struct worker *w, const struct err *err)
{
	size_t at = channel_begin(&w->channel, FROM_DOWN);
	buf_add_byte(&w->channel.out, (uint8_t)err->rc);
	buf_add_str(&w->channel.out, err->text);
	channel_end(&w->channel, at);
}

void worker_log(enum log_level level, const char *event, struct bytes key, const struct message *m,
	uint32_t attempt, const char *reason, const char *detail)
{
	struct source_message sm;
	struct field trace;
	struct buf text = {0};
	source_message_init(&sm, m);
	props_header(&sm.props, bytes_str("traceparent"), &trace);
	if (key.size != 0)
		key_text(key, &text);
	log_event(level, event, LB("key", buf_bytes(&text)),
		LB("message_id", sm.props.text[PROP_MESSAGE_ID]),
		LB("correlation_id", sm.props.text[PROP_CORRELATION_ID]),
		LB("traceparent", trace.content), LU("attempt", attempt), LS("reason", reason),
		LS("detail", detail));
	buf_done(&text);
}

/* ---- the session ------------------------------------------------------------------------------- */

/* The handler's own code runs: the supervisor ends it when it takes too long. */
static void watch(struct worker *w, bool on)
{
	stats_set(w->slot, STATS_handler_since_ms, on ? clock_ms() : 0);
}

/* The session has not answered for as long as it may.  While its COMMIT waits for a standby, that is an
 * outage: it is waited for, and no handler runs that could be blamed.  A server that does not answer
 * others either is one, too.  Otherwise a handler's statement is left to the watch over handlers, which
 * comes next. */
static bool on_silence(void *arg)
{
	static const struct err awaited = {.rc = RC_UNAVAILABLE,
		.text = "COMMIT waits for a synchronous standby (synchronous_standby_names)"};
	struct worker *w = arg;
	uint64_t handler_since_ms = stats_get(w->slot, STATS_handler_since_ms);
	stats_set(w->slot, STATS_handler_since_ms, 0);
	switch (db_look_at(w->consumer->database, w->db)) {
	case DB_SEEN_STANDBY:
		if (!w->is_standby_awaited)
			say_down(w, &awaited);
		w->is_standby_awaited = true;
		return channel_flush(&w->channel) == RC_OK;
	case DB_SEEN_OTHER:
		stats_set(w->slot, STATS_handler_since_ms, handler_since_ms);
		return handler_since_ms != 0;
	case DB_SEEN_NOTHING:
		w->is_server_silent = true;
		break;
	}
	return false;
}

static void disconnect(struct worker *w)
{
	if (w->db == NULL)
		return;
	watch(w, true);
	host_close(w->host);
	watch(w, false);
	inbox_done(&w->inbox);
	surroundings_set_session(&w->surroundings, -1);
	db_conn_close(w->db);
	w->db = NULL;
	w->stream.is_open = false; /* what came of a large body went with the session */
	w->is_standby_awaited = false;
}

void worker_lost(struct worker *w, const struct err *err)
{
	if (w->db == NULL)
		return;
	log_event(L_DEBUG, "database_lost", LS("error", err->text), LS("next", "connecting again"));
	disconnect(w);
	say_down(w, err);
	/* At once the first time; then slower, until something is committed again. */
	w->next_try_ms = clock_ms() + (w->losses++ != 0 ? backoff_next_ms(&w->backoff, random_u32()) : 0);
}

void worker_succeeded(struct worker *w)
{
	w->losses = 0;
	backoff_reset(&w->backoff);
}

/* Connected, checked, registered, debts paid, handler open: or closed again. */
static enum rc connect_once(struct worker *w, struct outlook *ret, struct err *err)
{
	const struct config_consumer *c = w->consumer;
	AUTO(buf) struct buf errors = {0};
	AUTO(free) char *name = xasprintf("inboxd %s", c->name);

	if (db_conn_open(c->database, name, &w->db, err) != RC_OK)
		return err->rc;
	surroundings_set_session(&w->surroundings, db_conn_fd(w->db));
	inbox_init(&w->inbox, w->db, c);
	enum rc rc = db_conn_limit(w->db, inbox_statement_limit_ms(c),
		c->handler_timeout_ms + c->batch_time_ms + IDLE_MARGIN_MS, err);
	db_conn_on_silence(w->db, on_silence, w);
	inbox_expect_own(&w->inbox);
	if (rc == RC_OK)
		rc = inbox_check_schema(&w->inbox, err);
	if (rc == RC_OK)
		rc = inbox_register(&w->inbox, w->vhost, err);
	if (rc == RC_OK)
		rc = retry_repay(w, err);
	watch(w, true);
	if (rc == RC_OK)
		rc = host_open(w->host, w->db, &errors, err);
	worker_require_surroundings(w);
	watch(w, false);
	if (rc == RC_OK)
		rc = inbox_look_out(&w->inbox, ret, err);
	if (rc != RC_OK)
		disconnect(w);
	return rc;
}

bool worker_connect(struct worker *w)
{
	struct err err = {.rc = RC_OK};
	struct outlook outlook = {0};
	if (connect_once(w, &outlook, &err) == RC_OK) {
		stats_add(w->slot, STATS_connects, 1);
		FAULT("database-connected");
		w->is_standby_awaited = false;
		say_ready(w, &outlook);
		return true;
	}
	say_down(w, &err);
	w->next_try_ms = clock_ms() + backoff_next_ms(&w->backoff, random_u32());
	return false;
}

/* A commit has come back from waiting for a standby, which had us called down. */
static void say_ready_again(struct worker *w)
{
	struct outlook outlook;
	struct err err;
	if (!w->is_standby_awaited || w->db == NULL || w->is_leaving)
		return; /* one that leaves is given nothing more */
	w->is_standby_awaited = false;
	if (inbox_look_out(&w->inbox, &outlook, &err) == RC_OK)
		say_ready(w, &outlook);
	else
		worker_lost(w, &err);
}

/* ---- commands ---------------------------------------------------------------------------------- */

static void hello(struct worker *w, struct bytes payload)
{
	size_t n = payload.size < sizeof w->vhost - 1 ? payload.size : sizeof w->vhost - 1;
	memcpy(w->vhost, payload.data, n);
	w->vhost[n] = '\0';
	w->is_greeted = true;
}

static void obey(struct worker *w, const struct frame *f)
{
	w->next_due_ms = UINT64_MAX;
	switch ((enum frame_type)f->type) {
	case TO_HELLO:
		hello(w, f->payload);
		break;
	case TO_BATCH:
		batch_run(w, f->payload);
		break;
	case TO_PARK:
		parking_run(w, f->payload);
		break;
	case TO_PARK_BEGIN:
		parking_begin(w, f->payload);
		break;
	case TO_PARK_PIECE:
		parking_piece(w, f->payload);
		break;
	case TO_PARK_END:
		parking_end(w);
		break;
	case TO_PARK_ABORT:
		parking_abort(w);
		break;
	case TO_RETRY:
		retry_run(w);
		break;
	case TO_CRASHED:
		retry_crashed(w, f->payload);
		break;
	case TO_OUTGOING:
		outgoing_take(w);
		break;
	case TO_SENT:
		outgoing_record(w, f->payload);
		break;
	case FROM_READY:
	case FROM_DOWN:
	case FROM_VERDICTS:
	case FROM_TAKEN:
	case FROM_RETRY:
	case FROM_OUTGOING:
	case FROM_SENT:
	case FROM_DUE:
	case TO_PUBLISH:
	case FROM_PUBLISHED:
	case FROM_LEAVING:
		break;
	}
	outgoing_say_due(w);
	say_ready_again(w);
	stats_add(w->slot, STATS_progress, 1);
}

/* False when the consumer is gone, or this worker leaves. */
static bool take_commands(struct worker *w)
{
	struct frame f;
	int got;
	if (channel_fill(&w->channel) != RC_OK)
		return false;
	while ((got = channel_next(&w->channel, &f)) == 1) {
		obey(w, &f);
		if (channel_flush(&w->channel) != RC_OK || w->is_leaving)
			return false;
		stats_set(w->slot, STATS_handler_ran, 0);
		FAULT("answered");
	}
	return got == 0;
}

/* Which of the two has something to read: the consumer, the database. */
struct readable {
	bool channel, session;
};

static struct readable wait_for_something(struct worker *w)
{
	struct pollfd fds[2] = {{.fd = w->channel.fd, .events = POLLIN},
		{.fd = w->db != NULL ? db_conn_fd(w->db) : -1, .events = POLLIN}};
	int timeout = -1;
	if (w->db == NULL) {
		uint64_t now = clock_ms();
		timeout = w->next_try_ms > now ? (int)(w->next_try_ms - now) : 0;
	}
	if (!w->is_greeted)
		timeout = -1; /* nothing to do before the consumer has said where it consumes */
	if (poll(fds, 2, timeout) <= 0)
		return (struct readable){0};
	return (struct readable){.channel = fds[0].revents != 0, .session = fds[1].revents != 0};
}

static int loop(struct worker *w)
{
	const struct err closed = {.rc = RC_UNAVAILABLE, .text = "closed by the server"};
	for (;;) {
		struct readable has = wait_for_something(w);
		if (has.channel && !take_commands(w))
			return EX_OK;
		/* What it says between two commands is that it ends. */
		if (w->db != NULL && !db_conn_is_alive(w->db, has.session))
			worker_lost(w, &closed);
		if (w->db == NULL && w->is_greeted && clock_ms() >= w->next_try_ms)
			(void)worker_connect(w);
		if (channel_flush(&w->channel) != RC_OK)
			return EX_OK;
	}
}

void worker_require_surroundings(struct worker *w)
{
	w->unchecked = 0;
	surroundings_require(&w->surroundings, w->db != NULL ? db_conn_fd(w->db) : -1);
}

/* System calls for each of many quick messages would cost more than the messages: batch.c asks for them
 * when the last one has returned. */
static void after_entry(void *arg)
{
	struct worker *w = arg;
	surroundings_require_parent(&w->surroundings);
	if (++w->unchecked >= MOST_UNCHECKED)
		worker_require_surroundings(w);
}

int worker_main(const struct config_consumer *consumer, struct handler_copy *handler, int channel_fd,
	struct stats_slot *slot)
{
	struct worker w = {
		.consumer = consumer,
		.slot = slot,
		.next_due_ms = UINT64_MAX,
		.backoff = {.first_ms = RECONNECT_FIRST_MS,
			.cap_ms = RECONNECT_CAP_MS,
			.jitter_percent = 20},
	};
	struct err err;
	AUTO(buf) struct buf errors = {0};
	int code = EX_CONFIG;

	memory_keep();
	channel_init(&w.channel, channel_fd);
	enum rc loaded = handler_load_copy(handler, &w.handler, &err);
	handler_copy_done(handler);
	if (loaded != RC_OK) {
		say_down(&w, &err);
		(void)!channel_flush(&w.channel);
		channel_done(&w.channel);
		return code;
	}
	surroundings_begin(&w.surroundings, channel_fd);
	w.host = host_new(&w.handler, consumer);
	host_set_guard(w.host, after_entry, &w);
	watch(&w, true);
	enum rc checked = host_check(w.host, &errors);
	worker_require_surroundings(&w);
	watch(&w, false);
	if (checked == RC_OK) {
		log_event(L_DEBUG, "handler_loaded", LS("file", w.handler.file.path),
			LS("version", w.handler.entries.version));
		code = loop(&w);
	} else {
		(void)err_set(&err, RC_FATAL, "handler refuses its options: %s", buf_str(&errors));
		say_down(&w, &err);
		(void)!channel_flush(&w.channel);
	}
	disconnect(&w);
	host_free(w.host);
	handler_unload(&w.handler);
	channel_done(&w.channel);
	return code;
}

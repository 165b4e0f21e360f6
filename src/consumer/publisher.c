/* SPDX-License-Identifier: MIT */
/* Publishes one message after the other, each until the broker has said what became of it. */
#include "consumer/publisher.h"

#include "base/backoff.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "ipc/channel.h"
#include "ipc/protocol.h"
#include "message/outgoing.h"
#include "mq/mq.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>

enum {
	CONFIRM_MS = 30000,
	IDLE_MS = 30000,    /* then the connection is closed */
	STOP_MS = 1000,     /* for the answer to what was sent before the stop */
	REMIND_MS = 300000, /* a reason that lasts is told again */
	REASONS = 8,
	STACK_SIZE = 16 << 20, /* the library decodes tables inside tables by recursion */
};

/* A reason that the log knows. */
struct reason {
	char text[256];
	uint64_t known_until_ms;
};

struct publisher {
	const struct config_consumer *config;
	pthread_t thread;
	int stop_fd;            /* readable once it is to end */
	struct channel channel; /* the thread's end */
	struct mq_conn *mq;     /* NULL: not connected */
	size_t which_uri;
	struct mq_place place;
	struct backoff backoff;
	uint64_t next_connect_ms;
	uint64_t idle_since_ms;
	uint64_t tag;    /* of the last message on this channel, as confirms count them */
	bool is_blocked; /* the broker has an alarm and reads nothing from us */
	char why[300];   /* it cannot be published now */
	struct reason reasons[REASONS];
};

/* What became of one. */
enum fate {
	FATE_SENT,
	FATE_FAILED,    /* in `error`; to be tried again later */
	FATE_NOT_TRIED, /* in time; `why` says why */
	FATE_UNKNOWN,   /* nothing is to be said of it */
};

uint32_t publisher_delay_ms(uint32_t attempts, uint32_t random)
{
	struct backoff b = {.first_ms = 1000,
		.cap_ms = 300000,
		.jitter_percent = 20,
		.step = attempts > 0 ? attempts - 1 : 0};
	return backoff_next_ms(&b, random);
}

/* ---- what the log is told -------------------------------------------------------- */

/* A thousand messages that fail for one reason are one line. */
static bool is_news(struct publisher *p, const char *text)
{
	uint64_t now = clock_ms();
	struct reason *oldest = &p->reasons[0];
	for (size_t i = 0; i < REASONS; i++) {
		struct reason *r = &p->reasons[i];
		if (strncmp(r->text, text, sizeof r->text - 1) == 0 && now < r->known_until_ms)
			return false;
		if (r->known_until_ms < oldest->known_until_ms)
			oldest = r;
	}
	(void)snprintf(oldest->text, sizeof oldest->text, "%s", text);
	oldest->known_until_ms = now + REMIND_MS;
	return true;
}

static void log_failed(struct publisher *p, const struct outgoing *m, const char *error)
{
	char exchange[256];
	AUTO(buf) struct buf reason = {0};
	(void)snprintf(exchange, sizeof exchange, "%.*s", (int)m->exchange.size,
		(const char *)m->exchange.data);
	buf_addf(&reason, "%s %s", exchange, error);
	if (is_news(p, buf_str(&reason)))
		log_event(L_WARNING, "publish_failed", LB("exchange", m->exchange),
			LB("routing_key", m->routing_key), LI("outgoing", m->id),
			LS("error", error), LS("next", "kept, trying again"));
}

static void log_down(struct publisher *p, const char *error)
{
	(void)snprintf(p->why, sizeof p->why, "%s", error);
	if (is_news(p, error))
		log_event(L_WARNING, "publisher_down", LS("broker", p->place.address),
			LS("vhost", p->place.vhost), LS("user", p->place.user), LS("error", error),
			LS("next", "kept, trying again"));
}

/* ---- the connection -------------------------------------------------------------- */

static bool is_stopped(const struct publisher *p)
{
	struct pollfd stop = {.fd = p->stop_fd, .events = POLLIN};
	return poll(&stop, 1, 0) == 1;
}

static void disconnect(struct publisher *p, bool is_polite)
{
	mq_conn_close(p->mq, is_polite && !p->is_blocked);
	p->mq = NULL;
	p->is_blocked = false;
}

static void lost(struct publisher *p, const char *error)
{
	disconnect(p, false);
	p->next_connect_ms = clock_ms() + backoff_next_ms(&p->backoff, random_u32());
	log_down(p, error);
}

static void connect(struct publisher *p)
{
	struct err err;
	AUTO(free) char *name = xasprintf("inboxd %s publisher", p->config->name);
	enum rc rc = mq_conn_open(
		p->config->broker, p->which_uri, name, p->stop_fd, &p->mq, &p->place, &err);
	if (rc == RC_RETRY)
		return; /* stopped */
	if (rc == RC_OK)
		rc = mq_confirm_select(p->mq, &err);
	if (rc != RC_OK) {
		p->which_uri++;
		lost(p, err.text);
		return;
	}
	p->tag = 0;
	p->is_blocked = false;
	backoff_reset(&p->backoff);
	log_event(L_INFO, "publisher_connected", LS("broker", p->place.address),
		LS("vhost", p->place.vhost), LS("user", p->place.user));
}

static void reopen(struct publisher *p)
{
	struct err err;
	p->tag = 0;
	if (mq_channel_reopen(p->mq, &err) != RC_OK || mq_confirm_select(p->mq, &err) != RC_OK)
		lost(p, err.text);
}

/* Until the broker or the loop has something to say, a heartbeat is due, or time is up. */
static void wait_until(struct publisher *p, uint64_t until_ms)
{
	uint64_t now = clock_ms();
	uint64_t longest = p->mq != NULL ? mq_heartbeat_s(p->mq) * UINT64_C(500) : IDLE_MS;
	uint64_t left = until_ms > now ? until_ms - now : 0;
	struct pollfd fds[] = {{.fd = p->stop_fd, .events = POLLIN},
		{.fd = p->mq != NULL ? mq_conn_fd(p->mq) : -1, .events = POLLIN}};
	(void)poll(fds, 2, (int)(left < longest ? left : longest));
}

static void set_blocked(struct publisher *p, const struct mq_event *ev)
{
	p->is_blocked = ev->kind == MQ_BLOCKED;
	if (p->is_blocked) {
		(void)snprintf(p->why, sizeof p->why, "the broker takes no messages: %s", ev->text);
		log_event(L_WARNING, "broker_blocked", LS("reason", ev->text),
			LS("next", "publishing when it is over"));
	} else {
		log_event(L_INFO, "broker_unblocked", LS("broker", p->place.address));
	}
}

/* ---- one message ----------------------------------------------------------------- */

/* A message under way. */
struct flight {
	const struct outgoing *message;
	uint64_t confirm_until_ms;
	bool is_returned;
	char error[300];
};

static bool covers(const struct publisher *p, const struct mq_event *ev)
{
	return ev->tag == p->tag || (ev->multiple && ev->tag >= p->tag);
}

/* True when its fate is known.  f NULL: nothing is under way. */
static bool on_event(
	struct publisher *p, const struct mq_event *ev, struct flight *f, enum fate *ret)
{
	char text[300];
	*ret = FATE_FAILED;
	switch (ev->kind) {
	case MQ_RETURNED:
		if (f == NULL)
			return false;
		f->is_returned = true;
		(void)snprintf(f->error, sizeof f->error, "returned: %u %s", ev->code, ev->text);
		return false;
	case MQ_CONFIRMED:
		if (f == NULL || !covers(p, ev))
			return false;
		*ret = f->is_returned ? FATE_FAILED : FATE_SENT;
		return true;
	case MQ_NACKED:
		if (f == NULL || !covers(p, ev))
			return false;
		(void)snprintf(
			f->error, sizeof f->error, "refused: a queue is full, or has failed");
		return true;
	case MQ_CHANNEL_CLOSED:
		if (f != NULL)
			(void)snprintf(f->error, sizeof f->error, "%u %s", ev->code, ev->text);
		reopen(p);
		return true;
	case MQ_CLOSED:
		(void)snprintf(
			text, sizeof text, "closed by the broker: %u %s", ev->code, ev->text);
		if (f != NULL)
			(void)snprintf(f->error, sizeof f->error, "%s", text);
		lost(p, text);
		return true;
	case MQ_BLOCKED:
	case MQ_UNBLOCKED:
		set_blocked(p, ev);
		return false;
	case MQ_NONE:
	case MQ_DELIVERY:
	case MQ_BODY:
	case MQ_CONSUMING:
	case MQ_CANCELLED:
	case MQ_CANCEL_OK:
	case MQ_UNDECODABLE:
		break;
	}
	return false;
}

/* Reads what is there; true when f's fate is known, or the connection is gone. */
static bool pump(struct publisher *p, struct flight *f, enum fate *ret)
{
	struct mq_event ev;
	struct err err;
	do {
		if (mq_read(p->mq, &ev, &err) != RC_OK) {
			*ret = FATE_FAILED;
			if (f != NULL)
				(void)snprintf(f->error, sizeof f->error, "%.*s",
					(int)sizeof f->error - 1, err.text);
			lost(p, err.text);
			return true;
		}
		if (on_event(p, &ev, f, ret))
			return true;
	} while (ev.kind != MQ_NONE && p->mq != NULL);
	return p->mq == NULL;
}

/* While the broker is blocked the message lies before its door, and is taken in when that opens: it
 * is waited for, and not sent again. */
static enum fate await(struct publisher *p, struct flight *f)
{
	enum fate fate;
	uint64_t stop_until_ms = UINT64_MAX;
	while (!pump(p, f, &fate)) {
		uint64_t now = clock_ms();
		if (stop_until_ms == UINT64_MAX && is_stopped(p))
			stop_until_ms = now + (p->is_blocked ? 0 : STOP_MS);
		if (now >= stop_until_ms)
			return FATE_UNKNOWN;
		if (!p->is_blocked && now >= f->confirm_until_ms) {
			(void)snprintf(f->error, sizeof f->error, "no confirm within %d s",
				CONFIRM_MS / 1000);
			lost(p, f->error);
			return FATE_FAILED;
		}
		if (p->is_blocked)
			f->confirm_until_ms = now + CONFIRM_MS;
		uint64_t until =
			f->confirm_until_ms < stop_until_ms ? f->confirm_until_ms : stop_until_ms;
		if (stop_until_ms != UINT64_MAX)
			(void)poll(&(struct pollfd){.fd = mq_conn_fd(p->mq), .events = POLLIN}, 1,
				(int)(until - now));
		else
			wait_until(p, until);
	}
	return fate;
}

/* Connected, and the broker takes messages; false when that is not so in time. */
static bool get_ready(struct publisher *p, uint64_t until_ms)
{
	enum fate ignored;
	while (!is_stopped(p) && clock_ms() < until_ms) {
		if (p->mq == NULL && clock_ms() >= p->next_connect_ms)
			connect(p);
		if (p->mq != NULL)
			(void)pump(p, NULL, &ignored);
		if (p->mq != NULL && !p->is_blocked)
			return true;
		bool may_connect = p->mq == NULL && p->next_connect_ms < until_ms;
		wait_until(p, may_connect ? p->next_connect_ms : until_ms);
	}
	return false;
}

static enum fate publish(struct publisher *p, struct flight *f, uint64_t until_ms)
{
	struct err err;
	const struct outgoing *m = f->message;
	if (!get_ready(p, until_ms))
		return FATE_NOT_TRIED;
	FAULT("before-publish");
	p->tag++;
	f->confirm_until_ms = clock_ms() + CONFIRM_MS;
	enum rc rc = mq_publish(p->mq, m->exchange, m->routing_key, m->properties, m->body, &err);
	FAULT("publish-sent");
	if (rc == RC_OK)
		return await(p, f);
	(void)snprintf(f->error, sizeof f->error, "%.*s", (int)sizeof f->error - 1, err.text);
	if (rc == RC_REJECT)
		p->tag--; /* nothing was sent */
	else
		lost(p, err.text);
	return FATE_FAILED;
}

static void answer(struct publisher *p, const struct flight *f, enum fate fate)
{
	const char *error = fate == FATE_FAILED ? f->error : fate == FATE_SENT ? "" : p->why;
	const struct outcome o = {
		.id = f->message->id,
		.token = f->message->token,
		.is_sent = fate == FATE_SENT,
		.delay_ms = fate == FATE_FAILED
			? publisher_delay_ms(f->message->attempts, random_u32())
			: 0,
		.error = bytes_str(error),
	};
	if (fate == FATE_UNKNOWN)
		return;
	FAULT("publish-answered");
	if (fate == FATE_FAILED)
		log_failed(p, f->message, f->error);
	size_t at = channel_begin(&p->channel, FROM_PUBLISHED);
	outcome_encode(&p->channel.out, &o);
	channel_end(&p->channel, at);
	(void)!channel_flush(&p->channel);
}

static void obey(struct publisher *p, const struct frame *frame)
{
	struct reader r = reader_of(frame->payload);
	struct outgoing m;
	uint64_t until_ms = reader_u64(&r);
	struct flight f = {.message = &m};
	if (outgoing_decode(&r, &m)) /* our own loop encoded it */
		answer(p, &f, publish(p, &f, until_ms));
	p->idle_since_ms = clock_ms();
}

/* ---- the thread ------------------------------------------------------------------ */

/* Nothing to publish: keeps the connection alive for a while. */
static void idle(struct publisher *p)
{
	enum fate ignored;
	uint64_t until_ms = p->mq != NULL ? p->idle_since_ms + IDLE_MS : UINT64_MAX;
	uint64_t now = clock_ms();
	if (p->mq != NULL && now >= until_ms && !p->is_blocked)
		disconnect(p, true);
	if (p->mq != NULL)
		(void)pump(p, NULL, &ignored);
	struct pollfd fds[] = {{.fd = p->channel.fd, .events = POLLIN},
		{.fd = p->mq != NULL ? mq_conn_fd(p->mq) : -1, .events = POLLIN}};
	int wait_ms = -1;
	if (p->mq != NULL) {
		uint64_t left = until_ms > now ? until_ms - now : 1000;
		uint64_t longest = mq_heartbeat_s(p->mq) * UINT64_C(500);
		wait_ms = (int)(left < longest ? left : longest);
	}
	(void)poll(fds, 2, wait_ms);
}

static void *run(void *arg)
{
	struct publisher *p = arg;
	struct frame f;
	int got;
	while ((got = channel_next(&p->channel, &f)) >= 0) {
		struct pollfd in = {.fd = p->channel.fd, .events = POLLIN};
		if (got == 1)
			obey(p, &f);
		else if (poll(&in, 1, 0) == 0)
			idle(p);
		else if (channel_fill(&p->channel) != RC_OK)
			break; /* stopped */
	}
	disconnect(p, true);
	channel_done(&p->channel);
	return NULL;
}

/* Every signal stays with the loop. */
static int start_thread(struct publisher *p)
{
	sigset_t all, old;
	pthread_attr_t attr;
	(void)sigfillset(&all);
	int rc = pthread_attr_init(&attr);
	if (rc != 0)
		return rc;
	rc = pthread_attr_setstacksize(&attr, STACK_SIZE);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	if (rc == 0)
		rc = pthread_create(&p->thread, &attr, run, p);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	(void)pthread_attr_destroy(&attr);
	return rc;
}

static void publisher_free(struct publisher *p)
{
	(void)close(p->stop_fd);
	channel_done(&p->channel);
	free(p);
}

enum rc publisher_start(
	const struct config_consumer *config, struct publisher **ret, int *ret_fd, struct err *err)
{
	int fds[2];
	AUTO(fd) int stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (stop_fd < 0)
		return err_set(err, RC_UNAVAILABLE, "eventfd: %s", strerror(errno));
	if (channel_pair(fds, err) != RC_OK)
		return err->rc;
	(void)fcntl(fds[0], F_SETFL, fcntl(fds[0], F_GETFL) | O_NONBLOCK);
	struct publisher *p = xcalloc(1, sizeof *p);
	p->config = config;
	p->stop_fd = TAKE_FD(stop_fd);
	p->backoff = (struct backoff){.first_ms = 500, .cap_ms = 10000, .jitter_percent = 20};
	channel_init(&p->channel, fds[1]);
	int rc = start_thread(p);
	if (rc != 0) {
		(void)close(fds[0]);
		publisher_free(p);
		return err_set(err, RC_UNAVAILABLE, "no thread to publish: %s", strerror(rc));
	}
	*ret = p;
	*ret_fd = fds[0];
	return RC_OK;
}

void publisher_stop(struct publisher *p)
{
	const uint64_t one = 1;
	(void)!write(p->stop_fd, &one, sizeof one);
}

void publisher_join(struct publisher *p)
{
	(void)pthread_join(p->thread, NULL);
	publisher_free(p);
}

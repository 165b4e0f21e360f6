/* SPDX-License-Identifier: MIT */
/* The connection to the broker: kept open, read, written to; consuming exactly while it makes sense. */
#include "consumer/state.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"

#include <inttypes.h>
#include <stdio.h>

enum {
	ACK_HOLD_MS = 100,       /* singles wait so long for the prefix to reach them */
	PAUSE_AFTER_MS = 2000,
	LASTS_AFTER_MS = 10000,  /* what held so long is no part of the last failure's story */
	EVENTS_PER_STEP = 2000,  /* then workers and timers get their turn */
	TOPOLOGY_RETRY_MS = 30000,
	READ_EVERY_MS = 2,       /* while nobody would begin with what comes */
	REST_MS = 100,           /* between an ack and a drain's cancel */
	KEEP_FIRST_MS = 500, /* for what the broker gives out again, before a retry is run */
};

static void set_reading(struct consumer *c, bool on)
{
	if (c->mq_io == NULL || c->is_reading == on)
		return;
	c->is_reading = on;
	(void)sd_event_source_set_io_events(c->mq_io, on ? EPOLLIN : 0u);
}

static int on_readable(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
	struct consumer *c = arg;
	(void)source;
	(void)fd;
	c->has_input = true;
	if (!c->is_reading && (revents & (EPOLLERR | EPOLLHUP)) != 0) {
		const struct err gone = {.rc = RC_UNAVAILABLE, .text = "connection lost while nothing was read"};
		broker_lost(c, &gone);
	}
	consumer_step(c);
	return 0;
}

/* ---- losing and closing --------------------------------------------------------------------------- */

static void drop(struct consumer *c, bool is_polite)
{
	c->mq_io = sd_event_source_unref(c->mq_io);
	mq_conn_close(c->mq, is_polite);
	c->mq = NULL;
	c->link = LINK_DOWN;
	c->is_reading = false;
	intake_abort(c);
	crew_void(c);
	window_reset(&c->window);
}

static void log_down(struct consumer *c, const char *event, const char *text, uint64_t wait_ms)
{
	char next[64];
	(void)snprintf(next, sizeof next, "connecting again in %" PRIu64 " ms", wait_ms);
	log_event(L_WARNING, event, LS("broker", c->place.address), LS("vhost", c->place.vhost),
		LS("user", c->place.user), LS("error", text), LS("next", next));
}

/* Each failure in a row waits longer, until something was settled in between or a while went well: a
 * broker that takes us and throws us out again at once is not asked ever faster. */
static uint64_t next_wait_ms(struct consumer *c)
{
	if (c->up_since_ms != 0 && clock_ms() - c->up_since_ms >= LASTS_AFTER_MS)
		backoff_reset(&c->backoff);
	c->up_since_ms = 0;
	return backoff_next_ms(&c->backoff, random_u32());
}

static void connect_later(struct consumer *c, const char *event, const char *text)
{
	uint64_t wait = next_wait_ms(c);
	c->next_connect_ms = clock_ms() + wait;
	log_down(c, event, text, wait);
}

void broker_lost(struct consumer *c, const struct err *err)
{
	if (c->mq == NULL)
		return;
	drop(c, false);
	connect_later(c, "broker_lost", err->text);
}

/* After a failed write.  RC_RETRY: the channel is closed, which mq_read is about to tell. */
static void write_failed(struct consumer *c, const struct err *err)
{
	if (err->rc == RC_RETRY)
		consumer_wake(c);
	else
		broker_lost(c, err);
}

/* ---- connecting --------------------------------------------------------------------------------------- */

static bool declare(struct consumer *c)
{
	struct err err;
	if (!c->config->topology.declare)
		return true;
	enum rc rc = mq_declare(c->mq, c->config->queue, &c->config->topology, &err);
	if (rc == RC_OK)
		return true;
	drop(c, true);
	if (rc == RC_FATAL) {
		c->next_connect_ms = clock_ms() + TOPOLOGY_RETRY_MS;
		log_event(L_ERROR, "topology_differs", LS("queue", c->config->queue),
			LS("error", err.text), LS("next", "trying again in 30 s"));
	} else {
		connect_later(c, "topology_failed", err.text);
	}
	return false;
}

static void connect(struct consumer *c)
{
	struct err err;
	AUTO(free) char *name = xasprintf("inboxd %s", c->config->name);
	enum rc rc = mq_conn_open(c->config->broker, c->which_uri++, name, c->control_fd, &c->mq,
		&c->place, &err);
	c->is_placed = true;
	crew_greet(c);
	if (rc == RC_RETRY) {
		c->which_uri--; /* the supervisor has something to say; the same one again after it */
		consumer_wake(c);
		return;
	}
	if (rc != RC_OK) {
		connect_later(c, "broker_unavailable", err.text);
		return;
	}
	c->which_uri--; /* stay with the one that answered */
	window_reset(&c->window);
	c->link = LINK_IDLE;
	if (!declare(c))
		return;
	stats_add(c->slot, STATS_connects, 1);
	FAULT("broker-connected");
	(void)sd_event_add_io(
		c->event, &c->mq_io, mq_conn_fd(c->mq), EPOLLIN, on_readable, c);
	c->is_reading = c->has_input = true; /* the library may have put something by */
	log_event(L_INFO, "connected", LS("broker", c->place.address), LS("vhost", c->place.vhost),
		LS("user", c->place.user), LU("heartbeat_s", mq_heartbeat_s(c->mq)));
	if (c->config->broker->tls.verify != TLS_VERIFY_FULL)
		log_event(L_WARNING, "tls_not_verified", LS("broker", c->place.address),
			LS("verify", c->config->broker->tls.verify == TLS_VERIFY_PEER ? "peer" : "none"),
			LS("next", "set tls.verify to full"));
}

/* ---- events ------------------------------------------------------------------------------------------------ */

static void on_channel_closed(struct consumer *c, const struct mq_event *ev)
{
	struct err err;
	char text[300];
	(void)snprintf(text, sizeof text, "%u %s", ev->code, ev->text);
	intake_abort(c);
	crew_void(c);
	window_reset(&c->window);
	c->link = LINK_IDLE;
	uint64_t wait = next_wait_ms(c);
	c->consume_at_ms = clock_ms() + wait;
	log_event(L_WARNING, "channel_closed", LS("queue", c->config->queue), LS("error", text),
		LU("retry_in_ms", wait));
	c->has_input = true; /* the library puts by what comes before the answer */
	if (mq_channel_reopen(c->mq, &err) != RC_OK)
		broker_lost(c, &err);
}

static void on_cancelled(struct consumer *c)
{
	uint64_t wait = next_wait_ms(c);
	c->link = LINK_IDLE;
	c->consume_at_ms = clock_ms() + wait;
	log_event(L_WARNING, "cancelled_by_broker", LS("queue", c->config->queue),
		LS("error", "queue deleted or its node gone"), LU("retry_in_ms", wait));
}

static void on_consuming(struct consumer *c)
{
	c->up_since_ms = clock_ms();
	log_event(c->is_trying ? L_DEBUG : L_INFO, "consuming", LS("queue", c->config->queue),
		LU("prefetch", c->consuming_with));
}

static void on_undecodable(struct consumer *c, const struct mq_event *ev)
{
	log_event(L_ERROR, "undecodable", LB("exchange", ev->exchange),
		LB("routing_key", ev->routing_key),
		LS("next", "parking what is known, rejecting, connecting again"));
	intake_undecodable(c, ev);
	c->link = LINK_POISONED;
	set_reading(c, false);
}

/* False when the connection is gone or poisoned. */
static bool on_event(struct consumer *c, const struct mq_event *ev)
{
	struct err err;
	switch (ev->kind) {
	case MQ_DELIVERY:
		intake_begin(c, ev);
		break;
	case MQ_BODY:
		intake_piece(c, ev);
		break;
	case MQ_CONSUMING:
		on_consuming(c);
		break;
	case MQ_CANCELLED:
		on_cancelled(c);
		break;
	case MQ_CANCEL_OK:
		if (c->link == LINK_CANCELLING) /* not of a consumer that the broker had cancelled itself */
			c->link = LINK_IDLE;
		break;
	case MQ_CHANNEL_CLOSED:
		on_channel_closed(c, ev);
		break;
	case MQ_CLOSED:
		(void)err_set(&err, RC_UNAVAILABLE, "closed by the broker: %u %s", ev->code, ev->text);
		broker_lost(c, &err);
		break;
	case MQ_BLOCKED:
		log_event(L_WARNING, "broker_blocked", LS("reason", ev->text));
		break;
	case MQ_UNBLOCKED:
		log_event(L_INFO, "broker_unblocked", LS("broker", c->place.address));
		break;
	case MQ_UNDECODABLE:
		on_undecodable(c, ev);
		break;
	case MQ_NONE:
	case MQ_RETURNED:
	case MQ_CONFIRMED:
	case MQ_NACKED:
		break;
	}
	return c->mq != NULL && c->link != LINK_POISONED;
}

/* The broker sends a few messages for each ack.  While nobody waits for them they are left to gather, or
 * each handful would cost as many system calls as a heap. */
static bool may_read_later(const struct consumer *c, uint64_t now_ms)
{
	return c->link == LINK_CONSUMING && c->arriving == NULL && c->window.n_ready != 0 &&
	       now_ms < c->read_at_ms + READ_EVERY_MS && !crew_is_hungry(c);
}

static void read_events(struct consumer *c, uint64_t now_ms)
{
	struct mq_event ev;
	struct err err;
	if (!c->has_input && c->is_reading && now_ms < c->read_at_ms + mq_heartbeat_s(c->mq) * 250)
		return;
	if (may_read_later(c, now_ms)) {
		set_reading(c, false);
		return;
	}
	for (int n = 0; n < EVENTS_PER_STEP; n++) {
		if (!intake_may_read(c)) {
			set_reading(c, false);
			return;
		}
		if (mq_read(c->mq, &ev, &err) != RC_OK) {
			broker_lost(c, &err);
			return;
		}
		if (ev.kind == MQ_NONE) {
			set_reading(c, true);
			c->has_input = false;
			c->read_at_ms = now_ms;
			return;
		}
		if (!on_event(c, &ev))
			return;
	}
	c->has_input = true;
	consumer_wake(c); /* there may be more in the library's buffer, where no poll sees it */
}

/* While nothing is read the library sends no heartbeats. */
static void keep_alive(struct consumer *c, uint64_t now_ms)
{
	struct err err;
	if (c->is_reading || now_ms < c->heartbeat_at_ms)
		return;
	c->heartbeat_at_ms = now_ms + mq_heartbeat_s(c->mq) * 500;
	if (mq_heartbeat(c->mq, &err) != RC_OK)
		broker_lost(c, &err);
}

/* ---- consuming ----------------------------------------------------------------------------------------------- */

static const char *down_reason(const struct consumer *c)
{
	for (uint32_t i = 0; i < c->config->workers; i++)
		if (c->crew[i].down_text[0] != '\0')
			return c->crew[i].down_text;
	return "no worker is running";
}

static void stop_consuming(struct consumer *c, const char *why)
{
	struct err err;
	if (mq_cancel(c->mq, &err) != RC_OK) {
		write_failed(c, &err);
		return;
	}
	c->link = LINK_CANCELLING;
	if (c->is_draining || c->is_trying)
		return;
	c->is_in_doubt = !crew_has_ready(c);
	stats_add(c->slot, STATS_pauses, 1);
	log_event(L_WARNING, "paused", LS("queue", c->config->queue), LS("reason", why),
		LU("held", c->window.n_held), LS("next", "consuming again when that is over"));
}

static void start_consuming(struct consumer *c, uint16_t prefetch)
{
	struct err err;
	c->consuming_with = prefetch;
	c->is_trying = c->breaker.is_open;
	if (mq_consume(c->mq, c->config->queue, prefetch, &err) != RC_OK) {
		write_failed(c, &err);
		return;
	}
	FAULT("consume-sent");
	c->link = LINK_CONSUMING;
	if (!c->is_trying)
		c->retry_not_before_ms = clock_ms() + KEEP_FIRST_MS;
}

/* A worker that restarts is no reason to stop. */
static bool lacks_crew(struct consumer *c, uint64_t now_ms)
{
	if (crew_has_ready(c))
		c->no_crew_since_ms = 0;
	else if (c->no_crew_since_ms == 0)
		c->no_crew_since_ms = now_ms;
	return c->no_crew_since_ms != 0 &&
		(c->link != LINK_CONSUMING || now_ms - c->no_crew_since_ms >= PAUSE_AFTER_MS);
}

static size_t n_to_be_done(const struct consumer *c)
{
	return c->window.n_held - c->window.n_put_off;
}

/* How many messages to ask for; 0, and *ret_why: none.  While the breaker is open one at a time,
 * and none while one is there: what is not asked for is not given out again and again. */
static uint16_t wanted(struct consumer *c, uint64_t now_ms, const char **ret_why)
{
	bool lacks = lacks_crew(c, now_ms);
	*ret_why = "";
	if (c->is_draining)
		return 0;
	/* A worker that has just connected may still be unable to write: what is held is its trial. */
	if (c->is_in_doubt && c->link != LINK_CONSUMING && n_to_be_done(c) != 0)
		return 0;
	if (lacks) {
		*ret_why = down_reason(c);
		return 0;
	}
	if (c->is_full) {
		*ret_why = "as many messages are parked as may be (parked.max)";
		return 0;
	}
	if (c->breaker.is_open) {
		*ret_why = "message after message was parked (breaker)";
		return n_to_be_done(c) == 0 && breaker_lets_through(&c->breaker, now_ms) ? 1 : 0;
	}
	return (uint16_t)c->config->prefetch;
}

/* What the last ack makes a quorum queue give out must have been given out before the cancel: otherwise it
 * comes behind the rest when all of it is given back.  So a drain rests in between, and acks after the cancel
 * make it give out nothing. */
static bool must_rest(const struct consumer *c, uint64_t now_ms)
{
	return c->is_draining && now_ms < c->acked_at_ms + REST_MS &&
		now_ms + REST_MS < c->drain_until_ms;
}

bool broker_is_resting(const struct consumer *c)
{
	return c->is_draining && c->mq != NULL && c->link == LINK_CONSUMING;
}

/* The link follows: consuming while there is somebody to work, and something to be done. */
static void follow(struct consumer *c, uint64_t now_ms)
{
	const char *why;
	uint16_t prefetch = wanted(c, now_ms, &why);
	bool is_as_wanted = prefetch == c->consuming_with && c->is_trying == c->breaker.is_open;

	if (c->link == LINK_CONSUMING && !is_as_wanted && !must_rest(c, now_ms))
		stop_consuming(c, why);
	/* A new consumer gets a prefetch of its own, whatever the last one still holds. */
	else if (c->link == LINK_IDLE && prefetch != 0 && now_ms >= c->consume_at_ms &&
		c->window.n_held <= c->config->prefetch / 2)
		start_consuming(c, prefetch);
}

void broker_step(struct consumer *c, uint64_t now_ms)
{
	if (c->mq == NULL) {
		if (!c->is_draining && now_ms >= c->next_connect_ms)
			connect(c);
		if (c->mq == NULL)
			return;
	}
	if (c->link != LINK_POISONED)
		read_events(c, now_ms);
	if (c->mq != NULL)
		keep_alive(c, now_ms);
	if (c->mq != NULL && c->link != LINK_POISONED)
		follow(c, now_ms);
}

uint64_t broker_next_ms(const struct consumer *c, uint64_t now_ms)
{
	if (c->mq == NULL)
		return c->is_draining ? UINT64_MAX : c->next_connect_ms;
	uint64_t next = now_ms + mq_heartbeat_s(c->mq) * 500;
	if (may_read_later(c, now_ms))
		next = c->read_at_ms + READ_EVERY_MS;
	if (broker_is_resting(c) && c->acked_at_ms + REST_MS < next)
		next = c->acked_at_ms + REST_MS;
	if (c->link == LINK_IDLE && c->consume_at_ms > now_ms && c->consume_at_ms < next)
		next = c->consume_at_ms;
	if (c->link == LINK_CONSUMING && c->no_crew_since_ms != 0 &&
		c->no_crew_since_ms + PAUSE_AFTER_MS < next)
		next = c->no_crew_since_ms + PAUSE_AFTER_MS;
	uint64_t trial = breaker_next_ms(&c->breaker);
	return trial > now_ms && trial < next ? trial : next;
}

/* A stream would be read from its end, what came before never seen, and nothing of it could be given back. */
void broker_refuse_stream(struct consumer *c)
{
	drop(c, true);
	c->next_connect_ms = clock_ms() + TOPOLOGY_RETRY_MS;
	log_event(L_ERROR, "stream_refused", LS("queue", c->config->queue),
		LS("error", "the queue is a stream (its messages have the header x-stream-offset), and "
			    "streams are not supported"),
		LS("next", "trying again in 30 s"));
}

/* ---- settling --------------------------------------------------------------------------------------------------- */

uint64_t broker_acknowledge(struct consumer *c, uint64_t now_ms)
{
	struct err err;
	uint64_t tag, wait_ms;
	/* Nor do they hold up deliveries: the broker sends no more than the prefetch. */
	bool is_starving = c->window.n_ready == 0 && c->window.n_loose > c->config->prefetch / 2;
	uint64_t hold_ms = c->is_draining || is_starving ? 0 : ACK_HOLD_MS;
	bool multiple;
	if (c->mq == NULL || broker_is_resting(c))
		return UINT64_MAX;
	uint64_t before = c->window.n_loose;
	while (window_next_ack(&c->window, now_ms, hold_ms, &tag, &multiple, &wait_ms)) {
		FAULT("before-ack");
		if (mq_ack(c->mq, tag, multiple, &err) != RC_OK) {
			write_failed(c, &err);
			return UINT64_MAX;
		}
		FAULT("ack-sent");
		c->acked_at_ms = now_ms;
	}
	if (c->window.n_loose != before)
		backoff_reset(&c->backoff);
	stats_add(c->slot, STATS_acked, before - c->window.n_loose);
	return wait_ms != UINT64_MAX ? now_ms + wait_ms : UINT64_MAX;
}

void broker_give_back(struct consumer *c, struct entry *e)
{
	struct err err;
	uint64_t tag = e->tag;
	window_drop(&c->window, e);
	if (c->mq != NULL && mq_nack(c->mq, tag, false, &err) != RC_OK)
		write_failed(c, &err);
}

/* What is given back at once comes back at once, and each time a queue may count it and drop it in the end:
 * while it is held nothing counts. */
void broker_give_back_later(struct consumer *c, struct entry *e)
{
	uint64_t wait_ms = backoff_next_ms(&c->streams, random_u32());
	window_put_off(&c->window, e, clock_ms() + wait_ms);
	log_event(L_WARNING, "large_body_not_parked", LS("queue", c->config->queue),
		LU("held_for_ms", wait_ms), LS("next", "given back then, to come again"));
}

void broker_reject(struct consumer *c, struct entry *e)
{
	struct err err;
	uint64_t tag = e->tag;
	window_drop(&c->window, e);
	if (c->mq == NULL)
		return;
	if (mq_reject(c->mq, tag, &err) != RC_OK) {
		broker_lost(c, &err);
		return;
	}
	/* Acknowledge what else is done before the connection goes, and say goodbye: closed over unread
	 * bytes, the socket would take the reject back. */
	(void)broker_acknowledge(c, clock_ms());
	if (c->mq == NULL)
		return;
	drop(c, true);
	connect_later(c, "broker_left", "nothing can be read beyond a message that cannot be decoded");
}

/* What is still held goes back with the channel: a quorum queue (RabbitMQ 3.10) puts what is nacked behind
 * messages that it has not given out yet, and in its place what a closed channel had. */
void broker_close(struct consumer *c)
{
	if (c->mq == NULL)
		return;
	(void)broker_acknowledge(c, clock_ms());
	size_t held = c->window.n_held;
	FAULT("before-give-back");
	if (c->mq != NULL)
		drop(c, true);
	FAULT("given-back");
	if (held != 0)
		log_event(L_INFO, "given_back", LU("deliveries", held),
			LS("queue", c->config->queue));
}

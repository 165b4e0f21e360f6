/* SPDX-License-Identifier: MIT */
/* What is to be published: asked for at a worker, given to the publisher, and its outcome back to a
 * worker.  One helping at a time, so that its leases do not run out in a queue of ours. */
#include "consumer/state.h"

#include "base/clock.h"
#include "base/fault.h"

#include <inttypes.h>
#include <poll.h>
#include <sys/socket.h>

enum {
	POLL_MS = 5000, /* others make rows too */
	AGAIN_MS = 200, /* due, but in somebody else's hands */
	STOP_MS = 3000, /* the publisher may take so long to end */
	START_AGAIN_MS = 5000,
	LEAVE_MS = 500,
};

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void ask_within(struct consumer *c, uint64_t ms)
{
	c->outgoing.ask_at_ms = earlier(c->outgoing.ask_at_ms, clock_ms() + ms);
}

/* ---- the publisher --------------------------------------------------------------- */

static void watch(struct consumer *c)
{
	bool is_pending = channel_pending(&c->outgoing.channel) != 0;
	(void)sd_event_source_set_io_events(c->outgoing.io, EPOLLIN | (is_pending ? EPOLLOUT : 0u));
	/* Its end of file lets it know that nothing more comes. */
	if (c->outgoing.is_stopping && !is_pending)
		(void)shutdown(c->outgoing.channel.fd, SHUT_WR);
}

static void flush(struct consumer *c)
{
	if (channel_flush(&c->outgoing.channel) == RC_OK)
		watch(c);
}

static void on_outcome(struct consumer *c, struct bytes payload)
{
	struct reader r = reader_of(payload);
	struct outcome o;
	if (!outcome_decode(&r, &o)) /* cannot be: our own thread encoded it */
		return;
	FAULT("outcome-read");
	if (o.is_sent)
		stats_add(c->slot, STATS_outgoing_sent, 1);
	else if (o.delay_ms != 0)
		stats_add(c->slot, STATS_outgoing_postponed, 1);
	if (!o.is_sent)
		ask_within(c, o.delay_ms);
	buf_add(&c->outgoing.outcomes, payload.data, payload.size);
	c->outgoing.n_held--;
}

static void forget_publisher(struct consumer *c)
{
	c->outgoing.io = sd_event_source_unref(c->outgoing.io);
	channel_done(&c->outgoing.channel);
	publisher_join(c->outgoing.publisher);
	c->outgoing.publisher = NULL;
	c->outgoing.n_held = 0;
}

/* False at its end. */
static bool listen_to(struct consumer *c)
{
	struct frame f;
	enum rc rc = channel_fill(&c->outgoing.channel);
	while (channel_next(&c->outgoing.channel, &f) == 1)
		if (f.type == FROM_PUBLISHED)
			on_outcome(c, f.payload);
	return rc == RC_OK;
}

static int on_io(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
	struct consumer *c = arg;
	(void)source;
	(void)fd;
	if ((revents & EPOLLOUT) != 0)
		flush(c);
	if ((revents & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !listen_to(c))
		forget_publisher(c);
	consumer_step(c);
	return 0;
}

static bool has_publisher(struct consumer *c)
{
	int fd;
	struct err err;
	if (c->outgoing.publisher != NULL)
		return true;
	if (publisher_start(c->config, &c->outgoing.publisher, &fd, &err) != RC_OK) {
		log_event(L_ERROR, "publisher_failed", LS("error", err.text),
			LU("retry_in_ms", START_AGAIN_MS));
		return false;
	}
	channel_init(&c->outgoing.channel, fd);
	(void)sd_event_add_io(c->event, &c->outgoing.io, fd, EPOLLIN, on_io, c);
	return true;
}

/* ---- workers' answers ------------------------------------------------------------ */

/* Nobody here publishes it: given back. */
static void refuse(struct consumer *c, const struct outgoing *m)
{
	const struct outcome o = {.id = m->id, .token = m->token, .error = bytes_str("")};
	outcome_encode(&c->outgoing.outcomes, &o);
}

static void pass_on(struct consumer *c, struct bytes message, uint64_t until_ms)
{
	struct channel *to = &c->outgoing.channel;
	size_t at = channel_begin(to, TO_PUBLISH);
	buf_add_u64(&to->out, until_ms);
	buf_add(&to->out, message.data, message.size);
	channel_end(to, at);
	c->outgoing.n_held++;
	FAULT("outgoing-passed-on");
}

void outgoing_taken(struct crew *crew, struct bytes payload)
{
	struct consumer *c = crew->owner;
	struct reader r = reader_of(payload);
	struct outgoing m;
	uint64_t next_ms = reader_u64(&r);
	uint64_t until_ms = crew->since_us / 1000 + reader_u32(&r);
	bool has_some = reader_left(&r) != 0;
	bool can_publish = has_some && !c->is_draining && has_publisher(c);
	for (const uint8_t *at = r.p; outgoing_decode(&r, &m); at = r.p)
		if (can_publish)
			pass_on(c, bytes_of(at, (size_t)(r.p - at)), until_ms);
		else
			refuse(c, &m);
	if (c->outgoing.n_held != 0)
		flush(c);
	c->outgoing.ask_at_ms = UINT64_MAX;
	if (has_some)
		ask_within(c, can_publish ? 0 : START_AGAIN_MS); /* there may be more */
	else
		ask_within(c, earlier(next_ms > AGAIN_MS ? next_ms : AGAIN_MS, POLL_MS));
}

void outgoing_recorded(struct crew *crew, struct bytes payload)
{
	struct consumer *c = crew->owner;
	struct reader r = reader_of(payload);
	FAULT("outcomes-settled");
	if (reader_u8(&r) != 0)
		buf_consume(&c->outgoing.outcomes, c->outgoing.n_given);
	c->outgoing.n_given = 0;
}

void outgoing_lost(struct consumer *c)
{
	c->outgoing.n_given = 0;
}

void outgoing_due(struct consumer *c)
{
	ask_within(c, 0);
}

/* ---- work for a worker ----------------------------------------------------------- */

static bool is_asking(const struct consumer *c)
{
	for (uint32_t i = 0; i < c->config->workers; i++)
		if (c->crew[i].is_alive && c->crew[i].task == TASK_OUTGOING)
			return true;
	return false;
}

/* Nothing is taken while something is in hand, or before the last word on it is written down. */
static bool may_ask(const struct consumer *c)
{
	return c->config->dead_letter.exchange != NULL && !c->is_draining &&
		c->outgoing.n_held == 0 && c->outgoing.outcomes.size == 0 && !is_asking(c);
}

static bool give_outcomes(struct crew *crew)
{
	struct consumer *c = crew->owner;
	if (c->outgoing.outcomes.size == 0 || c->outgoing.n_given != 0)
		return false;
	size_t at = channel_begin(&crew->channel, TO_SENT);
	buf_add(&crew->channel.out, c->outgoing.outcomes.data, c->outgoing.outcomes.size);
	channel_end(&crew->channel, at);
	c->outgoing.n_given = c->outgoing.outcomes.size;
	FAULT("outcomes-formed");
	crew_begin_task(crew, TASK_SENT);
	return true;
}

bool outgoing_give(struct crew *crew, uint64_t now_ms)
{
	struct consumer *c = crew->owner;
	if (give_outcomes(crew))
		return true;
	if (c->outgoing.ask_at_ms > now_ms || !may_ask(c))
		return false;
	channel_end(&crew->channel, channel_begin(&crew->channel, TO_OUTGOING));
	crew_begin_task(crew, TASK_OUTGOING);
	FAULT("outgoing-asked-for");
	return true;
}

uint64_t outgoing_next_ms(const struct consumer *c)
{
	return may_ask(c) ? c->outgoing.ask_at_ms : UINT64_MAX;
}

/* ---- the end --------------------------------------------------------------------- */

void outgoing_stop(struct consumer *c)
{
	if (c->outgoing.publisher == NULL)
		return;
	c->outgoing.is_stopping = true;
	c->outgoing.stop_until_ms = clock_ms() + STOP_MS;
	publisher_stop(c->outgoing.publisher);
	watch(c);
}

bool outgoing_is_done(const struct consumer *c, uint64_t now_ms)
{
	if (c->outgoing.publisher != NULL && now_ms < c->outgoing.stop_until_ms)
		return false;
	return c->outgoing.outcomes.size == 0 || !crew_has_ready(c);
}

bool outgoing_done(struct consumer *c)
{
	struct pollfd end = {.fd = c->outgoing.channel.fd, .events = POLLIN};
	uint64_t until_ms = clock_ms() + LEAVE_MS;
	if (c->outgoing.publisher != NULL) {
		publisher_stop(c->outgoing.publisher);
		(void)shutdown(c->outgoing.channel.fd, SHUT_WR);
	}
	while (c->outgoing.publisher != NULL) {
		uint64_t now = clock_ms();
		if (now >= until_ms)
			return false;
		if (poll(&end, 1, (int)(until_ms - now)) == 1 && !listen_to(c))
			forget_publisher(c);
	}
	buf_done(&c->outgoing.outcomes);
	return true;
}

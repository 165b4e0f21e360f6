/* SPDX-License-Identifier: MIT */
/* The workers of a consumer: who is there, who is free, what each has in hand. */
#include "consumer/state.h"

#include "base/clock.h"
#include "base/fault.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>

enum {
	RETRY_POLL_MS = 5000, /* other daemons park too */
	CRASH_AGAIN_MS = 500, /* the dead session still holds the key */
	TELL_AGAIN_MS = 60000,
	GATHER_MS = 3,          /* a free worker waits so long for half a batch, */
	GATHER_BELOW_US = 500,  /* where a message takes less, in large batches, than another commit */
	DEATHS_BELIEVED = 5, /* of workers that had not run the message in hand */
};

void crew_init(struct consumer *c)
{
	c->crew = xcalloc(c->config->workers, sizeof *c->crew);
	c->batch_limit = 1;
	c->breaker = (struct breaker){
		.limit = c->config->breaker_failures, .pause_ms = c->config->breaker_pause_ms};
	for (uint32_t i = 0; i < c->config->workers; i++) {
		c->crew[i].owner = c;
		c->crew[i].index = i;
		c->crew[i].channel.fd = -1;
		c->crew[i].hand = xcalloc(c->config->batch_max, sizeof(struct entry *));
	}
}

static void disconnect(struct crew *crew)
{
	crew->io = sd_event_source_unref(crew->io);
	channel_done(&crew->channel);
	crew->is_alive = crew->is_ready = crew->is_greeted = false;
}

void crew_done(struct consumer *c)
{
	for (uint32_t i = 0; i < c->config->workers; i++) {
		disconnect(&c->crew[i]);
		free(c->crew[i].hand);
	}
	free(c->crew);
	while (c->crashes != NULL) {
		struct crash *next = c->crashes->next;
		free(c->crashes);
		c->crashes = next;
	}
}

bool crew_has_ready(const struct consumer *c)
{
	for (uint32_t i = 0; i < c->config->workers; i++)
		if (c->crew[i].is_ready)
			return true;
	return false;
}

bool crew_is_working(const struct consumer *c)
{
	for (uint32_t i = 0; i < c->config->workers; i++)
		if (c->crew[i].is_alive && c->crew[i].task != TASK_NONE)
			return true;
	return false;
}

void crew_hand(struct crew *crew, struct entry *e)
{
	assert(crew->n_hand < crew->owner->config->batch_max);
	crew->hand[crew->n_hand++] = e;
	crew->hand_generation = crew->owner->window.generation;
}

void crew_void(struct consumer *c)
{
	breaker_neither(&c->breaker); /* what was tried is delivered again */
	for (uint32_t i = 0; i < c->config->workers; i++)
		c->crew[i].n_hand = 0;
}

static void watch(struct crew *crew)
{
	uint32_t events = EPOLLIN | (channel_pending(&crew->channel) != 0 ? EPOLLOUT : 0u);
	if (crew->io != NULL)
		(void)sd_event_source_set_io_events(crew->io, events);
}

void crew_flush(struct crew *crew)
{
	/* A dead peer shows as end of file, and the supervisor tells. */
	if (crew->is_alive && channel_flush(&crew->channel) == RC_OK)
		watch(crew);
}

/* ---- answers ------------------------------------------------------------------------------------ */

static void note_due(struct consumer *c, uint64_t in_ms)
{
	uint64_t now = clock_ms();
	if (in_ms == UINT64_MAX)
		return;
	if (now + in_ms < c->retry_at_ms)
		c->retry_at_ms = now + in_ms;
}

/* ---- breaker and parked.max -------------------------------------------------------------------- */

bool crew_may_take(const struct consumer *c, uint64_t now_ms)
{
	return !c->is_full && breaker_lets_through(&c->breaker, now_ms);
}

static void note_parked(struct consumer *c, uint64_t now_ms)
{
	if (!breaker_parked(&c->breaker, now_ms))
		return;
	stats_add(c->slot, STATS_breaker_opened, 1);
	log_event(L_ERROR, "breaker_open", LS("queue", c->config->queue),
		LU("parked_in_a_row", c->breaker.in_row), LU("try_every_ms", c->breaker.pause_ms),
		LS("next", "paused; one message is tried at a time until one is done"));
}

static void note_done(struct consumer *c)
{
	if (breaker_done(&c->breaker))
		log_event(L_INFO, "breaker_closed", LS("queue", c->config->queue));
}

static void note_fate(struct consumer *c, enum verdict v)
{
	switch (v) {
	case VERDICT_PARKED:
		note_parked(c, clock_ms());
		c->parked++;
		break;
	case VERDICT_DONE:
		note_done(c);
		break;
	case VERDICT_KEPT:
		c->parked++;
		c->has_kept = true;
		breaker_neither(&c->breaker);
		break;
	case VERDICT_DUPLICATE:
	case VERDICT_BUSY:
	case VERDICT_AGAIN:
	case VERDICT_ALONE:
	case VERDICT_LOST:
	case VERDICT_CRASHED:
	case VERDICT_COUNT:
		breaker_neither(&c->breaker);
		break;
	}
}

/* Full at the limit; room again a little below it, or every place that becomes free would start and
 * stop the consumer. */
static void judge_room(struct consumer *c)
{
	uint32_t max = c->config->parked_max;
	if (!c->is_full && c->parked >= max) {
		c->is_full = true;
		log_event(L_ERROR, "parked_full", LS("queue", c->config->queue),
			LU("parked", c->parked), LU("max", max),
			LS("next", "paused until some are done, discarded or deleted"));
	} else if (c->is_full && c->parked < max - max / 10) {
		c->is_full = false;
		log_event(L_INFO, "parked_room", LS("queue", c->config->queue),
			LU("parked", c->parked), LU("max", max));
	}
}

static void note_outlook(struct consumer *c, struct reader *r)
{
	uint32_t parked = reader_u32(r);
	if (parked == UINT32_MAX)
		return; /* the worker could not ask */
	c->parked = parked;
	c->has_kept = reader_u8(r) != 0;
	judge_room(c);
}

/* ---- verdicts ---------------------------------------------------------------------------------- */

static void settle(struct consumer *c, struct entry *e, enum verdict v)
{
	bool is_settled = v == VERDICT_DONE || v == VERDICT_PARKED || v == VERDICT_DUPLICATE ||
		v == VERDICT_KEPT;
	if (e->is_streamed && is_settled)
		backoff_reset(&c->streams);
	if (e->is_streamed && !is_settled)
		broker_give_back_later(c, e); /* its body is not ours to offer again */
	else if (e->is_parking && e->park_reason == PARK_UNDECODABLE && is_settled)
		broker_reject(c, e);
	else
		window_verdict(&c->window, e, v, clock_ms());
}

static void adapt_batches(struct crew *crew, bool failed)
{
	struct consumer *c = crew->owner;
	if (crew->task != TASK_BATCH)
		return;
	uint64_t took_us = clock_us() - crew->since_us;
	c->pace.us = c->pace.us * 7 / 8 + took_us;
	c->pace.messages = c->pace.messages * 7 / 8 + crew->n_hand;
	c->batch_limit = window_batch_limit(c->batch_limit, c->config->batch_max, took_us,
		(uint64_t)c->config->batch_time_ms * 1000, failed);
}

/* The next reason for being down is news, whoever gives it. */
static void works_again(struct consumer *c)
{
	c->is_in_doubt = false;
	for (uint32_t i = 0; i < c->config->workers; i++)
		if (c->crew[i].is_ready)
			c->crew[i].down_text[0] = '\0';
}

static void on_verdicts(struct crew *crew, struct bytes payload)
{
	struct consumer *c = crew->owner;
	struct reader r = reader_of(payload);
	uint32_t n = reader_u32(&r);
	bool failed = false;

	FAULT("verdicts-read");
	note_due(c, reader_u64(&r));
	for (uint32_t i = 0; i < n; i++) {
		struct delivery_ref ref = ref_decode(&r);
		uint8_t said = reader_u8(&r);
		enum verdict v = said < VERDICT_COUNT ? (enum verdict)said : VERDICT_AGAIN;
		struct entry *e = window_find(&c->window, &ref);
		if (r.bad)
			break;
		failed = failed || v == VERDICT_ALONE;
		if (e == NULL || e->state != ENTRY_IN_HAND)
			stats_add(c->slot, STATS_dropped_verdicts, 1);
		else
			settle(c, e, v);
		note_fate(c, v);
	}
	judge_room(c);
	adapt_batches(crew, failed);
	if (crew->is_ready)
		works_again(c);
	crew->n_hand = 0;
	crew->task = TASK_NONE;
}

static void remember_crash(
	struct consumer *c, int64_t parked, int64_t token, bool timed_out, const char *detail)
{
	struct crash *crash = xcalloc(1, sizeof *crash);
	crash->parked = parked;
	crash->token = token;
	crash->timed_out = timed_out;
	(void)snprintf(crash->detail, sizeof crash->detail, "%s", detail);
	crash->next = c->crashes;
	c->crashes = crash;
}

static void forget_crash(struct consumer *c, int64_t parked, int64_t token)
{
	for (struct crash **p = &c->crashes; *p != NULL; p = &(*p)->next) {
		struct crash *crash = *p;
		if (crash->parked == parked && crash->token == token) {
			*p = crash->next;
			free(crash);
			return;
		}
	}
}

static void on_retry(struct crew *crew, struct bytes payload)
{
	struct consumer *c = crew->owner;
	struct reader r = reader_of(payload);
	enum retry_fate fate = (enum retry_fate)reader_u8(&r);
	bool ran = fate != RETRY_NONE;
	uint64_t next = reader_u64(&r);
	note_outlook(c, &r);

	FAULT("retry-answer-read");
	if (crew->task == TASK_CRASHED && ran)
		forget_crash(c, crew->parked, crew->token);
	if (crew->task == TASK_RETRY)
		c->retry_at_ms = clock_ms() + RETRY_POLL_MS;
	if (crew->task == TASK_RETRY && fate == RETRY_CRASHED)
		remember_crash(c, crew->parked, crew->token, false,
			"the session was lost while the handler ran");
	if (crew->task == TASK_CRASHED && ran)
		next = 0;
	/* Due, but none could be taken: their keys are busy elsewhere. */
	if (!ran && next < CRASH_AGAIN_MS)
		next = CRASH_AGAIN_MS;
	c->has_kept = c->has_kept && ran;
	note_due(c, next);
	crew->parked = crew->token = 0;
	crew->task = TASK_NONE;
}

static void on_ready(struct crew *crew, struct bytes payload)
{
	struct reader r = reader_of(payload);
	crew->is_single = reader_u8(&r) != 0;
	note_due(crew->owner, reader_u64(&r));
	note_outlook(crew->owner, &r);
	crew->is_ready = true;
	log_event(L_DEBUG, "worker_ready", LU("worker", crew->index + 1));
}

/* Said once for each reason, by one for all: each worker tries every few seconds.  What comes and goes is
 * said once a minute. */
static bool is_news(struct consumer *c, const char *text)
{
	enum { PLACES = sizeof c->told / sizeof c->told[0] };
	uint64_t now_ms = clock_ms();
	for (uint32_t i = 0; i < c->config->workers; i++)
		if (strcmp(text, c->crew[i].down_text) == 0)
			return false;
	for (unsigned i = 0; i < PLACES; i++)
		if (now_ms - c->told[i].at_ms < TELL_AGAIN_MS && strcmp(text, c->told[i].text) == 0)
			return false;
	unsigned place = c->n_told++ % PLACES;
	(void)snprintf(c->told[place].text, sizeof c->told[place].text, "%s", text);
	c->told[place].at_ms = now_ms;
	return true;
}

static void on_down(struct crew *crew, struct bytes payload)
{
	struct reader r = reader_of(payload);
	enum rc rc = (enum rc)reader_u8(&r);
	char text[sizeof crew->down_text];
	(void)snprintf(text, sizeof text, "%.*s", (int)reader_left(&r), (const char *)r.p);
	if (is_news(crew->owner, text))
		log_event(rc == RC_FATAL ? L_ERROR : L_WARNING, "worker_down",
			LU("worker", crew->index + 1), LS("error", text),
			LS("next", "trying again"));
	(void)snprintf(crew->down_text, sizeof crew->down_text, "%s", text);
	crew->is_ready = false;
}

static void obey(struct crew *crew, const struct frame *f)
{
	struct reader r = reader_of(f->payload);
	switch ((enum frame_type)f->type) {
	case FROM_READY:
		on_ready(crew, f->payload);
		break;
	case FROM_DOWN:
		on_down(crew, f->payload);
		break;
	case FROM_VERDICTS:
		on_verdicts(crew, f->payload);
		break;
	case FROM_TAKEN:
		crew->parked = (int64_t)reader_u64(&r);
		crew->token = (int64_t)reader_u64(&r);
		FAULT("retry-noted");
		break;
	case FROM_RETRY:
		on_retry(crew, f->payload);
		break;
	case FROM_OUTGOING:
		outgoing_taken(crew, f->payload);
		crew->task = TASK_NONE;
		break;
	case FROM_SENT:
		outgoing_recorded(crew, f->payload);
		crew->task = TASK_NONE;
		break;
	case FROM_DUE:
		outgoing_due(crew->owner);
		break;
	case FROM_LEAVING:
		crew->is_ready = false;
		break;
	case TO_HELLO:
	case TO_BATCH:
	case TO_PARK:
	case TO_PARK_BEGIN:
	case TO_PARK_PIECE:
	case TO_PARK_END:
	case TO_PARK_ABORT:
	case TO_RETRY:
	case TO_CRASHED:
	case TO_OUTGOING:
	case TO_SENT:
	case TO_PUBLISH:
	case FROM_PUBLISHED:
		break;
	}
}

/* Everything it has said so far; false at the end of file. */
static bool listen_to(struct crew *crew)
{
	struct frame f;
	int got;
	enum rc rc = channel_fill(&crew->channel);
	while ((got = channel_next(&crew->channel, &f)) == 1)
		obey(crew, &f);
	if (got < 0) {
		/* Something wrote to a descriptor that was not its own.  The worker sees its end and goes. */
		log_event(L_ERROR, "worker_talks_nonsense", LU("worker", crew->index + 1),
			LS("next", "ending it"));
		(void)shutdown(crew->channel.fd, SHUT_RDWR);
	}
	return rc == RC_OK && got == 0;
}

static int on_io(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
	struct crew *crew = arg;
	(void)source;
	(void)fd;
	if ((revents & EPOLLOUT) != 0)
		crew_flush(crew);
	if ((revents & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !listen_to(crew)) {
		/* Dead or dying: the supervisor reaps it and tells us how it ended. */
		crew->is_ready = false;
		(void)sd_event_source_set_enabled(crew->io, SD_EVENT_OFF);
	}
	consumer_step(crew->owner);
	return 0;
}

/* ---- coming and going --------------------------------------------------------------------------------- */

void crew_greet(struct consumer *c)
{
	if (!c->is_placed)
		return;
	for (uint32_t i = 0; i < c->config->workers; i++) {
		struct crew *crew = &c->crew[i];
		if (!crew->is_alive || crew->is_greeted)
			continue;
		size_t at = channel_begin(&crew->channel, TO_HELLO);
		buf_add_str(&crew->channel.out, c->place.vhost);
		channel_end(&crew->channel, at);
		crew->is_greeted = true;
		crew_flush(crew);
	}
}

void crew_arrived(struct consumer *c, uint32_t index, uint32_t life, int take_fd)
{
	if (index >= c->config->workers) {
		(void)close(take_fd);
		return;
	}
	struct crew *crew = &c->crew[index];
	disconnect(crew);
	(void)fcntl(take_fd, F_SETFL, fcntl(take_fd, F_GETFL) | O_NONBLOCK);
	channel_init(&crew->channel, take_fd);
	crew->life = life;
	crew->is_alive = true;
	FAULT("worker-met");
	crew->task = TASK_NONE;
	crew->n_hand = 0;
	crew->parked = crew->token = 0;
	(void)sd_event_add_io(c->event, &crew->io, take_fd, EPOLLIN, on_io, crew);
	crew_greet(c);
}

static void drop_hand(struct crew *crew, bool timed_out, bool ran, const char *detail)
{
	struct consumer *c = crew->owner;
	bool was_alone = crew->task == TASK_BATCH && crew->n_hand == 1;
	for (size_t i = 0; i < crew->n_hand; i++) {
		struct entry *e = crew->hand[i];
		if (e->state != ENTRY_IN_HAND)
			continue;
		if (e->is_streamed)
			broker_give_back_later(c, e);
		else if (was_alone && !ran && e->losses < DEATHS_BELIEVED)
			window_verdict(&c->window, e, VERDICT_LOST, clock_ms());
		else
			window_crashed(&c->window, e, was_alone,
				timed_out ? PARK_TIMED_OUT : PARK_CRASHED, detail);
	}
	crew->n_hand = 0;
}

void crew_gone(struct consumer *c, uint32_t index, uint32_t life, bool timed_out, bool ran,
	const char *detail)
{
	if (index >= c->config->workers || c->crew[index].life != life)
		return;
	struct crew *crew = &c->crew[index];
	FAULT("worker-gone");
	/* What it said before it died counts.  Its end of file may never come: a child that its handler left
	 * behind can hold the other end. */
	struct frame f;
	bool said_more = crew->is_alive;
	while (said_more) {
		said_more = channel_fill(&crew->channel) == RC_OK;
		int frames = 0;
		while (channel_next(&crew->channel, &f) == 1) {
			obey(crew, &f);
			frames++;
		}
		said_more = said_more && frames != 0;
	}
	if (c->streaming == crew)
		c->streaming = NULL;
	breaker_neither(&c->breaker);
	adapt_batches(crew, true);
	drop_hand(crew, timed_out, ran, detail);
	if (crew->task == TASK_RETRY && crew->parked != 0)
		remember_crash(c, crew->parked, crew->token, timed_out, detail);
	if (crew->task == TASK_SENT)
		outgoing_lost(c);
	crew->task = TASK_NONE;
	disconnect(crew);
}

/* ---- giving work --------------------------------------------------------------------------------------- */

void crew_begin_task(struct crew *crew, enum crew_task task)
{
	crew->task = task;
	crew->since_us = clock_us();
}

static struct item item_of(const struct consumer *c, const struct entry *e)
{
	struct item item = {
		.ref = {.generation = c->window.generation, .tag = e->tag},
		.flags = e->flags,
		.crashes = e->crashes,
		.losses = e->losses,
		.key = bytes_of(e->key, e->key_size),
	};
	struct reader r = reader_of(buf_bytes(&e->message));
	bool ok = message_decode(&r, &item.message);
	assert(ok);
	return item;
}

static void give_parking(struct crew *crew, struct entry *e)
{
	struct consumer *c = crew->owner;
	struct buf *out = &crew->channel.out;
	const struct item item = item_of(c, e);
	size_t at = channel_begin(&crew->channel, TO_PARK);
	buf_add_byte(out, (uint8_t)e->park_reason);
	short_encode(out, bytes_str(e->park_detail != NULL ? e->park_detail : ""));
	item_encode(out, &item);
	channel_end(&crew->channel, at);
	window_take(&c->window, e);
	crew_hand(crew, e);
	crew_begin_task(crew, TASK_PARK);
	FAULT("parking-formed");
}

static uint32_t batch_limit(const struct crew *crew, const struct entry *first)
{
	if (crew->is_single || (first->flags & ITEM_ALONE) != 0 || crew->owner->breaker.is_open)
		return 1;
	return crew->owner->batch_limit;
}

static bool is_kept_first(const struct entry *e)
{
	return (e->flags & ITEM_KEEP_FIRST) != 0;
}

static void give_batch(struct crew *crew, struct entry *e)
{
	struct consumer *c = crew->owner;
	struct buf *out = &crew->channel.out;
	uint32_t limit = batch_limit(crew, e);
	uint64_t bytes = 0;
	size_t at = channel_begin(&crew->channel, TO_BATCH);
	size_t count_at = out->size;
	buf_add_u32(out, 0);
	do {
		const struct item item = item_of(c, e);
		bytes += e->message.size;
		item_encode(out, &item);
		window_take(&c->window, e);
		crew_hand(crew, e);
		e = window_peek(&c->window);
	} while (e != NULL && crew->n_hand < limit && !e->is_parking &&
		(e->flags & ITEM_ALONE) == 0 && is_kept_first(e) == is_kept_first(crew->hand[0]) &&
		bytes + e->message.size <= c->config->batch_bytes);
	for (int i = 0; i < 4; i++)
		out->data[count_at + (size_t)i] = (uint8_t)(crew->n_hand >> (24 - 8 * i));
	channel_end(&crew->channel, at);
	crew_begin_task(crew, TASK_BATCH);
	FAULT("batch-formed");
}

static bool give_crash(struct crew *crew, uint64_t now_ms)
{
	struct consumer *c = crew->owner;
	struct buf *out = &crew->channel.out;
	for (struct crash *crash = c->crashes; crash != NULL; crash = crash->next) {
		if (crash->not_before_ms > now_ms)
			continue;
		size_t at = channel_begin(&crew->channel, TO_CRASHED);
		buf_add_u64(out, (uint64_t)crash->parked);
		buf_add_u64(out, (uint64_t)crash->token);
		buf_add_byte(out, crash->timed_out);
		short_encode(out, bytes_str(crash->detail));
		channel_end(&crew->channel, at);
		crash->not_before_ms = now_ms + CRASH_AGAIN_MS;
		crew->parked = crash->parked;
		crew->token = crash->token;
		crew_begin_task(crew, TASK_CRASHED);
		FAULT("crash-formed");
		return true;
	}
	return false;
}

static bool is_retrying(const struct consumer *c)
{
	for (uint32_t i = 0; i < c->config->workers; i++)
		if (c->crew[i].is_alive && c->crew[i].task == TASK_RETRY)
			return true;
	return false;
}

static uint64_t retry_at(const struct consumer *c)
{
	return c->retry_at_ms > c->retry_not_before_ms ? c->retry_at_ms : c->retry_not_before_ms;
}

static bool give_retry(struct crew *crew, uint64_t now_ms)
{
	struct consumer *c = crew->owner;
	const struct entry *e = crew_may_take(c, now_ms) ? window_peek(&c->window) : NULL;
	/* One at a time: a heap of due retries must not stop the queue.  A run may take the daemon
	 * with it, so what the broker has given out often enough is kept first. */
	if (retry_at(c) > now_ms || is_retrying(c) || (e != NULL && is_kept_first(e)))
		return false;
	channel_end(&crew->channel, channel_begin(&crew->channel, TO_RETRY));
	crew_begin_task(crew, TASK_RETRY);
	FAULT("retry-formed");
	return true;
}

/* One whose run killed its worker has been taken already: that is told in any case. */
static bool is_taken(const struct entry *e)
{
	return e->is_parking && e->crashes != 0;
}

/* One worker alone keeps the queue's order: what was given out before goes first. */
static bool must_wait(const struct consumer *c, const struct entry *e)
{
	return c->config->workers == 1 &&
	       ((c->has_kept && !is_kept_first(e)) || window_is_held_up(&c->window, e));
}

static struct entry *next_entry(const struct consumer *c, uint64_t now_ms)
{
	struct entry *e = window_peek(&c->window);
	if (e == NULL || (crew_may_take(c, now_ms) && !must_wait(c, e)))
		return e;
	while (e != NULL && !is_taken(e))
		e = e->next;
	return e;
}

/* Half a dozen messages are not worth a commit of their own while a neighbour is about to finish: he would
 * find none.  So a free worker waits for half a batch, or for the neighbour, or for a moment - but only where
 * messages are quick and come in heaps.  Where one is alone in a batch its commit makes it slow, and
 * nothing ever waits. */
static bool is_worth_waiting(const struct consumer *c)
{
	const struct entry *e = window_peek(&c->window);
	if (e == NULL || e->is_parking || e->flags != 0 || c->breaker.is_open ||
		c->window.n_ready >= c->batch_limit / 2 ||
		c->pace.us >= c->pace.messages * GATHER_BELOW_US)
		return false;
	for (uint32_t i = 0; i < c->config->workers; i++)
		if (c->crew[i].is_ready && c->crew[i].task == TASK_BATCH)
			return true;
	return false;
}

static bool must_gather(struct consumer *c, uint64_t now_ms)
{
	bool must = false;
	if (is_worth_waiting(c)) {
		c->gathering_ms = c->gathering_ms != 0 ? c->gathering_ms : now_ms;
		must = now_ms < c->gathering_ms + GATHER_MS;
	}
	if (!must)
		c->gathering_ms = 0;
	return must;
}

bool crew_is_hungry(const struct consumer *c)
{
	for (uint32_t i = 0; i < c->config->workers; i++)
		if (c->crew[i].is_ready && c->crew[i].task == TASK_NONE)
			return !is_worth_waiting(c);
	return false;
}

static bool give_delivery(struct crew *crew, uint64_t now_ms)
{
	struct consumer *c = crew->owner;
	struct entry *e = next_entry(c, now_ms);
	if (e == NULL || must_gather(c, now_ms))
		return false;
	breaker_try(&c->breaker);
	if (e->is_parking)
		give_parking(crew, e);
	else
		give_batch(crew, e);
	return true;
}

static bool give_in_turn(struct crew *crew, uint64_t now_ms)
{
	static bool (*const give[TURN_COUNT])(struct crew *crew, uint64_t now_ms) = {
		[TURN_DELIVERY] = give_delivery,
		[TURN_RETRY] = give_retry,
		[TURN_OUTGOING] = outgoing_give,
	};
	struct consumer *c = crew->owner;
	for (unsigned i = 1; i <= TURN_COUNT; i++) {
		enum turn turn = (enum turn)((c->last_turn + i) % TURN_COUNT);
		if (give[turn](crew, now_ms)) {
			c->last_turn = turn;
			return true;
		}
	}
	return false;
}

static bool give_body(struct crew *crew, uint64_t now_ms)
{
	struct consumer *c = crew->owner;
	if (!crew_may_take(c, now_ms) || !intake_offer(c, crew))
		return false;
	breaker_try(&c->breaker);
	return true;
}

/* When somebody is free, everything that is due has been given: what remains is in the future. */
static uint64_t next_due(const struct consumer *c, uint64_t now_ms)
{
	uint64_t next = retry_at(c);
	if (c->gathering_ms != 0 && c->gathering_ms + GATHER_MS < next)
		next = c->gathering_ms + GATHER_MS;
	next = outgoing_next_ms(c) < next ? outgoing_next_ms(c) : next;
	for (const struct crash *crash = c->crashes; crash != NULL; crash = crash->next)
		next = crash->not_before_ms < next ? crash->not_before_ms : next;
	return next > now_ms ? next : UINT64_MAX;
}

uint64_t crew_dispatch(struct consumer *c, uint64_t now_ms)
{
	uint64_t next = window_wake(&c->window, now_ms);
	struct entry *over;
	while ((over = window_put_off_over(&c->window)) != NULL)
		broker_give_back(c, over);
	bool someone_is_free = false;
	for (uint32_t i = 0; i < c->config->workers; i++) {
		struct crew *crew = &c->crew[i];
		if (!crew->is_ready || crew->task != TASK_NONE)
			continue;
		bool given = give_body(crew, now_ms);
		if (!given && c->is_draining)
			given = outgoing_give(crew, now_ms); /* the last word on what was sent */
		else if (!given)
			given = give_crash(crew, now_ms) || give_in_turn(crew, now_ms);
		if (given) {
			crew_flush(crew);
			FAULT("work-sent");
		} else {
			someone_is_free = true;
		}
	}
	uint64_t due = someone_is_free ? next_due(c, now_ms) : UINT64_MAX;
	return due < next ? due : next;
}

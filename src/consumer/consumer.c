/* SPDX-License-Identifier: MIT */
/* The loop of a consumer: whatever happens, all steps are run, and each looks at the state and does what
 * it asks for.  Nothing is remembered in callbacks. */
#include "consumer/state.h"

#include "base/clock.h"
#include "base/fd.h"
#include "ipc/control.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

enum { STREAM_CAP_MS = 600000, STEP_AT_LEAST_MS = 1000, TIMER_ACCURACY_US = 1000 };

static enum consumer_state state_of(const struct consumer *c)
{
	if (c->is_draining)
		return CONSUMER_DRAINING;
	if (c->mq == NULL)
		return CONSUMER_CONNECTING;
	if (c->breaker.is_open)
		return CONSUMER_BREAKER_OPEN;
	return c->link == LINK_CONSUMING ? CONSUMER_CONSUMING : CONSUMER_PAUSED;
}

void consumer_wake(struct consumer *c)
{
	(void)sd_event_source_set_enabled(c->later, SD_EVENT_ONESHOT);
}

/* Drained: nothing runs any more, or its time is over. */
static bool is_done(const struct consumer *c, uint64_t now_ms)
{
	if (!c->is_draining)
		return false;
	if (now_ms >= c->drain_until_ms)
		return true;
	if (crew_is_working(c) || !outgoing_is_done(c, now_ms) || broker_is_resting(c))
		return false;
	/* What is not read any more does not come to its end either. */
	return !intake_may_read(c) || (c->arriving == NULL && c->link != LINK_CANCELLING);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void set_timer(struct consumer *c, uint64_t next_ms)
{
	int is_on = SD_EVENT_OFF;
	(void)sd_event_source_get_enabled(c->timer, &is_on);
	if (is_on != SD_EVENT_OFF && next_ms == c->timer_ms)
		return;
	c->timer_ms = next_ms;
	(void)sd_event_source_set_time(c->timer, next_ms * 1000);
	(void)sd_event_source_set_enabled(c->timer, SD_EVENT_ONESHOT);
}

void consumer_step(struct consumer *c)
{
	uint64_t now = clock_ms();
	/* The same for many steps: the timer is set anew only when it changes. */
	uint64_t next = (now / STEP_AT_LEAST_MS + 2) * STEP_AT_LEAST_MS;

	broker_step(c, now);
	next = earlier(next, crew_dispatch(c, now));
	next = earlier(next, broker_acknowledge(c, now));
	next = earlier(next, broker_next_ms(c, now));
	stats_set(c->slot, STATS_in_flight, c->window.n_held);
	stats_set(c->slot, STATS_state, state_of(c));
	stats_add(c->slot, STATS_progress, 1);
	if (is_done(c, now)) {
		(void)sd_event_exit(c->event, EX_OK);
		return;
	}
	set_timer(c, next);
}

static int on_later(sd_event_source *source, void *arg)
{
	(void)source;
	consumer_step(arg);
	return 0;
}

static int on_timer(sd_event_source *source, uint64_t usec, void *arg)
{
	(void)source;
	(void)usec;
	consumer_step(arg);
	return 0;
}

/* ---- the supervisor's word ------------------------------------------------------------------------ */

static void on_gone(struct consumer *c, const struct control *m)
{
	char detail[128];
	const char *memory = m->over_memory ? "; it held more than worker.memory_max" : "";
	if (m->timed_out)
		(void)snprintf(detail, sizeof detail, "handler over its time limit of %u ms, killed",
			c->config->handler_timeout_ms);
	else if (m->was_killed)
		(void)snprintf(detail, sizeof detail, "worker killed by signal %d (SIG%s)%s",
			m->status, sigabbrev_np(m->status) != NULL ? sigabbrev_np(m->status) : "?",
			memory);
	else
		(void)snprintf(detail, sizeof detail, "worker exited with code %d%s", m->status, memory);
	crew_gone(c, m->index, m->life, m->timed_out, m->handler_ran, detail);
}

static void on_drain(struct consumer *c, const struct control *m)
{
	if (c->is_draining)
		return;
	c->is_draining = true;
	c->drain_until_ms = clock_ms() + m->timeout_ms;
	log_event(L_INFO, "draining", LU("held", c->window.n_held),
		LU("in_hand", c->window.n_in_hand), LU("timeout_ms", m->timeout_ms));
	outgoing_stop(c);
}

static int on_control(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
	struct consumer *c = arg;
	struct control m;
	int with_fd, got;
	(void)source;
	(void)revents;
	while ((got = control_receive(fd, &m, &with_fd)) == 1) {
		switch ((enum control_kind)m.kind) {
		case CONTROL_WORKER:
			crew_arrived(c, m.index, m.life, with_fd);
			break;
		case CONTROL_GONE:
			on_gone(c, &m);
			break;
		case CONTROL_DRAIN:
			on_drain(c, &m);
			break;
		}
	}
	if (got < 0) {
		/* The supervisor is gone: nobody would know what we do. */
		(void)sd_event_exit(c->event, EX_UNAVAILABLE);
		return 0;
	}
	consumer_step(c);
	return 0;
}

/* A SIGTERM of somebody's own: drain, exit, and be started again. */
static int on_sigterm(sd_event_source *source, const struct signalfd_siginfo *si, void *arg)
{
	struct consumer *c = arg;
	const struct control drain = {.kind = CONTROL_DRAIN, .timeout_ms = 10000};
	(void)source;
	(void)si;
	on_drain(c, &drain);
	consumer_step(c);
	return 0;
}

static bool set_up(struct consumer *c)
{
	return sd_event_new(&c->event) >= 0 &&
	       sd_event_add_io(c->event, NULL, c->control_fd, EPOLLIN, on_control, c) >= 0 &&
	       sd_event_add_signal(c->event, NULL, SIGTERM, on_sigterm, c) >= 0 &&
	       sd_event_add_signal(c->event, NULL, SIGINT, on_sigterm, c) >= 0 &&
	       sd_event_add_defer(c->event, &c->later, on_later, c) >= 0 &&
	       /* What woke itself comes after all that has happened, or would starve it. */
	       sd_event_source_set_priority(c->later, SD_EVENT_PRIORITY_IDLE) >= 0 &&
	       sd_event_add_time(c->event, &c->timer, CLOCK_MONOTONIC, 0, TIMER_ACCURACY_US,
		       on_timer, c) >= 0;
}

int consumer_main(const struct config_consumer *config, int control_fd, struct stats_slot *slot)
{
	struct consumer c = {
		.config = config,
		.slot = slot,
		.control_fd = control_fd,
		.backoff = {.first_ms = 500, .cap_ms = 7000, .jitter_percent = 20},
		.streams = {.first_ms = 5000, .cap_ms = STREAM_CAP_MS, .jitter_percent = 20},
	};
	uint32_t timeout_ms = config->broker->consumer_timeout_ms; /* what is held for longer is taken away */
	if (timeout_ms != 0 && timeout_ms / 3 < STREAM_CAP_MS)
		c.streams.cap_ms = timeout_ms / 3;
	sigset_t signals;
	(void)sigemptyset(&signals);
	(void)sigaddset(&signals, SIGTERM);
	(void)sigaddset(&signals, SIGINT);
	(void)sigprocmask(SIG_BLOCK, &signals, NULL);
	memory_keep();
	window_init(&c.window);
	crew_init(&c);
	int code = EX_OSERR;
	if (set_up(&c))
		code = sd_event_loop(c.event);
	broker_close(&c);
	log_event(L_INFO, "stopped", LU("delivered", stats_get(slot, STATS_delivered)),
		LU("acked", stats_get(slot, STATS_acked)));
	if (!outgoing_done(&c))
		_exit(code); /* the publisher waits for the broker, and uses what would be freed below */
	crew_done(&c);
	window_done(&c.window);
	buf_done(&c.key);
	buf_done(&c.head_copy);
	c.later = sd_event_source_unref(c.later);
	c.timer = sd_event_source_unref(c.timer);
	c.event = sd_event_unref(c.event);
	(void)close(control_fd);
	return code;
}

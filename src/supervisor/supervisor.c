/* SPDX-License-Identifier: MIT */
/* The loop of the supervisor. */
#include "supervisor/supervisor.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/version.h"
#include "consumer/consumer.h"
#include "janitor/janitor.h"
#include "supervisor/child.h"
#include "supervisor/orphans.h"
#include "supervisor/unit.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <systemd/sd-daemon.h>
#include <utlist.h>

enum {
	CHECK_TIMEOUT_S = 20, /* below the watchdog's time */
	STATUS_EVERY_MS = 2000,
	SAME_SIGNAL_MS = 300,
};

struct supervisor {
	const char *config_path;
	sd_event *event;
	sd_event_source *timer, *later;
	struct stats *stats;
	int stats_fd;
	struct stats_slot *slot;
	struct unit *units;
	uint32_t stop_timeout_ms;
	bool is_stopping;
	uint64_t stopping_since_ms;
	uint64_t status_at_ms;
	char status[256];
};

static void wake(void *arg)
{
	struct supervisor *s = arg;
	(void)sd_event_source_set_enabled(s->later, SD_EVENT_ONESHOT);
}

/* ---- configuration ------------------------------------------------------------------------------ */

/* Who stops us stops those that check the configuration for us, too: their failing says nothing then. */
static bool is_stop_pending(void)
{
	sigset_t pending;
	return sigpending(&pending) == 0 &&
	       (sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1);
}

static bool may_go_on(void)
{
	return !is_stop_pending();
}

/* Handlers and their options, in a process that may be lost. */
static bool handlers_are_good(const char *config_path, struct buf *errors)
{
	const char *const argv[] = {"inboxd", "--check", "--quiet", "-c", config_path, NULL};
	int code = child_run(argv, CHECK_TIMEOUT_S, may_go_on, errors);
	if (code < 0 && may_go_on())
		buf_addf(errors,
			"%s: the check of the handlers was lost, or took more than %d s and was ended\n",
			config_path, CHECK_TIMEOUT_S);
	return code == EX_OK;
}

static struct config *load(const char *config_path)
{
	AUTO(buf) struct buf errors = {0};
	struct config *config = config_load(config_path, &errors);
	bool is_good = config != NULL && handlers_are_good(config_path, &errors);
	log_text(is_good ? L_WARNING : L_ERROR, "configuration", buf_bytes(&errors));
	if (is_good)
		return config;
	config_free(config);
	return NULL;
}

/* ---- status ----------------------------------------------------------------------------------------- */

static uint64_t sum(const struct supervisor *s, enum stats_counter c)
{
	uint64_t total = 0;
	for (size_t i = 0; i < STATS_SLOTS; i++)
		if (atomic_load(&s->stats->slot[i].role) != STATS_FREE)
			total += stats_get(&s->stats->slot[i], c);
	return total;
}

static void tell_status(struct supervisor *s, uint64_t now_ms)
{
	char text[sizeof s->status];
	unsigned consuming = 0, all = 0;
	const struct unit *u;
	if (now_ms < s->status_at_ms)
		return;
	s->status_at_ms = now_ms + STATUS_EVERY_MS;
	DL_FOREACH(s->units, u)
	{
		all += !u->is_janitor;
		consuming += u->lead.slot != NULL &&
			     stats_get(u->lead.slot, STATS_state) == CONSUMER_CONSUMING;
	}
	(void)snprintf(text, sizeof text,
		"%s%u of %u consumers consuming; processed %" PRIu64 ", duplicates %" PRIu64
		", parked %" PRIu64,
		s->is_stopping ? "stopping; " : "", consuming, all, sum(s, STATS_processed),
		sum(s, STATS_duplicates_redelivered) + sum(s, STATS_duplicates_republished) +
			sum(s, STATS_duplicates_concurrent),
		sum(s, STATS_mismatches) + sum(s, STATS_rejected) + sum(s, STATS_failed) +
			sum(s, STATS_retried));
	if (strcmp(text, s->status) == 0)
		return;
	memcpy(s->status, text, sizeof text);
	(void)sd_notifyf(0, "STATUS=%s", text);
}

/* ---- units ------------------------------------------------------------------------------------------- */

static void adopt(struct supervisor *s, struct unit *u)
{
	u->on_change = wake;
	u->arg = s;
	DL_APPEND(s->units, u);
}

static struct unit *make_unit(struct supervisor *s, const struct config *config,
	const struct config_consumer *consumer)
{
	struct unit *u = NULL;
	struct err err;
	if (unit_new(s->event, s->stats, s->stats_fd, config, consumer, &u, &err) == RC_OK)
		return u;
	log_event(L_ERROR, "unit_failed", LS("error", err.text));
	return NULL;
}

static struct unit *find_unit(const struct supervisor *s, const char *name)
{
	struct unit *u;
	DL_FOREACH(s->units, u)
	{
		if (strcmp(u->name, name) == 0)
			return u;
	}
	return NULL;
}

static void bury(struct supervisor *s, struct unit *u)
{
	struct unit *successor = u->successor;
	u->successor = NULL;
	DL_DELETE(s->units, u);
	unit_free(u);
	if (successor != NULL && s->is_stopping)
		unit_free(successor);
	else if (successor != NULL)
		adopt(s, successor);
}

static bool is_ours(void *arg, pid_t pid)
{
	const struct supervisor *s = arg;
	const struct unit *u;
	DL_FOREACH(s->units, u)
	{
		if (unit_has(u, pid))
			return true;
	}
	return false;
}

static uint64_t step_units(struct supervisor *s, uint64_t now_ms)
{
	uint64_t next = UINT64_MAX;
	struct unit *u, *tmp;
	DL_FOREACH_SAFE(s->units, u, tmp)
	{
		uint64_t at = unit_step(u, now_ms);
		if (unit_is_down(u)) {
			bury(s, u);
			at = now_ms; /* a successor starts at once */
		}
		next = at < next ? at : next;
	}
	return next;
}

static void step(struct supervisor *s)
{
	uint64_t now = clock_ms();
	uint64_t next = step_units(s, now);
	orphans_end(is_ours, s);
	tell_status(s, now);
	stats_add(s->slot, STATS_progress, 1);
	if (s->is_stopping && s->units == NULL) {
		(void)sd_event_exit(s->event, EX_OK);
		return;
	}
	if (s->status_at_ms < next)
		next = s->status_at_ms;
	(void)sd_event_source_set_time(s->timer, next * 1000);
	(void)sd_event_source_set_enabled(s->timer, SD_EVENT_ONESHOT);
}

static int on_later(sd_event_source *source, void *arg)
{
	(void)source;
	step(arg);
	return 0;
}

static int on_timer(sd_event_source *source, uint64_t usec, void *arg)
{
	(void)source;
	(void)usec;
	step(arg);
	return 0;
}

/* ---- stop ---------------------------------------------------------------------------------------------- */

static void stop(struct supervisor *s, const char *signal_name)
{
	struct unit *u;
	s->is_stopping = true;
	s->stopping_since_ms = clock_ms();
	(void)sd_notify(0, "STOPPING=1");
	log_event(L_INFO, "stopping", LS("signal", signal_name),
		LU("timeout_ms", s->stop_timeout_ms));
	DL_FOREACH(s->units, u)
	{
		unit_drain(u, clock_ms(), s->stop_timeout_ms);
	}
	wake(s);
}

static void force(struct supervisor *s)
{
	struct unit *u;
	log_event(L_WARNING, "stop_forced",
		LS("next", "unfinished work is rolled back, deliveries go back to the broker"));
	DL_FOREACH(s->units, u)
	{
		unit_kill(u);
	}
	wake(s);
}

static int on_stop(sd_event_source *source, const struct signalfd_siginfo *si, void *arg)
{
	struct supervisor *s = arg;
	(void)source;
	/* Whoever signals a process and its group, as timeout(1) does, signals us twice: that is one. */
	if (s->is_stopping && clock_ms() - s->stopping_since_ms < SAME_SIGNAL_MS)
		return 0;
	if (s->is_stopping)
		force(s);
	else
		stop(s, si->ssi_signo == SIGINT ? "SIGINT" : "SIGTERM");
	return 0;
}

/* ---- reload ---------------------------------------------------------------------------------------------- */

static void replace(struct unit *old, struct unit *fresh, uint32_t timeout_ms)
{
	unit_free(old->successor);
	old->successor = fresh;
	unit_drain(old, clock_ms(), timeout_ms);
}

/* Consumers by number, and behind them the janitor, which is no consumer: NULL. */
static const struct config_consumer *consumer_at(const struct config *config, size_t i)
{
	return i < config->n_consumers ? config->consumers[i] : NULL;
}

static struct unit *unit_at(const struct supervisor *s, const struct config *config, size_t i)
{
	const struct config_consumer *consumer = consumer_at(config, i);
	return find_unit(s, consumer != NULL ? consumer->name : UNIT_JANITOR);
}

static bool is_changed(const struct supervisor *s, const struct config *config, size_t i)
{
	const struct unit *u = unit_at(s, config, i);
	const struct unit *current = u != NULL && u->successor != NULL ? u->successor : u;
	bool is_leaving = u != NULL && u->state != UNIT_RUNNING && u->successor == NULL;
	if (i == config->n_consumers && !janitor_is_wanted(config))
		return false;
	return current == NULL || is_leaving || !unit_is_same(current, config, consumer_at(config, i));
}

/* Whatever is new, before anything is touched: all of it or nothing. */
static bool make_changed(struct supervisor *s, const struct config *config, struct unit **fresh)
{
	bool ok = true;
	for (size_t i = 0; ok && i <= config->n_consumers; i++) {
		if (!is_changed(s, config, i))
			continue;
		fresh[i] = make_unit(s, config, consumer_at(config, i));
		ok = fresh[i] != NULL;
	}
	for (size_t i = 0; !ok && i <= config->n_consumers; i++)
		unit_free(fresh[i]);
	return ok;
}

static bool is_configured(const struct unit *u, const struct config *config)
{
	return u->is_janitor ? janitor_is_wanted(config)
			     : config_find_consumer(config, u->name) != NULL;
}

static unsigned drop_missing(struct supervisor *s, const struct config *config)
{
	unsigned dropped = 0;
	struct unit *u;
	DL_FOREACH(s->units, u)
	{
		if (is_configured(u, config))
			continue;
		replace(u, NULL, config->stop_timeout_ms);
		dropped += !u->is_janitor;
	}
	return dropped;
}

static bool apply(struct supervisor *s, const struct config *config)
{
	unsigned changed = 0;
	AUTO(free) struct unit **fresh = xcalloc(config->n_consumers + 1, sizeof *fresh);
	if (!make_changed(s, config, fresh))
		return false;
	unsigned removed = drop_missing(s, config);
	s->stop_timeout_ms = config->stop_timeout_ms;
	log_init(config->log_level, config->log_format);
	for (size_t i = 0; i <= config->n_consumers; i++) {
		struct unit *old = unit_at(s, config, i);
		if (fresh[i] == NULL)
			continue;
		if (old == NULL)
			adopt(s, fresh[i]);
		else
			replace(old, fresh[i], config->stop_timeout_ms);
		changed += i < config->n_consumers;
	}
	log_event(L_INFO, "reloaded", LS("file", config->path), LU("changed", changed),
		LU("removed", removed), LU("consumers", config->n_consumers));
	return true;
}

static int on_reload(sd_event_source *source, const struct signalfd_siginfo *si, void *arg)
{
	struct supervisor *s = arg;
	(void)source;
	(void)si;
	if (s->is_stopping)
		return 0;
	(void)sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, clock_us());
	struct config *config = load(s->config_path);
	bool is_taken = config != NULL && apply(s, config);
	if (!is_taken && !is_stop_pending())
		log_event(L_ERROR, "reload_refused", LS("file", s->config_path),
			LS("next", "the old configuration stays in force"));
	config_free(config);
	(void)sd_notify(0, "READY=1");
	wake(s);
	return 0;
}

/* ---- start ------------------------------------------------------------------------------------------------- */

static void block_signals(void)
{
	const int wanted[] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD};
	sigset_t set;
	(void)sigemptyset(&set);
	for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
		(void)sigaddset(&set, wanted[i]);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
}

static bool set_up_events(struct supervisor *s)
{
	return sd_event_new(&s->event) >= 0 &&
	       sd_event_add_signal(s->event, NULL, SIGTERM, on_stop, s) >= 0 &&
	       sd_event_add_signal(s->event, NULL, SIGINT, on_stop, s) >= 0 &&
	       sd_event_add_signal(s->event, NULL, SIGHUP, on_reload, s) >= 0 &&
	       sd_event_add_defer(s->event, &s->later, on_later, s) >= 0 &&
	       sd_event_source_set_priority(s->later, SD_EVENT_PRIORITY_IDLE) >= 0 &&
	       sd_event_add_time(s->event, &s->timer, CLOCK_MONOTONIC, 0, 0, on_timer, s) >= 0 &&
	       sd_event_set_watchdog(s->event, true) >= 0;
}

static enum rc set_up_stats(struct supervisor *s, const struct config *config, struct err *err)
{
	if (stats_create_in(config->runtime_directory, &s->stats_fd, &s->stats, err) != RC_OK) {
		log_event(L_WARNING, "counters_private", LS("error", err->text),
			LS("next", "running on; inboxctl status will not see this daemon"));
		if (stats_create(&s->stats_fd, &s->stats, err) != RC_OK)
			return err->rc;
	}
	s->slot = stats_slot_take(s->stats, STATS_SUPERVISOR, "", 0);
	atomic_store(&s->slot->pid, getpid());
	return RC_OK;
}

static bool start_unit(struct supervisor *s, const struct config *config,
	const struct config_consumer *consumer)
{
	struct unit *u = make_unit(s, config, consumer);
	if (u != NULL)
		adopt(s, u);
	return u != NULL;
}

static bool start_units(struct supervisor *s, const struct config *config)
{
	bool ok = true;
	for (size_t i = 0; ok && i < config->n_consumers; i++)
		ok = start_unit(s, config, config->consumers[i]);
	return ok && (!janitor_is_wanted(config) || start_unit(s, config, NULL));
}

static void tear_down(struct supervisor *s)
{
	struct unit *u, *tmp;
	DL_FOREACH_SAFE(s->units, u, tmp)
	{
		DL_DELETE(s->units, u);
		unit_free(u);
	}
	stats_unmap(s->stats);
	if (s->stats_fd >= 0)
		(void)close(s->stats_fd);
	s->timer = sd_event_source_unref(s->timer);
	s->later = sd_event_source_unref(s->later);
	s->event = sd_event_unref(s->event);
}

int supervisor_main(const char *config_path)
{
	struct supervisor s = {.config_path = config_path, .stats_fd = -1};
	struct err err;
	int code = EX_OSERR;
	block_signals(); /* before anything else: a stop is never a death */
	orphans_adopt(); /* of the checks, too */
	struct config *config = load(config_path);
	if (config == NULL) {
		orphans_end(is_ours, &s);
		return is_stop_pending() ? EX_OK : EX_CONFIG;
	}

	log_init(config->log_level, config->log_format);
	log_set_role("supervisor", NULL);
	s.stop_timeout_ms = config->stop_timeout_ms;
	if (set_up_events(&s) && set_up_stats(&s, config, &err) == RC_OK && start_units(&s, config)) {
		log_event(L_INFO, "started", LS("version", INBOXD_VERSION), LS("file", config->path),
			LU("consumers", config->n_consumers));
		config_free(config);
		config = NULL;
		(void)sd_notify(0, "READY=1");
		code = sd_event_loop(s.event);
		orphans_end(is_ours, &s);
		log_event(L_INFO, "ended", LI("exit_code", code));
	}
	config_free(config);
	tear_down(&s);
	return code;
}

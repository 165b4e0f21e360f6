/* SPDX-License-Identifier: MIT */
/* The life of a consumer's processes, and of the janitor. */
#include "supervisor/unit.h"

#include "base/backoff.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/proc.h"
#include "ipc/channel.h"
#include "ipc/control.h"
#include "supervisor/child.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <sysexits.h>

enum {
	KILL_GRACE_MS = 5000,    /* over the handler's limit: the server cancels its statement first */
	STUCK_MS = 30000,        /* over what connecting may take */
	WATCH_EVERY_MS = 500,
	WORKER_END_MS = 1000,    /* for a worker to notice that its consumer is gone */
	DRAIN_GRACE_MS = 2000,   /* for a consumer to give back and close, past its time */
	JANITOR_AGAIN_MS = 5000,
	MESSAGE_COPIES = 5, /* of a message, in all its forms on the way to the database */
	JANITOR_STUCK_MS = 300000, /* a server may have several addresses, each with its time-out */
	AFTER_WORK_MS = 100, /* before a worker that crashed over a message is started again */
};

/* ---- made and compared ----------------------------------------------------------------------------- */

static enum rc config_fd(const struct config *config, enum config_part part, const char *consumer,
	int *ret, struct err *err)
{
	AUTO(buf) struct buf text = {0};
	config_print(config, part, consumer, &text);
	enum rc rc = fd_memfd("inboxd-config", buf_bytes(&text), ret, err);
	explicit_bzero(text.data, text.size); /* secrets of the part */
	return rc;
}

static void copy_list(struct string_list *to, const struct string_list *from)
{
	to->items = xcalloc(from->n, sizeof(char *));
	for (to->n = 0; to->n < from->n; to->n++)
		to->items[to->n] = xstrdup(from->items[to->n]);
}

static char *print_of(const struct config *config, const struct config_consumer *consumer)
{
	if (consumer == NULL) {
		AUTO(buf) struct buf text = {0};
		config_print(config, CONFIG_FOR_JANITOR, NULL, &text);
		char *copy = xstrdup(buf_str(&text));
		explicit_bzero(text.data, text.size);
		return copy;
	}
	return xasprintf("%s\nlog %d %d", consumer->print, (int)config->log_level,
		(int)config->log_format);
}

/* At the first start, when a predecessor of the same name has left its own. */
static bool take_slots(struct unit *u)
{
	if (u->lead.slot == NULL)
		u->lead.slot = stats_slot_take(u->stats,
			u->is_janitor ? STATS_JANITOR : STATS_CONSUMER, u->name, 0);
	bool ok = u->lead.slot != NULL;
	for (uint32_t i = 0; i < u->n_workers; i++) {
		struct member *m = &u->workers[i];
		if (m->slot == NULL)
			m->slot = stats_slot_take(u->stats, STATS_WORKER, u->name, i);
		ok = ok && m->slot != NULL;
	}
	return ok;
}

static uint64_t largest(const struct config_consumer *c)
{
	return c->batch_bytes > c->max_message_bytes ? c->batch_bytes : c->max_message_bytes;
}

static enum rc begin_janitor(struct unit *u, const struct config *config, struct err *err)
{
	uint32_t longest_ms = 0;
	for (size_t i = 0; i < config->n_databases; i++)
		if (config->databases[i]->connect_timeout_ms > longest_ms)
			longest_ms = config->databases[i]->connect_timeout_ms;
	u->stuck_limit_ms = JANITOR_STUCK_MS + 2 * (uint64_t)longest_ms;
	enum rc rc = config_fd(config, CONFIG_FOR_JANITOR, NULL, &u->lead_config_fd, err);
	return rc == RC_OK ? rc : err_ctx(err, "janitor");
}

static enum rc begin_consumer(struct unit *u, const struct config *config,
	const struct config_consumer *consumer, struct err *err)
{
	u->n_workers = consumer->workers;
	u->handler_limit_ms = (uint64_t)consumer->handler_timeout_ms + consumer->batch_time_ms +
			      KILL_GRACE_MS;
	u->memory_limit = consumer->memory_max + MESSAGE_COPIES * largest(consumer);
	u->stuck_limit_ms = STUCK_MS + 2 * (uint64_t)consumer->broker->connect_timeout_ms;
	u->workers = xcalloc(u->n_workers, sizeof *u->workers);
	for (uint32_t i = 0; i < u->n_workers; i++)
		u->workers[i] = (struct member){.unit = u, .is_worker = true, .index = i};

	enum rc rc = handler_copy_take(&config->handler_directories, consumer->handler,
		config->runtime_directory, &u->handler, err);
	if (rc == RC_OK)
		rc = config_fd(config, CONFIG_FOR_CONSUMER, u->name, &u->lead_config_fd, err);
	if (rc == RC_OK)
		rc = config_fd(config, CONFIG_FOR_WORKER, u->name, &u->worker_config_fd, err);
	return rc == RC_OK ? rc : err_ctx(err, "consumer \"%s\"", consumer->name);
}

enum rc unit_new(sd_event *event, struct stats *stats, int stats_fd, const struct config *config,
	const struct config_consumer *consumer, struct unit **ret, struct err *err)
{
	struct unit *u = xcalloc(1, sizeof *u);
	u->event = event;
	u->stats = stats;
	u->stats_fd = stats_fd;
	u->is_janitor = consumer == NULL;
	u->name = xstrdup(consumer != NULL ? consumer->name : UNIT_JANITOR);
	u->print = print_of(config, consumer);
	u->lead_config_fd = u->worker_config_fd = u->control_fd = u->handler.fd = -1;
	u->lead.unit = u;
	copy_list(&u->forget, &config->env_used);
	enum rc rc = consumer != NULL ? begin_consumer(u, config, consumer, err)
				      : begin_janitor(u, config, err);
	if (rc == RC_OK)
		*ret = u;
	else
		unit_free(u);
	return rc;
}

static void close_if(int fd)
{
	if (fd >= 0)
		(void)close(fd);
}

static void member_done(struct member *m)
{
	m->reaper = sd_event_source_disable_unref(m->reaper);
	stats_slot_release(m->slot);
}

void unit_free(struct unit *u)
{
	if (u == NULL)
		return;
	unit_free(u->successor);
	member_done(&u->lead);
	for (uint32_t i = 0; i < u->n_workers; i++)
		member_done(&u->workers[i]);
	for (size_t i = 0; i < u->forget.n; i++)
		free(u->forget.items[i]);
	free(u->forget.items);
	close_if(u->lead_config_fd);
	close_if(u->worker_config_fd);
	close_if(u->control_fd);
	handler_copy_done(&u->handler);
	free(u->workers);
	free(u->print);
	free(u->name);
	free(u);
}

bool unit_is_same(
	const struct unit *u, const struct config *config, const struct config_consumer *consumer)
{
	struct handler_file file;
	struct err err;
	AUTO(free) char *print = print_of(config, consumer);
	if (strcmp(print, u->print) != 0)
		return false;
	return consumer == NULL ||
	       (handler_find(&config->handler_directories, consumer->handler, &file, &err) == RC_OK &&
		       handler_file_equal(&file, &u->handler.file));
}

/* ---- deaths ------------------------------------------------------------------------------------------ */

static const char *role_of(const struct member *m)
{
	return m->is_worker ? "worker" : m->unit->is_janitor ? "janitor" : "consumer";
}

/* "worker orders/1", for people; owned by the caller. */
static char *process_name(const struct member *m)
{
	if (m->is_worker)
		return xasprintf("worker %s/%u", m->unit->name, m->index + 1);
	return m->unit->is_janitor ? xstrdup("janitor") : xasprintf("consumer %s", m->unit->name);
}

static void kill_group(const struct member *m)
{
	if (m->pid != 0 && kill(-m->pid, SIGKILL) != 0)
		(void)kill(m->pid, SIGKILL); /* not a leader yet */
}

static void tell_consumer(struct unit *u, const struct control *c, int fd)
{
	struct err err;
	if (u->control_fd >= 0 && control_send(u->control_fd, c, fd, &err) != RC_OK)
		kill_group(&u->lead); /* it reads nothing: it is dead or hangs */
}

static bool is_expected(const struct member *m, const siginfo_t *si)
{
	const struct unit *u = m->unit;
	bool is_clean = si->si_code == CLD_EXITED && si->si_status == EX_OK;
	if (m->is_recycled)
		return true;
	if (u->state != UNIT_RUNNING)
		return is_clean || m->is_worker || u->is_janitor;
	return m->is_worker && u->control_fd < 0; /* it goes with its consumer */
}

static void write_obituary(const struct member *m, const siginfo_t *si, const char *next)
{
	bool exited = si->si_code == CLD_EXITED;
	const char *signal_name = exited ? NULL : sigabbrev_np(si->si_status);
	AUTO(free) char *process = process_name(m);
	log_event(is_expected(m, si) ? L_INFO : L_WARNING, "process_died", LS("process", process),
		LI("pid", m->pid), exited ? (struct log_field)LI("exit_code", si->si_status)
					  : (struct log_field)LS("signal", signal_name),
		LS("cause", m->timed_out     ? "handler over its time limit"
			       : m->over_memory ? "over its memory limit"
						: NULL),
		LS("next", next));
}

/* It said so before it went, and went in good order. */
static void note_recycling(struct member *m, const siginfo_t *si)
{
	static const char *const reasons[] = {[LEAVING_MEMORY] = "memory",
		[LEAVING_AGE] = "recycle_after",
		[LEAVING_CHANGED] = "handler_changed_process"};
	uint64_t why = m->slot != NULL ? stats_get(m->slot, STATS_leaving) : LEAVING_NOT;
	m->is_recycled = why != LEAVING_NOT && why < sizeof reasons / sizeof reasons[0] &&
			 si->si_code == CLD_EXITED && si->si_status == EX_OK &&
			 m->unit->state == UNIT_RUNNING;
	if (m->slot != NULL)
		stats_set(m->slot, STATS_leaving, LEAVING_NOT);
	if (!m->is_recycled)
		return;
	stats_add(m->slot, STATS_recycled, 1);
	log_event(L_INFO, "worker_recycled", LS("consumer", m->unit->name),
		LU("worker", m->index + 1), LI("pid", m->pid), LS("reason", reasons[why]),
		LS("next", "starting again at once"));
}

/* The most it ever held, which only its reaper is told; sd-event finds it reaped and does not mind. */
static void note_memory(struct member *m, const siginfo_t *si)
{
	struct rusage usage;
	bool is_clean = si->si_code == CLD_EXITED && si->si_status == EX_OK;
	if (wait4(m->pid, NULL, WNOHANG, &usage) != m->pid || is_clean || !m->is_worker)
		return;
	uint64_t most = (uint64_t)usage.ru_maxrss * 1024;
	m->over_memory = m->over_memory || most > m->unit->memory_limit / 10 * 9;
}

/* Nobody waits for the janitor. */
static uint64_t delay_for(struct member *m, uint64_t lived_ms, bool is_bad)
{
	uint64_t delay = restart_delay_ms(&m->restart, lived_ms, is_bad, random_u32());
	return m->unit->is_janitor && delay < JANITOR_AGAIN_MS ? JANITOR_AGAIN_MS : delay;
}

static void plan_restart(struct member *m, const siginfo_t *si, char *next, size_t size)
{
	uint64_t now = clock_ms();
	bool bad = si->si_code == CLD_EXITED && si->si_status == EX_CONFIG;
	/* A worker that did something was fit to work: what ended it is charged to its message, and the
	 * neighbours need not wait for it. */
	bool did_work = m->is_worker && (stats_get(m->slot, STATS_in_hand) != 0 ||
						stats_get(m->slot, STATS_progress) > m->progress + 1);
	uint64_t lived = did_work ? UINT64_MAX : now - m->started_ms;
	uint64_t delay = delay_for(m, lived, bad);
	if (did_work && delay < AFTER_WORK_MS)
		delay = AFTER_WORK_MS;
	if (m->is_recycled)
		delay = 0;
	m->start_at_ms = now + delay;
	if (m->unit->state == UNIT_RUNNING)
		(void)snprintf(next, size, "starting again in %" PRIu64 " ms", delay);
	else
		(void)snprintf(next, size, "none");
}

static void close_line(struct unit *u)
{
	close_if(u->control_fd);
	u->control_fd = -1;
}

/* Without its consumer a worker's work is nobody's: what it commits is found by the next claim. */
static void consumer_died(struct unit *u)
{
	close_line(u);
	if (u->state == UNIT_DRAINING) {
		u->drain_until_ms = clock_ms() + WORKER_END_MS;
		return;
	}
	for (uint32_t i = 0; i < u->n_workers; i++)
		kill_group(&u->workers[i]);
}

static void worker_died(struct member *m, const siginfo_t *si)
{
	const struct control gone = {
		.kind = CONTROL_GONE,
		.index = m->index,
		.life = m->life,
		.status = si->si_status,
		.was_killed = si->si_code != CLD_EXITED,
		.timed_out = m->timed_out,
		.over_memory = m->over_memory,
		.handler_ran = m->slot != NULL && stats_get(m->slot, STATS_handler_ran) != 0,
	};
	if (m->slot != NULL)
		stats_set(m->slot, STATS_handler_ran, 0);
	FAULT("before-obituary");
	tell_consumer(m->unit, &gone, -1);
	FAULT("obituary-sent");
}

static int on_death(sd_event_source *source, const siginfo_t *si, void *arg)
{
	struct member *m = arg;
	char next[64];
	(void)source;
	FAULT("child-died");
	m->reaper = sd_event_source_unref(m->reaper);
	(void)kill(-m->pid, SIGKILL); /* children that a handler left behind keep no session alive */
	note_memory(m, si);
	note_recycling(m, si);
	plan_restart(m, si, next, sizeof next);
	if (!m->is_recycled)
		write_obituary(m, si, next);
	m->pid = 0;
	if (m->slot != NULL) {
		atomic_store(&m->slot->pid, 0);
		stats_set(m->slot, STATS_handler_since_ms, 0);
		stats_set(m->slot, STATS_in_hand, 0);
	}
	if (m->is_worker)
		worker_died(m, si);
	else
		consumer_died(m->unit);
	m->timed_out = m->over_memory = m->is_recycled = false;
	m->unit->on_change(m->unit->arg);
	return 0;
}

/* ---- starts ------------------------------------------------------------------------------------------- */

/* The descriptor of a process may become readable a moment before wait knows of its end.  sd-event asks wait
 * once and then forgets a one-shot event: the death would never be heard of.  Only off and on again makes
 * its poll repeat; on alone changes nothing in the kernel. */
static int watch_death(struct member *m)
{
	int r = sd_event_add_child(m->unit->event, &m->reaper, m->pid, WEXITED, on_death, m);
	if (r >= 0)
		r = sd_event_source_set_enabled(m->reaper, SD_EVENT_OFF);
	if (r >= 0)
		r = sd_event_source_set_enabled(m->reaper, SD_EVENT_ON);
	return r;
}

static enum rc start_member(struct member *m, int channel_fd, struct err *err)
{
	struct unit *u = m->unit;
	AUTO(free) char *process = process_name(m);
	AUTO(free) char *title = xasprintf("inboxd: %s", process);
	const struct child_spec spec = {
		.role = role_of(m),
		.title = title,
		.consumer = u->name,
		.index = m->index,
		.channel_fd = channel_fd,
		.config_fd = m->is_worker ? u->worker_config_fd : u->lead_config_fd,
		.stats_fd = u->stats_fd,
		.handler = m->is_worker ? &u->handler : NULL,
		.forget = &u->forget,
		/* Who connects to a database has libpq's variables. */
		.is_plain_environment = !m->is_worker && !u->is_janitor,
		.memory_limit = m->is_worker ? u->memory_limit : 0,
	};
	if (child_start(&spec, &m->pid, err) != RC_OK)
		return err->rc;
	FAULT("child-started");
	m->started_ms = clock_ms();
	m->progress = stats_get(m->slot, STATS_progress);
	m->progress_ms = m->started_ms;
	if (m->life++ != 0)
		stats_add(m->slot, STATS_restarts, 1);
	atomic_store(&m->slot->pid, m->pid);
	int watched = watch_death(m);
	if (watched < 0) {
		/* Nobody would ever hear of its end. */
		m->reaper = sd_event_source_disable_unref(m->reaper);
		kill_group(m);
		(void)waitpid(m->pid, NULL, 0);
		m->pid = 0;
		atomic_store(&m->slot->pid, 0);
		return err_set(err, RC_RETRY, "cannot watch a process: %s", strerror(-watched));
	}
	return RC_OK;
}

static void start_failed(struct member *m, const struct err *err)
{
	AUTO(free) char *process = process_name(m);
	uint64_t delay = delay_for(m, 0, false);
	AUTO(free) char *next = xasprintf("trying again in %" PRIu64 " ms", delay);
	m->start_at_ms = clock_ms() + delay;
	log_event(L_ERROR, "start_failed", LS("process", process), LS("error", err->text),
		LS("next", next));
}

static void start_lead(struct unit *u)
{
	struct err err;
	int line[2];
	if (!take_slots(u)) {
		(void)err_set(&err, RC_FATAL, "more processes than there are counters for (%d)",
			STATS_SLOTS);
		start_failed(&u->lead, &err);
		return;
	}
	if (control_pair(line, &err) != RC_OK) {
		start_failed(&u->lead, &err);
		return;
	}
	if (start_member(&u->lead, line[1], &err) == RC_OK) {
		u->control_fd = line[0];
	} else {
		start_failed(&u->lead, &err);
		(void)close(line[0]);
	}
	(void)close(line[1]);
}

static void start_worker(struct member *m)
{
	struct err err;
	int ends[2];
	if (channel_pair(ends, &err) != RC_OK) {
		start_failed(m, &err);
		return;
	}
	if (start_member(m, ends[1], &err) == RC_OK) {
		const struct control c = {
			.kind = CONTROL_WORKER, .index = m->index, .life = m->life, .pid = m->pid};
		FAULT("before-introduction");
		tell_consumer(m->unit, &c, ends[0]);
	} else {
		start_failed(m, &err);
	}
	(void)close(ends[0]);
	(void)close(ends[1]);
}

static bool any_worker_runs(const struct unit *u)
{
	for (uint32_t i = 0; i < u->n_workers; i++)
		if (u->workers[i].pid != 0)
			return true;
	return false;
}

static uint64_t start_if_due(struct unit *u, uint64_t now_ms)
{
	uint64_t next = UINT64_MAX;
	if (u->lead.pid == 0) {
		if (any_worker_runs(u))
			return UINT64_MAX; /* their ends are reaped first */
		if (now_ms < u->lead.start_at_ms)
			return u->lead.start_at_ms;
		start_lead(u);
		if (u->lead.pid == 0)
			return u->lead.start_at_ms;
	}
	for (uint32_t i = 0; i < u->n_workers; i++) {
		struct member *m = &u->workers[i];
		if (m->pid == 0 && now_ms >= m->start_at_ms)
			start_worker(m);
		if (m->pid == 0 && m->start_at_ms < next)
			next = m->start_at_ms;
	}
	return next;
}

/* ---- watching ------------------------------------------------------------------------------------------ */

static void watch_handler(struct member *m, uint64_t now_ms)
{
	if (m->pid == 0 || m->timed_out || m->over_memory)
		return;
	uint64_t since = stats_get(m->slot, STATS_handler_since_ms);
	if (since == 0)
		return;
	m->timed_out = now_ms >= since + m->unit->handler_limit_ms;
	m->over_memory = proc_memory(m->pid).resident > m->unit->memory_limit;
	if (m->timed_out || m->over_memory)
		kill_group(m);
}

static void watch_lead(struct unit *u, uint64_t now_ms)
{
	struct member *m = &u->lead;
	if (m->pid == 0)
		return;
	uint64_t progress = stats_get(m->slot, STATS_progress);
	if (progress != m->progress) {
		m->progress = progress;
		m->progress_ms = now_ms;
	} else if (now_ms - m->progress_ms > u->stuck_limit_ms) {
		log_event(L_ERROR, u->is_janitor ? "janitor_stuck" : "consumer_stuck",
			LS("consumer", u->is_janitor ? NULL : u->name), LI("pid", m->pid),
			LU("for_ms", now_ms - m->progress_ms), LS("next", "killing it"));
		m->progress_ms = now_ms;
		kill_group(m);
	}
}

uint64_t unit_step(struct unit *u, uint64_t now_ms)
{
	uint64_t next = now_ms + WATCH_EVERY_MS;
	if (u->state == UNIT_DOWN)
		return UINT64_MAX;
	for (uint32_t i = 0; i < u->n_workers; i++)
		watch_handler(&u->workers[i], now_ms);
	watch_lead(u, now_ms);
	if (u->state == UNIT_RUNNING) {
		uint64_t start = start_if_due(u, now_ms);
		return start < next ? start : next;
	}
	if (u->lead.pid == 0 && !any_worker_runs(u)) {
		u->state = UNIT_DOWN;
		u->on_change(u->arg);
		return UINT64_MAX;
	}
	if (now_ms >= u->drain_until_ms)
		unit_kill(u);
	return u->drain_until_ms > now_ms && u->drain_until_ms < next ? u->drain_until_ms : next;
}

void unit_drain(struct unit *u, uint64_t now_ms, uint64_t timeout_ms)
{
	const struct control drain = {.kind = CONTROL_DRAIN, .timeout_ms = timeout_ms};
	if (u->state != UNIT_RUNNING)
		return;
	u->state = UNIT_DRAINING;
	u->drain_until_ms = now_ms + timeout_ms + DRAIN_GRACE_MS;
	FAULT("before-drain");
	if (!u->is_janitor)
		tell_consumer(u, &drain, -1);
	else if (u->lead.pid != 0)
		(void)kill(u->lead.pid, SIGTERM); /* it finishes nothing */
}

void unit_kill(struct unit *u)
{
	u->state = u->state == UNIT_RUNNING ? UNIT_DRAINING : u->state;
	kill_group(&u->lead);
	for (uint32_t i = 0; i < u->n_workers; i++)
		kill_group(&u->workers[i]);
}

bool unit_has(const struct unit *u, pid_t pid)
{
	bool found = u->lead.pid == pid;
	for (uint32_t i = 0; i < u->n_workers; i++)
		found = found || u->workers[i].pid == pid;
	return found || (u->successor != NULL && unit_has(u->successor, pid));
}

bool unit_is_down(const struct unit *u)
{
	return u->state == UNIT_DOWN;
}

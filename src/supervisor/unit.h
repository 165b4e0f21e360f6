/* SPDX-License-Identifier: MIT */
/* A unit: one configured consumer with its processes - a consumer and its workers - or the janitor, which
 * is alone, and what they are started from.  Once made it needs no configuration any more: a restart gets the same again. */
#ifndef INBOXD_SUPERVISOR_UNIT_H
#define INBOXD_SUPERVISOR_UNIT_H

#include "base/stats.h"
#include "config/config.h"
#include "handler/loader.h"
#include "supervisor/restart.h"

#include <systemd/sd-event.h>

#define UNIT_JANITOR "" /* the janitor's name: no consumer has it */

struct unit;

/* A process of a unit, over all its lives. */
struct member {
	struct unit *unit;
	bool is_worker;
	uint32_t index; /* of a worker */
	uint32_t life;  /* counts starts */
	pid_t pid;      /* 0: not running */
	bool timed_out; /* killed by us: its handler took too long */
	bool over_memory; /* it held more than it may; killed by us for it, perhaps */
	bool is_recycled; /* its end was its own wish, to be started anew */
	uint64_t started_ms;
	uint64_t start_at_ms; /* when not running: not before */
	uint64_t progress, progress_ms; /* of a leader: the last step seen, and when */
	struct restart restart;
	struct stats_slot *slot;
	sd_event_source *reaper;
};

enum unit_state {
	UNIT_RUNNING,
	UNIT_DRAINING, /* the leader finishes; what comes next is the supervisor's */
	UNIT_DOWN,     /* nothing runs, nothing is to be started */
};

struct unit {
	sd_event *event;
	int stats_fd;
	struct stats *stats;
	struct unit *next, *prev;
	struct unit *successor; /* takes its place once it is down; owned */
	char *name;
	bool is_janitor;
	char *print; /* to see whether a new configuration differs */
	struct handler_copy handler; /* what a worker is started with, whatever becomes of the file */
	uint32_t n_workers;
	uint64_t handler_limit_ms; /* a handler that runs longer is killed */
	uint64_t memory_limit;     /* bytes that a worker may hold while its handler runs */
	uint64_t stuck_limit_ms;   /* a leader without progress so long is killed */
	struct string_list forget;
	int lead_config_fd, worker_config_fd; /* -1: none */
	int control_fd; /* our end of the consumer's line; -1: none */
	enum unit_state state;
	uint64_t drain_until_ms; /* then all is killed */
	struct member lead; /* the consumer, or the janitor */
	struct member *workers;
	void (*on_change)(void *arg); /* a process ended, or a start is due later */
	void *arg;
};

/* Makes a unit from the configuration; consumer NULL: the janitor's.  Nothing runs yet. */
enum rc unit_new(sd_event *event, struct stats *stats, int stats_fd, const struct config *config,
	const struct config_consumer *consumer, struct unit **ret, struct err *err) MUST_CHECK;
void unit_free(struct unit *u);

/* Whether the unit is what this configuration asks for, its handler's file included; consumer as above. */
bool unit_is_same(const struct unit *u, const struct config *config,
	const struct config_consumer *consumer);

/* Starts what should run and is due; kills what hangs.  Returns when to call again. */
uint64_t unit_step(struct unit *u, uint64_t now_ms);

/* Lets the consumer finish within timeout_ms, then ends its workers; UNIT_DOWN follows. */
void unit_drain(struct unit *u, uint64_t now_ms, uint64_t timeout_ms);
/* Ends everything at once. */
void unit_kill(struct unit *u);
bool unit_is_down(const struct unit *u);
/* Whether a process is one of the unit's, or of its successor's. */
bool unit_has(const struct unit *u, pid_t pid);

#endif

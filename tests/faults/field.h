/* SPDX-License-Identifier: MIT */
/* Where faults happen: a world, daemons that reach broker and database through proxies, the oracle,
 * and what can be done to them. */
#ifndef INBOXD_TESTS_FAULTS_FIELD_H
#define INBOXD_TESTS_FAULTS_FIELD_H

#include "../integration/harness.h"
#include "oracle.h"
#include "../integration/proxy.h"
#include "standing.h"

enum { FIELD_DAEMONS = 2 };

struct field {
	struct world w;
	char dead[96]; /* the queue of dead letters */
	struct daemon d[FIELD_DAEMONS];
	int n_daemons;
	struct proxy *broker, *database;
	struct standing standing;
	struct oracle oracle;
	unsigned serial; /* of messages */
};

enum fault_action {
	KILL_WORKER,
	KILL_CONSUMER,
	KILL_SUPERVISOR,
	CUT_DATABASE,
	RESET_DATABASE,
	CUT_BROKER,
	RESET_BROKER,
	FAULT_ACTIONS,
	/* ways to points that are not on the common way */
	KILL_STANDING = FAULT_ACTIONS,
	TERMINATE,
};
extern const char *const fault_action_names[];

/* `more` are lines of the consumer; the daemons consume when it returns. */
void field_begin(struct field *f, const char *name, int n_daemons, const char *more);
void field_end(struct field *f);

/* Returns how many processes or connections it hit. */
int field_act(struct field *f, struct daemon *d, enum fault_action action);
/* The daemon that the process belongs to. */
struct daemon *field_daemon_of(struct field *f, pid_t pid);
/* Daemons that have ended, or are ending, are started again. */
void field_revive(struct field *f);
/* Kills the daemon and starts it again, without the memory of how often its processes died. */
void field_renew(struct field *f, struct daemon *d);

/* What was taken by somebody who died before anybody knew of it, a retry or a dead letter, is due
 * again when its lease is over: as if that time had passed. */
void field_let_time_pass(struct field *f);

/* Publishes and tells the oracle. */
void field_publish(
	struct field *f, const char *id, const char *body, const char *act, enum oracle_fate fate);
/* One of everything: some that are simply done, a copy, a retry, a rejected one, a mismatch, one
 * without key and a large one; confirmed. */
void field_publish_mix(struct field *f);

#endif

/* SPDX-License-Identifier: MIT */
/* Starting a process of ours: fork, exec of this very program, descriptors in fixed places, all
 * others closed, its own process group, and death with its parent. */
#ifndef INBOXD_SUPERVISOR_CHILD_H
#define INBOXD_SUPERVISOR_CHILD_H

#include "base/err.h"
#include "config/config.h"
#include "handler/loader.h"

#include <sys/types.h>

/* Where a child finds what it was given. */
enum { CHILD_CHANNEL_FD = 3, CHILD_CONFIG_FD, CHILD_STATS_FD, CHILD_HANDLER_FD };

struct child_spec {
	const char *role;  /* "consumer", "worker", "janitor" */
	const char *title; /* shown by ps: "inboxd: worker orders/1" */
	const char *consumer;
	uint32_t index;
	int channel_fd, config_fd, stats_fd;
	const struct handler_copy *handler; /* NULL: it loads none */
	const struct string_list *forget; /* environment variables it must not see */
	uint64_t memory_limit; /* bytes; 0: none */
	bool is_plain_environment;        /* sees only what every program needs */
};

enum rc child_start(const struct child_spec *spec, pid_t *ret, struct err *err) MUST_CHECK;

/* Runs this program with arguments and waits, at most timeout_s and while may_go_on; its exit code, or -1 if
 * it had to be killed, and what it wrote to standard error (its beginning and end, if it is very long).  For checks
 * that load handlers, which the supervisor never does. */
int child_run(const char *const argv[], unsigned timeout_s, bool (*may_go_on)(void),
	struct buf *ret_said);

#endif

/* SPDX-License-Identifier: MIT */
/* The process around a handler's code: what a worker must find as it was, and what it puts back. */
#ifndef INBOXD_WORKER_SURROUNDINGS_H
#define INBOXD_WORKER_SURROUNDINGS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

enum { SURROUNDINGS_LIMITS = 8 };

/* A descriptor, and what it stood for. */
struct surroundings_fd {
	int fd; /* -1: none */
	ino_t inode;
};

struct surroundings {
	pid_t pid;
	bool is_child; /* this is a fork of it */
	struct surroundings_fd channel, session;
	int directory; /* the working directory */
	mode_t umask;
	sigset_t mask;
	struct rlimit limits[SURROUNDINGS_LIMITS];
};

/* Once, before a handler's code runs.  s must live as long as the process: a child that a handler
 * forks loses channel and session at once, so that it can neither use nor hold them. */
void surroundings_begin(struct surroundings *s, int channel_fd);
/* There is another session; -1: none. */
void surroundings_set_session(struct surroundings *s, int fd);

/* After an entry has returned: ends this process if it is a child that the handler forked, or if a
 * descriptor of ours is not what it was (session_fd: of the session; -1: it is known to be lost),
 * before anything else uses it.  That is charged to the messages at hand, as a crash. */
void surroundings_require(const struct surroundings *s, int session_fd);
/* The first half of it without a system call: of a child that fork(3) made. */
void surroundings_require_parent(const struct surroundings *s);

/* Puts back what a handler may have changed: signal mask, timers, working directory, umask, process
 * group, limits.  False: something cannot be put back, and only another process is as before. */
bool surroundings_restore(const struct surroundings *s);

#endif

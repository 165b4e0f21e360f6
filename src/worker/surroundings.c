/* SPDX-License-Identifier: MIT */
/* Looks at the process with a few system calls, cheap enough for every batch. */
#include "worker/surroundings.h"

#include "base/fd.h"
#include "base/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sysexits.h>

static const int limits[SURROUNDINGS_LIMITS] = {RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_DATA, RLIMIT_STACK,
	RLIMIT_CORE, RLIMIT_NOFILE, RLIMIT_AS, RLIMIT_NPROC};

/* For the child of a fork, which has no other way to know. */
static struct surroundings *guarded;

static void in_child(void)
{
	guarded->is_child = true;
	(void)close(guarded->channel.fd);
	if (guarded->session.fd >= 0)
		(void)close(guarded->session.fd);
}

static ino_t inode_of(int fd)
{
	struct stat st;
	return fd >= 0 && fstat(fd, &st) == 0 ? st.st_ino : 0;
}

void surroundings_begin(struct surroundings *s, int channel_fd)
{
	s->pid = getpid();
	s->channel = (struct surroundings_fd){channel_fd, inode_of(channel_fd)};
	s->session = (struct surroundings_fd){-1, 0};
	s->directory = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	s->umask = umask(077);
	(void)umask(s->umask);
	(void)sigprocmask(SIG_SETMASK, NULL, &s->mask);
	for (int i = 0; i < SURROUNDINGS_LIMITS; i++)
		(void)getrlimit((__rlimit_resource_t)limits[i], &s->limits[i]);
	guarded = s;
	(void)pthread_atfork(NULL, NULL, in_child);
}

void surroundings_set_session(struct surroundings *s, int fd)
{
	s->session = (struct surroundings_fd){fd, inode_of(fd)};
}

_Noreturn static void give_up(const char *what)
{
	log_event(L_ERROR, "handler_broke_process", LS("what", what),
		LS("next", "ending this worker"));
	_exit(EX_SOFTWARE); /* nothing of ours may be flushed to whatever stands there now */
}

void surroundings_require_parent(const struct surroundings *s)
{
	if (s->is_child)
		_exit(EX_OK); /* it came back from the handler, and has nothing to do here */
}

void surroundings_require(const struct surroundings *s, int session_fd)
{
	if (getpid() != s->pid)
		_exit(EX_OK);
	if (session_fd >= 0 && inode_of(session_fd) != s->session.inode)
		give_up("the descriptor of the database session was closed or replaced");
	if (inode_of(s->channel.fd) != s->channel.inode)
		give_up("the descriptor of the channel to the consumer was closed or replaced");
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			give_up("a standard descriptor was closed");
}

static bool restore_limits(const struct surroundings *s)
{
	bool is_good = true;
	for (int i = 0; i < SURROUNDINGS_LIMITS; i++) {
		struct rlimit now;
		__rlimit_resource_t which = (__rlimit_resource_t)limits[i];
		if (getrlimit(which, &now) != 0 ||
			(now.rlim_cur == s->limits[i].rlim_cur &&
				now.rlim_max == s->limits[i].rlim_max))
			continue;
		is_good = setrlimit(which, &s->limits[i]) == 0 && is_good;
	}
	return is_good;
}

/* An alarm that a handler has set would end the worker over somebody else's message. */
static void stop_timers(void)
{
	static const struct itimerval none;
	(void)setitimer(ITIMER_REAL, &none, NULL);
	(void)setitimer(ITIMER_VIRTUAL, &none, NULL);
	(void)setitimer(ITIMER_PROF, &none, NULL);
}

bool surroundings_restore(const struct surroundings *s)
{
	struct sigaction pipe_action;
	stop_timers();
	(void)sigprocmask(SIG_SETMASK, &s->mask, NULL);
	if (sigaction(SIGPIPE, NULL, &pipe_action) == 0 && pipe_action.sa_handler == SIG_DFL)
		(void)signal(SIGPIPE, SIG_IGN);
	(void)umask(s->umask);
	/* Whoever ends the worker ends its group. */
	if (getpgrp() != s->pid && setpgid(0, 0) != 0)
		return false;
	return fchdir(s->directory) == 0 && restore_limits(s);
}

/* SPDX-License-Identifier: MIT */
/* getaddrinfo in a thread of its own.  It may wait for name servers far beyond our time limit and
 * cannot be cancelled: when nobody waits any more, the thread finishes alone and frees what it has.
 */
#include "mq/resolve.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/fd.h"
#include "mq/wait.h"

/* Shared by thread and waiter; the last of them frees it. */
struct lookup {
	_Atomic int users;
	int done_fd; /* readable once code and list are set */
	int code;
	int system_errno;
	struct addrinfo *list;
	char host[256];
	char port[8];
};

static void lookup_unref(struct lookup *l)
{
	if (atomic_fetch_sub(&l->users, 1) != 1)
		return;
	if (l->list != NULL)
		freeaddrinfo(l->list);
	(void)close(l->done_fd);
	free(l);
}

static int look_up(const char *host, const char *port, int flags, struct addrinfo **ret)
{
	const struct addrinfo hints = {.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = flags | AI_NUMERICSERV};
	return getaddrinfo(host, port, &hints, ret);
}

static void *run(void *data)
{
	struct lookup *l = data;
	l->code = look_up(l->host, l->port, 0, &l->list);
	l->system_errno = errno;
	const uint64_t one = 1;
	(void)!write(l->done_fd, &one, sizeof one);
	lookup_unref(l);
	return NULL;
}

/* Every signal stays with the process's own threads. */
static int start(struct lookup *l)
{
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;
	(void)sigfillset(&all);
	int rc = pthread_attr_init(&attr);
	if (rc != 0)
		return rc;
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&thread, &attr, run, l);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	(void)pthread_attr_destroy(&attr);
	return rc;
}

static struct lookup *lookup_new(const char *host, const char *port, struct err *err)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fd < 0) {
		(void)err_set(err, RC_UNAVAILABLE, "eventfd: %s", strerror(errno));
		return NULL;
	}
	struct lookup *l = xcalloc(1, sizeof *l);
	l->users = 2;
	l->done_fd = fd;
	(void)snprintf(l->host, sizeof l->host, "%s", host);
	(void)snprintf(l->port, sizeof l->port, "%s", port);
	int rc = start(l);
	if (rc == 0)
		return l;
	l->users = 1;
	lookup_unref(l);
	(void)err_set(err, RC_UNAVAILABLE, "thread: %s", strerror(rc));
	return NULL;
}

static enum rc lookup_result(struct lookup *l, struct addrinfo **ret, struct err *err)
{
	if (l->code != 0)
		return err_set(err, RC_UNAVAILABLE, "%s",
			l->code == EAI_SYSTEM ? strerror(l->system_errno) : gai_strerror(l->code));
	*ret = l->list;
	l->list = NULL;
	return RC_OK;
}

enum rc mq_resolve(const char *host, uint16_t port, uint64_t deadline_ms, int interrupt_fd,
	struct addrinfo **ret, struct err *err)
{
	char service[8];
	(void)snprintf(service, sizeof service, "%u", port);
	if (look_up(host, service, AI_NUMERICHOST, ret) == 0)
		return RC_OK;
	struct lookup *l = lookup_new(host, service, err);
	if (l == NULL)
		return RC_UNAVAILABLE;
	enum rc rc = mq_wait_fd(l->done_fd, POLLIN, deadline_ms, interrupt_fd, err);
	if (rc == RC_OK)
		rc = lookup_result(l, ret, err);
	lookup_unref(l);
	return rc;
}

/* SPDX-License-Identifier: MIT */
/* Connects without blocking: every address of the host gets its share of the time. */
#include "mq/tcp.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "mq/resolve.h"
#include "mq/wait.h"

/* Three times the largest frame: the kernel calls a socket writable while a third of this is free.
 * It doubles what is asked for and caps it at net.core.wmem_max (212992 unless changed). */
enum { SEND_BUFFER = 3 * 131072 };

static void set_option(int fd, int level, int option, int value)
{
	(void)setsockopt(fd, level, option, &value, sizeof value);
}

void mq_tcp_tune(int fd, uint32_t user_timeout_ms)
{
	set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (int)user_timeout_ms);
	set_option(fd, SOL_SOCKET, SO_SNDBUF, SEND_BUFFER);
}

static enum rc finish(int fd, uint64_t deadline_ms, int interrupt_fd, struct err *err)
{
	enum rc rc = mq_wait_fd(fd, POLLOUT, deadline_ms, interrupt_fd, err);
	if (rc != RC_OK)
		return rc;
	int error = 0;
	socklen_t size = sizeof error;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
		error = errno;
	if (error != 0)
		return err_set(err, RC_UNAVAILABLE, "%s", strerror(error));
	return RC_OK;
}

static enum rc connect_one(const struct addrinfo *a, uint64_t deadline_ms, int interrupt_fd,
	int *ret_fd, struct err *err)
{
	AUTO(fd) int fd =
		socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
	if (fd < 0)
		return err_set(err, RC_UNAVAILABLE, "socket: %s", strerror(errno));
	set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	if (connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
		if (errno != EINPROGRESS)
			return err_set(err, RC_UNAVAILABLE, "%s", strerror(errno));
		enum rc rc = finish(fd, deadline_ms, interrupt_fd, err);
		if (rc != RC_OK)
			return rc;
	}
	*ret_fd = TAKE_FD(fd);
	return RC_OK;
}

static void numeric(const struct addrinfo *a, char ret[MQ_NUMERIC_MAX])
{
	if (getnameinfo(a->ai_addr, a->ai_addrlen, ret, MQ_NUMERIC_MAX, NULL, 0, NI_NUMERICHOST) !=
		0)
		(void)snprintf(ret, MQ_NUMERIC_MAX, "?");
}

static uint64_t share_of(uint64_t deadline_ms, const struct addrinfo *a)
{
	uint64_t addresses = 0;
	for (; a != NULL; a = a->ai_next)
		addresses++;
	uint64_t now = clock_ms();
	return deadline_ms > now ? now + (deadline_ms - now) / addresses : now;
}

static enum rc connect_any(const struct addrinfo *list, uint64_t deadline_ms, int interrupt_fd,
	int *ret_fd, char ret_numeric[MQ_NUMERIC_MAX], struct err *err)
{
	AUTO(buf) struct buf why = {0};
	for (const struct addrinfo *a = list; a != NULL; a = a->ai_next) {
		numeric(a, ret_numeric);
		struct err one = {0};
		enum rc rc = connect_one(a, share_of(deadline_ms, a), interrupt_fd, ret_fd, &one);
		if (rc == RC_OK)
			return rc;
		if (rc != RC_UNAVAILABLE)
			return err_set(err, rc, "%s", one.text);
		buf_addf(&why, "%s%s: %s", why.size != 0 ? "; " : "", ret_numeric, one.text);
	}
	return err_set(err, RC_UNAVAILABLE, "%s", buf_str(&why));
}

enum rc mq_tcp_connect(const char *host, uint16_t port, uint32_t timeout_ms, int interrupt_fd,
	int *ret_fd, char ret_numeric[MQ_NUMERIC_MAX], struct err *err)
{
	uint64_t deadline_ms = clock_ms() + timeout_ms;
	struct addrinfo *list;
	enum rc rc = mq_resolve(host, port, deadline_ms, interrupt_fd, &list, err);
	if (rc != RC_OK) {
		(void)err_ctx(err, "looking up %s", host);
		return rc;
	}
	rc = connect_any(list, deadline_ms, interrupt_fd, ret_fd, ret_numeric, err);
	freeaddrinfo(list);
	return rc;
}

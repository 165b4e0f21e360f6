/* SPDX-License-Identifier: MIT */
/* The supervisor's line to a consumer. */
#include "ipc/control.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum rc control_pair(int ret_fds[2], struct err *err)
{
	int fds[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0)
		return err_set(err, RC_FATAL, "socketpair: %s", strerror(errno));
	ret_fds[0] = fds[0];
	ret_fds[1] = fds[1];
	return RC_OK;
}

union control_space {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int))];
};

enum rc control_send(int socket, const struct control *c, int fd, struct err *err)
{
	struct control copy = *c;
	struct iovec iov = {.iov_base = &copy, .iov_len = sizeof copy};
	union control_space space = {0};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	if (fd >= 0) {
		m.msg_control = space.bytes;
		m.msg_controllen = sizeof space.bytes;
		struct cmsghdr *h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(sizeof fd);
		memcpy(CMSG_DATA(h), &fd, sizeof fd);
	}
	for (;;) {
		ssize_t n = sendmsg(socket, &m, MSG_NOSIGNAL);
		if (n >= 0)
			return RC_OK;
		if (errno != EINTR)
			return err_set(err, RC_UNAVAILABLE, "control channel: %s", strerror(errno));
	}
}

int control_receive(int socket, struct control *ret, int *ret_fd)
{
	struct iovec iov = {.iov_base = ret, .iov_len = sizeof *ret};
	union control_space space;
	struct msghdr m = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = space.bytes,
		.msg_controllen = sizeof space.bytes};
	ssize_t n;
	*ret_fd = -1;
	do
		n = recvmsg(socket, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return 0;
	if (n != (ssize_t)sizeof *ret)
		return -1;
	const struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	if (h != NULL && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS)
		memcpy(ret_fd, CMSG_DATA(h), sizeof *ret_fd);
	return 1;
}

/* SPDX-License-Identifier: MIT */
/* Frames over a socketpair, with what is not yet sent kept in a buffer of ours. */
#include "ipc/channel.h"

#include "base/fd.h"

#include <errno.h>
#include <sys/socket.h>

enum { SOCKET_BUFFER = 1 << 20, KEEP_BUFFER = 4 << 20 };

void channel_init(struct channel *c, int take_fd)
{
	*c = (struct channel){.fd = take_fd};
}

void channel_done(struct channel *c)
{
	if (c->fd >= 0)
		(void)close(c->fd);
	c->fd = -1;
	buf_done(&c->in);
	buf_done(&c->out);
	c->in_used = c->out_used = 0;
}

enum rc channel_pair(int ret_fds[2], struct err *err)
{
	int fds[2];
	const int size = SOCKET_BUFFER;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
		return err_set(err, RC_FATAL, "socketpair: %s", strerror(errno));
	for (int i = 0; i < 2; i++)
		(void)setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
	ret_fds[0] = fds[0];
	ret_fds[1] = fds[1];
	return RC_OK;
}

size_t channel_begin(struct channel *c, uint8_t type)
{
	return frame_begin(&c->out, type);
}

void channel_end(struct channel *c, size_t at)
{
	frame_end(&c->out, at);
}

size_t channel_pending(const struct channel *c)
{
	return c->out.size - c->out_used;
}

/* A queue that is never quite empty must not keep what it has sent. */
static void forget_sent(struct channel *c)
{
	if (c->out_used < 65536 || c->out_used < channel_pending(c))
		return;
	buf_consume(&c->out, c->out_used);
	c->out_used = 0;
}

enum rc channel_flush(struct channel *c)
{
	while (channel_pending(c) != 0) {
		ssize_t n =
			send(c->fd, c->out.data + c->out_used, channel_pending(c), MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			forget_sent(c);
			return RC_OK;
		}
		if (n < 0)
			return RC_UNAVAILABLE;
		c->out_used += (size_t)n;
	}
	c->out_used = 0;
	buf_clear(&c->out);
	if (c->out.cap > KEEP_BUFFER)
		buf_done(&c->out); /* one large message must not keep its memory for ever */
	return RC_OK;
}

static void compact(struct channel *c)
{
	if (c->in_used == 0)
		return;
	buf_consume(&c->in, c->in_used);
	c->in_used = 0;
	if (c->in.size == 0 && c->in.cap > KEEP_BUFFER)
		buf_done(&c->in);
}

/* Room for the frame that has begun, so that a large one arrives in few reads. */
static size_t room_wanted(const struct channel *c)
{
	struct frame ignored;
	size_t size = 0;
	if (frame_decode(buf_bytes(&c->in), &ignored, &size) == FRAME_MORE &&
		size > c->in.size + 65536)
		return size - c->in.size;
	return 65536;
}

enum rc channel_fill(struct channel *c)
{
	compact(c);
	for (;;) {
		size_t room = room_wanted(c);
		uint8_t *at = buf_reserve(&c->in, room);
		ssize_t n = recv(c->fd, at, room, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return RC_OK;
		if (n <= 0)
			return RC_UNAVAILABLE;
		c->in.size += (size_t)n;
		return RC_OK;
	}
}

int channel_next(struct channel *c, struct frame *ret)
{
	size_t size = 0;
	if (c->in.size == c->in_used)
		return 0;
	struct bytes in = bytes_of(c->in.data + c->in_used, c->in.size - c->in_used);
	switch (frame_decode(in, ret, &size)) {
	case FRAME_OK:
		c->in_used += size;
		return 1;
	case FRAME_MORE:
		return 0;
	case FRAME_BAD:
		break;
	}
	return -1;
}

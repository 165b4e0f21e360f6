/* SPDX-License-Identifier: MIT */
/* One end of a socketpair that carries frames.  Non-blocking for the loop of a consumer, blocking
 * for a worker; the same code, by the descriptor's own mode. */
#ifndef INBOXD_IPC_CHANNEL_H
#define INBOXD_IPC_CHANNEL_H

#include "base/err.h"
#include "ipc/frame.h"

struct channel {
	int fd; /* owned */
	struct buf in;
	size_t in_used; /* bytes at the front of in that belong to frames already handed out */
	struct buf out;
	size_t out_used; /* bytes of out that are sent */
};

void channel_init(struct channel *c, int take_fd);
void channel_done(struct channel *c);

/* A connected pair, CLOEXEC; buffers large enough that a full batch of small messages fits. */
enum rc channel_pair(int ret_fds[2], struct err *err) MUST_CHECK;

/* Adding a frame: size_t at = channel_begin(c, type); buf_add…(&c->out, …); channel_end(c, at).
 * Nothing is sent before channel_flush, which must not come between the two. */
size_t channel_begin(struct channel *c, uint8_t type);
void channel_end(struct channel *c, size_t at);

/* Bytes added and not yet sent: what back-pressure looks at. */
size_t channel_pending(const struct channel *c);

/* Sends what it can.  RC_OK: all sent, or the peer's buffer is full (channel_pending tells);
 * RC_UNAVAILABLE: the peer is gone. */
enum rc channel_flush(struct channel *c) MUST_CHECK;

/* Reads what is there.  RC_OK (also when nothing was there); RC_UNAVAILABLE: end of file. */
enum rc channel_fill(struct channel *c) MUST_CHECK;

/* The next whole frame, valid until the next channel_fill; 1 if there is one, 0 if not, -1 if the
 * peer sends nonsense. */
int channel_next(struct channel *c, struct frame *ret);

#endif

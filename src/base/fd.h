/* SPDX-License-Identifier: MIT */
/* Descriptors and the scope attribute that closes and frees what a block owns. */
#ifndef INBOXD_BASE_FD_H
#define INBOXD_BASE_FD_H

#include "base/buf.h"
#include "base/err.h"

#include <stdlib.h>
#include <unistd.h>

/* AUTO(fd) int fd = open(…);  AUTO(free) char *s = …;  closed or freed when the block ends. */
#define AUTO(kind) __attribute__((cleanup(auto_##kind)))

static inline void auto_fd(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
}

static inline void auto_free(void *p)
{
	free(*(void **)p);
}

static inline void auto_buf(struct buf *b)
{
	buf_done(b);
}

/* Hands a descriptor over: the scope no longer closes it. */
static inline int take_fd(int *fd)
{
	int v = *fd;
	*fd = -1;
	return v;
}
#define TAKE_FD(fd) take_fd(&(fd))

/* Whole file into *ret (appended); RC_FATAL with path and reason, also when it is over max bytes. */
enum rc fd_read_file(const char *path, size_t max, struct buf *ret, struct err *err) MUST_CHECK;
enum rc fd_read_all(int fd, size_t max, struct buf *ret, struct err *err) MUST_CHECK;

/* A sealed, anonymous, read-only copy of data, offset 0; CLOEXEC. */
enum rc fd_memfd(const char *name, struct bytes data, int *ret_fd, struct err *err) MUST_CHECK;

/* write(2) until all is written; false on error. */
bool fd_write_all(int fd, const void *data, size_t n) MUST_CHECK;

#endif

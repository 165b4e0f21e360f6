/* SPDX-License-Identifier: MIT */
/* Reading and writing whole files and descriptors. */
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

enum rc fd_read_all(int fd, size_t max, struct buf *ret, struct err *err)
{
	size_t start = ret->size;
	for (;;) {
		uint8_t *at = buf_reserve(ret, 16384);
		ssize_t n = read(fd, at, 16384);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(err, RC_FATAL, "cannot read: %s", strerror(errno));
		if (n == 0)
			return RC_OK;
		ret->size += (size_t)n;
		if (ret->size - start > max)
			return err_set(err, RC_FATAL, "longer than %zu bytes", max);
	}
}

enum rc fd_read_file(const char *path, size_t max, struct buf *ret, struct err *err)
{
	AUTO(fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_set(err, RC_FATAL, "cannot open %s: %s", path, strerror(errno));
	if (fd_read_all(fd, max, ret, err) != RC_OK)
		return err_ctx(err, "%s", path);
	return RC_OK;
}

bool fd_write_all(int fd, const void *data, size_t n)
{
	const uint8_t *p = data;
	while (n > 0) {
		ssize_t w = write(fd, p, n);
		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			return false;
		p += w;
		n -= (size_t)w;
	}
	return true;
}

enum rc fd_memfd(const char *name, struct bytes data, int *ret_fd, struct err *err)
{
	AUTO(fd) int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || !fd_write_all(fd, data.data, data.size) || lseek(fd, 0, SEEK_SET) != 0)
		return err_set(err, RC_FATAL, "memfd %s: %s", name, strerror(errno));
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return err_set(err, RC_FATAL, "cannot seal memfd %s: %s", name, strerror(errno));
	*ret_fd = TAKE_FD(fd);
	return RC_OK;
}

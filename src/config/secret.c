/* SPDX-License-Identifier: MIT */
/* Secrets from files. */
#include "base/fd.h"
#include "config/config.h"

#include <errno.h>
#include <fcntl.h>

/* A buffer that held a secret leaves nothing behind in freed memory. */
static enum rc wipe(struct buf *secret, enum rc rc)
{
	if (secret->data != NULL)
		explicit_bzero(secret->data, secret->cap);
	secret->size = 0;
	return rc;
}

static const char *fault_of(struct bytes secret)
{
	if (secret.size == 0)
		return "is empty";
	if (memchr(secret.data, '\0', secret.size) != NULL)
		return "holds a NUL";
	if (memchr(secret.data, '\n', secret.size) != NULL)
		return "holds more than one line";
	return NULL;
}

enum rc config_read_secret(const char *path, struct buf *ret, struct err *err)
{
	/* Not a FIFO that nobody writes to: O_NONBLOCK reads it as empty. */
	AUTO(fd) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	buf_clear(ret);
	(void)buf_reserve(ret, 32768); /* once: growing would leave copies behind */
	if (fd < 0)
		return err_set(err, RC_UNAVAILABLE, "cannot open %s: %s", path, strerror(errno));
	if (fd_read_all(fd, CONFIG_SECRET_MAX, ret, err) != RC_OK) {
		(void)err_ctx(err, "%s", path);
		if (err != NULL)
			err->rc = RC_UNAVAILABLE;
		return wipe(ret, RC_UNAVAILABLE);
	}
	if (ret->size > 0 && ret->data[ret->size - 1] == '\n')
		ret->size -= ret->size > 1 && ret->data[ret->size - 2] == '\r' ? 2 : 1;
	const char *fault = fault_of(buf_bytes(ret));
	if (fault != NULL)
		return wipe(ret, err_set(err, RC_UNAVAILABLE, "%s %s", path, fault));
	return RC_OK;
}

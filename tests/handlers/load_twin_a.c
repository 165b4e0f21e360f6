/* SPDX-License-Identifier: MIT */
/* One of two handlers that define the same global names. */
#include <inboxd/handler.h>

INBOXD_EXPORT extern int32_t shared_name(void);
INBOXD_EXPORT extern int32_t shared_count;
int32_t shared_count = 100;

int32_t shared_name(void)
{
	return ++shared_count;
}

static int32_t handle(const struct inboxd_host *host, struct inboxd_call *call)
{
	(void)host;
	(void)call;
	return shared_name();
}
INBOXD_HANDLER(.handle = handle)

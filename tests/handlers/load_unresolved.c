/* SPDX-License-Identifier: MIT */
/* Calls what no library has. */
#include <inboxd/handler.h>

int frobnicate_order(void);

static int32_t handle(const struct inboxd_host *host, struct inboxd_call *call)
{
	(void)host;
	(void)call;
	return frobnicate_order();
}
INBOXD_HANDLER(.handle = handle)

/* SPDX-License-Identifier: MIT */
/* Asks for something of the future. */
#include <inboxd/handler.h>

static int32_t handle(const struct inboxd_host *host, struct inboxd_call *call)
{
	(void)host;
	(void)call;
	return INBOXD_DONE;
}
INBOXD_HANDLER(.flags = UINT64_C(1) << 40, .handle = handle)

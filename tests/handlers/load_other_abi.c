/* SPDX-License-Identifier: MIT */
/* A handler of another major ABI. */
#include <inboxd/handler.h>

static int32_t handle(const struct inboxd_host *host, struct inboxd_call *call)
{
	(void)host;
	(void)call;
	return INBOXD_DONE;
}

INBOXD_EXPORT extern const struct inboxd_handler inboxd_handler;
const struct inboxd_handler inboxd_handler = {
	.abi_major = 7,
	.size = sizeof(struct inboxd_handler),
	.handle = handle,
};

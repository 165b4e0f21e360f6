/* SPDX-License-Identifier: MIT */
/* As if built with the header of an older minor ABI: its table ends behind `handle`, and what lies
 * behind it in memory is not zero. */
#include <inboxd/handler.h>

struct older_handler {
	uint32_t abi_major, abi_minor;
	size_t size;
	const char *version;
	uint64_t flags;
	int32_t (*check)(const struct inboxd_host *host, struct inboxd_call *call);
	int32_t (*open)(const struct inboxd_host *host, struct inboxd_call *call);
	int32_t (*handle)(const struct inboxd_host *host, struct inboxd_call *call);
};

static int32_t handle(const struct inboxd_host *host, struct inboxd_call *call)
{
	(void)host;
	(void)call;
	return INBOXD_RETRY;
}

INBOXD_EXPORT extern const struct older_handler inboxd_handler;
const struct older_handler inboxd_handler = {
	.abi_major = INBOXD_ABI_MAJOR,
	.size = sizeof(struct older_handler),
	.version = "old",
	.handle = handle,
};

/* Used, so that it is there. */
INBOXD_EXPORT extern const uint64_t what_lies_behind[8];
const uint64_t what_lies_behind[8] = {1, 2, 3, 4, 5, 6, 7, 8};

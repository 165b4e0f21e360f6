/* SPDX-License-Identifier: MIT */
/* Says that it has more fields than it has. */
#include <inboxd/handler.h>

struct short_handler {
	uint32_t abi_major, abi_minor;
	size_t size;
	const char *version;
	uint64_t flags;
};

INBOXD_EXPORT extern const struct short_handler inboxd_handler;
const struct short_handler inboxd_handler = {
	.abi_major = INBOXD_ABI_MAJOR,
	.size = sizeof(struct inboxd_handler),
};

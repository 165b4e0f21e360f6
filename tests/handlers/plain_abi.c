/* SPDX-License-Identifier: MIT */
/* A handler as another language would bind it: the layout written down by hand, no header of
 * inboxd, no macro, values that no NUL follows.  It inserts key and value of its message. */
#include <stddef.h>
#include <stdint.h>

struct value {
	const uint8_t *data;
	size_t size;
};

/* Only what is used has its type; the rest keeps its place. */
struct host {
	uint32_t abi_major;
	uint32_t abi_minor;
	size_t size;
	struct value (*get)(void *call, const char *source);
	void *body, *header_kind, *header_int, *header_float, *header_name, *property_int, *attempt,
		*redelivered, *idempotency_key, *batch_size, *batch_item;
	int32_t (*exec)(
		void *call, const char *sql, uint32_t n, const struct value *args, void **rows);
};

struct handler {
	uint32_t abi_major;
	uint32_t abi_minor;
	size_t size;
	const char *version;
	uint64_t flags;
	void *check;
	void *open;
	int32_t (*handle)(const struct host *host, void *call);
	void *handle_batch;
	void *close;
};

static int32_t handle(const struct host *host, void *call)
{
	static const uint8_t text[4] = {'p', 'l', 'a', 'X'};
	if (host->abi_major != 1 || host->size < sizeof(struct host))
		return 2;
	const struct value args[2] = {host->get(call, "message_id"), {text, 3}};
	return host->exec(call, "INSERT INTO plain (id, word) VALUES ($1, $2)", 2, args, NULL);
}

__attribute__((visibility("default"))) extern const struct handler inboxd_handler;
const struct handler inboxd_handler = {
	.abi_major = 1,
	.abi_minor = 0,
	.size = sizeof(struct handler),
	.version = "plain 1",
	.handle = handle,
};

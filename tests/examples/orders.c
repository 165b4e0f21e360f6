/* SPDX-License-Identifier: MIT */
/* The smallest handler: two values of the message, one statement. */
#include <inboxd/handler.h>

static int32_t handle(const struct inboxd_host *host, struct inboxd_call *call)
{
	const struct inboxd_value args[] = {
		host->get(call, "json:/id"), host->get(call, "json:/total")};
	return host->exec(call, "INSERT INTO orders VALUES ($1, $2)", 2, args, NULL);
}
INBOXD_HANDLER(.handle = handle)

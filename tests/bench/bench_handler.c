/* SPDX-License-Identifier: MIT */
/* The handler of `make bench`: one row for each message.  It queues its statement, or waits for it with the
 * option `wait: 1`. */
#include <inboxd/handler.h>

static const char insert[] =
	"INSERT INTO bench_row (id, account, amount, sent_us) VALUES ($1, $2, $3, $4)";

static int32_t handle(const struct inboxd_host *host, struct inboxd_call *call)
{
	const struct inboxd_value values[] = {host->get(call, "json:/id"), host->get(call, "json:/account"),
		host->get(call, "json:/amount"), host->get(call, "json:/sent_us")};
	struct inboxd_rows *rows;
	if (host->option(call, "wait").data != NULL)
		return host->exec(call, insert, 4, values, &rows);
	return host->queue(call, insert, 4, values);
}

INBOXD_HANDLER(.handle = handle)

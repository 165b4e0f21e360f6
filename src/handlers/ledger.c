/* SPDX-License-Identifier: MIT */
/* An example to start from: a ledger of orders.  Each message is one order,
 *
 *     {"order": "A-17", "customer": "alice",
 *      "lines": [{"article": "pen", "quantity": 3, "price": "1.20"}, …]}
 *
 * and becomes one row in ledger_order and one row per line in ledger_line (ledger.sql beside this
 * file makes the tables).  There is no unique constraint on either table, and no "have I seen this
 * one?" in the code: inboxd commits these rows in the same transaction as the message's key, so
 * however often the broker delivers an order, its rows are written once.
 *
 * In the configuration:
 *
 *     consumers:
 *       orders:
 *         queue: orders
 *         handler: ledger
 *         options: {limit: 10000}      # optional: larger orders are put aside for a person
 *
 * To build it outside inboxd's tree:
 *
 *     cc -shared -fPIC -o ledger.so ledger.c $(pkg-config --cflags inboxd)
 */
#include <inboxd/handler.h>

#include <stdlib.h>

/* check runs when the configuration is read, without a database.  Whatever it complains about is
 * shown with its line in the file, and inboxd does not start (or goes on as it was, at a
 * reload). */
static int32_t check(const struct inboxd_host *host, struct inboxd_call *call)
{
	static const char *const known[] = {"limit"};
	int32_t result = host->only_options(call, "", 1, known);
	struct inboxd_value limit = host->option(call, "limit");

	if (limit.data != NULL) {
		char *end;
		double number = strtod(limit.data, &end);
		if (*end != '\0' || number <= 0)
			result = host->bad_option(call, "limit", "limit is a number above 0");
	}
	return result;
}

/* handle runs once for each new message, inside a transaction.  What it returns decides:
 * INBOXD_DONE commits, anything else takes back all that was written below. */
static int32_t handle(const struct inboxd_host *host, struct inboxd_call *call)
{
	struct inboxd_value order = host->get(call, "json:/order");
	struct inboxd_value customer = host->get(call, "json:/customer");
	struct inboxd_value lines =
		host->get(call, "json:/lines"); /* an array: comes as JSON text */

	/* A body that is no JSON has failed already.  A value that is missing is our own business:
	 * no later try can help, so the message is put aside with the reason, for somebody to look
	 * at. */
	if (order.data == NULL || customer.data == NULL || lines.data == NULL)
		return host->reject(call, "order, customer or lines is missing");

	/* queue does not wait for the server: the statement travels together with the next one. */
	const struct inboxd_value head[] = {order, customer};
	int32_t result = host->queue(
		call, "INSERT INTO ledger_order (order_id, customer) VALUES ($1, $2)", 2, head);
	if (result != INBOXD_DONE)
		return result;

	/* exec waits, and gives rows back.  Values always travel as parameters, never inside the
	 * text.  If the statement fails, it returns what is to be returned: reject for bad data
	 * ("quantity": "many"), retry for what may pass. */
	const struct inboxd_value body[] = {order, lines};
	struct inboxd_rows *rows;
	result = host->exec(call,
		"WITH line AS ("
		"  INSERT INTO ledger_line (order_id, article, quantity, price)"
		"  SELECT $1, article, quantity, price"
		"  FROM jsonb_to_recordset($2::jsonb) AS l(article text, quantity int, price "
		"numeric)"
		"  RETURNING quantity * price AS value)"
		" SELECT coalesce(sum(value), 0) FROM line",
		2, body, &rows);
	if (result != INBOXD_DONE)
		return result;

	/* Even now, with the rows written, the handler can change its mind: reject rolls them
	 * back. */
	struct inboxd_value total = host->rows_value(rows, 0, 0);
	struct inboxd_value limit = host->option(call, "limit");
	if (limit.data != NULL && strtod(total.data, NULL) > strtod(limit.data, NULL))
		return host->reject(call, "the order is beyond the limit");

	/* The result is stored with the key, in the same transaction. */
	return host->set_result(call, total.data, total.size, "text/plain");
}

INBOXD_HANDLER(.version = "1", .check = check, .handle = handle)

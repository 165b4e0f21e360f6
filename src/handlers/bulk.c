/* SPDX-License-Identifier: MIT */
/* An example of a handler that takes a whole batch at once: measurements,
 *
 *     {"sensor": "north-3", "at": "2024-05-01T12:00:00Z", "value": 21.5}
 *
 * written with COPY, PostgreSQL's fastest way in (bulk.sql beside this file makes the table).
 * inboxd hands over whatever is waiting, up to `batch.max` messages, and commits all of them
 * together; when anything goes wrong all is rolled back and run again by `handle`, message by
 * message, so that a bad one cannot take its neighbours with it.
 */
#include <inboxd/handler.h>

#include <stdlib.h>

/* A line of CSV that grows as needed. */
struct line {
	char *text;
	size_t size, room;
};

static void add(struct line *line, const char *text, size_t n)
{
	if (line->size + n > line->room) {
		line->room = 2 * (line->size + n);
		line->text = realloc(line->text, line->room);
		/* The worker may die at any time without harm: another one runs the batch again. */
		if (line->text == NULL)
			abort();
	}
	memcpy(line->text + line->size, text, n);
	line->size += n;
}

/* A field in quotes, quotes inside doubled: then it may hold commas, quotes and line ends.  A field
 * without quotes and without content is NULL. */
static void add_field(struct line *line, struct inboxd_value v)
{
	if (v.data == NULL)
		return;
	add(line, "\"", 1);
	for (size_t i = 0; i < v.size; i++)
		add(line, v.data[i] == '"' ? "\"\"" : v.data + i, v.data[i] == '"' ? 2 : 1);
	add(line, "\"", 1);
}

struct measurement {
	struct inboxd_value sensor, at, value;
};

/* 0 if the message is no measurement; then it is marked as failed. */
static int read_measurement(
	const struct inboxd_host *host, struct inboxd_call *call, struct measurement *ret)
{
	ret->sensor = host->get(call, "json:/sensor");
	ret->at = host->get(call, "json:/at");
	ret->value = host->get(call, "json:/value");
	/* A body that is no JSON: get has noted it.  A reject without reason says that we know. */
	if (host->is_failed(call))
		(void)host->reject(call, NULL);
	else if (ret->sensor.data == NULL || ret->at.data == NULL)
		(void)host->reject(call, "sensor or at is missing");
	return !host->is_failed(call);
}

/* One message: at low load, and when a batch has failed. */
static int32_t handle(const struct inboxd_host *host, struct inboxd_call *call)
{
	struct measurement m;
	if (!read_measurement(host, call, &m))
		return INBOXD_REJECT;
	const struct inboxd_value args[] = {m.sensor, m.at, m.value};
	return host->queue(
		call, "INSERT INTO measurement (sensor, at, value) VALUES ($1, $2, $3)", 3, args);
}

static int32_t copy_one(const struct inboxd_host *host, struct inboxd_call *call,
	const struct measurement *m, struct line *line)
{
	line->size = 0;
	add_field(line, m->sensor);
	add(line, ",", 1);
	add_field(line, m->at);
	add(line, ",", 1);
	add_field(line, m->value);
	add(line, "\n", 1);
	return host->copy_data(call, line->text, line->size);
}

/* Many messages.  Functions about a message take that message's own call, `item`; those about the
 * transaction take the batch's. */
static int32_t handle_batch(const struct inboxd_host *host, struct inboxd_call *call)
{
	struct line line = {NULL, 0, 0};
	int32_t result = host->copy_begin(
		call, "COPY measurement (sensor, at, value) FROM STDIN (FORMAT csv)");

	for (uint32_t i = 0; result == INBOXD_DONE && i < host->batch_size(call); i++) {
		struct measurement m;
		struct inboxd_call *item = host->batch_item(call, i);
		/* One that is marked as failed is left out; the others commit without it. */
		if (read_measurement(host, item, &m))
			result = copy_one(host, call, &m, &line);
	}
	free(line.text);
	return result == INBOXD_DONE ? host->copy_end(call) : result;
}

INBOXD_HANDLER(.version = "1", .handle = handle, .handle_batch = handle_batch)

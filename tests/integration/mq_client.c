/* SPDX-License-Identifier: MIT */
#include "mq_client.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct config_broker *client_broker(const char *uri)
{
	static struct config_broker b;
	static char text[512];
	static char *uris[] = {text};
	(void)snprintf(
		text, sizeof text, "%s", uri != NULL ? uri : environment("INBOXD_TEST_AMQP_URI"));
	b = (struct config_broker){
		.uris = {.items = uris, .n = 1}, .heartbeat_s = 30, .connect_timeout_ms = 10000};
	return &b;
}

struct mq_conn *client_open(const struct config_broker *broker)
{
	struct mq_conn *c = NULL;
	struct mq_place place;
	struct err err = {0};
	enum rc rc = mq_conn_open(broker, 0, "inboxd test", -1, &c, &place, &err);
	ck_assert_msg(rc == RC_OK, "%s: %s", place.address, err.text);
	return c;
}

void client_refused(const struct config_broker *broker, enum rc rc, const char *must_say)
{
	struct mq_conn *c = NULL;
	struct mq_place place;
	struct err err = {0};
	enum rc got = mq_conn_open(broker, 0, "inboxd test", -1, &c, &place, &err);
	ck_assert_msg(got == rc, "%s: %s", rc_name(got), err.text);
	ck_assert_msg(strstr(err.text, must_say) != NULL, "%s", err.text);
	ck_assert_msg(strstr(err.text, "hunter2") == NULL, "%s", err.text);
}

/* Also used for "nothing": MQ_NONE after ms. */
static enum rc next(struct mq_conn *c, int ms, struct mq_event *ret, struct err *err)
{
	int64_t deadline = now_ms() + ms;
	for (;;) {
		enum rc rc = mq_read(c, ret, err);
		if (rc != RC_OK || ret->kind != MQ_NONE || now_ms() >= deadline)
			return rc;
		struct pollfd p = {.fd = mq_conn_fd(c), .events = POLLIN};
		(void)poll(&p, 1, 50);
	}
}

struct mq_event client_event(struct mq_conn *c, enum mq_event_kind kind)
{
	struct mq_event e;
	struct err err = {0};
	ck_assert_msg(next(c, (int)(30000 * wait_factor()), &e, &err) == RC_OK, "%s", err.text);
	ck_assert_msg(e.kind == kind, "event %d, not %d: %u %s", e.kind, kind, e.code, e.text);
	return e;
}

void client_silent(struct mq_conn *c, int ms)
{
	struct mq_event e;
	struct err err = {0};
	ck_assert_msg(next(c, ms, &e, &err) == RC_OK, "%s", err.text);
	ck_assert_msg(e.kind == MQ_NONE, "event %d: %u %s", e.kind, e.code, e.text);
}

void client_lost(struct mq_conn *c, const char *must_say)
{
	struct mq_event e;
	struct err err = {0};
	ck_assert_int_eq(next(c, (int)(30000 * wait_factor()), &e, &err), RC_UNAVAILABLE);
	ck_assert_msg(strstr(err.text, must_say) != NULL, "%s", err.text);
}

struct mq_event client_delivery(struct mq_conn *c, struct buf *body)
{
	struct mq_event e = client_event(c, MQ_DELIVERY);
	buf_clear(body);
	while (body->size < e.body_size) {
		struct mq_event piece = client_event(c, MQ_BODY);
		buf_add(body, piece.piece.data, piece.piece.size);
	}
	ck_assert_uint_eq(body->size, e.body_size);
	return e;
}

const char *client_queue(struct mq_conn *c)
{
	static char names[4][64];
	static unsigned n;
	char *name = names[n++ % 4];
	char type[] = "classic", argument[] = "x-expires";
	struct config_argument expires = {
		.name = argument, .kind = ARGUMENT_INTEGER, .integer = 60000};
	const struct config_topology t = {.declare = true,
		.type = type,
		.durable = true,
		.arguments = &expires,
		.n_arguments = 1};
	struct err err = {0};
	(void)snprintf(name, sizeof names[0], "mq.%d.%u", (int)getpid(), n);
	ck_assert_msg(mq_declare(c, name, &t, &err) == RC_OK, "%s", err.text);
	return name;
}

void client_publish(
	struct mq_conn *c, const char *queue, struct bytes properties, struct bytes body)
{
	struct err err = {0};
	enum rc rc = mq_publish(c, bytes_str(""), bytes_str(queue), properties, body, &err);
	ck_assert_msg(rc == RC_OK, "%s", err.text);
	(void)client_event(c, MQ_CONFIRMED);
}

const char *client_pid(const struct mq_conn *c)
{
	static char text[256];
	struct sockaddr_in address;
	socklen_t size = sizeof address;
	ck_assert_int_eq(getsockname(mq_conn_fd(c), (struct sockaddr *)&address, &size), 0);
	(void)snprintf(text, sizeof text,
		"hd([P || P <- rabbit_networking:connections(), "
		"rabbit_reader:info(P, [peer_port]) =:= [{peer_port, %u}]])",
		ntohs(address.sin_port));
	return text;
}

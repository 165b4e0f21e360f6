/* SPDX-License-Identifier: MIT */
/* As much of AMQP 0-9-1 and of PostgreSQL's protocol as the proxy needs: where a frame or message
 * begins and what it is, however it was cut into pieces. */
#ifndef INBOXD_TESTS_INTEGRATION_WIRE_H
#define INBOXD_TESTS_INTEGRATION_WIRE_H

#include "proxy.h"

enum { WIRE_BASIC = 60, WIRE_METHODS = 256, WIRE_HEAD = 21 };

/* What is counted and dropped; shared by all connections of a proxy. */
struct wire_watch {
	uint64_t methods[WIRE_METHODS]; /* of class basic, by the client */
	uint64_t commits;
	int drops, spoils; /* to come */
	uint16_t class_id, method_id;
};

/* One direction of one connection. */
struct wire {
	enum proxy_protocol protocol;
	enum proxy_way way;
	struct wire *other; /* of the same connection, towards the client */
	uint64_t raw_left;  /* bytes before the first message, or between */
	uint8_t head[WIRE_HEAD];
	size_t head_size;
	uint64_t body_left; /* of the message whose head is known */
	bool is_dropping;
};

enum wire_result { WIRE_PASS, WIRE_CUT };

void wire_init(
	struct wire *w, enum proxy_protocol protocol, enum proxy_way way, struct wire *other);
/* Appends to out what is to be passed on of in; out has room for size + WIRE_HEAD.  WIRE_CUT: the
 * connection ends behind it. */
enum wire_result wire_pass(struct wire *w, struct wire_watch *watch, const uint8_t *in, size_t size,
	uint8_t *out, size_t *ret_size);

#endif

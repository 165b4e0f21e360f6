/* SPDX-License-Identifier: MIT */
/* A broker that says what a test wants, in a thread of the test: for what no real broker can be
 * brought to do. */
#ifndef INBOXD_TESTS_UNIT_MQ_FAKE_BROKER_H
#define INBOXD_TESTS_UNIT_MQ_FAKE_BROKER_H

#include "base/buf.h"
#include "config/config.h"

#include <pthread.h>

struct fake_broker {
	int listener;
	uint16_t port;
	uint16_t heartbeat_s; /* offered in tune; 0: none */
	uint32_t frame_max;   /* the same; 0: 131072 */
	void (*script)(struct fake_broker *f, int fd);
	pthread_t thread;
	uint8_t sasl[256]; /* the response of the last login */
	size_t sasl_size;
	/* a broker configuration that leads here: user u, password p, heartbeat 60 s, 2 s to
	 * connect */
	struct config_broker broker;
	char uri[64];
	char *uris[1];
};

/* Accepts one connection in a thread and runs the script on it. */
void fake_start(struct fake_broker *f, void (*script)(struct fake_broker *f, int fd));
/* Only listens; with a backlog of 0 that is already full if is_full. */
void fake_listen(struct fake_broker *f, bool is_full);
/* Waits for the script's end. */
void fake_stop(struct fake_broker *f);

/* For scripts.  A failure ends the test. */
void fake_greet(int fd);                         /* up to connection.start */
void fake_login(struct fake_broker *f, int fd);  /* up to connection.open-ok */
void fake_accept(struct fake_broker *f, int fd); /* up to channel.open-ok */
void fake_send(int fd, const struct buf *frames);
/* The next frame that is no heartbeat: its method (class << 16 | id), or its type if it is no
 * method; 0 at the end of file.  Its payload into *payload if not NULL. */
uint32_t fake_receive(int fd, struct buf *payload);
/* Receives until that method comes. */
void fake_await(int fd, uint32_t method);

/* Building frames. */
void add_frame(struct buf *out, uint8_t type, uint16_t channel, struct bytes payload);
void add_method(struct buf *out, uint16_t channel, uint32_t method, struct bytes arguments);
void add_deliver(
	struct buf *out, uint64_t tag, bool redelivered, const char *exchange, const char *key);
void add_header(struct buf *out, uint64_t body_size, struct bytes properties);
void add_body(struct buf *out, struct bytes piece);
void add_close(
	struct buf *out, uint16_t channel, uint16_t code, const char *text); /* 0: connection */
void add_short(struct buf *out, const char *text);

#define METHOD(class_, id_) ((uint32_t)(class_) << 16 | (id_))

#endif

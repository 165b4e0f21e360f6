/* SPDX-License-Identifier: MIT */
/* For tests of the mq room against the private broker: connections, events, queues that go by
 * themselves. */
#ifndef INBOXD_TESTS_INTEGRATION_MQ_CLIENT_H
#define INBOXD_TESTS_INTEGRATION_MQ_CLIENT_H

#include "harness.h"

#include "config/config.h"
#include "mq/mq.h"

/* The private broker as the tests' own user; uri (NULL: INBOXD_TEST_AMQP_URI) is borrowed. */
struct config_broker *client_broker(const char *uri);

struct mq_conn *client_open(const struct config_broker *broker);
/* Must fail with that rc; the text must hold must_say and never "hunter2". */
void client_refused(const struct config_broker *broker, enum rc rc, const char *must_say);

/* The next event, which must be of that kind and come within half a minute. */
struct mq_event client_event(struct mq_conn *c, enum mq_event_kind kind);
/* A whole delivery with its body. */
struct mq_event client_delivery(struct mq_conn *c, struct buf *body);
/* Reads until the connection is lost; the text must hold must_say. */
void client_lost(struct mq_conn *c, const char *must_say);
/* No event for a while. */
void client_silent(struct mq_conn *c, int ms);

/* A new classic queue, gone a minute after its last use; static. */
const char *client_queue(struct mq_conn *c);
/* Publishes to a queue and waits for the confirm; needs mq_confirm_select before. */
void client_publish(
	struct mq_conn *c, const char *queue, struct bytes properties, struct bytes body);

/* The broker's own name for this connection, as an Erlang expression of its pid. */
const char *client_pid(const struct mq_conn *c);

#endif

/* SPDX-License-Identifier: MIT */
/* Stands between the daemon and the broker or the database, in a thread of the test: cuts, resets,
 * freezes and delays connections, knows the protocol well enough to drop a single answer or frame,
 * and counts what passes.  Plain TCP only; tests/unit/mq/relay.h ends TLS.
 *
 *     struct proxy *broker = proxy_new(PROXY_AMQP, AMQP_PORT);
 *     w.broker_port = proxy_port(broker);   // for the configurations written from here on
 *     …
 *     proxy_free(broker);
 *
 * Every command has taken effect when it returns. */
#ifndef INBOXD_TESTS_INTEGRATION_PROXY_H
#define INBOXD_TESTS_INTEGRATION_PROXY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum proxy_protocol { PROXY_BYTES, PROXY_AMQP, PROXY_POSTGRES };
enum proxy_way { PROXY_TO_SERVER, PROXY_TO_CLIENT, PROXY_BOTH };

struct proxy;

/* Listens on a free port of 127.0.0.1 and passes on to `target` there. */
struct proxy *proxy_new(enum proxy_protocol protocol, uint16_t target);
void proxy_free(struct proxy *p); /* cuts what is open; NULL is fine */
uint16_t proxy_port(const struct proxy *p);

/* ---- every connection that is open now: returns how many there were -------------- */

int proxy_cut(struct proxy *p);   /* closes both sides; what was read is passed on before */
int proxy_reset(struct proxy *p); /* both sides get a RST, what was not passed on is lost */

/* ---- until taken back ------------------------------------------------------------ */

/* New connections are refused, as by a host on which no server runs; those that are open stay. */
void proxy_refuse(struct proxy *p, bool on);
/* After so many further bytes nothing passes that way any more, neither data nor the end of the
 * connection, and nothing more is read, so that the sender's buffers fill up.  Connections can
 * still be made, also to a frozen proxy.  0: now. */
void proxy_freeze(struct proxy *p, enum proxy_way way, uint64_t after_bytes);
void proxy_thaw(struct proxy *p);
/* What arrives is passed on so much later; also lowers throughput to 64 KiB in that time. */
void proxy_delay(struct proxy *p, enum proxy_way way, int ms);

/* ---- triggers -------------------------------------------------------------------- */

/* PROXY_POSTGRES: the next n times that the server says that COMMIT is done, the client does not
 * hear of it: its connection is cut instead. */
void proxy_drop_commits(struct proxy *p, int n);
/* PROXY_AMQP: the next n frames of this method towards the server are swallowed. */
void proxy_drop_method(struct proxy *p, uint16_t class_id, uint16_t method_id, int n);
/* PROXY_AMQP: the properties of the next n messages to the client cannot be decoded. */
void proxy_spoil_properties(struct proxy *p, int n);
/* How many drops are still to come. */
int proxy_drops_left(struct proxy *p);

/* ---- what has passed, since proxy_new -------------------------------------------- */

/* PROXY_AMQP: method frames of the client, swallowed ones included: basic.ack 60,80; basic.reject
 * 60,90; basic.nack 60,120. */
uint64_t proxy_methods(struct proxy *p, uint16_t class_id, uint16_t method_id);
uint64_t proxy_commits(
	struct proxy *p); /* PROXY_POSTGRES: COMMITs done, dropped answers included */
uint64_t proxy_bytes(struct proxy *p, enum proxy_way way);
uint64_t proxy_accepted(struct proxy *p);
int proxy_open(struct proxy *p); /* connections now */

#endif

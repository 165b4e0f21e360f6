/* SPDX-License-Identifier: MIT */
/* One AMQP 0-9-1 connection with one channel, read frame by frame.  Nothing here waits for the
 * broker to answer except where it says so; every wait is bounded.  What writes waits for a peer
 * that does not read, but for two heartbeats at most, and then the connection is lost.  After
 * RC_UNAVAILABLE from anything but mq_conn_open and mq_declare the connection is lost: only
 * mq_conn_close may follow (others fail at once).  The only room that includes <amqp.h>. */
#ifndef INBOXD_MQ_MQ_H
#define INBOXD_MQ_MQ_H

#include "base/bytes.h"
#include "base/err.h"
#include "config/config.h"

struct mq_conn;

enum mq_event_kind {
	MQ_NONE,      /* nothing more for now */
	MQ_DELIVERY,  /* a message begins; body_size bytes follow as MQ_BODY events (none if 0) */
	MQ_BODY,      /* a piece of its body, in order */
	MQ_CONSUMING, /* basic.consume-ok */
	MQ_CANCELLED, /* the server cancelled the consumer (queue deleted, node gone) */
	MQ_CANCEL_OK, /* answer to mq_cancel: no delivery follows */
	MQ_CHANNEL_CLOSED, /* by the server; already answered; code and text say why; a message
			    * whose pieces were under way is void too */
	MQ_CLOSED,         /* connection closed by the server; already answered; drop it */
	MQ_BLOCKED,        /* the broker has an alarm and blocks publishers; text says why */
	MQ_UNBLOCKED,
	MQ_RETURNED,  /* a mandatory message could not be routed; code, text, exchange,
		       * routing_key, properties; its body is read over */
	MQ_CONFIRMED, /* publisher confirm: tag, multiple */
	MQ_NACKED,
	MQ_UNDECODABLE, /* a delivery whose properties the library cannot decode: tag, exchange,
			 * routing_key, redelivered are known.  Only mq_reject, mq_heartbeat and
			 * mq_conn_close may follow. */
};

/* Pointers live until the next call of mq_read or of anything that waits. */
struct mq_event {
	enum mq_event_kind kind;
	uint64_t tag;
	bool redelivered; /* MQ_DELIVERY, MQ_UNDECODABLE */
	bool multiple;    /* MQ_CONFIRMED, MQ_NACKED */
	struct bytes exchange, routing_key;
	struct bytes properties; /* MQ_DELIVERY, MQ_RETURNED: flags and list in wire form */
	uint64_t body_size;      /* MQ_DELIVERY */
	struct bytes piece;      /* MQ_BODY */
	uint16_t code;           /* …_CLOSED, MQ_RETURNED */
	char text[256];          /* escaped to printable ASCII */
};

/* Where a connection goes: for log lines; no secrets. */
struct mq_place {
	char address[300]; /* host:port */
	char vhost[256];
	char user[256];
};

/* Connects to the broker's URI number `which` (modulo their count): TCP, TLS, login with our
 * capabilities and `name` as connection name (and consumer tag), then opens the channel.  Waits, in
 * all, at most twice connect_timeout_ms; gives up at once with RC_RETRY when interrupt_fd (>= 0)
 * becomes readable during name lookup and TCP connect.  Password file and certificates are read
 * here.  RC_UNAVAILABLE: try again later (any refusal by the broker too, for an operator may mend
 * it there).  RC_FATAL: the URI cannot be read.  ret_place is set in any case, as far as it is
 * known.
 */
enum rc mq_conn_open(const struct config_broker *broker, size_t which, const char *name,
	int interrupt_fd, struct mq_conn **ret, struct mq_place *ret_place,
	struct err *err) MUST_CHECK;

/* Says goodbye, waiting at most 1 s for the answer (is_polite), or just drops the socket. */
void mq_conn_close(struct mq_conn *c, bool is_polite);

/* To poll for POLLIN; valid, and the same, until mq_conn_close. */
int mq_conn_fd(const struct mq_conn *c);

/* The next event.  Must be called until it gives MQ_NONE before polling the descriptor again, and
 * at least every heartbeat/2 s even when nothing is readable.  RC_UNAVAILABLE: the connection is
 * lost (heartbeats missed, socket error, bytes that are not AMQP); err says how. */
enum rc mq_read(struct mq_conn *c, struct mq_event *ret, struct err *err) MUST_CHECK;

/* Sends a heartbeat now; for those who do not read for a while. */
enum rc mq_heartbeat(struct mq_conn *c, struct err *err) MUST_CHECK;
uint32_t mq_heartbeat_s(const struct mq_conn *c); /* as negotiated, never 0 */

/* Opens the channel anew after MQ_CHANNEL_CLOSED.  Waits for the answer. */
enum rc mq_channel_reopen(struct mq_conn *c, struct err *err) MUST_CHECK;

/* From here to mq_reject, and for mq_publish: RC_RETRY, and nothing is sent, while the channel is
 * closed (after MQ_CHANNEL_CLOSED): tags of a closed channel are void, its messages are delivered
 * again. */

/* basic.qos (prefetch 1…65535), then basic.consume with manual ack; the answer comes as
 * MQ_CONSUMING or MQ_CHANNEL_CLOSED. */
enum rc mq_consume(
	struct mq_conn *c, const char *queue, uint16_t prefetch, struct err *err) MUST_CHECK;
/* basic.cancel; deliveries go on until MQ_CANCEL_OK. */
enum rc mq_cancel(struct mq_conn *c, struct err *err) MUST_CHECK;

/* tag is never 0 (asserted: 0 with multiple would settle everything). */
enum rc mq_ack(struct mq_conn *c, uint64_t tag, bool multiple, struct err *err) MUST_CHECK;
/* Gives back: delivered again. */
enum rc mq_nack(struct mq_conn *c, uint64_t tag, bool multiple, struct err *err) MUST_CHECK;
/* For good: dead-letters. */
enum rc mq_reject(struct mq_conn *c, uint64_t tag, struct err *err) MUST_CHECK;

/* Declares queue and bindings as the topology says.  Waits for the answers; not while consuming,
 * whose deliveries a refusal would make void.  RC_FATAL when the queue exists with other
 * properties: err names the queue and what the broker said differs and what to do.  RC_UNAVAILABLE
 * for the rest.  After a refusal (mq_is_lost tells it from a lost connection) the channel has been
 * opened anew. */
enum rc mq_declare(struct mq_conn *c, const char *queue, const struct config_topology *topology,
	struct err *err) MUST_CHECK;

/* False while the connection can still be used. */
bool mq_is_lost(const struct mq_conn *c);

/* Confirms on this channel from now on.  Waits for the answer. */
enum rc mq_confirm_select(struct mq_conn *c, struct err *err) MUST_CHECK;
/* Publishes with mandatory set; properties in wire form.  Outcome: MQ_CONFIRMED, MQ_NACKED,
 * preceded by MQ_RETURNED if it could not be routed.  RC_REJECT, and nothing is sent: this can be
 * no message. */
enum rc mq_publish(struct mq_conn *c, struct bytes exchange, struct bytes routing_key,
	struct bytes properties, struct bytes body, struct err *err) MUST_CHECK;

#endif

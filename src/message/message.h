/* SPDX-License-Identifier: MIT */
/* One message as it travels between our processes and into inboxd.parked: every byte as the broker
 * gave it, properties in AMQP wire form.  Pure. */
#ifndef INBOXD_MESSAGE_MESSAGE_H
#define INBOXD_MESSAGE_MESSAGE_H

#include "base/buf.h"

/* Borrowed view. */
struct message {
	struct bytes exchange;    /* at most 255 bytes */
	struct bytes routing_key; /* at most 255 bytes */
	struct bytes properties;  /* property flags and list of AMQP 0-9-1, as on the wire */
	struct bytes body;
	uint64_t body_size; /* of the original; body.size unless the body is streamed elsewhere */
	bool redelivered;
};

/* Appends the message; what message_decode reads.  The body is the last run of bytes, so that it
 * can be appended piece by piece: message_encode_head (body.data may be NULL), then body.size
 * bytes. */
void message_encode(struct buf *out, const struct message *m);
void message_encode_head(struct buf *out, const struct message *m);

/* Takes one message off the reader; false, and *ret untouched, if it is malformed. */
bool message_decode(struct reader *r, struct message *ret);

/* Appends what tells the message from others, but for its body: where it was published to, its
 * properties and the size of its body.  The same bytes for every delivery of it: headers in which a
 * broker keeps count of them are left out, and the others sorted, for a broker that adds its own sorts
 * all of them. */
void message_identify(const struct message *m, struct buf *out);

#endif

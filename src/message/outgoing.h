/* SPDX-License-Identifier: MIT */
/* A message to be published, and what became of it, as they travel between processes.  Pure. */
#ifndef INBOXD_MESSAGE_OUTGOING_H
#define INBOXD_MESSAGE_OUTGOING_H

#include "base/buf.h"

/* A message on its way from the worker that took its row to the publisher.  Borrowed. */
struct outgoing {
	int64_t id, token;
	uint32_t attempts;                  /* this one included */
	struct bytes exchange, routing_key; /* at most 255 bytes each */
	struct bytes properties;            /* in wire form */
	struct bytes body;
};

/* What became of it. */
struct outcome {
	int64_t id, token;
	bool is_sent;      /* the broker has it */
	uint32_t delay_ms; /* else: until it is tried again; 0: it was not tried at all */
	struct bytes error;
};

/* In flat form; decoding is false, and *ret untouched, if it is malformed. */
void outgoing_encode(struct buf *out, const struct outgoing *o);
bool outgoing_decode(struct reader *r, struct outgoing *ret);
void outcome_encode(struct buf *out, const struct outcome *o);
bool outcome_decode(struct reader *r, struct outcome *ret);

#endif

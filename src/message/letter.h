/* SPDX-License-Identifier: MIT */
/* A message that failed, made into one that anybody may publish: a dead letter.  Pure. */
#ifndef INBOXD_MESSAGE_LETTER_H
#define INBOXD_MESSAGE_LETTER_H

#include "base/buf.h"

/* What is known of the message.  Borrowed. */
struct letter {
	struct bytes properties;                   /* as it was published, in wire form */
	struct bytes exchange, routing_key, queue; /* where it came from */
	struct bytes consumer, reason, detail;
	int64_t parked;
	uint32_t attempts;
	bool is_without_body; /* its body is too large to be sent */
	uint64_t body_size;
};

/* No letter's properties are larger, in bytes.  The broker takes less than a frame of 131072, and
 * wants to add headers of its own when the letter goes on from its queue. */
#define LETTER_MAX (131072 - 4096)
/* Nor is a detail. */
#define LETTER_DETAIL_MAX 8192

/* Appends the letter's properties in wire form.
 *
 * Kept as they are: every property and header that means nothing to a broker, with its type and
 * bytes, the message id among them.  What a broker would act on, or refuse from whoever we are
 * logged in as, is told in a header instead: user_id, expiration and a reply_to for direct replies
 * as inboxd-user-id, inboxd-expiration and inboxd-reply-to; headers that route, delay or count
 * deaths under their name with inboxd- in front.  Left out: headers in which a broker keeps count
 * of deliveries.  delivery_mode is 2.  Added: inboxd-consumer, -parked-id, -reason, -detail (UTF-8
 * without NUL), -attempts, -queue, -exchange, -routing-key, and -body-size where the body is not
 * sent.  They take the place of those that an earlier letter has left, so that a letter of a letter
 * is no larger.
 *
 * What does not fit LETTER_MAX: the detail is cut first, then the largest of the message's own
 * headers are left out, counted in inboxd-headers-dropped. */
void letter_encode(const struct letter *l, struct buf *out);

#endif

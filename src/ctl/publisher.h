/* SPDX-License-Identifier: MIT */
/* Publishes one message, or copies of it, and waits until the broker has taken each. */
#ifndef INBOXD_CTL_PUBLISHER_H
#define INBOXD_CTL_PUBLISHER_H

#include "message/message.h"
#include "mq/mq.h"

#define PUBLISHER_WINDOW 256 /* copies under way at once */

/* Which confirms are still to come; pure. */
struct publisher_window {
	uint64_t sent;    /* tags 1 to sent were used */
	uint64_t settled; /* all tags up to this one are answered */
	bool answered[PUBLISHER_WINDOW];
};
bool publisher_has_room(const struct publisher_window *w);
/* An answer of the broker; a tag that is not under way is passed over. */
void publisher_settle(struct publisher_window *w, uint64_t tag, bool multiple);

struct publish_result {
	uint64_t confirmed; /* copies the broker has taken and routed */
	bool is_returned;   /* one could not be routed; no more were sent */
	uint16_t code;      /* of the return, or of the channel's end; 0: none */
	char text[256];
	struct mq_place place;
};

/* Connects to the first of the broker's URIs that answers.  RC_OK also when messages came back (see
 * ret); RC_REJECT when the broker closed the channel over the message (code); RC_UNAVAILABLE. */
enum rc publish_copies(const struct config_broker *broker, const struct message *m, uint64_t copies,
	struct publish_result *ret, struct err *err) MUST_CHECK;

#endif

/* SPDX-License-Identifier: MIT */
/* Whether the broker has given a message out so often that it must be kept before it runs once
 * more.  Pure. */
#ifndef INBOXD_CONSUMER_REDELIVERY_H
#define INBOXD_CONSUMER_REDELIVERY_H

#include "message/props.h"

#include <stdbool.h>

/* A quorum queue counts in the header x-delivery-count and drops a message past its limit: half of
 * that is often.  A broker that does not count tells only that it was given out before: then once
 * is often, because a run that takes the whole daemon with it would be repeated for ever.
 * may_count: not false for certain, as of a queue that is known to be no quorum queue; its header is
 * another queue's or a publisher's. */
bool redelivery_is_often(
	const struct props *p, bool redelivered, bool may_count, uint32_t delivery_limit);

#endif

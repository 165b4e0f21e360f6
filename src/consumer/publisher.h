/* SPDX-License-Identifier: MIT */
/* The thread that publishes.  Publishing waits for the broker, which may be slow, blocked or gone;
 * the loop, which has the heartbeats and acknowledgements, must not.  The two share nothing but a
 * channel. */
#ifndef INBOXD_CONSUMER_PUBLISHER_H
#define INBOXD_CONSUMER_PUBLISHER_H

#include "base/err.h"
#include "config/config.h"

struct publisher;

/* Starts it.  *ret_fd is the loop's end of the channel (non-blocking, to be closed by the caller):
 * TO_PUBLISH frames in, for each of them one FROM_PUBLISHED out - or none, if it is stopped while
 * the broker has it.  Messages are published one by one on a connection of its own, which is opened
 * when there is something to send and closed after a while without.  config is borrowed, and only
 * read. */
enum rc publisher_start(const struct config_consumer *config, struct publisher **ret, int *ret_fd,
	struct err *err) MUST_CHECK;

/* Asks it to end: nothing more is published; what it was given is answered as not tried, then the
 * channel shows end of file.  Returns at once. */
void publisher_stop(struct publisher *p);

/* Frees it after the end of file. */
void publisher_join(struct publisher *p);

/* How long a message waits after so many attempts: 1 s doubling to 5 min, spread by 20 %.  Pure. */
uint32_t publisher_delay_ms(uint32_t attempts, uint32_t random);

#endif

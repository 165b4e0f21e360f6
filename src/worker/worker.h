/* SPDX-License-Identifier: MIT */
/* A worker: one PostgreSQL session, one loaded handler, one batch at a time.  Never sees AMQP. */
#ifndef INBOXD_WORKER_WORKER_H
#define INBOXD_WORKER_WORKER_H

#include "base/stats.h"
#include "config/config.h"
#include "handler/loader.h"

/* Runs until the consumer closes the channel; returns the exit code.  The copy and channel_fd are
 * taken. */
int worker_main(const struct config_consumer *consumer, struct handler_copy *handler, int channel_fd,
	struct stats_slot *slot);

#endif

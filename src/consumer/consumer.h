/* SPDX-License-Identifier: MIT */
/* A consumer: owns the AMQP connection, hands messages to its workers, settles deliveries.  Never sees the
 * database. */
#ifndef INBOXD_CONSUMER_CONSUMER_H
#define INBOXD_CONSUMER_CONSUMER_H

#include "base/stats.h"
#include "config/config.h"

/* Runs until the supervisor tells it to drain or is gone; returns the exit code.  control_fd is taken. */
int consumer_main(const struct config_consumer *config, int control_fd, struct stats_slot *slot);

#endif

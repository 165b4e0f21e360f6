/* SPDX-License-Identifier: MIT */
/* From what a handler said to what is done with the message.  Pure. */
#ifndef INBOXD_WORKER_VERDICT_H
#define INBOXD_WORKER_VERDICT_H

#include "handler/host.h"
#include "base/stats.h"
#include "inbox/inbox.h"

/* Fills state, reason, delay of a parking from the verdict of a run that was alone and not HOST_DONE.
 * attempts counts that run. */
void verdict_dispose(const struct config_consumer *c, const struct host_item *item, uint32_t attempts,
	uint32_t random, struct park *park);

/* The longest delay: a year. */
#define VERDICT_DELAY_MAX_MS (UINT64_C(366) * 24 * 3600 * 1000)

/* The same for a run that ended with its worker or its session; park->crashes and attempts count it. */
void verdict_dispose_crash(
	const struct config_consumer *c, uint32_t attempts, uint32_t random, struct park *park);

/* How many times a session may be lost over one message that runs alone until the message is charged with
 * it, whatever others commit in between.  What the server lacks (room, memory) it may lack for this
 * handler's tables only, where no probe of ours would notice. */
uint32_t verdict_losses_believed(const char *sqlstate);

/* How often a transaction that the server could not serialise is run again at once. */
#define VERDICT_SERIALIZATION_TRIES 5

/* Which counter a duplicate goes to. */
enum stats_counter verdict_duplicate_cause(uint8_t item_flags, bool redelivered);

#endif

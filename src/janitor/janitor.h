/* SPDX-License-Identifier: MIT */
/* The janitor: forgets keys that are older than their consumer's retention.keep.  Talks to
 * databases alone; may be killed at any moment. */
#ifndef INBOXD_JANITOR_JANITOR_H
#define INBOXD_JANITOR_JANITOR_H

#include "base/stats.h"
#include "config/config.h"

/* Whether there is anything to do for one: some consumer's keys are not kept for ever. */
bool janitor_is_wanted(const struct config *config);

/* Runs until SIGTERM, which ends it at once.  slot: its own; what it forgets is counted in the
 * consumers' slots of stats. */
_Noreturn void janitor_main(
	const struct config *config, struct stats *stats, struct stats_slot *slot);

#endif

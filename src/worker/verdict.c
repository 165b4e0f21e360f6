/* SPDX-License-Identifier: MIT */
/* What becomes of a message that its handler did not finish. */
#include "worker/verdict.h"

#include "ipc/protocol.h"

static const char *reason_of(const struct host_item *item)
{
	if (item->verdict == HOST_BROKEN)
		return "broken";
	if (strcmp(item->sqlstate, "57014") == 0)
		return park_reason_name(PARK_TIMED_OUT); /* statement_timeout; or somebody cancelled it */
	if (item->sqlstate[0] != '\0')
		return "sql_error";
	return item->verdict == HOST_REJECT ? "rejected" : "retry";
}

void verdict_dispose(const struct config_consumer *c, const struct host_item *item, uint32_t attempts,
	uint32_t random, struct park *park)
{
	bool may_wait = item->verdict == HOST_RETRY && attempts < retry_attempts_max(c);
	park->state = may_wait ? "waiting" : "failed";
	park->reason = reason_of(item);
	park->detail = item->reason;
	park->sqlstate = item->sqlstate;
	park->attempts = attempts;
	park->delay_ms = 0;
	if (may_wait)
		park->delay_ms =
			item->delay_ms != 0 ? item->delay_ms : retry_delay_ms(c, attempts, random);
	/* A handler's own number may be any; the server's calendar ends somewhere. */
	if (park->delay_ms > VERDICT_DELAY_MAX_MS)
		park->delay_ms = VERDICT_DELAY_MAX_MS;
}

void verdict_dispose_crash(
	const struct config_consumer *c, uint32_t attempts, uint32_t random, struct park *park)
{
	bool may_wait = park->crashes < c->crash_limit && attempts < retry_attempts_max(c);
	park->state = may_wait ? "waiting" : "failed";
	park->attempts = attempts;
	park->delay_ms = may_wait ? retry_delay_ms(c, attempts, random) : 0;
}

uint32_t verdict_losses_believed(const char *sqlstate)
{
	/* About ten minutes, once the back-off has reached its end. */
	enum { FEW = 5, MANY = 120 };
	return sqlstate[0] == '\0' || strncmp(sqlstate, "57P", 3) == 0 ? FEW : MANY;
}

enum stats_counter verdict_duplicate_cause(uint8_t item_flags, bool redelivered)
{
	if ((item_flags & ITEM_CONCURRENT) != 0)
		return STATS_duplicates_concurrent;
	return redelivered ? STATS_duplicates_redelivered : STATS_duplicates_republished;
}

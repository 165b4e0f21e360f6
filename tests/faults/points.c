/* SPDX-License-Identifier: MIT */
#include "points.h"

const struct fault_at fault_points[] = {
	/* from the broker to a worker */
	{.point = "delivery-read"},
	{.point = "batch-formed"},
	{.point = "parking-formed"},
	{.point = "retry-formed"},
	{.point = "stream-formed"},
	{.point = "stream-ends"},
	{.point = "work-sent"},
	/* the work */
	{.point = "batch-read"},
	{.point = "claim-queued"},
	{.point = "claim-sent"},
	{.point = "claimed"},
	{.point = "before-handler"},
	{.point = "handled"},
	{.point = "gate-queued"},
	{.point = "commit-sent"},
	{.point = "committed"},
	{.point = "before-verdicts"},
	{.point = "answered"},
	/* parking */
	{.point = "parking-read"},
	{.point = "before-park"},
	{.point = "park-sent"},
	{.point = "parked"},
	{.point = "piece-read"},
	{.point = "before-stream-commit"},
	{.point = "stream-parked"},
	/* retries */
	{.point = "before-due-taken"},
	{.point = "own-commit-sent"},
	{.point = "due-taken"},
	{.point = "before-retry-announced"},
	{.point = "retry-noted"},
	{.point = "before-retry"},
	{.point = "retried"},
	{.point = "retry-answer-read"},
	{.point = "before-repay", .via = "before-retry", .by = CUT_DATABASE},
	{.point = "repaid", .via = "before-retry", .by = CUT_DATABASE},
	{.point = "crash-formed", .via = "before-retry", .by = KILL_STANDING},
	{.point = "crash-counted", .via = "before-retry", .by = KILL_STANDING},
	/* back to the broker */
	{.point = "verdicts-read"},
	{.point = "before-ack"},
	{.point = "ack-sent"},
	/* connections */
	{.point = "database-connected", .via = "claimed", .by = CUT_DATABASE},
	{.point = "broker-connected", .via = "verdicts-read", .by = CUT_BROKER},
	{.point = "consume-sent", .via = "verdicts-read", .by = CUT_BROKER},
	/* deaths and births */
	{.point = "child-died", .via = "handled", .by = KILL_STANDING},
	{.point = "before-obituary", .via = "handled", .by = KILL_STANDING},
	{.point = "obituary-sent", .via = "handled", .by = KILL_STANDING},
	{.point = "worker-gone", .via = "handled", .by = KILL_STANDING},
	{.point = "child-started", .via = "handled", .by = KILL_STANDING},
	{.point = "before-introduction", .via = "handled", .by = KILL_STANDING},
	{.point = "worker-met", .via = "handled", .by = KILL_STANDING},
	/* the end */
	{.point = "before-drain", .via = "handled", .by = TERMINATE},
	{.point = "before-give-back", .via = "handled", .by = TERMINATE},
	{.point = "given-back", .via = "handled", .by = TERMINATE},
};
const size_t n_fault_points = sizeof fault_points / sizeof fault_points[0];

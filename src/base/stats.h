/* SPDX-License-Identifier: MIT */
/* Counters in shared memory: one slot for each process, written by that process alone - but for what the
 * janitor counts for each consumer, `forgotten` - and read by anybody.  A slot belongs to a place
 * (consumer "orders", its worker 2), not to a pid: counters go on over a restart. */
#ifndef INBOXD_BASE_STATS_H
#define INBOXD_BASE_STATS_H

#include "base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define STATS_MAGIC UINT32_C(0x696e6278)
#define STATS_VERSION 1
#define STATS_SLOTS 1024
#define STATS_NAME_MAX 64

enum stats_role { STATS_FREE, STATS_SUPERVISOR, STATS_CONSUMER, STATS_WORKER, STATS_JANITOR };

/* name, and what it counts; order is append-only within a version */
#define STATS_COUNTERS(X) \
	X(processed, "messages whose work was committed") \
	X(duplicates_redelivered, "copies delivered again by the broker, already done") \
	X(duplicates_republished, "copies sent again by a publisher, already done") \
	X(duplicates_concurrent, "copies that met their twin in flight") \
	X(mismatches, "known key with other content, parked") \
	X(rejected, "messages without usable key, too large or undecodable, parked") \
	X(failed, "messages parked as failed by their handler") \
	X(retried, "messages parked to be tried again") \
	X(unkeyed, "messages processed without deduplication") \
	X(crashed, "runs that ended with their worker") \
	X(timed_out, "runs that were ended by their time limit") \
	X(batches, "transactions committed") \
	X(batch_failures, "batches rolled back and run again one by one") \
	X(delivered, "deliveries received") \
	X(acked, "deliveries acknowledged") \
	X(dropped_verdicts, "verdicts for deliveries of an older connection") \
	X(pauses, "times the consumer paused") \
	X(connects, "connections opened") \
	X(restarts, "times this process was started again") \
	X(in_flight, "gauge: deliveries held") \
	X(state, "gauge: enum of the role's own states") \
	X(progress, "steps of the role's loop; stands still in a hung process") \
	X(handler_since_ms, "monotonic time the running handler was started at, 0 between") \
	X(in_hand, "gauge: messages in the worker's current batch") \
	X(kept, "messages that were given out often, kept in the database before they ran") \
	X(breaker_opened, "times that messages parked in a row paused the consumer") \
	X(outgoing_sent, "messages that we published and the broker has") \
	X(outgoing_postponed, "attempts to publish a message that failed") \
	X(recycled, "times a worker was started anew for its age or its memory") \
	X(leaving, "gauge: why the worker is about to leave") \
	X(forgotten, "keys that were older than retention.keep; counted by the janitor") \
	X(handler_ran, "gauge: 1: a handler was started for what is not answered for yet")

/* The gauge `leaving`. */
enum leaving { LEAVING_NOT, LEAVING_MEMORY, LEAVING_AGE, LEAVING_CHANGED };

/* The gauge `state` of a consumer, and its name. */
#define STATS_CONSUMER_STATES(X) \
	X(CONSUMER_STARTING, "starting") \
	X(CONSUMER_CONNECTING, "connecting") \
	X(CONSUMER_PAUSED, "paused") /* no worker can work, or no room for what is parked */ \
	X(CONSUMER_CONSUMING, "consuming") \
	X(CONSUMER_DRAINING, "draining") \
	X(CONSUMER_BREAKER_OPEN, "breaker open") /* one message at a time is tried */

enum consumer_state {
#define X(state, name) state,
	STATS_CONSUMER_STATES(X)
#undef X
};

enum stats_counter {
#define X(name, help) STATS_##name,
	STATS_COUNTERS(X)
#undef X
	STATS_COUNT
};

struct stats_slot {
	_Atomic uint32_t role;
	_Atomic int32_t pid;
	char name[STATS_NAME_MAX]; /* consumer's name; written before role */
	_Atomic uint32_t index;    /* of the worker */
	_Atomic uint64_t counter[STATS_COUNT];
};

struct stats {
	uint32_t magic, version, slots, counters;
	struct stats_slot slot[STATS_SLOTS];
};

/* A fresh map: a memfd, for others to map; the supervisor's. */
enum rc stats_create(int *ret_fd, struct stats **ret, struct err *err) MUST_CHECK;
/* The same as a file `stats` in a directory, for `inboxctl status`; it replaces an older one.  RC_FATAL
 * when it cannot be written there, or another process of this kind holds it. */
enum rc stats_create_in(
	const char *directory, int *ret_fd, struct stats **ret, struct err *err) MUST_CHECK;
enum rc stats_map(int fd, bool writable, struct stats **ret, struct err *err) MUST_CHECK;
void stats_unmap(struct stats *s);

/* The slot of a place; NULL: it has none. */
struct stats_slot *stats_slot_find(
	struct stats *s, enum stats_role role, const char *name, uint32_t index);
/* Finds the slot of a place, or takes a free one; NULL when all are taken. */
struct stats_slot *stats_slot_take(struct stats *s, enum stats_role role, const char *name, uint32_t index);
void stats_slot_release(struct stats_slot *slot);

const char *stats_counter_name(enum stats_counter c);
const char *stats_counter_help(enum stats_counter c);
/* "?" for a state of a later inboxd. */
const char *stats_consumer_state_name(uint64_t state);

static inline void stats_add(struct stats_slot *slot, enum stats_counter c, uint64_t n)
{
	atomic_fetch_add_explicit(&slot->counter[c], n, memory_order_relaxed);
}

static inline void stats_set(struct stats_slot *slot, enum stats_counter c, uint64_t v)
{
	atomic_store_explicit(&slot->counter[c], v, memory_order_relaxed);
}

static inline uint64_t stats_get(const struct stats_slot *slot, enum stats_counter c)
{
	return atomic_load_explicit(&slot->counter[c], memory_order_relaxed);
}

#endif

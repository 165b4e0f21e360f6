/* SPDX-License-Identifier: MIT */
/* The deliveries a consumer holds: which are ready, which wait for their twin, which may be settled.
 * Pure: data in, decisions out; no clock, no I/O.
 *
 * Delivery tags of a channel are 1, 2, 3, …; what is kept grows with what is held, not with what has passed.
 * A new connection or channel begins a new generation: all entries go, and verdicts for them find nothing.
 */
#ifndef INBOXD_CONSUMER_WINDOW_H
#define INBOXD_CONSUMER_WINDOW_H

#include "ipc/protocol.h"

#include <uthash.h>

enum entry_state {
	ENTRY_NONE,      /* no such delivery */
	ENTRY_RECEIVING, /* its body is still arriving */
	ENTRY_READY,     /* may be given to a worker */
	ENTRY_BEHIND,    /* an older delivery with the same key is not settled yet */
	ENTRY_IN_HAND,   /* a worker has it */
	ENTRY_LATER,     /* busy elsewhere, or lost its session: ready again at later_at_ms */
	ENTRY_SETTLED,   /* to be acknowledged, and then forgotten */
};

struct entry {
	uint64_t tag;
	enum entry_state state;
	uint8_t flags; /* enum item_flag */
	bool is_parking;  /* not to be run: park_reason says why */
	bool is_streamed; /* its body passed through and is not held */
	bool is_put_off;  /* held for a while, to be given back once it is ready again */
	enum park_reason park_reason;
	char *park_detail; /* owned; NULL: none */
	uint16_t crashes;
	uint16_t losses;       /* of the session, while it ran alone; none of them charged */
	uint32_t busy_times;   /* in a row */
	uint64_t later_at_ms;
	uint64_t settled_at_ms;
	struct buf message;    /* encoded (message/message.h) */
	uint8_t *key;          /* owned; NULL: none */
	uint16_t key_size;
	struct entry *next, *prev; /* of the ready, the later or the loose list */
	struct entry *twin;        /* next younger one with the same key */
	UT_hash_handle hh;         /* by key: the oldest unsettled one */
	UT_hash_handle tag_hh;
};

struct window {
	uint32_t generation;
	struct entry *by_tag; /* all that are not forgotten; a hash keeps the order of adding: of tags */
	uint64_t first;      /* oldest tag not forgotten; next: there is none */
	uint64_t next;       /* youngest tag + 1 */
	struct entry *ready; /* in order of tag; utlist-style, ready->prev is the last */
	struct entry *later;
	struct entry *loose; /* settled, in order of that */
	struct entry *by_key;
	size_t n_held;    /* not settled */
	size_t n_ready;
	size_t n_in_hand;
	size_t n_loose;   /* ENTRY_SETTLED */
	size_t n_put_off; /* of those held: nothing is to be done for them now */
	uint64_t bytes;   /* of message buffers */
};

void window_init(struct window *w);
void window_done(struct window *w);

/* Forgets everything: the connection or channel is gone. */
void window_reset(struct window *w);

/* The delivery that has begun to arrive.  NULL if the tag is not the next one: the broker is not what
 * we take it for. */
struct entry *window_add(struct window *w, uint64_t tag);

/* The entry of a delivery that is still ours; NULL: void, drop what was to be said of it. */
struct entry *window_find(struct window *w, const struct delivery_ref *ref);

/* Its message is complete; key (copied) may be empty. */
void window_complete(struct window *w, struct entry *e, struct bytes key);

/* The same for one that is not to be run. */
void window_complete_parking(
	struct window *w, struct entry *e, enum park_reason reason, const char *detail);

/* The oldest ready one, or NULL. */
struct entry *window_peek(const struct window *w);
void window_take(struct window *w, struct entry *e); /* READY -> IN_HAND */

/* What a verdict does to an entry in hand.  now_ms: for BUSY and LOST, and for how long settled ones wait. */
void window_verdict(struct window *w, struct entry *e, enum verdict v, uint64_t now_ms);

/* Its worker died with it in hand.  was_alone: it was the only one, and being run. */
void window_crashed(struct window *w, struct entry *e, bool was_alone, enum park_reason reason,
	const char *detail);

/* Whether an older one waits for another run after the loss of its session: whoever keeps the queue's order
 * waits for it. */
bool window_is_held_up(const struct window *w, const struct entry *e);

/* Keeps one in hand until then without giving it to anybody; once that is over window_put_off_over finds it
 * (NULL: none), to be given back. */
void window_put_off(struct window *w, struct entry *e, uint64_t until_ms);
struct entry *window_put_off_over(const struct window *w);

/* Back among the ready ones, unchanged. */
void window_give_back(struct window *w, struct entry *e);

/* Forgets an entry whose delivery was rejected or given back by itself. */
void window_drop(struct window *w, struct entry *e);

/* Moves what is due from later to ready; returns when the next one will be, UINT64_MAX if none. */
uint64_t window_wake(struct window *w, uint64_t now_ms);

/* The next acknowledgement to send: the contiguous prefix by one with `multiple`; others singly once
 * they have waited hold_ms for the prefix to reach them (0: at once).  False: none for now.
 * *ret_wait_ms (set when false): when to ask again, UINT64_MAX: not before the next verdict. */
bool window_next_ack(struct window *w, uint64_t now_ms, uint64_t hold_ms, uint64_t *ret_tag,
	bool *ret_multiple, uint64_t *ret_wait_ms);

/* Delay before a busy key is offered again, after `times` in a row: 0.2 s doubling to 5 s. */
uint64_t window_busy_delay_ms(uint32_t times);

/* How large the next batch may be: additive increase while transactions stay under their time,
 * multiplicative decrease past it or after a failure. */
uint32_t window_batch_limit(
	uint32_t limit, uint32_t max, uint64_t took_us, uint64_t limit_us, bool failed);

#endif

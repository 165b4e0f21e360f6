/* SPDX-License-Identifier: MIT */
/* What consumer and worker say to each other, frame by frame.  Pure.
 *
 * The consumer gives a worker one command at a time; every command but TO_HELLO, TO_PARK_PIECE and
 * TO_PARK_ABORT gets exactly one answer, whatever happens to the database meanwhile.  FROM_READY,
 * FROM_DOWN and FROM_DUE come in between and say only whether further work makes sense.
 *
 * A consumer and its publisher, a thread, use the same frames and some of their own. */
#ifndef INBOXD_IPC_PROTOCOL_H
#define INBOXD_IPC_PROTOCOL_H

#include "ipc/frame.h"
#include "message/message.h"

enum frame_type {
	/* consumer -> worker */
	TO_HELLO = 1,   /* vhost; the first frame */
	TO_BATCH,       /* u32 n, then n items: run them; answered by one FROM_VERDICTS */
	TO_PARK,        /* park reason, detail, item: park without running; FROM_VERDICTS */
	TO_PARK_BEGIN,  /* the same, but the body follows; FROM_VERDICTS comes after the end */
	TO_PARK_PIECE,  /* a piece of the body */
	TO_PARK_END,    /* the body is complete */
	TO_PARK_ABORT,  /* the delivery is void: forget it; no answer */
	TO_RETRY,       /* take one due message and run it; answered by FROM_RETRY */
	TO_CRASHED,     /* i64 parked, i64 token, u8 timed out, detail: answered by FROM_RETRY */
	TO_OUTGOING,    /* take what is to be published; answered by FROM_OUTGOING */
	TO_SENT,        /* outcomes, to the end of the frame; answered by FROM_SENT */

	/* worker -> consumer */
	FROM_READY = 64, /* u8 most, u64 next_due_ms, u32 parked, u8 has kept: connected, registered, handler
			  * open; most: 1 if the handler takes one message at a time, else 0; parked: messages
			  * that are, discarded ones apart, counted up to parked.max */
	FROM_DOWN,       /* u8 rc, text: cannot work now; the worker goes on trying by itself */
	FROM_VERDICTS,   /* u32 n, u64 next_due_ms, then n times ref, u8 verdict */
	FROM_TAKEN,      /* i64 parked, i64 token: about to run this retry */
	FROM_RETRY,      /* u8 enum retry_fate, u64 next_due_ms, u32 parked (all bits set: not known), u8 has kept */
	FROM_OUTGOING,   /* u64 next_due_ms, u32 hold_ms: how long, from the asking on, they may be begun
			  * to be published; then messages, to the end of the frame */
	FROM_SENT,       /* u8 done: the outcomes are committed */
	FROM_DUE,        /* something is to be published */
	FROM_LEAVING,    /* stands in front of an answer: the worker goes behind it, give it nothing */

	/* consumer -> publisher, publisher -> consumer */
	TO_PUBLISH = 128, /* u64 until_ms, by clock_ms; a message */
	FROM_PUBLISHED,   /* an outcome */
};

/* A delivery, as the consumer knows it. */
struct delivery_ref {
	uint32_t generation; /* of connection and channel: older ones are void */
	uint64_t tag;
};

/* What becomes of a delivery. */
enum verdict {
	VERDICT_DONE,      /* committed, or known to be: settle it */
	VERDICT_PARKED,    /* kept in inboxd.parked, committed: settle it */
	VERDICT_DUPLICATE, /* the work was committed before: settle it */
	VERDICT_BUSY,      /* key in hand elsewhere: offer it again later */
	VERDICT_AGAIN,     /* nothing happened, or nobody knows: offer it again */
	VERDICT_ALONE,     /* the batch failed: run it alone */
	VERDICT_KEPT,      /* not run yet, but kept in inboxd.parked and due, committed: settle it */
	VERDICT_LOST,      /* the session was lost while it ran alone: offer it again, and count that */
	VERDICT_CRASHED,   /* the same, and it is to blame: a crash, to be parked by whoever can */
	VERDICT_COUNT,
};
const char *verdict_name(enum verdict v);

/* What became of TO_RETRY or TO_CRASHED. */
enum retry_fate {
	RETRY_NONE,    /* none is due, or nothing could be done now: ask again */
	RETRY_RAN,
	RETRY_CRASHED, /* it ran and is to blame for its session's end: a crash, still to be counted */
};

/* How long a message waits after so many sessions were lost while it ran alone: the first may be anybody's
 * fault. */
uint64_t loss_delay_ms(uint32_t losses);

/* Why the consumer has a message parked without running it; the worker's reasons are texts. */
enum park_reason {
	PARK_NO_KEY,
	PARK_UNUSABLE_KEY,
	PARK_TOO_LARGE,
	PARK_UNDECODABLE,
	PARK_CRASHED,
	PARK_TIMED_OUT,
	PARK_REDELIVERED,
	PARK_REASON_COUNT,
};
const char *park_reason_name(enum park_reason r);

enum item_flag {
	ITEM_ALONE = 1,      /* runs alone: a failure uses an attempt */
	ITEM_CONCURRENT = 2, /* met its twin in this process: a duplicate of that cause */
	ITEM_AGAIN = 4,      /* given out before, and what became of that is not known */
	ITEM_KEEP_FIRST = 8, /* given out often: not run before it is kept in inboxd.parked */
};

struct item {
	struct delivery_ref ref;
	uint8_t flags;
	uint16_t crashes;     /* runs of this delivery that ended with their worker */
	uint16_t losses;      /* sessions that were lost while it ran alone, uncharged so far */
	struct bytes key;     /* empty: none */
	struct message message;
};

void item_encode(struct buf *out, const struct item *item);
bool item_decode(struct reader *r, struct item *ret);

void ref_encode(struct buf *out, const struct delivery_ref *ref);
struct delivery_ref ref_decode(struct reader *r);

/* u16 size and bytes. */
void short_encode(struct buf *out, struct bytes b);
struct bytes short_decode(struct reader *r);

#endif

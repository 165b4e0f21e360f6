/* SPDX-License-Identifier: MIT */
/* The pattern itself: one transaction that claims keys, carries the handlers' work, and commits only if
 * it is still the one that claimed.  In terms of db. */
#ifndef INBOXD_INBOX_INBOX_H
#define INBOXD_INBOX_INBOX_H

#include "base/hash.h"
#include "db/db.h"
#include "message/key.h"
#include "message/letter.h"
#include "message/outgoing.h"

/* One consumer's inbox on one session. */
struct inbox {
	struct db_conn *db; /* borrowed */
	const struct config_consumer *consumer; /* borrowed */
	int32_t id; /* of the identity */
	uint64_t nonce, transactions; /* make tokens unlike any other session's */
	char token[40]; /* of the transaction under way */
	bool is_guarded; /* the guard is armed in it */
	char *sql[32]; /* owned; statement texts with the schema filled in, by enum inbox_sql */
};

void inbox_init(struct inbox *x, struct db_conn *db, const struct config_consumer *consumer);
void inbox_done(struct inbox *x);

/* Checks that the schema is there and serves this program, and that the lock table is large enough for
 * what this consumer locks at once.  RC_FATAL with what to do; RC_UNAVAILABLE. */
enum rc inbox_check_schema(struct inbox *x, struct err *err) MUST_CHECK;

/* How long the server may take over one statement of ours: handler_timeout, which is the handlers' own
 * limit, is not meant for them when it is short. */
uint32_t inbox_statement_limit_ms(const struct config_consumer *consumer);
/* The session's patience from here on: for statements of our own, or for those of a handler and its COMMIT. */
void inbox_expect_own(struct inbox *x);
void inbox_expect_handler(struct inbox *x);

/* Whether the database has room for what is to be written: writes some and rolls it back. */
enum rc inbox_probe(struct inbox *x, struct err *err) MUST_CHECK;

/* Registers the consumer and learns its id.  RC_FATAL when it was registered otherwise: err names both
 * sides and the command that accepts the change. */
enum rc inbox_register(struct inbox *x, const char *vhost, struct err *err) MUST_CHECK;

/* ---- the transaction of a batch -------------------------------------------------------------- */

enum claim_state {
	CLAIM_NEW,       /* ours: handle it */
	CLAIM_BUSY,      /* another transaction has it in hand */
	CLAIM_DUPLICATE, /* committed before, same content */
	CLAIM_LOOK,      /* neither: inbox_park decides (mismatch, parked before, claim again) */
	CLAIM_UNKEYED,   /* has no key and wants none */
};

struct claim {
	struct bytes key; /* empty: CLAIM_UNKEYED */
	struct bytes fingerprint;
	int64_t parked, parked_token; /* of a retry; parked 0: a delivery */
	void *owner;                  /* the caller's; claims are sorted */
	enum claim_state state; /* set by inbox_begin; _LOOK becomes _DUPLICATE at inbox_commit */
	bool is_handled;        /* set by the caller before inbox_commit: its work is in */
};

/* One round trip: BEGIN, the keys' locks, the insert.  keys must differ and be sorted by
 * bytes_compare.  A retry stands alone and its row goes with it (CLAIM_LOOK when it is not there any
 * more).  On failure nothing is open. */
enum rc inbox_begin(struct inbox *x, struct claim *claims, size_t n, struct err *err) MUST_CHECK;

/* Arms the guard: from here on only inbox_commit can commit.  Queued, not sent. */
enum rc inbox_guard(struct inbox *x, struct err *err) MUST_CHECK;

/* Gate, removes the markers of new claims that were not handled, looks up those that were not new,
 * COMMIT: one round trip, behind what the handlers queued.  before is called when all that stands in
 * front has been sent, to take the results of the handlers' statements; its failure makes the
 * transaction roll back (the gate has failed with it) and is returned.
 * RC_OK: committed.  RC_RETRY, RC_REJECT: rolled back.  RC_UNKNOWN: COMMIT was sent and its answer is
 * lost or not to be believed.  RC_UNAVAILABLE: the session is lost, nothing was committed.
 * *ret_gate_failed: the transaction was not ours any more. */
enum rc inbox_commit(struct inbox *x, struct claim *claims, size_t n,
	enum rc (*before)(void *arg, struct err *err), void *arg, bool *ret_gate_failed,
	struct err *err) MUST_CHECK;

/* Ends the transaction without effect.  RC_UNAVAILABLE: the session is lost (and the server will). */
enum rc inbox_rollback(struct inbox *x, struct err *err) MUST_CHECK;

/* Stores a result beside the marker; queued. */
enum rc inbox_queue_result(struct inbox *x, struct bytes key, struct bytes data,
	const char *content_type, struct err *err) MUST_CHECK;

/* ---- parking -------------------------------------------------------------------------------------- */

enum park_outcome {
	PARK_PARKED,
	PARK_MISMATCH,
	PARK_DUPLICATE,
	PARK_PRESENT,
	PARK_REVIVED,
	PARK_BUSY,
	PARK_DROPPED,
	PARK_AGAIN,
};

/* What to park.  state NULL: only look (see sql/0001, function park). */
struct park {
	const struct message *message;
	struct bytes key;         /* absent: no key that can be used */
	struct bytes fingerprint; /* without a key it is computed from the message */
	const char *state;        /* "waiting", "failed" */
	const char *reason;
	const char *detail;
	const char *sqlstate;
	uint32_t attempts, crashes;
	uint64_t delay_ms;
	int64_t parked, parked_token; /* of a retry; parked 0: a delivery */
	bool is_streamed; /* set by inbox_park_begin */
};

/* Parks in a transaction of its own: one round trip, committed when it returns RC_OK.
 * RC_UNKNOWN, RC_UNAVAILABLE as above: park it again. */
enum rc inbox_park(struct inbox *x, const struct park *park, enum park_outcome *ret, int64_t *ret_id,
	struct err *err) MUST_CHECK;

/* The same for a body too large to be held, of a message parked without key: begin, pieces, end (which
 * commits), all in one transaction.  Its state, reason and detail are those of park.  The outcome is
 * PARK_PARKED, or PARK_PRESENT for a redelivered copy of a message that is there already; it is known
 * only at the end.  After a failure nothing is open and no piece may follow. */
struct park_stream {
	int64_t id;
	uint32_t seq;
	bool is_redelivered;
	struct hash hash; /* freed by park_stream_done */
};
enum rc inbox_park_begin(struct inbox *x, const struct park *park, struct park_stream *ret,
	struct err *err) MUST_CHECK;
enum rc inbox_park_piece(struct inbox *x, struct park_stream *stream, struct bytes piece,
	struct err *err) MUST_CHECK;
enum rc inbox_park_end(struct inbox *x, struct park_stream *stream, enum park_outcome *ret,
	struct err *err) MUST_CHECK;
enum rc inbox_park_abort(struct inbox *x, struct err *err) MUST_CHECK;
static inline void park_stream_done(struct park_stream *s)
{
	hash_done(&s->hash);
}

/* ---- retries ---------------------------------------------------------------------------------------- */

struct due {
	int64_t parked, token;
	uint32_t attempts, crashes;
	uint32_t losses; /* sessions that were lost while it ran, uncharged so far */
	struct bytes key;         /* absent: none */
	struct bytes fingerprint;
	struct message message;
	struct bytes state, reason, detail; /* what the row says now */
	struct db_result *result; /* owns all of the above */
};

/* Takes one due message, committed.  *ret_found tells if there was one; due_done frees.  `ended` is told of
 * those that were found to need no run and are failed, or a mismatch, now; without their bodies. */
enum rc inbox_take_due(struct inbox *x, uint64_t lease_ms,
	void (*ended)(void *arg, const struct due *d), void *arg, bool *ret_found, struct due *ret,
	struct err *err) MUST_CHECK;
void due_done(struct due *d);

/* What is parked. */
#define OUTLOOK_UNKNOWN UINT32_MAX /* for those who could not ask */
struct outlook {
	uint64_t next_due_ms; /* until the next waiting message is due; UINT64_MAX: none waits */
	uint32_t parked;      /* rows, discarded ones apart; counted up to parked.max */
	bool has_kept;        /* one is due that was kept before its first run */
};
enum rc inbox_look_out(struct inbox *x, struct outlook *ret, struct err *err) MUST_CHECK;

/* A retry whose row has no key although today's rule finds one: the row gets it (PARK_PARKED: run it under
 * that key), or turns out to be PARK_PRESENT, PARK_MISMATCH, PARK_BUSY or PARK_DROPPED: not to be run. */
enum rc inbox_adopt_key(struct inbox *x, const struct due *due, struct bytes key,
	struct bytes fingerprint, enum park_outcome *ret, struct err *err) MUST_CHECK;

/* After an outage: gives back the attempt that was counted for a retry.  is_lost: the session was lost while
 * it ran, which is counted apart. */
enum rc inbox_give_back(struct inbox *x, int64_t parked, int64_t token, uint64_t delay_ms, bool is_lost,
	struct err *err) MUST_CHECK;

/* The worker that ran a retry died: counts it, once.  PARK_BUSY: later again. */
enum rc inbox_count_crash(struct inbox *x, int64_t parked, int64_t token, const char *reason,
	const char *detail, enum park_outcome *ret, struct err *err) MUST_CHECK;

/* ---- what is to be published --------------------------------------------------------------------------- */

/* Takes outgoing messages that are due for this entry, committed: at most `most`, and no more once they
 * hold so many bytes; bodies over max_message_bytes are left out.  *ret: opaque rows, each read by inbox_read_outgoing; freed by the caller. */
enum rc inbox_take_outgoing(struct inbox *x, uint32_t most, uint64_t bytes, uint64_t lease_ms,
	struct db_result **ret, struct err *err) MUST_CHECK;
/* One of them, but for its properties, and the letter that they are made from.  Borrowed from the rows. */
void inbox_read_outgoing(const struct inbox *x, const struct db_result *rows, size_t row,
	struct outgoing *ret, struct letter *ret_letter);

/* Milliseconds until the next is due; UINT64_MAX: there is none. */
enum rc inbox_next_outgoing(struct inbox *x, uint64_t *ret_ms, struct err *err) MUST_CHECK;

/* Records what became of some of them, one behind the other in flat form, in one transaction. */
enum rc inbox_record_outcomes(struct inbox *x, struct bytes outcomes, struct err *err) MUST_CHECK;

/* ---- the schedule; pure -------------------------------------------------------------------------------- */

/* How many runs a message may have in all. */
uint32_t retry_attempts_max(const struct config_consumer *c);
/* Delay before the next run after `attempts` runs; random spreads it. */
uint64_t retry_delay_ms(const struct config_consumer *c, uint32_t attempts, uint32_t random);

#endif

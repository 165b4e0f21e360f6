/* SPDX-License-Identifier: MIT */
/* What the parts of a worker share; for the files of this room only. */
#ifndef INBOXD_WORKER_SESSION_H
#define INBOXD_WORKER_SESSION_H

#include "base/backoff.h"
#include "base/stats.h"
#include "handler/host.h"
#include "inbox/inbox.h"
#include "ipc/channel.h"
#include "ipc/protocol.h"
#include "worker/surroundings.h"

struct worker {
	const struct config_consumer *consumer;
	struct stats_slot *slot;
	struct channel channel; /* blocking */
	struct handler handler;
	struct host *host;
	char vhost[256];
	bool is_greeted; /* vhost is known */
	struct surroundings surroundings;
	uint64_t handled; /* messages whose handler was started in this life */
	uint64_t handled_checked; /* what it was when memory was looked at last, */
	uint64_t memory_at_ms;    /* and when that is to be done again */
	uint32_t unchecked;       /* entries that returned since our descriptors were looked at */
	bool is_changed; /* what a handler did to this process cannot be undone */
	bool is_leaving; /* said so: the answer at hand is the last */
	struct db_conn *db; /* NULL: not connected */
	struct inbox inbox; /* while db is there */
	uint64_t next_try_ms; /* when to connect again */
	uint32_t losses;      /* of the session, since something was committed */
	bool is_server_silent;   /* the last session was given up, and another got no answer either */
	bool is_standby_awaited; /* said to be down, because COMMIT waits for a synchronous standby */
	struct backoff backoff;
	struct {            /* attempt of a retry that an outage ended: given back when we are back */
		int64_t parked, token;
		uint64_t delay_ms;
		bool is_lost; /* the session was, while it ran: counted */
	} owed;
	uint64_t next_due_ms; /* soonest retry that this command parked; UINT64_MAX: none */
	bool has_outgoing;    /* this command has made something to be published */
	struct {              /* a large body on its way into the database */
		bool is_open;  /* transaction and row are there */
		bool is_begun; /* TO_PARK_BEGIN came, its end not yet */
		struct park_stream park;
		struct buf copy; /* of what park points to, until its end */
		struct park what;
		struct message message;
		char detail[1024];
		uint8_t flags;
		struct delivery_ref ref;
	} stream;
};

/* One delivery's answer. */
struct answer {
	struct delivery_ref ref;
	enum verdict verdict;
};

void worker_answer(struct worker *w, const struct answer *answers, size_t n);
/* In front of each answer: says that this worker leaves, if it is time. */
void worker_consider_leaving(struct worker *w);

/* The session is of no use any more: closes it.  The loop connects again. */
void worker_lost(struct worker *w, const struct err *err);
/* Connects now; false: the database is away, and the loop goes on trying. */
bool worker_connect(struct worker *w);
/* Ends this process if a handler left it or its descriptors in a state that nothing may be built on. */
void worker_require_surroundings(struct worker *w);
/* Something was committed: the next loss of the session is a first one. */
void worker_succeeded(struct worker *w);

/* TO_BATCH: runs items in one transaction; answers. */
void batch_run(struct worker *w, struct bytes payload);

/* What batch_run does for one message, of a retry.  The verdict only says whether its attempt is to be
 * given back (VERDICT_AGAIN, _BUSY, _LOST), or a crash counted (VERDICT_CRASHED), or neither. */
enum verdict batch_run_retry(struct worker *w, const struct due *due);

/* TO_PARK, TO_PARK_…: parks what the consumer does not want to run; answers when done. */
void parking_run(struct worker *w, struct bytes payload);
void parking_begin(struct worker *w, struct bytes payload);
void parking_piece(struct worker *w, struct bytes piece);
void parking_end(struct worker *w);
void parking_abort(struct worker *w);

/* Parks one message, logs and counts it.  VERDICT_PARKED, _KEPT, _DUPLICATE, _BUSY or _AGAIN; on a lost
 * session worker_lost has been called. */
enum verdict worker_park(struct worker *w, const struct park *park, uint8_t item_flags);

/* TO_RETRY, TO_CRASHED; answer with FROM_RETRY. */
void retry_run(struct worker *w);
void retry_crashed(struct worker *w, struct bytes payload);
/* On a fresh session: gives back what an outage took. */
enum rc retry_repay(struct worker *w, struct err *err) MUST_CHECK;

/* TO_OUTGOING, TO_SENT; answer with FROM_OUTGOING, FROM_SENT. */
void outgoing_take(struct worker *w);
void outgoing_record(struct worker *w, struct bytes outcomes);
/* FROM_DUE, if the command has made something to be published. */
void outgoing_say_due(struct worker *w);

/* Logs something about a message: consumer comes from the log's role; key, correlation id, traceparent
 * are taken from it. */
void worker_log(enum log_level level, const char *event, struct bytes key, const struct message *m,
	uint32_t attempt, const char *reason, const char *detail);

#endif

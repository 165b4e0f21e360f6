/* SPDX-License-Identifier: MIT */
/* One batch in one transaction: claim, handle, gate, commit; then what each message's fate asks for. */
#include "worker/session.h"
#include "worker/verdict.h"

#include "base/backoff.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"

#include <assert.h>
#include <stdio.h>

/* So many failures in one batch are run around; then each of its messages is run by itself. */
enum { MOST_LEFT_OUT = 4 };

/* A message of the batch, through all its stages. */
struct job {
	struct item item;
	struct source_message message;
	struct buf fingerprint;
	struct claim *claim;    /* in batch.claims, or NULL: not to be claimed */
	struct host_item *host; /* in batch.hosts, or NULL: not to be handled */
	const struct due *due;  /* of a retry */
	enum verdict verdict;
	bool is_left_out;  /* of the next try: it has its verdict */
	char *refused;     /* owned; why it cannot be claimed at all, or NULL */
};

struct batch {
	struct worker *w;
	struct job *jobs;
	size_t n;
	struct claim *claims; /* sorted by key */
	size_t n_claims;
	struct host_item *hosts; /* in order of delivery: new ones only */
	size_t n_hosts;
	uint64_t until_us; /* no handler is started past it, but the first */
	bool is_lost_inside; /* it was a handler's statement, and COMMIT was not executed */
	size_t results; /* statements of ours that stand behind the handlers' */
	size_t failed;  /* index in hosts of the one to blame; n_hosts: nobody in particular */
	bool is_one_by_one; /* not by handle_batch */
};

/* ---- before the transaction ------------------------------------------------------------------- */

static void prepare_job(const struct worker *w, struct job *job)
{
	struct err err;
	source_message_init(&job->message, &job->item.message);
	job->verdict = VERDICT_AGAIN;
	if (job->item.key.size == 0 || job->due != NULL)
		return;
	if (!fingerprint_compute(&w->consumer->fingerprint, &job->message, &job->fingerprint, &err))
		job->refused = xasprintf("fingerprint: %s", err.text);
}

static int by_key(const void *a, const void *b)
{
	return bytes_compare(((const struct claim *)a)->key, ((const struct claim *)b)->key);
}

static void prepare_claims(struct batch *b)
{
	b->n_claims = 0;
	for (size_t i = 0; i < b->n; i++) {
		struct job *job = &b->jobs[i];
		job->claim = NULL;
		if (job->refused != NULL || job->is_left_out)
			continue;
		b->claims[b->n_claims++] = (struct claim){
			.key = job->item.key,
			.fingerprint = job->due != NULL ? job->due->fingerprint
				       : job->fingerprint.data != NULL
					       ? buf_bytes(&job->fingerprint)
					       : bytes_str(""),
			.parked = job->due != NULL ? job->due->parked : 0,
			.parked_token = job->due != NULL ? job->due->token : 0,
			.owner = job,
		};
	}
	/* The same order in every process, and the order the index likes. */
	qsort(b->claims, b->n_claims, sizeof *b->claims, by_key);
	for (size_t i = 0; i < b->n_claims; i++)
		((struct job *)b->claims[i].owner)->claim = &b->claims[i];
}

/* ---- inside ----------------------------------------------------------------------------------------- */

static bool is_new(const struct job *job)
{
	return job->claim != NULL &&
	       (job->claim->state == CLAIM_NEW || job->claim->state == CLAIM_UNKEYED);
}

static bool is_kept_first(const struct job *job)
{
	return (job->item.flags & ITEM_KEEP_FIRST) != 0;
}

static bool is_to_be_handled(const struct job *job)
{
	return is_new(job) && !is_kept_first(job);
}

/* What an earlier try of the same transaction has left. */
static void forget_hosts(struct batch *b)
{
	for (size_t i = 0; i < b->n_hosts; i++)
		host_item_done(&b->hosts[i]);
	for (size_t i = 0; i < b->n; i++)
		b->jobs[i].host = NULL;
	b->n_hosts = 0;
	b->failed = 0;
	b->results = 0;
}

static void collect_hosts(struct batch *b)
{
	for (size_t i = 0; i < b->n; i++) {
		struct job *job = &b->jobs[i];
		if (!is_to_be_handled(job))
			continue;
		job->host = &b->hosts[b->n_hosts++];
		host_item_init(job->host, &job->message, job->item.key,
			job->due != NULL ? job->due->attempts - 1 : job->item.crashes);
	}
	b->failed = b->n_hosts;
}

static enum rc queue_results(struct batch *b, struct err *err)
{
	for (size_t i = 0; i < b->n; i++) {
		const struct job *job = &b->jobs[i];
		if (job->host == NULL || job->host->verdict != HOST_DONE || !job->host->has_result ||
			job->item.key.size == 0)
			continue;
		if (inbox_queue_result(&b->w->inbox, job->item.key, buf_bytes(&job->host->result),
			    job->host->content_type, err) != RC_OK)
			return err->rc;
		b->results++;
	}
	return RC_OK;
}

/* Starts the supervisor's watch over the handler; past batch.time the rest is left for later. */
static bool before_entry(void *arg, size_t index)
{
	struct batch *b = arg;
	uint64_t now_us = clock_us();
	(void)index;
	stats_set(b->w->slot, STATS_handler_since_ms, now_us / 1000);
	return now_us < b->until_us;
}

static enum rc handle(struct batch *b, struct err *err)
{
	struct worker *w = b->w;
	if (b->n_hosts == 0)
		return RC_OK;
	if (host_uses_conn(w->host) && inbox_guard(&w->inbox, err) != RC_OK)
		return err->rc;
	b->until_us = clock_us() + (uint64_t)w->consumer->batch_time_ms * 1000;
	host_set_step(w->host, before_entry, b);
	host_set_one_by_one(w->host, b->is_one_by_one);
	w->handled += b->n_hosts;
	stats_set(w->slot, STATS_handler_ran, 1);
	FAULT("before-handler");
	enum rc rc = host_handle(w->host, b->hosts, b->n_hosts, &b->failed, err);
	worker_require_surroundings(w);
	w->is_changed = !surroundings_restore(&w->surroundings) || w->is_changed;
	b->is_lost_inside = rc == RC_UNAVAILABLE;
	FAULT("handled");
	if (rc != RC_OK)
		return rc;
	for (size_t i = 0; i < b->n; i++)
		if (b->jobs[i].host != NULL)
			b->jobs[i].claim->is_handled = b->jobs[i].host->verdict == HOST_DONE;
	return queue_results(b, err);
}

static enum rc settle_handlers(void *arg, struct err *err)
{
	struct batch *b = arg;
	if (b->n_hosts == 0)
		return RC_OK;
	enum rc rc = host_settle(b->w->host, b->hosts, b->n_hosts, &b->failed, err);
	/* A named error of a handler's statement has kept the server from COMMIT. */
	b->is_lost_inside = rc == RC_UNAVAILABLE && err->sqlstate[0] != '\0';
	for (size_t i = 0; rc == RC_OK && i < b->results; i++)
		rc = db_next(b->w->db, NULL, err);
	/* What is left is COMMIT, with the triggers that the handler's work has there: watched anew. */
	stats_set(b->w->slot, STATS_handler_since_ms, clock_ms());
	return rc;
}

/* After a failure in between: passes over what is still queued and rolls back. */
static void roll_back(struct batch *b)
{
	struct err ignored;
	struct worker *w = b->w;
	if (db_queued(w->db) != 0 && db_sync(w->db, &ignored) == RC_OK)
		(void)!db_sync_end(w->db, &ignored);
	if (db_tx_state(w->db) != DB_TX_NONE)
		(void)!inbox_rollback(&w->inbox, &ignored);
}

/* The transaction, whole.  RC_OK: committed. */
static enum rc transact(struct batch *b, struct err *err)
{
	struct worker *w = b->w;
	bool gate_failed = false;
	forget_hosts(b);
	w->is_server_silent = false;
	if (inbox_begin(&w->inbox, b->claims, b->n_claims, err) != RC_OK)
		/* Our own statements failed: no message is to blame. */
		return db_error_is_serialization(err->sqlstate) ? RC_RETRY : RC_UNAVAILABLE;
	FAULT("claimed");
	collect_hosts(b);
	if (b->n_claims == 1 && b->claims[0].parked != 0 && b->n_hosts == 0)
		return inbox_rollback(&w->inbox, err); /* a retry not ours: its row must stay */
	enum rc rc = handle(b, err);
	/* The watch goes on over the statements that were queued, and their triggers at COMMIT. */
	if (rc == RC_OK)
		rc = inbox_commit(
			&w->inbox, b->claims, b->n_claims, settle_handlers, b, &gate_failed, err);
	else
		roll_back(b);
	stats_set(w->slot, STATS_handler_since_ms, 0);
	if (rc == RC_UNKNOWN && b->is_lost_inside)
		rc = err->rc = RC_UNAVAILABLE;
	if (gate_failed && b->n_hosts == 1) {
		b->failed = 0;
		b->hosts[0].verdict = HOST_BROKEN;
		(void)snprintf(b->hosts[0].reason, sizeof b->hosts[0].reason,
			"the handler ended the transaction that inboxd had begun for it");
	}
	return rc;
}

/* ---- afterwards ------------------------------------------------------------------------------------------ */

static struct park park_of(const struct job *job)
{
	return (struct park){
		.message = &job->item.message,
		.key = job->item.key,
		.fingerprint = job->claim != NULL ? job->claim->fingerprint : bytes_str(""),
		.crashes = job->due != NULL ? job->due->crashes : job->item.crashes,
		.parked = job->due != NULL ? job->due->parked : 0,
		.parked_token = job->due != NULL ? job->due->token : 0,
	};
}

static uint32_t attempts_of(const struct job *job)
{
	return job->due != NULL ? job->due->attempts : 1u + job->item.crashes;
}

/* Parks what the handler did not finish. */
static void park_failed(struct worker *w, struct job *job)
{
	struct park park = park_of(job);
	verdict_dispose(w->consumer, job->host, attempts_of(job), random_u32(), &park);
	job->verdict = worker_park(w, &park, job->item.flags);
}

static void park_refused(struct worker *w, struct job *job)
{
	struct park park = park_of(job);
	park.key = bytes_of(NULL, 0); /* without a fingerprint the key alone says too little */
	park.state = "failed";
	park.reason = park_reason_name(PARK_UNUSABLE_KEY);
	park.detail = job->refused;
	job->verdict = worker_park(w, &park, job->item.flags);
}

/* Neither new nor a plain duplicate: parking's own transaction looks closer. */
static void look_closer(struct worker *w, struct job *job)
{
	struct park park = park_of(job);
	park.reason = park.detail = "";
	job->verdict = worker_park(w, &park, job->item.flags);
}

/* The broker gives it out again and again: from the database its runs are counted. */
static void keep_first(struct worker *w, struct job *job)
{
	struct park park = park_of(job);
	park.state = "waiting";
	park.reason = park_reason_name(PARK_REDELIVERED);
	park.detail = "given out by the broker before, and not known to be done";
	job->verdict = worker_park(w, &park, job->item.flags);
	if (job->verdict == VERDICT_PARKED)
		job->verdict = VERDICT_KEPT;
}

static void count_done(struct worker *w, const struct job *job)
{
	bool is_unkeyed = job->claim->state == CLAIM_UNKEYED;
	stats_add(w->slot, is_unkeyed ? STATS_unkeyed : STATS_processed, 1);
}

/* Committed: what each message's claim and handler said. */
static void conclude(struct worker *w, struct job *job)
{
	if (job->is_left_out)
		return;
	if (job->claim == NULL) {
		park_refused(w, job);
		return;
	}
	switch (job->claim->state) {
	case CLAIM_NEW:
	case CLAIM_UNKEYED:
		if (is_kept_first(job)) {
			keep_first(w, job);
		} else if (job->claim->is_handled) {
			job->verdict = VERDICT_DONE;
			count_done(w, job);
		} else if (job->host->verdict != HOST_NOT_RUN) {
			park_failed(w, job);
		}
		break;
	case CLAIM_BUSY:
		job->verdict = VERDICT_BUSY;
		break;
	case CLAIM_DUPLICATE:
		job->verdict = VERDICT_DUPLICATE;
		stats_add(w->slot,
			verdict_duplicate_cause(job->item.flags, job->item.message.redelivered), 1);
		break;
	case CLAIM_LOOK:
		look_closer(w, job);
		break;
	}
}

/* A batch of several failed: nothing is known of anyone.  Each is run again by itself. */
static void split(struct batch *b)
{
	stats_add(b->w->slot, STATS_batch_failures, 1);
	for (size_t i = 0; i < b->n; i++)
		if (!b->jobs[i].is_left_out)
			b->jobs[i].verdict = VERDICT_ALONE;
}

static void clean_session(struct batch *b)
{
	struct worker *w = b->w;
	struct err err;
	bool dirty = host_take_dirty(w->host);
	if (w->db != NULL && dirty && db_conn_reset(w->db, &err) != RC_OK)
		worker_lost(w, &err);
}

/* One of several failed, and it is known which: the others go without it, and it is run again by itself.  One
 * worker alone keeps the queue's order, so there those behind it come after it.  False: nobody is left out. */
static bool leave_out(struct batch *b)
{
	bool is_found = false, keeps_order = b->w->consumer->workers == 1;
	if (b->failed >= b->n_hosts || b->n_hosts == 1)
		return false;
	stats_add(b->w->slot, STATS_batch_failures, 1);
	for (size_t i = 0; i < b->n; i++) {
		struct job *job = &b->jobs[i];
		bool is_culprit = job->host == &b->hosts[b->failed];
		if (!is_culprit && !(is_found && keeps_order))
			continue;
		if (!job->is_left_out)
			job->verdict = is_culprit ? VERDICT_ALONE : VERDICT_AGAIN;
		job->is_left_out = true;
		is_found = true;
	}
	/* What the culprit left in the session must not reach the others. */
	clean_session(b);
	for (size_t i = 0; i < b->n && b->w->db == NULL; i++)
		b->jobs[i].is_left_out = true;
	prepare_claims(b);
	return true;
}

static struct job *culprit(struct batch *b)
{
	for (size_t i = 0; i < b->n; i++)
		if (b->jobs[i].host != NULL)
			return &b->jobs[i];
	return NULL;
}

static enum rc class_at_commit(const struct worker *w, const struct err *err)
{
	return db_error_class_of(w->consumer, err->sqlstate, err->rc);
}

/* The only message with work in it failed. */
static void conclude_failure(struct batch *b, const struct err *err)
{
	struct job *job = culprit(b);
	if (job == NULL) { /* the claim could not be serialised with others again and again */
		b->jobs[0].verdict = VERDICT_BUSY;
		return;
	}
	struct host_item *host = job->host;
	if (host->verdict == HOST_NOT_RUN) { /* a statement of our own failed before it */
		worker_lost(b->w, err);
		return;
	}
	if (host->verdict == HOST_DONE) { /* the commit failed, a deferred constraint say */
		host->verdict = class_at_commit(b->w, err) == RC_REJECT ? HOST_REJECT : HOST_RETRY;
		(void)snprintf(host->reason, sizeof host->reason, "%s", err->text);
		(void)snprintf(host->sqlstate, sizeof host->sqlstate, "%s", err->sqlstate);
	}
	park_failed(b->w, job);
}

/* Whether the server said that it, or somebody outside, ended the session: shutdown, crash of another
 * backend, an operator. */
static bool is_from_outside(const struct err *err)
{
	return strncmp(err->sqlstate, "57P", 3) == 0;
}

/* The message that ran alone is charged with what the server lacked then, unless it lacks that still. */
static void charge(struct worker *w, struct job *job, const struct err *err)
{
	struct err lacks;
	if (inbox_probe(&w->inbox, &lacks) != RC_OK) {
		worker_lost(w, &lacks);
		return;
	}
	job->host->verdict = HOST_RETRY;
	(void)snprintf(job->host->reason, sizeof job->host->reason, "%s", err->text);
	(void)snprintf(job->host->sqlstate, sizeof job->host->sqlstate, "%s", err->sqlstate);
	park_failed(w, job);
	if (w->db != NULL)
		worker_succeeded(w);
}

static uint32_t losses_of(const struct job *job)
{
	return job->due != NULL ? job->due->losses : job->item.losses;
}

/* The session is gone, or the server lacks something.  If it went without a word and the database answers
 * at once, it was the message that ran alone; else it is an outage and nobody's fault.  Where the server
 * names a cause, or COMMIT may have been sent, or it is the whole server that went with the session, that
 * is believed - but not for ever of one and the same message: whoever keeps it counts.  A crash is told,
 * not parked here, for that must not depend on whether the database answers at this moment; parking, then,
 * looks whether the work did commit after all. */
static void conclude_lost(struct batch *b, enum rc rc, const struct err *err)
{
	struct worker *w = b->w;
	/* A server that answers nobody has as good as said so. */
	const char *named = w->is_server_silent ? "08006" : err->sqlstate;
	bool is_certain = rc == RC_UNAVAILABLE && named[0] == '\0';
	bool was_dismissed = w->db != NULL && db_was_dismissed(w->db);
	worker_lost(w, err);
	if (b->n_hosts > 1)
		split(b);
	if (b->n_hosts != 1 || was_dismissed)
		return;
	struct job *job = culprit(b);
	assert(job != NULL); /* a handler ran */
	bool is_over = losses_of(job) >= verdict_losses_believed(named);
	job->verdict = VERDICT_LOST;
	if (err->sqlstate[0] != '\0' && !is_from_outside(err)) {
		if (is_over && worker_connect(w))
			charge(w, job, err);
	} else if (is_over || (is_certain && worker_connect(w))) {
		job->verdict = VERDICT_CRASHED;
	}
}

static void after(struct batch *b, enum rc rc, const struct err *err)
{
	struct worker *w = b->w;
	switch (rc) {
	case RC_OK:
		stats_add(w->slot, STATS_batches, 1);
		FAULT("committed");
		if (w->db != NULL) /* or all were left out, and the session could not be cleaned */
			worker_succeeded(w);
		for (size_t i = 0; i < b->n; i++)
			conclude(w, &b->jobs[i]);
		break;
	case RC_UNKNOWN:
	case RC_UNAVAILABLE:
		conclude_lost(b, rc, err);
		break;
	case RC_RETRY:
	case RC_REJECT:
	case RC_FATAL:
		if (b->n_hosts > 1 || (b->n > 1 && b->n_hosts == 0))
			split(b);
		else
			conclude_failure(b, err);
		break;
	}
}

/* handle_batch failed, and which message made it do so is not known: handle will tell. */
static bool go_one_by_one(struct batch *b)
{
	if (b->is_one_by_one || b->n_hosts <= 1 || !host_has_batch(b->w->host))
		return false;
	clean_session(b);
	b->is_one_by_one = true;
	return b->w->db != NULL;
}

/* The server could not serialise it with others: nobody's fault, and likely to go well the next time.  A
 * handler that rejects all the same has its way. */
static bool is_conflict(const struct batch *b, const struct err *err)
{
	const char *state = err->sqlstate;
	if (b->failed < b->n_hosts && b->hosts[b->failed].verdict == HOST_RETRY)
		state = b->hosts[b->failed].sqlstate;
	return db_error_is_serialization(state);
}

static void run(struct batch *b)
{
	struct err err = {.rc = RC_OK};
	enum rc rc = RC_OK;
	if (b->w->db == NULL)
		return;
	stats_set(b->w->slot, STATS_in_hand, b->n);
	for (size_t i = 0; i < b->n; i++)
		prepare_job(b->w, &b->jobs[i]);
	prepare_claims(b);
	for (int tries = 0, left_out = 0; tries < VERDICT_SERIALIZATION_TRIES && b->n_claims != 0;) {
		rc = transact(b, &err);
		if (rc == RC_RETRY && is_conflict(b, &err))
			tries++;
		else if (rc != RC_RETRY || left_out++ == MOST_LEFT_OUT ||
			!(leave_out(b) || go_one_by_one(b)))
			break;
	}
	if (b->n_claims == 0)
		rc = RC_OK; /* all have been left out, or none could be claimed */
	/* Handlers' leftovers go before our own next transaction.  A session beyond cleaning is replaced: the
	 * verdict stands. */
	if (rc != RC_UNKNOWN && rc != RC_UNAVAILABLE) {
		clean_session(b);
		if (b->w->db == NULL)
			(void)worker_connect(b->w);
	}
	after(b, rc, &err);
	stats_set(b->w->slot, STATS_in_hand, 0);
}

static void batch_init(struct batch *b, struct worker *w, size_t n)
{
	*b = (struct batch){
		.w = w,
		.n = n,
		.jobs = xcalloc(n, sizeof *b->jobs),
		.claims = xcalloc(n, sizeof *b->claims),
		.hosts = xmalloc(n * sizeof *b->hosts), /* large, and mostly never looked at */
	};
}

static void batch_done(struct batch *b)
{
	for (size_t i = 0; i < b->n; i++) {
		buf_done(&b->jobs[i].fingerprint);
		free(b->jobs[i].refused);
	}
	for (size_t i = 0; i < b->n_hosts; i++)
		host_item_done(&b->hosts[i]);
	free(b->jobs);
	free(b->claims);
	free(b->hosts);
}

void batch_run(struct worker *w, struct bytes payload)
{
	struct reader r = reader_of(payload);
	struct batch b;
	size_t n = reader_u32(&r);
	assert(n > 0 && n <= UINT16_MAX);
	batch_init(&b, w, n);
	for (size_t i = 0; i < n; i++) {
		bool ok = item_decode(&r, &b.jobs[i].item);
		assert(ok); /* our own consumer encoded it */
		b.jobs[i].verdict = VERDICT_AGAIN;
	}
	FAULT("batch-read");
	run(&b);
	AUTO(free) struct answer *answers = xcalloc(n, sizeof *answers);
	for (size_t i = 0; i < n; i++)
		answers[i] = (struct answer){
			.ref = b.jobs[i].item.ref, .verdict = b.jobs[i].verdict};
	batch_done(&b);
	worker_answer(w, answers, n);
}

enum verdict batch_run_retry(struct worker *w, const struct due *due)
{
	struct batch b;
	batch_init(&b, w, 1);
	b.jobs[0] = (struct job){
		.item = {.key = due->key, .message = due->message},
		.due = due,
		.verdict = VERDICT_AGAIN,
	};
	FAULT("before-retry");
	run(&b);
	FAULT("retried");
	enum verdict v = b.jobs[0].verdict;
	batch_done(&b);
	return v;
}

/* SPDX-License-Identifier: MIT */
/* One PostgreSQL session in pipeline mode: statements are queued, travel together, and their results
 * are taken in order.  The only room that includes libpq-fe.h. */
#ifndef INBOXD_DB_DB_H
#define INBOXD_DB_DB_H

#include "base/bytes.h"
#include "base/err.h"
#include "config/config.h"

struct db_conn;
struct db_result;
struct pg_conn; /* PGconn */

/* A parameter.  data == NULL is SQL NULL.  Text must be followed by a NUL. */
struct db_value {
	const void *data;
	size_t size;
	bool binary;
};

/* Whether libpq can read the conninfo: RC_OK, or RC_FATAL with a text that quotes none of it. */
enum rc db_check_conninfo(const struct config_database *database, struct err *err) MUST_CHECK;

/* Connects (at most connect_timeout_ms), reading the password file, and prepares the session: READ ONLY
 * by default, UTF8, time-outs, keepalives, no notices to standard error.  RC_UNAVAILABLE when a later
 * try may succeed, RC_FATAL when only an edit of the configuration can help. */
enum rc db_conn_open(const struct config_database *database, const char *application_name,
	struct db_conn **ret, struct err *err) MUST_CHECK;
void db_conn_close(struct db_conn *c);

/* Limits, kept by the server: how long one statement may run (the gate lifts it for COMMIT), and how long
 * a transaction of ours may stand idle.  0: no limit.  Behind a pooler they hold inside our transactions
 * only. */
enum rc db_conn_limit(struct db_conn *c, uint32_t statement_ms, uint32_t idle_ms,
	struct err *err) MUST_CHECK;

/* How long any answer may take - of a statement, or of COMMIT - before on_silence is asked, and again each
 * time so long: true waits on, false gives the session up, as does having nothing to ask; 0 waits for
 * ever.  Until db_conn_limit, which sets it a little above the limit on statements, nothing is limited.
 * COPY and the raw connection are not. */
void db_conn_patience(struct db_conn *c, uint32_t ms);
void db_conn_on_silence(struct db_conn *c, bool (*on_silence)(void *arg), void *arg);
/* What is to be said for a statement's limit: the server is to be first. */
uint32_t db_patience_for(uint32_t statement_ms);

/* What a session of ours is doing that does not answer, as seen from another one, made for it and closed
 * again; it takes about twice connect_timeout_ms at most for each address of the server, and what looking up
 * its name takes.  A pooler hides which session it is: there any of this user's that waits counts. */
enum db_seen {
	DB_SEEN_NOTHING, /* the server does not answer either */
	DB_SEEN_OTHER,   /* it answers; the session runs something, or is not there any more */
	DB_SEEN_STANDBY, /* the session's COMMIT waits for a synchronous standby */
};
enum db_seen db_look_at(const struct config_database *database, const struct db_conn *c);

/* Undoes what was left behind in the session (settings, temporary tables, session locks, prepared
 * statements) and prepares it again.  Outside a transaction, nothing queued. */
enum rc db_conn_reset(struct db_conn *c, struct err *err) MUST_CHECK;

int db_conn_fd(const struct db_conn *c);
/* Takes in what arrived unasked (a closing server), if something did; false when the session is lost. */
bool db_conn_is_alive(struct db_conn *c, bool is_readable);
/* The schema, quoted as an identifier, for statement texts. */
const char *db_conn_schema(const struct db_conn *c);
/* Server version as in PQserverVersion. */
int db_conn_version(const struct db_conn *c);

/* Queues one statement of the extended protocol; nothing waits.  The text is parsed by the server
 * once per session and kept by its text (unless prepared_statements is off).  `sql` need not outlive
 * the call.  Its result must be taken by db_next, or passed over by db_sync_end. */
enum rc db_queue(struct db_conn *c, const char *sql, size_t n, const struct db_value *args,
	bool binary_result, struct err *err) MUST_CHECK;

/* Queues the beginning of a transaction of ours, whatever the defaults of the role are; db_take_begin takes
 * its results. */
enum rc db_queue_begin(struct db_conn *c, struct err *err) MUST_CHECK;
enum rc db_take_begin(struct db_conn *c, struct err *err) MUST_CHECK;

/* Ends what is queued with a Sync and sends it: after an error everything up to here is skipped by
 * the server. */
enum rc db_sync(struct db_conn *c, struct err *err) MUST_CHECK;

/* Result of the oldest queued statement not yet taken.  An error of that statement: its class, with
 * SQLSTATE and message in err.  A statement skipped after an earlier error: RC_RETRY with the text
 * "skipped after an earlier error".  Session lost: RC_UNAVAILABLE. */
enum rc db_next(struct db_conn *c, struct db_result **ret, struct err *err) MUST_CHECK;

/* Takes all results up to and including the Sync; returns the first error among those not taken.
 * RC_OK leaves the session ready for more. */
enum rc db_sync_end(struct db_conn *c, struct err *err) MUST_CHECK;

/* db_queue, db_sync, db_next, db_sync_end in one: one round trip.  ret may be NULL. */
enum rc db_exec(struct db_conn *c, const char *sql, size_t n, const struct db_value *args,
	bool binary_result, struct db_result **ret, struct err *err) MUST_CHECK;

/* Statements queued and not yet taken (without Syncs). */
size_t db_queued(const struct db_conn *c);

void db_result_free(struct db_result *r);
size_t db_result_rows(const struct db_result *r);
size_t db_result_columns(const struct db_result *r);
uint64_t db_result_affected(const struct db_result *r);
const char *db_result_tag(const struct db_result *r); /* command tag, "COMMIT" */
struct bytes db_result_value(const struct db_result *r, size_t row, size_t column);
int64_t db_result_int(const struct db_result *r, size_t row, size_t column); /* binary int2, 4, 8 */

static inline void auto_result(struct db_result **r)
{
	db_result_free(*r);
}

/* Has the server parse a statement: how many parameters it takes, and the OIDs of the types of the first
 * max of them (types may be NULL if max is 0). */
enum rc db_prepare(struct db_conn *c, const char *sql, uint32_t *ret_types, size_t max,
	size_t *ret_parameters, struct err *err) MUST_CHECK;

/* COPY … FROM STDIN; nothing may be queued when it begins (take everything first with db_sync and
 * db_sync_end). */
enum rc db_copy_begin(struct db_conn *c, const char *sql, struct err *err) MUST_CHECK;
enum rc db_copy_data(struct db_conn *c, struct bytes data, struct err *err) MUST_CHECK;
enum rc db_copy_end(struct db_conn *c, struct err *err) MUST_CHECK;

/* Lends the raw connection, in blocking mode, out of the pipeline; nothing may be queued.
 * db_raw_end takes it back: fetches what was left, and says if it is still inside a transaction block
 * (RC_OK), has left it (RC_REJECT) or is lost (RC_UNAVAILABLE). */
struct pg_conn *db_raw_begin(struct db_conn *c);
enum rc db_raw_end(struct db_conn *c, struct err *err) MUST_CHECK;

/* True since the last db_warning_clear if the server said that a commit was not waited for by its
 * synchronous standbys. */
bool db_warned(const struct db_conn *c);
void db_warning_clear(struct db_conn *c);

/* True if the server ended this session along with all others: it was shut down at once, or another
 * session crashed.  No statement of this one is to blame. */
bool db_was_dismissed(const struct db_conn *c);

/* Whether the session is inside a transaction block, failed or not. */
enum db_tx_state { DB_TX_NONE, DB_TX_OPEN, DB_TX_FAILED, DB_TX_LOST };
enum db_tx_state db_tx_state(const struct db_conn *c);

/* What a statement could leave behind.  Pure. */
enum db_verb {
	DB_VERB_PLAIN,   /* nothing that outlives the transaction */
	DB_VERB_STATE,   /* SET, LISTEN, PREPARE, temporary tables, advisory session locks, … */
	DB_VERB_CONTROL, /* BEGIN, COMMIT, ROLLBACK, PREPARE TRANSACTION, SET TRANSACTION …: refused */
};
enum db_verb db_verb_of(const char *sql);

/* Class of an SQLSTATE: RC_REJECT for data errors (22, 23 but 23503), RC_UNAVAILABLE for what the
 * server or its surroundings lack (08, 53 but 53400, 57P, 25006, …), RC_RETRY for the rest.  Pure. */
enum rc db_error_class(const char *sqlstate);
/* What it is when the session lives on.  A statement that raised the code itself (`source`: the function
 * inside the server that reports it; may be NULL), or tells of another server it talked to, says nothing
 * of this one: RC_RETRY instead of RC_UNAVAILABLE.  Pure. */
enum rc db_error_class_of_statement(const char *sqlstate, const char *source);
/* Of a statement of a consumer's handler: its configuration has the first word, the whole code before its
 * class; otherwise it is what the functions above made of it.  Pure. */
enum rc db_error_class_of(
	const struct config_consumer *consumer, const char *sqlstate, enum rc otherwise);
bool db_error_is_serialization(const char *sqlstate); /* 40001, 40P01, …: run again at once */

#endif

/* SPDX-License-Identifier: MIT */
/* Inside of a session; for the files of this room only. */
#ifndef INBOXD_DB_SESSION_H
#define INBOXD_DB_SESSION_H

#include "db/db.h"

#include <libpq-fe.h>
#include <uthash.h>

enum db_awaited { AWAIT_PREPARE, AWAIT_QUERY, AWAIT_SYNC };

/* A statement text that the server has parsed, or is about to. */
struct db_statement {
	UT_hash_handle hh; /* by text */
	char *text;
	char name[16];
};

/* What was sent and not yet answered, oldest first. */
struct db_pending {
	enum db_awaited kind;
	struct db_statement *statement; /* AWAIT_PREPARE */
};

struct db_conn {
	PGconn *pg;
	char *schema;
	bool keep_statements;
	bool lost;
	bool is_given_up; /* by us: it did not answer */
	bool warned;
	bool is_dismissed; /* said to go, as all others were */
	bool stale; /* what the server has parsed is not to be used again */
	struct db_statement *statements;
	struct db_statement *last_statement; /* the next one is mostly the same; may be NULL */
	uint32_t names_used;
	uint32_t statement_ms, idle_ms; /* 0: no limit */
	struct db_pending *pending; /* ring of power-of-two size */
	size_t pending_cap, pending_first, pending_n;
	size_t queries_pending;
	size_t unsent; /* bytes of parameters queued since something was waited for */
	uint32_t patience_ms; /* see db_conn_patience */
	bool (*on_silence)(void *arg);
	void *on_silence_arg;
};

/* The next result, as PQgetResult has it, waited for as long as patience lasts; NULL also when the session
 * was given up, which the next call of anything will find lost. */
PGresult *db_answer(struct db_conn *c);
/* Outside a pipeline: all results up to the NULL behind them; the last one, or NULL. */
PGresult *db_last_answer(struct db_conn *c);
/* Outside a pipeline: runs plain SQL, several statements perhaps, that returns nothing of interest. */
enum rc db_simple(struct db_conn *c, const char *sql, struct err *err) MUST_CHECK;
/* Until all that was queued is on its way; false: the session is lost. */
bool db_wait_sent(struct db_conn *c);

/* Class and text of a failed result, or of a lost session. */
enum rc db_failure(struct db_conn *c, const PGresult *res, struct err *err);

/* The session is of no use any more; err gets libpq's text. */
enum rc db_lost(struct db_conn *c, struct err *err);

/* Connects as configured, without preparing anything: also for those who need no pipeline. */
enum rc db_connect(const struct config_database *database, const char *application_name,
	PGconn **ret, struct err *err) MUST_CHECK;

void db_forget_statement(struct db_conn *c, struct db_statement *statement);

/* Between transactions, after a statement was found stale: lets go of all that the server has parsed. */
enum rc db_refresh_statements(struct db_conn *c, struct err *err) MUST_CHECK;

#endif

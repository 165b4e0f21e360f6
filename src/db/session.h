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
	bool warned;
	bool stale; /* what the server has parsed is not to be used again */
	struct db_statement *statements;
	uint32_t names_used;
	uint32_t statement_ms, idle_ms; /* 0: no limit */
	struct db_pending *pending; /* ring of power-of-two size */
	size_t pending_cap, pending_first, pending_n;
	size_t queries_pending;
};

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

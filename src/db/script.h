/* SPDX-License-Identifier: MIT */
/* Runs several statements as one script, for migrations: the pipeline takes only single ones. */
#ifndef INBOXD_DB_SCRIPT_H
#define INBOXD_DB_SCRIPT_H

#include "db/db.h"

/* Runs all statements of sql, results thrown away.  Outside a transaction block the server makes
 * them one transaction.  Nothing may be queued.  An error says the line of sql it happened in;
 * RC_UNAVAILABLE when the session is lost, RC_FATAL for everything else, err->sqlstate set. */
enum rc db_script(struct db_conn *c, const char *sql, struct err *err) MUST_CHECK;

/* Line (from 1) of the character (from 1, as PostgreSQL counts them) in UTF-8 text.  Pure. */
size_t script_line(const char *text, size_t character);

#endif

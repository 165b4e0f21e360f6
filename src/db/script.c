/* SPDX-License-Identifier: MIT */
/* Scripts go by the simple query protocol, over the connection that the pipeline lends for it. */
#include "db/script.h"

#include <stdio.h>
#include <stdlib.h>

#include "db/session.h"

size_t script_line(const char *text, size_t character)
{
	size_t line = 1;
	for (size_t n = 1; *text != '\0' && n < character; text++) {
		line += *text == '\n';
		/* Bytes of the form 10xxxxxx go on with a character that is counted already. */
		n += (text[1] & 0xC0) != 0x80;
	}
	return line;
}

static const char *field_or(const PGresult *res, int code, const char *otherwise)
{
	const char *value = PQresultErrorField(res, code);
	return value != NULL ? value : otherwise;
}

static enum rc describe(const PGresult *res, const char *sql, struct err *err)
{
	const char *position = field_or(res, PG_DIAG_STATEMENT_POSITION, NULL);
	const char *detail = field_or(res, PG_DIAG_MESSAGE_DETAIL, NULL);
	const char *hint = field_or(res, PG_DIAG_MESSAGE_HINT, NULL);
	char where[40] = "";
	if (position != NULL)
		(void)snprintf(where, sizeof where, " (line %zu)",
			script_line(sql, strtoul(position, NULL, 10)));
	const char *sqlstate = field_or(res, PG_DIAG_SQLSTATE, "");
	err_set(err, RC_FATAL, "%s%s%s%s%s%s",
		field_or(res, PG_DIAG_MESSAGE_PRIMARY, "unknown error"), where,
		detail != NULL ? "; " : "", detail != NULL ? detail : "",
		hint != NULL ? "; hint: " : "", hint != NULL ? hint : "");
	if (err != NULL)
		(void)snprintf(err->sqlstate, sizeof err->sqlstate, "%.5s", sqlstate);
	return RC_FATAL;
}

enum rc db_script(struct db_conn *c, const char *sql, struct err *err)
{
	PGconn *raw = db_raw_begin(c);
	if (raw == NULL)
		return err_set(err, RC_UNAVAILABLE, "the database session is lost");
	PGresult *res = PQexec(raw, sql);
	enum rc rc = RC_OK;
	ExecStatusType status = PQresultStatus(res);
	if (PQstatus(raw) != CONNECTION_OK)
		rc = db_lost(c, err);
	else if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK &&
		status != PGRES_EMPTY_QUERY)
		rc = describe(res, sql, err);
	PQclear(res);

	struct err back = {0};
	/* RC_REJECT only says that no transaction is open, which a script may well want. */
	if (db_raw_end(c, &back) == RC_UNAVAILABLE && rc == RC_OK) {
		if (err != NULL)
			*err = back;
		rc = RC_UNAVAILABLE;
	}
	return rc;
}

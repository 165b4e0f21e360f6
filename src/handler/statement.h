/* SPDX-License-Identifier: MIT */
/* What the first words of a handler's statement say: COPY, and whose savepoint it is about.
 * Pure. */
#ifndef INBOXD_HANDLER_STATEMENT_H
#define INBOXD_HANDLER_STATEMENT_H

#include "base/buf.h"

#define SAVEPOINT_NAME_MAX 64 /* PostgreSQL cuts identifiers to one byte less */

enum statement_kind {
	STATEMENT_OTHER,
	STATEMENT_EMPTY,
	STATEMENT_COPY,
	STATEMENT_SAVEPOINT, /* name is set; below likewise */
	STATEMENT_RELEASE,
	STATEMENT_ROLLBACK_TO,
};

struct statement {
	enum statement_kind kind;
	char name[SAVEPOINT_NAME_MAX]; /* as PostgreSQL takes it: lower case unless quoted, cut */
};

struct statement statement_parse(const char *sql);

/* The savepoints that one message has set, in order: it may go back to those and to no others, or a
 * message could undo the work of its neighbours in the batch. */
struct savepoints {
	struct buf names; /* SAVEPOINT_NAME_MAX bytes each */
};
void savepoints_done(struct savepoints *s);
void savepoints_clear(struct savepoints *s);

/* Whether the statement may run. */
bool savepoints_allow(const struct savepoints *s, const struct statement *statement);

/* What a statement that succeeded has changed. */
void savepoints_note(struct savepoints *s, const struct statement *statement);

#endif

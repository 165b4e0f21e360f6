/* SPDX-License-Identifier: MIT */
/* Brings the schema to the version this program knows, one transaction for each version. */
#ifndef INBOXD_DB_MIGRATE_H
#define INBOXD_DB_MIGRATE_H

#include "db/db.h"
#include "db/migrations.h"

/* What the database says was applied: a row of SCHEMA.migration. */
struct migrate_row {
	uint32_t version;
	char name[64];
	char program[32]; /* version of the program that applied it */
	uint8_t checksum[MIGRATION_CHECKSUM_SIZE];
};

/* How many of the known migrations are applied: rows must be the first ones of them, unchanged and
 * without gaps (rows sorted by version).  RC_FATAL, with what to do, when a file was changed after
 * it was applied or when the database is newer than this program.  Pure. */
enum rc migrate_plan(const struct migration *known, size_t n_known, const struct migrate_row *rows,
	size_t n_rows, size_t *ret_applied, struct err *err) MUST_CHECK;

/* What a role may do with the schema.  Roles must exist. */
enum migrate_part { MIGRATE_RUN, MIGRATE_OPERATOR, MIGRATE_READ };
struct migrate_grant {
	enum migrate_part part;
	const char *role;
};

struct migrate_order {
	const char *schema; /* not quoted */
	const struct migrate_grant *grants;
	size_t n_grants;
	/* Hears one line of text for each step; NULL: nobody. */
	void (*say)(void *arg, const char *text);
	void *arg;
};

/* Applies what is missing, then the grants.  One program at a time for each schema: a second one
 * waits. RC_FATAL also when the server refuses a statement; RC_UNKNOWN when the session was lost
 * during a COMMIT: running it again tells, and is always safe. */
enum rc migrate_run(struct db_conn *c, const struct migrate_order *order, size_t *ret_applied,
	struct err *err) MUST_CHECK;

/* Appends the same as a script for psql; c == NULL: as for an empty database, else what is missing.
 */
enum rc migrate_print(struct db_conn *c, const struct migrate_order *order, struct buf *out,
	struct err *err) MUST_CHECK;

/* Whether a daemon of this version may work with the schema: RC_FATAL, with what to do, if not. */
enum rc migrate_check(struct db_conn *c, struct err *err) MUST_CHECK;

#endif

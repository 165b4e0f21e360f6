/* SPDX-License-Identifier: MIT */
/* The files of sql/ inside the program: the numbered ones in their order, and the templates. */
#ifndef INBOXD_DB_MIGRATIONS_H
#define INBOXD_DB_MIGRATIONS_H

#include "base/buf.h"
#include "base/hash.h"

/* One file NNNN_name.sql.  Its text says @schema@ where the quoted name of the schema belongs, and
 * begins and ends no transaction. */
struct migration {
	uint32_t version; /* NNNN */
	const char *name; /* "0001_inboxd" */
	const char *text; /* NUL-terminated */
};

#define MIGRATION_CHECKSUM_SIZE HASH_SIZE

/* Sorted by version, starting at 1, without gaps. */
size_t migrations_count(void);
struct migration migrations_get(size_t i);
uint32_t migrations_newest(void); /* version of the last one */

/* SHA-256 over the text as it stands in the file. */
void migration_checksum(const struct migration *m, uint8_t ret[MIGRATION_CHECKSUM_SIZE]);

/* Text of another file of sql/ by its name without ".sql" ("grants_run"); NULL if there is none. */
const char *migrations_template(const char *name);

/* `name` as a quoted SQL identifier: a"b becomes "a""b". */
void sql_add_identifier(struct buf *out, const char *name);

/* Appends text with @schema@ and @role@ replaced by the quoted names; role may be NULL where the
 * text has no @role@.  Any other @word@ is left as it is. */
void sql_add_filled(struct buf *out, const char *text, const char *schema, const char *role);

#endif

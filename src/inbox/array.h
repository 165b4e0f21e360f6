/* SPDX-License-Identifier: MIT */
/* Arrays and integers in PostgreSQL's binary form, as parameters.  Pure. */
#ifndef INBOXD_INBOX_ARRAY_H
#define INBOXD_INBOX_ARRAY_H

#include "base/buf.h"
#include "db/db.h"

/* Begins an array of n elements; then n times array_add_….  OIDs are fixed by PostgreSQL. */
void array_begin_bytea(struct buf *out, size_t n);
void array_begin_int8(struct buf *out, size_t n);
void array_add_bytea(struct buf *out, struct bytes value);
void array_add_int8(struct buf *out, int64_t value);

/* "{1,2,5}", the text form of an array of small positive numbers: calls for each. */
void array_each_number(struct bytes text, void (*each)(void *arg, uint32_t number), void *arg);

/* A parameter of its own kind. */
static inline struct db_value value_bytea(struct bytes b)
{
	return (struct db_value){.data = b.data, .size = b.size, .binary = true};
}

static inline struct db_value value_buf(const struct buf *b)
{
	return (struct db_value){.data = b->data, .size = b->size, .binary = true};
}

static inline struct db_value value_text(const char *s)
{
	return (struct db_value){.data = s, .size = s != NULL ? strlen(s) : 0};
}

/* A number's text, in storage of the caller's. */
struct number_text {
	char text[24];
};
struct db_value value_int(struct number_text *store, int64_t v);

#endif

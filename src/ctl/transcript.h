/* SPDX-License-Identifier: MIT */
/* What happened in a run, told line by line as it happens, or as one JSON object at the end. */
#ifndef INBOXD_CTL_TRANSCRIPT_H
#define INBOXD_CTL_TRANSCRIPT_H

#include "base/buf.h"
#include "db/db.h"

struct transcript_statement {
	char *sql;             /* owned */
	struct buf parameters; /* owned; JSON array */
	char *result;          /* owned; NULL: none yet */
};

struct transcript {
	bool json;
	struct buf facts;                        /* owned; JSON members */
	struct transcript_statement *statements; /* owned */
	size_t n, cap;
	size_t answered; /* results come in the order of the statements */
};

void transcript_init(struct transcript *t, bool json);
void transcript_done(struct transcript *t);

/* "name  value"; absent bytes are left out. */
void transcript_fact(struct transcript *t, const char *name, struct bytes value);

/* A statement is about to be sent; its result comes later, those of others may come first. */
void transcript_sql(struct transcript *t, const char *sql, size_t n, const struct db_value *args);
/* The result of the oldest statement without one: its command tag, or the error. */
void transcript_result(struct transcript *t, const char *text);

/* Writes the JSON object. */
void transcript_end(const struct transcript *t);

#endif

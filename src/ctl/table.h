/* SPDX-License-Identifier: MIT */
/* Rows under named columns, printed for people or as JSON.  Pure. */
#ifndef INBOXD_CTL_TABLE_H
#define INBOXD_CTL_TABLE_H

#include "base/buf.h"

struct table_column {
	const char *name; /* for JSON; in capitals for people */
	bool is_number;   /* cells are numbers: to the right, and without quotes in JSON */
};

struct table {
	const struct table_column *columns; /* borrowed */
	size_t n_columns;
	struct table_cell {
		size_t at, size; /* in text */
		bool is_null;
	} * cells; /* owned; row by row */
	size_t n_cells, cap;
	struct buf text; /* owned */
};

void table_init(struct table *t, const struct table_column *columns, size_t n_columns);
void table_done(struct table *t);
static inline void auto_table(struct table *t)
{
	table_done(t);
}

/* The next cell, row by row; absent bytes are null ("-" for people). */
void table_add(struct table *t, struct bytes text);
void table_add_number(struct table *t, uint64_t v);

/* Columns aligned, one row a line, control characters escaped. */
void table_print(const struct table *t, struct buf *out);
/* An array of objects, one a line. */
void table_print_json(const struct table *t, struct buf *out);

#endif

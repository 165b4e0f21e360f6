/* SPDX-License-Identifier: MIT */
/* Errors in files: collected with their places, printed at once with line, caret and hint. */
#ifndef INBOXD_CONFIG_DIAG_H
#define INBOXD_CONFIG_DIAG_H

#include "base/buf.h"

#define DIAG_SHOWN_MAX 50 /* of one printing; the rest is a number */

/* A file as it was read; owned by the pool of its nodes (yaml.h). */
struct diag_file {
	char *name;      /* as shown */
	char *directory; /* absolute; what relative paths in the file are relative to */
	char *text;      /* NUL-terminated, without byte order mark */
	size_t size;
	uint32_t order; /* files are shown in this order */
	struct diag_file *next;
};

struct place {
	const struct diag_file *file;
	uint32_t line;   /* from 1; 0: the file as a whole */
	uint32_t column; /* from 1, in code points */
};

struct diag {
	struct place place;
	size_t number; /* order of arrival */
	char *text;
	char *hint; /* NULL: none */
};

struct diags {
	struct diag *items; /* owned */
	size_t n, cap;
	size_t dropped; /* beyond what is kept */
};

/* text: one line, without place; it must hold no secret.  Source lines are masked when shown. */
void diag_add(struct diags *d, struct place place, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Gives the error that was added last its hint, what to do about it. */
void diag_hint(struct diags *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void diags_done(struct diags *d);

/* Appends all of them, sorted by place, those that say the same at the same place once:
 *
 *     inboxd.yaml:4:3: unknown option "hearbeat" in broker
 *       hearbeat: 10s
 *       ^
 *       hint: did you mean "heartbeat"?
 */
void diags_print(struct diags *d, struct buf *out);
/* One error by itself; hint may be NULL. */
void diag_print(struct place place, const char *text, const char *hint, struct buf *out);

/* Appends text for use inside an error: cut to a sensible length, control characters escaped. */
void diag_quote(struct buf *out, const char *text);

/* Length and code point of the character at p; a byte that is not UTF-8 counts as one U+FFFD. */
size_t diag_step(const uint8_t *p, size_t left, uint32_t *ret_code);

/* A line's bytes within its file, without the line feed; empty beyond the last one. */
struct bytes diag_line(const struct diag_file *file, uint32_t line);

#endif

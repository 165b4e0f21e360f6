/* SPDX-License-Identifier: MIT */
/* Finds one value in a JSON text (RFC 8259) by pointer (RFC 6901), keeping numbers as the literal
 * token: 9007199254740993, -0 and 1e400 stay what the publisher wrote, which no parser into doubles
 * or 64-bit integers can promise.  Pure; no recursion; depth bounded. */
#ifndef INBOXD_BASE_JSON_H
#define INBOXD_BASE_JSON_H

#include "base/buf.h"

#define JSON_MAX_DEPTH 1024

enum json_kind {
	JSON_ABSENT, /* valid text, but nothing at that pointer */
	JSON_NULL,
	JSON_BOOL,
	JSON_NUMBER,
	JSON_STRING,
	JSON_ARRAY,
	JSON_OBJECT,
};

/* The whole text is checked, wherever the value stands: bad UTF-8, lone surrogates, trailing bytes
 * and nesting beyond JSON_MAX_DEPTH make it invalid; a leading byte order mark is skipped.  Of a
 * name that stands twice in an object the last one counts, as in PostgreSQL's jsonb.
 * Returns false and sets *ret_why (static text) and *ret_at (byte offset) if it is not valid JSON.
 * Otherwise *ret_kind, and *ret_raw the value's own text (strings with quotes and escapes). */
bool json_find(struct bytes text, const char *pointer, enum json_kind *ret_kind,
	struct bytes *ret_raw, const char **ret_why, size_t *ret_at);

/* Appends what a raw string token says, escapes resolved.  raw must come from json_find. */
void json_unescape(struct bytes raw, struct buf *out);

/* "" and "/a/0/b~1c" are pointers; what is wrong otherwise, or NULL. */
const char *json_pointer_error(const char *pointer);

/* Appends text as a JSON string with quotes; bytes that are not UTF-8 become U+FFFD. */
void json_add_string(struct buf *out, struct bytes text);

#endif

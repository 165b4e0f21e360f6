/* SPDX-License-Identifier: MIT */
/* Typed AMQP 0-9-1 values as people write and read them: NAME:TYPE=VALUE, and JSON.  Pure.
 *
 * In JSON a string is a string, true and false are a bool, an integer is an int64, another number
 * is a double, null is void, arrays and objects are arrays and tables.  Every other type is an
 * object
 * {"$type": TYPE, "$value": VALUE}, VALUE a string or a number as --header takes it; so are arrays
 * and tables that are malformed or nested deeper than 64 ("table-base64"). */
#ifndef INBOXD_CTL_AMQP_VALUE_H
#define INBOXD_CTL_AMQP_VALUE_H

#include "base/err.h"
#include "base/json.h"
#include "message/props.h"

/* Whether a name is that of a type: string, bytes, base64, bool, int8, … */
bool amqp_is_type(struct bytes name);
/* What the type with that letter on the wire is called; "?" if there is none. */
const char *amqp_type_of_letter(uint8_t letter);

/* Appends letter and content in wire form; RC_REJECT with what is wrong, out then undefined. */
enum rc amqp_add_text(
	struct buf *out, struct bytes type, struct bytes text, struct err *err) MUST_CHECK;
enum rc amqp_add_json(
	struct buf *out, enum json_kind kind, struct bytes raw, struct err *err) MUST_CHECK;
/* The name of a table entry; RC_REJECT beyond 255 bytes. */
enum rc amqp_add_name(struct buf *table, struct bytes name, struct err *err) MUST_CHECK;

/* One entry of a table or array with the type it has on the wire. */
struct amqp_entry {
	struct field field;
	const char *type; /* "int32", … */
};
bool amqp_next(struct reader *r, bool is_array, struct amqp_entry *ret);

/* Appends an entry's value as JSON that amqp_add_json takes to the same bytes again. */
void amqp_add_as_json(struct buf *out, const struct amqp_entry *e);

#endif

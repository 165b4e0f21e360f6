/* SPDX-License-Identifier: MIT */
/* Reads AMQP 0-9-1 basic properties and field tables from their wire form.  Pure, no allocation, no
 * recursion: tables inside tables are skipped by their length. */
#ifndef INBOXD_MESSAGE_PROPS_H
#define INBOXD_MESSAGE_PROPS_H

#include "base/buf.h"

enum prop {
	PROP_CONTENT_TYPE,
	PROP_CONTENT_ENCODING,
	PROP_HEADERS,
	PROP_DELIVERY_MODE,
	PROP_PRIORITY,
	PROP_CORRELATION_ID,
	PROP_REPLY_TO,
	PROP_EXPIRATION,
	PROP_MESSAGE_ID,
	PROP_TIMESTAMP,
	PROP_TYPE,
	PROP_USER_ID,
	PROP_APP_ID,
	PROP_CLUSTER_ID,
	PROP_COUNT,
};

/* Borrowed from the raw properties.  text[p].data is NULL where the property is absent; for
 * PROP_HEADERS it is the table's content without its length; numeric ones are in number[]. */
struct props {
	struct bytes text[PROP_COUNT];
	uint64_t number[PROP_COUNT]; /* PROP_DELIVERY_MODE, PROP_PRIORITY, PROP_TIMESTAMP */
	uint16_t present;            /* bit (1 << p) */
};

/* False, and *ret empty, if the bytes are no property list, or more than that. */
bool props_decode(struct bytes raw, struct props *ret);

/* Property by the name AMQP gives it ("type", "app_id", "message_id", …; not "headers");
 * PROP_COUNT if there is none. */
enum prop prop_by_name(struct bytes name);
const char *prop_name(enum prop p);
bool prop_is_number(enum prop p); /* its value stands in number[], not in text[] */

/* What a property list says, written back to wire form: the inverse of props_decode.  Texts are cut
 * at 255 bytes, which is what a short string of AMQP holds. */
void props_encode(struct buf *out, const struct props *p);

enum field_kind {
	FIELD_ABSENT,
	FIELD_VOID,
	FIELD_BOOL,
	FIELD_INTEGER,
	FIELD_FLOAT,
	FIELD_DECIMAL,
	FIELD_TIMESTAMP,
	FIELD_STRING,
	FIELD_BYTES,
	FIELD_ARRAY,
	FIELD_TABLE,
};

/* One value of a table or array. */
struct field {
	enum field_kind kind;
	struct bytes name;         /* within a table */
	struct bytes content;      /* string, bytes, array, table: the content without its length */
	int64_t integer;           /* FIELD_INTEGER; FIELD_BOOL 0 or 1 */
	uint64_t unsigned_integer; /* FIELD_TIMESTAMP, FIELD_INTEGER where is_unsigned */
	bool is_unsigned;          /* integer of kind unsigned 64 bit beyond INT64_MAX */
	double real;               /* FIELD_FLOAT */
	uint8_t scale;             /* FIELD_DECIMAL: integer / 10^scale */
};

/* Next entry of a table's (is_array: an array's) content; false at the end, or with r->bad set when
 * the bytes are malformed. */
bool field_next(struct reader *r, bool is_array, struct field *ret);

/* Looks a header up; the last one of that name wins.  FIELD_ABSENT if there is none.  False if the
 * table is malformed: what stands before the fault was read. */
bool props_header(const struct props *p, struct bytes name, struct field *ret);

/* Whether a broker keeps count of deliveries in a header of that name: it differs from one delivery of
 * a message to the next. */
bool props_is_count(struct bytes name);

/* A scalar's text (true, -5, 1.5, 12.34, bytes as they are) appended to out; false for void,
 * array, table and absent. */
bool field_text(const struct field *f, struct buf *out);

/* Wire form of one table entry, for those who build properties. */
void field_add_string(struct buf *table, const char *name, struct bytes value);
void field_add_integer(struct buf *table, const char *name, int64_t value);

#endif

/* SPDX-License-Identifier: MIT */
/* A source: one scalar of a message, named the same way in `key`, `fingerprint`, the sql handler's
 * parameters and the handlers' get.  Pure. */
#ifndef INBOXD_MESSAGE_SOURCE_H
#define INBOXD_MESSAGE_SOURCE_H

#include "base/err.h"
#include "message/message.h"
#include "message/props.h"

enum source_kind {
	SOURCE_MESSAGE_ID,
	SOURCE_HEADER,      /* header:NAME */
	SOURCE_JSON,        /* json:/pointer; json: alone is the whole body */
	SOURCE_PROPERTY,    /* property:NAME */
	SOURCE_ROUTING_KEY,
	SOURCE_BODY,
	SOURCE_CLOUDEVENTS, /* source and id of a CloudEvent: two values */
};

struct source {
	enum source_kind kind;
	enum prop property; /* SOURCE_PROPERTY */
	char *argument;     /* owned; header name or pointer */
};

/* Compiles a source; RC_FATAL with what is wrong and what would be right. */
enum rc source_parse(const char *text, struct source *ret, struct err *err) MUST_CHECK;
void source_done(struct source *s);

/* Whether a source may be part of a key or a fingerprint: NULL, or why not (delivery tag, timestamp,
 * correlation id, x-death and the like change from delivery to delivery or are shared). */
const char *source_unfit_for_key(const struct source *s);

/* A message with its properties decoded once. */
struct source_message {
	const struct message *message;
	struct props props;
	bool has_props; /* false: the property list is malformed */
};
void source_message_init(struct source_message *sm, const struct message *m);

enum source_result {
	SOURCE_PRESENT,
	SOURCE_MISSING,  /* absent, JSON null, AMQP void; for keys empty counts as missing too */
	SOURCE_UNUSABLE, /* the body is not JSON, its encoding unknown, the header a table, … */
};

/* Appends the value's text to out.  kind_json (may be NULL) tells the JSON kind for SOURCE_JSON: for
 * arrays and objects the text is their JSON.  On SOURCE_UNUSABLE err says why.
 * SOURCE_CLOUDEVENTS appends source, a NUL byte, id. */
enum source_result source_get(
	const struct source *s, const struct source_message *sm, struct buf *out, struct err *err);

#endif

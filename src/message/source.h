/* SPDX-License-Identifier: MIT */
/* A source: one scalar of a message, named the same way in `key`, `fingerprint`, the sql handler's
 * parameters and the handlers' get.  Pure.
 *
 * What a value's text is: strings and byte arrays as they are, true and false, integers in decimal,
 * numbers in JSON as their literal token.  So the header 42 and the JSON values 42 and "42" have
 * the same text, while 42.0 and 4.2e1 are other texts. */
#ifndef INBOXD_MESSAGE_SOURCE_H
#define INBOXD_MESSAGE_SOURCE_H

#include "base/err.h"
#include "message/message.h"
#include "message/props.h"

enum source_kind {
	SOURCE_MESSAGE_ID, /* also written property:message_id */
	SOURCE_HEADER,     /* header:NAME */
	SOURCE_JSON,       /* json:/pointer; json: alone is the whole body */
	SOURCE_PROPERTY,   /* property:NAME */
	SOURCE_ROUTING_KEY,
	SOURCE_BODY,
	SOURCE_CLOUDEVENTS, /* source and id of a CloudEvent: two values */
};

struct source {
	enum source_kind kind;
	enum prop property; /* SOURCE_PROPERTY */
	char *argument;     /* owned; header name or pointer, else NULL */
	size_t argument_size;
};

/* Compiles a source; RC_FATAL with what is wrong and what would be right. */
enum rc source_parse(const char *text, struct source *ret, struct err *err) MUST_CHECK;
void source_done(struct source *s);

/* Appends the text that source_parse reads, always the same for equal sources. */
void source_text(const struct source *s, struct buf *out);

/* Whether a source may be part of a key or a fingerprint: NULL, or why not (what the broker changes
 * from delivery to delivery, and what says nothing about which message it is).  Static text that
 * goes on behind the source's name: "header:x-death " "is …". */
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

/* Appends the value's text to out; JSON arrays and objects are their own text.  On SOURCE_UNUSABLE
 * err says why, and out is as before unless SOURCE_PRESENT.  SOURCE_CLOUDEVENTS appends source, a
 * NUL byte, id. */
enum source_result source_get(
	const struct source *s, const struct source_message *sm, struct buf *out, struct err *err);

/* The same for keys and fingerprints: JSON arrays and objects are unusable, since the same content
 * can be written in many ways. */
enum source_result source_get_scalar(
	const struct source *s, const struct source_message *sm, struct buf *out, struct err *err);

/* Identity of a CloudEvent: appends its source, then its id; *ret_size is the length of the source.
 * Binary mode: headers cloudEvents:id, cloudEvents_id, ce-id, ce_id (any case) and the same of
 * source; structured mode: content type application/cloudevents+json, members of the body.  Where a
 * value stands in several places they must agree.  Either one absent or empty: SOURCE_MISSING. */
enum source_result source_get_cloudevent(
	const struct source_message *sm, struct buf *out, size_t *ret_size, struct err *err);

/* SOURCE_PRESENT and the whole body, borrowed; SOURCE_UNUSABLE when it is not at hand because it is
 * streamed. */
enum source_result source_body(const struct source_message *sm, struct bytes *ret, struct err *err);

#endif

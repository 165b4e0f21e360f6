/* SPDX-License-Identifier: MIT */
/* A message in the making, from options or from a file.  Pure.
 *
 * The file is JSON: {"exchange": "", "routing_key": "", "redelivered": false, "properties": {NAME:
 * VALUE}, "headers": {NAME: VALUE}, "body": TEXT} or, where the body is not text, "body_base64"; a
 * body that is an object or an array stands for its own text.  All members are optional; what
 * stands beside a member "message" (as `inboxctl parked show --json` prints it) is passed over. */
#ifndef INBOXD_CTL_DRAFT_H
#define INBOXD_CTL_DRAFT_H

#include "base/err.h"
#include "message/message.h"
#include "message/props.h"

struct draft {
	struct buf exchange, routing_key, headers, body; /* owned */
	struct buf text[PROP_COUNT];                     /* owned */
	uint64_t number[PROP_COUNT];
	uint16_t present; /* as in struct props */
	bool redelivered;
	struct buf wire; /* owned; of draft_message */
};

void draft_done(struct draft *d);
static inline void auto_draft(struct draft *d)
{
	draft_done(d);
}

/* "NAME=VALUE" of a property by its AMQP name, - and _ alike. */
enum rc draft_property(struct draft *d, const char *assignment, struct err *err) MUST_CHECK;
/* "NAME=VALUE", "NAME:TYPE=VALUE", "NAME:void" of a header; what stands behind the last colon of
 * the name counts as type only if it is one. */
enum rc draft_header(struct draft *d, const char *assignment, struct err *err) MUST_CHECK;

enum rc draft_set(struct draft *d, enum prop p, struct bytes value, struct err *err) MUST_CHECK;

/* Takes a file's text; RC_REJECT with what is wrong and where. */
enum rc draft_json(struct draft *d, struct bytes text, struct err *err) MUST_CHECK;

/* Puts the properties and headers of changes over those of d. */
void draft_merge(struct draft *d, const struct draft *changes);

/* The message as the broker would hand it out; lives until the draft changes. */
struct message draft_message(struct draft *d);

/* Appends a message as draft_json reads it, without its body if that is absent; indent is put in
 * front of each line but the first. */
void draft_print(struct buf *out, const struct message *m, const char *indent);

#endif

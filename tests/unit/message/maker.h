/* SPDX-License-Identifier: MIT */
/* Makes messages for the tests of this room. */
#ifndef INBOXD_TESTS_MESSAGE_MAKER_H
#define INBOXD_TESTS_MESSAGE_MAKER_H

#include "message/source.h"

struct maker {
	struct props props;
	struct buf headers;
	struct buf properties;
	struct message message;
	struct source_message view;
};

/* A message with routing key "rk" and nothing else, not yet sealed; what is set is borrowed. */
static inline void maker_begin(struct maker *m)
{
	buf_clear(&m->headers);
	m->props = (struct props){0};
	m->message = (struct message){.routing_key = bytes_str("rk")};
}

static inline void maker_text(struct maker *m, enum prop p, const char *text)
{
	m->props.present |= (uint16_t)(1u << p);
	m->props.text[p] = bytes_str(text);
}

static inline void maker_header(struct maker *m, const char *name, const char *value)
{
	field_add_string(&m->headers, name, bytes_str(value));
}

/* A header of any kind, its value as on the wire. */
static inline void maker_header_raw(
	struct maker *m, const char *name, const char *wire, size_t size)
{
	buf_add_byte(&m->headers, (uint8_t)strlen(name));
	buf_add_str(&m->headers, name);
	buf_add(&m->headers, wire, size);
}

static inline void maker_body(struct maker *m, const char *body)
{
	m->message.body = bytes_str(body);
	m->message.body_size = m->message.body.size;
}

/* The message as the consumer sees it. */
static inline const struct source_message *maker_end(struct maker *m)
{
	if (m->headers.size != 0) {
		m->props.present |= 1u << PROP_HEADERS;
		m->props.text[PROP_HEADERS] = buf_bytes(&m->headers);
	}
	buf_clear(&m->properties);
	props_encode(&m->properties, &m->props);
	m->message.properties = buf_bytes(&m->properties);
	source_message_init(&m->view, &m->message);
	return &m->view;
}

static inline void maker_done(struct maker *m)
{
	buf_done(&m->headers);
	buf_done(&m->properties);
}

#endif

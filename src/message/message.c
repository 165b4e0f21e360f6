/* SPDX-License-Identifier: MIT */
/* The flat form of a message. */
#include "message/message.h"

void message_encode_head(struct buf *out, const struct message *m)
{
	buf_add_byte(out, m->redelivered);
	buf_add_byte(out, (uint8_t)m->exchange.size);
	buf_add_byte(out, (uint8_t)m->routing_key.size);
	buf_add_u32(out, (uint32_t)m->properties.size);
	buf_add_u64(out, m->body_size);
	buf_add_u64(out, m->body.size);
	buf_add(out, m->exchange.data, m->exchange.size);
	buf_add(out, m->routing_key.data, m->routing_key.size);
	buf_add(out, m->properties.data, m->properties.size);
}

void message_encode(struct buf *out, const struct message *m)
{
	message_encode_head(out, m);
	buf_add(out, m->body.data, m->body.size);
}

bool message_decode(struct reader *r, struct message *ret)
{
	struct message m;
	m.redelivered = reader_u8(r) != 0;
	size_t exchange = reader_u8(r);
	size_t routing_key = reader_u8(r);
	size_t properties = reader_u32(r);
	m.body_size = reader_u64(r);
	uint64_t body = reader_u64(r);
	m.exchange = reader_bytes(r, exchange);
	m.routing_key = reader_bytes(r, routing_key);
	m.properties = reader_bytes(r, properties);
	m.body = reader_bytes(r, body);
	if (r->bad || body > m.body_size)
		return false;
	*ret = m;
	return true;
}

/* SPDX-License-Identifier: MIT */
/* The flat form of outgoing messages and their outcomes. */
#include "message/outgoing.h"

static void add_short(struct buf *out, struct bytes b)
{
	size_t n = b.size < UINT16_MAX ? b.size : UINT16_MAX;
	buf_add_u16(out, (uint16_t)n);
	buf_add(out, b.data, n);
}

static struct bytes take_short(struct reader *r)
{
	return reader_bytes(r, reader_u16(r));
}

void outgoing_encode(struct buf *out, const struct outgoing *o)
{
	buf_add_u64(out, (uint64_t)o->id);
	buf_add_u64(out, (uint64_t)o->token);
	buf_add_u32(out, o->attempts);
	add_short(out, o->exchange);
	add_short(out, o->routing_key);
	buf_add_u32(out, (uint32_t)o->properties.size);
	buf_add(out, o->properties.data, o->properties.size);
	buf_add_u64(out, o->body.size);
	buf_add(out, o->body.data, o->body.size);
}

bool outgoing_decode(struct reader *r, struct outgoing *ret)
{
	struct outgoing o;
	o.id = (int64_t)reader_u64(r);
	o.token = (int64_t)reader_u64(r);
	o.attempts = reader_u32(r);
	o.exchange = take_short(r);
	o.routing_key = take_short(r);
	o.properties = reader_bytes(r, reader_u32(r));
	o.body = reader_bytes(r, reader_u64(r));
	if (r->bad)
		return false;
	*ret = o;
	return true;
}

void outcome_encode(struct buf *out, const struct outcome *o)
{
	buf_add_u64(out, (uint64_t)o->id);
	buf_add_u64(out, (uint64_t)o->token);
	buf_add_byte(out, o->is_sent);
	buf_add_u32(out, o->delay_ms);
	add_short(out, o->error);
}

bool outcome_decode(struct reader *r, struct outcome *ret)
{
	struct outcome o;
	o.id = (int64_t)reader_u64(r);
	o.token = (int64_t)reader_u64(r);
	o.is_sent = reader_u8(r) != 0;
	o.delay_ms = reader_u32(r);
	o.error = take_short(r);
	if (r->bad)
		return false;
	*ret = o;
	return true;
}

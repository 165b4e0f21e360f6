/* SPDX-License-Identifier: MIT */
/* The flat form of a message. */
#include "message/message.h"

#include "message/props.h"

#include <stdlib.h>

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

/* ---- what tells it from others --------------------------------------------------- */

struct entries {
	struct bytes *of; /* in wire form; owned */
	size_t n, room;
};

static void add_entry(struct entries *e, struct bytes entry)
{
	if (e->n == e->room) {
		e->room = e->room != 0 ? 2 * e->room : 32;
		e->of = xrealloc(e->of, e->room * sizeof *e->of);
	}
	e->of[e->n++] = entry;
}

static int compare_entries(const void *a, const void *b)
{
	return bytes_compare(*(const struct bytes *)a, *(const struct bytes *)b);
}

/* False if the table is malformed: nobody can have added to it. */
static bool sort_headers(struct bytes table, struct buf *out)
{
	struct reader r = reader_of(table);
	struct entries e = {0};
	struct field f;
	for (const uint8_t *at = r.p; field_next(&r, false, &f); at = r.p)
		if (!props_is_count(f.name))
			add_entry(&e, bytes_of(at, (size_t)(r.p - at)));
	if (!r.bad && e.n != 0)
		qsort(e.of, e.n, sizeof *e.of, compare_entries);
	for (size_t i = 0; !r.bad && i < e.n; i++)
		buf_add(out, e.of[i].data, e.of[i].size);
	free(e.of);
	return !r.bad;
}

static void add_sized(struct buf *out, struct bytes b)
{
	buf_add_u32(out, (uint32_t)b.size);
	buf_add(out, b.data, b.size);
}

static void add_properties(struct buf *out, struct bytes raw)
{
	struct buf headers = {0}, same = {0};
	struct props p;
	if (props_decode(raw, &p) && sort_headers(p.text[PROP_HEADERS], &headers)) {
		/* No table and an empty one are one to whoever adds to it. */
		p.present &= (uint16_t) ~(1u << PROP_HEADERS);
		p.present |= (uint16_t)((headers.size != 0) << PROP_HEADERS);
		p.text[PROP_HEADERS] = buf_bytes(&headers);
		props_encode(&same, &p);
		raw = buf_bytes(&same);
	}
	add_sized(out, raw);
	buf_done(&headers);
	buf_done(&same);
}

void message_identify(const struct message *m, struct buf *out)
{
	add_sized(out, m->exchange);
	add_sized(out, m->routing_key);
	add_properties(out, m->properties);
	buf_add_u64(out, m->body_size);
}

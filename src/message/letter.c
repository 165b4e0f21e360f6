/* SPDX-License-Identifier: MIT */
/* Which properties and headers of a message may be published again, and what is told instead. */
#include "message/letter.h"

#include "base/fd.h"
#include "base/utf8.h"
#include "message/props.h"

#define PREFIX "inboxd-"
#define DIRECT_REPLY "amq.rabbitmq.reply-to"

enum {
	NAME_MAX_SIZE = 255,
	PREFIX_SIZE = sizeof PREFIX - 1,
	DETAIL_LEAST = 256, /* is kept of it before headers go */
	DROPPED_SIZE = 64,  /* room for the header that counts them */
};

enum fate {
	FATE_KEEP,
	FATE_RENAME,
	FATE_LEAVE_OUT,
};

/* The first that fits decides. */
static const struct {
	const char *name;
	bool is_beginning;
	enum fate fate;
} rules[] = {
	/* They route: further queues would get the letter. */
	{"CC", false, FATE_RENAME},
	{"BCC", false, FATE_RENAME},
	/* The broker drops a message that it takes for one on its second way round. */
	{"x-death", false, FATE_RENAME},
	{"x-first-death-", true, FATE_RENAME},
	{"x-last-death-", true, FATE_RENAME},
	/* Federated exchanges do not pass on what has been passed on too often. */
	{"x-received-from", false, FATE_RENAME},
	{"x-delay", false, FATE_RENAME},
	{"x-stream-offset", false, FATE_LEAVE_OUT},
	{"x-stream-", true, FATE_RENAME},
	/* What an earlier letter told. */
	{PREFIX "consumer", false, FATE_LEAVE_OUT},
	{PREFIX "parked-id", false, FATE_LEAVE_OUT},
	{PREFIX "reason", false, FATE_LEAVE_OUT},
	{PREFIX "detail", false, FATE_LEAVE_OUT},
	{PREFIX "attempts", false, FATE_LEAVE_OUT},
	{PREFIX "queue", false, FATE_LEAVE_OUT},
	{PREFIX "exchange", false, FATE_LEAVE_OUT},
	{PREFIX "routing-key", false, FATE_LEAVE_OUT},
	{PREFIX "body-size", false, FATE_LEAVE_OUT},
	{PREFIX "headers-dropped", false, FATE_LEAVE_OUT},
};

static bool begins(struct bytes text, const char *with)
{
	size_t n = strlen(with);
	return text.size >= n && memcmp(text.data, with, n) == 0;
}

static enum fate fate_of(struct bytes name)
{
	if (props_is_count(name))
		return FATE_LEAVE_OUT;
	for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
		if (rules[i].is_beginning ? begins(name, rules[i].name)
					  : bytes_equal(name, bytes_str(rules[i].name)))
			return rules[i].fate;
	return FATE_KEEP;
}

/* ---- properties that become headers ---------------------------------------------- */

static const struct {
	enum prop prop;
	const char *header;
} told[] = {
	{PROP_USER_ID, PREFIX "user-id"}, /* must be who is logged in */
	{PROP_EXPIRATION, PREFIX "expiration"},
	{PROP_REPLY_TO, PREFIX "reply-to"}, /* direct replies: only for a channel that asked so */
};

static bool is_told(const struct props *p, size_t i)
{
	if ((p->present & (1u << told[i].prop)) == 0)
		return false;
	return told[i].prop != PROP_REPLY_TO || begins(p->text[PROP_REPLY_TO], DIRECT_REPLY);
}

/* ---- the message's own headers --------------------------------------------------- */

struct headers {
	struct buf bytes; /* entries in wire form, one behind the other */
	size_t *sizes;    /* of each; owned */
	size_t n, room;
	uint64_t dropped;
};

static void headers_done(struct headers *h)
{
	buf_done(&h->bytes);
	free(h->sizes);
}

/* value: type and content, as on the wire. */
static void add(struct headers *h, const char *prefix, struct bytes name, struct bytes value)
{
	size_t name_size = strlen(prefix) + name.size;
	if (name_size > NAME_MAX_SIZE) {
		h->dropped++;
		return;
	}
	if (h->n == h->room) {
		h->room = h->room != 0 ? 2 * h->room : 32;
		h->sizes = xrealloc(h->sizes, h->room * sizeof *h->sizes);
	}
	buf_add_byte(&h->bytes, (uint8_t)name_size);
	buf_add_str(&h->bytes, prefix);
	buf_add(&h->bytes, name.data, name.size);
	buf_add(&h->bytes, value.data, value.size);
	h->sizes[h->n++] = 1 + name_size + value.size;
}

/* An earlier letter's word for something that this message says anew. */
static bool is_superseded(const struct props *p, struct bytes name)
{
	struct field f;
	if (!begins(name, PREFIX))
		return false;
	for (size_t i = 0; i < sizeof told / sizeof told[0]; i++)
		if (bytes_equal(name, bytes_str(told[i].header)))
			return is_told(p, i);
	struct bytes rest = bytes_of(name.data + PREFIX_SIZE, name.size - PREFIX_SIZE);
	return fate_of(rest) == FATE_RENAME && props_header(p, rest, &f) && f.kind != FIELD_ABSENT;
}

static void collect(struct headers *h, const struct props *p)
{
	struct reader r = reader_of(p->text[PROP_HEADERS]);
	struct field f;
	while (field_next(&r, false, &f)) {
		const uint8_t *value = f.name.data + f.name.size;
		enum fate fate = fate_of(f.name);
		if (fate != FATE_LEAVE_OUT && !is_superseded(p, f.name))
			add(h, fate == FATE_RENAME ? PREFIX : "", f.name,
				bytes_of(value, (size_t)(r.p - value)));
	}
	/* What stands behind bytes that are no header is one thing that is lost. */
	h->dropped += r.bad;
}

static void drop_largest(struct headers *h)
{
	size_t largest = 0, at = 0;
	for (size_t i = 1; i < h->n; i++)
		if (h->sizes[i] > h->sizes[largest])
			largest = i;
	for (size_t i = 0; i < largest; i++)
		at += h->sizes[i];
	size_t size = h->sizes[largest];
	memmove(h->bytes.data + at, h->bytes.data + at + size, h->bytes.size - at - size);
	h->bytes.size -= size;
	memmove(h->sizes + largest, h->sizes + largest + 1,
		(h->n - largest - 1) * sizeof *h->sizes);
	h->n--;
	h->dropped++;
}

/* ---- ours ------------------------------------------------------------------------ */

static void add_ours(const struct letter *l, const struct props *p, struct buf *out)
{
	for (size_t i = 0; i < sizeof told / sizeof told[0]; i++)
		if (is_told(p, i))
			field_add_string(out, told[i].header, p->text[told[i].prop]);
	field_add_string(out, PREFIX "consumer", l->consumer);
	field_add_integer(out, PREFIX "parked-id", l->parked);
	field_add_string(out, PREFIX "reason", l->reason);
	field_add_integer(out, PREFIX "attempts", l->attempts);
	field_add_string(out, PREFIX "queue", l->queue);
	field_add_string(out, PREFIX "exchange", l->exchange);
	field_add_string(out, PREFIX "routing-key", l->routing_key);
	if (l->is_without_body)
		field_add_integer(out, PREFIX "body-size", (int64_t)l->body_size);
}

static struct props without_told(const struct props *p)
{
	struct props safe = *p;
	for (size_t i = 0; i < sizeof told / sizeof told[0]; i++)
		if (is_told(p, i))
			safe.present &= (uint16_t) ~(1u << told[i].prop);
	safe.present |= 1u << PROP_HEADERS | 1u << PROP_DELIVERY_MODE;
	safe.number[PROP_DELIVERY_MODE] = 2;
	safe.text[PROP_HEADERS] = bytes_str("");
	return safe;
}

/* How much of the detail fits beside so many bytes of other things. */
static size_t detail_size(struct bytes detail, size_t others)
{
	size_t room = others < LETTER_MAX ? LETTER_MAX - others : 0;
	return utf8_cut(detail, room > DETAIL_LEAST ? room : DETAIL_LEAST);
}

void letter_encode(const struct letter *l, struct buf *out)
{
	AUTO(buf) struct buf ours = {0}, plain = {0};
	struct headers own = {0};
	struct props p;
	char detail[LETTER_DETAIL_MAX + 1];

	(void)props_decode(l->properties, &p);
	struct props safe = without_told(&p);
	collect(&own, &p);
	add_ours(l, &p, &ours);
	props_encode(&plain, &safe);
	size_t fixed = plain.size + ours.size + DROPPED_SIZE + sizeof PREFIX "detail" + 5;
	utf8_clean(l->detail, detail, sizeof detail);
	struct bytes shown = bytes_str(detail);
	shown.size = detail_size(shown, fixed + own.bytes.size);
	while (own.n != 0 && fixed + shown.size + own.bytes.size > LETTER_MAX)
		drop_largest(&own);

	field_add_string(&ours, PREFIX "detail", shown);
	if (own.dropped != 0)
		field_add_integer(&ours, PREFIX "headers-dropped", (int64_t)own.dropped);
	buf_add(&own.bytes, ours.data, ours.size);
	safe.text[PROP_HEADERS] = buf_bytes(&own.bytes);
	props_encode(out, &safe);
	headers_done(&own);
}

/* SPDX-License-Identifier: MIT */
#include "wire.h"

#include <string.h>

enum {
	AMQP_GREETING = 8, /* "AMQP" and the version */
	AMQP_FRAME = 7,    /* type, channel, size; one more byte ends it */
	AMQP_METHOD = 11,  /* and class and method */
	AMQP_HEADER = 21,  /* or class, weight, body's size, flags of the properties */
	AMQP_IS_METHOD = 1,
	AMQP_IS_HEADER = 2,
	PG_MESSAGE = 5,  /* type, size of all but the type */
	PG_COMMAND = 12, /* enough to tell COMMIT */
	PG_REQUEST = 8,  /* size and code, before the first message */
	PG_SSL = 80877103,
	PG_GSS = 80877104,
};

static uint32_t u32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static uint16_t u16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

void wire_init(struct wire *w, enum proxy_protocol protocol, enum proxy_way way, struct wire *other)
{
	*w = (struct wire){.protocol = protocol, .way = way, .other = other};
	if (protocol == PROXY_AMQP && way == PROXY_TO_SERVER)
		w->raw_left = AMQP_GREETING;
}

static bool is_parsed(const struct wire *w)
{
	return w->protocol == PROXY_AMQP ||
		(w->protocol == PROXY_POSTGRES && w->way == PROXY_TO_CLIENT);
}

/* Size of the whole message once its length is known, else 0. */
static uint64_t total_of(const struct wire *w)
{
	if (w->protocol == PROXY_AMQP)
		return w->head_size >= AMQP_FRAME ? AMQP_FRAME + (uint64_t)u32(w->head + 3) + 1 : 0;
	return w->head_size >= PG_MESSAGE ? 1 + (uint64_t)u32(w->head + 1) : 0;
}

static bool is_head_complete(const struct wire *w)
{
	uint64_t total = total_of(w);
	size_t most = w->protocol == PROXY_AMQP ? AMQP_HEADER : PG_COMMAND;
	return total != 0 && (w->head_size == total || w->head_size == most);
}

static bool take_one(int *left)
{
	if (*left == 0)
		return false;
	--*left;
	return true;
}

/* Says that there are more properties than there are. */
static void look_at_delivery(struct wire *w, struct wire_watch *watch)
{
	if (w->head[0] == AMQP_IS_HEADER && w->head_size == AMQP_HEADER &&
		take_one(&watch->spoils)) {
		w->head[AMQP_HEADER - 2] = 0xff;
		w->head[AMQP_HEADER - 1] = 0xfc;
	}
}

/* Whether the frame is to be swallowed. */
static bool look_at_frame(struct wire *w, struct wire_watch *watch)
{
	if (w->way == PROXY_TO_CLIENT) {
		look_at_delivery(w, watch);
		return false;
	}
	if (w->head[0] != AMQP_IS_METHOD || w->head_size < AMQP_METHOD)
		return false;
	uint16_t class_id = u16(w->head + 7), method_id = u16(w->head + 9);
	if (class_id == WIRE_BASIC && method_id < WIRE_METHODS)
		watch->methods[method_id]++;
	return class_id == watch->class_id && method_id == watch->method_id &&
		take_one(&watch->drops);
}

/* Whether the client must not hear of it. */
static bool look_at_message(const struct wire *w, struct wire_watch *watch)
{
	static const uint8_t commit[PG_COMMAND] = {
		'C', 0, 0, 0, 11, 'C', 'O', 'M', 'M', 'I', 'T', '\0'};
	if (w->head_size != sizeof commit || memcmp(w->head, commit, sizeof commit) != 0)
		return false;
	watch->commits++;
	return take_one(&watch->drops);
}

/* The server answers such a request with one byte that belongs to no message. */
static void look_for_request(const struct wire *w, const uint8_t *in, size_t size)
{
	if (w->protocol == PROXY_POSTGRES && w->way == PROXY_TO_SERVER && size == PG_REQUEST &&
		u32(in) == PG_REQUEST && (u32(in + 4) == PG_SSL || u32(in + 4) == PG_GSS))
		w->other->raw_left++;
}

/* Bytes of in that need no looking at; 0: a head begins or goes on. */
static size_t known(const struct wire *w, size_t size)
{
	uint64_t n = w->raw_left != 0 ? w->raw_left : w->body_left;
	return n < size ? (size_t)n : size;
}

static void pass_known(struct wire *w, const uint8_t *in, size_t n, uint8_t *out, size_t *ret_size)
{
	bool is_dropped = w->raw_left == 0 && w->is_dropping;
	if (!is_dropped) {
		memcpy(out + *ret_size, in, n);
		*ret_size += n;
	}
	if (w->raw_left != 0)
		w->raw_left -= n;
	else
		w->body_left -= n;
}

enum wire_result wire_pass(struct wire *w, struct wire_watch *watch, const uint8_t *in, size_t size,
	uint8_t *out, size_t *ret_size)
{
	if (!is_parsed(w)) {
		look_for_request(w, in, size);
		w->raw_left = size;
	}
	for (size_t at = 0, n; at < size; at += n) {
		n = known(w, size - at);
		if (n != 0) {
			pass_known(w, in + at, n, out, ret_size);
			continue;
		}
		n = 1;
		w->head[w->head_size++] = in[at];
		if (!is_head_complete(w))
			continue;
		if (w->protocol == PROXY_POSTGRES && look_at_message(w, watch))
			return WIRE_CUT;
		w->is_dropping = w->protocol == PROXY_AMQP && look_at_frame(w, watch);
		w->body_left = total_of(w) - w->head_size;
		w->raw_left = 0;
		if (!w->is_dropping) {
			memcpy(out + *ret_size, w->head, w->head_size);
			*ret_size += w->head_size;
		}
		w->head_size = 0;
	}
	return WIRE_PASS;
}

/* SPDX-License-Identifier: MIT */
/* Encoding of what consumer and worker exchange. */
#include "ipc/protocol.h"

const char *verdict_name(enum verdict v)
{
	static const char *const names[VERDICT_COUNT] = {
		[VERDICT_DONE] = "done",
		[VERDICT_PARKED] = "parked",
		[VERDICT_DUPLICATE] = "duplicate",
		[VERDICT_BUSY] = "busy",
		[VERDICT_AGAIN] = "again",
		[VERDICT_ALONE] = "alone",
		[VERDICT_KEPT] = "kept",
		[VERDICT_LOST] = "lost",
		[VERDICT_CRASHED] = "crashed",
	};
	return v < VERDICT_COUNT ? names[v] : "?";
}

uint64_t loss_delay_ms(uint32_t losses)
{
	enum { SECOND_MS = 1600, CAP_MS = 5000 };
	if (losses <= 1)
		return 0;
	return losses > 3 ? CAP_MS : SECOND_MS << (losses - 2);
}

const char *park_reason_name(enum park_reason r)
{
	static const char *const names[PARK_REASON_COUNT] = {
		[PARK_NO_KEY] = "no_key",
		[PARK_UNUSABLE_KEY] = "unusable_key",
		[PARK_TOO_LARGE] = "too_large",
		[PARK_UNDECODABLE] = "undecodable",
		[PARK_CRASHED] = "crashed",
		[PARK_TIMED_OUT] = "timed_out",
		[PARK_REDELIVERED] = "redelivered",
	};
	return r < PARK_REASON_COUNT ? names[r] : "?";
}

void short_encode(struct buf *out, struct bytes b)
{
	size_t n = b.size < UINT16_MAX ? b.size : UINT16_MAX;
	buf_add_u16(out, (uint16_t)n);
	buf_add(out, b.data, n);
}

struct bytes short_decode(struct reader *r)
{
	return reader_bytes(r, reader_u16(r));
}

void ref_encode(struct buf *out, const struct delivery_ref *ref)
{
	buf_add_u32(out, ref->generation);
	buf_add_u64(out, ref->tag);
}

struct delivery_ref ref_decode(struct reader *r)
{
	uint32_t generation = reader_u32(r);
	return (struct delivery_ref){.generation = generation, .tag = reader_u64(r)};
}

void item_encode(struct buf *out, const struct item *item)
{
	ref_encode(out, &item->ref);
	buf_add_byte(out, item->flags);
	buf_add_u16(out, item->crashes);
	buf_add_u16(out, item->losses);
	short_encode(out, item->key);
	message_encode(out, &item->message);
}

bool item_decode(struct reader *r, struct item *ret)
{
	struct item item;
	item.ref = ref_decode(r);
	item.flags = reader_u8(r);
	item.crashes = reader_u16(r);
	item.losses = reader_u16(r);
	item.key = short_decode(r);
	if (!message_decode(r, &item.message))
		return false;
	*ret = item;
	return true;
}

/* SPDX-License-Identifier: MIT */
/* Parameters for the inbox's statements. */
#include "inbox/array.h"

#include <inttypes.h>
#include <stdio.h>

enum { OID_BYTEA = 17, OID_INT8 = 20 };

static void begin(struct buf *out, size_t n, uint32_t oid)
{
	buf_add_u32(out, 1); /* dimensions */
	buf_add_u32(out, 0); /* no NULLs */
	buf_add_u32(out, oid);
	buf_add_u32(out, (uint32_t)n);
	buf_add_u32(out, 1); /* lower bound */
}

void array_begin_bytea(struct buf *out, size_t n)
{
	begin(out, n, OID_BYTEA);
}

void array_begin_int8(struct buf *out, size_t n)
{
	begin(out, n, OID_INT8);
}

void array_add_bytea(struct buf *out, struct bytes value)
{
	buf_add_u32(out, (uint32_t)value.size);
	buf_add(out, value.data, value.size);
}

void array_add_int8(struct buf *out, int64_t value)
{
	buf_add_u32(out, 8);
	buf_add_u64(out, (uint64_t)value);
}

void array_each_number(struct bytes text, void (*each)(void *arg, uint32_t number), void *arg)
{
	uint32_t number = 0;
	bool inside = false;
	for (size_t i = 0; i < text.size; i++) {
		uint8_t c = text.data[i];
		if (c >= '0' && c <= '9') {
			number = number * 10 + (uint32_t)(c - '0');
			inside = true;
		} else if (inside) {
			each(arg, number);
			number = 0;
			inside = false;
		}
	}
}

struct db_value value_int(struct number_text *store, int64_t v)
{
	(void)snprintf(store->text, sizeof store->text, "%" PRId64, v);
	return value_text(store->text);
}

/* SPDX-License-Identifier: MIT */
/* AMQP properties and header tables as any publisher may send them: what decodes is encoded and decoded
 * again, and must say the same. */
#include "fuzz.h"

#include "message/props.h"

static void walk(struct bytes content, bool is_array, int depth)
{
	struct reader r = reader_of(content);
	struct field f;
	while (field_next(&r, is_array, &f)) {
		AUTO(buf) struct buf text = {0};
		if (field_text(&f, &text))
			assert(f.kind != FIELD_ARRAY && f.kind != FIELD_TABLE && f.kind != FIELD_VOID);
		assert(f.content.data == NULL ||
			(f.content.data >= content.data &&
				f.content.size <= content.size));
		if (depth < 8 && (f.kind == FIELD_ARRAY || f.kind == FIELD_TABLE))
			walk(f.content, f.kind == FIELD_ARRAY, depth + 1);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO(buf) struct buf again = {0};
	struct props p, q;
	if (!props_decode(bytes_of(data, size), &p))
		return 0;
	walk(p.text[PROP_HEADERS], false, 0);
	props_encode(&again, &p);
	bool is_decoded = props_decode(buf_bytes(&again), &q);
	assert(is_decoded && q.present == p.present);
	for (int i = 0; i < PROP_COUNT; i++)
		assert(bytes_equal(p.text[i], q.text[i]) && p.number[i] == q.number[i]);
	return 0;
}

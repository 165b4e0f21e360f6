/* SPDX-License-Identifier: MIT */
#include "ipc/protocol.h"

#include "unit.h"

#include <stdlib.h>

static struct item sample(void)
{
	return (struct item){
		.ref = {.generation = 0xfedcba98, .tag = UINT64_C(0x123456789abcdef0)},
		.flags = ITEM_ALONE | ITEM_CONCURRENT,
		.crashes = 65535,
		.losses = 5,
		.key = bytes_of("\001k\0ey", 5),
		.message =
			{
				.exchange = bytes_str("ex"),
				.routing_key = bytes_str("rk.rk"),
				.properties = bytes_of("\0\0\0", 3),
				.body = bytes_of("b\0dy", 4),
				.body_size = 4,
				.redelivered = true,
			},
	};
}

static void same_bytes(struct bytes a, struct bytes b)
{
	ck_assert_uint_eq(a.size, b.size);
	ck_assert(bytes_equal(a, b));
}

static void same_item(const struct item *a, const struct item *b)
{
	ck_assert_uint_eq(a->ref.generation, b->ref.generation);
	ck_assert_uint_eq(a->ref.tag, b->ref.tag);
	ck_assert_uint_eq(a->flags, b->flags);
	ck_assert_uint_eq(a->crashes, b->crashes);
	ck_assert_uint_eq(a->losses, b->losses);
	same_bytes(a->key, b->key);
	same_bytes(a->message.exchange, b->message.exchange);
	same_bytes(a->message.routing_key, b->message.routing_key);
	same_bytes(a->message.properties, b->message.properties);
	same_bytes(a->message.body, b->message.body);
	ck_assert_uint_eq(a->message.body_size, b->message.body_size);
	ck_assert_int_eq(a->message.redelivered, b->message.redelivered);
}

static void comes_back(const struct item *item)
{
	struct buf out = {0};
	struct item got;
	item_encode(&out, item);
	struct reader r = reader_of(buf_bytes(&out));
	ck_assert(item_decode(&r, &got));
	ck_assert_uint_eq(reader_left(&r), 0);
	same_item(item, &got);
	buf_done(&out);
}

START_TEST(an_item_comes_back_as_it_was)
{
	struct item item = sample();
	comes_back(&item);
	item = (struct item){.ref = {.generation = 0, .tag = 0}};
	comes_back(&item);
}
END_TEST

START_TEST(the_longest_names_and_the_longest_key_come_back)
{
	char name[255], key[65535];
	struct item item = sample();
	memset(name, 'n', sizeof name);
	memset(key, 'k', sizeof key);
	item.message.exchange = item.message.routing_key = bytes_of(name, sizeof name);
	item.key = bytes_of(key, sizeof key);
	comes_back(&item);
}
END_TEST

START_TEST(a_head_without_its_body_comes_back)
{
	struct item item = sample();
	item.message.body = bytes_of(NULL, 0);
	item.message.body_size = UINT64_C(5) << 32;
	comes_back(&item);
}
END_TEST

START_TEST(items_follow_each_other)
{
	struct buf out = {0};
	struct item first = sample(), second = sample(), got;
	second.ref.tag++;
	second.key = bytes_of(NULL, 0);
	item_encode(&out, &first);
	item_encode(&out, &second);
	struct reader r = reader_of(buf_bytes(&out));
	ck_assert(item_decode(&r, &got));
	same_item(&first, &got);
	ck_assert(item_decode(&r, &got));
	same_item(&second, &got);
	ck_assert(!item_decode(&r, &got));
	buf_done(&out);
}
END_TEST

START_TEST(an_item_cut_at_any_byte_is_refused_and_touches_nothing)
{
	struct buf out = {0};
	const struct item item = sample();
	item_encode(&out, &item);
	for (size_t size = 0; size < out.size; size++) {
		struct item got = {.crashes = 4711};
		/* A copy of its own, so that a sanitizer sees what is read behind the end. */
		uint8_t *cut = xmalloc(size + 1);
		memcpy(cut, out.data, size);
		cut = xrealloc(cut, size != 0 ? size : 1);
		struct reader r = reader_of(bytes_of(cut, size));
		ck_assert_msg(!item_decode(&r, &got), "accepted after %zu bytes", size);
		ck_assert_uint_eq(got.crashes, 4711);
		free(cut);
	}
	buf_done(&out);
}
END_TEST

START_TEST(a_body_larger_than_its_message_is_refused)
{
	struct buf out = {0};
	struct item item = sample(), got;
	item.message.body_size = 3;
	item_encode(&out, &item);
	struct reader r = reader_of(buf_bytes(&out));
	ck_assert(!item_decode(&r, &got));
	buf_done(&out);
}
END_TEST

START_TEST(a_reference_comes_back)
{
	struct buf out = {0};
	const struct delivery_ref refs[] = {
		{0, 0}, {UINT32_MAX, UINT64_MAX}, {1, UINT64_C(1) << 40}};
	for (size_t i = 0; i < 3; i++)
		ref_encode(&out, &refs[i]);
	ck_assert_uint_eq(out.size, 36);
	struct reader r = reader_of(buf_bytes(&out));
	for (size_t i = 0; i < 3; i++) {
		struct delivery_ref got = ref_decode(&r);
		ck_assert_uint_eq(got.generation, refs[i].generation);
		ck_assert_uint_eq(got.tag, refs[i].tag);
	}
	ck_assert(!r.bad);
	(void)ref_decode(&r);
	ck_assert(r.bad);
	buf_done(&out);
}
END_TEST

START_TEST(a_short_text_comes_back_and_a_long_one_is_cut)
{
	struct buf out = {0};
	static char text[70000];
	memset(text, 't', sizeof text);
	short_encode(&out, bytes_str("detail"));
	short_encode(&out, bytes_of(NULL, 0));
	short_encode(&out, bytes_of(text, sizeof text));
	struct reader r = reader_of(buf_bytes(&out));
	same_bytes(short_decode(&r), bytes_str("detail"));
	same_bytes(short_decode(&r), bytes_str(""));
	ck_assert_uint_eq(short_decode(&r).size, 65535);
	ck_assert_uint_eq(reader_left(&r), 0);
	ck_assert(!r.bad);
	ck_assert_uint_eq(short_decode(&r).size, 0);
	ck_assert(r.bad);
	buf_done(&out);
}
END_TEST

START_TEST(a_short_text_that_is_not_all_there_is_none)
{
	const uint8_t in[] = {0, 4, 'a', 'b', 'c'};
	struct reader r = reader_of(bytes_of(in, sizeof in));
	ck_assert_uint_eq(short_decode(&r).size, 0);
	ck_assert(r.bad);
}
END_TEST

START_TEST(every_verdict_and_reason_has_a_name_of_its_own)
{
	for (int a = 0; a < VERDICT_COUNT; a++)
		for (int b = 0; b <= a; b++)
			ck_assert_int_eq(a == b,
				strcmp(verdict_name((enum verdict)a),
					verdict_name((enum verdict)b)) == 0);
	for (int a = 0; a < PARK_REASON_COUNT; a++)
		for (int b = 0; b <= a; b++)
			ck_assert_int_eq(a == b,
				strcmp(park_reason_name((enum park_reason)a),
					park_reason_name((enum park_reason)b)) == 0);
	ck_assert_str_eq(verdict_name(VERDICT_COUNT), "?");
	ck_assert_str_eq(park_reason_name(PARK_REASON_COUNT), "?");
}
END_TEST

UNIT_SUITE("ipc/protocol", an_item_comes_back_as_it_was,
	the_longest_names_and_the_longest_key_come_back, a_head_without_its_body_comes_back,
	items_follow_each_other, an_item_cut_at_any_byte_is_refused_and_touches_nothing,
	a_body_larger_than_its_message_is_refused, a_reference_comes_back,
	a_short_text_comes_back_and_a_long_one_is_cut, a_short_text_that_is_not_all_there_is_none,
	every_verdict_and_reason_has_a_name_of_its_own)

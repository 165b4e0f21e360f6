/* SPDX-License-Identifier: MIT */
#include "message/message.h"

#include "unit.h"

static const struct message example = {
	.exchange = {(const uint8_t *)"pay", 3},
	.routing_key = {(const uint8_t *)"capture.eu", 10},
	.properties = {(const uint8_t *)"\0\0", 2},
	.body = {(const uint8_t *)"a\0b", 3},
	.body_size = 3,
	.redelivered = true,
};

START_TEST(gives_back_every_byte)
{
	struct buf b = {0};
	struct message m;
	message_encode(&b, &example);
	message_encode(&b, &example);
	struct reader r = reader_of(buf_bytes(&b));
	for (int i = 0; i < 2; i++) {
		ck_assert(message_decode(&r, &m));
		ck_assert(bytes_equal(m.exchange, example.exchange));
		ck_assert(bytes_equal(m.routing_key, example.routing_key));
		ck_assert(bytes_equal(m.properties, example.properties));
		ck_assert(bytes_equal(m.body, example.body));
		ck_assert_uint_eq(m.body_size, 3);
		ck_assert(m.redelivered);
	}
	ck_assert_uint_eq(reader_left(&r), 0);
	buf_done(&b);
}
END_TEST

START_TEST(knows_how_large_a_body_was_that_is_streamed_elsewhere)
{
	struct buf b = {0};
	struct message m, streamed = example;
	streamed.body = bytes_of(NULL, 0);
	streamed.body_size = UINT64_C(5000000000);
	message_encode(&b, &streamed);
	struct reader r = reader_of(buf_bytes(&b));
	ck_assert(message_decode(&r, &m));
	ck_assert_uint_eq(m.body.size, 0);
	ck_assert_uint_eq(m.body_size, UINT64_C(5000000000));
	buf_done(&b);
}
END_TEST

START_TEST(takes_the_body_piece_by_piece)
{
	struct buf whole = {0}, pieces = {0};
	struct message head = example;
	head.body.data = NULL;
	message_encode(&whole, &example);
	message_encode_head(&pieces, &head);
	buf_add(&pieces, "a", 1);
	buf_add(&pieces, "\0b", 2);
	ck_assert(bytes_equal(buf_bytes(&whole), buf_bytes(&pieces)));
	buf_done(&whole);
	buf_done(&pieces);
}
END_TEST

START_TEST(refuses_every_cut)
{
	struct buf b = {0};
	message_encode(&b, &example);
	for (size_t n = 0; n < b.size; n++) {
		struct message m = {.body_size = 99};
		struct reader r = reader_of(bytes_of(b.data, n));
		ck_assert_msg(!message_decode(&r, &m), "taken with %zu bytes", n);
		ck_assert_uint_eq(m.body_size, 99);
	}
	buf_done(&b);
}
END_TEST

START_TEST(refuses_sizes_that_cannot_be)
{
	struct buf b = {0};
	struct message m, wrong = example;
	wrong.body_size = 2;
	message_encode(&b, &wrong);
	struct reader r = reader_of(buf_bytes(&b));
	ck_assert(!message_decode(&r, &m));
	buf_clear(&b);
	message_encode(&b, &example);
	memset(b.data + 7, 0xff, 16);
	r = reader_of(buf_bytes(&b));
	ck_assert(!message_decode(&r, &m));
	buf_done(&b);
}
END_TEST

UNIT_SUITE("message/message", gives_back_every_byte,
	knows_how_large_a_body_was_that_is_streamed_elsewhere, takes_the_body_piece_by_piece,
	refuses_every_cut, refuses_sizes_that_cannot_be)

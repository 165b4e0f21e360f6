/* SPDX-License-Identifier: MIT */
#include "message/message.h"

#include "maker.h"
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

/* ---- what tells it from others --------------------------------------------------- */

/* Whether two messages are one to message_identify. */
static bool are_one(const struct message *a, const struct message *b)
{
	struct buf of_a = {0}, of_b = {0};
	message_identify(a, &of_a);
	message_identify(b, &of_b);
	bool same = bytes_equal(buf_bytes(&of_a), buf_bytes(&of_b));
	buf_done(&of_a);
	buf_done(&of_b);
	return same;
}

START_TEST(is_told_from_others_by_every_part_and_where_it_ends)
{
	ck_assert(are_one(&example, &example));
	struct message m = example;
	m.exchange = bytes_str("payc");
	m.routing_key = bytes_str("apture.eu");
	ck_assert(!are_one(&m, &example));
	m = example;
	m.routing_key = bytes_str("capture.us");
	ck_assert(!are_one(&m, &example));
	m = example;
	m.properties = bytes_of("\x80\0\4text", 7);
	ck_assert(!are_one(&m, &example));
	m = example;
	m.body_size = 4;
	ck_assert(!are_one(&m, &example));
	m = example;
	m.redelivered = false;
	ck_assert(are_one(&m, &example));
}
END_TEST

/* Headers given by a letter each: their names, and their values too. */
static void with_headers(struct maker *m, const char *letters)
{
	maker_begin(m);
	maker_text(m, PROP_TYPE, "t");
	for (; *letters != '\0'; letters++) {
		const char name[] = {*letters, '\0'};
		if (*letters == '1')
			field_add_integer(&m->headers, "x-delivery-count", 7);
		else if (*letters == '2')
			field_add_integer(&m->headers, "x-acquired-count", 8);
		else
			maker_header(m, name, name);
	}
	(void)maker_end(m);
}

static bool headers_are_one(const char *a, const char *b)
{
	struct maker m = {0}, n = {0};
	with_headers(&m, a);
	with_headers(&n, b);
	bool same = are_one(&m.message, &n.message);
	maker_done(&m);
	maker_done(&n);
	return same;
}

START_TEST(is_one_message_whatever_its_broker_counts_and_sorts)
{
	ck_assert(headers_are_one("", "1"));
	ck_assert(headers_are_one("", "12"));
	ck_assert(headers_are_one("cab", "a1bc2"));
	ck_assert(headers_are_one("aba", "aab"));
	ck_assert(!headers_are_one("ab", "abb"));
	ck_assert(!headers_are_one("ab", "a"));
	ck_assert(!headers_are_one("a1", "b1"));
}
END_TEST

START_TEST(properties_that_are_none_are_told_apart_by_their_bytes)
{
	struct message a = example, b = example;
	a.properties = bytes_of("\x20\0\0\0\0\3\1az", 9);
	b.properties = bytes_of("\x20\0\0\0\0\3\1bz", 9);
	ck_assert(are_one(&a, &a));
	ck_assert(!are_one(&a, &b));
	a.properties = bytes_str("");
	ck_assert(!are_one(&a, &example));
}
END_TEST

UNIT_SUITE("message/message", gives_back_every_byte,
	knows_how_large_a_body_was_that_is_streamed_elsewhere, takes_the_body_piece_by_piece,
	refuses_every_cut, refuses_sizes_that_cannot_be,
	is_told_from_others_by_every_part_and_where_it_ends,
	is_one_message_whatever_its_broker_counts_and_sorts,
	properties_that_are_none_are_told_apart_by_their_bytes)

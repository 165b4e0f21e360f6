/* SPDX-License-Identifier: MIT */
#include "message/outgoing.h"

#include "unit.h"

static const struct outgoing sample = {
	.id = INT64_MAX,
	.token = -1,
	.attempts = 7,
	.exchange = {(const uint8_t *)"dlx", 3},
	.routing_key = {(const uint8_t *)"", 0},
	.properties = {(const uint8_t *)"\0\0", 2},
	.body = {(const uint8_t *)"a\0b", 3},
};

START_TEST(a_message_comes_out_as_it_went_in)
{
	struct buf b = {0};
	struct outgoing o;
	outgoing_encode(&b, &sample);
	outgoing_encode(&b, &sample);
	struct reader r = reader_of(buf_bytes(&b));
	for (int i = 0; i < 2; i++) {
		ck_assert(outgoing_decode(&r, &o));
		ck_assert_int_eq(o.id, sample.id);
		ck_assert_int_eq(o.token, sample.token);
		ck_assert_uint_eq(o.attempts, 7);
		ck_assert(bytes_equal(o.exchange, sample.exchange));
		ck_assert(bytes_equal(o.routing_key, sample.routing_key));
		ck_assert(bytes_equal(o.properties, sample.properties));
		ck_assert(bytes_equal(o.body, sample.body));
	}
	ck_assert(!outgoing_decode(&r, &o));
	buf_done(&b);
}
END_TEST

START_TEST(an_outcome_comes_out_as_it_went_in)
{
	struct buf b = {0};
	struct outcome o;
	const struct outcome sent = {.id = 1, .token = 2, .is_sent = true};
	const struct outcome failed = {
		.id = 3, .token = 4, .delay_ms = UINT32_MAX, .error = bytes_str("404")};
	outcome_encode(&b, &sent);
	outcome_encode(&b, &failed);
	struct reader r = reader_of(buf_bytes(&b));
	ck_assert(outcome_decode(&r, &o));
	ck_assert(o.is_sent && o.id == 1 && o.token == 2 && o.error.size == 0);
	ck_assert(outcome_decode(&r, &o));
	ck_assert(!o.is_sent && o.id == 3 && o.token == 4 && o.delay_ms == UINT32_MAX);
	ck_assert(bytes_equal(o.error, bytes_str("404")));
	ck_assert_uint_eq(reader_left(&r), 0);
	buf_done(&b);
}
END_TEST

START_TEST(what_is_cut_anywhere_is_refused)
{
	struct buf b = {0}, c = {0};
	struct outgoing o = {0};
	struct outcome c_out = {0};
	const struct outcome failed = {.id = 3, .error = bytes_str("404")};
	outgoing_encode(&b, &sample);
	for (size_t n = 0; n < b.size; n++) {
		struct reader r = reader_of(bytes_of(b.data, n));
		ck_assert(!outgoing_decode(&r, &o));
	}
	outcome_encode(&c, &failed);
	for (size_t n = 0; n < c.size; n++) {
		struct reader r = reader_of(bytes_of(c.data, n));
		ck_assert(!outcome_decode(&r, &c_out));
	}
	ck_assert(o.id == 0 && c_out.id == 0);
	buf_done(&b);
	buf_done(&c);
}
END_TEST

UNIT_SUITE("message/outgoing", a_message_comes_out_as_it_went_in,
	an_outcome_comes_out_as_it_went_in, what_is_cut_anywhere_is_refused)

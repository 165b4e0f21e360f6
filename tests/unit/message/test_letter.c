/* SPDX-License-Identifier: MIT */
#include "message/letter.h"

#include "maker.h"
#include "unit.h"

#include <stdio.h>

static struct maker m;
static struct buf encoded;
static struct props told;

static struct letter letter_of(struct maker *of)
{
	return (struct letter){
		.properties = maker_end(of)->message->properties,
		.exchange = bytes_str("shop"),
		.routing_key = bytes_str("order.placed"),
		.queue = bytes_str("orders"),
		.consumer = bytes_str("main"),
		.reason = bytes_str("rejected"),
		.detail = bytes_str("no such customer"),
		.parked = 42,
		.attempts = 3,
	};
}

static void encode(const struct letter *l)
{
	buf_clear(&encoded);
	letter_encode(l, &encoded);
	ck_assert_uint_le(encoded.size, LETTER_MAX);
	ck_assert(props_decode(buf_bytes(&encoded), &told));
}

static void encode_message(void)
{
	const struct letter l = letter_of(&m);
	encode(&l);
}

static struct field header(const char *name)
{
	struct field f;
	ck_assert(props_header(&told, bytes_str(name), &f));
	return f;
}

static bool has(const char *name)
{
	return header(name).kind != FIELD_ABSENT;
}

static void expect(const char *name, const char *text)
{
	struct field f = header(name);
	ck_assert_msg(f.kind == FIELD_STRING && bytes_equal(f.content, bytes_str(text)),
		"%s is not \"%s\"", name, text);
}

static void expect_number(const char *name, int64_t number)
{
	struct field f = header(name);
	ck_assert_msg(f.kind == FIELD_INTEGER && f.integer == number, "%s is not %lld", name,
		(long long)number);
}

static size_t count_headers(void)
{
	struct reader r = reader_of(told.text[PROP_HEADERS]);
	struct field f;
	size_t n = 0;
	while (field_next(&r, false, &f))
		n++;
	ck_assert(!r.bad);
	return n;
}

START_TEST(keeps_what_means_nothing_to_a_broker_byte_for_byte)
{
	static const enum prop kept[] = {PROP_CONTENT_TYPE, PROP_CONTENT_ENCODING,
		PROP_CORRELATION_ID, PROP_REPLY_TO, PROP_MESSAGE_ID, PROP_TYPE, PROP_APP_ID,
		PROP_CLUSTER_ID};
	static const char nested[] = "F\0\0\0\x0f\1aF\0\0\0\x08\1b"
				     "A\0\0\0\1V";
	maker_begin(&m);
	for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
		maker_text(&m, kept[i], prop_name(kept[i]));
	m.props.present |= 1u << PROP_PRIORITY | 1u << PROP_TIMESTAMP;
	m.props.number[PROP_PRIORITY] = 7;
	m.props.number[PROP_TIMESTAMP] = 1700000000;
	maker_header(&m, "traceparent", "00-ab");
	maker_header_raw(&m, "nested", nested, sizeof nested - 1);
	maker_header_raw(&m, "unsigned", "u\xff\xff", 3);
	encode_message();
	for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
		ck_assert(bytes_equal(told.text[kept[i]], bytes_str(prop_name(kept[i]))));
	ck_assert_uint_eq(told.number[PROP_PRIORITY], 7);
	ck_assert_uint_eq(told.number[PROP_TIMESTAMP], 1700000000);
	ck_assert_uint_eq(told.number[PROP_DELIVERY_MODE], 2);
	ck_assert(told.text[PROP_HEADERS].size > m.headers.size);
	ck_assert_int_eq(memcmp(told.text[PROP_HEADERS].data, m.headers.data, m.headers.size), 0);
}
END_TEST

START_TEST(tells_why_and_where_from)
{
	maker_begin(&m);
	encode_message();
	expect("inboxd-consumer", "main");
	expect_number("inboxd-parked-id", 42);
	expect("inboxd-reason", "rejected");
	expect("inboxd-detail", "no such customer");
	expect_number("inboxd-attempts", 3);
	expect("inboxd-queue", "orders");
	expect("inboxd-exchange", "shop");
	expect("inboxd-routing-key", "order.placed");
	ck_assert(!has("inboxd-body-size"));
	ck_assert(!has("inboxd-headers-dropped"));
	ck_assert_uint_eq(count_headers(), 8);
}
END_TEST

START_TEST(makes_transient_persistent_and_says_what_a_broker_would_act_on_in_headers)
{
	maker_begin(&m);
	maker_text(&m, PROP_USER_ID, "somebody");
	maker_text(&m, PROP_EXPIRATION, "1000");
	maker_text(&m, PROP_REPLY_TO, "amq.rabbitmq.reply-to.g1h2");
	m.props.present |= 1u << PROP_DELIVERY_MODE;
	m.props.number[PROP_DELIVERY_MODE] = 1;
	encode_message();
	ck_assert_uint_eq(told.present, 1u << PROP_HEADERS | 1u << PROP_DELIVERY_MODE);
	ck_assert_uint_eq(told.number[PROP_DELIVERY_MODE], 2);
	expect("inboxd-user-id", "somebody");
	expect("inboxd-expiration", "1000");
	expect("inboxd-reply-to", "amq.rabbitmq.reply-to.g1h2");
}
END_TEST

/* Header, what becomes of it: NULL: left out. */
static const char *const fates[][2] = {
	{"CC", "inboxd-CC"},
	{"BCC", "inboxd-BCC"},
	{"cc", "cc"},
	{"CCC", "CCC"},
	{"x-death", "inboxd-x-death"},
	{"x-death-row", "x-death-row"},
	{"x-first-death-queue", "inboxd-x-first-death-queue"},
	{"x-last-death-reason", "inboxd-x-last-death-reason"},
	{"x-received-from", "inboxd-x-received-from"},
	{"x-delay", "inboxd-x-delay"},
	{"x-delivery-count", NULL},
	{"x-acquired-count", NULL},
	{"x-stream-offset", NULL},
	{"x-stream-filter-value", "inboxd-x-stream-filter-value"},
	{"x-user", "x-user"},
	{"", ""},
};
enum { FATES = sizeof fates / sizeof fates[0] };

START_TEST(renames_headers_that_route_and_leaves_out_counts)
{
	size_t n = 0;
	maker_begin(&m);
	for (size_t i = 0; i < FATES; i++)
		maker_header(&m, fates[i][0], fates[i][0]);
	encode_message();
	for (size_t i = 0; i < FATES; i++) {
		if (fates[i][1] != NULL)
			expect(fates[i][1], fates[i][0]);
		if (fates[i][1] == NULL || strcmp(fates[i][0], fates[i][1]) != 0)
			ck_assert_msg(!has(fates[i][0]), "%s", fates[i][0]);
		n += fates[i][1] != NULL;
	}
	ck_assert_uint_eq(count_headers(), n + 8);
}
END_TEST

START_TEST(a_letter_of_a_letter_of_a_letter_is_no_larger)
{
	maker_begin(&m);
	maker_text(&m, PROP_USER_ID, "somebody");
	maker_text(&m, PROP_EXPIRATION, "1000");
	maker_header(&m, "CC", "x");
	maker_header(&m, "own", "y");
	encode_message();
	size_t size = encoded.size;
	for (int i = 0; i < 3; i++) {
		struct buf before = encoded;
		struct letter l = letter_of(&m);
		l.properties = buf_bytes(&before);
		encoded = (struct buf){0};
		encode(&l);
		buf_done(&before);
		ck_assert_uint_eq(encoded.size, size);
	}
	expect("inboxd-user-id", "somebody");
	expect("inboxd-expiration", "1000");
	expect("inboxd-CC", "x");
	expect("own", "y");
}
END_TEST

START_TEST(what_a_message_says_anew_takes_the_place_of_what_an_earlier_letter_told)
{
	maker_begin(&m);
	maker_text(&m, PROP_EXPIRATION, "2000");
	maker_header(&m, "inboxd-x-death", "old");
	maker_header(&m, "inboxd-expiration", "1000");
	maker_header(&m, "inboxd-user-id", "first");
	maker_header(&m, "inboxd-consumer", "other");
	maker_header(&m, "inboxd-body-size", "9");
	maker_header(&m, "inboxd-else", "theirs");
	maker_header(&m, "x-death", "new");
	encode_message();
	expect("inboxd-x-death", "new");
	expect("inboxd-expiration", "2000");
	expect("inboxd-user-id", "first");
	expect("inboxd-consumer", "main");
	expect("inboxd-else", "theirs");
	ck_assert(!has("inboxd-body-size"));
	ck_assert_uint_eq(count_headers(), 8 + 4);
}
END_TEST

static char large[200000];

START_TEST(detail_is_utf8_without_nul_and_of_bounded_size)
{
	maker_begin(&m);
	struct letter l = letter_of(&m);
	memset(large, 'x', sizeof large);
	memcpy(large, "a\0b\xff\xc3\xa9", 6);
	l.detail = bytes_of(large, sizeof large);
	encode(&l);
	struct field f = header("inboxd-detail");
	ck_assert_uint_eq(f.content.size, LETTER_DETAIL_MAX);
	ck_assert_int_eq(memcmp(f.content.data,
				 "a\xef\xbf\xbd"
				 "b\xef\xbf\xbd\xc3\xa9xx",
				 12),
		0);
}
END_TEST

static void maker_large(const char *name, size_t size)
{
	field_add_string(&m.headers, name, bytes_of(large, size));
}

START_TEST(detail_gives_way_before_any_header)
{
	maker_begin(&m);
	memset(large, 'x', sizeof large);
	maker_large("large", 125000);
	struct letter l = letter_of(&m);
	l.detail = bytes_of(large, sizeof large);
	encode(&l);
	ck_assert_uint_eq(header("large").content.size, 125000);
	ck_assert(!has("inboxd-headers-dropped"));
	size_t kept = header("inboxd-detail").content.size;
	ck_assert_uint_ge(kept, 256);
	ck_assert_uint_lt(kept, LETTER_DETAIL_MAX);
	ck_assert_uint_gt(encoded.size, LETTER_MAX - 100);
}
END_TEST

START_TEST(the_largest_headers_go_when_all_of_them_do_not_fit)
{
	maker_begin(&m);
	memset(large, 'x', sizeof large);
	maker_large("a", 1000);
	maker_large("b", 90000);
	maker_large("c", 20000);
	maker_large("d", 70000);
	maker_large("e", 1000);
	encode_message();
	ck_assert(has("a") && has("c") && has("e"));
	ck_assert(!has("b"));
	ck_assert(has("d"));
	expect_number("inboxd-headers-dropped", 1);
	expect("inboxd-detail", "no such customer");
	maker_large("f", 80000);
	encode_message();
	ck_assert(!has("b") && !has("f") && has("d"));
	expect_number("inboxd-headers-dropped", 2);
}
END_TEST

START_TEST(ten_thousand_small_headers_are_bounded_too)
{
	char name[16];
	maker_begin(&m);
	for (int i = 0; i < 10000; i++) {
		(void)snprintf(name, sizeof name, "%06d", i);
		maker_header(&m, name, "12");
	}
	encode_message();
	ck_assert_uint_gt(encoded.size, LETTER_MAX - 100);
	struct field f = header("inboxd-headers-dropped");
	ck_assert_uint_eq(count_headers(), 10000 - (size_t)f.integer + 9);
}
END_TEST

START_TEST(a_name_that_has_no_room_for_a_prefix_is_left_out_and_counted)
{
	char name[256];
	memset(name, 'y', sizeof name);
	memcpy(name, "x-stream-", 9);
	name[248] = '\0';
	maker_begin(&m);
	maker_header(&m, name, "fits");
	encode_message();
	ck_assert_uint_eq(count_headers(), 9);
	name[248] = 'y';
	name[249] = '\0';
	maker_begin(&m);
	maker_header(&m, name, "does not");
	encode_message();
	ck_assert_uint_eq(count_headers(), 9);
	expect_number("inboxd-headers-dropped", 1);
}
END_TEST

START_TEST(bytes_that_are_no_headers_cost_themselves_only)
{
	maker_begin(&m);
	maker_text(&m, PROP_MESSAGE_ID, "id");
	maker_header(&m, "good", "1");
	maker_header_raw(&m, "bad", "?", 1);
	encode_message();
	ck_assert(bytes_equal(told.text[PROP_MESSAGE_ID], bytes_str("id")));
	expect("good", "1");
	expect_number("inboxd-headers-dropped", 1);
	ck_assert_uint_eq(count_headers(), 10);
	struct letter l = letter_of(&m);
	l.properties = bytes_of("\xff\xff", 2);
	encode(&l);
	ck_assert_uint_eq(count_headers(), 8);
}
END_TEST

START_TEST(a_body_that_is_not_sent_is_told_by_its_size)
{
	maker_begin(&m);
	struct letter l = letter_of(&m);
	l.is_without_body = true;
	l.body_size = UINT64_C(1) << 33;
	encode(&l);
	expect_number("inboxd-body-size", INT64_C(1) << 33);
}
END_TEST

UNIT_SUITE("message/letter", keeps_what_means_nothing_to_a_broker_byte_for_byte,
	tells_why_and_where_from,
	makes_transient_persistent_and_says_what_a_broker_would_act_on_in_headers,
	renames_headers_that_route_and_leaves_out_counts,
	a_letter_of_a_letter_of_a_letter_is_no_larger,
	what_a_message_says_anew_takes_the_place_of_what_an_earlier_letter_told,
	detail_is_utf8_without_nul_and_of_bounded_size, detail_gives_way_before_any_header,
	the_largest_headers_go_when_all_of_them_do_not_fit,
	ten_thousand_small_headers_are_bounded_too,
	a_name_that_has_no_room_for_a_prefix_is_left_out_and_counted,
	bytes_that_are_no_headers_cost_themselves_only, a_body_that_is_not_sent_is_told_by_its_size)

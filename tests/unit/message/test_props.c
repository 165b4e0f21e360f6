/* SPDX-License-Identifier: MIT */
#include "message/props.h"

#include "unit.h"

#include <locale.h>
#include <math.h>

static struct bytes all_properties(struct buf *b)
{
	static const uint8_t headers[] = {1, 'h', 'S', 0, 0, 0, 1, 'v'};
	buf_add_u16(b, 0xfffc);
	buf_add_str(b, "\2ct");
	buf_add_str(b, "\2ce");
	buf_add_u32(b, sizeof headers);
	buf_add(b, headers, sizeof headers);
	buf_add_byte(b, 2);
	buf_add_byte(b, 9);
	buf_add_str(b, "\2co");
	buf_add_str(b, "\2rt");
	buf_add_str(b, "\2ex");
	buf_add_str(b, "\2id");
	buf_add_u64(b, 1700000000);
	buf_add_str(b, "\2ty");
	buf_add_str(b, "\2us");
	buf_add_str(b, "\2ap");
	buf_add_str(b, "\2cl");
	return buf_bytes(b);
}

START_TEST(reads_every_property_and_writes_the_same_bytes)
{
	static const char *const texts[PROP_COUNT] = {
		"ct", "ce", NULL, NULL, NULL, "co", "rt", "ex", "id", NULL, "ty", "us", "ap", "cl"};
	struct buf b = {0}, again = {0};
	struct props p;
	ck_assert(props_decode(all_properties(&b), &p));
	for (int i = 0; i < PROP_COUNT; i++) {
		ck_assert_uint_ne(p.present & (1u << i), 0);
		if (texts[i] != NULL)
			ck_assert(bytes_equal(p.text[i], bytes_str(texts[i])));
	}
	ck_assert_uint_eq(p.text[PROP_HEADERS].size, 8);
	ck_assert_uint_eq(p.number[PROP_DELIVERY_MODE], 2);
	ck_assert_uint_eq(p.number[PROP_PRIORITY], 9);
	ck_assert_uint_eq(p.number[PROP_TIMESTAMP], 1700000000);
	props_encode(&again, &p);
	ck_assert(bytes_equal(buf_bytes(&b), buf_bytes(&again)));
	buf_done(&b);
	buf_done(&again);
}
END_TEST

START_TEST(absent_is_not_empty)
{
	struct props p;
	ck_assert(props_decode(bytes_of("\0\x80\0", 3), &p));
	ck_assert_uint_eq(p.present, 1u << PROP_MESSAGE_ID);
	ck_assert_ptr_nonnull(p.text[PROP_MESSAGE_ID].data);
	ck_assert_uint_eq(p.text[PROP_MESSAGE_ID].size, 0);
	ck_assert_ptr_null(p.text[PROP_TYPE].data);
	ck_assert(props_decode(bytes_of("\0\0", 2), &p));
	ck_assert_uint_eq(p.present, 0);
}
END_TEST

START_TEST(refuses_every_cut_and_every_addition)
{
	struct buf b = {0};
	struct props p;
	struct bytes all = all_properties(&b);
	for (size_t n = 0; n < all.size; n++) {
		ck_assert_msg(!props_decode(bytes_of(all.data, n), &p), "%zu bytes", n);
		ck_assert_uint_eq(p.present, 0);
		ck_assert_ptr_null(p.text[PROP_CONTENT_TYPE].data);
	}
	buf_add_byte(&b, 0);
	ck_assert(!props_decode(buf_bytes(&b), &p));
	ck_assert(!props_decode(bytes_of(NULL, 0), &p));
	ck_assert(!props_decode(bytes_of("\0\1\0\0", 4), &p));
	ck_assert(!props_decode(bytes_of("\0\2", 2), &p));
	buf_done(&b);
}
END_TEST

START_TEST(names_are_those_of_the_protocol)
{
	for (int i = 0; i < PROP_COUNT; i++) {
		enum prop p = (enum prop)i;
		ck_assert_int_eq(
			prop_by_name(bytes_str(prop_name(p))), p == PROP_HEADERS ? PROP_COUNT : p);
	}
	ck_assert_int_eq(prop_by_name(bytes_str("message-id")), PROP_COUNT);
	ck_assert_int_eq(prop_by_name(bytes_str("")), PROP_COUNT);
	ck_assert(prop_is_number(PROP_PRIORITY));
	ck_assert(!prop_is_number(PROP_EXPIRATION));
}
END_TEST

START_TEST(a_text_too_long_for_the_wire_is_cut)
{
	char longer[300];
	struct buf b = {0};
	struct props p = {.present = 1u << PROP_MESSAGE_ID}, back;
	memset(longer, 'x', sizeof longer);
	p.text[PROP_MESSAGE_ID] = bytes_of(longer, sizeof longer);
	props_encode(&b, &p);
	ck_assert(props_decode(buf_bytes(&b), &back));
	ck_assert_uint_eq(back.text[PROP_MESSAGE_ID].size, 255);
	buf_done(&b);
}
END_TEST

/* The text of one value on the wire, or what keeps it from having one. */
static const char *text_of(const void *wire, size_t size)
{
	static struct buf out;
	struct field f;
	struct reader r = reader_of(bytes_of(wire, size));
	buf_clear(&out);
	if (!field_next(&r, true, &f))
		return "(malformed)";
	ck_assert_uint_eq(reader_left(&r), 0);
	return field_text(&f, &out) ? buf_str(&out) : "(none)";
}

static const char *double_text(double v)
{
	static struct buf b;
	uint64_t bits;
	memcpy(&bits, &v, sizeof bits);
	buf_clear(&b);
	buf_add_byte(&b, 'd');
	buf_add_u64(&b, bits);
	return text_of(b.data, b.size);
}

START_TEST(every_scalar_has_a_text)
{
	ck_assert_str_eq(text_of("t\1", 2), "true");
	ck_assert_str_eq(text_of("t\0", 2), "false");
	ck_assert_str_eq(text_of("b\xfd", 2), "-3");
	ck_assert_str_eq(text_of("B\xfd", 2), "253");
	ck_assert_str_eq(text_of("s\xff\xfd", 3), "-3");
	ck_assert_str_eq(text_of("u\xff\xfd", 3), "65533");
	ck_assert_str_eq(text_of("I\xff\xff\xff\xfd", 5), "-3");
	ck_assert_str_eq(text_of("i\xff\xff\xff\xfd", 5), "4294967293");
	ck_assert_str_eq(text_of("l\x7f\xff\xff\xff\xff\xff\xff\xff", 9), "9223372036854775807");
	ck_assert_str_eq(text_of("l\x80\0\0\0\0\0\0\0", 9), "-9223372036854775808");
	ck_assert_str_eq(text_of("L\xff\xff\xff\xff\xff\xff\xff\xff", 9), "18446744073709551615");
	ck_assert_str_eq(text_of("L\0\0\0\0\0\0\0\5", 9), "5");
	ck_assert_str_eq(text_of("T\0\0\0\0\x65\x53\xf1\0", 9), "1700000000");
	ck_assert_str_eq(text_of("S\0\0\0\2hi", 7), "hi");
	ck_assert_str_eq(text_of("x\0\0\0\2\xff!", 7), "\xff!");
	ck_assert_str_eq(text_of("S\0\0\0\0", 5), "");
}
END_TEST

START_TEST(decimals_keep_their_digits)
{
	ck_assert_str_eq(text_of("D\2\0\0\4\xd2", 6), "12.34");
	ck_assert_str_eq(text_of("D\2\xff\xff\xfb\x2e", 6), "-12.34");
	ck_assert_str_eq(text_of("D\0\0\0\4\xd2", 6), "1234");
	ck_assert_str_eq(text_of("D\4\0\0\4\xd2", 6), "0.1234");
	ck_assert_str_eq(text_of("D\5\0\0\4\xd2", 6), "0.01234");
	ck_assert_str_eq(text_of("D\2\0\0\0\0", 6), "0.00");
	ck_assert_str_eq(text_of("D\0\x80\0\0\0", 6), "-2147483648");
	ck_assert_uint_eq(strlen(text_of("D\xff\x80\0\0\0", 6)), 1 + 1 + 1 + 255);
}
END_TEST

START_TEST(floats_have_their_shortest_text)
{
	ck_assert_str_eq(double_text(1.5), "1.5");
	ck_assert_str_eq(double_text(0.1), "0.1");
	ck_assert_str_eq(double_text(-0.0), "-0");
	ck_assert_str_eq(double_text(1e300), "1e+300");
	ck_assert_str_eq(double_text(1.0 / 3), "0.3333333333333333");
	ck_assert_str_eq(double_text(9007199254740993.0), "9007199254740992");
	ck_assert_str_eq(double_text((double)INFINITY), "inf");
	ck_assert_str_eq(double_text(-(double)INFINITY), "-inf");
	ck_assert_str_eq(double_text((double)NAN), "nan");
	ck_assert_str_eq(double_text(-(double)NAN), "nan");
	ck_assert_str_eq(text_of("f\x3f\xc0\0\0", 5), "1.5");
}
END_TEST

START_TEST(a_locale_does_not_change_a_float)
{
	static const char *const with_comma[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "ps_AF"};
	for (size_t i = 0; i < sizeof with_comma / sizeof with_comma[0]; i++) {
		(void)setlocale(LC_ALL, with_comma[i]);
		ck_assert_str_eq(double_text(1.5), "1.5");
		ck_assert_str_eq(double_text(1.25e-300), "1.25e-300");
	}
	(void)setlocale(LC_ALL, "C");
}
END_TEST

START_TEST(containers_and_void_have_none)
{
	ck_assert_str_eq(text_of("V", 1), "(none)");
	ck_assert_str_eq(text_of("A\0\0\0\0", 5), "(none)");
	ck_assert_str_eq(text_of("A\0\0\0\2t\1", 7), "(none)");
	ck_assert_str_eq(text_of("F\0\0\0\3\1kV", 8), "(none)");
}
END_TEST

START_TEST(malformed_values_are_refused)
{
	static const char kinds[] = "tbBsuIilLfdDTSxAF";
	uint8_t wire[16] = {0};
	for (size_t i = 0; i < sizeof kinds - 1; i++) {
		wire[0] = (uint8_t)kinds[i];
		ck_assert_str_eq(text_of(wire, 1), "(malformed)");
	}
	ck_assert_str_eq(text_of("?", 1), "(malformed)");
	ck_assert_str_eq(text_of("S\0\0\0\3hi", 7), "(malformed)");
	ck_assert_str_eq(text_of("S\xff\xff\xff\xffhi", 7), "(malformed)");
	ck_assert_str_eq(text_of("", 0), "(malformed)");
}
END_TEST

static struct props with_headers(const struct buf *table)
{
	struct props p = {.present = 1u << PROP_HEADERS};
	p.text[PROP_HEADERS] = buf_bytes(table);
	return p;
}

START_TEST(finds_headers_and_the_last_of_a_name_wins)
{
	struct buf table = {0}, out = {0};
	struct field f;
	field_add_string(&table, "a", bytes_str("1"));
	field_add_integer(&table, "b", -7);
	field_add_string(&table, "a", bytes_str("2"));
	struct props p = with_headers(&table);
	ck_assert(props_header(&p, bytes_str("a"), &f));
	ck_assert(field_text(&f, &out));
	ck_assert(props_header(&p, bytes_str("b"), &f));
	ck_assert(field_text(&f, &out));
	ck_assert_str_eq(buf_str(&out), "2-7");
	ck_assert(props_header(&p, bytes_str("A"), &f));
	ck_assert_int_eq(f.kind, FIELD_ABSENT);
	struct props none = {0};
	ck_assert(props_header(&none, bytes_str("a"), &f));
	ck_assert_int_eq(f.kind, FIELD_ABSENT);
	buf_done(&table);
	buf_done(&out);
}
END_TEST

START_TEST(says_when_headers_break_off)
{
	struct buf table = {0};
	struct field f;
	field_add_string(&table, "a", bytes_str("1"));
	buf_add_str(&table, "\1b?");
	struct props p = with_headers(&table);
	ck_assert(!props_header(&p, bytes_str("a"), &f));
	ck_assert_int_eq(f.kind, FIELD_STRING);
	ck_assert(!props_header(&p, bytes_str("b"), &f));
	ck_assert_int_eq(f.kind, FIELD_ABSENT);
	buf_done(&table);
}
END_TEST

START_TEST(depth_of_tables_costs_nothing)
{
	/* From inside out: each level is the next one's only entry. */
	enum { DEPTH = 17000 };
	struct buf table = {0};
	struct field f;
	for (int i = DEPTH; i > 0; i--) {
		buf_add_str(&table, "\1aF");
		buf_add_u32(&table, (uint32_t)(i - 1) * 7);
	}
	field_add_string(&table, "id", bytes_str("after"));
	struct props p = with_headers(&table);
	ck_assert(props_header(&p, bytes_str("id"), &f));
	ck_assert_int_eq(f.kind, FIELD_STRING);
	ck_assert(props_header(&p, bytes_str("a"), &f));
	ck_assert_int_eq(f.kind, FIELD_TABLE);
	buf_done(&table);
}
END_TEST

UNIT_SUITE("message/props", reads_every_property_and_writes_the_same_bytes, absent_is_not_empty,
	refuses_every_cut_and_every_addition, names_are_those_of_the_protocol,
	a_text_too_long_for_the_wire_is_cut, every_scalar_has_a_text, decimals_keep_their_digits,
	floats_have_their_shortest_text, a_locale_does_not_change_a_float,
	containers_and_void_have_none, malformed_values_are_refused,
	finds_headers_and_the_last_of_a_name_wins, says_when_headers_break_off,
	depth_of_tables_costs_nothing)

/* SPDX-License-Identifier: MIT */
#include "base/utf8.h"

#include "unit.h"

static size_t length(const char *s, size_t n)
{
	return utf8_decode((const uint8_t *)s, n, NULL);
}

START_TEST(reads_back_every_code_point_it_writes)
{
	struct buf b = {0};
	for (uint32_t c = 0; c <= 0x10ffff; c += c == 0xd7ff ? 0x801 : 1) {
		uint32_t back = 0;
		buf_clear(&b);
		utf8_add(&b, c);
		if (utf8_decode(b.data, b.size, &back) != b.size || back != c)
			ck_abort_msg("U+%04X", c);
	}
	buf_done(&b);
}
END_TEST

START_TEST(refuses_what_is_not_well_formed)
{
	static const char *const bad[] = {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc3", "\xc3(",
		"\xe0\x80\xaf", "\xe2\x82", "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x80\x80\x80",
		"\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xfe"};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		ck_assert_msg(length(bad[i], strlen(bad[i])) == 0, "number %zu", i);
	ck_assert_uint_eq(length("\xe2\x82\xac", 2), 0);
	ck_assert_uint_eq(length("\xe2\x82\xac", 3), 3);
}
END_TEST

START_TEST(cuts_between_characters)
{
	struct bytes euro = bytes_str("a\xe2\x82\xac"
				      "b");
	static const size_t expected[] = {0, 1, 1, 1, 4, 5, 5};
	for (size_t max = 0; max < 7; max++)
		ck_assert_uint_eq(utf8_cut(euro, max), expected[max]);
	ck_assert_uint_eq(utf8_cut(bytes_str("\x80\x80\x80\x80\x80\x80"), 5), 5);
	ck_assert_uint_eq(utf8_cut(bytes_str("\x80\x80\x80"), 1), 1);
	ck_assert_uint_eq(utf8_cut(bytes_str("ab\xff\xff"), 3), 3);
}
END_TEST

START_TEST(cleans_a_text_and_cuts_it_to_fit)
{
	char out[8];
	utf8_clean(bytes_str("a\xff\xc3\xa9"), out, sizeof out);
	ck_assert_str_eq(out, "a\xef\xbf\xbd\xc3\xa9");
	utf8_clean(bytes_str("abcdef\xc3\xa9z"), out, sizeof out);
	ck_assert_str_eq(out, "abcdef");
	utf8_clean(bytes_of("a\0b", 3), out, sizeof out);
	ck_assert_str_eq(out,
		"a\xef\xbf\xbd"
		"b");
	utf8_clean(bytes_of(NULL, 0), out, 1);
	ck_assert_str_eq(out, "");
}
END_TEST

START_TEST(knows_what_a_person_can_see)
{
	static const uint32_t visible[] = {' ', 'a', '~', 0xe9, 0x20ac, 0x4e2d, 0x1f600};
	static const uint32_t hidden[] = {0, '\n', 0x1b, 0x7f, 0x85, 0x9b, 0xa0, 0xad, 0x200b,
		0x202e, 0x2028, 0x2066, 0x3000, 0xfeff, 0xe0041, 0x10ffff};
	for (size_t i = 0; i < sizeof visible / sizeof visible[0]; i++)
		ck_assert_msg(utf8_is_visible(visible[i]), "U+%04X", visible[i]);
	for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++)
		ck_assert_msg(!utf8_is_visible(hidden[i]), "U+%04X", hidden[i]);
}
END_TEST

UNIT_SUITE("base/utf8", reads_back_every_code_point_it_writes, refuses_what_is_not_well_formed,
	cuts_between_characters, cleans_a_text_and_cuts_it_to_fit, knows_what_a_person_can_see)

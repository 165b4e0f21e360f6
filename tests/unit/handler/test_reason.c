/* SPDX-License-Identifier: MIT */
#include "handler/reason.h"

#include "base/buf.h"
#include "unit.h"

static const char *cleaned(const char *text, size_t size)
{
	static char dst[64];
	reason_set(dst, size, bytes_str(text));
	return dst;
}

START_TEST(keeps_what_is_text)
{
	ck_assert_str_eq(cleaned("gr\xc3\xbc\xc3\x9f\x65\t\n", 64), "gr\xc3\xbc\xc3\x9f\x65\t\n");
	ck_assert_str_eq(cleaned("", 64), "");
}
END_TEST

START_TEST(replaces_what_is_not)
{
	ck_assert_str_eq(cleaned("a\xff\x01\x7f\xc3", 64),
		"a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
	char dst[16];
	reason_set(dst, sizeof dst, bytes_of("a\0b", 3));
	ck_assert_str_eq(dst,
		"a\xef\xbf\xbd"
		"b");
}
END_TEST

START_TEST(cuts_at_a_character_and_shows_it)
{
	/* Seven bytes fit. */
	ck_assert_str_eq(cleaned("1234567", 8), "1234567");
	ck_assert_str_eq(cleaned("12345678", 8), "1234\xe2\x80\xa6");
	ck_assert_str_eq(cleaned("123\xc3\xbc\xc3\xbc\xc3\xbc", 8), "123\xe2\x80\xa6");
	for (size_t size = 4; size < 40; size++) {
		const char *s = cleaned(
			"\xf0\x9f\x98\x80\xc3\xbcx\xf0\x9f\x98\x80\xff\xff\xff\xc3\xbc\xc3\xbc",
			size);
		ck_assert_uint_lt(strlen(s), size);
	}
}
END_TEST

UNIT_SUITE("handler/reason", keeps_what_is_text, replaces_what_is_not,
	cuts_at_a_character_and_shows_it)

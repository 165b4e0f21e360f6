/* SPDX-License-Identifier: MIT */
#include "base/err.h"

#include "base/utf8.h"
#include "unit.h"

START_TEST(says_what_to_do_and_what_happened)
{
	struct err err = {.sqlstate = "23505"};
	ck_assert_int_eq(err_set(&err, RC_REJECT, "row %d", 7), RC_REJECT);
	ck_assert_int_eq(err.rc, RC_REJECT);
	ck_assert_str_eq(err.text, "row 7");
	ck_assert_str_eq(err.sqlstate, "");
}
END_TEST

START_TEST(puts_context_in_front_and_keeps_the_rest)
{
	struct err err;
	(void)err_set(&err, RC_UNAVAILABLE, "connection refused");
	memcpy(err.sqlstate, "08006", 6);
	ck_assert_int_eq(err_ctx(&err, "broker %s", "rabbit-1"), RC_UNAVAILABLE);
	ck_assert_str_eq(err.text, "broker rabbit-1: connection refused");
	ck_assert_str_eq(err.sqlstate, "08006");
}
END_TEST

START_TEST(works_without_a_place_for_the_text)
{
	ck_assert_int_eq(err_set(NULL, RC_RETRY, "x"), RC_RETRY);
	ck_assert_int_eq(err_ctx(NULL, "x"), RC_FATAL);
}
END_TEST

START_TEST(may_quote_its_own_old_text)
{
	struct err err;
	(void)err_set(&err, RC_RETRY, "first");
	(void)err_set(&err, RC_RETRY, "second after %s", err.text);
	ck_assert_str_eq(err.text, "second after first");
	(void)err_ctx(&err, "(%s)", err.text);
	ck_assert_str_eq(err.text, "(second after first): second after first");
}
END_TEST

START_TEST(cuts_long_texts_between_characters)
{
	struct err err;
	struct buf b = {0};
	for (int i = 0; i < 1000; i++)
		buf_add_str(&b, "\xe2\x82\xac");
	for (int lead = 0; lead < 4; lead++) {
		(void)err_set(&err, RC_FATAL, "%.*s%s", lead, "xxxx", buf_str(&b));
		ck_assert_uint_gt(strlen(err.text), sizeof err.text - 5);
		(void)err_ctx(&err, "%.*s%s", lead, "xxxx", buf_str(&b));
		size_t size = strlen(err.text), at = 0;
		while (at < size) {
			size_t n = utf8_decode((const uint8_t *)err.text + at, size - at, NULL);
			ck_assert_uint_ne(n, 0);
			at += n;
		}
	}
	buf_done(&b);
}
END_TEST

START_TEST(is_utf8_whatever_it_quotes)
{
	struct err err;
	(void)err_set(&err, RC_REJECT, "encoding \xff-\xc3-\xe2\x82 end");
	ck_assert_str_eq(
		err.text, "encoding \xef\xbf\xbd-\xef\xbf\xbd-\xef\xbf\xbd\xef\xbf\xbd end");
}
END_TEST

START_TEST(names_each_kind)
{
	ck_assert_str_eq(rc_name(RC_OK), "ok");
	ck_assert_str_eq(rc_name(RC_UNKNOWN), "unknown");
	ck_assert_str_eq(rc_name(RC_FATAL), "fatal");
	ck_assert_str_eq(rc_name((enum rc)99), "?");
}
END_TEST

UNIT_SUITE("base/err", says_what_to_do_and_what_happened, puts_context_in_front_and_keeps_the_rest,
	works_without_a_place_for_the_text, may_quote_its_own_old_text,
	cuts_long_texts_between_characters, is_utf8_whatever_it_quotes, names_each_kind)

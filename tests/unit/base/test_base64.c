/* SPDX-License-Identifier: MIT */
#include "base/base64.h"

#include "base/fd.h"
#include "unit.h"

START_TEST(writes_and_reads_the_examples_of_the_standard)
{
	static const char *const pairs[][2] = {{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="},
		{"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="},
		{"foobar", "Zm9vYmFy"}};
	for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
		AUTO(buf) struct buf text = {0}, back = {0};
		base64_encode(bytes_str(pairs[i][0]), &text);
		ck_assert_str_eq(buf_str(&text), pairs[i][1]);
		ck_assert(base64_decode(buf_bytes(&text), &back));
		ck_assert_str_eq(buf_str(&back), pairs[i][0]);
	}
}
END_TEST

START_TEST(keeps_every_byte)
{
	AUTO(buf) struct buf data = {0}, text = {0}, back = {0};
	for (int i = 0; i < 256; i++)
		buf_add_byte(&data, (uint8_t)i);
	base64_encode(buf_bytes(&data), &text);
	ck_assert(base64_decode(buf_bytes(&text), &back));
	ck_assert(bytes_equal(buf_bytes(&data), buf_bytes(&back)));
}
END_TEST

START_TEST(refuses_what_is_not_base64_and_adds_nothing)
{
	static const char *const texts[] = {"Z", "Zg",
		"Zg=", "Zg===", "Z===", "=Zg=", "Zg==Zg==", "Zm9v!", "Zh==", "Zm9=", "Zm9-"};
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		AUTO(buf) struct buf out = {0};
		buf_add_str(&out, "x");
		ck_assert_msg(!base64_decode(bytes_str(texts[i]), &out), "took %s", texts[i]);
		ck_assert_uint_eq(out.size, 1);
	}
}
END_TEST

START_TEST(passes_over_white_space)
{
	AUTO(buf) struct buf out = {0};
	ck_assert(base64_decode(bytes_str(" Zm9v\r\nYm\tFy\n"), &out));
	ck_assert_str_eq(buf_str(&out), "foobar");
}
END_TEST

UNIT_SUITE("base/base64", writes_and_reads_the_examples_of_the_standard, keeps_every_byte,
	refuses_what_is_not_base64_and_adds_nothing, passes_over_white_space)

/* SPDX-License-Identifier: MIT */
#include "base/json.h"

#include "unit.h"

#include <stdio.h>

static enum json_kind found_kind;
static struct bytes found;
static const char *why;
static size_t why_at;

static bool find(struct bytes text, const char *pointer)
{
	why = NULL;
	return json_find(text, pointer, &found_kind, &found, &why, &why_at);
}

static void expect(const char *text, const char *pointer, enum json_kind kind, const char *raw)
{
	ck_assert_msg(find(bytes_str(text), pointer), "%s: %s at %zu", text, why, why_at);
	ck_assert_msg(found_kind == kind, "%s %s: kind %d", text, pointer, (int)found_kind);
	ck_assert_msg(bytes_equal(found, bytes_str(raw)), "%s %s: %.*s", text, pointer,
		(int)found.size, (const char *)found.data);
	ck_assert_int_eq(found.data == NULL, kind == JSON_ABSENT);
}

static void expect_absent(const char *text, const char *pointer)
{
	expect(text, pointer, JSON_ABSENT, NULL);
}

static void expect_bad(struct bytes text, const char *reason, size_t at)
{
	const char *shown = text.size != 0 ? (const char *)text.data : "";
	ck_assert_msg(!find(text, ""), "taken: %.60s", shown);
	ck_assert_msg(strstr(why, reason) != NULL, "%.60s: %s", shown, why);
	ck_assert_msg(why_at == at, "%.60s: %s at %zu", shown, why, why_at);
}

START_TEST(finds_every_kind)
{
	const char *text = " { \"n\" : null , \"t\":true,\"f\":false,\"i\":-12.5e+3,\"s\":\"x\","
			   "\"a\":[1, 2],\"o\":{ \"p\" : {} } } ";
	expect(text, "/n", JSON_NULL, "null");
	expect(text, "/t", JSON_BOOL, "true");
	expect(text, "/f", JSON_BOOL, "false");
	expect(text, "/i", JSON_NUMBER, "-12.5e+3");
	expect(text, "/s", JSON_STRING, "\"x\"");
	expect(text, "/a", JSON_ARRAY, "[1, 2]");
	expect(text, "/a/1", JSON_NUMBER, "2");
	expect(text, "/o", JSON_OBJECT, "{ \"p\" : {} }");
	expect(text, "/o/p", JSON_OBJECT, "{}");
	expect_absent(text, "/o/q");
	expect_absent(text, "/s/x");
	expect_absent(text, "/a/2");
}
END_TEST

START_TEST(the_whole_text_is_a_value_too)
{
	expect("7", "", JSON_NUMBER, "7");
	expect("\t[ 1 ]\r\n", "", JSON_ARRAY, "[ 1 ]");
	expect("\"\"", "", JSON_STRING, "\"\"");
	expect_absent("7", "/a");
	expect_absent("[[7]]", "/0/0/0");
}
END_TEST

START_TEST(numbers_stay_the_literal_token)
{
	static const char *const numbers[] = {"9007199254740992", "9007199254740993",
		"18446744073709551615", "1e400", "-0", "0", "-0.0", "1E-7", "1.50", "0e0",
		"123456789012345678901234567890.000"};
	char text[100];
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
		(void)snprintf(text, sizeof text, "{\"id\":%s}", numbers[i]);
		expect(text, "/id", JSON_NUMBER, numbers[i]);
		expect(numbers[i], "", JSON_NUMBER, numbers[i]);
	}
}
END_TEST

START_TEST(refuses_what_is_no_number)
{
	expect_bad(bytes_str("01"), "behind the value", 1);
	expect_bad(bytes_str("-"), "digit expected", 1);
	expect_bad(bytes_str("-a"), "digit expected", 1);
	expect_bad(bytes_str("1."), "digit expected", 2);
	expect_bad(bytes_str("1.e5"), "digit expected", 2);
	expect_bad(bytes_str("1e"), "digit expected", 2);
	expect_bad(bytes_str("1e+"), "digit expected", 3);
	expect_bad(bytes_str(".5"), "value expected", 0);
	expect_bad(bytes_str("+1"), "value expected", 0);
	expect_bad(bytes_str("0x10"), "behind the value", 1);
	expect_bad(bytes_str("NaN"), "value expected", 0);
	expect_bad(bytes_str("nan"), "value expected", 0);
	expect_bad(bytes_str("Infinity"), "value expected", 0);
}
END_TEST

START_TEST(refuses_what_is_no_json)
{
	expect_bad(bytes_str(""), "text ends", 0);
	expect_bad(bytes_of(NULL, 0), "text ends", 0);
	expect_bad(bytes_str("  \n"), "text ends", 3);
	expect_bad(bytes_str("tru"), "value expected", 0);
	expect_bad(bytes_str("truex"), "behind the value", 4);
	expect_bad(bytes_str("{\"id\":1} x"), "behind the value", 9);
	expect_bad(bytes_str("{}{}"), "behind the value", 2);
	expect_bad(bytes_str("{\"id\":1"), "object without end", 7);
	expect_bad(bytes_str("{\"id\":"), "text ends", 6);
	expect_bad(bytes_str("{\"id\""), "colon", 5);
	expect_bad(bytes_str("{\"id\" 1}"), "colon", 6);
	expect_bad(bytes_str("{id:1}"), "name expected", 1);
	expect_bad(bytes_str("{1:1}"), "name expected", 1);
	expect_bad(bytes_str("{\"a\":1,}"), "name expected", 7);
	expect_bad(bytes_str("{,}"), "name expected", 1);
	expect_bad(bytes_str("[1,]"), "value expected", 3);
	expect_bad(bytes_str("[,1]"), "value expected", 1);
	expect_bad(bytes_str("[1 2]"), "comma", 3);
	expect_bad(bytes_str("[1}"), "comma", 2);
	expect_bad(bytes_str("{\"a\":1]"), "comma", 6);
	expect_bad(bytes_str("[1"), "array without end", 2);
	expect_bad(bytes_str("]"), "value expected", 0);
	expect_bad(bytes_str("'a'"), "value expected", 0);
	expect_bad(bytes_str("[1] // why"), "behind the value", 4);
	expect_bad(bytes_of("[1\0]", 4), "comma", 2);
	expect_bad(bytes_of("1\0", 2), "behind the value", 1);
	expect_bad(bytes_str("\v1"), "value expected", 0);
}
END_TEST

START_TEST(refuses_bad_strings)
{
	expect_bad(bytes_str("\"abc"), "without end", 4);
	expect_bad(bytes_str("\"abc\\\""), "without end", 6);
	expect_bad(bytes_str("\"a\nb\""), "control character", 2);
	expect_bad(bytes_of("\"a\0b\"", 5), "control character", 2);
	expect_bad(bytes_str("\"\\x41\""), "unknown escape", 1);
	expect_bad(bytes_of("\"\\\0\"", 4), "unknown escape", 1);
	expect_bad(bytes_str("\"\\"), "unknown escape", 1);
	expect_bad(bytes_str("\"\\u12"), "unknown escape", 1);
	expect_bad(bytes_str("\"\\u12g4\""), "unknown escape", 1);
	expect_bad(bytes_str("\"\\U0041\""), "unknown escape", 1);
	expect_bad(bytes_str("\"\\ud800\""), "lone surrogate", 1);
	expect_bad(bytes_str("\"\\udc00\""), "lone surrogate", 1);
	expect_bad(bytes_str("\"\\ud800\\ud800\""), "lone surrogate", 1);
	expect_bad(bytes_str("\"\\ud800\\n\""), "lone surrogate", 1);
	expect_bad(bytes_str("\"\\ud800\\u00"), "lone surrogate", 1);
	expect_bad(bytes_str("\"a\xff\""), "not UTF-8", 2);
	expect_bad(bytes_str("\"\xc0\x80\""), "not UTF-8", 1);
	expect_bad(bytes_str("\"\xed\xa0\x80\""), "not UTF-8", 1);
	expect_bad(bytes_str("\"\xe2\x82"), "not UTF-8", 1);
	expect_bad(bytes_str("{\"\\ud800\":1}"), "lone surrogate", 2);
}
END_TEST

START_TEST(checks_what_stands_behind_the_value_that_was_found)
{
	ck_assert(!find(bytes_str("{\"id\":\"x\",\"z\":\"\\ud800\"}"), "/id"));
	ck_assert(!find(bytes_str("{\"id\":\"x\"}}"), "/id"));
	ck_assert(!find(bytes_str("{\"id\":\"x\""), "/id"));
}
END_TEST

START_TEST(skips_a_byte_order_mark_in_front_only)
{
	expect("\xef\xbb\xbf{\"id\":\"q\"}", "/id", JSON_STRING, "\"q\"");
	expect_bad(bytes_str("\xef\xbb\xbf\xef\xbb\xbf{}"), "value expected", 3);
	expect_bad(bytes_str(" \xef\xbb\xbf{}"), "value expected", 1);
	expect_bad(bytes_str("\xef\xbb\xbf"), "text ends", 3);
	expect_bad(bytes_str("\xff\xfe{\0}"), "value expected", 0);
}
END_TEST

START_TEST(the_last_of_equal_names_counts)
{
	expect("{\"id\":\"x\",\"id\":\"y\"}", "/id", JSON_STRING, "\"y\"");
	expect("{\"a\":{\"b\":1},\"a\":{\"b\":2}}", "/a/b", JSON_NUMBER, "2");
	expect_absent("{\"a\":{\"b\":1},\"a\":{}}", "/a/b");
	expect_absent("{\"a\":{\"b\":1},\"a\":7}", "/a/b");
	expect("{\"a\":[1,2,3],\"a\":null}", "/a", JSON_NULL, "null");
	expect("{\"a\":7,\"a\":[1,[2]],\"b\":0}", "/a", JSON_ARRAY, "[1,[2]]");
	expect("{\"id\":1,\"\\u0069d\":2}", "/id", JSON_NUMBER, "2");
}
END_TEST

START_TEST(does_not_take_a_deeper_name_for_the_one_asked_for)
{
	expect("{\"x\":{\"id\":1},\"id\":2,\"y\":[{\"id\":3}]}", "/id", JSON_NUMBER, "2");
	expect_absent("{\"x\":{\"id\":1}}", "/id");
	expect("[[0,1],[2,[3,4],5],6]", "/1/1/0", JSON_NUMBER, "3");
	expect("[[0,1],[2,[3,4],5],6]", "/1/2", JSON_NUMBER, "5");
	expect("[[0,1],[2,[3,4],5],6]", "/2", JSON_NUMBER, "6");
}
END_TEST

START_TEST(pointers_know_their_two_escapes)
{
	const char *text =
		"{\"a/b\":1,\"m~n\":2,\"\":3,\" \":4,\"~1\":5,\"a\":{\"\":6},\"k\\\"l\":7,"
		"\"\xc3\xa9\":8}";
	expect(text, "/a~1b", JSON_NUMBER, "1");
	expect(text, "/m~0n", JSON_NUMBER, "2");
	expect(text, "/", JSON_NUMBER, "3");
	expect(text, "/ ", JSON_NUMBER, "4");
	expect(text, "/~01", JSON_NUMBER, "5");
	expect(text, "/a/", JSON_NUMBER, "6");
	expect(text, "/k\"l", JSON_NUMBER, "7");
	expect(text, "/\xc3\xa9", JSON_NUMBER, "8");
	expect_absent(text, "/a//");
	expect_absent(text, "/a~1");
	expect_absent(text, "/a~1bc");
}
END_TEST

START_TEST(names_compare_with_their_escapes_resolved)
{
	expect("{\"\\u0061\\/\\u00e9\\ud83d\\ude00\\n\":1}", "/a~1\xc3\xa9\xf0\x9f\x98\x80\n",
		JSON_NUMBER, "1");
	expect_absent("{\"\\u0000\":1}", "/");
	expect_absent("{\"a\\u0000b\":1}", "/a");
	expect_absent("{\"a\\n\":1}", "/a");
	expect_absent("{\"\\u0061\":1}", "/ab");
}
END_TEST

START_TEST(array_indexes_have_no_leading_zeros)
{
	const char *text = "[10,11,12,13,14,15,16,17,18,19,20]";
	expect(text, "/0", JSON_NUMBER, "10");
	expect(text, "/10", JSON_NUMBER, "20");
	expect_absent(text, "/00");
	expect_absent(text, "/01");
	expect_absent(text, "/-");
	expect_absent(text, "/-1");
	expect_absent(text, "/+1");
	expect_absent(text, "/1a");
	expect_absent(text, "/");
	expect_absent(text, "/11");
	expect_absent(text, "/18446744073709551616");
	expect("{\"01\":5,\"-\":6}", "/01", JSON_NUMBER, "5");
	expect("{\"01\":5,\"-\":6}", "/-", JSON_NUMBER, "6");
}
END_TEST

static void nest(struct buf *b, size_t depth, bool is_closed)
{
	buf_clear(b);
	for (size_t i = 0; i < depth; i++)
		buf_add_byte(b, '[');
	for (size_t i = 0; is_closed && i < depth; i++)
		buf_add_byte(b, ']');
}

START_TEST(depth_is_bounded_and_costs_no_stack)
{
	struct buf b = {0};
	nest(&b, JSON_MAX_DEPTH, true);
	ck_assert(find(buf_bytes(&b), ""));
	ck_assert_uint_eq(found.size, b.size);
	nest(&b, JSON_MAX_DEPTH + 1, true);
	expect_bad(buf_bytes(&b), "nested too deep", JSON_MAX_DEPTH);
	nest(&b, 200000, true);
	expect_bad(buf_bytes(&b), "nested too deep", JSON_MAX_DEPTH);
	nest(&b, 200000, false);
	expect_bad(buf_bytes(&b), "nested too deep", JSON_MAX_DEPTH);
	buf_clear(&b);
	for (int i = 0; i < 200000; i++)
		buf_add_str(&b, "{\"a\":");
	expect_bad(buf_bytes(&b), "nested too deep", 5 * JSON_MAX_DEPTH);
	buf_done(&b);
}
END_TEST

START_TEST(a_pointer_may_lead_to_the_greatest_depth)
{
	struct buf b = {0}, pointer = {0};
	for (int i = 0; i < JSON_MAX_DEPTH; i++) {
		buf_add_str(&b, "[");
		buf_add_str(&pointer, "/0");
	}
	buf_add_str(&b, "7");
	for (int i = 0; i < JSON_MAX_DEPTH; i++)
		buf_add_str(&b, "]");
	expect(buf_str(&b), buf_str(&pointer), JSON_NUMBER, "7");
	buf_add_str(&pointer, "/0");
	expect_absent(buf_str(&b), buf_str(&pointer));
	buf_done(&b);
	buf_done(&pointer);
}
END_TEST

START_TEST(strings_say_what_their_escapes_mean)
{
	struct buf out = {0};
	const char *raw = "\"a\\u0000b\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00E9\\u20ac\\uD83D\\uDE00z\"";
	const char plain[] = "a\0b\"\\/\b\f\n\r\t\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z";
	expect(raw, "", JSON_STRING, raw);
	json_unescape(found, &out);
	ck_assert_uint_eq(out.size, sizeof plain - 1);
	ck_assert_mem_eq(out.data, plain, out.size);
	buf_clear(&out);
	json_unescape(bytes_str("\"\""), &out);
	ck_assert_uint_eq(out.size, 0);
	buf_done(&out);
}
END_TEST

START_TEST(what_is_written_reads_back)
{
	struct buf out = {0}, back = {0};
	uint8_t every[128];
	for (int i = 0; i < 128; i++)
		every[i] = (uint8_t)i;
	json_add_string(&out, bytes_of(every, sizeof every));
	ck_assert_msg(find(buf_bytes(&out), ""), "%s", why);
	json_unescape(found, &back);
	ck_assert(bytes_equal(buf_bytes(&back), bytes_of(every, sizeof every)));
	buf_clear(&out);
	json_add_string(&out, bytes_str("\xff\xc3\xa9\xe2\x82"));
	ck_assert_str_eq(buf_str(&out), "\"\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\"");
	buf_clear(&out);
	json_add_string(&out, bytes_of(NULL, 0));
	ck_assert_str_eq(buf_str(&out), "\"\"");
	buf_done(&out);
	buf_done(&back);
}
END_TEST

START_TEST(tells_pointers_from_other_texts)
{
	ck_assert_ptr_null(json_pointer_error(""));
	ck_assert_ptr_null(json_pointer_error("/"));
	ck_assert_ptr_null(json_pointer_error("/a/0/b~1c~0"));
	ck_assert_ptr_nonnull(strstr(json_pointer_error("a"), "begins with a slash"));
	ck_assert_ptr_nonnull(strstr(json_pointer_error("/a~"), "~0"));
	ck_assert_ptr_nonnull(strstr(json_pointer_error("/a~2"), "~1"));
}
END_TEST

UNIT_SUITE("base/json", finds_every_kind, the_whole_text_is_a_value_too,
	numbers_stay_the_literal_token, refuses_what_is_no_number, refuses_what_is_no_json,
	refuses_bad_strings, checks_what_stands_behind_the_value_that_was_found,
	skips_a_byte_order_mark_in_front_only, the_last_of_equal_names_counts,
	does_not_take_a_deeper_name_for_the_one_asked_for, pointers_know_their_two_escapes,
	names_compare_with_their_escapes_resolved, array_indexes_have_no_leading_zeros,
	depth_is_bounded_and_costs_no_stack, a_pointer_may_lead_to_the_greatest_depth,
	strings_say_what_their_escapes_mean, what_is_written_reads_back,
	tells_pointers_from_other_texts)

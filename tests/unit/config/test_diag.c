/* SPDX-License-Identifier: MIT */
#include "config/diag.h"

#include "unit.h"

#include <stdlib.h>

static struct diag_file file_of(const char *name, char *text, uint32_t order)
{
	return (struct diag_file){.name = (char *)(uintptr_t)name,
		.text = text,
		.size = strlen(text),
		.order = order};
}

static void check(struct diags *d, const char *expected)
{
	struct buf out = {0};
	diags_print(d, &out);
	ck_assert_str_eq(buf_str(&out), expected);
	buf_done(&out);
	diags_done(d);
}

START_TEST(sorts_by_file_line_and_column_and_tells_the_same_once)
{
	char text[] = "one\ntwo\n", other[] = "three\n";
	struct diag_file a = file_of("a", text, 0), b = file_of("b", other, 1);
	struct diags d = {0};
	diag_add(&d, (struct place){&b, 1, 1}, "fifth");
	diag_add(&d, (struct place){&a, 2, 3}, "fourth");
	diag_add(&d, (struct place){&a, 2, 1}, "third");
	diag_hint(&d, "a %s", "hint");
	diag_add(&d, (struct place){&a, 2, 3}, "fourth");
	diag_add(&d, (struct place){&a, 1, 4}, "second");
	diag_add(&d, (struct place){&a, 0, 0}, "first, of the whole file");
	check(&d,
		"a: first, of the whole file\n"
		"a:1:4: second\n  one\n     ^\n"
		"a:2:1: third\n  two\n  ^\n  hint: a hint\n"
		"a:2:3: fourth\n  two\n    ^\n"
		"b:1:1: fifth\n  three\n  ^\n");
}
END_TEST

START_TEST(puts_the_caret_below_wide_lines_with_tabs_and_umlauts)
{
	char text[] = "\ta: \xc3\xbc\xe2\x82\xac x";
	struct diag_file a = file_of("a", text, 0);
	struct diags d = {0};
	diag_add(&d, (struct place){&a, 1, 8}, "x");
	check(&d, "a:1:8: x\n  \ta: \xc3\xbc\xe2\x82\xac x\n  \t      ^\n");
}
END_TEST

START_TEST(shows_the_part_of_a_long_line_around_the_caret)
{
	char text[302];
	memset(text, 'a', 150);
	memset(text + 150, 'b', 151);
	text[301] = '\0';
	struct diag_file a = file_of("a", text, 0);
	struct diags d = {0};
	struct buf out = {0};
	diag_add(&d, (struct place){&a, 1, 151}, "x");
	diags_print(&d, &out);
	const char *line = strchr(buf_str(&out), '\n') + 1;
	ck_assert_msg(strncmp(line, "  …aaa", strlen("  …aaa")) == 0, "%s", line);
	const char *caret = strchr(line, '^');
	const char *second = strchr(line, '\n') + 1;
	size_t column = (size_t)(caret - second);
	ck_assert_int_eq(line[column + strlen("…") - 1], 'b'); /* … is one column of three bytes */
	ck_assert_int_eq(line[column + strlen("…") - 2], 'a');
	ck_assert_ptr_nonnull(strstr(line, "b…\n"));
	ck_assert_uint_lt(strlen(line), 260);
	buf_done(&out);
	diags_done(&d);
}
END_TEST

START_TEST(shows_no_secret_and_moves_the_caret_with_the_mask)
{
	char text[] = "{password: ab, heartbeat: 0}";
	struct diag_file a = file_of("a", text, 0);
	struct diags d = {0};
	diag_add(&d, (struct place){&a, 1, 13}, "inside");
	diag_add(&d, (struct place){&a, 1, 27}, "behind");
	check(&d,
		"a:1:13: inside\n  {password: ********, heartbeat: 0}\n             ^\n"
		"a:1:27: behind\n  {password: ********, heartbeat: 0}\n"
		"                                  ^\n");
}
END_TEST

START_TEST(shows_control_characters_and_bad_bytes_as_replacements)
{
	char text[] = "a\x1b[31m\xff\x80z";
	struct diag_file a = file_of("a", text, 0);
	struct diags d = {0};
	diag_add(&d, (struct place){&a, 1, 9}, "x");
	check(&d, "a:1:9: x\n  a\xef\xbf\xbd[31m\xef\xbf\xbd\xef\xbf\xbdz\n          ^\n");
}
END_TEST

START_TEST(shows_fifty_and_counts_the_rest)
{
	char text[] = "x\n";
	struct diag_file a = file_of("a", text, 0);
	struct diags d = {0};
	struct buf out = {0};
	for (uint32_t i = 0; i < 2000; i++) {
		diag_add(&d, (struct place){&a, 1, i + 1}, "error %u", i);
		diag_hint(&d, "hint %u", i);
	}
	diags_print(&d, &out);
	size_t shown = 0;
	for (const char *p = buf_str(&out); (p = strstr(p, "hint: ")) != NULL; p++)
		shown++;
	ck_assert_uint_eq(shown, DIAG_SHOWN_MAX);
	ck_assert_ptr_nonnull(strstr(buf_str(&out), "hint 49\n… and 1950 more\n"));
	ck_assert_ptr_null(strstr(buf_str(&out), "hint 50\n"));
	buf_done(&out);
	diags_done(&d);
}
END_TEST

START_TEST(quotes_what_was_written_in_one_short_line)
{
	struct buf out = {0};
	diag_quote(&out, "a\nb\x1b\xff");
	ck_assert_str_eq(buf_str(&out), "a\\nb\\x1b\\xff");
	buf_clear(&out);
	char text[100];
	memset(text, 'x', sizeof text - 1);
	text[99] = '\0';
	diag_quote(&out, text);
	ck_assert_uint_eq(out.size, 48 + strlen("…"));
	buf_done(&out);
}
END_TEST

UNIT_SUITE("config/diag", sorts_by_file_line_and_column_and_tells_the_same_once,
	puts_the_caret_below_wide_lines_with_tabs_and_umlauts,
	shows_the_part_of_a_long_line_around_the_caret,
	shows_no_secret_and_moves_the_caret_with_the_mask,
	shows_control_characters_and_bad_bytes_as_replacements, shows_fifty_and_counts_the_rest,
	quotes_what_was_written_in_one_short_line)

/* SPDX-License-Identifier: MIT */
#include "config/yaml.h"

#include "unit.h"

#include <stdlib.h>

struct reading_of {
	struct yaml_pool pool;
	struct diags diags;
	struct yaml_node *root;
	struct buf errors;
};

static void read_text(struct reading_of *r, struct bytes text)
{
	*r = (struct reading_of){0};
	const struct diag_file *file = yaml_add_file(&r->pool, "f", "/", text);
	r->root = yaml_parse(&r->pool, file, &r->diags);
	diags_print(&r->diags, &r->errors);
}

static void done(struct reading_of *r)
{
	yaml_pool_done(&r->pool);
	diags_done(&r->diags);
	buf_done(&r->errors);
}

static void expect_bytes(const char *text, size_t size, const char *errors)
{
	struct reading_of r;
	read_text(&r, bytes_of(text, size));
	ck_assert_str_eq(buf_str(&r.errors), errors);
	done(&r);
}

static void expect(const char *text, const char *errors)
{
	expect_bytes(text, strlen(text), errors);
}

START_TEST(keeps_the_place_of_each_value)
{
	struct reading_of r;
	read_text(&r, bytes_str("# c\na:\n  b: [x, \xc3\xbc, z]\n"));
	ck_assert_str_eq(buf_str(&r.errors), "");
	const struct yaml_node *list = yaml_find(yaml_find(r.root, "a"), "b");
	ck_assert_int_eq(list->kind, NODE_LIST);
	ck_assert_uint_eq(list->place.line, 3);
	ck_assert_uint_eq(list->place.column, 6);
	ck_assert_uint_eq(list->n, 3);
	ck_assert_uint_eq(list->items[2]->place.column, 13); /* in characters, not bytes */
	ck_assert_str_eq(list->items[2]->text, "z");
	done(&r);
}
END_TEST

START_TEST(leaves_texts_as_they_are_written)
{
	static const char *const texts[] = {"0123", "1e3", "no", "Yes", "0x10", "1_000", "1.0",
		"true", "2024-01-01", ".inf", "<<", "-1"};
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		struct reading_of r;
		char *text = xasprintf("a: %s\n", texts[i]);
		read_text(&r, bytes_str(text));
		const struct yaml_node *node = yaml_find(r.root, "a");
		ck_assert_int_eq(node->kind, NODE_SCALAR);
		ck_assert_str_eq(node->text, texts[i]);
		free(text);
		done(&r);
	}
}
END_TEST

START_TEST(tells_null_from_a_quoted_text)
{
	static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
	static const char *const texts[] = {"\"\"", "'~'", "\"null\"", "nULL", "none", "nil"};
	struct reading_of r;
	for (size_t i = 0; i < sizeof nulls / sizeof nulls[0]; i++) {
		char *text = xasprintf("a: %s\n", nulls[i]);
		read_text(&r, bytes_str(text));
		ck_assert_int_eq(yaml_find(r.root, "a")->kind, NODE_NULL);
		done(&r);
		free(text);
		text = xasprintf("a: %s\n", texts[i]);
		read_text(&r, bytes_str(text));
		ck_assert_int_eq(yaml_find(r.root, "a")->kind, NODE_SCALAR);
		done(&r);
		free(text);
	}
}
END_TEST

START_TEST(takes_an_empty_file_for_an_empty_map)
{
	static const char *const texts[] = {"", "\n\n", "# nothing\n", "---\n",
		"--- # nothing\n...\n", "\xef\xbb\xbf", "%YAML 1.1\n---\n"};
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		struct reading_of r;
		read_text(&r, bytes_str(texts[i]));
		ck_assert_str_eq(buf_str(&r.errors), "");
		ck_assert_int_eq(r.root->kind, NODE_MAP);
		ck_assert_uint_eq(r.root->n, 0);
		done(&r);
	}
}
END_TEST

START_TEST(skips_a_byte_order_mark_without_moving_columns)
{
	expect("\xef\xbb\xbfi: 1\ni: 2\n",
		"f:2:1: \"i\" is set twice\n  i: 2\n  ^\n"
		"  hint: it was set in line 1 already; remove one of the two\n");
	expect("\xef\xbb\xbf? \n: 1\n",
		"f:1:2: a key is missing in front of the colon\n  ? \n   ^\n"
		"  hint: write \"name: value\"\n");
}
END_TEST

START_TEST(refuses_keys_that_are_no_text)
{
	expect("[a, b]: 1\n",
		"f:1:1: a key must be a text, not a list\n  [a, b]: 1\n  ^\n"
		"  hint: write \"name: value\"\n");
	expect("? {a: b}\n: 1\n",
		"f:1:3: a key must be a text, not a map\n  ? {a: b}\n    ^\n"
		"  hint: write \"name: value\"\n");
}
END_TEST

START_TEST(finds_the_second_of_many_equal_names)
{
	expect("b: 1\na: {x: 1, y: 2, x: 3}\nb: {}\nc: 1\nb: 2\n",
		"f:2:17: \"x\" is set twice\n  a: {x: 1, y: 2, x: 3}\n                  ^\n"
		"  hint: it was set in line 2 already; remove one of the two\n"
		"f:3:1: \"b\" is set twice\n  b: {}\n  ^\n"
		"  hint: it was set in line 1 already; remove one of the two\n"
		"f:5:1: \"b\" is set twice\n  b: 2\n  ^\n"
		"  hint: it was set in line 3 already; remove one of the two\n");
}
END_TEST

START_TEST(refuses_nesting_beyond_its_limit_and_takes_it_up_to_there)
{
	struct buf text = {0};
	struct reading_of r;
	buf_add_str(&text, "a: ");
	for (int i = 1; i < YAML_DEPTH_MAX; i++)
		buf_add_byte(&text, '[');
	for (int i = 1; i < YAML_DEPTH_MAX; i++)
		buf_add_byte(&text, ']');
	read_text(&r, buf_bytes(&text));
	ck_assert_ptr_nonnull(r.root);
	ck_assert_str_eq(buf_str(&r.errors), "");
	done(&r);
	buf_clear(&text);
	buf_add_str(&text, "a: ");
	for (int i = 0; i < 200000; i++)
		buf_add_byte(&text, '[');
	read_text(&r, buf_bytes(&text));
	ck_assert_ptr_null(r.root);
	ck_assert_ptr_nonnull(strstr(
		buf_str(&r.errors), "f:1:35: lists and maps are nested more than 32 deep\n"));
	done(&r);
	buf_done(&text);
}
END_TEST

START_TEST(names_what_is_wrong_with_the_bytes_of_a_file)
{
	expect("a: 1\r\n",
		"f:1:5: the line ends in CR LF, as on Windows\n  a: 1\xef\xbf\xbd\n      ^\n"
		"  hint: save the file with line feeds alone; dos2unix does it\n");
	expect("a: \r1\n",
		"f:1:4: a carriage return stands inside the line\n  a: \xef\xbf\xbd"
		"1\n     ^\n  hint: write \"\\r\" inside double quotes if it is meant\n");
	expect("a: \x1b\n",
		"f:1:4: a control character (0x1B)\n  a: \xef\xbf\xbd\n     ^\n"
		"  hint: write \"\\x…\" inside double quotes if it is meant\n");
	expect("\xc3\xbc: \xe9t\xe9\n",
		"f:1:4: a byte that is not UTF-8 (0xE9)\n  \xc3\xbc: \xef\xbf\xbdt\xef\xbf\xbd\n   "
		"  ^\n"
		"  hint: save the file as UTF-8; in vim: \":set fileencoding=utf-8\"\n");
	expect("a: \xe2\x80\xa8z\n",
		"f:1:4: an invisible character that ends the line (0x2028)\n  a: \xe2\x80\xa8z\n   "
		"  ^\n"
		"  hint: remove it, or write \"\\u…\" inside double quotes if it is meant\n");
	expect_bytes("\0E\0L\0F", 6,
		"f:1:1: a NUL byte: this is not a text file\n"
		"  \xef\xbf\xbd"
		"E\xef\xbf\xbdL\xef\xbf\xbd"
		"F\n  ^\n"
		"  hint: is it the right file, and saved as UTF-8 (not UTF-16)?\n");
	expect_bytes("\x7f"
		     "ELF\x02\x01",
		6,
		"f:1:1: a control character (0x7F)\n  \xef\xbf\xbd"
		"ELF\xef\xbf\xbd\xef\xbf\xbd\n  ^\n"
		"  hint: write \"\\x…\" inside double quotes if it is meant\n");
	expect_bytes("\xff\xfe"
		     "a\0",
		4,
		"f:1:1: a byte that is not UTF-8 (0xFF)\n  \xef\xbf\xbd\xef\xbf\xbd"
		"a\xef\xbf\xbd\n  ^\n"
		"  hint: save the file as UTF-8; in vim: \":set fileencoding=utf-8\"\n");
}
END_TEST

START_TEST(refuses_a_nul_that_is_written_as_an_escape)
{
	expect("a: \"x\\0y\"\n",
		"f:1:4: a NUL character cannot stand in a text\n  a: \"x\\0y\"\n     ^\n"
		"  hint: remove the \"\\0\"\n");
}
END_TEST

START_TEST(says_in_plain_words_what_the_syntax_lacks)
{
	static const struct {
		const char *text;
		uint32_t line, column;
		const char *what;
	} samples[] = {
		{"a: 'x\nb: 1\n", 1, 4, "this quote is never closed"},
		{"a: \"x\n---\n", 1, 4, "this quote is never closed"},
		{"a: [x, y\nb: 1\n", 1, 4, "this list is not closed, or lacks a comma"},
		{"a: {x: 1, y\nb: 1\n", 1, 4, "this map is not closed, or lacks a comma"},
		{"a: [\n", 2, 1, "a value is missing here, or a bracket is not closed"},
		{"a: {: 1}\n", 1, 5, "a value is missing here, or a bracket is not closed"},
		{"a: b: c\n", 1, 5, "a colon is not expected here"},
		{"a: 1\n b: 2\n", 2, 3, "a colon is not expected here"},
		{"a:\n  b: 1\n c: 2\n", 3, 2, "no option can begin here"},
		{"a: \"x\" y\n", 1, 8, "no option can begin here"},
		{"a:\n- b\n c: 1\n", 3, 3, "a colon is not expected here"},
		{"a: - b\n", 1, 4, "a list cannot begin here"},
		{"a: \"\\q\"\n", 1, 5, "no such escape inside double quotes"},
		{"a: @x\n", 1, 4, "a value cannot begin with this character"},
		{"a: `x\n", 1, 4, "a value cannot begin with this character"},
		{"a: %x\n", 1, 4, "a value cannot begin with this character"},
		{"a: *\n", 1, 5, "a text cannot begin with \"*\" or \"&\""},
		{"a: !x!y z\n", 1, 4, "tags are not read"},
		{"a: 1\nb\nc: 2\n", 3, 1, "there is no colon behind the name before here"},
		{"a:\n\tb: 1\n", 2, 1, "a tab cannot indent"},
		{"%YAML 3.0\n---\na: 1\n", 1, 1, "this version of YAML is not known"},
		{"text\n", 1, 1, "the file must be a map of options, \"name: value\""},
		{"a:b\n", 1, 1, "the file must be a map of options, \"name: value\""},
		{"~\n", 1, 1, "the file must be a map of options, \"name: value\""},
	};
	for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
		struct reading_of r;
		read_text(&r, bytes_str(samples[i].text));
		char *first = xasprintf(
			"f:%u:%u: %s\n", samples[i].line, samples[i].column, samples[i].what);
		ck_assert_ptr_null(r.root);
		ck_assert_msg(strncmp(buf_str(&r.errors), first, strlen(first)) == 0,
			"%s should begin with %s", buf_str(&r.errors), first);
		ck_assert_msg(
			strstr(buf_str(&r.errors), "\n  hint: ") != NULL, "%s", samples[i].text);
		free(first);
		done(&r);
	}
}
END_TEST

START_TEST(never_crashes_on_a_file_cut_or_damaged_anywhere)
{
	static const char whole[] = "a: {b: [x, 'y', \"z\\n\"], c: |\n  text\n}\n"
				    "d:\n  - e: ~\n  - !t f\n  - &x g\n  - *x\n--- \nh: i\n";
	static const char bytes[] = "\0\t\r\n\"'[]{}:,-#&*!|>%@`\xff\xc3";
	for (size_t at = 0; at < sizeof whole - 1; at++) {
		struct reading_of r;
		read_text(&r, bytes_of(whole, at));
		done(&r);
		for (size_t i = 0; i < sizeof bytes - 1; i++) {
			char *text = xstrdup(whole);
			text[at] = bytes[i];
			read_text(&r, bytes_of(text, sizeof whole - 1));
			ck_assert(r.root != NULL || r.errors.size > 0);
			done(&r);
			free(text);
		}
	}
}
END_TEST

START_TEST(finds_the_place_inside_a_scalar_where_the_file_has_it_letter_by_letter)
{
	struct reading_of r;
	read_text(&r, bytes_str("a: x\xc3\xbcyz\nb: 'abc'\nc: \"\\x41z\"\nd: ab\n  cd\n"));
	struct place p = yaml_place_in(yaml_find(r.root, "a"), 4);
	ck_assert_uint_eq(p.column, 7);
	p = yaml_place_in(yaml_find(r.root, "b"), 2);
	ck_assert_uint_eq(p.column, 7);
	p = yaml_place_in(yaml_find(r.root, "c"), 1); /* escaped: where it begins */
	ck_assert_uint_eq(p.column, 4);
	p = yaml_place_in(yaml_find(r.root, "d"), 4); /* on the next line: likewise */
	ck_assert_uint_eq(p.column, 4);
	ck_assert_uint_eq(p.line, 4);
	done(&r);
}
END_TEST

UNIT_SUITE("config/yaml", keeps_the_place_of_each_value, leaves_texts_as_they_are_written,
	tells_null_from_a_quoted_text, takes_an_empty_file_for_an_empty_map,
	skips_a_byte_order_mark_without_moving_columns, refuses_keys_that_are_no_text,
	finds_the_second_of_many_equal_names,
	refuses_nesting_beyond_its_limit_and_takes_it_up_to_there,
	names_what_is_wrong_with_the_bytes_of_a_file, refuses_a_nul_that_is_written_as_an_escape,
	says_in_plain_words_what_the_syntax_lacks, never_crashes_on_a_file_cut_or_damaged_anywhere,
	finds_the_place_inside_a_scalar_where_the_file_has_it_letter_by_letter)

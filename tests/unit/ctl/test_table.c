/* SPDX-License-Identifier: MIT */
#include "ctl/table.h"

#include "base/fd.h"
#include "unit.h"

static const struct table_column columns[] = {{"id", true}, {"name", false}, {"detail", false}};

static void fill(struct table *t)
{
	table_init(t, columns, 3);
	table_add_number(t, 7);
	table_add(t, bytes_str("Zo\xc3\xab"));
	table_add(t, bytes_of(NULL, 0));
	table_add_number(t, 1234);
	table_add(t, bytes_str("a\033[31m\n"));
	table_add(t, bytes_str("x\"y"));
}

START_TEST(aligns_columns_and_disarms_control_characters)
{
	AUTO(table) struct table t;
	AUTO(buf) struct buf out = {0};
	fill(&t);
	table_print(&t, &out);
	ck_assert_str_eq(buf_str(&out),
		"  ID  NAME           DETAIL\n"
		"   7  Zo\xc3\xab            -\n"
		"1234  a\\x1b[31m\\x0a  x\"y\n");
}
END_TEST

START_TEST(prints_json_with_nulls_and_numbers)
{
	AUTO(table) struct table t;
	AUTO(buf) struct buf out = {0};
	fill(&t);
	table_print_json(&t, &out);
	ck_assert_str_eq(buf_str(&out),
		"[\n{\"id\": 7, \"name\": \"Zo\xc3\xab\", \"detail\": null},\n"
		"{\"id\": 1234, \"name\": \"a\\u001b[31m\\n\", \"detail\": \"x\\\"y\"}\n]\n");
}
END_TEST

START_TEST(prints_nothing_but_its_head_when_empty)
{
	AUTO(table) struct table t;
	AUTO(buf) struct buf out = {0};
	table_init(&t, columns, 3);
	table_print(&t, &out);
	ck_assert_str_eq(buf_str(&out), "ID  NAME  DETAIL\n");
	buf_clear(&out);
	table_print_json(&t, &out);
	ck_assert_str_eq(buf_str(&out), "[]\n");
}
END_TEST

UNIT_SUITE("ctl/table", aligns_columns_and_disarms_control_characters,
	prints_json_with_nulls_and_numbers, prints_nothing_but_its_head_when_empty)

/* SPDX-License-Identifier: MIT */
#include "ctl/amqp_value.h"

#include "base/fd.h"
#include "unit.h"

static enum rc from_text(const char *type, const char *text, struct buf *out)
{
	struct err err;
	buf_clear(out);
	return amqp_add_text(out, bytes_str(type), bytes_str(text), &err);
}

static enum rc from_json(const char *text, struct buf *out, struct err *err)
{
	enum json_kind kind;
	struct bytes raw;
	const char *why = "";
	size_t at;
	buf_clear(out);
	ck_assert_msg(json_find(bytes_str(text), "", &kind, &raw, &why, &at), "%s: %s", text, why);
	return amqp_add_json(out, kind, raw, err);
}

/* JSON of the one value in wire form. */
static void to_json(struct bytes wire, struct buf *out)
{
	struct reader r = reader_of(wire);
	struct amqp_entry e;
	buf_clear(out);
	ck_assert(amqp_next(&r, true, &e));
	ck_assert_uint_eq(reader_left(&r), 0);
	amqp_add_as_json(out, &e);
}

START_TEST(writes_each_type_as_the_wire_has_it)
{
	static const struct {
		const char *type, *text, *wire;
		size_t size;
	} rows[] = {
		{"string", "ab", "S\0\0\0\2ab", 7},
		{"bytes", "ab", "x\0\0\0\2ab", 7},
		{"base64", "AP8=", "x\0\0\0\2\0\377", 7},
		{"bool", "true", "t\1", 2},
		{"bool", "false", "t\0", 2},
		{"int8", "-128", "b\200", 2},
		{"uint8", "255", "B\377", 2},
		{"int16", "-2", "s\377\376", 3},
		{"uint16", "65535", "u\377\377", 3},
		{"int32", "-1", "I\377\377\377\377", 5},
		{"uint32", "4294967295", "i\377\377\377\377", 5},
		{"int", "5", "l\0\0\0\0\0\0\0\5", 9},
		{"int64", "-9223372036854775808", "l\200\0\0\0\0\0\0\0", 9},
		{"timestamp", "1", "T\0\0\0\0\0\0\0\1", 9},
		{"float", "1.5", "f\77\300\0\0", 5},
		{"double", "1.5", "d\77\370\0\0\0\0\0\0", 9},
		{"decimal", "-12.34", "D\2\377\377\373\56", 6},
		{"void", "", "V", 1},
		{"json", "[true]", "A\0\0\0\2t\1", 7},
		{"json", "{\"a\": null}", "F\0\0\0\3\1aV", 8},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		AUTO(buf) struct buf out = {0};
		ck_assert_int_eq(from_text(rows[i].type, rows[i].text, &out), RC_OK);
		ck_assert_msg(bytes_equal(buf_bytes(&out), bytes_of(rows[i].wire, rows[i].size)),
			"%s %s", rows[i].type, rows[i].text);
	}
}
END_TEST

START_TEST(refuses_values_that_do_not_fit_their_type)
{
	static const char *const rows[][2] = {{"int8", "128"}, {"uint8", "-1"}, {"uint8", "256"},
		{"int16", "32768"}, {"int32", "2147483648"}, {"int", "9223372036854775808"},
		{"int", ""}, {"int", " 1"}, {"int", "1x"}, {"bool", "yes"}, {"float", "x"},
		{"double", ""}, {"decimal", "1.2.3"}, {"decimal", "99999999999"}, {"decimal", ""},
		{"timestamp", "now"}, {"void", "x"}, {"base64", "?"}, {"json", "{"},
		{"nonsense", "1"}};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		AUTO(buf) struct buf out = {0};
		ck_assert_msg(from_text(rows[i][0], rows[i][1], &out) == RC_REJECT, "took %s %s",
			rows[i][0], rows[i][1]);
	}
}
END_TEST

START_TEST(reads_back_what_it_shows)
{
	static const char *const texts[] = {"\"a\"", "\"\"", "true", "false", "5",
		"-9223372036854775808", "1.5", "1.0", "1e+300", "null", "[]", "{}",
		"[1, \"x\", null, [true]]", "{\"a\": {\"b\": [1]}, \"c\": \"\"}",
		"{\"$type\": \"int8\", \"$value\": -5}",
		"{\"$type\": \"uint64\", \"$value\": 18446744073709551615}",
		"{\"$type\": \"timestamp\", \"$value\": 1700000000}",
		"{\"$type\": \"decimal\", \"$value\": -12.34}",
		"{\"$type\": \"float\", \"$value\": 1.5}",
		"{\"$type\": \"double\", \"$value\": \"nan\"}",
		"{\"$type\": \"base64\", \"$value\": \"AP8=\"}",
		"{\"$type\": \"string-base64\", \"$value\": \"/w==\"}",
		"{\"$type\": \"table\", \"$value\": {\"$type\": \"x\", \"$value\": 1}}",
		"{\"$type\": \"table-base64\", \"$value\": \"/w==\"}"};
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		AUTO(buf) struct buf wire = {0}, text = {0};
		struct err err = {0};
		ck_assert_msg(
			from_json(texts[i], &wire, &err) == RC_OK, "%s: %s", texts[i], err.text);
		to_json(buf_bytes(&wire), &text);
		ck_assert_str_eq(buf_str(&text), texts[i]);
	}
}
END_TEST

START_TEST(names_what_is_wrong_in_a_typed_value)
{
	static const char *const rows[][2] = {{"{\"$type\": \"int9\"}", "\"int9\" is no type"},
		{"{\"a\": {\"$type\": \"int8\", \"$value\": 300}}", "a: \"300\" is no int8"},
		{"{\"$type\": \"int8\", \"$value\": []}", "a string or a number"},
		{"{\"$type\": \"table\", \"$value\": 1}", "does not go with"},
		{"9223372036854775808", "is no int64"}};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		AUTO(buf) struct buf out = {0};
		struct err err;
		ck_assert_int_eq(from_json(rows[i][0], &out, &err), RC_REJECT);
		ck_assert_msg(strstr(err.text, rows[i][1]) != NULL, "%s", err.text);
	}
}
END_TEST

/* Tables within tables, each the only entry of the one around it. */
static void nest(struct buf *out, unsigned depth)
{
	uint32_t size = 0;
	for (unsigned i = 1; i < depth; i++)
		size += 7;
	for (unsigned i = 0; i < depth; i++) {
		if (i != 0)
			buf_add(out, "\1a", 2);
		buf_add_byte(out, 'F');
		buf_add_u32(out, size);
		size -= 7;
	}
}

START_TEST(shows_tables_that_are_nested_beyond_all_measure)
{
	AUTO(buf) struct buf wire = {0}, text = {0}, back = {0};
	struct err err;
	nest(&wire, 17000);
	to_json(buf_bytes(&wire), &text);
	ck_assert_ptr_nonnull(strstr(buf_str(&text), "table-base64"));
	ck_assert_int_eq(from_json(buf_str(&text), &back, &err), RC_OK);
	ck_assert(bytes_equal(buf_bytes(&wire), buf_bytes(&back)));
}
END_TEST

START_TEST(refuses_names_beyond_255_bytes)
{
	char name[257];
	AUTO(buf) struct buf out = {0};
	struct err err;
	memset(name, 'n', sizeof name);
	ck_assert_int_eq(amqp_add_name(&out, bytes_of(name, 255), &err), RC_OK);
	ck_assert_int_eq(amqp_add_name(&out, bytes_of(name, 256), &err), RC_REJECT);
}
END_TEST

UNIT_SUITE("ctl/amqp_value", writes_each_type_as_the_wire_has_it,
	refuses_values_that_do_not_fit_their_type, reads_back_what_it_shows,
	names_what_is_wrong_in_a_typed_value, shows_tables_that_are_nested_beyond_all_measure,
	refuses_names_beyond_255_bytes)

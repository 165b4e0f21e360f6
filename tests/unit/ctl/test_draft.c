/* SPDX-License-Identifier: MIT */
#include "ctl/draft.h"

#include "base/fd.h"
#include "unit.h"

#define DRAFT __attribute__((cleanup(auto_draft))) struct draft

START_TEST(takes_properties_by_name)
{
	DRAFT d = {0};
	struct err err;
	ck_assert_int_eq(draft_property(&d, "message_id=a=b", &err), RC_OK);
	ck_assert_int_eq(draft_property(&d, "content-type=text/plain", &err), RC_OK);
	ck_assert_int_eq(draft_property(&d, "priority=9", &err), RC_OK);
	ck_assert_int_eq(draft_property(&d, "timestamp=1700000000", &err), RC_OK);
	ck_assert_int_eq(draft_property(&d, "type=", &err), RC_OK);
	struct message m = draft_message(&d);
	struct props p;
	ck_assert(props_decode(m.properties, &p));
	ck_assert(bytes_equal(p.text[PROP_MESSAGE_ID], bytes_str("a=b")));
	ck_assert(bytes_equal(p.text[PROP_CONTENT_TYPE], bytes_str("text/plain")));
	ck_assert_uint_eq(p.number[PROP_PRIORITY], 9);
	ck_assert_uint_eq(p.number[PROP_TIMESTAMP], 1700000000);
	ck_assert_ptr_nonnull(p.text[PROP_TYPE].data);
	ck_assert_uint_eq(p.text[PROP_TYPE].size, 0);
	ck_assert_ptr_null(p.text[PROP_APP_ID].data);
	ck_assert_uint_eq(p.present & (1u << PROP_HEADERS), 0);
}
END_TEST

START_TEST(refuses_properties_that_amqp_cannot_carry)
{
	static const char *const rows[][2] = {{"mesage_id=1", "did you mean \"message_id\"?"},
		{"priority=256", "0 to 255"}, {"priority=", "no number"},
		{"timestamp=-1", "no number"}, {"headers=1", "no property \"headers\""},
		{"type", "is not NAME=VALUE"}};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		DRAFT d = {0};
		struct err err;
		ck_assert_int_eq(draft_property(&d, rows[i][0], &err), RC_REJECT);
		ck_assert_msg(strstr(err.text, rows[i][1]) != NULL, "%s", err.text);
	}
	DRAFT d = {0};
	struct err err;
	char text[300] = "type=";
	memset(text + 5, 'x', 256);
	ck_assert_int_eq(draft_property(&d, text, &err), RC_REJECT);
}
END_TEST

static void expect_header(
	const char *assignment, const char *name, enum field_kind kind, const char *text)
{
	DRAFT d = {0};
	struct err err;
	struct props p;
	struct field f;
	AUTO(buf) struct buf value = {0};
	ck_assert_msg(draft_header(&d, assignment, &err) == RC_OK, "%s", err.text);
	struct message m = draft_message(&d);
	ck_assert(props_decode(m.properties, &p));
	ck_assert(props_header(&p, bytes_str(name), &f));
	ck_assert_int_eq(f.kind, kind);
	if (text != NULL) {
		ck_assert(field_text(&f, &value));
		ck_assert_str_eq(buf_str(&value), text);
	}
}

START_TEST(takes_headers_with_types_and_names_with_colons)
{
	expect_header("a=b", "a", FIELD_STRING, "b");
	expect_header("a=", "a", FIELD_STRING, "");
	expect_header("a=b=c", "a", FIELD_STRING, "b=c");
	expect_header("n:int=-5", "n", FIELD_INTEGER, "-5");
	expect_header("n:bool=true", "n", FIELD_BOOL, "true");
	expect_header("n:void", "n", FIELD_VOID, NULL);
	expect_header("n:void=", "n", FIELD_VOID, NULL);
	expect_header("n:json={\"x\":1}", "n", FIELD_TABLE, NULL);
	expect_header("cloudEvents:id=7", "cloudEvents:id", FIELD_STRING, "7");
	expect_header("cloudEvents:id:int=7", "cloudEvents:id", FIELD_INTEGER, "7");
	expect_header("odd:int:string=7", "odd:int", FIELD_STRING, "7");
}
END_TEST

START_TEST(refuses_headers_without_name_or_value)
{
	static const char *const texts[] = {"a", "=b", ":int=1", "a:int", "a:int=x"};
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		DRAFT d = {0};
		struct err err;
		ck_assert_int_eq(draft_header(&d, texts[i], &err), RC_REJECT);
	}
}
END_TEST

START_TEST(reads_a_file)
{
	DRAFT d = {0};
	struct err err = {0};
	ck_assert_msg(
		draft_json(&d,
			bytes_str("{\"exchange\": \"e\", \"routing_key\": \"a.b\", "
				  "\"redelivered\": true,"
				  " \"properties\": {\"message_id\": \"\\u00e4\", \"priority\": 3},"
				  " \"headers\": {\"n\": 5, \"s\": \"t\"}, \"body\": \"x\\n\"}"),
			&err) == RC_OK,
		"%s", err.text);
	struct message m = draft_message(&d);
	struct props p;
	struct field f;
	ck_assert(bytes_equal(m.exchange, bytes_str("e")));
	ck_assert(bytes_equal(m.routing_key, bytes_str("a.b")));
	ck_assert(m.redelivered);
	ck_assert(bytes_equal(m.body, bytes_str("x\n")));
	ck_assert_uint_eq(m.body_size, 2);
	ck_assert(props_decode(m.properties, &p));
	ck_assert(bytes_equal(p.text[PROP_MESSAGE_ID], bytes_str("\xc3\xa4")));
	ck_assert_uint_eq(p.number[PROP_PRIORITY], 3);
	ck_assert(props_header(&p, bytes_str("n"), &f));
	ck_assert_int_eq(f.integer, 5);
}
END_TEST

START_TEST(takes_bodies_in_three_forms)
{
	static const struct {
		const char *text, *body;
		size_t size;
	} rows[] = {{"{\"body_base64\": \"AAE=\"}", "\0\1", 2}, {"{\"body\": \"\"}", "", 0},
		{"{\"body\": {\"id\":  1}}", "{\"id\":  1}", 10}, {"{}", "", 0}};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		DRAFT d = {0};
		struct err err;
		ck_assert_int_eq(draft_json(&d, bytes_str(rows[i].text), &err), RC_OK);
		ck_assert(
			bytes_equal(draft_message(&d).body, bytes_of(rows[i].body, rows[i].size)));
	}
}
END_TEST

START_TEST(says_where_a_file_is_wrong)
{
	static const char *const rows[][2] = {{"{", "not JSON at byte"}, {"[]", "no JSON object"},
		{"{\"boddy\": \"\"}", "did you mean \"body\"?"}, {"{\"body\": 5}", "\"body\": "},
		{"{\"body\": \"\", \"body_base64\": \"\"}", "another body"},
		{"{\"body_base64\": \"?\"}", "not base64"},
		{"{\"redelivered\": 1}", "neither true nor"},
		{"{\"headers\": []}", "\"headers\": is no object"},
		{"{\"headers\": {\"$type\": \"int8\", \"$value\": 1}}", "no table"},
		{"{\"headers\": {\"a\": {\"$type\": \"int8\", \"$value\": \"x\"}}}",
			"\"headers\": a: "},
		{"{\"properties\": {\"type\": 5}}", "type must be a string"},
		{"{\"properties\": {\"priority\": true}}", "must be a number"},
		{"{\"exchange\": null}", "\"exchange\": is no string"}};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		DRAFT d = {0};
		struct err err;
		ck_assert_int_eq(draft_json(&d, bytes_str(rows[i][0]), &err), RC_REJECT);
		ck_assert_msg(strstr(err.text, rows[i][1]) != NULL, "%s: %s", rows[i][0], err.text);
	}
}
END_TEST

/* Printed and read again, a message is the same. */
static void expect_same_again(const struct message *m, const char *around)
{
	AUTO(buf) struct buf text = {0};
	DRAFT back = {0};
	struct err err = {0};
	buf_addf(&text, "%s", around);
	draft_print(&text, m, "  ");
	buf_add_str(&text, around[0] != '\0' ? "}" : "");
	ck_assert_msg(draft_json(&back, buf_bytes(&text), &err) == RC_OK, "%s in %s", err.text,
		buf_str(&text));
	struct message b = draft_message(&back);
	ck_assert(bytes_equal(b.exchange, m->exchange));
	ck_assert(bytes_equal(b.routing_key, m->routing_key));
	ck_assert_msg(bytes_equal(b.properties, m->properties), "%s", buf_str(&text));
	ck_assert(bytes_equal(b.body, m->body));
	ck_assert_int_eq(b.redelivered, m->redelivered);
}

START_TEST(prints_what_it_reads)
{
	static const char *const headers[] = {"s=text", "b:bytes=raw",
		"x:base64=AP8=", "t:bool=true", "i8:int8=-1", "u8:uint8=1", "i16:int16=-1",
		"u16:uint16=1", "i32:int32=-1", "u32:uint32=1", "i64:int=-1", "f:float=0.1",
		"d:double=0.1", "d1:double=1", "dec:decimal=1.20", "ts:timestamp=1", "v:void",
		"j:json={\"a\":[1,{\"b\":null}]}"};
	DRAFT d = {0};
	struct err err;
	for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
		ck_assert_msg(draft_header(&d, headers[i], &err) == RC_OK, "%s", err.text);
	for (int p = 0; p < PROP_COUNT; p++)
		if (p != PROP_HEADERS)
			ck_assert_int_eq(draft_set(&d, (enum prop)p, bytes_str("7"), &err), RC_OK);
	buf_add_str(&d.exchange, "e");
	buf_add_str(&d.routing_key, "r");
	buf_add(&d.body, "\0\377\"", 3);
	d.redelivered = true;
	struct message m = draft_message(&d);
	expect_same_again(&m, "");
	expect_same_again(&m, "{\"id\": 1, \"message\": ");
	buf_clear(&d.body);
	buf_add_str(&d.body, "plain \"text\"\n");
	m = draft_message(&d);
	expect_same_again(&m, "");
}
END_TEST

UNIT_SUITE("ctl/draft", takes_properties_by_name, refuses_properties_that_amqp_cannot_carry,
	takes_headers_with_types_and_names_with_colons, refuses_headers_without_name_or_value,
	reads_a_file, takes_bodies_in_three_forms, says_where_a_file_is_wrong, prints_what_it_reads)

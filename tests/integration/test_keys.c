/* SPDX-License-Identifier: MIT */
/* What makes two messages the same, over real servers: ids of every shape, other content under a
 * known id, and messages that have none. */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static amqp_bytes_t bytes(const void *data, size_t size)
{
	return (amqp_bytes_t){.len = size, .bytes = (void *)(uintptr_t)data};
}

static void publish_id(struct world *w, const void *id, size_t size, const char *body)
{
	amqp_basic_properties_t p = {
		._flags = AMQP_BASIC_MESSAGE_ID_FLAG, .message_id = bytes(id, size)};
	publish(w, w->queue, &(struct msg){.properties = &p, .body = body});
}

/* With one header, "k", of the given value. */
static void publish_header(struct world *w, amqp_field_value_t value, const char *body)
{
	amqp_table_entry_t entry = {.key = amqp_cstring_bytes("k"), .value = value};
	amqp_basic_properties_t p = {._flags = AMQP_BASIC_HEADERS_FLAG,
		.headers = {.num_entries = 1, .entries = &entry}};
	publish(w, w->queue, &(struct msg){.properties = &p, .body = body});
}

static void begin(struct world *w, struct daemon *d, const char *name, const char *more)
{
	world_begin(w, name);
	config_main(w, "%s", more);
	daemon_start_main(w, d);
}

START_TEST(ids_that_are_binary_long_or_alike_are_kept_apart)
{
	struct world w;
	struct daemon d;
	char longest[255];
	memset(longest, 'q', sizeof longest);
	static const struct {
		const char *id;
		size_t size;
	} ids[] = {
		{"\xff\xfe\x41", 3},
		{"\xff\xfe\x42", 3},
		{"a\0b", 3},
		{"a\0c", 3},
		{"a", 1},
		{" a", 2},
		{"0b0d8b6c-6b1f-4f5e-9a39-6a2a2f0b1c11", 36},
		{"0B0D8B6C-6B1F-4F5E-9A39-6A2A2F0B1C11", 36},
		{"'; DROP TABLE effect; --", 24},
		{"\xc3\xa9", 2},
		{"\\x61", 4},
	};
	enum { N = sizeof ids / sizeof ids[0] };
	begin(&w, &d, "ids", "");
	for (int copy = 0; copy < 2; copy++) {
		for (size_t i = 0; i < N; i++)
			publish_id(&w, ids[i].id, ids[i].size, "same");
		publish_id(&w, longest, sizeof longest, "same");
	}
	publish_confirm(&w);
	all_once(&w, N + 1);
	/* The view shows every key as text. */
	ck_assert_int_eq(sql_int(&w, "SELECT count(DISTINCT key) FROM inbox_view"), N + 1);
	world_end(&w);
}
END_TEST

START_TEST(a_known_id_with_other_content_is_parked_whole_and_its_copies_are_duplicates)
{
	struct world w;
	struct daemon d;
	begin(&w, &d, "mismatch", "");
	publish(&w, w.queue, &(struct msg){.id = "c1", .body = "first"});
	publish_confirm(&w);
	WAIT_FOR(effects(&w) == 1 && is_settled(w.queue), 20);
	publish(&w, w.queue, &(struct msg){.id = "c1", .body = "other"});
	publish(&w, w.queue, &(struct msg){.id = "c1", .body = "first"});
	publish(&w, w.queue, &(struct msg){.id = "c1", .body = "other"});
	publish_confirm(&w);
	WAIT_FOR(parked(&w, NULL) == 1 && is_settled(w.queue), 20);
	ck_assert_int_eq(effects(&w), 1);
	ck_assert_str_eq(sql_text(&w, "SELECT encode(body, 'escape') FROM effect"), "first");
	ck_assert_str_eq(
		sql_text(&w, "SELECT key || ' ' || state || ' ' || reason FROM parked_view"),
		"c1 mismatch mismatch");
	ck_assert_str_eq(sql_text(&w, "SELECT encode(body, 'escape') FROM parked"), "other");
	ck_assert_int_ge(log_lines(&d, "mismatch"), 1);
	world_end(&w);
}
END_TEST

START_TEST(a_fingerprint_of_fields_ignores_the_rest_of_the_body)
{
	struct world w;
	struct daemon d;
	begin(&w, &d, "fields", "    fingerprint: [json:/amount]\n");
	publish(&w, w.queue, &(struct msg){.id = "f", .body = "{\"amount\": 5, \"sent\": 1}"});
	publish(&w, w.queue, &(struct msg){.id = "f", .body = "{\"sent\": 2, \"amount\": 5}"});
	publish(&w, w.queue, &(struct msg){.id = "f", .body = "{\"sent\": 2, \"amount\": 6}"});
	publish_confirm(&w);
	WAIT_FOR(parked(&w, "mismatch") == 1 && is_settled(w.queue), 20);
	ck_assert_int_eq(effects(&w), 1);
	ck_assert_int_eq(parked(&w, NULL), 1);
	world_end(&w);
}
END_TEST

/* No id, an empty one: three messages, of which two are the same. */
static void publish_without_id(struct world *w)
{
	publish(w, w->queue, &(struct msg){.body = "one"});
	publish_id(w, "", 0, "one");
	publish(w, w->queue, &(struct msg){.body = "two"});
	publish(w, w->queue, &(struct msg){.id = "with", .body = "one"});
	publish_confirm(w);
}

START_TEST(messages_without_id_are_parked_byte_for_byte)
{
	struct world w;
	struct daemon d;
	begin(&w, &d, "missing", "");
	publish_without_id(&w);
	WAIT_FOR(parked(&w, "no_key") == 3 && effects(&w) == 1, 20);
	WAIT_FOR(is_settled(w.queue), 20);
	ck_assert_int_eq(parked(&w, NULL), 3);
	ck_assert_str_eq(
		sql_text(&w,
			"SELECT string_agg(encode(body, 'escape'), ' ' ORDER BY id) FROM parked"),
		"one one two");
	/* Flags and list as on the wire: delivery mode 2 in the first, an empty message id in the
	 * second. */
	ck_assert_str_eq(sql_text(&w,
				 "SELECT string_agg(encode(properties, 'hex'), ' ' ORDER BY id) "
				 "FROM parked"),
		"100002 008000 100002");
	ck_assert_str_eq(sql_text(&w,
				 "SELECT DISTINCT encode(routing_key, 'escape') || ' ' || state "
				 "FROM parked"),
		sql_text(&w, "SELECT '%s failed'", w.queue));
	world_end(&w);
}
END_TEST

START_TEST(messages_without_id_go_by_their_body_where_the_rule_says_so)
{
	struct world w;
	struct daemon d;
	begin(&w, &d, "by_body", "    on_missing_key: body\n");
	publish_without_id(&w);
	WAIT_FOR(effects(&w) == 3 && is_settled(w.queue), 20);
	ck_assert_int_eq(markers(&w), 3);
	ck_assert_int_eq(parked(&w, NULL), 0);
	world_end(&w);
}
END_TEST

START_TEST(a_message_without_id_that_fails_uses_up_its_attempts_like_any_other)
{
	struct world w;
	struct daemon d;
	begin(&w, &d, "by_body_fails",
		"    on_missing_key: body\n    retry: {immediate: 1, delays: [200ms]}\n");
	publish(&w, w.queue, &(struct msg){.body = "bad", .act = "retry:99"});
	publish(&w, w.queue, &(struct msg){.body = "good"});
	publish_confirm(&w);
	WAIT_FOR(sql_int(&w, "SELECT count(*) FROM parked WHERE state = 'failed'") == 1, 30);
	WAIT_FOR(effects(&w) == 1 && is_settled(w.queue), 20);
	ck_assert_str_eq(
		sql_text(&w,
			"SELECT reason || ' ' || attempts || ' ' || encode(body, 'escape') "
			"FROM parked"),
		"retry 3 bad");
	world_end(&w);
}
END_TEST

START_TEST(messages_without_id_are_processed_every_time_where_the_rule_says_so)
{
	struct world w;
	struct daemon d;
	begin(&w, &d, "processed", "    on_missing_key: process\n");
	publish_without_id(&w);
	WAIT_FOR(effects(&w) == 4 && is_settled(w.queue), 20);
	ck_assert_int_eq(markers(&w), 1);
	ck_assert_int_eq(parked(&w, NULL), 0);
	world_end(&w);
}
END_TEST

START_TEST(keys_in_headers_of_every_type_are_keys_or_parked)
{
	struct world w;
	struct daemon d;
	char *large = malloc(10000);
	ck_assert_ptr_nonnull(large);
	for (size_t i = 0; i < 10000; i++)
		large[i] = (char)('a' + (i * i + i / 7) % 26);
	const amqp_field_value_t keys[] = {
		{.kind = AMQP_FIELD_KIND_I64, .value.i64 = INT64_MAX},
		{.kind = AMQP_FIELD_KIND_I64, .value.i64 = INT64_MAX - 1},
		{.kind = AMQP_FIELD_KIND_I32, .value.i32 = -3},
		{.kind = AMQP_FIELD_KIND_BOOLEAN, .value.boolean = 1},
		{.kind = AMQP_FIELD_KIND_BYTES, .value.bytes = bytes("\xff\x00", 2)},
		{.kind = AMQP_FIELD_KIND_F64, .value.f64 = 1.5},
		{.kind = AMQP_FIELD_KIND_DECIMAL, .value.decimal = {.decimals = 2, .value = 1234}},
		{.kind = AMQP_FIELD_KIND_TIMESTAMP, .value.u64 = 1700000000},
		{.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = bytes(large, 10000)},
	};
	const amqp_field_value_t no_keys[] = {
		{.kind = AMQP_FIELD_KIND_VOID},
		{.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = bytes("", 0)},
	};
	const amqp_field_value_t unusable[] = {
		{.kind = AMQP_FIELD_KIND_TABLE},
		{.kind = AMQP_FIELD_KIND_ARRAY},
	};
	enum { KEYS = sizeof keys / sizeof keys[0] };
	world_begin(&w, "headers");
	config_main(&w, "%s", "    key: header:k\n");
	daemon_start_main(&w, &d);
	for (int copy = 0; copy < 2; copy++)
		for (int i = 0; i < KEYS; i++)
			publish_header(&w, keys[i], "same");
	for (int i = 0; i < 2; i++) {
		publish_header(&w, no_keys[i], "none");
		publish_header(&w, unusable[i], "unusable");
	}
	publish_confirm(&w);
	WAIT_FOR(effects(&w) == KEYS && is_settled(w.queue), 20);
	ck_assert_int_eq(markers(&w), KEYS);
	ck_assert_int_eq(parked(&w, "no_key"), 2);
	ck_assert_int_eq(parked(&w, "unusable_key"), 2);
	ck_assert_int_eq(parked(&w, NULL), 4);
	free(large);
	world_end(&w);
}
END_TEST

START_TEST(numbers_in_json_are_taken_as_they_are_written)
{
	static const char *const bodies[] = {"{\"id\": 9007199254740992}",
		"{\"id\": 9007199254740993}", "{\"id\": 18446744073709551615}", "{\"id\": 1e400}",
		"{\"id\": -0}", "{\"id\": 0}"};
	enum { N = sizeof bodies / sizeof bodies[0] };
	struct world w;
	struct daemon d;
	begin(&w, &d, "numbers", "    key: json:/id\n");
	for (int copy = 0; copy < 2; copy++)
		for (int i = 0; i < N; i++)
			publish(&w, w.queue, &(struct msg){.body = bodies[i]});
	publish(&w, w.queue, &(struct msg){.body = "{\"id\": 1"});
	publish(&w, w.queue, &(struct msg){.body = "{\"id\": [1]}"});
	publish_confirm(&w);
	WAIT_FOR(effects(&w) == N && is_settled(w.queue), 20);
	ck_assert_int_eq(parked(&w, "unusable_key"), 2);
	ck_assert_int_eq(parked(&w, NULL), 2);
	world_end(&w);
}
END_TEST

UNIT_SUITE_TIMEOUT(90, "integration/keys", ids_that_are_binary_long_or_alike_are_kept_apart,
	a_known_id_with_other_content_is_parked_whole_and_its_copies_are_duplicates,
	a_fingerprint_of_fields_ignores_the_rest_of_the_body,
	messages_without_id_are_parked_byte_for_byte,
	messages_without_id_go_by_their_body_where_the_rule_says_so,
	a_message_without_id_that_fails_uses_up_its_attempts_like_any_other,
	messages_without_id_are_processed_every_time_where_the_rule_says_so,
	keys_in_headers_of_every_type_are_keys_or_parked,
	numbers_in_json_are_taken_as_they_are_written)

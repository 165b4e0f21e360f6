/* SPDX-License-Identifier: MIT */
/* Messages as publishers really send them: odd properties, odd bodies, whole streams of them. */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static amqp_bytes_t text(const char *s)
{
	return amqp_cstring_bytes(s);
}

/* The column key of the effects is the body. */
static void begin(struct world *w, struct daemon *d, const char *name, const char *more)
{
	world_begin(w, name);
	config_write(w, "inboxd", "",
		"  main:\n    queue: %s\n    handler: effect\n"
		"    options: {table: %s.effect, key: body}\n    breaker: {failures: 1000}\n%s",
		w->queue, w->name, more);
	daemon_start_main(w, d);
}

static bool has_effect(struct world *w, const char *body)
{
	return sql_int(w, "SELECT count(*) FROM effect WHERE key = '%s'", body) == 1;
}

/* ---- CloudEvents ----------------------------------------------------------------- */

/* Binary mode, with one of the two prefixes. */
static void publish_event(
	struct world *w, const char *prefix, const char *source, const char *id, const char *body)
{
	char names[2][32];
	(void)snprintf(names[0], sizeof names[0], "%ssource", prefix);
	(void)snprintf(names[1], sizeof names[1], "%sid", prefix);
	amqp_table_entry_t entries[] = {entry_text(names[0], source), entry_text(names[1], id)};
	const amqp_basic_properties_t p = {._flags = AMQP_BASIC_HEADERS_FLAG,
		.headers = {.num_entries = 2, .entries = entries}};
	publish(w, w->queue, &(struct msg){.properties = &p, .body = body});
}

static void publish_structured(struct world *w, const char *body)
{
	const amqp_basic_properties_t p = {._flags = AMQP_BASIC_CONTENT_TYPE_FLAG,
		.content_type = text("application/cloudevents+json")};
	publish(w, w->queue, &(struct msg){.properties = &p, .body = body});
}

START_TEST(an_event_is_the_same_by_source_and_id_in_every_spelling)
{
	struct world w;
	struct daemon d;
	begin(&w, &d, "events", "    key: cloudevents\n    fingerprint: none\n");
	publish_event(&w, "cloudEvents:", "/a", "7", "first");
	publish_event(&w, "cloudEvents_", "/b", "7", "other source");
	publish_event(&w, "cloudEvents_", "/a", "7", "other prefix");
	publish_structured(
		&w, "{\"specversion\":\"1.0\",\"source\":\"/a\",\"id\":\"7\",\"type\":\"t\"}");
	publish_event(&w, "cloudEvents:", "a", "bc", "split here");
	publish_event(&w, "cloudEvents:", "ab", "c", "split there");
	amqp_table_entry_t both[] = {entry_text("cloudEvents:source", "/c"),
		entry_text("cloudEvents:id", "1"), entry_text("cloudEvents_source", "/c"),
		entry_text("cloudEvents_id", "2")};
	const amqp_basic_properties_t p = {
		._flags = AMQP_BASIC_HEADERS_FLAG, .headers = {.num_entries = 4, .entries = both}};
	publish(&w, w.queue, &(struct msg){.properties = &p, .body = "two ids"});
	publish_confirm(&w);
	WAIT_FOR(is_settled(w.queue), 30);
	ck_assert_int_eq(effects(&w), 4);
	ck_assert(has_effect(&w, "first") && has_effect(&w, "other source"));
	ck_assert(has_effect(&w, "split here") && has_effect(&w, "split there"));
	ck_assert_int_eq(parked(&w, NULL), 1);
	ck_assert_int_eq(parked(&w, "unusable_key"), 1);
	world_end(&w);
}
END_TEST

/* ---- bodies ---------------------------------------------------------------------- */

static void publish_body(struct world *w, const char *body, size_t size, const char *encoding)
{
	amqp_basic_properties_t p = {
		._flags = AMQP_BASIC_CONTENT_TYPE_FLAG, .content_type = text("application/json")};
	if (encoding != NULL) {
		p._flags |= AMQP_BASIC_CONTENT_ENCODING_FLAG;
		p.content_encoding = text(encoding);
	}
	publish(w, w->queue, &(struct msg){.properties = &p, .body = body, .size = size});
}

#define GOOD(n_) "{\"id\":\"good" n_ "\"}"

START_TEST(a_body_that_is_compressed_has_no_json_key_and_is_parked_as_it_is)
{
	static const char gzip[] = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x01\x05\x00";
	struct world w;
	struct daemon d;
	begin(&w, &d, "encoded", "    key: json:/id\n");
	publish_body(&w, GOOD("1"), 0, NULL);
	publish_body(&w, gzip, sizeof gzip, "gzip");
	publish_body(&w, GOOD("g"), 0, "gzip");
	publish_body(&w, GOOD("b"), 0, "br");
	publish_body(&w, GOOD("2"), 0, "utf-8");
	publish_confirm(&w);
	WAIT_FOR(is_settled(w.queue), 30);
	ck_assert_int_eq(effects(&w), 2);
	ck_assert_int_eq(parked(&w, NULL), 3);
	ck_assert_int_eq(
		sql_int(&w,
			"SELECT count(*) FROM parked WHERE body = '\\x1f8b0800000000000003010500"
			"00' AND detail LIKE '%%gzip%%'"),
		1);
	world_end(&w);
}
END_TEST

/* Two hundred thousand arrays in one another. */
static void publish_deep(struct world *w)
{
	enum { DEEP = 200000 };
	char *deep = malloc(2 * DEEP + 32);
	ck_assert_ptr_nonnull(deep);
	int n = sprintf(deep, "{\"deep\":");
	memset(deep + n, '[', DEEP);
	memset(deep + n + DEEP, ']', DEEP);
	n += 2 * DEEP;
	n += sprintf(deep + n, ",\"id\":\"deep\"}");
	publish_body(w, deep, (size_t)n, NULL);
	free(deep);
}

START_TEST(json_of_every_kind_is_done_or_parked_and_holds_nobody_up)
{
	static const char *const odd[] = {"{\"id\":\"a\\u0000b\"}", "\xef\xbb\xbf{\"id\":\"q\"}",
		"{\"id\":\"x\",\"id\":\"y\"}", "{\"id\":\"\\ud800\"}", "nan", "{\"id\":\"t",
		"{\"id\":\"g\"} garbage", "{\"id\":null}", "{\"id\":[1]}", "[]", "\"id\"",
		"{\"id\":\"\xff\xfe\"}", "{\"id\":1e400}", "{\"id\":-0}"};
	enum { N = sizeof odd / sizeof odd[0] };
	struct world w;
	struct daemon d;
	begin(&w, &d, "json", "    key: json:/id\n");
	publish_body(&w, GOOD("1"), 0, NULL);
	for (size_t i = 0; i < N; i++)
		publish_body(&w, odd[i], 0, NULL);
	publish_body(&w, "", 0, NULL);
	publish_deep(&w);
	publish_body(&w, GOOD("2"), 0, NULL);
	publish_confirm(&w);
	WAIT_FOR(is_settled(w.queue), 30);
	/* Each is somewhere, once: nothing is lost and nothing waits to be tried again. */
	ck_assert_int_eq(effects(&w) + parked(&w, NULL), N + 4);
	ck_assert_int_eq(effects(&w), markers(&w));
	ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM parked WHERE state <> 'failed'"), 0);
	ck_assert(has_effect(&w, GOOD("1")) && has_effect(&w, GOOD("2")));
	ck_assert_int_eq(log_lines(&d, "event=process_died"), 0);
	world_end(&w);
}
END_TEST

START_TEST(bytes_that_are_no_text_harm_neither_keys_nor_logs)
{
	struct world w;
	struct daemon d;
	char junk[128];
	for (int i = 0; i < 128; i++)
		junk[i] = (char)(0x80 + i);
	begin(&w, &d, "junk", "");
	amqp_table_entry_t entry = {.key = text("junk"),
		.value = {.kind = AMQP_FIELD_KIND_UTF8,
			.value.bytes = {.len = sizeof junk, .bytes = junk}}};
	amqp_basic_properties_t p = {._flags = AMQP_BASIC_HEADERS_FLAG |
			AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_CONTENT_TYPE_FLAG |
			AMQP_BASIC_CORRELATION_ID_FLAG,
		.message_id = text("fine"),
		.correlation_id = {.len = 3, .bytes = junk},
		.content_type = text("application/json"),
		.headers = {.num_entries = 1, .entries = &entry}};
	publish(&w, w.queue, &(struct msg){.properties = &p, .body = "\xc3\x28 no text"});
	/* Parked, so that its properties come into the log. */
	p.message_id = (amqp_bytes_t){.len = 0, .bytes = NULL};
	publish(&w, w.queue, &(struct msg){.properties = &p, .body = "no id"});
	publish_confirm(&w);
	WAIT_FOR(is_settled(w.queue), 30);
	ck_assert_int_eq(effects(&w), 1);
	ck_assert_int_eq(markers(&w), 1);
	ck_assert_int_eq(parked(&w, "no_key"), 1);
	ck_assert_int_eq(log_lines(&d, "correlation_id=\"\\x80\\x81\\x82\""), 1);
	ck_assert_int_eq(log_lines(&d, "\x80"), 0);
	world_end(&w);
}
END_TEST

START_TEST(a_publishers_clock_is_no_concern)
{
	static const uint64_t stamps[] = {
		0, 1700000000000, UINT64_C(1) << 63, UINT64_MAX, INT64_MAX};
	enum { N = sizeof stamps / sizeof stamps[0] };
	struct world w;
	struct daemon d;
	begin(&w, &d, "stamps", "");
	for (size_t i = 0; i < N; i++) {
		char id[16];
		(void)snprintf(id, sizeof id, "t%zu", i);
		const amqp_basic_properties_t p = {
			._flags = AMQP_BASIC_TIMESTAMP_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG,
			.message_id = text(id),
			.timestamp = stamps[i]};
		publish(&w, w.queue, &(struct msg){.properties = &p, .body = id});
	}
	publish_confirm(&w);
	all_once(&w, N);
	ck_assert_int_eq(sql_int(&w,
				 "SELECT count(*) FROM inbox WHERE at < now() - interval '1 hour' "
				 "OR at > now() + interval '1 hour'"),
		0);
	world_end(&w);
}
END_TEST

/* ---- headers --------------------------------------------------------------------- */

START_TEST(headers_nested_without_end_are_parked_and_those_behind_them_are_done)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "nested");
	publish_nested(w.queue);
	publish_many(&w, w.queue, "after", 5);
	daemon_start_main(&w, &d);
	WAIT_FOR(effects(&w) == 5 && is_settled(w.queue), 60);
	ck_assert_int_eq(parked(&w, NULL), 1);
	ck_assert_int_eq(effect_keys(&w), 5);
	ck_assert_int_eq(log_lines(&d, "event=process_died"), 0);
	world_end(&w);
}
END_TEST

/* What a publisher, or another broker on the way, has written about earlier deaths. */
START_TEST(runs_are_counted_by_us_whatever_headers_say)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "deaths");
	config_main(&w, "%s", "    retry: {immediate: 3, delays: []}\n");
	amqp_table_entry_t death[] = {entry_int("count", 1000)};
	amqp_field_value_t deaths[] = {{.kind = AMQP_FIELD_KIND_TABLE,
		.value.table = {.num_entries = 1, .entries = death}}};
	amqp_table_entry_t entries[] = {
		{.key = text("x-death"),
			.value = {.kind = AMQP_FIELD_KIND_ARRAY,
				.value.array = {.num_entries = 1, .entries = deaths}}},
		entry_int("x-delivery-count", 1000),
		entry_text("act", "retry:99"),
	};
	const amqp_basic_properties_t p = {
		._flags = AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG,
		.message_id = text("dead"),
		.headers = {.num_entries = 3, .entries = entries}};
	publish(&w, w.queue, &(struct msg){.properties = &p});
	publish_confirm(&w);
	daemon_start_main(&w, &d);
	WAIT_FOR(sql_int(&w, "SELECT count(*) FROM parked WHERE state = 'failed'") == 1, 30);
	ck_assert_int_eq(sql_int(&w, "SELECT attempts FROM parked"), 4);
	ck_assert_int_eq(effects(&w), 0);
	world_end(&w);
}
END_TEST

/* ---- streams, and streams of messages -------------------------------------------- */

START_TEST(a_stream_is_refused_by_name_and_not_asked_again_and_again)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "stream");
	queue_delete(&w, w.queue);
	queue_declare(&w, w.queue, "stream");
	daemon_start_main(&w, &d);
	publish_many(&w, w.queue, "m", 2);
	WAIT_FOR(log_lines(&d, "event=stream_refused") == 1, 30);
	ck_assert_int_eq(effects(&w) + parked(&w, NULL), 0);
	ck_assert_int_eq(log_lines(&d, "event=connected"), 1);
	int64_t begun = now_ms();
	ck_assert_int_eq(daemon_stop(&d), 0);
	ck_assert_int_lt(now_ms() - begun, (int64_t)(3000 * wait_factor()));
	world_end(&w);
}
END_TEST

/* As those have that were read from a stream and sent on with all their headers. */
START_TEST(a_message_that_only_carries_the_header_of_a_stream_is_done)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "offset");
	amqp_table_entry_t entry = entry_int("x-stream-offset", 7);
	const amqp_basic_properties_t p = {
		._flags = AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG,
		.message_id = text("moved"),
		.headers = {.num_entries = 1, .entries = &entry}};
	publish(&w, w.queue, &(struct msg){.properties = &p});
	publish_many(&w, w.queue, "m", 5);
	daemon_start(&w, "inboxd", &d);
	WAIT_FOR(log_lines(&d, "event=stream_refused") == 1, 30);
	WAIT_FOR(effects(&w) == 6 && is_settled(w.queue), 60);
	ck_assert_int_eq(effect_keys(&w), 6);
	ck_assert_int_eq(log_lines(&d, "event=stream_refused"), 1);
	world_end(&w);
}
END_TEST

static void publish_rich(struct world *w, int from, int to)
{
	char body[1024], names[20][24];
	amqp_table_entry_t entries[20];
	memset(body, 'b', sizeof body);
	for (int k = 0; k < 20; k++) {
		(void)snprintf(names[k], sizeof names[k], "header-%d", k);
		entries[k] = entry_text(names[k], "a value of some length");
	}
	for (int i = from; i < to; i++) {
		char id[32];
		/* Every tenth is a copy of the one before it, every twentieth fails. */
		(void)snprintf(id, sizeof id, "m%d", i % 10 == 9 ? i - 1 : i);
		if (i % 20 == 0)
			entries[0] = entry_text("act", "reject");
		else
			entries[0] = entry_text("header-0", "a value");
		const amqp_basic_properties_t p = {
			._flags = AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG,
			.message_id = text(id),
			.headers = {.num_entries = 20, .entries = entries}};
		publish(w, w->queue,
			&(struct msg){.properties = &p, .body = body, .size = sizeof body});
	}
	publish_confirm(w);
}

START_TEST(memory_does_not_grow_message_by_message)
{
	int all = how_many(16000) / 20 * 20, first = all / 4;
	struct world w;
	struct daemon d;
	world_begin(&w, "memory");
	config_main(&w, "%s", "    breaker: {failures: 100000}\n    parked: {max: 100000}\n");
	daemon_start_main(&w, &d);
	publish_rich(&w, 0, first);
	WAIT_FOR(is_settled(w.queue), 90);
	int64_t consumer = memory_kib(role_pid(&d, "inboxd: consumer main"), false);
	int64_t worker = memory_kib(role_pid(&d, "inboxd: worker main/1"), false);
	publish_rich(&w, first, all);
	WAIT_FOR(is_settled(w.queue), 180);
	ck_assert_int_eq(effects(&w), all * 17 / 20);
	ck_assert_int_eq(parked(&w, "rejected"), all / 20);
	ck_assert_int_lt(
		memory_kib(role_pid(&d, "inboxd: consumer main"), false), consumer * 5 / 4);
	ck_assert_int_lt(memory_kib(role_pid(&d, "inboxd: worker main/1"), false), worker * 5 / 4);
	world_end(&w);
}
END_TEST

UNIT_SUITE_TIMEOUT(200, "integration/messages",
	an_event_is_the_same_by_source_and_id_in_every_spelling,
	a_body_that_is_compressed_has_no_json_key_and_is_parked_as_it_is,
	json_of_every_kind_is_done_or_parked_and_holds_nobody_up,
	bytes_that_are_no_text_harm_neither_keys_nor_logs, a_publishers_clock_is_no_concern,
	headers_nested_without_end_are_parked_and_those_behind_them_are_done,
	runs_are_counted_by_us_whatever_headers_say,
	a_stream_is_refused_by_name_and_not_asked_again_and_again,
	a_message_that_only_carries_the_header_of_a_stream_is_done,
	memory_does_not_grow_message_by_message)

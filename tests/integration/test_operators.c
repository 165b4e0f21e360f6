/* SPDX-License-Identifier: MIT */
/* What an operator does with parked messages: again, never mind, after all. */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#define EXPECT(code_, text_, ...)                                                               \
	do {                                                                                    \
		int expect_code_ = inboxctl(&w, "inboxd", ARGS(__VA_ARGS__));                   \
		ck_assert_msg(expect_code_ == (code_) && strstr(said, (text_)) != NULL,         \
			"exit %d, not %d with \"%s\": %s", expect_code_, (int)(code_), (text_), \
			said);                                                                  \
	} while (0)

static const char *states(struct world *w)
{
	return sql_text(w,
		"SELECT coalesce(string_agg(concat_ws(' ', key, state, attempts, crashes), "
		"', ' ORDER BY id), '') FROM parked_view");
}

/* ---- what a retry gives to the handler ------------------------------------------- */

static void publish_everything(struct world *w, const char *act)
{
	char header[800], bytes[320], body[300];
	(void)snprintf(header, sizeof header, "do=%s", act);
	(void)snprintf(bytes, sizeof bytes, "%s/body", w->dir);
	for (size_t i = 0; i < sizeof body; i++)
		body[i] = (char)i;
	FILE *f = fopen(bytes, "w");
	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(body, 1, sizeof body, f), sizeof body);
	ck_assert_int_eq(fclose(f), 0);
	ck_assert_int_eq(
		inboxctl(w, "inboxd",
			ARGS("publish", w->queue, "--file", bytes, "--id", "all", "--content-type",
				"text/plain", "--property", "content_encoding=utf-8", "--property",
				"priority=4", "--property", "correlation_id=c", "--property",
				"reply_to=r", "--property", "expiration=600000", "--property",
				"timestamp=1700000000", "--property", "type=t", "--property",
				"user_id=inboxd", "--property", "app_id=a", "--header", header)),
		0);
}

/* With every type of a field, as only a client of its own can send them. */
static void publish_every_field(struct world *w, const char *act)
{
	static uint8_t raw[] = {0, 1, 255};
	amqp_field_value_t item = {.kind = AMQP_FIELD_KIND_I32, .value.i32 = 7};
	amqp_table_entry_t inner = {.key = amqp_cstring_bytes("inner"), .value = item};
	const amqp_field_value_t values[] = {
		{.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = amqp_cstring_bytes("t\xc3\xa4")},
		{.kind = AMQP_FIELD_KIND_BYTES, .value.bytes = {sizeof raw, raw}},
		{.kind = AMQP_FIELD_KIND_BOOLEAN, .value.boolean = 1},
		{.kind = AMQP_FIELD_KIND_I8, .value.i8 = -8},
		{.kind = AMQP_FIELD_KIND_U8, .value.u8 = 200},
		{.kind = AMQP_FIELD_KIND_I16, .value.i16 = -16000},
		{.kind = AMQP_FIELD_KIND_U16, .value.u16 = 60000},
		{.kind = AMQP_FIELD_KIND_I32, .value.i32 = -70000},
		{.kind = AMQP_FIELD_KIND_U32, .value.u32 = 4000000000},
		{.kind = AMQP_FIELD_KIND_I64, .value.i64 = INT64_MIN},
		{.kind = AMQP_FIELD_KIND_F32, .value.f32 = 1.5F},
		{.kind = AMQP_FIELD_KIND_F64, .value.f64 = 0.1},
		{.kind = AMQP_FIELD_KIND_DECIMAL, .value.decimal = {2, 12345}},
		{.kind = AMQP_FIELD_KIND_TIMESTAMP, .value.u64 = 1700000000},
		{.kind = AMQP_FIELD_KIND_VOID},
		{.kind = AMQP_FIELD_KIND_ARRAY, .value.array = {1, &item}},
		{.kind = AMQP_FIELD_KIND_TABLE, .value.table = {1, &inner}},
	};
	enum { N = sizeof values / sizeof values[0] };
	amqp_table_entry_t entries[N + 1];
	char names[N][8];
	for (size_t i = 0; i < N; i++) {
		(void)snprintf(names[i], sizeof names[i], "f%zu", i);
		entries[i] = (amqp_table_entry_t){
			.key = amqp_cstring_bytes(names[i]), .value = values[i]};
	}
	entries[N] = entry_text("do", act);
	const amqp_basic_properties_t p = {
		._flags = AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_HEADERS_FLAG,
		.message_id = amqp_cstring_bytes("fields"),
		.headers = {N + 1, entries}};
	publish(w, w->queue, &(struct msg){.properties = &p, .body = "fields"});
	publish_confirm(w);
}

/* The file holds at least n dumps, all alike, of at least so many lines. */
static void check_dumps(const char *path, int n, int lines)
{
	static char all[1 << 20];
	FILE *f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	all[fread(all, 1, sizeof all - 1, f)] = '\0';
	(void)fclose(f);
	char *end = strstr(all, "--\n");
	ck_assert_ptr_nonnull(end);
	size_t size = (size_t)(end + 3 - all), total = strlen(all);
	int got = 0;
	for (const char *p = all; p < end; p++)
		got += *p == '\n';
	ck_assert_int_ge(got, lines);
	ck_assert_uint_eq(total % size, 0);
	ck_assert_uint_ge(total / size, (size_t)n);
	for (size_t at = size; at < total; at += size)
		ck_assert_msg(memcmp(all, all + at, size) == 0, "at %zu: %s", at, all);
}

START_TEST(a_retry_gives_the_handler_exactly_what_the_first_delivery_gave)
{
	struct world w;
	struct daemon d;
	char act[700], gate[300], dumps[2][300];
	world_begin(&w, "replay");
	config_handler(&w, "misbehave", "");
	(void)snprintf(gate, sizeof gate, "%s/gate", w.dir);
	(void)snprintf(dumps[0], sizeof dumps[0], "%s/dump-all", w.dir);
	(void)snprintf(dumps[1], sizeof dumps[1], "%s/dump-fields", w.dir);
	(void)snprintf(act, sizeof act, "dump:%s,reject-unless:%s,ok", dumps[0], gate);
	publish_everything(&w, act);
	(void)snprintf(act, sizeof act, "dump:%s,reject-unless:%s,ok", dumps[1], gate);
	publish_every_field(&w, act);
	daemon_start_main(&w, &d);
	WAIT_FOR(parked(&w, "rejected") == 2 && is_settled(w.queue), 30);
	EXPECT(0, "retried 2", "parked", "retry", "--reason", "rejected", "--yes");
	WAIT_FOR(
		sql_int(&w,
			"SELECT count(*) FROM parked WHERE state = 'failed' AND attempts = 1") == 2,
		30);
	touch(gate);
	EXPECT(0, "retried 2", "parked", "retry", "--all", "--yes");
	WAIT_FOR(effects(&w) == 2 && parked(&w, NULL) == 0, 30);
	check_dumps(dumps[0], 3, 16);
	check_dumps(dumps[1], 3, 16 + 2 * 17);
	ck_assert_int_eq(markers(&w), 2);
	world_end(&w);
}
END_TEST

/* ---- what they do and what they refuse ------------------------------------------- */

/* Ids "bad0" … that are parked as failed, and the ids of their rows. */
static void park_some(struct world *w, struct daemon *d, int n)
{
	char id[16];
	config_main(w, "%s", "");
	for (int i = 0; i < n; i++) {
		(void)snprintf(id, sizeof id, "bad%d", i);
		publish(w, w->queue, &(struct msg){.id = id, .act = "reject"});
	}
	publish_confirm(w);
	daemon_start_main(w, d);
	WAIT_FOR(parked(w, "rejected") == n && is_settled(w->queue), 30);
	ck_assert_int_eq(daemon_stop(d), 0);
}

static const char *id_of(struct world *w, const char *key)
{
	return sql_text(w, "SELECT id FROM parked_view WHERE key = '%s'", key);
}

START_TEST(a_message_is_discarded_restored_and_tried_again_with_all_its_attempts)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "discard");
	char id[32];
	park_some(&w, &d, 1);
	(void)snprintf(id, sizeof id, "%s", id_of(&w, "bad0"));
	sql(&w, "UPDATE parked SET attempts = 4, crashes = 2");
	EXPECT(1, "it is not discarded", "parked", "restore", id);
	EXPECT(0, "discarded 1", "parked", "discard", id);
	ck_assert_str_eq(states(&w), "bad0 discarded 4 2");
	EXPECT(1, "discarded 0, refused 1", "parked", "discard", id);
	EXPECT(1, "it is discarded: restore it first", "parked", "retry", id);
	EXPECT(0, "restored 1", "parked", "restore", id);
	ck_assert_str_eq(states(&w), "bad0 failed 4 2");
	EXPECT(0, "retried 1", "parked", "retry", id);
	ck_assert_str_eq(states(&w), "bad0 waiting 0 0");
	EXPECT(1, "\"refused\": [{\"id\": 999999, \"reason\": \"no such message is parked\"}]",
		"parked", "retry", "999999", id, "--json");
	ck_assert_ptr_nonnull(strstr(said, "\"done\": 1"));
	world_end(&w);
}
END_TEST

START_TEST(a_session_lost_half_way_is_an_error_that_says_so)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "lost");
	char id[32];
	park_some(&w, &d, 1);
	(void)snprintf(id, sizeof id, "%s", id_of(&w, "bad0"));
	sql(&w,
		"CREATE FUNCTION leave() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM "
		"pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(60); RETURN NEW; END $$");
	sql(&w, "ALTER FUNCTION leave() SECURITY DEFINER");
	sql(&w, "CREATE TRIGGER leave BEFORE UPDATE ON parked FOR EACH ROW EXECUTE FUNCTION leave()");
	EXPECT(EX_UNAVAILABLE, "terminating connection", "parked", "discard", id);
	EXPECT(EX_UNAVAILABLE, "terminating connection", "parked", "discard", "--all", "--yes");
	ck_assert_ptr_nonnull(strstr(said, "discarded 0"));
	sql(&w, "DROP FUNCTION leave() CASCADE");
	EXPECT(0, "discarded 1", "parked", "discard", id);
	world_end(&w);
}
END_TEST

START_TEST(a_waiting_message_is_due_now_and_keeps_its_attempts)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "hurry");
	config_main(&w, "    retry: {immediate: 0, delays: [1h]}\n");
	publish(&w, w.queue, &(struct msg){.id = "slow", .act = "retry:1"});
	publish_confirm(&w);
	daemon_start_main(&w, &d);
	WAIT_FOR(parked(&w, "retry") == 1, 30);
	ck_assert_str_eq(states(&w), "slow waiting 1 0");
	EXPECT(0, "retried 1", "parked", "retry", id_of(&w, "slow"));
	WAIT_FOR(effects(&w) == 1 && parked(&w, NULL) == 0, 30);
	world_end(&w);
}
END_TEST

START_TEST(what_cannot_be_tried_again_is_refused_with_what_to_do)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "refuse");
	park_some(&w, &d, 2);
	sql(&w, "UPDATE parked SET state = 'mismatch', reason = 'mismatch' WHERE id = %s",
		id_of(&w, "bad0"));
	sql(&w, "UPDATE parked SET reason = 'undecodable' WHERE id = %s", id_of(&w, "bad1"));
	EXPECT(1, "a key of its own", "parked", "retry", id_of(&w, "bad0"));
	EXPECT(1, "never readable", "parked", "retry", id_of(&w, "bad1"));
	EXPECT(0, "discarded 2", "parked", "discard", id_of(&w, "bad0"), id_of(&w, "bad1"));
	EXPECT(EX_USAGE, "takes ids, or", "parked", "retry");
	EXPECT(EX_USAGE, "takes ids, or", "parked", "retry", "1", "--all");
	EXPECT(EX_USAGE, "is no id", "parked", "discard", "all");
	world_end(&w);
}
END_TEST

/* A run has claimed the row: its transaction deletes it, and may yet roll back. */
START_TEST(what_a_worker_has_in_hand_is_refused_and_not_waited_for)
{
	struct world w;
	struct daemon d;
	char row[32];
	world_begin(&w, "in_hand");
	config_main(&w, "    retry: {immediate: 0, delays: [100ms]}\n");
	publish(&w, w.queue, &(struct msg){.id = "busy", .act = "retry:1"});
	publish_confirm(&w);
	daemon_start_main(&w, &d);
	WAIT_FOR(effects(&w) == 1 && parked(&w, NULL) == 0, 30);
	ck_assert_int_eq(daemon_stop(&d), 0);

	config_handler(&w, "misbehave", "    retry: {immediate: 0, delays: [100ms]}\n");
	char gate[300], act[400];
	(void)snprintf(gate, sizeof gate, "%s/gate", w.dir);
	(void)snprintf(act, sizeof act, "fail-temp:1,wait:%s,ok", gate);
	amqp_table_entry_t entry = entry_text("do", act);
	const amqp_basic_properties_t p = {
		._flags = AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_HEADERS_FLAG,
		.message_id = amqp_cstring_bytes("held"),
		.headers = {1, &entry}};
	publish(&w, w.queue, &(struct msg){.properties = &p});
	publish_confirm(&w);
	daemon_start_main(&w, &d);
	WAIT_FOR(sql_int(&w,
			 "SELECT count(*) FROM pg_stat_activity WHERE application_name = "
			 "'inboxd main' AND state = 'idle in transaction'") == 1 &&
			parked(&w, NULL) == 1,
		30);
	(void)snprintf(row, sizeof row, "%s", sql_text(&w, "SELECT id FROM parked"));
	EXPECT(1, "in a worker's hand", "parked", "retry", row);
	EXPECT(1, "in a worker's hand", "parked", "discard", row);
	EXPECT(1, "in a worker's hand", "parked", "restore", row);
	touch(gate);
	WAIT_FOR(effects(&w) == 2 && parked(&w, NULL) == 0, 30);
	world_end(&w);
}
END_TEST

START_TEST(a_group_is_counted_shown_and_only_done_when_that_is_meant)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "group");
	park_some(&w, &d, 5);
	sql(&w,
		"UPDATE parked SET detail = 'order ' || id || ' is bad', reason = CASE WHEN id %% "
		"5 = 0 "
		"THEN 'crashed' ELSE 'rejected' END");
	EXPECT(0, "order N is bad", "parked", "list", "--group");
	EXPECT(0, "\"messages\": 4", "parked", "list", "--group", "--json");
	ck_assert_ptr_nonnull(strstr(said, "\"messages\": 1"));
	EXPECT(0, "tried on 4 messages", "parked", "discard", "--reason", "rejected", "--dry-run");
	EXPECT(1, "4 messages match", "parked", "discard", "--reason", "rejected");
	/* Nothing that looks like a limit, or like a trial, does more than it says. */
	EXPECT(0, "tried on 2 messages", "parked", "discard", "1", "2", "--dry-run");
	EXPECT(64, "--limit is not for discard", "parked", "discard", "--all", "--limit", "1",
		"--yes");
	EXPECT(64, "--group is not for retry", "parked", "retry", "--all", "--group", "--yes");
	EXPECT(64, "--yes is not for list", "parked", "list", "--yes");
	EXPECT(64, "there is no reason \"reject\"", "parked", "discard", "--reason", "reject",
		"--yes");
	ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM parked WHERE state = 'failed'"), 5);
	EXPECT(0, "discarded 4", "parked", "discard", "--reason", "rejected", "--yes");
	EXPECT(0, "discarded 0", "parked", "discard", "--consumer", "other", "--yes");
	EXPECT(0, "\"matched\": 4", "parked", "restore", "--all", "--dry-run", "--json");
	EXPECT(0, "retried 1", "parked", "retry", "--all", "--yes");
	EXPECT(0, "restored 4", "parked", "restore", "--all", "--yes");
	ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM parked WHERE state = 'failed'"), 4);
	world_end(&w);
}
END_TEST

START_TEST(a_group_of_many_is_done_in_pieces_and_whole)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "many");
	park_some(&w, &d, 1);
	sql(&w,
		"INSERT INTO parked (consumer, entry, state, reason, key, fingerprint, queue, "
		"exchange, "
		"routing_key, redelivered, properties, body, body_size) SELECT consumer, entry, "
		"state, "
		"reason, key || convert_to(i::text, 'UTF8'), fingerprint, queue, exchange, "
		"routing_key, "
		"redelivered, properties, body, body_size FROM parked, generate_series(1, 700) i");
	EXPECT(0, "discarded 701", "parked", "discard", "--all", "--yes");
	ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM parked WHERE state = 'discarded'"), 701);
	world_end(&w);
}
END_TEST

/* ---- what was parked without being looked at ------------------------------------- */

static void publish_large(struct world *w, const char *id, size_t size)
{
	char *body = malloc(size);
	ck_assert_ptr_nonnull(body);
	memset(body, 'x', size);
	publish(w, w->queue, &(struct msg){.id = id, .body = body, .size = size});
	free(body);
}

START_TEST(a_body_that_was_too_large_is_too_large_again_until_the_limit_is_raised)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "large");
	config_main(&w, "    max_message_bytes: 64KiB\n");
	publish_large(&w, "large", 200000);
	publish_large(&w, "small", 60000);
	publish_confirm(&w);
	daemon_start_main(&w, &d);
	WAIT_FOR(parked(&w, "too_large") == 1 && effects(&w) == 1 && is_settled(w.queue), 30);
	EXPECT(0, "retried 1", "parked", "retry", "--reason", "too_large", "--yes");
	WAIT_FOR(sql_int(&w,
			 "SELECT count(*) FROM parked WHERE state = 'failed' AND detail = "
			 "'body of 200000 bytes is over max_message_bytes = 65536'") == 1,
		30);
	ck_assert_int_eq(effects(&w), 1);
	ck_assert_int_eq(daemon_stop(&d), 0);
	config_main(&w, "%s", "");
	daemon_start_main(&w, &d);
	EXPECT(0, "retried 1", "parked", "retry", "--reason", "too_large", "--yes");
	WAIT_FOR(effects(&w) == 2 && parked(&w, NULL) == 0, 30);
	ck_assert_int_eq(sql_int(&w, "SELECT size FROM effect WHERE key = 'large'"), 200000);
	/* Under its key, as if it had come now: a copy is known. */
	publish_large(&w, "large", 200000);
	publish_confirm(&w);
	WAIT_FOR(queue_state(w.queue).ready == 0 && is_settled(w.queue), 30);
	ck_assert_int_eq(effects(&w), 2);
	ck_assert_int_eq(markers(&w), 2);
	world_end(&w);
}
END_TEST

static const char by_order[] = "    key: [json:/order]\n    fingerprint: body\n";

START_TEST(a_message_without_key_gets_the_key_that_a_mended_rule_finds)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "mended");
	config_main(&w, "%s", "");
	publish(&w, w.queue, &(struct msg){.body = "{\"order\": 1}"});
	publish(&w, w.queue, &(struct msg){.body = "{\"order\": 1}"});
	publish(&w, w.queue, &(struct msg){.body = "{\"order\": 2}"});
	publish(&w, w.queue, &(struct msg){.body = "{\"order\": 2, \"x\": 1}"});
	publish(&w, w.queue, &(struct msg){.body = "{}"});
	publish_confirm(&w);
	daemon_start_main(&w, &d);
	WAIT_FOR(parked(&w, "no_key") == 5 && is_settled(w.queue), 30);
	EXPECT(0, "retried 5", "parked", "retry", "--all", "--yes");
	WAIT_FOR(
		sql_int(&w,
			"SELECT count(*) FROM parked WHERE state = 'failed' AND attempts = 1") == 5,
		30);
	ck_assert_int_eq(daemon_stop(&d), 0);
	config_main(&w, "%s", by_order);
	EXPECT(0, "accepted", "consumers", "accept", "main");
	daemon_start_main(&w, &d);
	EXPECT(0, "retried 5", "parked", "retry", "--all", "--yes");
	WAIT_FOR(effects(&w) == 2 &&
			sql_int(&w, "SELECT count(*) FROM parked WHERE state = 'waiting'") == 0,
		30);
	ck_assert_str_eq(sql_text(&w,
				 "SELECT string_agg(concat_ws(' ', reason, state), ',' ORDER BY "
				 "reason) FROM parked"),
		"mismatch mismatch,no_key failed");
	ck_assert_int_eq(markers(&w), 2);
	world_end(&w);
}
END_TEST

UNIT_SUITE_TIMEOUT(120, "integration/operators",
	a_retry_gives_the_handler_exactly_what_the_first_delivery_gave,
	a_message_is_discarded_restored_and_tried_again_with_all_its_attempts,
	a_session_lost_half_way_is_an_error_that_says_so,
	a_waiting_message_is_due_now_and_keeps_its_attempts,
	what_cannot_be_tried_again_is_refused_with_what_to_do,
	what_a_worker_has_in_hand_is_refused_and_not_waited_for,
	a_group_is_counted_shown_and_only_done_when_that_is_meant,
	a_group_of_many_is_done_in_pieces_and_whole,
	a_body_that_was_too_large_is_too_large_again_until_the_limit_is_raised,
	a_message_without_key_gets_the_key_that_a_mended_rule_finds)

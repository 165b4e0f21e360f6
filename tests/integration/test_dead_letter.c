/* SPDX-License-Identifier: MIT */
/* Messages that failed for good are sent on to those who watch queues, and never lost by it. */
#include "harness.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char dead[96]; /* the queue that dead letters are meant for */

/* A world with a queue for dead letters, and a consumer that sends there. */
static void begin(struct world *w, const char *name)
{
	world_begin(w, name);
	(void)snprintf(dead, sizeof dead, "%s-dead", w->name);
	queue_declare(w, dead, NULL);
	config_main(w, "    dead_letter: {exchange: \"\", routing_key: %s}\n", dead);
}

static bool is_drained(struct world *w)
{
	return is_settled(w->queue) && sql_int(w, "SELECT count(*) FROM outgoing") == 0;
}

/* ---- what arrived ---------------------------------------------------------------- */

static void has_header(const amqp_message_t *m, const char *name, const char *text)
{
	const amqp_field_value_t *v = message_header(m, name);
	ck_assert_msg(v != NULL && v->kind == AMQP_FIELD_KIND_UTF8, "%s", name);
	is_text(v->value.bytes, text);
}

static int64_t number_of(const amqp_message_t *m, const char *name)
{
	const amqp_field_value_t *v = message_header(m, name);
	ck_assert_msg(v != NULL && v->kind == AMQP_FIELD_KIND_I64, "%s", name);
	return v->value.i64;
}

/* Takes n messages out of a queue; their ids must be PREFIX0…, each once. */
static void fetch_each_once(struct world *w, const char *queue, const char *prefix, int n)
{
	bool *seen = calloc((size_t)n, sizeof *seen);
	for (int i = 0; i < n; i++) {
		amqp_message_t m = message_get(w, queue);
		char id[96];
		(void)snprintf(id, sizeof id, "%.*s", (int)m.properties.message_id.len,
			(const char *)m.properties.message_id.bytes);
		ck_assert_int_eq(strncmp(id, prefix, strlen(prefix)), 0);
		int number = (int)strtol(id + strlen(prefix), NULL, 10);
		ck_assert_msg(number >= 0 && number < n && !seen[number], "%s", id);
		seen[number] = true;
		amqp_destroy_message(&m);
	}
	ck_assert_int_eq(queue_state(queue).ready, 0);
	free(seen);
}

static void publish_bad(struct world *w, const char *prefix, int n, const char *act)
{
	for (int i = 0; i < n; i++) {
		char id[64];
		(void)snprintf(id, sizeof id, "%s%d", prefix, i);
		publish(w, w->queue, &(struct msg){.id = id, .act = act});
	}
	publish_confirm(w);
}

/* ---- the way it goes ------------------------------------------------------------- */

START_TEST(a_message_that_failed_is_kept_and_told_with_its_own_id_and_why)
{
	struct world w;
	struct daemon d;
	begin(&w, "told");
	daemon_start_main(&w, &d);
	publish(&w, w.queue, &(struct msg){.id = "bad", .body = "poison", .act = "reject"});
	publish_many(&w, w.queue, "good", 5);
	amqp_message_t m = message_get(&w, dead);
	is_text(m.properties.message_id, "bad");
	is_text(m.body, "poison");
	has_header(&m, "act", "reject");
	has_header(&m, "inboxd-consumer", "main");
	has_header(&m, "inboxd-reason", "rejected");
	has_header(&m, "inboxd-detail", "never");
	has_header(&m, "inboxd-queue", w.queue);
	has_header(&m, "inboxd-exchange", "");
	has_header(&m, "inboxd-routing-key", w.queue);
	ck_assert_int_eq(number_of(&m, "inboxd-attempts"), 1);
	ck_assert_int_eq(number_of(&m, "inboxd-parked-id"), sql_int(&w, "SELECT id FROM parked"));
	ck_assert_uint_eq(m.properties.delivery_mode, 2);
	amqp_destroy_message(&m);
	WAIT_FOR(is_drained(&w), 30);
	ck_assert_int_eq(parked(&w, "rejected"), 1);
	ck_assert_int_eq(effects(&w), 5);
	ck_assert_int_eq(queue_state(dead).ready, 0);
	world_end(&w);
}
END_TEST

/* By the consumer's own word (reject, no key), when attempts are used up, after a crash. */
START_TEST(whatever_makes_a_message_failed_it_is_told_once_and_a_mismatch_is_not)
{
	struct world w;
	struct daemon d;
	begin(&w, "ways");
	config_main(&w,
		"    dead_letter: {exchange: \"\", routing_key: %s}\n    crash_limit: 2\n"
		"    retry: {immediate: 1, delays: [100ms]}\n",
		dead);
	daemon_start_main(&w, &d);
	publish(&w, w.queue, &(struct msg){.id = "bad0", .act = "reject"});
	publish(&w, w.queue, &(struct msg){.id = "bad1", .act = "retry:99"});
	publish(&w, w.queue, &(struct msg){.id = "bad2", .act = "crash"});
	publish(&w, w.queue, &(struct msg){.id = "bad3", .act = "sql"});
	publish(&w, w.queue, &(struct msg){.id = "good"});
	publish(&w, w.queue, &(struct msg){.id = "good", .body = "other"});
	publish_confirm(&w);
	WAIT_FOR(queue_state(dead).ready == 4, 60);
	WAIT_FOR(is_drained(&w), 30);
	fetch_each_once(&w, dead, "bad", 4);
	ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM parked WHERE state = 'failed'"), 4);
	ck_assert_int_eq(parked(&w, "mismatch"), 1);
	world_end(&w);
}
END_TEST

START_TEST(without_a_routing_key_it_goes_by_the_messages_own)
{
	struct world w;
	struct daemon d;
	begin(&w, "own_key");
	queue_bind(&w, dead, "amq.direct", w.queue);
	config_main(&w, "%s", "    dead_letter: {exchange: amq.direct}\n");
	daemon_start_main(&w, &d);
	publish_bad(&w, "bad", 3, "reject");
	WAIT_FOR(queue_state(dead).ready == 3, 30);
	fetch_each_once(&w, dead, "bad", 3);
	world_end(&w);
}
END_TEST

START_TEST(a_body_too_large_to_be_handled_is_told_by_its_size)
{
	struct world w;
	struct daemon d;
	static char body[50000];
	begin(&w, "large");
	config_main(&w,
		"    dead_letter: {exchange: \"\", routing_key: %s}\n    max_message_bytes: 1KiB\n",
		dead);
	daemon_start_main(&w, &d);
	memset(body, 'b', sizeof body);
	publish(&w, w.queue, &(struct msg){.id = "large", .body = body, .size = sizeof body});
	publish_confirm(&w);
	amqp_message_t m = message_get(&w, dead);
	is_text(m.properties.message_id, "large");
	ck_assert_uint_eq(m.body.len, 0);
	ck_assert_int_eq(number_of(&m, "inboxd-body-size"), sizeof body);
	has_header(&m, "inboxd-reason", "too_large");
	amqp_destroy_message(&m);
	WAIT_FOR(is_drained(&w), 30);
	ck_assert_int_eq(sql_int(&w, "SELECT length(parked_body(id)) FROM parked"), sizeof body);
	world_end(&w);
}
END_TEST

START_TEST(two_daemons_tell_each_message_once)
{
	struct world w;
	struct daemon d, e;
	begin(&w, "two");
	config_main(&w,
		"    dead_letter: {exchange: \"\", routing_key: %s}\n"
		"    breaker: {failures: 1000}\n",
		dead);
	daemon_start_main(&w, &d);
	config_write(&w, "second", "",
		"  main:\n    queue: %s\n    handler: effect\n    options: {table: %s.effect}\n"
		"    dead_letter: {exchange: \"\", routing_key: %s}\n    workers: 2\n"
		"    breaker: {failures: 1000}\n",
		w.queue, w.name, dead);
	daemon_start(&w, "second", &e);
	WAIT_FOR(queue_state(w.queue).consumers == 2, 20);
	publish_bad(&w, "bad", 60, "reject");
	WAIT_FOR(is_drained(&w) && queue_state(dead).ready >= 60, 60);
	fetch_each_once(&w, dead, "bad", 60);
	ck_assert_int_eq(parked(&w, "rejected"), 60);
	world_end(&w);
}
END_TEST

/* ---- where it cannot go ---------------------------------------------------------- */

static void exchange_declare(struct world *w, const char *name)
{
	(void)amqp_exchange_declare(w->broker, 2, amqp_cstring_bytes(name),
		amqp_cstring_bytes("direct"), 0, 1, 0, 0, amqp_empty_table);
	ck_assert_int_eq(amqp_get_rpc_reply(w->broker).reply_type, AMQP_RESPONSE_NORMAL);
}

static void exchange_delete(struct world *w, const char *name)
{
	(void)amqp_exchange_delete(w->broker, 2, amqp_cstring_bytes(name), 0);
	ck_assert_int_eq(amqp_get_rpc_reply(w->broker).reply_type, AMQP_RESPONSE_NORMAL);
}

static int waiting_for(struct world *w, const char *error)
{
	return (int)sql_int(w, "SELECT count(*) FROM outgoing WHERE error LIKE '%%%s%%'", error);
}

START_TEST(what_cannot_be_routed_stays_with_one_warning_and_goes_once_there_is_a_queue)
{
	struct world w;
	struct daemon d;
	char dlx[96];
	begin(&w, "unroutable");
	(void)snprintf(dlx, sizeof dlx, "%s-dlx", w.name);
	config_main(&w, "    dead_letter: {exchange: %s, routing_key: k}\n", dlx);
	daemon_start_main(&w, &d);
	publish_bad(&w, "bad", 3, "reject");

	/* No such exchange, which closes the channel; the consumer's own goes on. */
	WAIT_FOR(waiting_for(&w, "NOT_FOUND") == 3, 30);
	ck_assert_int_eq(log_lines(&d, "event=publish_failed"), 1);
	publish_many(&w, w.queue, "good", 10);
	WAIT_FOR(effects(&w) == 10 && is_settled(w.queue), 30);
	ck_assert_int_eq(log_lines(&d, "event=channel_closed"), 0);

	/* An exchange without a queue. */
	exchange_declare(&w, dlx);
	WAIT_FOR(waiting_for(&w, "NO_ROUTE") == 3, 60);
	ck_assert_int_eq(log_lines(&d, "event=publish_failed"), 2);
	ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM outgoing_view WHERE attempts > 1"), 3);

	queue_bind(&w, dead, dlx, "k");
	WAIT_FOR(is_drained(&w), 60);
	fetch_each_once(&w, dead, "bad", 3);
	ck_assert_int_eq(log_lines(&d, "event=publish_failed"), 2);
	ck_assert_int_eq(parked(&w, "rejected"), 3);
	exchange_delete(&w, dlx);
	world_end(&w);
}
END_TEST

/* The broker's own way would drop them: its exchange does not exist. */
START_TEST(nothing_is_lost_whatever_dead_letter_exchange_the_queue_has)
{
	struct world w;
	struct daemon d;
	begin(&w, "no_dlx");
	queue_delete(&w, w.queue);
	amqp_table_entry_t nowhere = entry_text("x-dead-letter-exchange", "nope");
	queue_declare_with(&w, w.queue, 1, &nowhere);
	daemon_start_main(&w, &d);
	publish_bad(&w, "bad", 5, "reject");
	WAIT_FOR(queue_state(dead).ready == 5, 30);
	WAIT_FOR(is_drained(&w), 30);
	fetch_each_once(&w, dead, "bad", 5);
	ck_assert_int_eq(parked(&w, "rejected"), 5);
	world_end(&w);
}
END_TEST

static void declare_full_queue(struct world *w, const char *queue)
{
	amqp_table_entry_t arguments[] = {
		entry_int("x-max-length", 1), entry_text("x-overflow", "reject-publish")};
	queue_delete(w, queue);
	queue_declare_with(w, queue, 2, arguments);
}

START_TEST(a_full_queue_gets_its_letters_as_it_is_emptied_and_none_is_lost)
{
	struct world w;
	struct daemon d;
	begin(&w, "full");
	declare_full_queue(&w, dead);
	daemon_start_main(&w, &d);
	publish_bad(&w, "bad", 3, "reject");
	WAIT_FOR(waiting_for(&w, "refused") == 2, 30);
	ck_assert_int_eq(queue_state(dead).ready, 1);
	ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM outgoing"), 2);
	ck_assert_int_eq(parked(&w, "rejected"), 3);
	WAIT_FOR(log_lines(&d, "event=publish_failed") == 1, 10);
	fetch_each_once(&w, dead, "bad", 3);
	WAIT_FOR(is_drained(&w), 30);
	ck_assert_int_eq(queue_state(dead).ready, 0);
	world_end(&w);
}
END_TEST

START_TEST(a_mended_configuration_holds_for_what_waits)
{
	struct world w;
	struct daemon d;
	begin(&w, "mended");
	config_main(&w, "%s", "    dead_letter: {exchange: mistyped, routing_key: k}\n");
	daemon_start_main(&w, &d);
	publish_bad(&w, "bad", 2, "reject");
	WAIT_FOR(waiting_for(&w, "NOT_FOUND") == 2, 30);
	config_main(&w, "    dead_letter: {exchange: \"\", routing_key: %s}\n", dead);
	ck_assert_int_eq(kill(d.pid, SIGHUP), 0);
	WAIT_FOR(is_drained(&w), 60);
	fetch_each_once(&w, dead, "bad", 2);
	world_end(&w);
}
END_TEST

/* ---- what it looks like ---------------------------------------------------------- */

static amqp_field_value_t text_value(const char *text)
{
	return (amqp_field_value_t){
		.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = amqp_cstring_bytes(text)};
}

START_TEST(a_reason_of_300_kb_and_a_header_of_125_kb_lose_no_connection_and_no_letter)
{
	struct world w;
	struct daemon d;
	static char large[125000];
	begin(&w, "huge");
	daemon_start_main(&w, &d);
	publish(&w, w.queue, &(struct msg){.id = "bad0", .act = "reject-long"});
	memset(large, 'h', sizeof large);
	amqp_table_entry_t entries[] = {{amqp_cstring_bytes("act"), text_value("reject-long")},
		{amqp_cstring_bytes("large"),
			{.kind = AMQP_FIELD_KIND_BYTES,
				.value.bytes = {.len = sizeof large, .bytes = large}}}};
	const amqp_basic_properties_t p = {
		._flags = AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_HEADERS_FLAG,
		.message_id = amqp_cstring_bytes("bad1"),
		.headers = {.num_entries = 2, .entries = entries}};
	publish(&w, w.queue, &(struct msg){.properties = &p});
	publish_confirm(&w);
	WAIT_FOR(queue_state(dead).ready == 2, 60);
	for (int i = 0; i < 2; i++) {
		amqp_message_t m = message_get(&w, dead);
		const amqp_field_value_t *detail = message_header(&m, "inboxd-detail");
		ck_assert_ptr_nonnull(detail);
		ck_assert_uint_gt(detail->value.bytes.len, 100);
		ck_assert_uint_le(detail->value.bytes.len, 8192);
		ck_assert_ptr_null(memchr(detail->value.bytes.bytes, 0, detail->value.bytes.len));
		ck_assert_ptr_null(
			memchr(detail->value.bytes.bytes, 0xff, detail->value.bytes.len));
		if (i == 1)
			ck_assert_uint_eq(
				message_header(&m, "large")->value.bytes.len, sizeof large);
		amqp_destroy_message(&m);
	}
	WAIT_FOR(is_drained(&w), 30);
	ck_assert_int_eq(log_lines(&d, "event=publisher_down"), 0);
	ck_assert_int_eq(log_lines(&d, "event=publish_failed"), 0);
	world_end(&w);
}
END_TEST

/* Same name, kind and bytes: both as the broker gave them to us. */
static void same_headers(const amqp_table_t *sent, const amqp_message_t *m)
{
	char a[4096], b[4096];
	for (int i = 0; i < sent->num_entries; i++) {
		const amqp_table_t one = {.num_entries = 1, .entries = &sent->entries[i]};
		size_t a_size = 0, b_size = 0;
		bool found = false;
		ck_assert_int_eq(amqp_encode_table((amqp_bytes_t){sizeof a, a},
					 (amqp_table_t *)(uintptr_t)&one, &a_size),
			AMQP_STATUS_OK);
		for (int k = 0; k < m->properties.headers.num_entries && !found; k++) {
			const amqp_table_t other = {
				.num_entries = 1, .entries = &m->properties.headers.entries[k]};
			b_size = 0;
			ck_assert_int_eq(amqp_encode_table((amqp_bytes_t){sizeof b, b},
						 (amqp_table_t *)(uintptr_t)&other, &b_size),
				AMQP_STATUS_OK);
			found = a_size == b_size && memcmp(a, b, a_size) == 0;
		}
		ck_assert_msg(found, "%.*s", (int)sent->entries[i].key.len,
			(const char *)sent->entries[i].key.bytes);
	}
}

START_TEST(all_properties_and_nested_headers_arrive_or_are_told)
{
	struct world w;
	struct daemon d;
	begin(&w, "whole");
	amqp_field_value_t items[] = {{.kind = AMQP_FIELD_KIND_U16, .value.u16 = 65535},
		{.kind = AMQP_FIELD_KIND_VOID}, text_value("x")};
	amqp_table_entry_t inner[] = {
		{amqp_cstring_bytes("list"),
			{.kind = AMQP_FIELD_KIND_ARRAY,
				.value.array = {.num_entries = 3, .entries = items}}},
		{amqp_cstring_bytes("real"), {.kind = AMQP_FIELD_KIND_F64, .value.f64 = 0.1}}};
	amqp_table_entry_t entries[] = {{amqp_cstring_bytes("act"), text_value("reject")},
		{amqp_cstring_bytes("nested"),
			{.kind = AMQP_FIELD_KIND_TABLE,
				.value.table = {.num_entries = 2, .entries = inner}}},
		{amqp_cstring_bytes("time"),
			{.kind = AMQP_FIELD_KIND_TIMESTAMP, .value.u64 = 1700000000}},
		{amqp_cstring_bytes("small"), {.kind = AMQP_FIELD_KIND_I8, .value.i8 = -5}}};
	const amqp_basic_properties_t p = {._flags = 0xfff8,
		.content_type = amqp_cstring_bytes("text/plain"),
		.content_encoding = amqp_cstring_bytes("identity"),
		.headers = {.num_entries = 4, .entries = entries},
		.delivery_mode = 1,
		.priority = 7,
		.correlation_id = amqp_cstring_bytes("c-1"),
		.reply_to = amqp_cstring_bytes("answers"),
		.expiration = amqp_cstring_bytes("3600000"),
		.message_id = amqp_cstring_bytes("p1"),
		.timestamp = 1700000001,
		.type = amqp_cstring_bytes("t"),
		.user_id = amqp_cstring_bytes("inboxd"),
		.app_id = amqp_cstring_bytes("a")};
	publish(&w, w.queue, &(struct msg){.body = "whole", .properties = &p});
	publish_confirm(&w);
	daemon_start_main(&w, &d);
	amqp_message_t m = message_get(&w, dead);
	const amqp_basic_properties_t *got = &m.properties;
	is_text(m.body, "whole");
	is_text(got->message_id, "p1");
	is_text(got->content_type, "text/plain");
	is_text(got->content_encoding, "identity");
	is_text(got->correlation_id, "c-1");
	is_text(got->reply_to, "answers");
	is_text(got->type, "t");
	is_text(got->app_id, "a");
	ck_assert_uint_eq(got->priority, 7);
	ck_assert_uint_eq(got->timestamp, 1700000001);
	ck_assert_uint_eq(got->delivery_mode, 2);
	ck_assert_uint_eq(got->_flags & (AMQP_BASIC_USER_ID_FLAG | AMQP_BASIC_EXPIRATION_FLAG), 0);
	has_header(&m, "inboxd-user-id", "inboxd");
	has_header(&m, "inboxd-expiration", "3600000");
	same_headers(&p.headers, &m);
	amqp_destroy_message(&m);
	world_end(&w);
}
END_TEST

START_TEST(moved_back_as_they_are_mended_ones_have_one_effect_and_all_their_tries)
{
	struct world w;
	struct daemon d;
	char act[400], mended[320];
	begin(&w, "replay");
	(void)snprintf(mended, sizeof mended, "%s/mended", w.dir);
	(void)snprintf(act, sizeof act, "retry-unless:%s", mended);
	config_main(&w,
		"    dead_letter: {exchange: \"\", routing_key: %s}\n"
		"    retry: {immediate: 1, delays: []}\n",
		dead);
	daemon_start_main(&w, &d);
	publish_bad(&w, "bad", 5, act);
	WAIT_FOR(queue_state(dead).ready == 5, 60);
	WAIT_FOR(is_drained(&w), 30);
	ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM parked WHERE attempts = 2"), 5);

	/* Not mended yet: they come back, once each. */
	ck_assert_int_eq(move_messages(&w, dead, w.queue), 5);
	WAIT_FOR(queue_state(dead).ready == 5, 60);
	WAIT_FOR(is_drained(&w), 30);
	ck_assert_int_eq(effects(&w), 0);

	touch(mended);
	ck_assert_int_eq(move_messages(&w, dead, w.queue), 5);
	WAIT_FOR(effects(&w) == 5 && parked(&w, NULL) == 0, 60);
	WAIT_FOR(is_drained(&w), 30);
	ck_assert_int_eq(effect_keys(&w), 5);
	ck_assert_int_eq(queue_state(dead).ready, 0);
	world_end(&w);
}
END_TEST

/* ---- in bad times ---------------------------------------------------------------- */

START_TEST(a_broker_with_an_alarm_keeps_letters_waiting_and_nothing_else)
{
	struct world w;
	struct daemon d;
	begin(&w, "alarm");
	publish_bad(&w, "bad", 3, "reject");
	publish_many(&w, w.queue, "good", 20);
	broker_alarm(true);
	daemon_start_main(&w, &d);
	WAIT_FOR(effects(&w) == 20 && parked(&w, "rejected") == 3 && is_settled(w.queue), 30);
	WAIT_FOR(log_lines(&d, "event=broker_blocked") == 1, 30);
	ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM outgoing"), 3);
	ck_assert_int_eq(queue_state(dead).ready, 0);
	broker_alarm(false);
	WAIT_FOR(is_drained(&w), 60);
	fetch_each_once(&w, dead, "bad", 3);
	ck_assert_int_eq(log_lines(&d, "event=channel_closed"), 0);
	ck_assert_int_eq(log_lines(&d, "event=broker_lost"), 0);
	world_end(&w);
}
END_TEST

START_TEST(a_stop_waits_for_no_alarm_and_the_letters_go_another_day)
{
	struct world w;
	struct daemon d;
	begin(&w, "alarm_stop");
	publish_bad(&w, "bad", 3, "reject");
	broker_alarm(true);
	daemon_start_main(&w, &d);
	WAIT_FOR(log_lines(&d, "event=broker_blocked") == 1, 30);
	WAIT_FOR(parked(&w, "rejected") == 3 && is_settled(w.queue), 30);
	int64_t begun = now_ms();
	ck_assert_int_eq(daemon_stop(&d), 0);
	ck_assert_int_lt(now_ms() - begun, (int64_t)(10000 * wait_factor()));
	broker_alarm(false);
	ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM outgoing"), 3);
	/* Two were not tried, and are there for anybody at once. */
	ck_assert_int_eq(
		sql_int(&w, "SELECT count(*) FROM outgoing WHERE next_at <= clock_timestamp()"), 2);
	sql(&w, "UPDATE outgoing SET next_at = clock_timestamp()");
	daemon_start_main(&w, &d);
	WAIT_FOR(is_drained(&w) && queue_state(dead).ready >= 3, 60);
	/* The one that lay before the broker's door may be there twice. */
	ck_assert_int_le(queue_state(dead).ready, 4);
	world_end(&w);
}
END_TEST

/* The worker is busy, so that the last word on the letter is still to be written down. */
START_TEST(a_consumer_killed_behind_the_confirm_sends_one_more_copy_at_most_with_the_same_ids)
{
	struct world w;
	struct daemon d;
	begin(&w, "killed");
	config_main(&w, "    dead_letter: {exchange: \"\", routing_key: %s}\n    batch: {max: 1}\n",
		dead);
	daemon_start_main(&w, &d);
	publish(&w, w.queue, &(struct msg){.id = "bad0", .act = "reject"});
	publish(&w, w.queue, &(struct msg){.id = "busy", .act = "sleep:5000"});
	publish_confirm(&w);
	WAIT_FOR(queue_state(dead).ready == 1, 30);
	ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM outgoing"), 1);
	role_kill(&d, "inboxd: consumer main");
	ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM outgoing"), 1);
	sql(&w, "UPDATE outgoing SET next_at = clock_timestamp()"); /* its lease runs out */
	WAIT_FOR(is_drained(&w) && effects(&w) == 1, 60);
	ck_assert_int_eq(queue_state(dead).ready, 2);
	for (int i = 0; i < 2; i++) {
		amqp_message_t m = message_get(&w, dead);
		is_text(m.properties.message_id, "bad0");
		ck_assert_int_eq(
			number_of(&m, "inboxd-parked-id"), sql_int(&w, "SELECT id FROM parked"));
		amqp_destroy_message(&m);
	}
	world_end(&w);
}
END_TEST

START_TEST(a_user_who_may_not_write_keeps_the_letter_until_it_may)
{
	struct world w;
	struct daemon d;
	begin(&w, "forbidden");
	user_make(w.name, "x");
	user_permit(w.name, "", ".*");
	char server[256];
	(void)snprintf(server, sizeof server, "brokers: {default: {uri: \"amqp://%s:x@%s\"}}\n",
		w.name, strrchr(environment("INBOXD_TEST_AMQP_URI"), '@') + 1);
	config_write(&w, "inboxd", server,
		"  main:\n    queue: %s\n    handler: effect\n    options: {table: %s.effect}\n"
		"    dead_letter: {exchange: amq.direct, routing_key: k}\n",
		w.queue, w.name);
	queue_bind(&w, dead, "amq.direct", "k");
	daemon_start_main(&w, &d);
	publish_bad(&w, "bad", 2, "reject");
	WAIT_FOR(waiting_for(&w, "ACCESS_REFUSED") == 2, 30);
	ck_assert_int_eq(log_lines(&d, "event=publish_failed"), 1);
	ck_assert_int_eq(log_lines(&d, "403 ACCESS_REFUSED"), 1);
	user_permit(w.name, ".*", ".*");
	WAIT_FOR(is_drained(&w), 60);
	fetch_each_once(&w, dead, "bad", 2);
	ck_assert_int_eq(daemon_stop(&d), 0);
	world_end(&w);
}
END_TEST

/* ---- rows ------------------------------------------------------------------------ */

static void set_state(struct world *w, const char *state)
{
	sql(w, "UPDATE parked SET state = '%s', next_at = %s", state,
		strcmp(state, "waiting") == 0 ? "clock_timestamp() + interval '1 hour'" : "NULL");
}

START_TEST(a_letter_that_waits_goes_with_what_it_tells_of)
{
	struct world w;
	struct daemon d;
	begin(&w, "gone");
	config_main(&w, "%s", "    dead_letter: {exchange: nowhere, routing_key: k}\n");
	daemon_start_main(&w, &d);
	publish_bad(&w, "bad", 1, "reject");
	WAIT_FOR(waiting_for(&w, "NOT_FOUND") == 1, 30);
	ck_assert_int_eq(daemon_stop(&d), 0);
	static const char *const otherwise[] = {"waiting", "mismatch"};
	for (size_t i = 0; i < sizeof otherwise / sizeof otherwise[0]; i++) {
		set_state(&w, otherwise[i]);
		ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM outgoing"), 0);
		set_state(&w, "failed");
		ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM outgoing"), 1);
		set_state(&w, "failed");
		ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM outgoing"), 1);
	}
	/* An outcome under an older token says nothing. */
	sql(&w, "SELECT outgoing_sent(id, token - 1) FROM outgoing");
	sql(&w, "SELECT outgoing_postponed(id, token - 1, 5, 'x') FROM outgoing");
	ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM outgoing WHERE error = ''"), 1);
	/* What an operator puts aside and takes up again has not failed once more. */
	set_state(&w, "discarded");
	ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM outgoing"), 0);
	set_state(&w, "failed");
	ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM outgoing"), 0);
	set_state(&w, "waiting");
	set_state(&w, "failed");
	ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM outgoing"), 1);
	sql(&w, "DELETE FROM parked");
	ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM outgoing"), 0);
	world_end(&w);
}
END_TEST

UNIT_SUITE_TIMEOUT(180, "integration/dead_letter",
	a_message_that_failed_is_kept_and_told_with_its_own_id_and_why,
	whatever_makes_a_message_failed_it_is_told_once_and_a_mismatch_is_not,
	without_a_routing_key_it_goes_by_the_messages_own,
	a_body_too_large_to_be_handled_is_told_by_its_size, two_daemons_tell_each_message_once,
	what_cannot_be_routed_stays_with_one_warning_and_goes_once_there_is_a_queue,
	nothing_is_lost_whatever_dead_letter_exchange_the_queue_has,
	a_full_queue_gets_its_letters_as_it_is_emptied_and_none_is_lost,
	a_mended_configuration_holds_for_what_waits,
	a_reason_of_300_kb_and_a_header_of_125_kb_lose_no_connection_and_no_letter,
	all_properties_and_nested_headers_arrive_or_are_told,
	moved_back_as_they_are_mended_ones_have_one_effect_and_all_their_tries,
	a_broker_with_an_alarm_keeps_letters_waiting_and_nothing_else,
	a_stop_waits_for_no_alarm_and_the_letters_go_another_day,
	a_consumer_killed_behind_the_confirm_sends_one_more_copy_at_most_with_the_same_ids,
	a_user_who_may_not_write_keeps_the_letter_until_it_may,
	a_letter_that_waits_goes_with_what_it_tells_of)

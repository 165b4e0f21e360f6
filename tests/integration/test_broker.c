/* SPDX-License-Identifier: MIT */
/* What a broker does to its consumers: heartbeats, deleted queues, closed channels and connections,
 * queues of other types. */
#include "harness.h"

#include <stdio.h>
#include <string.h>

START_TEST(a_handler_that_sleeps_three_heartbeats_keeps_its_connection)
{
	struct world w;
	struct daemon d;
	char before[128];
	world_begin(&w, "heartbeat");
	char quick[512];
	(void)snprintf(quick, sizeof quick, "brokers: {quick: {uri: \"%s\", heartbeat: 2s}}\n",
		environment("INBOXD_TEST_AMQP_URI"));
	config_write(&w, "inboxd", quick,
		"  main:\n    queue: %s\n    handler: effect\n    broker: quick\n"
		"    options: {table: %s.effect}\n",
		w.queue, w.name);
	daemon_start_main(&w, &d);
	(void)snprintf(before, sizeof before, "%s", consuming_connection(w.queue));
	ck_assert_msg(strstr(before, "{connection,<") != NULL, "not one consumer: %s", before);
	publish(&w, w.queue, &(struct msg){.id = "slow", .act = "sleep:6500"});
	publish_confirm(&w);
	WAIT_FOR(effects(&w) == 1, 20);
	WAIT_FOR(is_settled(w.queue), 10);
	ck_assert_str_eq(consuming_connection(w.queue), before);
	world_end(&w);
}
END_TEST

START_TEST(a_queue_that_is_deleted_and_made_again_is_consumed_within_30_s)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "deleted");
	daemon_start_main(&w, &d);
	publish_many(&w, w.queue, "a", 10);
	WAIT_FOR(effects(&w) == 10, 20);
	queue_delete(&w, w.queue);
	sleep_ms(1500);
	queue_declare(&w, w.queue, NULL);
	WAIT_FOR(queue_state(w.queue).consumers == 1, 30);
	publish_many(&w, w.queue, "b", 10);
	WAIT_FOR(effects(&w) == 20, 20);
	ck_assert_int_eq(log_lines(&d, "level=error"), 0);
	world_end(&w);
}
END_TEST

START_TEST(a_connection_closed_by_the_operator_comes_back)
{
	enum { ROUNDS = 5, EACH = 200 };
	struct world w;
	struct daemon d;
	world_begin(&w, "closed");
	config_main(&w, "%s", "    workers: 2\n");
	daemon_start_main(&w, &d);
	for (int round = 0; round < ROUNDS; round++) {
		char prefix[32];
		(void)snprintf(prefix, sizeof prefix, "r%d-", round);
		publish_many(&w, w.queue, prefix, EACH);
		WAIT_FOR(queue_state(w.queue).consumers == 1, 40);
		close_consuming_connection(w.queue);
		WAIT_FOR(effects(&w) == EACH * (round + 1), 40);
	}
	WAIT_FOR(is_settled(w.queue), 20);
	/* Where the last round was done before its connection was closed, we are still on the way
	 * back. */
	WAIT_FOR(queue_state(w.queue).consumers == 1, 20);
	ck_assert_int_eq(effect_keys(&w), EACH * ROUNDS);
	ck_assert_int_eq(queue_state(w.queue).consumers, 1);
	ck_assert_int_ge(log_lines(&d, "320"), ROUNDS);
	world_end(&w);
}
END_TEST

/* The broker closes the channel, not the connection, when an acknowledgement is long in coming. */
START_TEST(a_channel_closed_for_a_late_acknowledgement_is_opened_again)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "late");
	(void)broker_eval("application:set_env(rabbit, consumer_timeout, 2000), "
			  "application:set_env(rabbit, channel_tick_interval, 500)");
	daemon_start_main(&w, &d);
	publish(&w, w.queue, &(struct msg){.id = "late", .act = "sleep:5000"});
	publish_confirm(&w);
	WAIT_FOR(effects(&w) == 1, 30);
	WAIT_FOR(is_settled(w.queue), 30);
	publish_many(&w, w.queue, "after", 10);
	WAIT_FOR(effects(&w) == 11 && is_settled(w.queue), 30);
	ck_assert_int_eq(queue_state(w.queue).consumers, 1);
	ck_assert_int_ge(log_lines(&d, "406"), 1);
	world_end(&w);
}
END_TEST

START_TEST(quorum_and_lazy_queues_are_consumed_alike)
{
	struct world w;
	struct daemon d;
	char quorum[96], lazy[96];
	world_begin(&w, "types");
	(void)snprintf(quorum, sizeof quorum, "%s-quorum", w.name);
	(void)snprintf(lazy, sizeof lazy, "%s-lazy", w.name);
	queue_declare(&w, quorum, "quorum");
	config_write(&w, "inboxd", "",
		"  quorum: {queue: %s, handler: effect, options: {table: %s.effect}}\n"
		"  lazy:\n    queue: %s\n    handler: effect\n    options: {table: %s.effect}\n"
		"    topology: {arguments: {x-queue-mode: lazy}}\n",
		quorum, w.name, lazy, w.name);
	daemon_start(&w, "inboxd", &d);
	WAIT_FOR(queue_state(quorum).consumers == 1 && queue_state(lazy).consumers == 1, 30);
	for (int copy = 0; copy < 2; copy++) {
		publish_many(&w, quorum, "q", 500);
		publish_many(&w, lazy, "l", 500);
	}
	WAIT_FOR(is_settled(quorum) && is_settled(lazy), 30);
	ck_assert_int_eq(effects(&w), 1000);
	ck_assert_int_eq(effect_keys(&w), 1000);
	queue_delete(&w, lazy);
	world_end(&w);
}
END_TEST

START_TEST(a_list_of_brokers_is_tried_in_turn)
{
	struct world w;
	struct daemon d;
	char brokers[512];
	world_begin(&w, "turn");
	/* Nothing listens on the first. */
	(void)snprintf(brokers, sizeof brokers,
		"brokers: {two: {uri: [\"amqp://127.0.0.1:1\", \"%s\"]}}\n",
		environment("INBOXD_TEST_AMQP_URI"));
	config_write(&w, "inboxd", brokers,
		"  main: {queue: %s, handler: effect, broker: two, options: {table: %s.effect}}\n",
		w.queue, w.name);
	daemon_start_main(&w, &d);
	publish_many(&w, w.queue, "a", 10);
	WAIT_FOR(effects(&w) == 10 && is_settled(w.queue), 20);
	world_end(&w);
}
END_TEST

UNIT_SUITE_TIMEOUT(180, "integration/broker",
	a_handler_that_sleeps_three_heartbeats_keeps_its_connection,
	a_queue_that_is_deleted_and_made_again_is_consumed_within_30_s,
	a_connection_closed_by_the_operator_comes_back,
	a_channel_closed_for_a_late_acknowledgement_is_opened_again,
	quorum_and_lazy_queues_are_consumed_alike, a_list_of_brokers_is_tried_in_turn)

/* SPDX-License-Identifier: MIT */
/* Ending: work in hand is finished, the rest is given back untouched, and nobody waits longer than
 * told. */
#include "harness.h"

#include <signal.h>
#include <stdio.h>

START_TEST(sigterm_finishes_what_is_in_hand_and_gives_the_rest_back)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "drain");
	config_main(&w, "%s", "    prefetch: 50\n    batch: {max: 1}\n");
	for (int i = 0; i < 60; i++) {
		char id[] = {'m', (char)('0' + i / 10), (char)('0' + i % 10), '\0'};
		publish(&w, w.queue, &(struct msg){.id = id, .act = "sleep:1000"});
	}
	publish_confirm(&w);
	daemon_start_main(&w, &d);
	WAIT_FOR(effects(&w) == 1, 10);
	int64_t begun = now_ms();
	ck_assert_int_eq(daemon_stop(&d), 0);
	ck_assert_int_lt(now_ms() - begun, (int64_t)(3000 * wait_factor()));
	/* What was running when the signal came is committed, and nothing was begun after it. */
	int64_t done = effects(&w);
	ck_assert_int_ge(done, 1);
	ck_assert_int_le(done, 2);
	struct queue_state s = queue_state(w.queue);
	ck_assert_int_eq(s.ready, 60 - done);
	ck_assert_int_eq(s.unacked, 0);
	ck_assert_int_eq(markers(&w), done);
	WAIT_FOR(session_size(&d) == 0, 5);
	world_end(&w);
}
END_TEST

/* One worker and nothing that fails: also what was given back keeps its place. */
static void check_order(const char *name, const char *type)
{
	enum { N = 60 };
	struct world w;
	struct daemon d;
	world_begin(&w, name);
	queue_delete(&w, w.queue);
	queue_declare(&w, w.queue, type);
	config_write(&w, "inboxd", "",
		"  main: {queue: %s, handler: effect, prefetch: 50, batch: {max: 4}, "
		"options: {table: %s.effect, delay_ms: 50}}\n",
		w.queue, w.name);
	publish_many(&w, w.queue, "m", N);
	daemon_start(&w, "inboxd", &d);
	WAIT_FOR(effects(&w) >= 8, 20);
	ck_assert_int_eq(daemon_stop(&d), 0);
	ck_assert_int_lt(effects(&w), N - 8);
	WAIT_FOR(queue_state(w.queue).ready == N - effects(&w), 10);
	daemon_start(&w, "inboxd", &d);
	WAIT_FOR(effects(&w) >= N && is_settled(w.queue) && parked(&w, NULL) == 0, 60);
	ck_assert_str_eq(sql_text(&w,
				 "SELECT string_agg(key, ' ' ORDER BY seq) FROM effect"),
		sql_text(&w, "SELECT string_agg('m' || i, ' ' ORDER BY i) FROM generate_series(0, "
			     "59) i"));
	world_end(&w);
}

START_TEST(what_is_given_back_to_a_quorum_queue_runs_in_its_order_after_the_next_start)
{
	check_order("orderq", "quorum");
}
END_TEST

START_TEST(what_is_given_back_to_a_classic_queue_runs_in_its_order_after_the_next_start)
{
	check_order("orderc", "classic");
}
END_TEST

static void restart(struct world *w, const char *file, struct daemon *d)
{
	int connected = log_lines(d, "event=connected");
	int64_t before = effects(w);
	WAIT_FOR(effects(w) > before + 50, 30);
	ck_assert_int_eq(daemon_stop(d), 0);
	daemon_start(w, file, d);
	WAIT_FOR(log_lines(d, "event=connected") > connected, 20);
}

START_TEST(two_daemons_restarted_in_turn_under_load_lose_and_repeat_nothing)
{
	enum { N = 3000 };
	static const char *const files[] = {"first", "second"};
	struct world w;
	struct daemon d[2];
	world_begin(&w, "rolling");
	for (int i = 0; i < 2; i++) {
		config_write(&w, files[i], "",
			"  main: {queue: %s, handler: effect, prefetch: 40, batch: {max: 10}, "
			"options: {table: %s.effect, delay_ms: 5}}\n",
			w.queue, w.name);
		daemon_start(&w, files[i], &d[i]);
	}
	publish_many(&w, w.queue, "m", N);
	for (int i = 0; i < 4; i++)
		restart(&w, files[i % 2], &d[i % 2]);
	ck_assert_int_lt(effects(&w), N); /* all of it was under load */
	WAIT_FOR(effects(&w) >= N && is_settled(w.queue), 60);
	ck_assert_int_eq(effect_keys(&w), N);
	ck_assert_int_eq(effects(&w), N);
	WAIT_FOR(parked(&w, NULL) == 0, 30);
	world_end(&w);
}
END_TEST

START_TEST(a_second_sigterm_forces_the_end_and_nothing_half_done_is_committed)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "force");
	daemon_start_main(&w, &d);
	publish(&w, w.queue, &(struct msg){.id = "long", .act = "sleep:20000"});
	publish_confirm(&w);
	WAIT_FOR(queue_state(w.queue).unacked == 1, 10);
	sleep_ms(300);
	ck_assert_int_eq(kill(d.pid, SIGTERM), 0);
	sleep_ms(1000);
	ck_assert_int_gt(session_size(&d), 1); /* it waits for the handler */
	ck_assert_int_eq(kill(d.pid, SIGTERM), 0);
	(void)daemon_wait(&d, 5);
	WAIT_FOR(session_size(&d) == 0, 5);
	WAIT_FOR(queue_state(w.queue).ready == 1, 10);
	ck_assert_int_eq(effects(&w), 0);
	ck_assert_int_eq(markers(&w), 0);
	world_end(&w);
}
END_TEST

START_TEST(the_stop_timeout_ends_a_handler_and_rolls_it_back)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "timeout");
	config_write(&w, "inboxd", "stop_timeout: 1s\n",
		"  main: {queue: %s, handler: effect, options: {table: %s.effect}}\n", w.queue,
		w.name);
	daemon_start_main(&w, &d);
	publish(&w, w.queue, &(struct msg){.id = "long", .act = "sleep:30000"});
	publish_confirm(&w);
	WAIT_FOR(queue_state(w.queue).unacked == 1, 10);
	sleep_ms(300);
	ck_assert_int_eq(kill(d.pid, SIGTERM), 0);
	(void)daemon_wait(&d, 5);
	WAIT_FOR(queue_state(w.queue).ready == 1, 10);
	ck_assert_int_eq(effects(&w), 0);
	world_end(&w);
}
END_TEST

START_TEST(an_idle_daemon_ends_at_once)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "idle");
	daemon_start_main(&w, &d);
	int64_t begun = now_ms();
	ck_assert_int_eq(daemon_stop(&d), 0);
	ck_assert_int_lt(now_ms() - begun, (int64_t)(2000 * wait_factor()));
	world_end(&w);
}
END_TEST

/* Nothing listens on port 1: neither an exit nor a storm of tries, and SIGTERM is heard. */
START_TEST(servers_that_are_away_are_no_exit_and_do_not_delay_the_end)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "away");
	char servers[1024];
	(void)snprintf(servers, sizeof servers,
		"brokers: {away: {uri: \"amqp://127.0.0.1:1\"}, here: {uri: \"%s\"}}\n"
		"databases: {away: {conninfo: \"host=127.0.0.1 port=1\"}, "
		"here: {conninfo: \"%s\", schema: %s}}\n",
		environment("INBOXD_TEST_AMQP_URI"), environment("INBOXD_TEST_CONNINFO"), w.name);
	config_write(&w, "inboxd", servers,
		"  one: {queue: %s, handler: effect, broker: away, database: here, "
		"options: {table: %s.effect}}\n"
		"  two: {queue: %s, handler: effect, broker: here, database: away, "
		"options: {table: %s.effect}}\n",
		w.queue, w.name, w.queue, w.name);
	publish_many(&w, w.queue, "a", 10);
	daemon_start(&w, "inboxd", &d);
	WAIT_FOR(session_size(&d) == 6, 10);
	sleep_ms(3000);
	ck_assert_int_lt(log_lines(&d, ""), 60);
	int64_t begun = now_ms();
	ck_assert_int_eq(daemon_stop(&d), 0);
	ck_assert_int_lt(now_ms() - begun, (int64_t)(3000 * wait_factor()));
	WAIT_FOR(queue_state(w.queue).ready == 10, 5);
	world_end(&w);
}
END_TEST

UNIT_SUITE_TIMEOUT(90, "integration/stop", sigterm_finishes_what_is_in_hand_and_gives_the_rest_back,
	what_is_given_back_to_a_quorum_queue_runs_in_its_order_after_the_next_start,
	what_is_given_back_to_a_classic_queue_runs_in_its_order_after_the_next_start,
	two_daemons_restarted_in_turn_under_load_lose_and_repeat_nothing,
	a_second_sigterm_forces_the_end_and_nothing_half_done_is_committed,
	the_stop_timeout_ends_a_handler_and_rolls_it_back, an_idle_daemon_ends_at_once,
	servers_that_are_away_are_no_exit_and_do_not_delay_the_end)

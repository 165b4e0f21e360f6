/* SPDX-License-Identifier: MIT */
/* A handler that fails, crashes, ends its process or hangs harms its own message only. */
#include "harness.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One bad message among good ones, all of which wait when the daemon starts, so that they share
 * batches. */
static void run_among_good_ones(
	struct world *w, struct daemon *d, const char *act, const char *more)
{
	config_main(w, "%s", more);
	publish_many(w, w->queue, "before", 20);
	publish(w, w->queue, &(struct msg){.id = "bad", .body = "poison", .act = act});
	publish_many(w, w->queue, "behind", 20);
	daemon_start_main(w, d);
	WAIT_FOR(is_settled(w->queue) && effects(w) >= 40, 60);
}

static void check_parked(struct world *w, const char *state, const char *reason)
{
	char expected[128];
	(void)snprintf(expected, sizeof expected, "bad %s %s poison", state, reason);
	WAIT_FOR(strcmp(sql_text(w,
				"SELECT v.key || ' ' || v.state || ' ' || v.reason || ' ' || "
				"encode(p.body, 'escape') FROM parked_view v JOIN parked p USING "
				"(id)"),
			 expected) == 0,
		60);
	ck_assert_int_eq(parked(w, NULL), 1);
	ck_assert_int_eq(effects(w), 40);
	ck_assert_int_eq(markers(w), 40);
	ck_assert_int_eq(sql_int(w, "SELECT count(*) FROM effect WHERE key = 'bad'"), 0);
}

static void check_bad(const char *name, const char *act, const char *reason, const char *more)
{
	struct world w;
	struct daemon d;
	world_begin(&w, name);
	run_among_good_ones(&w, &d, act, more);
	check_parked(&w, "failed", reason);
	world_end(&w);
}

START_TEST(a_rejected_message_is_parked)
{
	check_bad("reject", "reject", "rejected", "");
}
END_TEST

START_TEST(a_data_error_of_sql_is_parked)
{
	check_bad("sql", "sql", "sql_error", "");
}
END_TEST

START_TEST(a_message_that_crashes_its_worker_is_parked_after_the_limit)
{
	check_bad(
		"crash", "crash", "crashed", "    crash_limit: 2\n    retry: {delays: [200ms]}\n");
}
END_TEST

START_TEST(a_message_that_ends_its_worker_is_parked_after_the_limit)
{
	check_bad("exit", "exit", "crashed", "    crash_limit: 2\n    retry: {delays: [200ms]}\n");
}
END_TEST

START_TEST(a_message_that_hangs_is_ended_by_its_time_limit_and_parked)
{
	check_bad("hang", "hang", "timed_out",
		"    crash_limit: 1\n    handler_timeout: 500ms\n    retry: {delays: [200ms]}\n");
}
END_TEST

START_TEST(a_message_that_crashed_once_succeeds_the_next_time)
{
	struct world w;
	struct daemon d;
	char act[400];
	world_begin(&w, "once");
	(void)snprintf(act, sizeof act, "crash-once:%s/crashed", w.dir);
	run_among_good_ones(&w, &d, act, "    retry: {delays: [200ms]}\n");
	WAIT_FOR(effects(&w) == 41, 30);
	WAIT_FOR(parked(&w, NULL) == 0 && is_settled(w.queue), 30);
	ck_assert_int_eq(markers(&w), 41);
	world_end(&w);
}
END_TEST

/* Its sessions end, again and again, while neighbours commit in between; `sign` is the server's line for
 * each.  That is believed five times for each of its runs. */
static void check_that_sessions_end(const char *name, const char *act, const char *sign, int runs)
{
	struct world w;
	struct daemon d;
	world_begin(&w, name);
	int before = postgres_log_lines(sign);
	config_main(&w, "%s",
		runs == 1 ? "    workers: 2\n    crash_limit: 1\n"
			  : "    workers: 2\n    crash_limit: 2\n    retry: {delays: [100ms]}\n");
	publish_many(&w, w.queue, "before", 20);
	publish(&w, w.queue, &(struct msg){.id = "bad", .body = "poison", .act = act});
	publish_many(&w, w.queue, "behind", 10);
	daemon_start_main(&w, &d);
	WAIT_FOR(postgres_log_lines(sign) > before, 30);
	stays_calm(&d, 10);
	publish_many(&w, w.queue, "later", 10);
	WAIT_FOR(log_lines(&d, "reason=crashed") == runs && is_settled(w.queue), 120);
	int ends = postgres_log_lines(sign) - before;
	ck_assert_int_ge(ends, 5 * runs);
	ck_assert_int_le(ends, 6 * runs + 2); /* and in the batch that it was part of first */
	postgres_reconnect(&w);
	check_parked(&w, "failed", "crashed");
	world_end(&w);
}

START_TEST(a_message_that_ends_its_sessions_is_parked_though_others_commit_in_between)
{
	check_that_sessions_end("end_session", "end-session",
		"terminating connection due to administrator command", 2);
}
END_TEST

START_TEST(a_message_that_crashes_the_server_is_parked_though_it_is_away_right_after)
{
	check_that_sessions_end("kill_backend", "kill-backend",
		"all server processes terminated; reinitializing", 1);
}
END_TEST

START_TEST(a_worker_killed_before_it_read_its_message_charges_nobody)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "unread");
	config_main(&w, "%s", "    crash_limit: 1\n");
	daemon_start_main(&w, &d);
	publish_many(&w, w.queue, "before", 1);
	WAIT_FOR(effects(&w) == 1 && is_settled(w.queue), 30);
	pid_t worker = role_pid(&d, "inboxd: worker main/1");
	ck_assert_int_eq(kill(worker, SIGSTOP), 0);
	publish_many(&w, w.queue, "m", 1);
	WAIT_FOR(queue_state(w.queue).unacked == 1, 30);
	ck_assert_int_eq(kill(worker, SIGKILL), 0);
	WAIT_FOR(effects(&w) == 2 && is_settled(w.queue), 30);
	ck_assert_int_eq(parked(&w, NULL), 0);
	ck_assert_int_eq(log_lines(&d, "event=parked"), 0);
	world_end(&w);
}
END_TEST

/* The queue would drop it after three times. */
START_TEST(a_large_body_that_the_database_refuses_is_held_and_others_go_on)
{
	struct world w;
	struct daemon d;
	char queue[100];
	world_begin(&w, "refused_body");
	(void)snprintf(queue, sizeof queue, "%s-limited", w.queue);
	queue_declare_limited(&w, queue, "quorum", 3);
	sql(&w, "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
		"$$ BEGIN RAISE 'no room' USING ERRCODE = '53100'; END $$");
	sql(&w, "CREATE TRIGGER refuse BEFORE INSERT ON parked_chunk FOR EACH ROW "
		"EXECUTE FUNCTION refuse()");
	config_write(&w, "inboxd", "",
		"  main: {queue: %s, handler: effect, max_message_bytes: 65536, options: {table: "
		"%s.effect}}\n",
		queue, w.name);
	char *large = calloc(1, 200000);
	ck_assert_ptr_nonnull(large);
	publish(&w, queue, &(struct msg){.id = "large", .body = large, .size = 200000});
	free(large);
	publish_many(&w, queue, "m", 50);
	daemon_start(&w, "inboxd", &d);
	WAIT_FOR(effects(&w) == 50 && log_lines(&d, "event=large_body_not_parked") >= 2, 60);
	publish_many(&w, queue, "later", 10);
	WAIT_FOR(effects(&w) == 60, 10);
	ck_assert_int_le(log_lines(&d, "event=large_body_not_parked"), 3);
	sql(&w, "DROP TRIGGER refuse ON parked_chunk");
	WAIT_FOR(parked(&w, "too_large") == 1 && is_settled(queue), 60);
	ck_assert_int_eq(
		sql_int(&w, "SELECT length(parked_body(id)) FROM parked"), 200000);
	ck_assert_int_eq(daemon_stop(&d), 0);
	queue_delete(&w, queue);
	world_end(&w);
}
END_TEST

START_TEST(a_retry_waits_in_the_database_and_then_succeeds_once)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "retry");
	run_among_good_ones(
		&w, &d, "retry:3", "    retry: {immediate: 1, delays: [300ms, 300ms]}\n");
	WAIT_FOR(effects(&w) == 41, 30);
	WAIT_FOR(parked(&w, NULL) == 0 && is_settled(w.queue), 30);
	ck_assert_int_eq(markers(&w), 41);
	world_end(&w);
}
END_TEST

/* Two queues that pass on to each other what expires: on the second lap the broker drops it. */
START_TEST(what_waits_for_its_next_run_outlives_the_queues_time_to_live_and_a_stop)
{
	enum { N = 10, TTL_MS = 1000 };
	struct world w;
	struct daemon d;
	char lap[96];
	world_begin(&w, "expiry");
	(void)snprintf(lap, sizeof lap, "%s-lap", w.name);
	queue_delete(&w, w.queue);
	const char *const both[] = {w.queue, lap};
	for (int i = 0; i < 2; i++) {
		amqp_table_entry_t arguments[] = {entry_int("x-message-ttl", TTL_MS),
			entry_text("x-dead-letter-exchange", ""),
			entry_text("x-dead-letter-routing-key", both[1 - i])};
		queue_declare_with(&w, both[i], 3, arguments);
	}
	config_main(&w, "%s", "    retry: {immediate: 0, delays: [8s]}\n");
	daemon_start_main(&w, &d);
	for (int i = 0; i < N; i++) {
		char id[16];
		(void)snprintf(id, sizeof id, "m%d", i);
		publish(&w, w.queue, &(struct msg){.id = id, .act = "retry:1"});
	}
	publish_confirm(&w);
	WAIT_FOR(parked(&w, "retry") == N && is_settled(w.queue), 20);
	ck_assert_int_eq(daemon_stop(&d), 0);
	/* What comes meanwhile shows that the queues are such. */
	publish_many(&w, w.queue, "left", N);
	WAIT_FOR(is_settled(w.queue) && is_settled(lap) && is_settled(w.queue), 30);
	ck_assert_int_eq(parked(&w, "retry"), N);
	daemon_start_main(&w, &d);
	all_once(&w, N);
	ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM effect WHERE key LIKE 'm%%'"), N);
	world_end(&w);
}
END_TEST

START_TEST(a_retry_that_never_succeeds_is_parked_as_failed_when_its_attempts_are_used_up)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "exhausted");
	run_among_good_ones(
		&w, &d, "retry:99", "    retry: {immediate: 1, delays: [200ms, 200ms]}\n");
	check_parked(&w, "failed", "retry");
	/* The first run, one at once, two after a delay. */
	ck_assert_int_eq(sql_int(&w, "SELECT attempts FROM parked"), 4);
	world_end(&w);
}
END_TEST

/* ---- others are not kept waiting ---------------------------------------------------------------
 */

START_TEST(a_message_that_waits_a_minute_delays_no_others_second_run)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "steps");
	config_main(&w, "%s", "    retry: {immediate: 0, delays: [1s, 60s], jitter: 0%}\n");
	daemon_start_main(&w, &d);
	publish(&w, w.queue, &(struct msg){.id = "slow", .act = "retry:99"});
	publish_confirm(&w);
	WAIT_FOR(sql_int(&w,
			 "SELECT count(*) FROM parked WHERE state = 'waiting' AND attempts = 2 AND "
			 "next_at > clock_timestamp() + interval '50 s'") == 1,
		20);
	publish(&w, w.queue, &(struct msg){.id = "quick", .act = "retry:1"});
	publish_confirm(&w);
	WAIT_FOR(parked(&w, NULL) == 2, 20);
	WAIT_FOR(effects(&w) == 1, 3);
	ck_assert_str_eq(sql_text(&w, "SELECT key FROM effect"), "quick");
	ck_assert_str_eq(
		sql_text(&w, "SELECT key || ' ' || state || ' ' || attempts FROM parked_view"),
		"slow waiting 2");
	world_end(&w);
}
END_TEST

START_TEST(a_message_that_always_fails_neither_starves_others_nor_fills_the_log)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "starves");
	config_main(
		&w, "%s", "    prefetch: 10\n    retry: {immediate: 2, delays: [200ms, 200ms]}\n");
	publish(&w, w.queue, &(struct msg){.id = "bad", .act = "retry:99"});
	publish_many(&w, w.queue, "good", 200);
	daemon_start_main(&w, &d);
	WAIT_FOR(effects(&w) == 200 && is_settled(w.queue), 30);
	WAIT_FOR(sql_int(&w, "SELECT count(*) FROM parked WHERE state = 'failed'") == 1, 30);
	ck_assert_int_eq(effect_keys(&w), 200);
	ck_assert_str_eq(
		sql_text(&w, "SELECT key || ' ' || reason || ' ' || attempts FROM parked_view"),
		"bad retry 5");
	ck_assert_int_lt(log_lines(&d, ""), 50);
	world_end(&w);
}
END_TEST

/* The queue's own limit is so low that giving the crashing one back would soon drop it. */
static void check_crash_in_a_queue(const char *name, const char *type, int limit)
{
	struct world w;
	struct daemon d;
	world_begin(&w, name);
	queue_delete(&w, w.queue);
	queue_declare_limited(&w, w.queue, type, limit);
	config_main(&w, "    prefetch: 10\n    retry: {delays: [200ms]}\n%s",
		limit != 0 ? "    delivery_limit: 3\n" : "");
	publish_many(&w, w.queue, "before", 4);
	publish(&w, w.queue, &(struct msg){.id = "bad", .act = "crash"});
	publish_many(&w, w.queue, "behind", 5);
	daemon_start_main(&w, &d);
	WAIT_FOR(effects(&w) == 9 && is_settled(w.queue), 60);
	WAIT_FOR(sql_int(&w, "SELECT count(*) FROM parked WHERE state = 'failed'") == 1, 60);
	ck_assert_int_eq(effect_keys(&w), 9);
	ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM effect WHERE key = 'bad'"), 0);
	ck_assert_str_eq(sql_text(&w,
				 "SELECT key || ' ' || reason || ' ' || crashes || ' ' || detail "
				 "FROM parked_view"),
		"bad crashed 3 worker killed by signal 11 (SIGSEGV)");
	ck_assert_int_eq(log_lines(&d, "event=started"), 1);
	ck_assert_int_eq(log_lines(&d, "process=\"consumer"), 0);
	ck_assert(!daemon_has_ended(&d));
	world_end(&w);
}

START_TEST(a_crash_among_nine_good_ones_of_a_classic_queue_is_parked_with_its_signal)
{
	check_crash_in_a_queue("crashc", "classic", 0);
}
END_TEST

START_TEST(a_crash_among_nine_good_ones_of_a_quorum_queue_with_limit_3_is_parked_with_its_signal)
{
	check_crash_in_a_queue("crashq", "quorum", 3);
}
END_TEST

UNIT_SUITE_TIMEOUT(180, "integration/failures", a_rejected_message_is_parked,
	a_data_error_of_sql_is_parked, a_message_that_crashes_its_worker_is_parked_after_the_limit,
	a_message_that_ends_its_worker_is_parked_after_the_limit,
	a_message_that_hangs_is_ended_by_its_time_limit_and_parked,
	a_message_that_crashed_once_succeeds_the_next_time,
	a_message_that_ends_its_sessions_is_parked_though_others_commit_in_between,
	a_message_that_crashes_the_server_is_parked_though_it_is_away_right_after,
	a_worker_killed_before_it_read_its_message_charges_nobody,
	a_large_body_that_the_database_refuses_is_held_and_others_go_on,
	a_retry_waits_in_the_database_and_then_succeeds_once,
	what_waits_for_its_next_run_outlives_the_queues_time_to_live_and_a_stop,
	a_retry_that_never_succeeds_is_parked_as_failed_when_its_attempts_are_used_up,
	a_message_that_waits_a_minute_delays_no_others_second_run,
	a_message_that_always_fails_neither_starves_others_nor_fills_the_log,
	a_crash_among_nine_good_ones_of_a_classic_queue_is_parked_with_its_signal,
	a_crash_among_nine_good_ones_of_a_quorum_queue_with_limit_3_is_parked_with_its_signal)

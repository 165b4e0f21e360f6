/* SPDX-License-Identifier: MIT */
/* Limits: of the broker's deliveries, of failures in a row, of what may be parked. */
#include "harness.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* ---- what the broker gives out again and again ----------------------------------- */

static int kept(const struct daemon *d)
{
	return log_lines(d, "reason=redelivered");
}

static void config_debug(struct world *w, const char *more)
{
	config_write(w, "inboxd", "log: {level: debug}\n",
		"  main:\n    queue: %s\n    handler: effect\n    options: {table: %s.effect}\n%s",
		w->queue, w->name, more);
}

/* Ten messages that were given out once before, of which as many as expected are kept first. */
static void check_kept(struct world *w, const char *more, int expected)
{
	struct daemon d;
	config_debug(w, more);
	publish_many(w, w->queue, "m", 10);
	ck_assert_int_eq(requeue_messages(w, w->queue), 10);
	daemon_start_main(w, &d);
	WAIT_FOR(effects(w) == 10 && is_settled(w->queue) && parked(w, NULL) == 0, 30);
	ck_assert_int_eq(effect_keys(w), 10);
	ck_assert_int_eq(markers(w), 10);
	ck_assert_int_eq(kept(&d), expected);
	ck_assert_int_eq(daemon_stop(&d), 0);
}

START_TEST(what_a_classic_queue_gives_out_again_is_kept_before_it_runs_and_runs_once)
{
	struct world w;
	world_begin(&w, "kept");
	check_kept(&w, "", 10);
	world_end(&w);
}
END_TEST

START_TEST(what_a_quorum_queue_gives_out_again_runs_as_usual_far_below_its_limit)
{
	struct world w;
	world_begin(&w, "counted");
	queue_delete(&w, w.queue);
	queue_declare(&w, w.queue, "quorum");
	check_kept(&w, "", 0);
	world_end(&w);
}
END_TEST

START_TEST(what_a_quorum_queue_may_soon_drop_is_kept_before_it_runs)
{
	struct world w;
	world_begin(&w, "near");
	queue_delete(&w, w.queue);
	queue_declare_limited(&w, w.queue, "quorum", 3);
	check_kept(&w, "    delivery_limit: 3\n", 10);
	world_end(&w);
}
END_TEST

START_TEST(a_redelivered_copy_of_a_message_that_is_done_is_a_duplicate_and_kept_nowhere)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "done");
	config_debug(&w, "");
	publish_many(&w, w.queue, "m", 10);
	daemon_start_main(&w, &d);
	WAIT_FOR(effects(&w) == 10 && is_settled(w.queue), 30);
	ck_assert_int_eq(daemon_stop(&d), 0);
	publish_many(&w, w.queue, "m", 10);
	ck_assert_int_eq(requeue_messages(&w, w.queue), 10);
	daemon_start_main(&w, &d);
	WAIT_FOR(is_settled(w.queue), 30);
	ck_assert_int_eq(effects(&w), 10);
	ck_assert_int_eq(kept(&d), 0);
	world_end(&w);
}
END_TEST

/* Two messages that are the same in every byte and have no key: both are to be processed. */
START_TEST(redelivered_messages_without_key_are_all_processed_where_that_is_asked_for)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "unkeyed");
	config_debug(&w, "    on_missing_key: process\n");
	for (int i = 0; i < 3; i++)
		publish(&w, w.queue, &(struct msg){.body = "same"});
	publish_confirm(&w);
	ck_assert_int_eq(requeue_messages(&w, w.queue), 3);
	daemon_start_main(&w, &d);
	WAIT_FOR(effects(&w) == 3 && is_settled(w.queue) && parked(&w, NULL) == 0, 30);
	ck_assert_int_eq(kept(&d), 3);
	world_end(&w);
}
END_TEST

/* Nothing but the routing key tells which is which. */
START_TEST(redelivered_messages_without_key_that_differ_in_their_routing_key_are_all_parked)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "routed");
	config_debug(&w, "");
	queue_bind(&w, w.queue, "amq.fanout", "");
	for (int i = 0; i < 3; i++) {
		char key[20];
		(void)snprintf(key, sizeof key, "device.%d", i);
		ck_assert_int_eq(amqp_basic_publish(w.broker, 2, amqp_cstring_bytes("amq.fanout"),
					 amqp_cstring_bytes(key), 0, 0, NULL, amqp_empty_bytes),
			AMQP_STATUS_OK);
	}
	WAIT_FOR(queue_state(w.queue).ready == 3, 10);
	ck_assert_int_eq(requeue_messages(&w, w.queue), 3);
	daemon_start_main(&w, &d);
	WAIT_FOR(is_settled(w.queue), 30);
	ck_assert_int_eq(sql_int(&w, "SELECT count(DISTINCT routing_key) FROM parked"), 3);
	ck_assert_int_eq(parked(&w, "no_key"), 3);
	world_end(&w);
}
END_TEST

static bool is_dead(const struct daemon *d)
{
	siginfo_t si = {.si_pid = 0};
	return waitid(P_PID, (id_t)d->pid, &si, WEXITED | WNOHANG | WNOWAIT) == 0 && si.si_pid != 0;
}

static bool is_over(struct world *w)
{
	return sql_int(w, "SELECT count(*) FROM parked WHERE state = 'failed'") == 1;
}

/* A message whose handler takes the whole daemon down, among good ones; whoever restarts services
 * restarts it.  Its lease is cut short instead of waited for. */
static void check_killer(const char *name, const char *type)
{
	struct world w;
	struct daemon d;
	int lives = 0;
	world_begin(&w, name);
	queue_delete(&w, w.queue);
	queue_declare_limited(&w, w.queue, type, strcmp(type, "quorum") == 0 ? 3 : 0);
	config_debug(&w,
		"    prefetch: 10\n    delivery_limit: 3\n    retry: {immediate: 1, delays: []}\n");
	publish(&w, w.queue, &(struct msg){.id = "killer", .act = "end-daemon"});
	publish_many(&w, w.queue, "good", 9);
	while (!is_over(&w)) {
		ck_assert_int_lt(lives++, 12);
		sql(&w, "UPDATE parked SET next_at = clock_timestamp() WHERE state = 'waiting'");
		daemon_start(&w, "inboxd", &d);
		WAIT_FOR(is_dead(&d) || is_over(&w), 60);
		if (is_dead(&d))
			ck_assert_int_eq(daemon_wait(&d, 10), 128 + SIGKILL);
	}
	ck_assert_int_ge(lives, 3);
	WAIT_FOR(effects(&w) == 9 && is_settled(w.queue), 60);
	ck_assert_int_eq(
		sql_int(&w, "SELECT count(DISTINCT key) FROM effect WHERE key LIKE 'good%%'"), 9);
	ck_assert_int_eq(parked(&w, NULL), 1);
	ck_assert_str_eq(
		sql_text(&w, "SELECT key || ' ' || attempts FROM parked_view"), "killer 2");
	world_end(&w);
}

START_TEST(a_message_that_takes_the_daemon_with_it_ends_as_failed_on_a_classic_queue)
{
	check_killer("killer", "classic");
}
END_TEST

START_TEST(a_message_that_takes_the_daemon_with_it_is_not_dropped_by_the_limit_of_a_quorum_queue)
{
	check_killer("killerq", "quorum");
}
END_TEST

/* ---- failures in a row ----------------------------------------------------------- */

static int in_queue(struct world *w)
{
	struct queue_state s = queue_state(w->queue);
	return s.ready + s.unacked;
}

/* Forty messages that all fail until the file is there. */
static void publish_failing(struct world *w, char *file, size_t size)
{
	char act[400];
	(void)snprintf(file, size, "%s/mended", w->dir);
	(void)snprintf(act, sizeof act, "reject-unless:%s", file);
	for (int i = 0; i < 40; i++) {
		char id[16];
		(void)snprintf(id, sizeof id, "m%d", i);
		publish(w, w->queue, &(struct msg){.id = id, .act = act});
	}
	publish_confirm(w);
}

START_TEST(a_handler_that_fails_everything_is_stopped_tried_and_goes_on_once_it_is_mended)
{
	struct world w;
	struct daemon d;
	char file[320];
	world_begin(&w, "breaker");
	config_main(&w, "%s", "    breaker: {failures: 3, pause: 400ms}\n    prefetch: 20\n");
	publish_failing(&w, file, sizeof file);
	daemon_start_main(&w, &d);
	WAIT_FOR(log_lines(&d, "event=breaker_open") == 1, 30);
	int64_t at_first = parked(&w, NULL);
	ck_assert_int_ge(at_first, 3);
	/* One at a time, and none is lost meanwhile. */
	WAIT_FOR(parked(&w, NULL) >= at_first + 3, 30);
	ck_assert_int_lt(parked(&w, NULL), 20);
	ck_assert_int_eq(effects(&w), 0);
	WAIT_FOR(queue_state(w.queue).consumers == 0, 30);
	touch(file);
	WAIT_FOR(log_lines(&d, "event=breaker_closed") == 1, 30);
	WAIT_FOR(is_settled(w.queue), 30);
	ck_assert_int_eq(effects(&w) + parked(&w, "rejected"), 40);
	ck_assert_int_eq(effect_keys(&w), effects(&w));
	ck_assert_int_lt(parked(&w, NULL), 20);
	ck_assert_int_eq(log_lines(&d, "event=breaker_open"), 1);
	ck_assert_int_eq(log_lines(&d, "event=paused"), 1);
	world_end(&w);
}
END_TEST

START_TEST(a_stopped_consumer_that_holds_nothing_asks_the_broker_for_one_message_at_a_time)
{
	struct world w;
	struct daemon d;
	char file[320];
	const char *const status[] = {"status", NULL};
	char runtime[340];
	world_begin(&w, "asking");
	(void)snprintf(runtime, sizeof runtime, "%s/run-inboxd", w.dir);
	ck_assert_int_eq(mkdir(runtime, 0755), 0); /* as systemd makes it */
	config_main(&w, "%s", "    breaker: {failures: 3, pause: 300ms}\n    prefetch: 3\n");
	publish_failing(&w, file, sizeof file);
	daemon_start_main(&w, &d);
	WAIT_FOR(parked(&w, NULL) >= 8, 30);
	/* What was not asked for has not been given out. */
	ck_assert_int_le(queue_state(w.queue).unacked, 1);
	ck_assert_int_eq(in_queue(&w) + (int)parked(&w, NULL) >= 40, 1);
	ck_assert_int_eq(inboxctl(&w, "inboxd", status), 1);
	touch(file);
	WAIT_FOR(is_settled(w.queue), 30);
	ck_assert_int_eq(effects(&w) + parked(&w, NULL), 40);
	WAIT_FOR(inboxctl(&w, "inboxd", status) == 0, 10);
	world_end(&w);
}
END_TEST

START_TEST(a_mistyped_key_does_not_drain_the_queue)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "mistyped");
	config_main(&w, "%s", "    key: header:no-such\n    breaker: {failures: 5, pause: 1h}\n");
	publish_many(&w, w.queue, "m", 100);
	daemon_start(&w, "inboxd", &d); /* it may have stopped consuming by the first look */
	WAIT_FOR(log_lines(&d, "event=breaker_open") == 1, 30);
	WAIT_FOR(queue_state(w.queue).consumers == 0, 30);
	ck_assert_int_eq(parked(&w, "no_key"), 5);
	ck_assert_int_eq(daemon_stop(&d), 0);
	WAIT_FOR(queue_state(w.queue).ready == 95, 30);
	world_end(&w);
}
END_TEST

START_TEST(a_crash_while_one_message_is_tried_does_not_end_the_tries)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "crashing");
	config_main(&w, "%s",
		"    breaker: {failures: 2, pause: 200ms}\n    crash_limit: 1\n    prefetch: 4\n");
	for (int i = 0; i < 6; i++) {
		char id[16];
		(void)snprintf(id, sizeof id, "m%d", i);
		publish(&w, w.queue, &(struct msg){.id = id, .act = "crash"});
	}
	publish(&w, w.queue, &(struct msg){.id = "good"});
	publish_confirm(&w);
	daemon_start_main(&w, &d);
	WAIT_FOR(effects(&w) == 1 && is_settled(w.queue), 90);
	ck_assert_int_eq(parked(&w, "crashed"), 6);
	ck_assert_int_eq(log_lines(&d, "event=breaker_open"), 1);
	ck_assert_int_eq(log_lines(&d, "event=breaker_closed"), 1);
	world_end(&w);
}
END_TEST

/* ---- what may be parked ---------------------------------------------------------- */

START_TEST(no_more_than_parked_max_are_parked_and_retries_go_on_meanwhile)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "full");
	config_main(&w, "%s",
		"    parked: {max: 5}\n    prefetch: 20\n    retry: {immediate: 0, delays: "
		"[2s]}\n");
	publish(&w, w.queue, &(struct msg){.id = "later", .act = "retry:1"});
	for (int i = 0; i < 8; i++) {
		char id[16];
		(void)snprintf(id, sizeof id, "bad%d", i);
		publish(&w, w.queue, &(struct msg){.id = id, .act = "reject"});
	}
	publish_many(&w, w.queue, "good", 10);
	daemon_start_main(&w, &d);
	WAIT_FOR(log_lines(&d, "event=parked_full") == 1, 30);
	/* The retry frees a place, which one more takes. */
	WAIT_FOR(effects(&w) == 1 && parked(&w, NULL) == 5, 30);
	ck_assert_str_eq(sql_text(&w, "SELECT key FROM effect"), "later");
	WAIT_FOR(in_queue(&w) == 13, 10);
	sql(&w, "UPDATE parked SET state = 'discarded', token = DEFAULT");
	WAIT_FOR(is_settled(w.queue), 30);
	ck_assert_int_eq(effects(&w), 11);
	ck_assert_int_eq(parked(&w, "rejected"), 8);
	world_end(&w);
}
END_TEST

UNIT_SUITE_TIMEOUT(150, "integration/limits",
	what_a_classic_queue_gives_out_again_is_kept_before_it_runs_and_runs_once,
	what_a_quorum_queue_gives_out_again_runs_as_usual_far_below_its_limit,
	what_a_quorum_queue_may_soon_drop_is_kept_before_it_runs,
	a_redelivered_copy_of_a_message_that_is_done_is_a_duplicate_and_kept_nowhere,
	redelivered_messages_without_key_are_all_processed_where_that_is_asked_for,
	redelivered_messages_without_key_that_differ_in_their_routing_key_are_all_parked,
	a_message_that_takes_the_daemon_with_it_ends_as_failed_on_a_classic_queue,
	a_message_that_takes_the_daemon_with_it_is_not_dropped_by_the_limit_of_a_quorum_queue,
	a_handler_that_fails_everything_is_stopped_tried_and_goes_on_once_it_is_mended,
	a_stopped_consumer_that_holds_nothing_asks_the_broker_for_one_message_at_a_time,
	a_mistyped_key_does_not_drain_the_queue,
	a_crash_while_one_message_is_tried_does_not_end_the_tries,
	no_more_than_parked_max_are_parked_and_retries_go_on_meanwhile)

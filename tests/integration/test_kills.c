/* SPDX-License-Identifier: MIT */
/* kill -9 of any process, at any moment, neither loses nor repeats an effect, and leaves no orphan.
 */
#include "harness.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* n messages, one in ten a copy of the one before the previous; returns the number of keys. */
static int publish_with_copies(struct world *w, int n)
{
	int keys = 0;
	for (int i = 0; i < n; i++) {
		char id[32], body[32];
		int k = i % 10 == 9 ? keys - 2 : keys++;
		(void)snprintf(id, sizeof id, "k%d", k);
		(void)snprintf(body, sizeof body, "%d", k);
		publish(w, w->queue, &(struct msg){.id = id, .body = body});
	}
	publish_confirm(w);
	return keys;
}

/* Waits until a share of the keys is done, so that kills are spread over the run; then until work
 * is in flight, and kills. */
static void kill_at(struct world *w, const struct daemon *d, const char *role, int64_t done)
{
	WAIT_FOR(effects(w) >= done, 120);
	WAIT_FOR(role_pid(d, role) > 0, 30);
	WAIT_FOR(queue_state(w->queue).unacked > 0, 30);
	role_kill(d, role);
}

START_TEST(workers_and_consumer_are_killed_in_the_middle_and_every_effect_happens_once)
{
	static const char *const victims[] = {"inboxd: worker main/1", "inboxd: consumer main",
		"inboxd: worker main/2", "inboxd: worker main/1", "inboxd: consumer main",
		"inboxd: worker main/2"};
	enum { VICTIMS = sizeof victims / sizeof victims[0] };
	struct world w;
	struct daemon d;
	world_begin(&w, "kills");
	config_main(&w, "%s", "    workers: 2\n");
	int keys = publish_with_copies(&w, how_many(20000));
	daemon_start_main(&w, &d);
	for (int i = 0; i < VICTIMS; i++)
		kill_at(&w, &d, victims[i], (int64_t)keys * (i + 1) / (VICTIMS + 3));
	WAIT_FOR(is_settled(w.queue) && parked(&w, NULL) == 0, 300);
	ck_assert_int_eq(effects(&w), keys);
	ck_assert_int_eq(effect_keys(&w), keys);
	ck_assert_int_eq(markers(&w), keys);
	ck_assert_int_eq(parked(&w, NULL), 0);
	ck_assert_int_eq(queue_state(w.queue).consumers, 1);
	world_end(&w);
}
END_TEST

START_TEST(a_message_committed_but_not_acknowledged_comes_again_and_is_a_duplicate)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "unacked");
	daemon_start_main(&w, &d);
	publish(&w, w.queue, &(struct msg){.id = "one", .act = "sleep:1000"});
	publish_confirm(&w);
	/* While the handler runs, the consumer is stopped: it cannot hear of the commit. */
	WAIT_FOR(queue_state(w.queue).unacked == 1, 10);
	sleep_ms(300);
	pid_t consumer = role_pid(&d, "inboxd: consumer main");
	ck_assert_int_gt(consumer, 0);
	ck_assert_int_eq(kill(consumer, SIGSTOP), 0);
	WAIT_FOR(effects(&w) == 1, 10);
	ck_assert_int_eq(queue_state(w.queue).unacked, 1);
	role_kill(&d, "inboxd: consumer main");
	WAIT_FOR(is_settled(w.queue), 30);
	ck_assert_int_eq(effects(&w), 1);
	ck_assert_int_eq(markers(&w), 1);
	ck_assert_int_eq(parked(&w, NULL), 0);
	world_end(&w);
}
END_TEST

START_TEST(no_process_outlives_its_supervisor)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "orphans");
	config_main(&w, "%s", "    workers: 3\n");
	daemon_start_main(&w, &d);
	publish(&w, w.queue, &(struct msg){.id = "long", .act = "sleep:60000"});
	publish_confirm(&w);
	WAIT_FOR(queue_state(w.queue).unacked == 1, 10);
	WAIT_FOR(session_size(&d) == 6, 10);
	ck_assert_int_eq(kill(d.pid, SIGKILL), 0);
	ck_assert_int_eq(daemon_wait(&d, 10), 128 + SIGKILL);
	WAIT_FOR(session_size(&d) == 0, 10);
	/* The message is given back, not lost. */
	WAIT_FOR(queue_state(w.queue).ready == 1, 10);
	ck_assert_int_eq(effects(&w), 0);
	world_end(&w);
}
END_TEST

START_TEST(a_session_that_is_cut_again_and_again_neither_loses_nor_repeats)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "sessions");
	config_main(&w, "%s", "    workers: 2\n    batch: {max: 10}\n");
	int keys = publish_with_copies(&w, 4000);
	daemon_start_main(&w, &d);
	int cut = 0;
	for (int i = 0; i < 40 && !is_settled(w.queue); i++) {
		cut += (int)sql_int(&w,
			"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE "
			"usename = 'inboxd' "
			"AND application_name LIKE 'inboxd%%'");
		sleep_ms(50 + i * 13 % 100);
	}
	ck_assert_int_gt(cut, 5);
	WAIT_FOR(is_settled(w.queue) && parked(&w, NULL) == 0, 120);
	ck_assert_int_eq(effects(&w), keys);
	ck_assert_int_eq(effect_keys(&w), keys);
	ck_assert_int_eq(parked(&w, NULL), 0);
	world_end(&w);
}
END_TEST

UNIT_SUITE_TIMEOUT(600, "integration/kills",
	workers_and_consumer_are_killed_in_the_middle_and_every_effect_happens_once,
	a_message_committed_but_not_acknowledged_comes_again_and_is_a_duplicate,
	no_process_outlives_its_supervisor,
	a_session_that_is_cut_again_and_again_neither_loses_nor_repeats)

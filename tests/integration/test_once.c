/* SPDX-License-Identifier: MIT */
/* However often and wherever a message comes, its effect happens once. */
#include "harness.h"

#include <stdio.h>

START_TEST(each_message_has_one_effect_and_one_marker)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "each");
	daemon_start_main(&w, &d);
	publish_many(&w, w.queue, "a", 1000);
	all_once(&w, 1000);
	ck_assert_int_eq(
		sql_int(&w,
			"SELECT count(*) FROM effect WHERE 'a' || encode(body, 'escape') = key"),
		1000);
	ck_assert_int_eq(
		sql_int(&w, "SELECT count(DISTINCT key) FROM inbox_view WHERE key LIKE 'a%%'"),
		1000);
	ck_assert_int_eq(daemon_stop(&d), 0);
	world_end(&w);
}
END_TEST

START_TEST(copies_within_one_batch_are_one_effect)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "batch");
	config_main(&w, "%s", "    batch: {max: 50}\n");
	/* All of it waits before the daemon comes, so that batches are full. */
	for (int i = 0; i < 5; i++)
		publish(&w, w.queue, &(struct msg){.id = "b1"});
	publish_many(&w, w.queue, "b-", 45);
	daemon_start_main(&w, &d);
	all_once(&w, 46);
	world_end(&w);
}
END_TEST

/* n keys, each `copies` times, in an order that brings copies together and keeps them apart. */
static void publish_copies(struct world *w, const char *queue, int n, int copies)
{
	for (int i = 0; i < n * copies; i++) {
		char id[32], body[32];
		int k = (i * 7 + i / n) % n;
		(void)snprintf(id, sizeof id, "k%d", k);
		(void)snprintf(body, sizeof body, "%d", k);
		publish(w, queue, &(struct msg){.id = id, .body = body});
	}
	publish_confirm(w);
}

START_TEST(copies_between_workers_are_one_effect)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "workers");
	config_main(&w, "%s", "    workers: 4\n    batch: {max: 20}\n");
	publish_copies(&w, w.queue, 501, 6);
	daemon_start_main(&w, &d);
	all_once(&w, 501);
	ck_assert_int_gt(sql_int(&w, "SELECT count(DISTINCT pid) FROM effect"), 1);
	world_end(&w);
}
END_TEST

START_TEST(copies_between_two_daemons_on_one_queue_are_one_effect)
{
	struct world w;
	struct daemon a, b;
	world_begin(&w, "daemons");
	static const char consumer[] =
		"  main:\n    queue: %s\n    handler: effect\n    prefetch: 20\n"
		"    options: {table: %s.effect, delay_ms: 1}\n";
	config_write(&w, "a", "", consumer, w.queue, w.name);
	config_write(&w, "b", "", consumer, w.queue, w.name);
	daemon_start(&w, "a", &a);
	daemon_start(&w, "b", &b);
	WAIT_FOR(queue_state(w.queue).consumers == 2, 20);
	publish_copies(&w, w.queue, 501, 4);
	all_once(&w, 501);
	ck_assert_int_eq(sql_int(&w, "SELECT count(DISTINCT pid) FROM effect"), 2);
	world_end(&w);
}
END_TEST

START_TEST(two_queues_of_one_identity_in_opposite_order_neither_deadlock_nor_repeat)
{
	struct world w;
	struct daemon d;
	char other[96];
	world_begin(&w, "identity");
	(void)snprintf(other, sizeof other, "%s-other", w.name);
	queue_declare(&w, other, NULL);
	static const char consumer[] =
		"  %s:\n    queue: %s\n    identity: shared\n    handler: effect\n"
		"    workers: 2\n    batch: {max: 50}\n"
		"    options: {table: %s.effect}\n";
	char both[1024];
	int n = snprintf(both, sizeof both, consumer, "one", w.queue, w.name);
	(void)snprintf(both + n, sizeof both - (size_t)n, consumer, "two", other, w.name);
	config_write(&w, "inboxd", "", "%s", both);
	for (int i = 0; i < 2000; i++) {
		char id[32];
		(void)snprintf(id, sizeof id, "k%d", i);
		publish(&w, w.queue, &(struct msg){.id = id});
		(void)snprintf(id, sizeof id, "k%d", 1999 - i);
		publish(&w, other, &(struct msg){.id = id});
	}
	publish_confirm(&w);
	daemon_start_main(&w, &d);
	WAIT_FOR(is_settled(other), 60);
	all_once(&w, 2000);
	world_end(&w);
}
END_TEST

START_TEST(copies_that_come_after_a_restart_are_known)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "restart");
	daemon_start_main(&w, &d);
	publish_many(&w, w.queue, "r", 300);
	all_once(&w, 300);
	ck_assert_int_eq(daemon_stop(&d), 0);
	publish_many(&w, w.queue, "r", 300);
	daemon_start_main(&w, &d);
	all_once(&w, 300);
	world_end(&w);
}
END_TEST

/* ---- duplicates are cheap
 * ------------------------------------------------------------------------ */

/* What has been written to these tables so far, as the sessions that have ended told. */
static int64_t writes(struct world *w)
{
	sql(w, "SELECT pg_stat_clear_snapshot()");
	return sql_int(w,
		"SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_user_tables WHERE "
		"schemaname = '%s' AND relname IN ('inbox', 'parked', 'outgoing', 'effect')",
		w->name);
}

static int64_t sessions_that(struct world *w, const char *condition)
{
	return sql_int(w,
		"SELECT count(*) FROM pg_stat_activity WHERE usename = 'inboxd' AND "
		"application_name LIKE 'inboxd%%' AND %s",
		condition);
}

START_TEST(duplicates_write_nothing_and_an_idle_daemon_holds_no_transaction_and_no_snapshot)
{
	enum { N = 2000 };
	struct world w;
	struct daemon d;
	world_begin(&w, "nothing");
	publish_many(&w, w.queue, "m", N);
	daemon_start_main(&w, &d);
	WAIT_FOR(effects(&w) == N && is_settled(w.queue), 60);
	ck_assert_int_eq(daemon_stop(&d), 0);
	WAIT_FOR(writes(&w) == 2 * N, 20);

	publish_many(&w, w.queue, "m", N);
	daemon_start_main(&w, &d);
	WAIT_FOR(is_settled(w.queue), 60);
	ck_assert_int_ge(sessions_that(&w, "true"), 1);
	for (int i = 0; i < 50; i++) {
		ck_assert_int_eq(sessions_that(&w,
					 "(state LIKE 'idle in transaction%' OR "
					 "(state = 'idle' AND backend_xmin IS NOT NULL))"),
			0);
		sleep_ms(20);
	}
	/* A new one at the end shows that what went before it has been counted. */
	publish_many(&w, w.queue, "new", 1);
	WAIT_FOR(effects(&w) == N + 1 && is_settled(w.queue), 30);
	ck_assert_int_eq(daemon_stop(&d), 0);
	WAIT_FOR(writes(&w) > 2 * N + 1, 20);
	ck_assert_int_eq(writes(&w), 2 * N + 2);
	world_end(&w);
}
END_TEST

UNIT_SUITE_TIMEOUT(120, "integration/once", each_message_has_one_effect_and_one_marker,
	copies_within_one_batch_are_one_effect, copies_between_workers_are_one_effect,
	copies_between_two_daemons_on_one_queue_are_one_effect,
	two_queues_of_one_identity_in_opposite_order_neither_deadlock_nor_repeat,
	copies_that_come_after_a_restart_are_known,
	duplicates_write_nothing_and_an_idle_daemon_holds_no_transaction_and_no_snapshot)

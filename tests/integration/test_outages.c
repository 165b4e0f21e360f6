/* SPDX-License-Identifier: MIT */
/* The servers go away and come back: work waits, nobody is blamed, and it goes on where it was. */
#include "harness.h"

#include <stdio.h>
#include <string.h>

START_TEST(a_database_that_is_stopped_in_any_way_is_waited_for)
{
	static const char *const ways[] = {"fast", "immediate", "kill"};
	struct world w;
	struct daemon d;
	world_begin(&w, "stopped");
	config_main(&w, "%s", "    workers: 2\n");
	daemon_start_main(&w, &d);
	for (int i = 0; i < 3; i++) {
		char prefix[32];
		(void)snprintf(prefix, sizeof prefix, "%s-", ways[i]);
		publish_many(&w, w.queue, prefix, 100);
		postgres_stop(&w, ways[i]);
		(void)snprintf(prefix, sizeof prefix, "%s-while-away-", ways[i]);
		publish_many(&w, w.queue, prefix, 100);
		postgres_start(&w);
		WAIT_FOR(effect_keys(&w) == 200 * (i + 1) && is_settled(w.queue), 60);
	}
	ck_assert_int_eq(effects(&w), 600);
	ck_assert_int_eq(parked(&w, NULL), 0);
	world_end(&w);
}
END_TEST

START_TEST(a_broker_that_is_restarted_or_killed_is_consumed_from_again)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "restarted");
	daemon_start_main(&w, &d);
	for (int i = 0; i < 2; i++) {
		publish_many(&w, w.queue, i == 0 ? "stop" : "kill", 100);
		broker_stop(&w, i == 1);
		broker_start(&w);
		WAIT_FOR(queue_state(w.queue).consumers == 1, 40);
		publish_many(&w, w.queue, i == 0 ? "after-stop" : "after-kill", 100);
		WAIT_FOR(effect_keys(&w) == 200 * (i + 1) && is_settled(w.queue), 60);
	}
	ck_assert_int_eq(effects(&w), 400);
	ck_assert_int_eq(parked(&w, NULL), 0);
	world_end(&w);
}
END_TEST

START_TEST(a_standby_that_was_promoted_is_found_in_the_list_of_hosts)
{
	struct world w;
	struct daemon d;
	char databases[512];
	world_begin(&w, "promoted");
	(void)snprintf(databases, sizeof databases,
		"databases:\n  pair:\n    conninfo: host=127.0.0.1,127.0.0.1 port=%s,%d "
		"dbname=inboxd_test user=inboxd password=%s\n    schema: %s\n",
		environment("INBOXD_TEST_PGPORT"), standby_start(),
		environment("INBOXD_TEST_PGPASSWORD"), w.name);
	config_write(&w, "inboxd", databases,
		"  main: {queue: %s, handler: effect, database: pair, options: {table: "
		"%s.effect}}\n",
		w.queue, w.name);
	daemon_start_main(&w, &d);
	publish_many(&w, w.queue, "before", 50);
	WAIT_FOR(effects(&w) == 50 && is_settled(w.queue), 30);
	WAIT_FOR(sql_int(&w, "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= "
			     "pg_current_wal_lsn()") == 1,
		30);
	postgres_stop(&w, "immediate");
	publish_many(&w, w.queue, "between", 50);
	WAIT_FOR(log_lines(&d, "event=paused") >= 1, 20);
	standby_promote(&w);
	WAIT_FOR(effect_keys(&w) == 100 && is_settled(w.queue), 30);
	ck_assert_int_eq(effects(&w), 100);
	ck_assert_int_eq(parked(&w, NULL), 0);
	ck_assert_int_eq(daemon_stop(&d), 0);
	postgres_start(&w);
	standby_end(&w);
	world_end(&w);
}
END_TEST

UNIT_SUITE_TIMEOUT(240, "integration/outages", a_database_that_is_stopped_in_any_way_is_waited_for,
	a_broker_that_is_restarted_or_killed_is_consumed_from_again,
	a_standby_that_was_promoted_is_found_in_the_list_of_hosts)

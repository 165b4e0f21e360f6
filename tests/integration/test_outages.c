/* SPDX-License-Identifier: MIT */
/* The servers go away and come back: work waits, nobody is blamed, and it goes on where it was. */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* What comes first after a pause is no reason for another one. */
START_TEST(a_consumer_that_paused_with_nothing_in_hand_pauses_once)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "idle_pause");
	daemon_start_main(&w, &d);
	postgres_stop(&w, "fast");
	WAIT_FOR(log_lines(&d, "event=paused") == 1, 20);
	postgres_start(&w);
	WAIT_FOR(queue_state(w.queue).consumers == 1, 30);
	publish(&w, w.queue, &(struct msg){.id = "first", .act = "sleep:500"});
	publish_many(&w, w.queue, "m", 20);
	WAIT_FOR(effect_keys(&w) == 21 && is_settled(w.queue), 30);
	ck_assert_int_eq(log_lines(&d, "event=paused"), 1);
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
	WAIT_FOR(sql_int(&w,
			 "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= "
			 "pg_current_wal_lsn()") == 1,
		30);
	postgres_stop(&w, "immediate");
	publish_many(&w, w.queue, "between", 50);
	WAIT_FOR(log_lines(&d, "event=paused") >= 1, 20);
	standby_promote(&w);
	all_once(&w, 100);
	ck_assert_int_eq(daemon_stop(&d), 0);
	postgres_start(&w);
	standby_end(&w);
	world_end(&w);
}
END_TEST

/* ---- half a minute, under load --------------------------------------------------- */

enum { A_SECOND = 500, AWAY_S = 30 };

/* 500 messages a second with ids PREFIX0…, for so long. */
static int publish_steadily(struct world *w, const char *prefix, int from, int seconds)
{
	int64_t begin = now_ms();
	int n = 0;
	while (n < A_SECOND * seconds) {
		for (; n < A_SECOND * seconds && n <= (now_ms() - begin) * A_SECOND / 1000; n++) {
			char id[64];
			(void)snprintf(id, sizeof id, "%s%d", prefix, from + n);
			publish(w, w->queue, &(struct msg){.id = id});
		}
		sleep_ms(10);
	}
	publish_confirm(w);
	return from + n;
}

START_TEST(a_database_away_for_30_s_under_load_uses_no_attempt_and_is_worked_with_within_10_s)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "database_away");
	config_main(&w, "%s", "    workers: 2\n");
	daemon_start_main(&w, &d);
	int n = publish_steadily(&w, "m", 0, 2);
	WAIT_FOR(effects(&w) > 0, 20);
	int before = log_lines(&d, "");
	postgres_stop(&w, "fast");
	int64_t cpu = cpu_ms(&d);
	n = publish_steadily(&w, "m", n, AWAY_S);
	ck_assert_int_lt(cpu_ms(&d) - cpu, AWAY_S * 100);
	ck_assert_int_lt(log_lines(&d, "") - before, 15);
	postgres_start(&w);
	int64_t known = effects(&w);
	WAIT_FOR(effects(&w) > known, 10);
	n = publish_steadily(&w, "m", n, 1);
	all_once(&w, n);
	nobody_was_blamed(&w, &d);
	world_end(&w);
}
END_TEST

START_TEST(a_broker_away_for_30_s_under_load_uses_no_attempt_and_is_consumed_from_within_10_s)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "broker_away");
	config_main(&w, "%s", "    workers: 2\n");
	daemon_start_main(&w, &d);
	int n = publish_steadily(&w, "m", 0, 2);
	broker_stop(&w, true);
	stays_calm(&d, AWAY_S);
	broker_start(&w);
	WAIT_FOR(queue_state(w.queue).consumers == 1, 10);
	n = publish_steadily(&w, "m", n, 2);
	all_once(&w, n);
	nobody_was_blamed(&w, &d);
	world_end(&w);
}
END_TEST

/* ---- other ways of being away ---------------------------------------------------- */

START_TEST(a_start_without_broker_and_database_waits_for_both_and_can_be_stopped)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "at_boot");
	broker_stop(&w, true);
	postgres_stop(&w, "fast");
	daemon_start(&w, "inboxd", &d);
	WAIT_FOR(log_lines(&d, "event=broker_unavailable") > 0, 20);
	ck_assert_int_eq(daemon_stop(&d), 0);
	daemon_start(&w, "inboxd", &d);
	WAIT_FOR(log_lines(&d, "event=broker_unavailable") > 1, 20);
	stays_calm(&d, 5);
	postgres_start(&w);
	broker_start(&w);
	WAIT_FOR(queue_state(w.queue).consumers == 1, 20);
	publish_many(&w, w.queue, "m", 20);
	WAIT_FOR(effect_keys(&w) == 20 && is_settled(w.queue), 20);
	world_end(&w);
}
END_TEST

static void end_sessions(struct world *w)
{
	sql(w, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'inboxd'");
}

START_TEST(a_server_that_is_read_only_by_default_is_written_to_all_the_same)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "read_only");
	daemon_start_main(&w, &d);
	postgres_set("default_transaction_read_only", "on");
	end_sessions(&w);
	publish_many(&w, w.queue, "on", 50);
	WAIT_FOR(effects(&w) == 50 && is_settled(w.queue), 30);
	postgres_set("default_transaction_read_only", NULL);
	publish_many(&w, w.queue, "off", 50);
	all_once(&w, 100);
	nobody_was_blamed(&w, &d);
	world_end(&w);
}
END_TEST

START_TEST(a_server_without_a_connection_to_spare_is_waited_for)
{
	static PGconn *taken[256];
	struct world w;
	struct daemon d;
	int n = 0;
	world_begin(&w, "connections");
	daemon_start_main(&w, &d);
	for (; n < 256; n++) {
		taken[n] = PQconnectdb(environment("INBOXD_TEST_ADMIN_CONNINFO"));
		if (PQstatus(taken[n]) != CONNECTION_OK)
			break;
	}
	ck_assert_int_gt(n, 100);
	end_sessions(&w);
	/* The places that have come free are taken at once. */
	for (int i = n; i < 256; i++)
		taken[i] = PQconnectdb(environment("INBOXD_TEST_ADMIN_CONNINFO"));
	WAIT_FOR(log_lines(&d, "53300") + log_lines(&d, "remaining connection slots") +
				log_lines(&d, "too many clients") >
			0,
		20);
	publish_many(&w, w.queue, "m", 20);
	stays_calm(&d, 5);
	ck_assert_int_eq(effects(&w), 0);
	for (int i = 0; i < 256; i++)
		PQfinish(taken[i]);
	all_once(&w, 20);
	nobody_was_blamed(&w, &d);
	world_end(&w);
}
END_TEST

/* The handler's table in a tablespace of its own, on a file system of 8 MiB: only root can make
 * one. */
START_TEST(a_full_disk_is_waited_for)
{
	struct world w;
	struct daemon d;
	char dir[512];
	SKIP_UNLESS(geteuid() == 0, "only root can make a file system");
	world_begin(&w, "full");
	/* Ended with the server at the latest, should this fail. */
	(void)snprintf(dir, sizeof dir, "%s/../full", environment("INBOXD_TEST_PGDATA"));
	run_shell(&w,
		"mkdir -m 700 $1; mount -t tmpfs -o size=8m,mode=700 tmpfs $1; "
		"chown postgres: $1",
		dir);
	sql(&w, "CREATE TABLESPACE small LOCATION '%s'", dir);
	sql(&w, "ALTER TABLE effect SET TABLESPACE small");
	sql(&w, "CREATE TABLE filler (t text) TABLESPACE small");
	PQclear(PQexec(w.db,
		"INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, 20000)"));
	sql(&w, "SELECT 1");
	daemon_start_main(&w, &d);
	for (int i = 0; i < 20; i++) {
		char id[16], body[6000];
		for (size_t k = 0; k < sizeof body; k++)
			body[k] = (char)('a' + random() % 26);
		(void)snprintf(id, sizeof id, "m%d", i);
		publish(&w, w.queue, &(struct msg){.id = id, .body = body, .size = sizeof body});
	}
	publish_confirm(&w);
	WAIT_FOR(log_lines(&d, "53100") > 0, 20);
	stays_calm(&d, 15);
	nobody_was_blamed(&w, &d);
	sql(&w, "DROP TABLE filler");
	all_once(&w, 20);
	nobody_was_blamed(&w, &d);
	ck_assert_int_eq(daemon_stop(&d), 0);
	sql(&w, "DROP TABLE effect");
	sql(&w, "DROP TABLESPACE small");
	run_shell(&w, "umount $1; rmdir $1", dir);
	world_end(&w);
}
END_TEST

UNIT_SUITE_TIMEOUT(240, "integration/outages", a_database_that_is_stopped_in_any_way_is_waited_for,
	a_consumer_that_paused_with_nothing_in_hand_pauses_once,
	a_broker_that_is_restarted_or_killed_is_consumed_from_again,
	a_standby_that_was_promoted_is_found_in_the_list_of_hosts,
	a_database_away_for_30_s_under_load_uses_no_attempt_and_is_worked_with_within_10_s,
	a_broker_away_for_30_s_under_load_uses_no_attempt_and_is_consumed_from_within_10_s,
	a_start_without_broker_and_database_waits_for_both_and_can_be_stopped,
	a_server_that_is_read_only_by_default_is_written_to_all_the_same,
	a_server_without_a_connection_to_spare_is_waited_for, a_full_disk_is_waited_for)

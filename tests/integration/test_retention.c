/* SPDX-License-Identifier: MIT */
/* Keys are forgotten when they are older than retention.keep, and nothing else is; whoever is at
 * work meanwhile does not notice. */
#include "harness.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEEP_1H "    retention: {keep: 1h}\n"
#define JANITOR "inboxd: janitor"

/* Its next life begins with a sweep. */
static void sweep_again(const struct daemon *d)
{
	WAIT_FOR(role_pid(d, JANITOR) > 0, 20);
	role_kill(d, JANITOR);
}

/* A daemon with a consumer that the database knows, and nothing to forget yet. */
static void begin(struct world *w, const char *name, struct daemon *d)
{
	world_begin(w, name);
	config_main(w, "%s", KEEP_1H);
	daemon_start_main(w, d);
}

static void age(struct world *w, const char *keys, const char *by)
{
	sql(w,
		"UPDATE inbox SET at = clock_timestamp() - interval '%s' WHERE key_text(key) LIKE "
		"'%s'",
		by, keys);
}

/* So many markers PREFIX1…, 2 h to 1 h old and all different in that, in no order. */
static void add_old(struct world *w, const char *prefix, int n)
{
	sql(w,
		"INSERT INTO inbox (at, consumer, key, fingerprint) "
		"SELECT clock_timestamp() - interval '1 hour 1 second' - i * 7919 %% %d * interval "
		"'1 hour' / %d, c.id, "
		"'\\x01' || convert_to('%s' || i, 'UTF8'), '' "
		"FROM generate_series(1, %d) i, consumer c WHERE c.identity = 'main'",
		n, n, prefix, n);
}

static int64_t markers_like(struct world *w, const char *keys)
{
	return sql_int(w, "SELECT count(*) FROM inbox WHERE key_text(key) LIKE '%s'", keys);
}

static const char *known(struct world *w)
{
	return sql_text(w, "SELECT string_agg(key_text(key), ' ' ORDER BY key) FROM inbox");
}

START_TEST(old_keys_go_and_young_ones_stay_and_a_copy_of_one_that_is_forgotten_is_new)
{
	struct world w;
	struct daemon d;
	char counted[320], line[1024] = "";
	begin(&w, "forget", &d);
	publish_many(&w, w.queue, "old", 5);
	publish_many(&w, w.queue, "young", 5);
	WAIT_FOR(effects(&w) == 10 && is_settled(w.queue), 20);
	age(&w, "old%", "1 hour 1 second");
	age(&w, "young%", "59 minutes");
	sweep_again(&d);
	WAIT_FOR(log_lines(&d, "event=keys_forgotten") == 1, 20);
	ck_assert_str_eq(known(&w), "young0 young1 young2 young3 young4");
	ck_assert_int_eq(log_lines(&d, "consumer=main keys=5"), 1);

	publish_many(&w, w.queue, "old", 5);
	publish_many(&w, w.queue, "young", 5);
	WAIT_FOR(effects(&w) >= 15 && is_settled(w.queue), 20);
	ck_assert_int_eq(effects(&w), 15);
	ck_assert_str_eq(
		sql_text(&w,
			"SELECT string_agg(key, ' ' ORDER BY key) FROM (SELECT key FROM effect "
			"GROUP BY key HAVING count(*) = 2) k"),
		"old0 old1 old2 old3 old4");
	ck_assert_int_eq(
		inboxctl(&w, "inboxd", (const char *const[]){"status", "--json", NULL}), 0);
	(void)snprintf(counted, sizeof counted, "%s/inboxctl.out", w.dir);
	FILE *f = fopen(counted, "re");
	ck_assert_ptr_nonnull(f);
	while (strstr(line, "\"forgotten\": 5") == NULL)
		ck_assert_msg(fgets(line, sizeof line, f) != NULL, "not counted: %s", line);
	(void)fclose(f);
	world_end(&w);
}
END_TEST

/* Running one of them again must find what is known of its key. */
START_TEST(the_key_of_a_parked_message_is_kept_whatever_its_state_for_as_long_as_it_is_parked)
{
	struct world w;
	struct daemon d;
	begin(&w, "parkedkeys", &d);
	publish_many(&w, w.queue, "k", 6);
	WAIT_FOR(effects(&w) == 6 && is_settled(w.queue), 20);
	sql(&w,
		"INSERT INTO parked (consumer, entry, state, reason, next_at, key, fingerprint, "
		"queue, "
		"exchange, routing_key, redelivered, properties, body, body_size) "
		"SELECT i.consumer, 'main', s.state, 'rejected', CASE s.state WHEN 'waiting' THEN "
		"clock_timestamp() + interval '1 day' END, i.key, i.fingerprint || '\\x00', 'q', "
		"'', '', "
		"false, '\\x0000', '', 0 FROM "
		"unnest('{waiting,failed,mismatch,unresolved,discarded}'"
		"::text[]) WITH ORDINALITY AS s (state, n) JOIN inbox i ON key_text(i.key) = 'k' "
		"|| s.n");
	age(&w, "k%", "2 hours");
	sweep_again(&d);
	WAIT_FOR(markers(&w) == 5, 20);
	ck_assert_str_eq(known(&w), "k1 k2 k3 k4 k5");
	sql(&w, "DELETE FROM parked WHERE state IN ('failed', 'discarded')");
	sweep_again(&d);
	WAIT_FOR(markers(&w) == 3, 20);
	ck_assert_str_eq(known(&w), "k1 k3 k4");
	world_end(&w);
}
END_TEST

START_TEST(a_key_in_somebodys_hand_is_left_for_the_next_time_and_nobody_waits)
{
	struct world w;
	struct daemon d;
	begin(&w, "inhand", &d);
	add_old(&w, "k", 4);
	sql(&w, "BEGIN");
	/* As a claim does, and as somebody does who deletes by hand. */
	sql(&w,
		"SELECT pg_advisory_xact_lock(key_lock(consumer, key)) FROM inbox WHERE "
		"key_text(key) = 'k2'");
	sql(&w, "SELECT FROM inbox WHERE key_text(key) = 'k3' FOR UPDATE");
	sweep_again(&d);
	WAIT_FOR(log_lines(&d, "event=keys_forgotten") == 1, 20);
	ck_assert_str_eq(known(&w), "k2 k3");
	sql(&w, "COMMIT");
	sweep_again(&d);
	WAIT_FOR(markers(&w) == 0, 20);
	world_end(&w);
}
END_TEST

START_TEST(one_at_a_time_works_in_a_schema_and_the_others_leave_it_to_it)
{
	struct world w;
	struct daemon d;
	begin(&w, "onejanitor", &d);
	add_old(&w, "k", 20);
	sql(&w, "BEGIN");
	ck_assert_int_eq(
		sql_int(&w, "SELECT forgotten FROM forget_old('main', '1 hour', p_most => 5)"), 5);
	ck_assert_int_eq(markers(&w), 15);
	/* Its whole sweep passes: the session that it makes comes and goes. */
	int64_t swept = sql_int(
		&w, "SELECT sessions FROM pg_stat_database WHERE datname = current_database()");
	sweep_again(&d);
	sql(&w, "SELECT pg_stat_clear_snapshot()");
	WAIT_FOR((sql(&w, "SELECT pg_stat_clear_snapshot()"),
			 sql_int(&w,
				 "SELECT sessions FROM pg_stat_database WHERE datname = "
				 "current_database()")) > swept &&
			sql_int(&w,
				"SELECT count(*) FROM pg_stat_activity WHERE application_name = "
				"'inboxd janitor'") == 0,
		20);
	ck_assert_int_eq(markers(&w), 15);
	ck_assert_int_eq(log_lines(&d, "event=keys_forgotten"), 0);
	sql(&w, "ROLLBACK");
	sweep_again(&d);
	WAIT_FOR(markers(&w) == 0, 20);
	ck_assert_int_eq(log_lines(&d, "keys=20"), 1);
	ck_assert_int_eq(log_lines(&d, "event=retention_failed"), 0);
	world_end(&w);
}
END_TEST

START_TEST(the_janitor_is_there_only_while_some_consumers_keys_are_not_kept_for_ever)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "forever");
	config_main(&w, "%s", "    retention: {keep: forever}\n");
	daemon_start_main(&w, &d);
	ck_assert_int_eq(role_pid(&d, JANITOR), 0);
	add_old(&w, "k", 5);
	config_main(&w, "%s", KEEP_1H);
	ck_assert_int_eq(kill(d.pid, SIGHUP), 0);
	WAIT_FOR(markers(&w) == 0 && role_pid(&d, JANITOR) > 0, 20);
	config_main(&w, "%s", "    retention: {keep: forever}\n");
	ck_assert_int_eq(kill(d.pid, SIGHUP), 0);
	WAIT_FOR(role_pid(&d, JANITOR) == 0, 20);
	WAIT_FOR(queue_state(w.queue).consumers == 1, 20);
	world_end(&w);
}
END_TEST

/* Deadlocks, as the server counts them. */
static int64_t deadlocks(struct world *w)
{
	sql(w, "SELECT pg_stat_clear_snapshot()");
	return sql_int(
		w, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()");
}

/* Fresh keys, copies of keys that are being forgotten, and copies of fresh ones. */
START_TEST(two_daemons_go_on_with_their_work_while_a_hundred_thousand_old_keys_go)
{
	enum { OLD = 100000, N = 2000 };
	static const char *const files[] = {"inboxd", "second"};
	struct world w;
	struct daemon d[2];
	begin(&w, "busy", &d[0]);
	config_write(&w, files[1], "",
		"  main: {queue: %s, handler: effect, retention: {keep: 1h}, options: {table: "
		"%s.effect}}\n",
		w.queue, w.name);
	daemon_start(&w, files[1], &d[1]);
	WAIT_FOR(queue_state(w.queue).consumers == 2, 20);
	int64_t before = deadlocks(&w);
	add_old(&w, "old", OLD);
	sweep_again(&d[0]);
	sweep_again(&d[1]);
	WAIT_FOR(markers_like(&w, "old%") < OLD, 20);
	publish_many(&w, w.queue, "new", N);
	publish_many(&w, w.queue, "old", N);
	publish_many(&w, w.queue, "new", N);
	for (int i = 0; i < 50; i++) {
		ck_assert_int_eq(
			sql_int(&w,
				"SELECT count(*) FROM pg_stat_activity WHERE application_name "
				"= 'inboxd janitor' AND state LIKE 'idle in transaction%%'"),
			0);
		sleep_ms(10);
	}
	WAIT_FOR(is_settled(w.queue), 60);
	/* All of it was at the same time. */
	ck_assert_int_gt(sql_int(&w,
				 "SELECT count(*) FROM inbox WHERE at < clock_timestamp() - "
				 "interval '1 hour'"),
		0);
	WAIT_FOR(sql_int(&w,
			 "SELECT count(*) FROM inbox WHERE at < clock_timestamp() - interval '1 "
			 "hour'") == 0,
		90);
	WAIT_FOR(log_lines(&d[0], "event=keys_forgotten") +
				log_lines(&d[1], "event=keys_forgotten") >
			0,
		20);
	ck_assert_int_eq(deadlocks(&w), before);
	ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM effect WHERE key LIKE 'new%%'"), N);
	ck_assert_int_eq(
		sql_int(&w, "SELECT count(DISTINCT key) FROM effect WHERE key LIKE 'new%%'"), N);
	ck_assert_int_eq(markers_like(&w, "new%"), N);
	/* No key of the old ones had more than one effect, and each effect its marker, a young one.
	 */
	ck_assert_int_eq(effects(&w), effect_keys(&w));
	ck_assert_int_eq(markers(&w), effects(&w));
	ck_assert_int_eq(parked(&w, NULL), 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(log_lines(&d[i], "event=retention_failed"), 0);
		ck_assert_int_eq(log_lines(&d[i], "event=paused"), 0);
	}
	world_end(&w);
}
END_TEST

START_TEST(a_stop_does_not_wait_for_the_end_of_a_sweep)
{
	enum { OLD = 100000 };
	struct world w;
	struct daemon d;
	begin(&w, "midsweep", &d);
	add_old(&w, "old", OLD);
	sweep_again(&d);
	WAIT_FOR(markers(&w) < OLD, 20);
	int64_t begun = now_ms();
	ck_assert_int_eq(daemon_stop(&d), 0);
	ck_assert_int_lt(now_ms() - begun, (int64_t)(3000 * wait_factor()));
	int64_t left = markers(&w);
	ck_assert_int_gt(left, 0);
	WAIT_FOR(sql_int(&w,
			 "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE "
			 "'inboxd%%'") == 0,
		10);
	ck_assert_int_eq(left - markers(&w), 0);
	world_end(&w);
}
END_TEST

START_TEST(a_database_restarted_in_the_midst_of_a_sweep_is_said_once_and_the_sweep_goes_on)
{
	enum { OLD = 50000 };
	struct world w;
	struct daemon d;
	begin(&w, "sweptaway", &d);
	add_old(&w, "old", OLD);
	sweep_again(&d);
	WAIT_FOR(markers(&w) < OLD, 20);
	ck_assert_int_gt(markers(&w), 0);
	postgres_stop(&w, "immediate");
	WAIT_FOR(log_lines(&d, "event=retention_failed") == 1, 20);
	sleep_ms(4000); /* some tries */
	postgres_start(&w);
	WAIT_FOR(markers(&w) == 0, 90);
	WAIT_FOR(log_lines(&d, "event=retention_resumed") == 1, 20);
	ck_assert_int_eq(log_lines(&d, "event=retention_failed"), 1);
	publish_many(&w, w.queue, "m", 20);
	WAIT_FOR(effects(&w) == 20 && is_settled(w.queue), 30);
	ck_assert_int_eq(markers(&w), 20);
	world_end(&w);
}
END_TEST

START_TEST(what_is_old_is_told_by_the_databases_clock_whatever_the_hosts_says)
{
	static const int64_t days[] = {2, -2};
	struct world w;
	struct daemon d;
	char file[320], preload[640];
	world_begin(&w, "skewed");
	config_main(&w, "%s", KEEP_1H);
	(void)snprintf(file, sizeof file, "%s/clock", w.dir);
	(void)snprintf(preload, sizeof preload, "%s/preload_clock.so", built("tests/handlers"));
	ck_assert_int_eq(setenv("INBOXD_FAULT_CLOCK", file, 1), 0);
	for (int i = 0; i < 2; i++) {
		const int64_t seconds = days[i] * 86400;
		int fd = open(file, O_CREAT | O_RDWR | O_CLOEXEC, 0644);
		ck_assert_int_eq(pwrite(fd, &seconds, sizeof seconds, 0), sizeof seconds);
		(void)close(fd);
		ck_assert_int_eq(setenv("LD_PRELOAD", preload, 1), 0);
		daemon_start_main(&w, &d);
		ck_assert_int_eq(unsetenv("LD_PRELOAD"), 0);
		publish_many(&w, w.queue, i == 0 ? "a" : "b", 5);
		WAIT_FOR(markers(&w) == 5 * (i + 1) && is_settled(w.queue), 20);
		age(&w, "%", "59 minutes");
		add_old(&w, "old", 10);
		sweep_again(&d);
		WAIT_FOR(log_lines(&d, "event=keys_forgotten") == i + 1, 20);
		ck_assert_str_eq(
			known(&w), i == 0 ? "a0 a1 a2 a3 a4" : "a0 a1 a2 a3 a4 b0 b1 b2 b3 b4");
		ck_assert_int_eq(daemon_stop(&d), 0);
	}
	world_end(&w);
}
END_TEST

START_TEST(behind_a_pooler_in_transaction_mode_old_keys_go_too)
{
	struct world w;
	struct daemon d;
	char servers[1024];
	world_begin(&w, "pooled");
	(void)snprintf(servers, sizeof servers,
		"databases: {default: {conninfo: \"%s\", schema: %s, prepared_statements: "
		"false}}\n",
		environment("INBOXD_TEST_CONNINFO"), w.name);
	config_write(&w, "inboxd", servers,
		"  main: {queue: %s, handler: effect, retention: {keep: 1h}, options: {table: "
		"%s.effect}}\n",
		w.queue, w.name);
	daemon_start_main(&w, &d);
	add_old(&w, "old", 1200);
	sweep_again(&d);
	WAIT_FOR(markers(&w) == 0, 20);
	WAIT_FOR(log_lines(&d, "consumer=main keys=1200") == 1, 20);
	world_end(&w);
}
END_TEST

UNIT_SUITE_TIMEOUT(180, "integration/retention",
	old_keys_go_and_young_ones_stay_and_a_copy_of_one_that_is_forgotten_is_new,
	the_key_of_a_parked_message_is_kept_whatever_its_state_for_as_long_as_it_is_parked,
	a_key_in_somebodys_hand_is_left_for_the_next_time_and_nobody_waits,
	one_at_a_time_works_in_a_schema_and_the_others_leave_it_to_it,
	the_janitor_is_there_only_while_some_consumers_keys_are_not_kept_for_ever,
	two_daemons_go_on_with_their_work_while_a_hundred_thousand_old_keys_go,
	a_stop_does_not_wait_for_the_end_of_a_sweep,
	a_database_restarted_in_the_midst_of_a_sweep_is_said_once_and_the_sweep_goes_on,
	what_is_old_is_told_by_the_databases_clock_whatever_the_hosts_says,
	behind_a_pooler_in_transaction_mode_old_keys_go_too)

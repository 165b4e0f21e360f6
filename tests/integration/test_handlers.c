/* SPDX-License-Identifier: MIT */
/* Whatever a handler does, it harms its own message only: the good ones before, between and behind
 * have one effect each, none of them is parked, and the broker's connection stays. */
#include "harness.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A message that misbehaves, and what must be parked for it: LIKE patterns; state NULL: nothing, it
 * is done. */
struct act {
	const char *id, *step, *sql;
	const char *state, *reason, *detail;
};

static void publish_step(struct world *w, const char *id, const char *step, const char *statement)
{
	amqp_table_entry_t entries[] = {
		entry_text("do", step), entry_text("sql", statement != NULL ? statement : "")};
	int n = statement != NULL ? 2 : 1;
	const amqp_basic_properties_t p = {
		._flags = AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_HEADERS_FLAG,
		.message_id = amqp_cstring_bytes(id),
		.headers = {n, entries}};
	publish(w, w->queue, &(struct msg){.properties = &p, .body = step});
}

static void config_misbehave(struct world *w, const char *handler, const char *more)
{
	sql(w,
		"CREATE OR REPLACE VIEW done AS SELECT convert_from(key::bytea, 'UTF8') AS key "
		"FROM effect");
	config_handler(w, handler, more);
}

enum { NEIGHBOURS = 3 }; /* behind each */

static void publish_among_good_ones(
	struct world *w, const struct act *acts, size_t n, const char *good)
{
	char id[40];
	for (size_t i = 0; i < n; i++) {
		publish_step(w, acts[i].id, acts[i].step, acts[i].sql);
		for (int k = 0; k < NEIGHBOURS; k++) {
			(void)snprintf(id, sizeof id, "good%zu-%d", i, k);
			publish_step(w, id, good, NULL);
		}
	}
	publish_confirm(w);
}

static void check_act(struct world *w, const struct act *a)
{
	const char *row = sql_text(w,
		"SELECT concat_ws('|', state, reason, sqlstate, attempts, crashes, detail) FROM "
		"parked_view WHERE key = '%s'",
		a->id);
	if (a->state == NULL) {
		ck_assert_msg(*row == '\0', "%s: parked as %s", a->id, row);
		return;
	}
	ck_assert_msg(
		sql_int(w,
			"SELECT count(*) FROM parked_view WHERE key = '%s' AND state = '%s' AND "
			"reason = '%s' AND detail LIKE '%s'",
			a->id, a->state, a->reason, a->detail) == 1,
		"%s: parked as %s, not %s|%s|…|%s", a->id, row, a->state, a->reason, a->detail);
	ck_assert_msg(
		sql_int(w, "SELECT count(*) FROM done WHERE key = '%s'", a->id) == 0, "%s", a->id);
}

static int64_t good_effects(struct world *w)
{
	return sql_int(w, "SELECT count(*) FROM done WHERE key LIKE 'good%%'");
}

/* All good ones once, everything settled, nothing waiting. */
static bool is_over(struct world *w, size_t n)
{
	return good_effects(w) >= (int64_t)n * NEIGHBOURS && is_settled(w->queue) &&
		sql_int(w, "SELECT count(*) FROM parked WHERE state = 'waiting'") == 0;
}

static void check_acts(struct world *w, const struct daemon *d, const struct act *acts, size_t n)
{
	WAIT_FOR(is_over(w, n), 60);
	for (size_t i = 0; i < n; i++)
		check_act(w, &acts[i]);
	ck_assert_int_eq(good_effects(w), (int64_t)n * NEIGHBOURS);
	ck_assert_int_eq(sql_int(w,
				 "SELECT count(*) FROM (SELECT FROM done GROUP BY key HAVING "
				 "count(*) > 1) x"),
		0);
	ck_assert_int_eq(sql_int(w, "SELECT count(*) FROM parked_view WHERE key LIKE 'good%%'"), 0);
	/* It was the same connection all the while. */
	ck_assert_int_eq(log_lines(d, "event=connected"), 1);
}

static void run_acts(struct world *w, struct daemon *d, const struct act *acts, size_t n,
	const char *handler, const char *good, const char *more)
{
	config_misbehave(w, handler, more);
	publish_among_good_ones(w, acts, n, good);
	daemon_start_main(w, d);
	check_acts(w, d, acts, n);
}
#define N_OF(array_) (sizeof(array_) / sizeof((array_)[0]))

#define SHORT "    retry: {immediate: 1, delays: [100ms], jitter: 0%}\n    crash_limit: 2\n"

/* ---- the process ----------------------------------------------------------------- */

START_TEST(every_way_to_end_the_process_costs_its_own_message_its_crashes)
{
	static const struct act acts[] = {
		{"crash", "ok,crash", NULL, "failed", "crashed", "%signal 11 (SIGSEGV)%"},
		{"abort", "ok,abort", NULL, "failed", "crashed", "%signal 6 (SIGABRT)%"},
		{"stack", "ok,stack", NULL, "failed", "crashed", "%signal 11 (SIGSEGV)%"},
		{"exit", "ok,exit", NULL, "failed", "crashed", "%exited with code 0%"},
		{"_exit", "ok,_exit", NULL, "failed", "crashed", "%exited with code 0%"},
		{"close", "ok,close", NULL, "failed", "crashed", "%exited with code 70%"},
		{"close-std", "ok,close-std", NULL, "failed", "crashed", "%exited with code 70%"},
	};
	struct world w;
	struct daemon d;
	world_begin(&w, "ends");
	run_acts(&w, &d, acts, N_OF(acts), "misbehave", "ok", SHORT);
	ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM parked WHERE crashes = 2"), N_OF(acts));
	world_end(&w);
}
END_TEST

START_TEST(what_never_ends_is_ended_the_statement_first_and_then_the_process)
{
	static const struct act acts[] = {
		{"spin", "ok,spin", NULL, "failed", "timed_out", "%over its time limit%"},
		{"hang", "ok,hang", NULL, "failed", "timed_out", "%over its time limit%"},
		{"pg_sleep", "ok,sql", "SELECT pg_sleep(60)", "failed", "timed_out", "%57014%"},
		{"print", "thread-print,ok", NULL, NULL, NULL, NULL},
	};
	struct world w;
	struct daemon d;
	world_begin(&w, "hangs");
	run_acts(&w, &d, acts, N_OF(acts), "misbehave", "ok",
		"    retry: {immediate: 0, delays: []}\n    crash_limit: 1\n    handler_timeout: "
		"1s\n");
	/* The statement's end cost no process, the two others two each: in a batch, and alone. */
	ck_assert_int_ge(log_lines(&d, "event=process_died"), 2);
	ck_assert_int_le(log_lines(&d, "event=process_died"), 4);
	world_end(&w);
}
END_TEST

START_TEST(an_exception_that_crosses_the_border_costs_its_own_message)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "cxx");
	config_misbehave(&w, "cxx", SHORT);
	sql(&w, "SET ROLE inboxd; CREATE TABLE plain (id text, word text); RESET ROLE");
	publish_many(&w, w.queue, "before", 5);
	publish(&w, w.queue, &(struct msg){.id = "bad", .body = "throw"});
	publish_many(&w, w.queue, "behind", 5);
	daemon_start_main(&w, &d);
	WAIT_FOR(sql_int(&w, "SELECT count(*) FROM plain") == 10 && is_settled(w.queue) &&
			sql_int(&w, "SELECT count(*) FROM parked WHERE state = 'failed'") == 1,
		30);
	ck_assert_str_eq(
		sql_text(&w, "SELECT key || ' ' || reason || ' ' || detail FROM parked_view"),
		"bad crashed worker killed by signal 6 (SIGABRT)");
	world_end(&w);
}
END_TEST

START_TEST(what_a_handler_changes_in_the_process_does_not_reach_the_next_message)
{
	static const struct act acts[] = {
		{"mask", "mask,ok", NULL, NULL, NULL, NULL},
		{"alarm", "alarm,ok", NULL, NULL, NULL, NULL},
		{"chdir", "chdir,ok", NULL, NULL, NULL, NULL},
		{"umask", "umask,ok", NULL, NULL, NULL, NULL},
		{"group", "group,ok", NULL, NULL, NULL, NULL},
		{"limits", "limits,ok", NULL, NULL, NULL, NULL},
		{"fork-return", "fork-return,ok", NULL, NULL, NULL, NULL},
		{"fork-use", "fork-use,ok", NULL, NULL, NULL, NULL},
		{"child", "child,ok", NULL, NULL, NULL, NULL},
	};
	struct world w;
	struct daemon d;
	world_begin(&w, "changes");
	run_acts(&w, &d, acts, N_OF(acts), "misbehave", "look,ok", SHORT "    batch: {max: 1}\n");
	ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM parked"), 0);
	ck_assert_int_eq(effects(&w), (int64_t)N_OF(acts) * (NEIGHBOURS + 1));
	ck_assert_int_eq(log_lines(&d, "event=process_died"), 0);
	/* A hard limit cannot be raised again by everybody: then the worker goes. */
	ck_assert_int_le(log_lines(&d, "handler_changed_process"), 1);
	world_end(&w);
}
END_TEST

static bool is_gone(pid_t pid)
{
	return kill(pid, 0) != 0 && errno == ESRCH;
}

START_TEST(no_process_of_a_handler_outlives_it_in_whatever_session_it_hides)
{
	struct world w;
	struct daemon d;
	char step[400], path[300], text[32] = "";
	world_begin(&w, "hides");
	config_misbehave(&w, "misbehave", SHORT);
	(void)snprintf(path, sizeof path, "%s/pid", w.dir);
	(void)snprintf(step, sizeof step, "daemon:%s,ok", path);
	publish_step(&w, "hides", step, NULL);
	publish_confirm(&w);
	daemon_start_main(&w, &d);
	WAIT_FOR(effects(&w) == 1 && is_settled(w.queue), 30);
	FILE *f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	ck_assert_ptr_nonnull(fgets(text, sizeof text, f));
	(void)fclose(f);
	pid_t pid = (pid_t)strtol(text, NULL, 10);
	ck_assert_int_gt(pid, 1);
	WAIT_FOR(is_gone(pid), 20);
	ck_assert_int_eq(log_lines(&d, "event=process_died"), 0);
	world_end(&w);
}
END_TEST

/* Who is at work when it happens runs again; its crash is counted, and one is not enough. */
START_TEST(a_thread_left_behind_that_crashes_loses_nobody_anything)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "thread");
	config_misbehave(&w, "misbehave", "    retry: {delays: [100ms]}\n");
	publish_step(&w, "bad", "thread-crash:300,ok", NULL);
	publish_confirm(&w);
	daemon_start_main(&w, &d);
	for (int i = 0; i < 20; i++) {
		char id[16];
		(void)snprintf(id, sizeof id, "good%d", i);
		publish_step(&w, id, "sleep:0.05,ok", NULL);
	}
	publish_confirm(&w);
	WAIT_FOR(log_lines(&d, "SEGV") >= 1, 30);
	WAIT_FOR(effects(&w) == 21 && is_settled(w.queue) && parked(&w, NULL) == 0, 30);
	ck_assert_int_eq(effect_keys(&w), 21);
	world_end(&w);
}
END_TEST

/* Between the log's own lines, which stay whole. */
START_TEST(two_hundred_megabytes_printed_by_a_handler_hold_up_no_message)
{
	struct world w;
	struct daemon d;
	static char line[1 << 17];
	int printed = 0, others = 0;
	world_begin(&w, "prints");
	config_misbehave(&w, "misbehave", SHORT);
	publish_step(&w, "loud", "print:100,ok", NULL);
	for (int i = 0; i < 20; i++) {
		char id[16];
		(void)snprintf(id, sizeof id, "good%d", i);
		publish_step(&w, id, "ok", NULL);
	}
	publish_confirm(&w);
	daemon_start(&w, "inboxd", &d);
	all_once(&w, 21);
	ck_assert_int_eq(daemon_stop(&d), 0);
	FILE *f = fopen(d.log, "r");
	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof line, f) != NULL) {
		printed += strspn(line, "p") == (1 << 16) - 1;
		others += strncmp(line, "time=", 5) != 0 && *line != 'p';
	}
	(void)fclose(f);
	ck_assert_int_ge(printed, 2 * 100 << 4);
	ck_assert_int_eq(others, 0);
	world_end(&w);
}
END_TEST

/* ---- memory ---------------------------------------------------------------------- */

START_TEST(a_leak_of_a_mebibyte_a_message_costs_no_message_anything)
{
	enum { N = 2000 };
	struct world w;
	struct daemon d;
	char id[16];
	int64_t most = 0;
	world_begin(&w, "leak");
	config_misbehave(&w, "misbehave", "    worker: {memory_max: 64MiB}\n    crash_limit: 1\n");
	for (int i = 0; i < N; i++) {
		(void)snprintf(id, sizeof id, "%d", i);
		publish_step(&w, id, "leak:1,queue", NULL);
	}
	publish_confirm(&w);
	daemon_start_main(&w, &d);
	int64_t until = now_ms() + 90000;
	while (effects(&w) < N && now_ms() < until) {
		pid_t pid = role_pid(&d, "inboxd: worker main/1");
		char status[64];
		(void)snprintf(status, sizeof status, "/proc/%d/status", (int)pid);
		if (pid > 0 && access(status, R_OK) == 0) {
			int64_t now = memory_kib(pid, false);
			most = now > most ? now : most;
		}
		sleep_ms(10);
	}
	WAIT_FOR(is_settled(w.queue), 30);
	ck_assert_int_eq(effect_keys(&w), N);
	ck_assert_int_eq(effects(&w), N);
	ck_assert_int_eq(parked(&w, NULL), 0);
	/* A batch that runs into the hard limit is run again one by one: no message's crash. */
	ck_assert_int_ge(log_lines(&d, "event=worker_recycled"), 5);
	ck_assert_int_ge(log_lines(&d, "reason=memory"), 5);
	/* A whole batch's leak on top of what it may have. */
	ck_assert_int_gt(most, 32 * 1024);
	ck_assert_int_lt(most, (64 + 5 * 16 + 100) * 1024);
	world_end(&w);
}
END_TEST

START_TEST(a_worker_is_started_anew_after_so_many_messages_and_nobody_notices)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "recycle");
	config_main(&w, "    worker: {recycle_after: 10}\n    batch: {max: 5}\n    workers: 2\n");
	publish_many(&w, w.queue, "m", 100);
	daemon_start_main(&w, &d);
	WAIT_FOR(effects(&w) >= 100 && is_settled(w.queue), 60);
	ck_assert_int_eq(effect_keys(&w), 100);
	ck_assert_int_eq(effects(&w), 100);
	ck_assert_int_eq(parked(&w, NULL), 0);
	ck_assert_int_ge(log_lines(&d, "reason=recycle_after"), 5);
	ck_assert_int_eq(log_lines(&d, "event=process_died"), 0);
	ck_assert_int_ge(sql_int(&w, "SELECT count(DISTINCT pid) FROM effect"), 5);
	world_end(&w);
}
END_TEST

START_TEST(a_handler_that_eats_all_memory_is_ended_and_its_message_says_why)
{
	static const struct act acts[] = {
		{"eat", "ok,eat", NULL, "failed", "crashed", "%more than worker.memory_max%"},
	};
	struct world w;
	struct daemon d;
	world_begin(&w, "eats");
	run_acts(&w, &d, acts, N_OF(acts), "misbehave", "ok",
		SHORT "    worker: {memory_max: 32MiB}\n    max_message_bytes: 1MiB\n"
		      "    batch: {bytes: 1MiB}\n");
	world_end(&w);
}
END_TEST

/* ---- the transaction ------------------------------------------------------------- */

START_TEST(no_statement_ends_the_transaction_or_hides_its_failure)
{
	static const struct act acts[] = {
		{"begin", "ok,sql", "BEGIN", "failed", "rejected", "%belongs to inboxd%"},
		{"commit", "ok,sql", "/* x */ COMMIT", "failed", "rejected", "%belongs to inboxd%"},
		{"rollback", "ok,sql", "ROLLBACK", "failed", "rejected", "%belongs to inboxd%"},
		{"end", "ok,sql", "END AND CHAIN", "failed", "rejected", "%belongs to inboxd%"},
		{"2pc", "ok,sql", "PREPARE TRANSACTION 'x'", "failed", "rejected",
			"%belongs to inboxd%"},
		{"two", "ok,sql", "SELECT 1; COMMIT", "failed", "sql_error", "%multiple commands%"},
		{"do", "ok,sql", "DO $$ BEGIN COMMIT; END $$", "failed", "sql_error", "%2D000%"},
		{"function", "ok,sql", "SELECT ends()", "failed", "sql_error", "%"},
		{"call", "ok,sql", "CALL commits()", "failed", "sql_error", "%2D000%"},
		{"swallow", "ok,swallow", NULL, "failed", "sql_error", "%although%failed%"},
		{"deferred", "ok,sql", "INSERT INTO deferred VALUES (1), (1)", "failed",
			"sql_error", "%23505%"},
		{"nonsense", "ok,nonsense", NULL, "failed", "broken", "%42, which is no result%"},
		{"long", "ok,long-reason", NULL, "failed", "rejected", "bad bytes%"},
		{"raise", "ok,sql", "SELECT raises()", "failed", "sql_error", "xxx%"},
		{"savepoint", "savepoint,ok", NULL, NULL, NULL, NULL},
	};
	struct world w;
	struct daemon d;
	world_begin(&w, "transaction");
	sql(&w,
		"SET ROLE inboxd; CREATE TABLE deferred (x int UNIQUE DEFERRABLE INITIALLY "
		"DEFERRED); "
		"CREATE FUNCTION ends() RETURNS void LANGUAGE plpgsql AS 'BEGIN COMMIT; END'; "
		"CREATE PROCEDURE commits() LANGUAGE plpgsql AS 'BEGIN COMMIT; END'; "
		"CREATE FUNCTION raises() RETURNS void LANGUAGE plpgsql AS "
		"$$ BEGIN RAISE '%%', repeat('x', 300000); END $$; RESET ROLE");
	run_acts(&w, &d, acts, N_OF(acts), "misbehave", "ok", SHORT);
	ck_assert_int_eq(log_lines(&d, "event=process_died"), 0);
	world_end(&w);
}
END_TEST

/* Without a word in the configuration P0001 is run again and 23505 is not. */
START_TEST(what_an_sqlstate_means_is_what_the_configuration_says)
{
	static const struct act acts[] = {
		{"P0001", "ok,raise:P0001", NULL, "failed", "sql_error", "%P0001%"},
		{"23505", "ok,raise:23505", NULL, "failed", "sql_error", "%23505%"},
		{"23514", "ok,raise:23514", NULL, "failed", "sql_error", "%23514%"},
		{"P0002", "ok,raise:P0002", NULL, "failed", "sql_error", "%P0002%"},
	};
	struct world w;
	struct daemon d;
	world_begin(&w, "sqlstates");
	run_acts(&w, &d, acts, N_OF(acts), "misbehave", "ok",
		"    retry: {immediate: 1, delays: [100ms], sqlstates: {P0001: reject, 23: retry, "
		"23514: reject}}\n");
	ck_assert_str_eq(sql_text(&w,
				 "SELECT string_agg(key || '=' || attempts, ' ' ORDER BY key) "
				 "FROM parked_view"),
		"23505=3 23514=1 P0001=1 P0002=3");
	world_end(&w);
}
END_TEST

/* Fails if anything of the session is not as inboxd has made it. */
static const char probe[] =
	"SELECT 1 / (current_setting('application_name') = 'inboxd main' AND "
	"to_regclass('pg_temp.left_behind') IS NULL AND current_user = 'inboxd' AND "
	"NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND "
	"pid = pg_backend_pid()) AND NOT EXISTS (SELECT FROM pg_listening_channels()) AND "
	"NOT EXISTS (SELECT FROM pg_prepared_statements WHERE name = 'left_behind') AND "
	"NOT EXISTS (SELECT FROM pg_cursors WHERE name = 'left_behind') AND "
	"current_setting('default_transaction_read_only') = 'on' AND "
	"current_setting('transaction_read_only') = 'off')::int";

START_TEST(nothing_left_in_the_session_reaches_the_next_message)
{
	static const char *const left[] = {
		"SET application_name = 'left behind'",
		"CREATE TEMP TABLE left_behind (x int)",
		"SELECT pg_advisory_lock(4711)",
		"LISTEN left_behind",
		"PREPARE left_behind AS SELECT 1",
		"DECLARE left_behind CURSOR WITH HOLD FOR SELECT 1",
		"SET SESSION AUTHORIZATION inboxd",
		"SET ROLE pg_monitor",
		"SET default_transaction_read_only = off",
		"SET statement_timeout = 1",
		"SELECT set_config('application_name', 'left behind', false)",
		("DO $$ BEGIN PERFORM set_config('default_transaction_read_only', 'off', false); "
		 "END $$"),
	};
	struct world w;
	struct daemon d;
	char id[32];
	world_begin(&w, "session");
	sql(&w, "GRANT pg_monitor TO inboxd");
	config_misbehave(&w, "misbehave", SHORT "    batch: {max: 1}\n");
	for (size_t i = 0; i < N_OF(left); i++) {
		(void)snprintf(id, sizeof id, "left%zu", i);
		publish_step(&w, id, "ok,sql", left[i]);
		(void)snprintf(id, sizeof id, "good%zu", i);
		publish_step(&w, id, "sql,ok", probe);
	}
	publish_confirm(&w);
	daemon_start_main(&w, &d);
	WAIT_FOR(is_settled(w.queue) &&
			sql_int(&w, "SELECT count(*) FROM parked WHERE state = 'waiting'") == 0,
		60);
	ck_assert_str_eq(sql_text(&w,
				 "SELECT coalesce(string_agg(key || ': ' || detail, ', '), '') "
				 "FROM parked_view WHERE key LIKE 'good%%'"),
		"");
	ck_assert_int_eq(good_effects(&w), N_OF(left));
	ck_assert_int_eq(log_lines(&d, "event=process_died"), 0);
	sql(&w, "REVOKE pg_monitor FROM inboxd");
	world_end(&w);
}
END_TEST

START_TEST(misuse_of_the_raw_connection_costs_its_own_message)
{
	static const struct act acts[] = {
		{"commit", "ok,conn-sql", "COMMIT", "failed", "broken", "%transaction%"},
		{"again", "ok,conn-sql", "COMMIT; BEGIN", "failed", "broken", "%transaction%"},
		{"rollback", "ok,conn-sql", "ROLLBACK", "failed", "broken", "%transaction%"},
		{"chain", "ok,conn-sql", "ROLLBACK; BEGIN READ WRITE", "failed", "broken",
			"%transaction%"},
		{"swallow", "ok,conn-sql", "SELECT 1/0", "failed", "retry", "%raw connection%"},
		{"savepoint", "ok,conn-sql", "SAVEPOINT a; ROLLBACK TO a", NULL, NULL, NULL},
		{"unfetched", "unfetched,ok", NULL, NULL, NULL, NULL},
		{"pipeline", "pipeline,ok", NULL, NULL, NULL, NULL},
		{"nonblocking", "nonblocking,ok", NULL, NULL, NULL, NULL},
		{"copy", "ok,copy", NULL, "failed", "retry", "%"},
		{"reset", "ok,reset", NULL, "failed", "crashed", "%"},
		{"finish", "ok,finish", NULL, "failed", "crashed", "%"},
	};
	struct world w;
	struct daemon d;
	world_begin(&w, "raw");
	run_acts(&w, &d, acts, N_OF(acts), "misbehave_conn", "ok", SHORT);
	world_end(&w);
}
END_TEST

START_TEST(a_handler_that_waits_for_itself_in_another_session_is_ended_by_its_time_limit)
{
	static const struct act acts[] = {
		{"own-lock", "own-lock", NULL, "failed", "timed_out", "%over its time limit%"},
	};
	struct world w;
	struct daemon d;
	char more[700];
	world_begin(&w, "itself");
	(void)snprintf(more, sizeof more,
		"    retry: {immediate: 0, delays: []}\n    crash_limit: 1\n    handler_timeout: "
		"1s\n"
		"    options: {conninfo: \"%s options=-csearch_path=%s\"}\n",
		environment("INBOXD_TEST_CONNINFO"), w.name);
	run_acts(&w, &d, acts, N_OF(acts), "misbehave_conn", "ok", more);
	world_end(&w);
}
END_TEST

/* ---- the sql handler: a batch in one statement ------------------------------------ */

static void config_sql(struct world *w, const char *statement, const char *parameters, int batch)
{
	char more[2000];
	(void)snprintf(more, sizeof more,
		"    batch: {max: %d}\n    workers: 1\n    retry: {immediate: 0, delays: []}\n"
		"    options:\n      statement: '%s'\n      parameters: [%s]\n",
		batch, statement, parameters);
	config_handler(w, "sql", more);
}

/* Rows of one statement have one cmin. */
static int64_t statements_of(struct world *w, const char *table)
{
	return sql_int(w, "SELECT count(DISTINCT (xmin::text, cmin::text)) FROM %s", table);
}

static void publish_bodies(struct world *w, const char *const *bodies, size_t n, int times)
{
	char id[40];
	for (int k = 0; k < times; k++)
		for (size_t i = 0; i < n; i++) {
			(void)snprintf(id, sizeof id, "m%d-%zu", k, i);
			publish(w, w->queue, &(struct msg){.id = id, .body = bodies[i]});
		}
	publish_confirm(w);
}

/* What is published before, done by the statement alone. */
static void run_sql(struct world *w, const char *statement, const char *parameters, int batch,
	const char *table, int64_t rows)
{
	struct daemon d;
	config_sql(w, statement, parameters, batch);
	daemon_start_main(w, &d);
	WAIT_FOR(sql_int(w, "SELECT count(*) FROM %s", table) >= rows && is_settled(w->queue), 60);
	ck_assert_int_eq(sql_int(w, "SELECT count(*) FROM %s", table), rows);
	nobody_was_blamed(w, &d);
	ck_assert_int_eq(daemon_stop(&d), 0);
}

START_TEST(a_batch_in_one_statement_has_the_rows_of_single_ones_in_their_order)
{
	static const char *const bodies[] = {
		"{\"n\": 1.50, \"t\": \"2024-05-01T12:00:00+02\", \"j\": {\"a\": [1, \"\\\"\"]}, "
		"\"e\": \"a \\\"b\", \"d\": \"x@y\", \"c\": \"abc\", \"v\": \"long  \", "
		"\"b\": \"101\", \"r\": \"[1,5)\", \"s\": \"NULL\"}",
		"{\"n\": \"NaN\", \"t\": \"infinity\", \"j\": \"2\", \"s\": \"\"}",
		"{}",
		("{\"n\": 1e-3, \"j\": [], \"s\": \" {a,\\\\b\\n\\\"c\\\" \\u00e4\\ud83d\\ude00} "
		 "\"}"),
	};
	static const char columns[] = "(n, t, j, e, d, c, v, b, r, s, y) VALUES ($1, $2, $3, $4, "
				      "$5, $6, $7, $8, $9, $11, $10)";
	static const char sources[] = "\"json:/n\", \"json:/t\", \"json:/j\", \"json:/e\", "
				      "\"json:/d\", \"json:/c\", \"json:/v\", \"json:/b\", "
				      "\"json:/r\", body, \"json:/s\"";
	enum { TIMES = 10, ROWS = TIMES * (int)N_OF(bodies) };
	struct world w;
	char statement[300];
	world_begin(&w, "set_rows");
	sql(&w,
		"SET ROLE inboxd; CREATE TYPE word AS ENUM ('a \"b', 'c'); "
		"CREATE DOMAIN mail AS text CHECK (VALUE LIKE '%%@%%'); "
		"CREATE TABLE parent (id int PRIMARY KEY); INSERT INTO parent VALUES (7); "
		"CREATE TABLE one (id serial UNIQUE, i int GENERATED ALWAYS AS IDENTITY, "
		"n numeric(10,4), t timestamptz, j jsonb, e word, d mail, c character(5), "
		"v varchar(5), b bit(3), r int4range, s text, y bytea NOT NULL, "
		"u text GENERATED ALWAYS AS (upper(s)) STORED, "
		"p int DEFAULT 7 REFERENCES parent, at timestamptz DEFAULT now()); "
		"CREATE TABLE each (LIKE one INCLUDING ALL); "
		"CREATE SEQUENCE each_id; ALTER TABLE each ALTER id SET DEFAULT "
		"nextval('each_id'); "
		"RESET ROLE");
	publish_bodies(&w, bodies, N_OF(bodies), TIMES);
	(void)snprintf(statement, sizeof statement, "INSERT INTO one %s", columns);
	run_sql(&w, statement, sources, 100, "one", ROWS);
	sql(&w, "DELETE FROM inbox");
	publish_bodies(&w, bodies, N_OF(bodies), TIMES);
	(void)snprintf(statement, sizeof statement, "INSERT INTO each %s", columns);
	run_sql(&w, statement, sources, 1, "each", ROWS);
	ck_assert_int_lt(statements_of(&w, "one"), ROWS / 4);
	ck_assert_int_eq(statements_of(&w, "each"), ROWS);
	sql(&w, "ALTER TABLE one DROP at; ALTER TABLE each DROP at");
	ck_assert_int_eq(sql_int(&w,
				 "SELECT count(*) FROM one FULL JOIN each ON one.id = each.id "
				 "WHERE one::text IS DISTINCT FROM each::text"),
		0);
	ck_assert_int_eq(
		sql_int(&w, "SELECT count(*) FROM one WHERE s IS NULL AND n IS NULL"), TIMES);
	world_end(&w);
}
END_TEST

START_TEST(the_same_key_twice_in_a_statement_does_nothing_the_second_time)
{
	enum { KEYS = 50 };
	struct world w;
	char id[40], key[16];
	world_begin(&w, "set_twice");
	sql(&w, "SET ROLE inboxd; CREATE TABLE one (x int PRIMARY KEY); RESET ROLE");
	for (int i = 0; i < 2 * KEYS; i++) {
		(void)snprintf(id, sizeof id, "m%d", i);
		(void)snprintf(key, sizeof key, "%d", i / 2);
		publish(&w, w.queue, &(struct msg){.id = id, .body = key});
	}
	publish_confirm(&w);
	run_sql(&w, "INSERT INTO one VALUES ($1) ON CONFLICT (x) DO NOTHING", "body", 100, "one",
		KEYS);
	ck_assert_int_lt(statements_of(&w, "one"), KEYS / 2);
	world_end(&w);
}
END_TEST

/* A table named one and what is special about it; each message's row must be a statement's own. */
START_TEST(where_a_batch_could_tell_the_difference_statements_stay_single)
{
	static const char *const tables[] = {
		"CREATE TABLE one (x text); CREATE TRIGGER t AFTER INSERT ON one FOR EACH "
		"STATEMENT "
		"EXECUTE FUNCTION fires()",
		"CREATE TABLE one (x text); CREATE TRIGGER t AFTER INSERT ON one FOR EACH ROW "
		"EXECUTE FUNCTION fires()",
		"CREATE TABLE one (x text); CREATE RULE r AS ON INSERT TO one DO ALSO "
		"INSERT INTO fired VALUES (1)",
		"CREATE TABLE base (x text); CREATE VIEW one AS SELECT x, xmin, cmin FROM base; "
		"CREATE TRIGGER t INSTEAD OF INSERT ON one FOR EACH ROW EXECUTE FUNCTION "
		"stands_in()",
		"CREATE TABLE one (x text PRIMARY KEY, y text REFERENCES one)",
		"CREATE TABLE one (x text, n int DEFAULT counts())",
		"CREATE DOMAIN counted AS int CHECK (VALUE < counts()); "
		"CREATE TABLE one (x text, n counted)",
		"CREATE TABLE one (x text, CHECK (counts() IS NOT NULL))",
		"CREATE TABLE one (x text) PARTITION BY HASH (x); CREATE TABLE p PARTITION OF one "
		"FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
		"CREATE TABLE one (x text); ALTER TABLE one ENABLE ROW LEVEL SECURITY; "
		"CREATE POLICY p ON one USING (true)",
		"CREATE TABLE one (x text[])",
		"CREATE TYPE pair AS (n text); CREATE TABLE one (x pair)",
		"CREATE TABLE one (x box)",
	};
	enum { ROWS = 12 };
	struct world w;
	char id[40];
	world_begin(&w, "set_unsafe");
	for (size_t i = 0; i < N_OF(tables); i++) {
		const char *body = strstr(tables[i], "[]") != NULL ? "{a,NULL}"
			: strstr(tables[i], "pair") != NULL        ? "(a)"
			: strstr(tables[i], "box") != NULL         ? "(1,1),(0,0)"
								   : NULL;
		sql(&w,
			"SET client_min_messages = warning; DROP SCHEMA IF EXISTS %s_t CASCADE; "
			"CREATE SCHEMA %s_t AUTHORIZATION inboxd; SET search_path = %s_t, %s; "
			"SET ROLE inboxd; "
			"CREATE TABLE fired (x int); "
			"CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS "
			"'BEGIN INSERT INTO %s_t.fired VALUES (1); RETURN NULL; END'; "
			"CREATE FUNCTION stands_in() RETURNS trigger LANGUAGE plpgsql AS "
			"'BEGIN INSERT INTO %s_t.base VALUES (NEW.x); RETURN NEW; END'; "
			"CREATE FUNCTION counts() RETURNS int LANGUAGE sql AS 'SELECT 1'; "
			"%s; RESET ROLE",
			w.name, w.name, w.name, w.name, w.name, w.name, tables[i]);
		for (int k = 0; k < ROWS; k++) {
			(void)snprintf(id, sizeof id, "t%zu-%d", i, k);
			publish(&w, w.queue,
				&(struct msg){.id = id, .body = body != NULL ? body : id});
		}
		publish_confirm(&w);
		char statement[200];
		(void)snprintf(statement, sizeof statement, "INSERT INTO %s_t.one (x) VALUES ($1)",
			w.name);
		run_sql(&w, statement, "body", 100, "one", ROWS);
		ck_assert_msg(statements_of(&w, "one") == ROWS, "%s", tables[i]);
		if (strstr(tables[i], "fire") != NULL)
			ck_assert_msg(
				sql_int(&w, "SELECT count(*) FROM fired") == ROWS, "%s", tables[i]);
	}
	sql(&w, "SET search_path = %s; DROP SCHEMA %s_t CASCADE", w.name, w.name);
	world_end(&w);
}
END_TEST

START_TEST(a_bad_value_among_a_hundred_costs_only_its_message)
{
	static const char *bodies[100];
	struct world w;
	struct daemon d;
	world_begin(&w, "set_bad");
	sql(&w, "SET ROLE inboxd; CREATE TABLE one (x int); RESET ROLE");
	for (size_t i = 0; i < N_OF(bodies); i++)
		bodies[i] = i == 41 ? "no number" : "1";
	publish_bodies(&w, bodies, N_OF(bodies), 1);
	config_sql(&w, "INSERT INTO one VALUES ($1)", "body", 100);
	daemon_start_main(&w, &d);
	WAIT_FOR(sql_int(&w, "SELECT count(*) FROM one") == 99 && is_settled(w.queue) &&
			parked(&w, NULL) == 1,
		60);
	ck_assert_str_eq(sql_text(&w,
				 "SELECT key || ' ' || sqlstate || ' ' || attempts FROM "
				 "parked_view"),
		"m0-41 22P02 1");
	world_end(&w);
}
END_TEST

/* The session has seen the table without it. */
START_TEST(a_statement_trigger_that_comes_later_fires_for_each_message)
{
	static const char *bodies[60];
	struct world w;
	struct daemon d;
	world_begin(&w, "set_later");
	sql(&w,
		"SET ROLE inboxd; CREATE TABLE one (x int); CREATE TABLE fired (x int); "
		"CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS "
		"'BEGIN INSERT INTO fired VALUES (1); RETURN NULL; END'; RESET ROLE");
	for (size_t i = 0; i < N_OF(bodies); i++)
		bodies[i] = "1";
	publish_bodies(&w, bodies, N_OF(bodies), 1);
	config_sql(&w, "INSERT INTO one VALUES ($1)", "body", 100);
	daemon_start_main(&w, &d);
	WAIT_FOR(sql_int(&w, "SELECT count(*) FROM one") == 60 && is_settled(w.queue), 60);
	ck_assert_int_lt(statements_of(&w, "one"), 20);
	/* Claims wait for the lock as well, so that messages pile up. */
	sql(&w,
		"BEGIN; LOCK TABLE inbox IN EXCLUSIVE MODE; TRUNCATE one; CREATE TRIGGER t AFTER "
		"INSERT ON one FOR EACH STATEMENT EXECUTE FUNCTION fires()");
	publish_many(&w, w.queue, "9", 200);
	sql(&w, "COMMIT");
	WAIT_FOR(sql_int(&w, "SELECT count(*) FROM one") == 200 && is_settled(w.queue), 60);
	ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM fired"), 200);
	nobody_was_blamed(&w, &d);
	world_end(&w);
}
END_TEST

UNIT_SUITE_TIMEOUT(240, "integration/handlers",
	every_way_to_end_the_process_costs_its_own_message_its_crashes,
	what_never_ends_is_ended_the_statement_first_and_then_the_process,
	an_exception_that_crosses_the_border_costs_its_own_message,
	what_a_handler_changes_in_the_process_does_not_reach_the_next_message,
	no_process_of_a_handler_outlives_it_in_whatever_session_it_hides,
	a_thread_left_behind_that_crashes_loses_nobody_anything,
	two_hundred_megabytes_printed_by_a_handler_hold_up_no_message,
	a_leak_of_a_mebibyte_a_message_costs_no_message_anything,
	a_worker_is_started_anew_after_so_many_messages_and_nobody_notices,
	a_handler_that_eats_all_memory_is_ended_and_its_message_says_why,
	no_statement_ends_the_transaction_or_hides_its_failure,
	what_an_sqlstate_means_is_what_the_configuration_says,
	nothing_left_in_the_session_reaches_the_next_message,
	misuse_of_the_raw_connection_costs_its_own_message,
	a_handler_that_waits_for_itself_in_another_session_is_ended_by_its_time_limit,
	a_batch_in_one_statement_has_the_rows_of_single_ones_in_their_order,
	the_same_key_twice_in_a_statement_does_nothing_the_second_time,
	where_a_batch_could_tell_the_difference_statements_stay_single,
	a_bad_value_among_a_hundred_costs_only_its_message,
	a_statement_trigger_that_comes_later_fires_for_each_message)

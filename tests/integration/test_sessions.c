/* SPDX-License-Identifier: MIT */
/* Sessions that are ended or cancelled at any step, whose role has other defaults, whose commits
 * wait for a standby that does not come, or that are those of a pooler. */
#include "harness.h"

#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* The handler sql, calling act(key, body), which writes the effect, and what the body says: "sleep"
 * sleeps while the table `gate` has a row; nothing else is special. */
static void config_acting(struct world *w, const char *more)
{
	sql(w, "SET ROLE inboxd");
	sql(w, "CREATE TABLE gate (closed boolean)");
	sql(w,
		"CREATE FUNCTION act(p_key text, p_body text) RETURNS void LANGUAGE plpgsql SET "
		"search_path = \"%s\" AS $$ BEGIN INSERT INTO effect (key, body, pid) VALUES "
		"(p_key, "
		"convert_to(p_body, 'UTF8'), pg_backend_pid()); WHILE p_body = 'sleep' AND EXISTS "
		"(SELECT "
		"FROM gate) LOOP PERFORM pg_sleep(0.1); END LOOP; END $$",
		w->name);
	sql(w, "RESET ROLE");
	config_write(w, "inboxd", "",
		"  main:\n    queue: %s\n    handler: sql\n    options:\n      statement: SELECT "
		"\"%s\".act($1, $2)\n      parameters: [message_id, body]\n%s",
		w->queue, w->name, more);
}

static int64_t sessions_where(struct world *w, const char *condition)
{
	return sql_int(w,
		"SELECT count(*) FROM pg_stat_activity WHERE application_name = 'inboxd main' AND "
		"%s",
		condition);
}

/* Does it to every session of the daemon's, and says to how many. */
static int64_t each_session(struct world *w, const char *function)
{
	return sql_int(w,
		"SELECT count(*) FILTER (WHERE %s(pid)) FROM pg_stat_activity WHERE "
		"application_name = "
		"'inboxd main'",
		function);
}

START_TEST(a_session_ended_inside_the_handlers_statement_costs_no_attempt)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "ended");
	config_acting(&w, "");
	sql(&w, "INSERT INTO gate VALUES (true)");
	daemon_start_main(&w, &d);
	publish(&w, w.queue, &(struct msg){.id = "m", .body = "sleep"});
	publish_many(&w, w.queue, "behind", 10);
	for (int i = 0; i < 3; i++) {
		WAIT_FOR(sessions_where(&w, "wait_event = 'PgSleep'") == 1, 20);
		ck_assert_int_eq(each_session(&w, "pg_terminate_backend"), 1);
		WAIT_FOR(sessions_where(&w, "wait_event = 'PgSleep'") == 0, 20);
	}
	sql(&w, "DELETE FROM gate");
	WAIT_FOR(effect_keys(&w) == 11 && is_settled(w.queue), 30);
	ck_assert_int_eq(effects(&w), 11);
	ck_assert_int_eq(log_lines(&d, "event=parked"), 0);
	world_end(&w);
}
END_TEST

START_TEST(a_session_ended_between_two_statements_or_at_rest_costs_no_attempt)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "between");
	daemon_start_main(&w, &d);
	ck_assert_int_eq(each_session(&w, "pg_terminate_backend"), 1);
	publish(&w, w.queue, &(struct msg){.id = "m", .act = "sleep:1500"});
	publish_confirm(&w);
	WAIT_FOR(sessions_where(&w, "state = 'idle in transaction'") == 1, 20);
	ck_assert_int_eq(each_session(&w, "pg_terminate_backend"), 1);
	all_once(&w, 1);
	ck_assert_int_eq(log_lines(&d, "event=parked"), 0);
	world_end(&w);
}
END_TEST

START_TEST(a_statement_that_an_operator_cancels_is_tried_again)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "cancelled");
	config_acting(&w, "    retry: {immediate: 1, delays: [200ms]}\n");
	sql(&w, "INSERT INTO gate VALUES (true)");
	daemon_start_main(&w, &d);
	publish(&w, w.queue, &(struct msg){.id = "m", .body = "sleep"});
	publish_many(&w, w.queue, "behind", 10);
	WAIT_FOR(sessions_where(&w, "wait_event = 'PgSleep'") == 1, 20);
	ck_assert_int_eq(each_session(&w, "pg_cancel_backend"), 1);
	sql(&w, "DELETE FROM gate");
	WAIT_FOR(effect_keys(&w) == 11 && is_settled(w.queue), 30);
	WAIT_FOR(parked(&w, NULL) == 0, 10);
	ck_assert_int_eq(effects(&w), 11);
	world_end(&w);
}
END_TEST

START_TEST(a_short_time_limit_of_handlers_is_none_of_inboxds_own_statements)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "limit");
	config_acting(&w, "    handler_timeout: 300ms\n    crash_limit: 1\n");
	sql(&w,
		"CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM "
		"pg_sleep(0.7); RETURN NEW; END $$");
	sql(&w, "CREATE TRIGGER slow BEFORE INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION slow()");
	sql(&w, "INSERT INTO gate VALUES (true)");
	daemon_start_main(&w, &d);
	publish(&w, w.queue, &(struct msg){.id = "good", .body = "x"});
	publish_confirm(&w);
	WAIT_FOR(effects(&w) == 1 && is_settled(w.queue), 20);
	/* And the handler's own is kept. */
	publish(&w, w.queue, &(struct msg){.id = "bad", .body = "sleep"});
	publish_confirm(&w);
	WAIT_FOR(parked(&w, "timed_out") == 1, 20);
	ck_assert_int_eq(effects(&w), 1);
	world_end(&w);
}
END_TEST

/* ---- defaults of the role -------------------------------------------------------- */

static void check_defaults(const char *name, const char *isolation)
{
	struct world w;
	struct daemon d[2];
	world_begin(&w, name);
	sql(&w, "ALTER ROLE inboxd SET default_transaction_isolation = '%s'", isolation);
	sql(&w, "ALTER ROLE inboxd SET synchronous_commit = off");
	sql(&w, "ALTER ROLE inboxd SET default_transaction_read_only = on");
	sql(&w, "ALTER ROLE inboxd SET datestyle = 'SQL, DMY'");
	sql(&w, "ALTER ROLE inboxd SET bytea_output = 'escape'");
	sql(&w, "ALTER ROLE inboxd SET client_min_messages = error");
	sql(&w,
		"ALTER TABLE effect ADD isolation text DEFAULT "
		"current_setting('transaction_isolation')");
	/* At COMMIT: what decides about it. */
	sql(&w, "CREATE TABLE durability (level text)");
	sql(&w, "GRANT ALL ON durability TO inboxd");
	sql(&w,
		"CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO "
		"\"%s\".durability VALUES (current_setting('synchronous_commit')); RETURN NULL; "
		"END $$",
		w.name);
	sql(&w,
		"CREATE CONSTRAINT TRIGGER note AFTER INSERT ON effect DEFERRABLE INITIALLY "
		"DEFERRED "
		"FOR EACH ROW EXECUTE FUNCTION note()");
	for (int i = 0; i < 2; i++)
		publish_many(&w, w.queue, "m", 500);
	config_main(&w, "%s", "    workers: 2\n    prefetch: 50\n");
	daemon_start(&w, "inboxd", &d[0]);
	config_write(&w, "second", "",
		"  main: {queue: %s, handler: effect, workers: 2, prefetch: 50, options: {table: "
		"%s.effect}}\n",
		w.queue, w.name);
	daemon_start(&w, "second", &d[1]);
	all_once(&w, 500);
	ck_assert_str_eq(sql_text(&w, "SELECT string_agg(DISTINCT isolation, ' ') FROM effect"),
		"read committed");
	ck_assert_str_eq(
		sql_text(&w, "SELECT string_agg(DISTINCT level, ' ') FROM durability"), "on");
	world_end(&w);
}

START_TEST(a_role_that_is_serializable_asynchronous_and_read_only_by_default_changes_nothing)
{
	check_defaults("serializable", "serializable");
}
END_TEST

START_TEST(a_role_that_reads_repeatably_by_default_changes_nothing)
{
	check_defaults("repeatable", "repeatable read");
}
END_TEST

/* The server's locale is made for it.  What the server says about a division by zero shows whether
 * it has a catalogue of that language, too. */
static bool speaks_german(struct world *w)
{
	char dir[512];
	(void)snprintf(dir, sizeof dir, "%s/../locale", environment("INBOXD_TEST_PGDATA"));
	run_shell(w,
		"mkdir -p $1; localedef -i de_DE -f UTF-8 $1/de_DE.UTF-8 || true; "
		"chmod -R a+rX $1",
		dir);
	PQclear(PQexec(w->db, "SET lc_messages = 'de_DE.UTF-8'"));
	PGresult *r = PQexec(w->db, "SELECT 1 / 0");
	bool speaks = strstr(PQresultErrorMessage(r), "durch Null") != NULL;
	PQclear(r);
	sql(w, "RESET lc_messages");
	return speaks;
}

START_TEST(a_server_that_speaks_german_is_understood_by_its_codes)
{
	enum { N = 200 };
	struct world w;
	struct daemon d;
	world_begin(&w, "german");
	bool can_be_done = speaks_german(&w);
	if (!can_be_done)
		world_end(&w);
	SKIP_UNLESS(can_be_done, "no German in the server");
	sql(&w, "ALTER ROLE inboxd SET lc_messages = 'de_DE.UTF-8'");
	config_acting(&w,
		"    workers: 4\n    batch: {max: 20}\n    retry: {immediate: 0, delays: [1h]}\n");
	sql(&w, "CREATE SEQUENCE tries; GRANT ALL ON tries TO inboxd");
	sql(&w,
		"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql SET search_path = "
		"\"%s\" "
		"AS $$ BEGIN IF NEW.key = 'data' THEN PERFORM 1 / 0; ELSIF NEW.key = 'unique' THEN "
		"INSERT INTO twice VALUES (1), (1); ELSIF NEW.key = 'permission' THEN PERFORM FROM "
		"forbidden; ELSIF NEW.key = 'conflict' AND nextval('tries') < 3 THEN RAISE "
		"serialization_failure; END IF; RETURN NEW; END $$",
		w.name);
	sql(&w, "CREATE TABLE twice (x int UNIQUE); GRANT ALL ON twice TO inboxd");
	sql(&w, "CREATE TABLE forbidden ()");
	sql(&w,
		"CREATE TRIGGER refuse BEFORE INSERT ON effect FOR EACH ROW EXECUTE FUNCTION "
		"refuse()");
	static const char *const special[] = {"data", "unique", "permission", "conflict"};
	for (int i = 0; i < 4; i++)
		publish(&w, w.queue, &(struct msg){.id = special[i]});
	publish_many(&w, w.queue, "m", N);
	publish_many(&w, w.queue, "m", N);
	publish(&w, w.queue, &(struct msg){.id = "m0", .body = "other"});
	publish_confirm(&w);
	daemon_start_main(&w, &d);
	WAIT_FOR(effects(&w) > 0, 20);
	ck_assert_int_gt(each_session(&w, "pg_terminate_backend"), 0);
	WAIT_FOR(effect_keys(&w) == N + 1 && parked(&w, NULL) == 4 && is_settled(w.queue), 60);
	ck_assert_int_eq(effects(&w), N + 1);
	ck_assert_int_eq(markers(&w), N + 1);
	ck_assert_str_eq(
		sql_text(&w,
			"SELECT string_agg(concat_ws(' ', key, state, reason, sqlstate, attempts), "
			"', ' ORDER BY key) FROM parked_view"),
		"data failed sql_error 22012 1, m0 mismatch mismatch  0, permission waiting "
		"sql_error 42501 1, unique failed sql_error 23505 1");
	ck_assert_int_eq(sql_int(&w,
				 "SELECT count(*) FROM parked WHERE detail ~ 'durch Null|doppelter|"
				 "keine Berechtigung'"),
		3);
	world_end(&w);
}
END_TEST

/* ---- a standby that does not come ------------------------------------------------ */

START_TEST(
	a_commit_whose_wait_for_a_standby_was_cancelled_is_acknowledged_only_after_one_that_waited)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "ghost");
	sql(&w, "SET synchronous_commit = local");
	daemon_start_main(&w, &d);
	postgres_set("synchronous_standby_names", "ghost");
	publish(&w, w.queue, &(struct msg){.id = "m"});
	publish_confirm(&w);
	for (int i = 0; i < 3; i++) {
		WAIT_FOR(sessions_where(&w, "wait_event = 'SyncRep'") == 1, 20);
		ck_assert_int_eq(queue_state(w.queue).unacked, 1);
		ck_assert_int_eq(each_session(&w, "pg_cancel_backend"), 1);
		WAIT_FOR(sessions_where(&w, "wait_event = 'SyncRep'") == 0, 20);
		ck_assert_int_eq(effects(&w), 1); /* committed here, and not believed */
	}
	WAIT_FOR(sessions_where(&w, "wait_event = 'SyncRep'") == 1, 20);
	ck_assert_int_eq(queue_state(w.queue).unacked, 1);
	stays_calm(&d, 3);
	postgres_set("synchronous_standby_names", NULL);
	WAIT_FOR(is_settled(w.queue), 20);
	ck_assert_int_eq(effects(&w), 1);
	ck_assert_int_eq(parked(&w, NULL), 0);
	world_end(&w);
}
END_TEST

/* ---- a pooler -------------------------------------------------------------------- */

static pid_t pooler_start(struct world *w, int port)
{
	char path[320], log[320];
	(void)snprintf(path, sizeof path, "%s/pgbouncer.ini", w->dir);
	(void)snprintf(log, sizeof log, "%s/pgbouncer.out", w->dir);
	FILE *f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	(void)fprintf(f,
		"[databases]\ninboxd_test = host=127.0.0.1 port=%s dbname=inboxd_test user=inboxd "
		"password=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nauth_type = "
		"any\n"
		"pool_mode = transaction\ndefault_pool_size = 2\nunix_socket_dir =\n"
		"ignore_startup_parameters = extra_float_digits\nmax_client_conn = 100\n",
		environment("INBOXD_TEST_PGPORT"), environment("INBOXD_TEST_PGPASSWORD"), port);
	(void)fclose(f);
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		if (freopen(log, "w", stderr) == NULL || freopen(log, "a", stdout) == NULL)
			_exit(126);
		if (geteuid() == 0)
			(void)execlp("/usr/sbin/pgbouncer", "pgbouncer", "-u", "nobody", path,
				(char *)NULL);
		else
			(void)execlp("/usr/sbin/pgbouncer", "pgbouncer", path, (char *)NULL);
		_exit(127);
	}
	return pid;
}

static bool pooler_answers(int port)
{
	char conninfo[256];
	(void)snprintf(conninfo, sizeof conninfo,
		"host=127.0.0.1 port=%d dbname=inboxd_test user=inboxd", port);
	PGconn *c = PQconnectdb(conninfo);
	bool is_up = PQstatus(c) == CONNECTION_OK;
	PQfinish(c);
	return is_up;
}

static int free_port(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, size), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&a, &size), 0);
	(void)close(fd);
	return ntohs(a.sin_port);
}

START_TEST(behind_a_pooler_in_transaction_mode_five_thousand_ids_are_five_thousand_effects)
{
	enum { N = 5000 };
	struct world w;
	struct daemon d;
	char more[512];
	world_begin(&w, "pooler");
	int port = free_port();
	pid_t pooler = pooler_start(&w, port);
	WAIT_FOR(pooler_answers(port), 20);
	config_acting(&w, "");
	(void)snprintf(more, sizeof more,
		"databases:\n  pooled:\n    conninfo: host=127.0.0.1 port=%d dbname=inboxd_test "
		"user=inboxd password=%s\n    schema: %s\n    prepared_statements: false\n",
		port, environment("INBOXD_TEST_PGPASSWORD"), w.name);
	config_write(&w, "inboxd", more,
		"  main:\n    queue: %s\n    handler: sql\n    database: pooled\n    workers: 4\n"
		"    options:\n      statement: SELECT \"%s\".act($1, $2)\n"
		"      parameters: [message_id, body]\n",
		w.queue, w.name);
	sql(&w,
		"ALTER TABLE effect ADD timeouts text DEFAULT current_setting('statement_timeout') "
		"|| ' ' "
		"|| current_setting('idle_in_transaction_session_timeout')");
	publish_many(&w, w.queue, "m", N);
	publish_many(&w, w.queue, "m", 500);
	daemon_start_main(&w, &d);
	all_once(&w, N);
	ck_assert_int_le(sql_int(&w, "SELECT count(DISTINCT pid) FROM effect"), 4);
	/* The limits hold there too, though the sessions are not ours. */
	ck_assert_str_eq(sql_text(&w, "SELECT string_agg(DISTINCT timeouts, ',') FROM effect"),
		"30s 90100ms");
	static const char *const wrong[] = {"26000", "42P05", "level=error", "worker_down"};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		ck_assert_msg(log_lines(&d, wrong[i]) == 0, "%s in the log", wrong[i]);
	ck_assert_int_eq(daemon_stop(&d), 0);
	ck_assert_int_eq(kill(pooler, SIGINT), 0);
	int status;
	ck_assert_int_eq(waitpid(pooler, &status, 0), pooler);
	world_end(&w);
}
END_TEST

UNIT_SUITE_TIMEOUT(180, "integration/sessions",
	a_session_ended_inside_the_handlers_statement_costs_no_attempt,
	a_session_ended_between_two_statements_or_at_rest_costs_no_attempt,
	a_statement_that_an_operator_cancels_is_tried_again,
	a_short_time_limit_of_handlers_is_none_of_inboxds_own_statements,
	a_role_that_is_serializable_asynchronous_and_read_only_by_default_changes_nothing,
	a_role_that_reads_repeatably_by_default_changes_nothing,
	a_server_that_speaks_german_is_understood_by_its_codes,
	a_commit_whose_wait_for_a_standby_was_cancelled_is_acknowledged_only_after_one_that_waited,
	behind_a_pooler_in_transaction_mode_five_thousand_ids_are_five_thousand_effects)

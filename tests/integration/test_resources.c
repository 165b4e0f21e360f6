/* SPDX-License-Identifier: MIT */
/* Servers that hang without going away, and a host that runs out of what a process needs: room for
 * logs, descriptors, memory, time as it was. */
#include "harness.h"
#include "proxy.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The consumer "main" with a database that gives up connecting after a second; port 0: the server's
 * own. */
static void config_impatient(struct world *w, uint16_t port, const char *consumer)
{
	char databases[512];
	(void)snprintf(databases, sizeof databases,
		"databases:\n  hasty:\n    conninfo: host=127.0.0.1 port=%d dbname=inboxd_test "
		"user=inboxd password=%s\n    schema: %s\n    connect_timeout: 1s\n",
		port != 0 ? port : atoi(environment("INBOXD_TEST_PGPORT")),
		environment("INBOXD_TEST_PGPASSWORD"), w->name);
	config_write(w, "inboxd", databases, "  main:\n    queue: %s\n    database: hasty\n%s",
		w->queue, consumer);
}

static const char *effect_lines(struct world *w)
{
	static char text[256];
	(void)snprintf(text, sizeof text, "    handler: effect\n    options: {table: %s.effect}\n",
		w->name);
	return text;
}

static pid_t backend(struct world *w)
{
	return (pid_t)sql_int(w,
		"SELECT pid FROM pg_stat_activity WHERE application_name = 'inboxd main' "
		"ORDER BY backend_start DESC LIMIT 1");
}

/* ---- servers that hang -------------------------------------------------------------------------
 */

static void check_frozen(const char *name, enum proxy_way way)
{
	enum { N = 3000 };
	struct world w;
	struct daemon d;
	char consumer[512];
	world_begin(&w, name);
	struct proxy *proxy =
		proxy_new(PROXY_POSTGRES, (uint16_t)atoi(environment("INBOXD_TEST_PGPORT")));
	(void)snprintf(consumer, sizeof consumer,
		"%s    handler_timeout: 1s\n    workers: 2\n    batch: {max: 5}\n",
		effect_lines(&w));
	config_impatient(&w, proxy_port(proxy), consumer);
	publish_many(&w, w.queue, "m", N);
	daemon_start_main(&w, &d);
	WAIT_FOR(effects(&w) > 10, 20);
	proxy_freeze(proxy, way, 0);
	ck_assert_int_lt(effects(&w), N); /* work is in flight */
	WAIT_FOR(log_lines(&d, "no answer for") > 0, 40);
	WAIT_FOR(queue_state(w.queue).consumers == 0, 40); /* paused, as for any outage */
	stays_calm(&d, 5);
	proxy_thaw(proxy);
	all_once(&w, N);
	nobody_was_blamed(&w, &d);
	/* And can be stopped while it waits. */
	proxy_freeze(proxy, way, 0);
	publish_many(&w, w.queue, "late", 10);
	WAIT_FOR(queue_state(w.queue).unacked == 10, 20);
	ck_assert_int_eq(daemon_stop(&d), 0);
	proxy_free(proxy);
	world_end(&w);
}

START_TEST(
	a_database_whose_answers_stop_coming_is_an_outage_and_all_is_done_once_when_they_come_again)
{
	check_frozen("mute", PROXY_TO_CLIENT);
}
END_TEST

START_TEST(a_database_that_takes_nothing_more_is_an_outage_and_all_is_done_once_when_it_does_again)
{
	check_frozen("deaf", PROXY_TO_SERVER);
}
END_TEST

START_TEST(a_session_whose_server_process_is_stopped_is_replaced_at_no_messages_cost)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "stopped");
	config_impatient(&w, 0, effect_lines(&w));
	daemon_start_main(&w, &d);
	publish_many(&w, w.queue, "before", 10);
	WAIT_FOR(effects(&w) == 10 && is_settled(w.queue), 20);
	pid_t stopped = backend(&w);
	ck_assert_int_eq(kill(stopped, SIGSTOP), 0);
	publish_many(&w, w.queue, "after", 10);
	WAIT_FOR(log_lines(&d, "no answer for") > 0, 60);
	WAIT_FOR(effects(&w) == 20 && is_settled(w.queue), 30);
	ck_assert_int_ne(backend(&w), stopped);
	ck_assert_int_eq(kill(stopped, SIGCONT), 0);
	WAIT_FOR(sql_int(&w, "SELECT count(*) FROM pg_stat_activity WHERE pid = %d", stopped) == 0,
		30);
	ck_assert_int_eq(effect_keys(&w), 20);
	ck_assert_int_eq(effects(&w), 20);
	nobody_was_blamed(&w, &d);
	world_end(&w);
}
END_TEST

START_TEST(a_server_process_stopped_inside_a_handlers_statement_costs_its_message_one_attempt)
{
	struct world w;
	struct daemon d;
	char consumer[512];
	world_begin(&w, "inside");
	sql(&w, "CREATE TABLE gate (closed boolean); INSERT INTO gate VALUES (true)");
	sql(&w, "GRANT ALL ON gate TO inboxd");
	sql(&w,
		"CREATE FUNCTION act(p_key text) RETURNS void LANGUAGE plpgsql SET search_path = "
		"\"%s\" AS $$ BEGIN INSERT INTO effect (key) VALUES (p_key); WHILE p_key = 'slow' "
		"AND EXISTS (SELECT FROM gate) LOOP PERFORM pg_sleep(0.1); END LOOP; END $$",
		w.name);
	(void)snprintf(consumer, sizeof consumer,
		"    handler_timeout: 1s\n    retry: {delays: [1s]}\n    handler: sql\n    "
		"options:\n"
		"      statement: SELECT \"%s\".act($1)\n      parameters: [message_id]\n",
		w.name);
	config_impatient(&w, 0, consumer);
	daemon_start_main(&w, &d);
	publish(&w, w.queue, &(struct msg){.id = "slow"});
	publish_confirm(&w);
	WAIT_FOR(sql_int(&w,
			 "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == 1,
		20);
	pid_t stopped = backend(&w);
	ck_assert_int_eq(kill(stopped, SIGSTOP), 0);
	sql(&w, "DELETE FROM gate");
	publish_many(&w, w.queue, "good", 10);
	WAIT_FOR(effects(&w) == 10, 30);
	ck_assert_int_eq(kill(stopped, SIGCONT), 0);
	WAIT_FOR(effects(&w) == 11 && is_settled(w.queue) && parked(&w, NULL) == 0, 30);
	ck_assert_int_eq(effect_keys(&w), 11);
	ck_assert_int_eq(log_lines(&d, "event=parked"), 1);
	ck_assert_int_eq(log_lines(&d, "reason=timed_out"), 1);
	world_end(&w);
}
END_TEST

static int64_t waiting_for_ghost(struct world *w)
{
	return sql_int(w, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
}

START_TEST(a_standby_that_does_not_come_is_waited_for_longer_than_handlers_may_take)
{
	struct world w;
	struct daemon d;
	char consumer[512];
	world_begin(&w, "ghost");
	sql(&w, "SET synchronous_commit = local");
	(void)snprintf(consumer, sizeof consumer, "%s    handler_timeout: 500ms\n    workers: 2\n",
		effect_lines(&w));
	config_impatient(&w, 0, consumer);
	daemon_start_main(&w, &d);
	postgres_set("synchronous_standby_names", "ghost");
	publish(&w, w.queue, &(struct msg){.id = "m"});
	publish_confirm(&w);
	WAIT_FOR(waiting_for_ghost(&w) == 1, 20);
	WAIT_FOR(log_lines(&d, "waits for a synchronous standby") == 1, 20);
	pid_t first = role_pid(&d, "inboxd: worker main/1");
	pid_t second = role_pid(&d, "inboxd: worker main/2");
	publish_many(&w, w.queue, "n", 10);
	WAIT_FOR(queue_state(w.queue).consumers == 0, 30); /* the other one waits, too: paused */
	stays_calm(&d, 15);                                /* further than any limit reaches */
	ck_assert_int_le(waiting_for_ghost(&w), 2);
	postgres_set("synchronous_standby_names", NULL);
	WAIT_FOR(is_settled(w.queue) && effects(&w) == 11, 30);
	ck_assert_int_eq(effect_keys(&w), 11);
	nobody_was_blamed(&w, &d);
	ck_assert_int_eq(role_pid(&d, "inboxd: worker main/1"), first);
	ck_assert_int_eq(role_pid(&d, "inboxd: worker main/2"), second);
	world_end(&w);
}
END_TEST

START_TEST(a_stop_does_not_wait_for_a_standby_that_does_not_come)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "ghost_stop");
	sql(&w, "SET synchronous_commit = local");
	config_write(&w, "inboxd", "stop_timeout: 2s\n",
		"  main:\n    queue: %s\n    handler_timeout: 500ms\n%s", w.queue,
		effect_lines(&w));
	daemon_start_main(&w, &d);
	postgres_set("synchronous_standby_names", "ghost");
	publish(&w, w.queue, &(struct msg){.id = "m"});
	publish_confirm(&w);
	WAIT_FOR(waiting_for_ghost(&w) == 1, 20);
	ck_assert_int_eq(kill(d.pid, SIGTERM), 0);
	ck_assert_int_eq(daemon_wait(&d, 8), 0);
	postgres_set("synchronous_standby_names", NULL);
	daemon_start_main(&w, &d);
	WAIT_FOR(is_settled(w.queue), 30);
	ck_assert_int_eq(effects(&w), 1);
	ck_assert_int_eq(parked(&w, NULL), 0);
	world_end(&w);
}
END_TEST

/* ---- logs that nobody takes
 * ---------------------------------------------------------------------- */

static void check_log(const char *name, bool is_pipe)
{
	struct world w;
	struct daemon d;
	char log[320] = "/dev/full";
	int reader = -1;
	world_begin(&w, name);
	config_write(&w, "inboxd", "log: {level: debug}\n", "  main:\n    queue: %s\n%s", w.queue,
		effect_lines(&w));
	if (is_pipe) {
		(void)snprintf(log, sizeof log, "%s/log.pipe", w.dir);
		ck_assert_int_eq(mkfifo(log, 0600), 0);
		reader = open(log, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		ck_assert_int_ge(reader, 0);
		ck_assert_int_gt(fcntl(reader, F_SETPIPE_SZ, 4096), 0);
	}
	for (int i = 0; i < 40; i++) {
		char id[16];
		(void)snprintf(id, sizeof id, "bad%d", i);
		publish(&w, w.queue, &(struct msg){.id = id, .act = i % 4 == 0 ? "reject" : NULL});
	}
	publish_confirm(&w);
	daemon_start_logging(&w, "inboxd", log, &d);
	WAIT_FOR(effects(&w) + parked(&w, "rejected") == 40 && is_settled(w.queue), 40);
	ck_assert_int_eq(kill(d.pid, SIGHUP), 0);
	publish_many(&w, w.queue, "after", 10);
	WAIT_FOR(effects(&w) == 40 && is_settled(w.queue), 40);
	ck_assert_int_eq(daemon_stop(&d), 0);
	if (reader >= 0)
		(void)close(reader);
	world_end(&w);
}

START_TEST(a_full_disk_under_the_log_stops_nothing)
{
	check_log("full_log", false);
}
END_TEST

START_TEST(a_log_that_nobody_reads_stops_nothing)
{
	check_log("unread_log", true);
}
END_TEST

/* ---- what a process may have
 * ----------------------------------------------------------------------- */

static void start_with_descriptors(struct world *w, rlim_t most, struct daemon *ret)
{
	struct rlimit own, few;
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &own), 0);
	few = own;
	few.rlim_cur = most;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	daemon_start(w, "inboxd", ret);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &own), 0);
}

START_TEST(too_few_descriptors_are_said_so_and_end_or_calm_the_daemon)
{
	static const rlim_t limits[] = {6, 9, 12, 15, 18};
	struct world w;
	struct daemon d;
	world_begin(&w, "descriptors");
	publish_many(&w, w.queue, "m", 20);
	for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
		start_with_descriptors(&w, limits[i], &d);
		/* Three processes fail, each told of at 0.1, 0.3, 0.7, 1.5, 3.1 s: calm is what follows. */
		WAIT_FOR(daemon_has_ended(&d) || log_lines(&d, "") > 1, 20);
		sleep_ms(3000);
		stays_calm(&d, 3);
		if (daemon_has_ended(&d))
			ck_assert_int_ne(d.status, 0);
		else
			ck_assert_int_eq(daemon_stop(&d), 0);
	}
	ck_assert_int_gt(log_lines(&d, "Too many open files"), 0);
	ck_assert_int_eq(parked(&w, NULL), 0);
	start_with_descriptors(&w, 64, &d); /* is plenty */
	WAIT_FOR(effects(&w) == 20 && is_settled(w.queue), 30);
	world_end(&w);
}
END_TEST

START_TEST(a_worker_without_memory_is_replaced_and_only_its_own_message_is_tried_again)
{
	enum { SIZE = 12 << 20 };
	struct world w;
	struct daemon d;
	char *body = malloc(SIZE);
	ck_assert_ptr_nonnull(body);
	memset(body, 'x', SIZE);
	world_begin(&w, "memory");
	daemon_start_main(&w, &d);
	publish_many(&w, w.queue, "before", 5);
	WAIT_FOR(effects(&w) == 5 && is_settled(w.queue), 20);
	pid_t worker = role_pid(&d, "inboxd: worker main/1");
	const struct rlimit little = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
	ck_assert_int_eq(prlimit(worker, RLIMIT_AS, &little, NULL), 0);
	publish(&w, w.queue, &(struct msg){.id = "large", .body = body, .size = SIZE});
	publish_many(&w, w.queue, "after", 20);
	WAIT_FOR(effects(&w) == 26 && is_settled(w.queue) && parked(&w, NULL) == 0, 60);
	ck_assert_int_eq(effect_keys(&w), 26);
	ck_assert_int_ne(role_pid(&d, "inboxd: worker main/1"), worker);
	ck_assert_int_eq(log_lines(&d, "event=process_died"), 1);
	free(body);
	world_end(&w);
}
END_TEST

START_TEST(without_a_runtime_directory_the_daemon_works_and_says_what_is_missing)
{
	struct world w;
	struct daemon d;
	char run[320];
	world_begin(&w, "no_run");
	(void)snprintf(run, sizeof run, "%s/inboxd.run", w.dir);
	ck_assert_int_eq(rmdir(run), 0);
	int fd = open(run, O_CREAT | O_WRONLY | O_CLOEXEC, 0600); /* not even a directory */
	ck_assert_int_ge(fd, 0);
	(void)close(fd);
	daemon_start_main(&w, &d);
	publish_many(&w, w.queue, "m", 10);
	WAIT_FOR(effects(&w) == 10 && is_settled(w.queue), 20);
	ck_assert_int_eq(log_lines(&d, "event=counters_private"), 1);
	world_end(&w);
}
END_TEST

/* A file system of 64 KiB, all of it used: only root can make one. */
START_TEST(a_full_runtime_directory_is_found_out_at_the_start)
{
	struct world w;
	struct daemon d;
	char run[300];
	SKIP_UNLESS(geteuid() == 0, "only root can make a file system");
	/* It is seen by this test's processes alone, and ends with them; in a chroot, whose / need not be a
	 * place where something is mounted, it ends with the test. */
	ck_assert_int_eq(unshare(CLONE_NEWNS), 0);
	world_begin(&w, "full_run");
	(void)snprintf(run, sizeof run, "%s/inboxd.run", w.dir);
	run_shell(&w,
		"mount --make-rprivate / || true; mount -t tmpfs -o size=64k tmpfs $1; "
		"head -c 100000 /dev/zero >$1/filler || true",
		run);
	daemon_start_main(&w, &d);
	publish_many(&w, w.queue, "m", 10);
	WAIT_FOR(effects(&w) == 10 && is_settled(w.queue), 20);
	ck_assert_int_eq(log_lines(&d, "event=counters_private"), 1);
	ck_assert_int_eq(daemon_stop(&d), 0);
	run_shell(&w, "umount $1", run);
	world_end(&w);
}
END_TEST

/* ---- a wall clock that jumps
 * ------------------------------------------------------------------------- */

enum { A_DAY = 86400 };

/* Lines of a role that were written so many days from now. */
static int lines_of_day(const struct daemon *d, const char *role, int days)
{
	char day[32], found[64];
	time_t then = time(NULL) + (time_t)days * A_DAY;
	struct tm tm;
	FILE *f = fopen(d->log, "re");
	char *line = NULL;
	size_t size = 0;
	int n = 0;
	ck_assert_ptr_nonnull(f);
	(void)strftime(day, sizeof day, "time=%Y-%m-%dT", gmtime_r(&then, &tm));
	(void)snprintf(found, sizeof found, "role=%s", role);
	while (getline(&line, &size, f) >= 0)
		n += strncmp(line, day, strlen(day)) == 0 && strstr(line, found) != NULL;
	free(line);
	(void)fclose(f);
	return n;
}

START_TEST(a_wall_clock_that_jumps_a_day_ahead_and_two_back_changes_nothing)
{
	static const int days[] = {1, -1};
	struct world w;
	struct daemon d;
	char file[320], preload[640];
	world_begin(&w, "clock");
	config_write(&w, "inboxd", "log: {level: debug}\n",
		"  main:\n    queue: %s\n    workers: 2\n    retry: {immediate: 0, delays: "
		"[3s]}\n%s",
		w.queue, effect_lines(&w));
	(void)snprintf(file, sizeof file, "%s/clock", w.dir);
	int fd = open(file, O_CREAT | O_RDWR | O_CLOEXEC, 0644);
	int64_t seconds = 0;
	ck_assert_int_eq(pwrite(fd, &seconds, sizeof seconds, 0), sizeof seconds);
	(void)snprintf(preload, sizeof preload, "%s/preload_clock.so", built("tests/handlers"));
	ck_assert_int_eq(setenv("INBOXD_FAULT_CLOCK", file, 1), 0);
	ck_assert_int_eq(setenv("LD_PRELOAD", preload, 1), 0);
	daemon_start_main(&w, &d);
	ck_assert_int_eq(unsetenv("LD_PRELOAD"), 0);
	for (int i = 0; i < 2; i++) {
		char prefix[16], later[20];
		(void)snprintf(prefix, sizeof prefix, "m%d-", i);
		(void)snprintf(later, sizeof later, "later%d", i);
		publish(&w, w.queue, &(struct msg){.id = later, .act = "retry:1"});
		publish_many(&w, w.queue, prefix, 1000);
		WAIT_FOR(parked(&w, NULL) == 1, 20);
		seconds = (int64_t)days[i] * A_DAY;
		ck_assert_int_eq(pwrite(fd, &seconds, sizeof seconds, 0), sizeof seconds);
		publish(&w, w.queue, &(struct msg){.id = i == 0 ? "r0" : "r1", .act = "reject"});
		publish_confirm(&w);
		WAIT_FOR(effect_keys(&w) == 1001 * (i + 1) && is_settled(w.queue), 60);
		WAIT_FOR(lines_of_day(&d, "worker", days[i]) > 0, 20);
		/* Later than the others by its delay, less its jitter: it did not come due at once,
		 * nor a day after. */
		ck_assert_int_ge(sql_int(&w,
					 "SELECT extract(epoch FROM max(at) - min(at)) * 1000 FROM "
					 "effect WHERE key IN ('%s', '%s0')",
					 later, prefix),
			2000);
		WAIT_FOR(parked(&w, "rejected") == i + 1, 20);
	}
	ck_assert_int_eq(effects(&w), 2002);
	static const char *const wrong[] = {"event=process_died", "event=broker_unavailable",
		"event=consumer_stuck", "event=worker_down", "event=paused"};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		ck_assert_msg(log_lines(&d, wrong[i]) == 0, "%s in the log", wrong[i]);
	ck_assert_int_eq(daemon_stop(&d), 0);
	ck_assert_int_gt(lines_of_day(&d, "consumer", -1), 0);
	ck_assert_int_gt(lines_of_day(&d, "supervisor", -1), 0);
	(void)close(fd);
	world_end(&w);
}
END_TEST

/* ---- a stop at any moment
 * -------------------------------------------------------------------------- */

/* The program itself: between fork and exec some C libraries block all signals for a moment. */
static bool blocks_sigterm(pid_t pid)
{
	char path[64], line[256], exe[1024];
	bool found = false;
	(void)snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
	ssize_t n = readlink(path, exe, sizeof exe - 1);
	exe[n > 0 ? n : 0] = '\0';
	const char *name = strrchr(exe, '/');
	if (name == NULL || strcmp(name, "/inboxd") != 0)
		return false;
	(void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	FILE *f = fopen(path, "re");
	ck_assert_ptr_nonnull(f);
	while (!found && fgets(line, sizeof line, f) != NULL)
		found = strncmp(line, "SigBlk:", 7) == 0 &&
			(strtoull(line + 7, NULL, 16) >> (SIGTERM - 1) & 1) != 0;
	(void)fclose(f);
	return found;
}

START_TEST(a_stop_in_the_first_moment_of_a_start_is_a_clean_one)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "early");
	for (int i = 0; i < 6; i++) {
		daemon_start(&w, "inboxd", &d);
		int64_t until = now_ms() + 20000;
		while (!blocks_sigterm(d.pid) && now_ms() < until)
			continue; /* at once, without the pause of WAIT_FOR: that is the point */
		/* Alone, or as a service manager does it: everybody. */
		ck_assert_int_eq(kill(i % 2 == 0 ? d.pid : -d.pid, SIGTERM), 0);
		ck_assert_int_eq(daemon_wait(&d, 30), 0);
	}
	world_end(&w);
}
END_TEST

UNIT_SUITE_TIMEOUT(240, "integration/resources",
	a_database_whose_answers_stop_coming_is_an_outage_and_all_is_done_once_when_they_come_again,
	a_database_that_takes_nothing_more_is_an_outage_and_all_is_done_once_when_it_does_again,
	a_session_whose_server_process_is_stopped_is_replaced_at_no_messages_cost,
	a_server_process_stopped_inside_a_handlers_statement_costs_its_message_one_attempt,
	a_standby_that_does_not_come_is_waited_for_longer_than_handlers_may_take,
	a_stop_does_not_wait_for_a_standby_that_does_not_come,
	a_full_disk_under_the_log_stops_nothing, a_log_that_nobody_reads_stops_nothing,
	too_few_descriptors_are_said_so_and_end_or_calm_the_daemon,
	a_worker_without_memory_is_replaced_and_only_its_own_message_is_tried_again,
	without_a_runtime_directory_the_daemon_works_and_says_what_is_missing,
	a_full_runtime_directory_is_found_out_at_the_start,
	a_wall_clock_that_jumps_a_day_ahead_and_two_back_changes_nothing,
	a_stop_in_the_first_moment_of_a_start_is_a_clean_one)

/* SPDX-License-Identifier: MIT */
/* SIGHUP: new files of handlers and new configurations take effect at once or not at all, and no
 * message is lost, repeated or parked by it. */
#include "harness.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files of handlers ------------------------------------------------------------------------- */

static const char *changing(const struct world *w)
{
	static char path[400];
	(void)snprintf(path, sizeof path, "%s/changing.so", w->handlers);
	return path;
}

/* As cp does: the same file, emptied and written again. */
static void copy_over(const struct world *w, const char *handler)
{
	char from[400], block[65536];
	ssize_t n;
	(void)snprintf(from, sizeof from, "%s/%s.so", built("tests/handlers"), handler);
	int in = open(from, O_RDONLY | O_CLOEXEC);
	int out = open(changing(w), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
	ck_assert(in >= 0 && out >= 0);
	while ((n = read(in, block, sizeof block)) > 0)
		ck_assert_int_eq(write(out, block, (size_t)n), n);
	ck_assert_int_eq(n, 0);
	(void)close(in);
	ck_assert_int_eq(close(out), 0);
}

/* A daemon whose handler "changing" is the test's own copy of "effect". */
static void begin_changing(struct world *w, struct daemon *d, const char *name, const char *more)
{
	world_begin(w, name);
	(void)snprintf(w->handlers, sizeof w->handlers, "%s/handlers", w->dir);
	ck_assert_int_eq(mkdir(w->handlers, 0755), 0);
	copy_over(w, "effect");
	config_write(w, "inboxd", "",
		"  main:\n    queue: %s\n    handler: changing\n    options: {table: %s.effect, "
		"delay_ms: 5}\n%s",
		w->queue, w->name, more);
	daemon_start_main(w, d);
}

/* SIGHUP, and waits until the daemon has said what came of it. */
static void reload(const struct daemon *d, const char *event)
{
	int before = log_lines(d, event);
	ck_assert_int_eq(kill(d->pid, SIGHUP), 0);
	WAIT_FOR(log_lines(d, event) > before, 30);
}

#define TAKEN "event=reloaded"
#define REFUSED "event=reload_refused"

static int64_t effects_like(struct world *w, const char *pattern)
{
	return sql_int(w, "SELECT count(*) FROM effect WHERE key LIKE '%s'", pattern);
}

static void publish_one(struct world *w, const char *id)
{
	publish(w, w->queue, &(struct msg){.id = id});
	publish_confirm(w);
}

START_TEST(a_file_copied_over_a_running_handler_harms_no_message_and_is_used_after_a_reload)
{
	enum { N = 500 };
	struct world w;
	struct daemon d;
	begin_changing(&w, &d, "copied", "    workers: 2\n    batch: {max: 5}\n");
	publish_many(&w, w.queue, "m", N);
	for (int i = 0; i < 6; i++) {
		int64_t before = effects(&w);
		WAIT_FOR(effects(&w) > before + 20, 20);
		copy_over(&w, i % 2 == 0 ? "load_unresolved" : "effect_next");
	}
	ck_assert_int_lt(effects(&w), N); /* it was at work all the while */
	WAIT_FOR(effects(&w) >= N && is_settled(w.queue), 60);
	ck_assert_int_eq(effects_like(&w, "m%"), N);
	ck_assert_int_eq(effect_keys(&w), N);
	ck_assert_int_eq(sql_int(&w, "SELECT count(DISTINCT pid) FROM effect"), 2);
	ck_assert_int_eq(log_lines(&d, "event=process_died"), 0);
	reload(&d, TAKEN);
	publish_one(&w, "after");
	WAIT_FOR(effects_like(&w, "next after") == 1 && is_settled(w.queue), 30);
	ck_assert_int_eq(parked(&w, NULL), 0);
	world_end(&w);
}
END_TEST

static void make_short(const struct world *w)
{
	copy_over(w, "effect");
	ck_assert_int_eq(truncate(changing(w), 2000), 0);
}

static void make_open_to_all(const struct world *w)
{
	copy_over(w, "effect_next");
	ck_assert_int_eq(chmod(changing(w), 0757), 0);
}

static void make_text(const struct world *w)
{
	FILE *f = fopen(changing(w), "w");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_gt(fprintf(f, "a page of the download site: not found\n"), 0);
	ck_assert_int_eq(fclose(f), 0);
}

static void make_gone(const struct world *w)
{
	ck_assert_int_eq(unlink(changing(w)), 0);
}

static void make_no_symbol(const struct world *w)
{
	copy_over(w, "load_no_symbol");
}

static void make_other_abi(const struct world *w)
{
	copy_over(w, "load_other_abi");
}

static void make_exiting(const struct world *w)
{
	copy_over(w, "check_exits");
}

static void make_unresolved(const struct world *w)
{
	copy_over(w, "load_unresolved");
}

/* Lines that name the file and the reason. */
static int complaints(const struct daemon *d, const char *reason)
{
	FILE *f = fopen(d->log, "r");
	char line[4096];
	int n = 0;
	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof line, f) != NULL)
		n += strstr(line, "changing") != NULL && strstr(line, reason) != NULL;
	(void)fclose(f);
	return n;
}

START_TEST(a_bad_file_is_refused_by_name_and_reason_and_the_old_handler_works_on)
{
	static const struct {
		const char *id;
		void (*make)(const struct world *w);
		const char *reason;
	} bad[] = {
		{"short", make_short, "cut off"},
		{"text", make_text, "ELF"},
		{"symbol", make_no_symbol, "exports no constant inboxd_handler"},
		{"abi", make_other_abi, "is built for ABI"},
		{"unresolved", make_unresolved, "undefined symbol"},
		{"exits", make_exiting, "ended the process that checks it (exit code 0)"},
		{"open", make_open_to_all, "can be written by everybody"},
		{"gone", make_gone, "there is no changing.so"},
	};
	enum { N = sizeof bad / sizeof bad[0] };
	struct world w;
	struct daemon d;
	begin_changing(&w, &d, "refused", "");
	for (int i = 0; i < N; i++) {
		bad[i].make(&w);
		reload(&d, REFUSED);
		ck_assert_msg(complaints(&d, bad[i].reason) == 1, "%s", bad[i].id);
		publish_one(&w, bad[i].id);
		WAIT_FOR(effects_like(&w, bad[i].id) == 1, 20);
	}
	ck_assert_int_eq(sql_int(&w, "SELECT count(DISTINCT pid) FROM effect"), 1);
	ck_assert_int_eq(log_lines(&d, "event=process_died"), 0);
	(void)unlink(changing(&w));
	copy_over(&w, "effect_next");
	reload(&d, TAKEN);
	publish_one(&w, "good");
	WAIT_FOR(effects_like(&w, "next good") == 1 && is_settled(w.queue), 30);
	ck_assert_int_eq(effects(&w), N + 1);
	ck_assert_int_eq(parked(&w, NULL), 0);
	world_end(&w);
}
END_TEST

static void make_next(const struct world *w)
{
	copy_over(w, "effect_next");
}

START_TEST(a_worker_that_is_started_again_has_the_handler_of_the_last_reload)
{
	static void (*const make[])(const struct world *w) = {make_next, make_text, make_gone};
	enum { N = sizeof make / sizeof make[0] };
	struct world w;
	struct daemon d;
	char id[16];
	begin_changing(&w, &d, "again", "");
	for (int i = 0; i < N; i++) {
		pid_t worker = role_pid(&d, "inboxd: worker main/1");
		make[i](&w);
		ck_assert_int_eq(kill(worker, SIGKILL), 0);
		WAIT_FOR(log_lines(&d, "event=process_died") > i, 20);
		(void)snprintf(id, sizeof id, "m%d", i);
		publish_one(&w, id);
		WAIT_FOR(effects_like(&w, id) == 1, 20);
	}
	ck_assert_int_eq(sql_int(&w, "SELECT count(DISTINCT pid) FROM effect"), N);
	ck_assert_int_eq(log_lines(&d, "event=process_died"), N);
	make_next(&w);
	reload(&d, TAKEN);
	publish_one(&w, "good");
	WAIT_FOR(effects_like(&w, "next good") == 1 && is_settled(w.queue), 30);
	ck_assert_int_eq(effects(&w), N + 1);
	ck_assert_int_eq(parked(&w, NULL), 0);
	world_end(&w);
}
END_TEST

START_TEST(what_a_check_leaves_behind_is_gone_soon_after_the_start)
{
	struct world w;
	struct daemon d;
	char left[320];
	int pid = 0;
	world_begin(&w, "left");
	(void)snprintf(left, sizeof left, "%s/left", w.dir);
	ck_assert_int_eq(setenv("INBOXD_TEST_LEFT", left, 1), 0);
	config_write(&w, "inboxd", "", "  main: {queue: %s, handler: check_leaves}\n", w.queue);
	daemon_start_main(&w, &d);
	ck_assert_int_eq(unsetenv("INBOXD_TEST_LEFT"), 0);
	WAIT_FOR(access(left, F_OK) == 0, 10);
	FILE *f = fopen(left, "r");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fscanf(f, "%d", &pid), 1);
	(void)fclose(f);
	ck_assert_int_gt(pid, 1);
	WAIT_FOR(kill(pid, 0) != 0, 10);
	world_end(&w);
}
END_TEST

/* What the supervisor waits for is held to its time by the supervisor, and a stop does not wait for it. */
START_TEST(a_check_that_never_ends_is_ended_and_delays_no_stop)
{
	struct world w;
	struct daemon d;
	begin_changing(&w, &d, "hangs", "");
	copy_over(&w, "check_hangs");
	int before = log_lines(&d, REFUSED);
	ck_assert_int_eq(kill(d.pid, SIGHUP), 0);
	publish_one(&w, "meanwhile");
	WAIT_FOR(effects_like(&w, "meanwhile") == 1, 20);
	ck_assert_int_eq(log_lines(&d, REFUSED), before);
	WAIT_FOR(log_lines(&d, REFUSED) > before, 60);
	ck_assert_int_eq(log_lines(&d, "the check of the handlers was lost, or took more than"), 1);
	int members = session_size(&d);
	ck_assert_int_eq(kill(d.pid, SIGHUP), 0);
	WAIT_FOR(session_size(&d) > members, 20); /* it is being checked again */
	ck_assert_int_eq(kill(d.pid, SIGTERM), 0);
	ck_assert_int_eq(daemon_wait(&d, 10), 0);
	ck_assert_int_eq(session_size(&d), 0);
	world_end(&w);
}
END_TEST

/* ---- configurations ------------------------------------------------------------------------------ */

/* Lines of the log that a program which reads JSON lines would choke on. */
static int lines_for_people(const struct daemon *d)
{
	FILE *f = fopen(d->log, "r");
	char line[8192];
	int n = 0;
	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof line, f) != NULL)
		n += line[0] != '{' || strstr(line, "}\n") == NULL;
	(void)fclose(f);
	return n;
}

START_TEST(what_is_wrong_with_a_new_configuration_is_one_json_line_where_the_log_is_json)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "wrong");
	config_write(&w, "inboxd", "log: {format: json}\n",
		"  main: {queue: %s, handler: effect, options: {table: %s.effect}}\n", w.queue,
		w.name);
	daemon_start_main(&w, &d);
	config_write(&w, "inboxd", "log: {format: json}\n", "  main: {queue: %s, handlr: effect}\n",
		w.queue);
	reload(&d, "\"event\":\"reload_refused\"");
	config_write(&w, "inboxd", "log: {format: json}\n",
		"  main: {queue: %s, handler: sql, options: {statment: SELECT 1}}\n", w.queue);
	reload(&d, "\"event\":\"reload_refused\"");
	ck_assert_int_eq(log_lines(&d, "\"event\":\"configuration\""), 2);
	ck_assert_int_eq(log_lines(&d, "main.handler is missing"), 1);
	ck_assert_int_eq(log_lines(&d, "statment"), 1);
	ck_assert_int_eq(lines_for_people(&d), 0);
	world_end(&w);
}
END_TEST

static void write_shape(struct world *w, int workers, int prefetch, int batch)
{
	config_write(w, "inboxd", "",
		"  main: {queue: %s, handler: effect, workers: %d, prefetch: %d, batch: {max: %d}, "
		"options: {table: %s.effect, delay_ms: 2}}\n",
		w->queue, workers, prefetch, batch, w->name);
}

START_TEST(reloads_under_load_that_change_workers_prefetch_and_batches_lose_and_repeat_nothing)
{
	static const struct {
		int workers, prefetch, batch;
	} shapes[] = {{3, 60, 10}, {2, 7, 3}, {1, 1, 1}, {3, 200, 50}, {2, 40, 20}};
	enum { N = sizeof shapes / sizeof shapes[0], EACH = 200 };
	struct world w;
	struct daemon d;
	char prefix[16];
	world_begin(&w, "shapes");
	write_shape(&w, 1, 20, 5);
	daemon_start_main(&w, &d);
	for (int i = 0; i < N; i++) {
		(void)snprintf(prefix, sizeof prefix, "m%d-", i);
		publish_many(&w, w.queue, prefix, EACH);
		WAIT_FOR(queue_state(w.queue).unacked > 0, 20);
		write_shape(&w, shapes[i].workers, shapes[i].prefetch, shapes[i].batch);
		reload(&d, TAKEN);
	}
	WAIT_FOR(effects(&w) >= N * EACH && is_settled(w.queue) && parked(&w, NULL) == 0, 60);
	ck_assert_int_eq(effects(&w), N * EACH);
	ck_assert_int_eq(effect_keys(&w), N * EACH);
	ck_assert_int_eq(markers(&w), N * EACH);
	/* Supervisor, janitor, consumer, and the two workers of the last shape. */
	WAIT_FOR(session_size(&d) == 5, 20);
	ck_assert_int_eq(queue_state(w.queue).consumers, 1);
	world_end(&w);
}
END_TEST

static void write_two(struct world *w, const char *extra_queue)
{
	char extra[512] = "";
	if (extra_queue != NULL)
		(void)snprintf(extra, sizeof extra,
			"  extra: {queue: %s, handler: effect, options: {table: %s.effect}}\n",
			extra_queue, w->name);
	config_write(w, "inboxd", "",
		"  main: {queue: %s, handler: effect, options: {table: %s.effect, delay_ms: 2}}\n%s",
		w->queue, w->name, extra);
}

START_TEST(a_consumer_comes_and_goes_by_reload_and_the_other_is_not_touched)
{
	struct world w;
	struct daemon d;
	char extra[100];
	world_begin(&w, "comes");
	(void)snprintf(extra, sizeof extra, "%s-extra", w.name);
	queue_declare(&w, extra, NULL);
	write_two(&w, NULL);
	daemon_start_main(&w, &d);
	publish_many(&w, w.queue, "m", 300);
	publish_many(&w, extra, "x", 100);
	pid_t worker = role_pid(&d, "inboxd: worker main/1");
	write_two(&w, extra);
	reload(&d, TAKEN);
	WAIT_FOR(effects_like(&w, "x%") == 100 && is_settled(extra), 30);
	write_two(&w, NULL);
	reload(&d, TAKEN);
	WAIT_FOR(queue_state(extra).consumers == 0 && session_size(&d) == 4, 30);
	publish_many(&w, extra, "y", 10);
	publish_many(&w, w.queue, "n", 10);
	all_once(&w, 410);
	WAIT_FOR(queue_state(extra).ready == 10, 10);
	ck_assert_int_eq(role_pid(&d, "inboxd: worker main/1"), worker);
	ck_assert_int_eq(log_lines(&d, "event=connected role=consumer consumer=main"), 1);
	world_end(&w);
}
END_TEST

UNIT_SUITE_TIMEOUT(180, "integration/reload",
	a_file_copied_over_a_running_handler_harms_no_message_and_is_used_after_a_reload,
	a_bad_file_is_refused_by_name_and_reason_and_the_old_handler_works_on,
	a_worker_that_is_started_again_has_the_handler_of_the_last_reload,
	what_a_check_leaves_behind_is_gone_soon_after_the_start,
	a_check_that_never_ends_is_ended_and_delays_no_stop,
	what_is_wrong_with_a_new_configuration_is_one_json_line_where_the_log_is_json,
	reloads_under_load_that_change_workers_prefetch_and_batches_lose_and_repeat_nothing,
	a_consumer_comes_and_goes_by_reload_and_the_other_is_not_touched)

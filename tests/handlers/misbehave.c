/* SPDX-License-Identifier: MIT */
/* Misbehaves on purpose: does what the message's header `do` says, steps separated by commas.
 * Without it: ok.
 *
 *   ok               INSERT INTO effect (key, body), waits      queue  the same without waiting
 *   fail-temp[:N]    retry (in the first N runs only)           fail-perm  reject
 *   retry-in:MS      retry with a delay                         long-reason  reject, 300 kB
 *   sleep:S          sleeps S seconds (1.5 is fine)             hang  forever, deaf to SIGTERM
 *   wait:FILE        until FILE exists                          log   a line
 *   crash[:N]        SIGSEGV (in the first N runs only)         exit[:N]  exit(0), likewise
 *   sql-error        a statement that cannot be parsed          data-error  one whose data is wrong
 *   raise:SQLSTATE   the server raises that                     swallow  a failed one, goes on
 *   savepoint        a failed statement, undone by going back to the savepoint "here"
 *   rollback-to-here without having set it                      result  stores one
 *   commit           ends the transaction                       nonsense  returns no result
 *   lose-session     terminates its own session                 leak:MB  allocates and forgets
 *   set              leaves a setting, a temporary table and an advisory lock behind
 *   dump:FILE        appends all that it is given to FILE    reject-unless:FILE  reject while it is
 * not there child            leaves a child process behind that holds all descriptors
 *
 * Key and body of the row: the message's id, or what the option `key` names as a source; the body.
 * Built as misbehave_conn it uses the raw connection for `commit`.
 */
#include <inboxd/handler.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef MISBEHAVE_USES_CONN
#include <libpq-fe.h>
#define MISBEHAVE_FLAGS INBOXD_USES_CONN
#else
#define MISBEHAVE_FLAGS 0
#endif

struct run {
	const struct inboxd_host *host;
	struct inboxd_call *call;
	const char *argument; /* behind the colon; "" if there is none */
};

static const char insert[] = "INSERT INTO effect (key, body) VALUES ($1, $2)";

static void fill(struct run *r, struct inboxd_value args[2])
{
	struct inboxd_value source = r->host->option(r->call, "key");
	args[0] = r->host->get(r->call, source.data != NULL ? source.data : "message_id");
	args[0] = r->host->bytea(r->call, args[0].data != NULL ? args[0] : inboxd_text(""));
	args[1] = r->host->bytea(r->call, r->host->body(r->call));
}

static int32_t do_ok(struct run *r)
{
	struct inboxd_value args[2];
	fill(r, args);
	return r->host->exec(r->call, insert, 2, args, NULL);
}

static int32_t do_queue(struct run *r)
{
	struct inboxd_value args[2];
	fill(r, args);
	return r->host->queue(r->call, insert, 2, args);
}

static int32_t execute(struct run *r, const char *sql)
{
	return r->host->exec(r->call, sql, 0, NULL, NULL);
}

/* "fail-temp:2": only while it has run fewer than two times before. */
static int is_over(struct run *r)
{
	return *r->argument != '\0' && r->host->attempt(r->call) >= (uint32_t)atoi(r->argument);
}

static int32_t do_fail_temp(struct run *r)
{
	return is_over(r) ? INBOXD_DONE : r->host->retry(r->call, "temporary, as asked", 0);
}

static int32_t do_retry_in(struct run *r)
{
	return r->host->retry(r->call, "later, as asked", strtoull(r->argument, NULL, 10));
}

static int32_t do_fail_perm(struct run *r)
{
	return r->host->reject(r->call, "permanent, as asked");
}

static int32_t do_long_reason(struct run *r)
{
	static char reason[300001];
	memset(reason, 'x', sizeof reason - 1);
	memcpy(reason, "bad bytes \xff\xfe and \x01 ", 19);
	return r->host->reject(r->call, reason);
}

static int32_t do_sleep(struct run *r)
{
	double seconds = strtod(r->argument, NULL);
	struct timespec t = {.tv_sec = (time_t)seconds};
	t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
	while (nanosleep(&t, &t) != 0)
		;
	return INBOXD_DONE;
}

static int32_t do_wait(struct run *r)
{
	const struct timespec t = {.tv_nsec = 5000000};
	while (access(r->argument, F_OK) != 0)
		(void)nanosleep(&t, NULL);
	return INBOXD_DONE;
}

static int32_t do_hang(struct run *r)
{
	(void)r;
	(void)signal(SIGTERM, SIG_IGN);
	while (pause() != 0)
		;
	return INBOXD_DONE;
}

static int32_t do_log(struct run *r)
{
	r->host->log(r->call, INBOXD_LOG_WARNING, "as asked\nwith=a second line");
	return INBOXD_DONE;
}

static int32_t do_crash(struct run *r)
{
	if (!is_over(r)) {
		(void)signal(SIGSEGV, SIG_DFL);
		(void)raise(SIGSEGV);
	}
	return INBOXD_DONE;
}

static int32_t do_exit(struct run *r)
{
	if (!is_over(r))
		exit(0);
	return INBOXD_DONE;
}

static int32_t do_sql_error(struct run *r)
{
	return execute(r, "SELEKT 1");
}

static int32_t do_data_error(struct run *r)
{
	const struct inboxd_value many = inboxd_text("many");
	return r->host->exec(r->call, "SELECT $1::int", 1, &many, NULL);
}

static int32_t do_raise(struct run *r)
{
	char sql[128];
	(void)snprintf(sql, sizeof sql,
		"DO $$ BEGIN RAISE EXCEPTION 'as asked' USING ERRCODE = '%.5s'; END $$",
		r->argument);
	return execute(r, sql);
}

static int32_t do_swallow(struct run *r)
{
	(void)do_data_error(r);
	return INBOXD_DONE;
}

static int32_t do_savepoint(struct run *r)
{
	int32_t result = execute(r, "SAVEPOINT here");
	if (result == INBOXD_DONE)
		(void)do_data_error(r);
	return result == INBOXD_DONE ? execute(r, "ROLLBACK TO here") : result;
}

static int32_t do_rollback_to_here(struct run *r)
{
	return execute(r, "ROLLBACK TO SAVEPOINT here");
}

static int32_t do_result(struct run *r)
{
	return r->host->set_result(r->call, "the result", 10, "text/plain");
}

#ifdef MISBEHAVE_USES_CONN
static int32_t do_commit(struct run *r)
{
	PGconn *conn = r->host->conn(r->call);
	PQclear(PQexec(conn, "COMMIT"));
	return INBOXD_DONE;
}
#else
static int32_t do_commit(struct run *r)
{
	(void)execute(r, "COMMIT");
	return INBOXD_DONE;
}
#endif

static int32_t do_nonsense(struct run *r)
{
	(void)r;
	return 42;
}

static int32_t do_lose_session(struct run *r)
{
	return execute(r, "SELECT pg_terminate_backend(pg_backend_pid())");
}

static int32_t do_leak(struct run *r)
{
	size_t size = (size_t)atoi(r->argument) << 20;
	char *p = malloc(size);
	if (p == NULL)
		abort();
	memset(p, 'x', size);
	return INBOXD_DONE;
}

static int32_t do_set(struct run *r)
{
	static const char *const statements[] = {
		"SET application_name = 'left behind'",
		"CREATE TEMPORARY TABLE left_behind (x int)",
		"SELECT pg_advisory_lock(4711)",
	};
	int32_t result = INBOXD_DONE;
	for (int i = 0; i < 3 && result == INBOXD_DONE; i++)
		result = execute(r, statements[i]);
	return result;
}

/* ---- what it is given ---------------------------------------------------------------------------
 */

static void dump_value(FILE *f, const char *what, struct inboxd_value name, struct inboxd_value v)
{
	(void)fprintf(f, "%s %.*s:", what, (int)name.size, name.data);
	for (size_t i = 0; v.data != NULL && i < v.size; i++)
		(void)fprintf(f, " %02x", (unsigned char)v.data[i]);
	(void)fputs(v.data == NULL ? " absent\n" : "\n", f);
}

static void dump_header(FILE *f, struct run *r, struct inboxd_value name)
{
	char source[300];
	int64_t i = 0;
	double d = 0;
	int32_t kind = r->host->header_kind(r->call, name.data);
	(void)snprintf(source, sizeof source, "header:%s", name.data);
	(void)fprintf(f, "kind %d int %d %lld", kind, r->host->header_int(r->call, name.data, &i),
		(long long)i);
	(void)fprintf(f, " float %d %a\n", r->host->header_float(r->call, name.data, &d), d);
	/* Asking for a table's value would fail the message. */
	if (kind < INBOXD_KIND_ARRAY)
		dump_value(f, "header", name, r->host->get(r->call, source));
}

static int32_t do_dump(struct run *r)
{
	static const char *const properties[] = {"content_type", "content_encoding",
		"correlation_id", "reply_to", "expiration", "message_id", "type", "user_id",
		"app_id"};
	static const char *const numbers[] = {"delivery_mode", "priority", "timestamp"};
	FILE *f = fopen(r->argument, "a");
	if (f == NULL)
		abort();
	for (size_t i = 0; i < sizeof properties / sizeof properties[0]; i++) {
		char source[64];
		(void)snprintf(source, sizeof source, "property:%s", properties[i]);
		dump_value(
			f, "property", inboxd_text(properties[i]), r->host->get(r->call, source));
	}
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
		uint64_t n = 0;
		(void)fprintf(
			f, "%s %d", numbers[i], r->host->property_int(r->call, numbers[i], &n));
		(void)fprintf(f, " %llu\n", (unsigned long long)n);
	}
	struct inboxd_value name;
	for (uint32_t i = 0; (name = r->host->header_name(r->call, i)).data != NULL; i++)
		dump_header(f, r, name);
	dump_value(f, "routing_key", inboxd_text(""), r->host->get(r->call, "routing_key"));
	dump_value(f, "body", inboxd_text(""), r->host->body(r->call));
	dump_value(f, "key", inboxd_text(""), r->host->idempotency_key(r->call, NULL));
	(void)fprintf(f, "redelivered %d\n--\n", r->host->redelivered(r->call));
	(void)fclose(f);
	return INBOXD_DONE;
}

static int32_t do_reject_unless(struct run *r)
{
	if (access(r->argument, F_OK) == 0)
		return INBOXD_DONE;
	return r->host->reject(r->call, "not before the file is there");
}

static int32_t do_child(struct run *r)
{
	(void)r;
	pid_t pid = fork();
	if (pid == 0) {
		(void)sleep(600);
		_exit(0);
	}
	return INBOXD_DONE;
}

static const struct {
	const char *name;
	int32_t (*run)(struct run *r);
} steps[] = {
	{"ok", do_ok},
	{"queue", do_queue},
	{"fail-temp", do_fail_temp},
	{"retry-in", do_retry_in},
	{"fail-perm", do_fail_perm},
	{"long-reason", do_long_reason},
	{"sleep", do_sleep},
	{"wait", do_wait},
	{"hang", do_hang},
	{"log", do_log},
	{"crash", do_crash},
	{"exit", do_exit},
	{"sql-error", do_sql_error},
	{"data-error", do_data_error},
	{"raise", do_raise},
	{"swallow", do_swallow},
	{"savepoint", do_savepoint},
	{"rollback-to-here", do_rollback_to_here},
	{"result", do_result},
	{"commit", do_commit},
	{"nonsense", do_nonsense},
	{"lose-session", do_lose_session},
	{"leak", do_leak},
	{"set", do_set},
	{"dump", do_dump},
	{"reject-unless", do_reject_unless},
	{"child", do_child},
};

static int32_t run_step(struct run *r, char *step)
{
	char *colon = strchr(step, ':');
	if (colon != NULL)
		*colon = '\0';
	r->argument = colon != NULL ? colon + 1 : "";
	for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
		if (strcmp(step, steps[i].name) == 0)
			return steps[i].run(r);
	return r->host->reject(r->call, "the header `do` names no step of this handler");
}

static int32_t handle(const struct inboxd_host *host, struct inboxd_call *call)
{
	struct run r = {.host = host, .call = call};
	char list[512];
	struct inboxd_value wanted = host->get(call, "header:do");
	(void)snprintf(list, sizeof list, "%s", wanted.data != NULL ? wanted.data : "ok");
	int32_t result = INBOXD_DONE;
	char *rest = NULL;
	for (char *step = strtok_r(list, ",", &rest); step != NULL && result == INBOXD_DONE;
		step = strtok_r(NULL, ",", &rest))
		result = run_step(&r, step);
	return result;
}

INBOXD_HANDLER(.version = "test", .flags = MISBEHAVE_FLAGS, .handle = handle)

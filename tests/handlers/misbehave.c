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
 *   dump:FILE        appends all that it is given to FILE       reject-unless:FILE  until it exists
 *   sql, conn-sql    what the header `sql` holds, on the lent connection or on the raw one
 *   abort, _exit, stack, spin, eat  ends in other ways: eat allocates for ever
 *   close, close-std closes descriptors                         look  rejects what others changed
 *   mask, alarm, chdir, umask, limits, group  changes the process
 *   fork-return, fork-use  a child comes back from the handler, or uses the session before
 *   daemon:FILE      leaves a process in a session of its own, its pid in FILE
 *   thread-crash:MS, thread-print  leaves a thread that crashes later, or prints for ever
 *   finish, reset, pipeline, copy, nonblocking, unfetched  misuses of the raw connection
 *   own-lock         waits in a session of its own for a table that the transaction has locked
 *   print:MB         so much to standard output and as much to standard error, in lines
 *   child            leaves a child process behind that holds all descriptors
 *
 * Key and body of the row: the message's id, or what the option `key` names as a source; the body.
 * Built as misbehave_conn it uses the raw connection for `commit`.
 */
#include <inboxd/handler.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
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
	volatile char *p = malloc(size);
	if (p == NULL)
		abort();
	for (size_t i = 0; i < size; i += 4096)
		p[i] = 'x'; /* what nobody reads is not even allocated otherwise */
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

/* ---- what it is given ------------------------------------------------------------ */

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

static int32_t do_sql(struct run *r)
{
	return execute(r, r->host->get(r->call, "header:sql").data);
}

/* ---- the process ------------------------------------------------------------------------------- */

static int32_t do_abort(struct run *r)
{
	(void)r;
	abort();
}

static int32_t do__exit(struct run *r)
{
	(void)r;
	_exit(0);
}

static int32_t do_stack(struct run *r)
{
	volatile int hole[4096];
	hole[0] = do_stack(r); /* so that it is no loop to the compiler */
	return hole[0] + 1;
}

static int32_t do_spin(struct run *r)
{
	for (volatile int i = 0; r != NULL; i++)
		;
	return INBOXD_DONE;
}

static int32_t do_eat(struct run *r)
{
	for (; r != NULL;) {
		volatile char *p = malloc(1 << 20);
		if (p == NULL)
			abort();
		for (size_t i = 0; i < 1 << 20; i += 4096)
			p[i] = 'x';
	}
	return INBOXD_DONE;
}

static int32_t do_close(struct run *r)
{
	(void)r;
	for (int fd = 3; fd < 256; fd++)
		(void)close(fd);
	return INBOXD_DONE;
}

static int32_t do_close_std(struct run *r)
{
	(void)r;
	for (int fd = 0; fd < 3; fd++)
		(void)close(fd);
	return INBOXD_DONE;
}

static int32_t do_mask(struct run *r)
{
	sigset_t all;
	(void)r;
	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, NULL);
	(void)signal(SIGTERM, SIG_IGN);
	(void)signal(SIGPIPE, SIG_DFL);
	return INBOXD_DONE;
}

static int32_t do_alarm(struct run *r)
{
	(void)r;
	(void)signal(SIGALRM, SIG_DFL);
	(void)alarm(1);
	return INBOXD_DONE;
}

static int32_t do_chdir(struct run *r)
{
	(void)r;
	return chdir("/tmp") == 0 ? INBOXD_DONE : INBOXD_REJECT;
}

static int32_t do_umask(struct run *r)
{
	(void)r;
	(void)umask(0);
	return INBOXD_DONE;
}

static int32_t do_limits(struct run *r)
{
	const struct rlimit few = {.rlim_cur = 32, .rlim_max = 32};
	(void)r;
	(void)setrlimit(RLIMIT_NOFILE, &few);
	return INBOXD_DONE;
}

static int32_t do_group(struct run *r)
{
	(void)r;
	return setpgid(0, getpgid(getppid())) == 0 ? INBOXD_DONE : INBOXD_REJECT;
}

static int32_t do_look(struct run *r)
{
	char directory[1024] = "";
	struct sigaction on_pipe;
	struct rlimit files;
	sigset_t mask;
	mode_t bits = umask(022);
	(void)umask(bits);
	(void)sigprocmask(SIG_SETMASK, NULL, &mask);
	(void)sigaction(SIGPIPE, NULL, &on_pipe);
	(void)getrlimit(RLIMIT_NOFILE, &files);
	if (sigismember(&mask, SIGTERM) || on_pipe.sa_handler != SIG_IGN)
		return r->host->reject(r->call, "signals are not as they were");
	if (bits == 0 || getcwd(directory, sizeof directory) == NULL || strcmp(directory, "/tmp") == 0)
		return r->host->reject(r->call, "umask or directory is not as it was");
	if (getpgrp() != getpid() || files.rlim_max == 32 || alarm(0) != 0)
		return r->host->reject(r->call, "group, limits or timers are not as they were");
	return INBOXD_DONE;
}

static int32_t do_fork_return(struct run *r)
{
	(void)r;
	return fork() < 0 ? INBOXD_REJECT : INBOXD_DONE;
}

static int32_t do_fork_use(struct run *r)
{
	pid_t pid = fork();
	if (pid == 0)
		(void)execute(r, "SELECT pg_terminate_backend(pg_backend_pid())");
	else
		(void)waitpid(pid, NULL, 0);
	return INBOXD_DONE;
}

static void write_own_pid(const char *path)
{
	FILE *f = fopen(path, "w");
	if (f == NULL)
		_exit(1);
	(void)fprintf(f, "%d", (int)getpid());
	(void)fclose(f);
}

static int32_t do_daemon(struct run *r)
{
	pid_t pid = fork();
	if (pid == 0) {
		(void)setsid();
		if (fork() == 0) {
			write_own_pid(r->argument);
			(void)sleep(600);
		}
		_exit(0);
	}
	(void)waitpid(pid, NULL, 0);
	return INBOXD_DONE;
}

static void *crash_later(void *ms)
{
	(void)usleep((useconds_t)(uintptr_t)ms * 1000);
	(void)signal(SIGSEGV, SIG_DFL);
	(void)raise(SIGSEGV);
	return NULL;
}

static void *print_for_ever(void *unused)
{
	for (;;) {
		(void)puts("a thread left behind");
		(void)usleep(50000);
	}
	return unused;
}

static int32_t do_print(struct run *r)
{
	static char line[1 << 16];
	memset(line, 'p', sizeof line - 1);
	line[sizeof line - 1] = '\n';
	for (int n = atoi(r->argument) << 4; n > 0; n--)
		if (write(STDOUT_FILENO, line, sizeof line) < 0 ||
			write(STDERR_FILENO, line, sizeof line) < 0)
			return INBOXD_RETRY;
	return INBOXD_DONE;
}

static int32_t start_thread(void *(*run)(void *), uintptr_t arg)
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, run, (void *)arg) != 0)
		return INBOXD_RETRY;
	(void)pthread_detach(thread);
	return INBOXD_DONE;
}

static int32_t do_thread_crash(struct run *r)
{
	return start_thread(crash_later, (uintptr_t)atoi(r->argument));
}

static int32_t do_thread_print(struct run *r)
{
	(void)r;
	return start_thread(print_for_ever, 0);
}

/* ---- the raw connection ------------------------------------------------------------------------ */

#ifdef MISBEHAVE_USES_CONN
static int32_t do_conn_sql(struct run *r)
{
	PQclear(PQexec(r->host->conn(r->call), r->host->get(r->call, "header:sql").data));
	return INBOXD_DONE;
}

static int32_t do_finish(struct run *r)
{
	PQfinish(r->host->conn(r->call));
	return INBOXD_DONE;
}

static int32_t do_reset(struct run *r)
{
	PQreset(r->host->conn(r->call));
	return INBOXD_DONE;
}

static int32_t do_pipeline(struct run *r)
{
	PGconn *conn = r->host->conn(r->call);
	(void)PQenterPipelineMode(conn);
	for (int i = 0; i < 3; i++)
		(void)PQsendQueryParams(conn, "SELECT 1", 0, NULL, NULL, NULL, NULL, 0);
	return INBOXD_DONE;
}

static int32_t do_copy(struct run *r)
{
	PQclear(PQexec(r->host->conn(r->call), "COPY effect (key) FROM STDIN"));
	return INBOXD_DONE;
}

static int32_t do_nonblocking(struct run *r)
{
	PGconn *conn = r->host->conn(r->call);
	(void)PQsetnonblocking(conn, 1);
	(void)PQsendQuery(conn, "SELECT pg_sleep(0.1)");
	return INBOXD_DONE;
}

static int32_t do_unfetched(struct run *r)
{
	(void)PQsendQuery(r->host->conn(r->call), "SELECT generate_series(1, 100000); SELECT 2");
	return INBOXD_DONE;
}

static int32_t do_own_lock(struct run *r)
{
	PGconn *conn = r->host->conn(r->call);
	PQclear(PQexec(conn, "LOCK TABLE effect"));
	PGconn *own = PQconnectdb(r->host->option(r->call, "conninfo").data);
	PQclear(PQexec(own, "SELECT count(*) FROM effect"));
	PQfinish(own);
	return INBOXD_DONE;
}
#endif

static const struct {
	const char *name;
	int32_t (*run)(struct run *r);
} steps[] = {
#ifdef MISBEHAVE_USES_CONN
	{"conn-sql", do_conn_sql},
	{"finish", do_finish},
	{"reset", do_reset},
	{"pipeline", do_pipeline},
	{"copy", do_copy},
	{"nonblocking", do_nonblocking},
	{"unfetched", do_unfetched},
	{"own-lock", do_own_lock},
#endif
	{"sql", do_sql},
	{"abort", do_abort},
	{"_exit", do__exit},
	{"stack", do_stack},
	{"spin", do_spin},
	{"eat", do_eat},
	{"close", do_close},
	{"close-std", do_close_std},
	{"mask", do_mask},
	{"alarm", do_alarm},
	{"chdir", do_chdir},
	{"umask", do_umask},
	{"limits", do_limits},
	{"group", do_group},
	{"look", do_look},
	{"fork-return", do_fork_return},
	{"fork-use", do_fork_use},
	{"daemon", do_daemon},
	{"thread-crash", do_thread_crash},
	{"thread-print", do_thread_print},
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
	{"print", do_print},
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

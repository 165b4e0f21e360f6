/* SPDX-License-Identifier: MIT */
/* Starting, watching, killing and ending inboxd, and running other programs. */
#include "harness.h"

#include "internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RUNNING = -1, MOST_DAEMONS = 8 };
static struct daemon *daemons[MOST_DAEMONS];

/* ---- configuration --------------------------------------------------------------------------- */

/* The world's own server, unless `more` names several. */
PRINTF(4, 5)
static void write_server(FILE *f, const char *more, const char *many, const char *one_fmt, ...)
{
	va_list args;
	if (strstr(more, many) != NULL)
		return;
	va_start(args, one_fmt);
	(void)vfprintf(f, one_fmt, args);
	va_end(args);
}

/* The broker's URI with another port. */
static const char *broker_uri(const struct world *w)
{
	static char uri[512];
	const char *own = environment("INBOXD_TEST_AMQP_URI");
	const char *port = strrchr(own, ':') + 1;
	if (w->broker_port == 0)
		return own;
	(void)snprintf(uri, sizeof uri, "%.*s%u%s", (int)(port - own), own, w->broker_port,
		port + strspn(port, "0123456789"));
	return uri;
}

/* Of two ports libpq takes the last. */
static const char *database_conninfo(const struct world *w)
{
	static char conninfo[512];
	const char *own = environment("INBOXD_TEST_CONNINFO");
	if (w->database_port == 0)
		return own;
	(void)snprintf(conninfo, sizeof conninfo, "%s port=%u", own, w->database_port);
	return conninfo;
}

void config_write(
	struct world *w, const char *file, const char *more, const char *consumers_fmt, ...)
{
	char path[320], run[320];
	(void)snprintf(path, sizeof path, "%s/%s.yaml", w->dir, file);
	(void)snprintf(run, sizeof run, "%s/%s.run", w->dir, file);
	ck_assert(mkdir(run, 0755) == 0 || errno == EEXIST);
	FILE *f = fopen(path, "w");
	ck_assert_msg(f != NULL, "%s: %s", path, strerror(errno));
	(void)fprintf(f, "handlers: {directory: [\"%s\", \"%s\"]}\nruntime_directory: \"%s\"\n%s",
		built("handlers"), w->handlers[0] != '\0' ? w->handlers : built("tests/handlers"),
		run, more);
	write_server(f, more, "brokers:", "broker: {uri: \"%s\"}\n", broker_uri(w));
	write_server(f, more, "databases:", "database: {conninfo: \"%s\", schema: %s}\n",
		database_conninfo(w), w->name);
	va_list args;
	va_start(args, consumers_fmt);
	(void)fprintf(f, "consumers:\n");
	(void)vfprintf(f, consumers_fmt, args);
	va_end(args);
	ck_assert_int_eq(fclose(f), 0);
}

void config_handler(struct world *w, const char *handler, const char *more)
{
	char servers[800];
	(void)snprintf(servers, sizeof servers,
		"brokers: {main: {uri: \"%s\", heartbeat: 2s}}\n"
		"databases: {main: {conninfo: \"%s options=-csearch_path=%s\", schema: %s}}\n",
		broker_uri(w), database_conninfo(w), w->name, w->name);
	config_write(w, "inboxd", servers, "  main:\n    queue: %s\n    handler: %s\n%s", w->queue,
		handler, more);
}

void config_main(struct world *w, const char *more_fmt, ...)
{
	char *more = NULL;
	va_list args;
	va_start(args, more_fmt);
	if (vasprintf(&more, more_fmt, args) < 0)
		abort();
	va_end(args);
	config_write(w, "inboxd", "",
		"  main:\n"
		"    queue: %s\n"
		"    handler: effect\n"
		"    options: {table: %s.effect}\n"
		"%s",
		w->queue, w->name, more);
	free(more);
}

/* ---- processes ------------------------------------------------------------------------------- */

static size_t read_proc(pid_t pid, const char *what, char *ret, size_t size)
{
	char path[64];
	(void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, what);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t n = read(fd, ret, size - 1);
	(void)close(fd);
	ret[n > 0 ? n : 0] = '\0';
	return n > 0 ? (size_t)n : 0;
}

/* Session of a live process; 0 if it is gone or only its remains are left. */
static pid_t session_of(pid_t pid)
{
	char stat[512];
	if (read_proc(pid, "stat", stat, sizeof stat) == 0)
		return 0;
	const char *p = strrchr(stat, ')');
	char state;
	int parent, group, session;
	if (p == NULL || sscanf(p + 1, " %c %d %d %d", &state, &parent, &group, &session) != 4)
		return 0;
	return state == 'Z' || state == 'X' ? 0 : session;
}

/* Calls back for each process of a session until that returns true; returns that pid, or 0. */
static pid_t session_find(pid_t session, bool (*is_it)(pid_t pid, void *arg), void *arg)
{
	DIR *proc = opendir("/proc");
	ck_assert_ptr_nonnull(proc);
	pid_t found = 0;
	for (struct dirent *e; found == 0 && (e = readdir(proc)) != NULL;) {
		pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
		if (pid > 0 && session_of(pid) == session && is_it(pid, arg))
			found = pid;
	}
	(void)closedir(proc);
	return found;
}

static bool has_name(pid_t pid, void *name)
{
	char argv[512];
	if (read_proc(pid, "cmdline", argv, sizeof argv) == 0)
		return false;
	return strncmp(argv, name, strlen(name)) == 0;
}

static bool count_it(pid_t pid, void *n)
{
	(void)pid;
	++*(int *)n;
	return false;
}

pid_t role_pid(const struct daemon *d, const char *role)
{
	return session_find(d->pid, has_name, (void *)(uintptr_t)role);
}

int session_size(const struct daemon *d)
{
	int n = 0;
	(void)session_find(d->pid, count_it, &n);
	return n;
}

void role_kill(const struct daemon *d, const char *role)
{
	pid_t pid = role_pid(d, role);
	ck_assert_msg(pid > 0, "no process \"%s\"", role);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	WAIT_FOR(session_of(pid) == 0, 10);
}

int64_t memory_kib(pid_t pid, bool is_peak)
{
	char status[4096];
	const char *name = is_peak ? "VmHWM:" : "VmRSS:";
	/* One that is just ending has none any more. */
	if (read_proc(pid, "status", status, sizeof status) == 0)
		return 0;
	const char *at = strstr(status, name);
	return at != NULL ? strtoll(at + strlen(name), NULL, 10) : 0;
}

/* A process's own time, and that of its children who have ended. */
static bool add_cpu(pid_t pid, void *ticks)
{
	char stat[512];
	unsigned long user = 0, system = 0;
	long children_user = 0, children_system = 0;
	if (read_proc(pid, "stat", stat, sizeof stat) == 0)
		return false;
	(void)sscanf(strrchr(stat, ')') + 1,
		" %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld", &user, &system,
		&children_user, &children_system);
	*(int64_t *)ticks += (int64_t)user + (int64_t)system + children_user + children_system;
	return false;
}

int64_t cpu_ms(const struct daemon *d)
{
	int64_t ticks = 0;
	(void)session_find(d->pid, add_cpu, &ticks);
	return ticks * 1000 / sysconf(_SC_CLK_TCK);
}

void stays_calm(const struct daemon *d, int seconds)
{
	int lines = log_lines(d, "");
	int64_t cpu = cpu_ms(d);
	sleep_ms(1000 * seconds);
	cpu = cpu_ms(d) - cpu;
	lines = log_lines(d, "") - lines;
	ck_assert_msg(cpu < seconds * 100, "%d ms of CPU in %d s", (int)cpu, seconds);
	ck_assert_msg(lines < 10 + seconds / 4, "%d log lines in %d s", lines, seconds);
}

int open_files(pid_t pid)
{
	char path[64];
	(void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	DIR *fds = opendir(path);
	ck_assert_ptr_nonnull(fds);
	int n = 0;
	for (struct dirent *e; (e = readdir(fds)) != NULL;)
		n += e->d_name[0] != '.';
	(void)closedir(fds);
	return n;
}

/* ---- programs -------------------------------------------------------------------------------- */

/* The child's side of every fork: dies with the test, logs to a file, runs the program. */
static _Noreturn void become(const char *log, const char *const argv[])
{
	int out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
	int in = open("/dev/null", O_RDONLY);
	if (out < 0 || in < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		_exit(126);
	(void)dup2(in, STDIN_FILENO);
	(void)dup2(out, STDOUT_FILENO);
	(void)dup2(out, STDERR_FILENO);
	if (out > STDERR_FILENO)
		(void)close(out);
	if (in > STDERR_FILENO)
		(void)close(in);
	(void)execvp(argv[0], (char *const *)(uintptr_t)argv);
	(void)dprintf(STDERR_FILENO, "%s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

static int exit_code(int status)
{
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int run(const char *log, const char *const argv[])
{
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		become(log, argv);
	int status;
	while (waitpid(pid, &status, 0) < 0)
		ck_assert_int_eq(errno, EINTR);
	return exit_code(status);
}

void run_program(struct world *w, const char *file, const char *const argv[])
{
	char log[320];
	(void)snprintf(log, sizeof log, "%s/%s.out", w->dir, file);
	int code = run(log, argv);
	ck_assert_msg(code == 0, "%s ended with %d", argv[0], code);
}

void run_shell(struct world *w, const char *script, const char *argument)
{
	const char *const argv[] = {"sh", "-ec", script, "sh", argument, NULL};
	run_program(w, "shell", argv);
}

void file_read(const char *path, char *ret, size_t size)
{
	FILE *f = fopen(path, "r");
	ck_assert_msg(f != NULL, "%s: %s", path, strerror(errno));
	ret[fread(ret, 1, size - 1, f)] = '\0';
	(void)fclose(f);
}

char said[65536];

int inboxctl(struct world *w, const char *config, const char *const arguments[])
{
	char log[320], path[320];
	const char *argv[32] = {built("inboxctl"), "-c", path};
	(void)snprintf(path, sizeof path, "%s/%s.yaml", w->dir, config);
	(void)snprintf(log, sizeof log, "%s/inboxctl.out", w->dir);
	for (size_t i = 0; arguments[i] != NULL && i < 28; i++)
		argv[3 + i] = arguments[i];
	(void)unlink(log);
	int code = run(log, argv);
	file_read(log, said, sizeof said);
	return code;
}

/* ---- the daemon ------------------------------------------------------------------------------ */

void daemon_start(struct world *w, const char *file, struct daemon *ret)
{
	char log[320];
	(void)snprintf(log, sizeof log, "%s/%s.log", w->dir, file);
	daemon_start_logging(w, file, log, ret);
}

void daemon_start_logging(struct world *w, const char *file, const char *log, struct daemon *ret)
{
	struct stat st;
	*ret = (struct daemon){.status = RUNNING};
	(void)snprintf(ret->config, sizeof ret->config, "%s/%s.yaml", w->dir, file);
	bool is_readable = stat(log, &st) != 0 || S_ISREG(st.st_mode);
	(void)snprintf(ret->log, sizeof ret->log, "%s", is_readable ? log : "/dev/null");
	const char *const argv[] = {built("inboxd"), "-c", ret->config, NULL};
	ret->pid = fork();
	ck_assert_int_ge(ret->pid, 0);
	if (ret->pid == 0) {
		(void)setsid();
		become(log, argv);
	}
	for (size_t i = 0; i < MOST_DAEMONS; i++)
		if (daemons[i] == NULL || daemons[i] == ret) {
			daemons[i] = ret;
			return;
		}
	ck_abort_msg("too many daemons");
}

void daemon_start_main(struct world *w, struct daemon *ret)
{
	daemon_start(w, "inboxd", ret);
	WAIT_FOR(queue_state(w->queue).consumers > 0, 20);
}

bool daemon_has_ended(struct daemon *d)
{
	int status;
	if (d->status != RUNNING)
		return true;
	if (waitpid(d->pid, &status, WNOHANG) != d->pid)
		return false;
	d->status = exit_code(status);
	return true;
}

int daemon_wait(struct daemon *d, double seconds)
{
	WAIT_FOR(daemon_has_ended(d), seconds);
	return d->status;
}

int daemon_stop(struct daemon *d)
{
	ck_assert_msg(!daemon_has_ended(d), "inboxd has already ended with %d", d->status);
	ck_assert_int_eq(kill(d->pid, SIGTERM), 0);
	return daemon_wait(d, 30);
}

void daemons_end_all(void)
{
	for (size_t i = 0; i < MOST_DAEMONS; i++) {
		struct daemon *d = daemons[i];
		if (d == NULL)
			continue;
		if (d->status == RUNNING)
			ck_assert_int_eq(daemon_stop(d), 0);
		WAIT_FOR(session_size(d) == 0, 10);
		ck_assert_int_eq(log_lines(d, "Sanitizer"), 0); /* of any process */
		daemons[i] = NULL;
	}
}

int log_lines(const struct daemon *d, const char *text)
{
	FILE *f = fopen(d->log, "r");
	if (f == NULL)
		return 0;
	char *line = NULL;
	size_t size = 0;
	int n = 0;
	while (getline(&line, &size, f) >= 0)
		n += strstr(line, text) != NULL;
	free(line);
	(void)fclose(f);
	return n;
}

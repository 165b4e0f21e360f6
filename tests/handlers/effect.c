/* SPDX-License-Identifier: MIT */
/* The handler of the integration tests: writes one row for each run that is committed, and does what the
 * header "act" of the message says:
 *
 *   ok, absent        one row
 *   sleep:MS          one row, then sleeps
 *   retry:N           asks for a retry while it was started less than N times before
 *   reject            refuses the message
 *   reject-unless:F   the same unless the file F exists
 *   retry-unless:F    asks for a retry unless the file F exists
 *   reject-long       refuses with 300 kB of reason, not all of it UTF-8
 *   sql               a statement that fails, whose error is returned
 *   crash             dies of a signal, behind its row
 *   crash-once:F      the same unless the file F exists, which it makes
 *   exit              calls exit(0)
 *   end-session       has the server end its session
 *   kill-backend      kills the server's process of its session, and so all sessions
 *   hang              never returns
 *   end-daemon        kills the supervisor, which takes everybody with it
 *
 * Options: table (of the rows), key (source of its column; message_id), delay_ms (of every message). */
#include <inboxd/handler.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* What stands in the column key; effect_next.c has another, to be told apart. */
#ifndef EFFECT_KEY
#define EFFECT_KEY "$1"
#endif

enum { KEPT_BODY = 65536, KEPT_KEY = 4096 };

struct state {
	char sql[512];
	char key[256];
	long delay_ms;
};

static void sleep_ms(long ms)
{
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
	while (nanosleep(&t, &t) != 0)
		continue;
}

static struct inboxd_value as_value(const char *s)
{
	return (struct inboxd_value){.data = s, .size = s != NULL ? strlen(s) : 0};
}

/* Bytes that are no printable ASCII as \xNN. */
static void escape(struct inboxd_value v, char *ret, size_t size)
{
	size_t n = 0;
	for (size_t i = 0; i < v.size && n + 5 < size; i++) {
		unsigned char c = (unsigned char)v.data[i];
		if (c >= ' ' && c < 127 && c != '\\')
			ret[n++] = (char)c;
		else
			n += (size_t)snprintf(ret + n, size - n, "\\x%02x", c);
	}
	ret[n] = '\0';
}

/* Text form of bytea; NULL for a body too large to be kept. */
static char *hex(struct inboxd_value v)
{
	static const char digits[] = "0123456789abcdef";
	if (v.size > KEPT_BODY)
		return NULL;
	char *ret = malloc(2 * v.size + 3);
	if (ret == NULL)
		abort();
	char *p = ret;
	*p++ = '\\';
	*p++ = 'x';
	for (size_t i = 0; i < v.size; i++) {
		*p++ = digits[(unsigned char)v.data[i] >> 4];
		*p++ = digits[(unsigned char)v.data[i] & 15];
	}
	*p = '\0';
	return ret;
}

static int32_t write_effect(const struct inboxd_host *host, struct inboxd_call *call)
{
	const struct state *s = host->state(call);
	char key[KEPT_KEY], size[32], pid[32];
	struct inboxd_value body = host->body(call);
	struct inboxd_value id = host->get(call, s->key);
	escape(id, key, sizeof key);
	(void)snprintf(size, sizeof size, "%zu", body.size);
	(void)snprintf(pid, sizeof pid, "%d", (int)getpid());
	char *kept = hex(body);
	const struct inboxd_value args[] = {as_value(id.data != NULL ? key : NULL), as_value(size),
		as_value(kept), as_value(pid)};
	int32_t rc = host->queue(call, s->sql, 4, args);
	free(kept);
	return rc;
}

static void crash_unless(const char *file)
{
	if (file != NULL && access(file, F_OK) == 0)
		return;
	if (file != NULL)
		(void)close(open(file, O_CREAT | O_WRONLY, 0644));
	(void)signal(SIGSEGV, SIG_DFL); /* a sanitizer would report it */
	(void)raise(SIGSEGV);
}

/* As the kernel does where memory runs out: everybody at once. */
static void end_daemon(void)
{
	(void)kill(getppid(), SIGKILL);
	for (;;)
		(void)pause();
}

static int32_t kill_backend(const struct inboxd_host *host, struct inboxd_call *call)
{
	struct inboxd_rows *rows = NULL;
	int32_t rc = host->exec(call, "SELECT pg_backend_pid()", 0, NULL, &rows);
	if (rc != INBOXD_DONE)
		return rc;
	pid_t pid = (pid_t)strtol(host->rows_value(rows, 0, 0).data, NULL, 10);
	(void)kill(pid, SIGKILL);
	return host->exec(call, "SELECT pg_sleep(60)", 0, NULL, NULL);
}

static int32_t reject_long(const struct inboxd_host *host, struct inboxd_call *call)
{
	static char reason[300001];
	memset(reason, 'x', sizeof reason - 1);
	memcpy(reason, "bad bytes \xff\xfe and \x01 ", 19);
	return host->reject(call, reason);
}

static int32_t act_on(const struct inboxd_host *host, struct inboxd_call *call, const char *act)
{
	if (strncmp(act, "sleep:", 6) == 0)
		sleep_ms(strtol(act + 6, NULL, 10));
	else if (strncmp(act, "retry:", 6) == 0 && host->attempt(call) < strtoul(act + 6, NULL, 10))
		return host->retry(call, "not yet", 0);
	else if (strcmp(act, "reject") == 0)
		return host->reject(call, "never");
	else if (strncmp(act, "reject-unless:", 14) == 0 && access(act + 14, F_OK) != 0)
		return host->reject(call, "not as long as the file is missing");
	else if (strncmp(act, "retry-unless:", 13) == 0 && access(act + 13, F_OK) != 0)
		return host->retry(call, "not mended", 0);
	else if (strcmp(act, "reject-long") == 0)
		return reject_long(host, call);
	else if (strcmp(act, "sql") == 0)
		return host->exec(call, "SELECT 1/0", 0, NULL, NULL);
	else if (strcmp(act, "end-session") == 0)
		return host->exec(
			call, "SELECT pg_terminate_backend(pg_backend_pid())", 0, NULL, NULL);
	else if (strcmp(act, "kill-backend") == 0)
		return kill_backend(host, call);
	else if (strcmp(act, "crash") == 0)
		crash_unless(NULL);
	else if (strncmp(act, "crash-once:", 11) == 0)
		crash_unless(act + 11);
	else if (strcmp(act, "end-daemon") == 0)
		end_daemon();
	else if (strcmp(act, "exit") == 0)
		exit(0);
	while (strcmp(act, "hang") == 0)
		sleep_ms(1000);
	return INBOXD_DONE;
}

static int32_t handle(const struct inboxd_host *host, struct inboxd_call *call)
{
	const struct state *s = host->state(call);
	int32_t rc = write_effect(host, call);
	if (rc != INBOXD_DONE)
		return rc;
	if (s->delay_ms > 0)
		sleep_ms(s->delay_ms);
	struct inboxd_value act = host->get(call, "header:act");
	return act.data != NULL ? act_on(host, call, act.data) : INBOXD_DONE;
}

static int32_t open_(const struct inboxd_host *host, struct inboxd_call *call)
{
	static struct state s;
	struct inboxd_value table = host->option(call, "table");
	struct inboxd_value key = host->option(call, "key");
	struct inboxd_value delay = host->option(call, "delay_ms");
	if (table.data == NULL)
		return host->bad_option(call, "", "table is missing");
	(void)snprintf(s.sql, sizeof s.sql,
		"INSERT INTO %s (key, size, body, pid) VALUES (" EFFECT_KEY ", $2, $3, $4)",
		table.data);
	(void)snprintf(s.key, sizeof s.key, "%s", key.data != NULL ? key.data : "message_id");
	s.delay_ms = delay.data != NULL ? strtol(delay.data, NULL, 10) : 0;
	host->set_state(call, &s);
	return INBOXD_DONE;
}

INBOXD_HANDLER(.open = open_, .handle = handle)

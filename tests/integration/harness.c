/* SPDX-License-Identifier: MIT */
/* Worlds, waiting, and the database. */
#include "harness.h"

#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int64_t now_ms(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void sleep_ms(int ms)
{
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
	while (nanosleep(&t, &t) != 0 && errno == EINTR)
		continue;
}

double wait_factor(void)
{
	const char *v = getenv("CK_TIMEOUT_MULTIPLIER");
	double f = v != NULL ? strtod(v, NULL) : 1;
	return f >= 1 ? f : 1;
}

const char *environment(const char *name)
{
	const char *v = getenv(name);
	if (v == NULL)
		ck_abort_msg("%s is not set: run this by tests/integration/run.sh", name);
	return v;
}

int how_many(int usually)
{
	const char *n = getenv("INBOXD_TEST_MESSAGES");
	return n != NULL ? atoi(n) : usually;
}

bool is_skipped(const char *test, bool can_be_done, const char *without)
{
	if (!can_be_done) {
		(void)printf("skipped: %.*s: %s\n", (int)strlen(test) - 3, test, without);
		(void)fflush(stdout);
	}
	return !can_be_done;
}

void touch(const char *path)
{
	FILE *f = fopen(path, "w");
	ck_assert_msg(f != NULL, "%s: %s", path, strerror(errno));
	ck_assert_int_eq(fclose(f), 0);
}

const char *built(const char *name)
{
	static char path[4][512];
	static unsigned next;
	char *p = path[next++ % 4];
	(void)snprintf(p, sizeof path[0], "%s/%s", environment("INBOXD_TEST_BUILD"), name);
	return p;
}

/* ---- world ----------------------------------------------------------------------------------- */

PGconn *database_connect(const char *conninfo)
{
	PGconn *db = PQconnectdb(conninfo);
	if (PQstatus(db) != CONNECTION_OK)
		ck_abort_msg("%s", PQerrorMessage(db));
	return db;
}

static void make_schema(struct world *w)
{
	sql(w, "CREATE SCHEMA \"%s\" AUTHORIZATION inboxd", w->name);
	sql(w, "SET search_path = \"%s\"", w->name);
	sql(w,
		"SET ROLE inboxd; CREATE TABLE effect (key text, size bigint, body bytea, "
		"pid integer, seq bigserial, at timestamptz DEFAULT clock_timestamp()); RESET "
		"ROLE");
}

void world_begin(struct world *w, const char *name)
{
	memset(w, 0, sizeof *w);
	(void)snprintf(w->name, sizeof w->name, "%.40s_%d", name, (int)getpid());
	(void)snprintf(w->dir, sizeof w->dir, "%s/%s", environment("INBOXD_TEST_DIR"), w->name);
	(void)snprintf(w->queue, sizeof w->queue, "%s-main", w->name);
	ck_assert_msg(mkdir(w->dir, 0755) == 0, "%s: %s", w->dir, strerror(errno));
	w->db = database_connect(environment("INBOXD_TEST_ADMIN_CONNINFO"));
	make_schema(w);
	broker_open(w);
	queue_declare(w, w->queue, NULL);
	config_main(w, "%s", "");
	const char *const arguments[] = {"migrate", NULL};
	ck_assert_int_eq(inboxctl(w, "inboxd", arguments), 0);
}

void world_end(struct world *w)
{
	daemons_end_all();
	broker_close(w);
	sql(w, "SET client_min_messages = warning");
	sql(w, "DROP SCHEMA \"%s\" CASCADE", w->name);
	PQfinish(w->db);
	char command[300];
	(void)snprintf(command, sizeof command, "rm -rf '%s'", w->dir);
	ck_assert_int_eq(system(command), 0); // NOLINT: the path is ours
}

/* ---- database -------------------------------------------------------------------------------- */

PRINTF(2, 0)
static const char *query(struct world *w, const char *fmt, va_list args)
{
	static char value[4][512];
	static unsigned next;
	char *text = NULL;
	if (vasprintf(&text, fmt, args) < 0)
		abort();
	PGresult *r = PQexec(w->db, text);
	ExecStatusType status = PQresultStatus(r);
	if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
		ck_abort_msg("%s: %s", text, PQresultErrorMessage(r));
	free(text);
	char *v = value[next++ % 4];
	(void)snprintf(v, sizeof value[0], "%s", PQntuples(r) > 0 ? PQgetvalue(r, 0, 0) : "");
	PQclear(r);
	return v;
}

const char *sql_text(struct world *w, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	const char *v = query(w, fmt, args);
	va_end(args);
	return v;
}

int64_t sql_int(struct world *w, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	const char *v = query(w, fmt, args);
	va_end(args);
	return strtoll(v, NULL, 10);
}

void sql(struct world *w, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	(void)query(w, fmt, args);
	va_end(args);
}

void all_once(struct world *w, int n)
{
	WAIT_FOR(effect_keys(w) == n && is_settled(w->queue), 90);
	ck_assert_int_eq(effects(w), n);
	ck_assert_int_eq(markers(w), n);
	ck_assert_int_eq(parked(w, NULL), 0);
}

void nobody_was_blamed(struct world *w, const struct daemon *d)
{
	ck_assert_int_eq(parked(w, NULL), 0);
	ck_assert_int_eq(log_lines(d, "event=parked"), 0);
	ck_assert_int_eq(log_lines(d, "over its time limit"), 0);
}

int64_t effects(struct world *w)
{
	return sql_int(w, "SELECT count(*) FROM effect");
}

int64_t effect_keys(struct world *w)
{
	return sql_int(w, "SELECT count(DISTINCT key) FROM effect");
}

int64_t markers(struct world *w)
{
	return sql_int(w, "SELECT count(*) FROM inbox");
}

int64_t parked(struct world *w, const char *reason)
{
	if (reason == NULL)
		return sql_int(w, "SELECT count(*) FROM parked");
	return sql_int(w, "SELECT count(*) FROM parked WHERE reason = '%s'", reason);
}

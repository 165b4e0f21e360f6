/* SPDX-License-Identifier: MIT */
/* Takes the private servers away and brings them back, by tests/servers.sh. */
#include "harness.h"

#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void servers(const char *verb, const char *server, const char *signal)
{
	char script[512], log[512];
	const char *dir = environment("INBOXD_TEST_SERVERS");
	(void)snprintf(script, sizeof script, "%s/servers.sh", environment("INBOXD_TEST_SOURCES"));
	(void)snprintf(log, sizeof log, "%s/tests.log", dir);
	const char *const argv[] = {"bash", script, verb, dir, server, signal, NULL};
	int code = run(log, argv);
	ck_assert_msg(code == 0, "servers.sh %s %s ended with %d, see %s", verb,
		server != NULL ? server : "", code, log);
}

static bool has_file(const char *server, const char *suffix)
{
	char path[512];
	(void)snprintf(
		path, sizeof path, "%s/%s%s", environment("INBOXD_TEST_SERVERS"), server, suffix);
	return access(path, F_OK) == 0;
}

static int64_t settings(struct world *w)
{
	return sql_int(w, "SELECT count(*) FROM pg_settings WHERE sourcefile LIKE '%%auto.conf'");
}

static void reload(struct world *w, int64_t expected)
{
	sql(w, "SELECT pg_reload_conf()");
	WAIT_FOR(settings(w) == expected, 10);
}

/* The server's settings first: with them a commit may wait for a standby that is not there. */
static void postgres_restore(void)
{
	struct world w = {.db = database_connect(environment("INBOXD_TEST_ADMIN_CONNINFO"))};
	if (settings(&w) != 0) {
		sql(&w, "ALTER SYSTEM RESET ALL");
		reload(&w, 0);
	}
	if (sql_int(&w, "SELECT count(*) FROM pg_db_role_setting") != 0)
		sql(&w, "ALTER ROLE inboxd RESET ALL");
	PQfinish(w.db);
}

void unit_setup(void)
{
	if (has_file("standby", ".pid"))
		servers("end", "standby", "KILL");
	if (!has_file("postgres", ".pid"))
		servers("begin", "postgres", NULL);
	if (!has_file("rabbitmq", ".pid"))
		servers("begin", "rabbitmq", NULL);
	postgres_restore();
	broker_restore();
}

/* ---- PostgreSQL ------------------------------------------------------------------ */

void postgres_set(const char *name, const char *value)
{
	struct world w = {.db = database_connect(environment("INBOXD_TEST_ADMIN_CONNINFO"))};
	int64_t others = sql_int(&w,
		"SELECT count(*) FROM pg_settings WHERE sourcefile LIKE '%%auto.conf' AND name <> "
		"'%s'",
		name);
	if (value != NULL)
		sql(&w, "ALTER SYSTEM SET %s = '%s'", name, value);
	else
		sql(&w, "ALTER SYSTEM RESET %s", name);
	reload(&w, others + (value != NULL));
	PQfinish(w.db);
}

static void use_database(struct world *w, const char *conninfo)
{
	PQfinish(w->db);
	w->db = database_connect(conninfo);
	sql(w, "SET search_path = \"%s\"", w->name);
}

void postgres_stop(struct world *w, const char *how)
{
	static const char *const signals[][2] = {
		{"fast", "INT"}, {"immediate", "QUIT"}, {"kill", "KILL"}};
	(void)w;
	for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
		if (strcmp(how, signals[i][0]) == 0)
			servers("end", "postgres", signals[i][1]);
	ck_assert_msg(!has_file("postgres", ".pid"), "no such way to stop: %s", how);
}

void postgres_start(struct world *w)
{
	servers("begin", "postgres", NULL);
	postgres_reconnect(w);
}

void postgres_reconnect(struct world *w)
{
	use_database(w, environment("INBOXD_TEST_ADMIN_CONNINFO"));
}

int postgres_log_lines(const char *text)
{
	struct daemon d;
	(void)snprintf(d.log, sizeof d.log, "%s/postgres.log", environment("INBOXD_TEST_SERVERS"));
	return log_lines(&d, text);
}

static int standby_port(void)
{
	char path[512];
	int port = 0;
	(void)snprintf(path, sizeof path, "%s/standby.port", environment("INBOXD_TEST_SERVERS"));
	FILE *f = fopen(path, "r");
	ck_assert_msg(f != NULL && fscanf(f, "%d", &port) == 1, "no port in %s", path);
	(void)fclose(f);
	return port;
}

int standby_start(void)
{
	servers("copy", NULL, NULL);
	return standby_port();
}

void standby_promote(struct world *w)
{
	char conninfo[512];
	(void)snprintf(conninfo, sizeof conninfo,
		"host=%s port=%d dbname=inboxd_test user=postgres",
		environment("INBOXD_TEST_PGSOCKETS"), standby_port());
	use_database(w, conninfo);
	ck_assert_str_eq(sql_text(w, "SELECT pg_promote()"), "t");
}

void standby_end(struct world *w)
{
	servers("end", "standby", "KILL");
	postgres_reconnect(w);
}

/* ---- RabbitMQ -------------------------------------------------------------------- */

void broker_stop(struct world *w, bool by_kill)
{
	publish_confirm(w);
	console_close();
	servers("end", "rabbitmq", by_kill ? "KILL" : "TERM");
}

void broker_start(struct world *w)
{
	servers("begin", "rabbitmq", NULL);
	broker_reconnect(w);
}

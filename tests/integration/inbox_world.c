/* SPDX-License-Identifier: MIT */
#include "inbox_world.h"

#include "base/fd.h"
#include "db/migrate.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

enum { FINGERPRINT_SIZE = 1 + FINGERPRINT_HASH_SIZE, MOST_CONFIGS = 8 };

struct inbox_world world;

static struct config *more_configs[MOST_CONFIGS];
static size_t n_more_configs;

/* ---- servers --------------------------------------------------------------------------------- */

static const char *variable(const char *name)
{
	const char *v = getenv(name);
	ck_assert_msg(v != NULL, "%s is not set", name);
	return v;
}

const char *admin(const char *fmt, ...)
{
	static char values[4][8192];
	static unsigned next;
	char *value = values[next++ % 4];
	char *sql = NULL;
	va_list ap;
	va_start(ap, fmt);
	int size = vasprintf(&sql, fmt, ap);
	va_end(ap);
	ck_assert_int_ge(size, 0);
	PGresult *res = PQexec(world.admin, sql);
	ExecStatusType status = PQresultStatus(res);
	ck_assert_msg(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK, "%s: %s", sql,
		PQerrorMessage(world.admin));
	(void)snprintf(
		value, sizeof values[0], "%s", PQntuples(res) > 0 ? PQgetvalue(res, 0, 0) : "");
	PQclear(res);
	free(sql);
	return value;
}

int admin_int(const char *fmt, ...)
{
	char sql[1024];
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(sql, sizeof sql, fmt, ap);
	va_end(ap);
	return (int)strtol(admin("%s", sql), NULL, 10);
}

int world_markers(void)
{
	return admin_int("SELECT count(*) FROM inbox");
}

int world_effects(void)
{
	return admin_int("SELECT count(*) FROM effect");
}

/* ---- world ----------------------------------------------------------------------------------- */

static struct config *parse(const char *consumers)
{
	AUTO(buf) struct buf text = {0};
	AUTO(buf) struct buf errors = {0};
	const char *build = getenv("INBOXD_TEST_BUILD");
	if (build != NULL)
		buf_addf(&text, "handlers: {directory: [\"%s/handlers\", \"%s/tests/handlers\"]}\n",
			build, build);
	buf_addf(&text,
		"database: {conninfo: \"%s options=-csearch_path=%s\", schema: %s}\n"
		"broker: {uri: amqp://localhost}\n"
		"consumers:\n%s",
		variable("INBOXD_TEST_CONNINFO"), world.schema, world.schema, consumers);
	struct config *config = config_parse("test.yaml", buf_bytes(&text), &errors);
	ck_assert_msg(config != NULL, "%s", buf_str(&errors));
	return config;
}

const struct config_consumer *other_config(const char *consumers)
{
	ck_assert_uint_lt(n_more_configs, MOST_CONFIGS);
	struct config *config = parse(consumers);
	more_configs[n_more_configs++] = config;
	return config->consumers[0];
}

static void write_main(struct buf *out, const char *more)
{
	buf_add_str(out, "  main:\n    queue: q\n");
	if (strstr(more, "handler:") == NULL)
		buf_add_str(out, "    handler: sql\n");
	for (const char *p = more; *p != '\0';) {
		size_t n = strcspn(p, "\n");
		buf_addf(out, "    %.*s\n", (int)n, p);
		p += n + (p[n] == '\n');
	}
}

static void migrate(void)
{
	struct db_conn *db = NULL;
	size_t applied;
	const struct migrate_order order = {.schema = world.schema};
	MUST_OK(db_conn_open(world.config->consumers[0]->database, "migrate", &db, &world.err));
	MUST_OK(migrate_run(db, &order, &applied, &world.err));
	db_conn_close(db);
}

void inbox_world_begin(const char *more)
{
	AUTO(buf) struct buf consumers = {0};
	memset(&world, 0, sizeof world);
	n_more_configs = 0;
	(void)snprintf(world.schema, sizeof world.schema, "inbox_%d", (int)getpid());
	world.admin = PQconnectdb(variable("INBOXD_TEST_ADMIN_CONNINFO"));
	ck_assert_msg(PQstatus(world.admin) == CONNECTION_OK, "%s", PQerrorMessage(world.admin));
	(void)admin("SET client_min_messages = error");
	(void)admin("SET search_path = %s", world.schema);
	write_main(&consumers, more);
	world.config = parse(buf_str(&consumers));
	migrate();
	(void)admin("SET ROLE inboxd");
	(void)admin("CREATE TABLE effect (key bytea)");
	(void)admin("RESET ROLE");
	session_open(&world.a, NULL);
}

void inbox_world_end(void)
{
	session_close(&world.a);
	session_close(&world.b);
	config_free(world.config);
	while (n_more_configs > 0)
		config_free(more_configs[--n_more_configs]);
	(void)admin("DROP SCHEMA %s CASCADE", world.schema);
	PQfinish(world.admin);
}

/* ---- sessions -------------------------------------------------------------------------------- */

void session_open(struct session *s, const char *consumer)
{
	if (s->consumer == NULL)
		s->consumer =
			config_find_consumer(world.config, consumer != NULL ? consumer : "main");
	MUST_OK(db_conn_open(s->consumer->database, world.schema, &s->db, &world.err));
	inbox_init(&s->x, s->db, s->consumer);
	MUST_OK(inbox_check_schema(&s->x, &world.err));
	MUST_OK(inbox_register(&s->x, "/", &world.err));
}

void session_close(struct session *s)
{
	if (s->db == NULL)
		return;
	inbox_done(&s->x);
	db_conn_close(s->db);
	s->db = NULL;
}

int session_pid(struct session *s)
{
	struct db_result *res = NULL;
	MUST_OK(db_exec(s->db, "SELECT pg_backend_pid()", 0, NULL, true, &res, &world.err));
	int pid = (int)db_result_int(res, 0, 0);
	db_result_free(res);
	return pid;
}

void session_terminate(struct session *s)
{
	int pid = session_pid(s);
	(void)admin("SELECT pg_terminate_backend(%d, 10000)", pid);
	ck_assert_int_eq(admin_int("SELECT count(*) FROM pg_stat_activity WHERE pid = %d", pid), 0);
}

/* ---- claims ---------------------------------------------------------------------------------- */

struct bytes fingerprint_of(char content)
{
	static uint8_t all[256][FINGERPRINT_SIZE];
	uint8_t *f = all[(uint8_t)content];
	f[0] = FINGERPRINT_BODY;
	memset(f + 1, content, FINGERPRINT_SIZE - 1);
	return content != '\0' ? bytes_of(f, FINGERPRINT_SIZE) : bytes_str("");
}

struct claim claim_of(const char *key, char content)
{
	return (struct claim){.key = bytes_str(key), .fingerprint = fingerprint_of(content)};
}

enum rc begin(struct session *s, struct claim *claims, size_t n)
{
	return inbox_begin(&s->x, claims, n, &world.err);
}

void work(struct session *s, struct claim *claim)
{
	const struct db_value key = {
		.data = claim->key.data, .size = claim->key.size, .binary = true};
	MUST_OK(db_queue(s->db, "INSERT INTO effect VALUES ($1)", 1, &key, false, &world.err));
	claim->is_handled = true;
}

struct before {
	struct session *s;
	size_t statements;
};

static enum rc take_statements(void *arg, struct err *err)
{
	const struct before *b = arg;
	enum rc rc = RC_OK;
	for (size_t i = 0; i < b->statements && rc == RC_OK; i++)
		rc = db_next(b->s->db, NULL, err);
	return rc;
}

enum rc commit(
	struct session *s, struct claim *claims, size_t n, size_t statements, bool *ret_gate_failed)
{
	struct before before = {s, statements};
	bool gate_failed;
	enum rc rc =
		inbox_commit(&s->x, claims, n, take_statements, &before, &gate_failed, &world.err);
	if (ret_gate_failed != NULL)
		*ret_gate_failed = gate_failed;
	else
		ck_assert(!gate_failed);
	return rc;
}

void roll_back(struct session *s)
{
	MUST_OK(inbox_rollback(&s->x, &world.err));
}

enum claim_state run_one(struct session *s, const char *key, char content)
{
	struct claim c = claim_of(key, content);
	MUST_OK(begin(s, &c, 1));
	bool is_new = c.state == CLAIM_NEW;
	if (is_new)
		work(s, &c);
	MUST_OK(commit(s, &c, 1, is_new, NULL));
	return c.state;
}

/* ---- parking --------------------------------------------------------------------------------- */

struct message message_of(const char *body)
{
	return (struct message){.exchange = bytes_str("ex"),
		.routing_key = bytes_of("r\0k", 3),
		.properties = bytes_of("\x80\0\4text", 7),
		.body = bytes_str(body),
		.body_size = strlen(body)};
}

struct park park_of(const struct message *m, const char *key, char content, const char *state)
{
	return (struct park){.message = m,
		.key = bytes_str(key),
		.fingerprint = key != NULL ? fingerprint_of(content) : bytes_of(NULL, 0),
		.state = state,
		.reason = state != NULL ? "retry" : "",
		.detail = "why",
		.attempts = state != NULL ? 1 : 0};
}

enum park_outcome park(struct session *s, const struct park *p)
{
	enum park_outcome outcome;
	MUST_OK(inbox_park(&s->x, p, &outcome, &world.parked, &world.err));
	ck_assert_int_eq(db_tx_state(s->db), DB_TX_NONE);
	return outcome;
}

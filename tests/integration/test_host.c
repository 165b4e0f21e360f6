/* SPDX-License-Identifier: MIT */
/* Handlers in a real transaction: what is lent, whose failure it is, what is left behind.  Needs
 * PostgreSQL (INBOXD_TEST_CONNINFO, INBOXD_TEST_ADMIN_CONNINFO) and built handlers
 * (INBOXD_TEST_BUILD). */
#include "handler/host.h"

#include "base/fd.h"
#include "unit.h"

#include <libpq-fe.h>
#include <stdarg.h>
#include <stdio.h>

/* ---- a host, its session, its messages ----------------------------------------------- */

enum { MOST_ITEMS = 8 };

static struct {
	char schema[64];
	PGconn *admin;
	struct config *config;
	const struct config_consumer *consumer;
	struct handler handler;
	struct host *host;
	struct db_conn *db;
	struct err err;
	struct buf errors;
	struct buf properties[MOST_ITEMS];
	struct message messages[MOST_ITEMS];
	struct source_message sources[MOST_ITEMS];
	struct host_item items[MOST_ITEMS];
	size_t n;
	size_t failed; /* as host_handle told */
} t;

static const char *environment(const char *name)
{
	const char *v = getenv(name);
	ck_assert_msg(v != NULL, "%s is not set", name);
	return v;
}

__attribute__((format(printf, 1, 2))) static const char *admin(const char *fmt, ...)
{
	static char value[4096];
	va_list ap;
	char sql[2048];
	va_start(ap, fmt);
	(void)vsnprintf(sql, sizeof sql, fmt, ap);
	va_end(ap);
	PGresult *res = PQexec(t.admin, sql);
	ExecStatusType status = PQresultStatus(res);
	ck_assert_msg(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK, "%s: %s", sql,
		PQerrorMessage(t.admin));
	(void)snprintf(value, sizeof value, "%s", PQntuples(res) > 0 ? PQgetvalue(res, 0, 0) : "");
	PQclear(res);
	return value;
}

static void begin_world(void)
{
	memset(&t, 0, sizeof t);
	(void)snprintf(t.schema, sizeof t.schema, "host_%d", (int)getpid());
	t.admin = PQconnectdb(environment("INBOXD_TEST_ADMIN_CONNINFO"));
	ck_assert_msg(PQstatus(t.admin) == CONNECTION_OK, "%s", PQerrorMessage(t.admin));
	(void)admin("SET client_min_messages = warning");
	(void)admin("CREATE SCHEMA %s AUTHORIZATION inboxd", t.schema);
	(void)admin("SET search_path = %s; SET ROLE inboxd;"
		    "CREATE TABLE effect (key bytea, body bytea, seq bigserial, "
		    "  at timestamptz DEFAULT clock_timestamp());"
		    "CREATE TABLE plain (id text, word text);"
		    "CREATE TABLE numbers (n int UNIQUE);"
		    "RESET ROLE",
		t.schema);
}

/* Lines of options, at the margin. */
static void write_config(const char *handler, const char *options)
{
	AUTO(buf) struct buf text = {0};
	buf_addf(&text,
		"database: {conninfo: \"%s options=-csearch_path=%s\"}\n"
		"broker: {uri: amqp://localhost}\n"
		"consumers:\n  main:\n    queue: q\n    handler: %s\n    options:\n",
		environment("INBOXD_TEST_CONNINFO"), t.schema, handler);
	for (const char *p = options; *p != '\0';) {
		size_t n = strcspn(p, "\n");
		buf_addf(&text, "      %.*s\n", (int)n, p);
		p += n + (p[n] == '\n');
	}
	t.config = config_parse("test.yaml", buf_bytes(&text), &t.errors);
	ck_assert_msg(t.config != NULL, "%s", buf_str(&t.errors));
	t.consumer = t.config->consumers[0];
}

static void load(const char *directory, const char *name)
{
	char path[4096];
	(void)snprintf(path, sizeof path, "%s/%s", environment("INBOXD_TEST_BUILD"), directory);
	char *items[] = {path};
	struct string_list directories = {items, 1};
	ck_assert_msg(handler_load(&directories, name, "/tmp", &t.handler, &t.err) == RC_OK, "%s",
		t.err.text);
	t.host = host_new(&t.handler, t.consumer);
}

static void begin(const char *directory, const char *name, const char *options)
{
	begin_world();
	write_config(name, options);
	load(directory, name);
	ck_assert_msg(db_conn_open(t.consumer->database, "test", &t.db, &t.err) == RC_OK, "%s",
		t.err.text);
}

static void open_host(void)
{
	ck_assert_msg(host_open(t.host, t.db, &t.errors, &t.err) == RC_OK, "%s: %s", t.err.text,
		buf_str(&t.errors));
}

static void begin_open(const char *directory, const char *name, const char *options)
{
	begin(directory, name, options);
	open_host();
}

static void end(void)
{
	host_free(t.host);
	handler_unload(&t.handler);
	db_conn_close(t.db);
	for (size_t i = 0; i < MOST_ITEMS; i++) {
		host_item_done(&t.items[i]);
		buf_done(&t.properties[i]);
	}
	config_free(t.config);
	buf_done(&t.errors);
	(void)admin("DROP SCHEMA %s CASCADE", t.schema);
	PQfinish(t.admin);
}

static void clear_messages(void)
{
	t.n = 0;
}

static size_t message(const char *id, const char *act, struct bytes body)
{
	size_t i = t.n++;
	AUTO(buf) struct buf headers = {0};
	struct props p = {.present = (1u << PROP_MESSAGE_ID) | (1u << PROP_HEADERS)};
	if (act != NULL)
		field_add_string(&headers, "do", bytes_str(act));
	p.text[PROP_MESSAGE_ID] = bytes_str(id);
	p.text[PROP_HEADERS] = buf_bytes(&headers);
	buf_clear(&t.properties[i]);
	props_encode(&t.properties[i], &p);
	t.messages[i] = (struct message){.exchange = bytes_str(""),
		.routing_key = bytes_str("rk"),
		.properties = buf_bytes(&t.properties[i]),
		.body = body,
		.body_size = body.size};
	source_message_init(&t.sources[i], &t.messages[i]);
	t.items[i].message = &t.sources[i];
	t.items[i].key = bytes_str("\001k");
	return i;
}

static size_t do_message(const char *id, const char *act)
{
	return message(id, act, bytes_str("body"));
}

static void exec(const char *sql)
{
	ck_assert_msg(db_exec(t.db, sql, 0, NULL, false, NULL, &t.err) == RC_OK, "%s", t.err.text);
}

/* BEGIN, handle; the transaction stays open. */
static enum rc handle(void)
{
	t.failed = 99;
	exec("BEGIN READ WRITE");
	return host_handle(t.host, t.items, t.n, &t.failed, &t.err);
}

/* As the worker does it: COMMIT travels behind what the handler queued. */
static enum rc settle_and_commit(void)
{
	struct err err;
	ck_assert_int_eq(db_queue(t.db, "COMMIT", 0, NULL, false, &t.err), RC_OK);
	ck_assert_int_eq(db_sync(t.db, &t.err), RC_OK);
	enum rc rc = host_settle(t.host, t.items, t.n, &t.failed, &t.err);
	if (rc == RC_OK)
		ck_assert_msg(db_next(t.db, NULL, &t.err) == RC_OK, "%s", t.err.text);
	(void)!db_sync_end(t.db, &err);
	return rc;
}

static void rollback(void)
{
	struct err err;
	if (db_queued(t.db) != 0) {
		ck_assert_int_eq(db_sync(t.db, &t.err), RC_OK);
		(void)!db_sync_end(t.db, &err);
	}
	exec("ROLLBACK");
}

static const char *count(const char *table)
{
	return admin("SELECT count(*) FROM %s", table);
}

#define says(text_, part_) ck_assert_msg(strstr((text_), (part_)) != NULL, "%s", (text_))

/* One message that fails: its verdict and reason; rolled back. */
#define fails(act_, verdict_, part_)                              \
	do {                                                      \
		clear_messages();                                 \
		(void)do_message("m", (act_));                    \
		ck_assert_int_eq(handle(), RC_RETRY);             \
		ck_assert_uint_eq(t.failed, 0);                   \
		ck_assert_int_eq(t.items[0].verdict, (verdict_)); \
		says(t.items[0].reason, (part_));                 \
		rollback();                                       \
		ck_assert_str_eq(count("effect"), "0");           \
	} while (0)

/* ---- verdicts ------------------------------------------------------------------------ */

START_TEST(work_commits_with_the_transaction)
{
	begin_open("tests/handlers", "misbehave", "{}");
	(void)message("m-1", NULL, bytes_of("a\\b\0\xff", 5));
	ck_assert_msg(handle() == RC_OK, "%s", t.err.text);
	ck_assert_int_eq(t.items[0].verdict, HOST_DONE);
	ck_assert_str_eq(t.items[0].reason, "");
	ck_assert_uint_eq(host_queued(t.host), 0);
	ck_assert_str_eq(count("effect"), "0");
	ck_assert_int_eq(settle_and_commit(), RC_OK);
	ck_assert_str_eq(
		admin("SELECT encode(body, 'hex') FROM effect WHERE key = 'm-1'"), "615c6200ff");
	ck_assert(!host_take_dirty(t.host));
	end();
}
END_TEST

START_TEST(a_verdict_of_the_handler_is_kept_with_reason_and_delay)
{
	begin_open("tests/handlers", "misbehave", "{}");
	fails("ok,fail-temp", HOST_RETRY, "temporary, as asked");
	ck_assert_uint_eq(t.items[0].delay_ms, 0);
	fails("ok,retry-in:2500", HOST_RETRY, "later, as asked");
	ck_assert_uint_eq(t.items[0].delay_ms, 2500);
	fails("ok,fail-perm", HOST_REJECT, "permanent, as asked");
	fails("ok,nonsense", HOST_BROKEN, "returned 42");
	fails("result,fail-perm", HOST_REJECT, "permanent");
	ck_assert(!t.items[0].has_result);
	/* The attempt decides what the message does. */
	clear_messages();
	t.items[do_message("m", "fail-temp:2,ok")].attempt = 2;
	ck_assert_int_eq(handle(), RC_OK);
	rollback();
	end();
}
END_TEST

START_TEST(a_long_and_dirty_reason_becomes_a_short_clean_one)
{
	begin_open("tests/handlers", "misbehave", "{}");
	fails("long-reason", HOST_REJECT,
		"bad bytes \xef\xbf\xbd\xef\xbf\xbd and \xef\xbf\xbd xxx");
	ck_assert_uint_lt(strlen(t.items[0].reason), HOST_REASON_MAX);
	ck_assert_uint_gt(strlen(t.items[0].reason), HOST_REASON_MAX - 10);
	end();
}
END_TEST

START_TEST(errors_of_statements_are_told_apart)
{
	begin_open("tests/handlers", "misbehave", "{}");
	fails("ok,data-error", HOST_REJECT, "SQLSTATE 22P02");
	ck_assert_str_eq(t.items[0].sqlstate, "22P02");
	fails("ok,sql-error", HOST_RETRY, "SQLSTATE 42601");
	fails("raise:40001", HOST_RETRY, "as asked");
	ck_assert_str_eq(t.items[0].sqlstate, "40001");
	fails("raise:23503", HOST_RETRY, "23503");
	fails("raise:23505", HOST_REJECT, "23505");

	/* Of itself the server would say it without RAISE. */
	fails("raise:53100", HOST_RETRY, "53100");
	ck_assert_str_eq(t.items[0].sqlstate, "53100");
	end();
}
END_TEST

START_TEST(a_swallowed_error_is_no_success)
{
	begin_open("tests/handlers", "misbehave", "{}");
	fails("ok,swallow", HOST_REJECT, "returned done although a statement had failed");
	says(t.items[0].reason, "22P02");
	ck_assert_str_eq(t.items[0].sqlstate, "22P02");
	/* Refused before it was sent: the transaction is sound, but the work is not in it. */
	fails("ok,commit", HOST_REJECT, "the transaction belongs to inboxd");
	end();
}
END_TEST

START_TEST(an_error_undone_by_a_savepoint_is_forgiven)
{
	begin_open("tests/handlers", "misbehave", "{}");
	(void)do_message("m", "ok,savepoint,ok");
	ck_assert_msg(handle() == RC_OK, "%s", t.err.text);
	ck_assert_int_eq(settle_and_commit(), RC_OK);
	ck_assert_str_eq(count("effect"), "2");
	end();
}
END_TEST

START_TEST(a_session_lost_is_no_messages_fault)
{
	begin_open("tests/handlers", "misbehave", "{}");
	(void)do_message("m", "ok,lose-session");
	ck_assert_int_eq(handle(), RC_UNAVAILABLE);
	ck_assert_str_eq(count("effect"), "0");
	end();
}
END_TEST

START_TEST(a_commit_on_the_raw_connection_is_broken_for_good)
{
	begin_open("tests/handlers", "misbehave_conn", "{}");
	ck_assert(host_uses_conn(t.host));
	(void)do_message("m", "ok,commit");
	ck_assert_int_eq(handle(), RC_RETRY);
	ck_assert_int_eq(t.items[0].verdict, HOST_BROKEN);
	says(t.items[0].reason, "ended the transaction");
	ck_assert(host_take_dirty(t.host));
	/* The next one finds the session in order. */
	clear_messages();
	(void)do_message("m", "ok");
	ck_assert_msg(handle() == RC_OK, "%s", t.err.text);
	ck_assert_int_eq(settle_and_commit(), RC_OK);
	end();
}
END_TEST

START_TEST(what_may_stay_in_the_session_is_told)
{
	begin_open("tests/handlers", "misbehave", "{}");
	(void)do_message("m", "set");
	ck_assert_msg(handle() == RC_OK, "%s", t.err.text);
	ck_assert(host_take_dirty(t.host));
	ck_assert(!host_take_dirty(t.host));
	rollback();
	end();
}
END_TEST

START_TEST(a_result_is_handed_over)
{
	begin_open("tests/handlers", "misbehave", "{}");
	(void)do_message("m", "result");
	ck_assert_int_eq(handle(), RC_OK);
	ck_assert(t.items[0].has_result);
	ck_assert_mem_eq(t.items[0].result.data, "the result", 10);
	ck_assert_str_eq(t.items[0].content_type, "text/plain");
	rollback();
	end();
}
END_TEST

/* ---- several messages ---------------------------------------------------------------- */

START_TEST(the_message_that_fails_is_named_among_its_neighbours)
{
	begin_open("tests/handlers", "misbehave", "{}");
	(void)do_message("a", "queue");
	(void)do_message("b", "ok,data-error");
	(void)do_message("c", "ok");
	ck_assert_int_eq(handle(), RC_RETRY);
	ck_assert_uint_eq(t.failed, 1);
	ck_assert_int_eq(t.items[1].verdict, HOST_REJECT);
	rollback();
	end();
}
END_TEST

START_TEST(an_error_of_a_queued_statement_is_laid_at_its_own_messages_door)
{
	begin_open("handlers", "sql",
		"statement: INSERT INTO numbers VALUES ($1)\nparameters: ['json:/n']");
	(void)message("a", NULL, bytes_str("{\"n\": 1}"));
	(void)message("b", NULL, bytes_str("{\"n\": 1}"));
	(void)message("c", NULL, bytes_str("{\"n\": 2}"));
	/* One statement for all of them knows only that it failed. */
	ck_assert_msg(handle() == RC_OK, "%s", t.err.text);
	ck_assert_uint_eq(host_queued(t.host), 1);
	ck_assert_int_eq(settle_and_commit(), RC_RETRY);
	ck_assert_uint_eq(t.failed, 3);
	rollback();
	host_set_one_by_one(t.host, true);
	ck_assert_msg(handle() == RC_OK, "%s", t.err.text);
	ck_assert_uint_eq(host_queued(t.host), 3);
	ck_assert_int_eq(settle_and_commit(), RC_RETRY);
	ck_assert_uint_eq(t.failed, 1);
	ck_assert_int_eq(t.items[1].verdict, HOST_REJECT);
	ck_assert_str_eq(t.items[1].sqlstate, "23505");
	rollback();
	/* COMMIT stood behind it and was skipped. */
	ck_assert_str_eq(count("numbers"), "0");
	end();
}
END_TEST

START_TEST(a_later_exec_finds_the_queued_error_and_blames_the_right_one)
{
	begin_open("handlers", "sql",
		"statements:\n"
		"  - statement: INSERT INTO numbers VALUES ($1)\n"
		"    parameters: ['json:/n']\n"
		"  - statement: SELECT 1\n"
		"    parameters: []\n"
		"    on_no_rows: reject");
	/* a queues and then asks; b would only ask. */
	exec("BEGIN READ WRITE");
	exec("INSERT INTO numbers VALUES (1)");
	(void)message("a", NULL, bytes_str("{\"n\": 1}"));
	(void)message("b", NULL, bytes_str("{\"n\": 2}"));
	ck_assert_int_eq(host_handle(t.host, t.items, t.n, &t.failed, &t.err), RC_RETRY);
	ck_assert_uint_eq(t.failed, 0);
	ck_assert_str_eq(t.items[0].sqlstate, "23505");
	rollback();
	end();
}
END_TEST

START_TEST(statements_of_the_caller_stand_in_front)
{
	begin_open("tests/handlers", "misbehave", "{}");
	exec("BEGIN READ WRITE");
	ck_assert_int_eq(db_queue(t.db, "SELECT 1/0", 0, NULL, false, &t.err), RC_OK);
	(void)do_message("a", "queue");
	ck_assert_int_eq(host_handle(t.host, t.items, t.n, &t.failed, &t.err), RC_OK);
	ck_assert_uint_eq(host_queued(t.host), 2);
	ck_assert_int_eq(settle_and_commit(), RC_RETRY);
	/* No message is to blame. */
	ck_assert_uint_eq(t.failed, 1);
	says(t.err.text, "division by zero");
	rollback();
	end();
}
END_TEST

START_TEST(a_message_cannot_undo_its_neighbours_work)
{
	begin_open("tests/handlers", "misbehave", "{}");
	(void)do_message("a", "savepoint,ok");
	(void)do_message("b", "ok,rollback-to-here");
	ck_assert_int_eq(handle(), RC_RETRY);
	ck_assert_uint_eq(t.failed, 1);
	says(t.items[1].reason, "no savepoint \"here\" of this message");
	rollback();
	end();
}
END_TEST

/* ---- COPY, in a batch ---------------------------------------------------------------- */

static void make_measurements(void)
{
	(void)admin("SET ROLE inboxd; CREATE TABLE measurement (sensor text NOT NULL, at "
		    "timestamptz NOT "
		    "NULL, value double precision); RESET ROLE");
}

START_TEST(a_batch_goes_in_by_copy)
{
	begin_open("handlers", "bulk", "{}");
	make_measurements();
	ck_assert(host_has_batch(t.host));
	(void)message("a", NULL,
		bytes_str("{\"sensor\": \"a \\\"quoted\\\", name\", \"at\": "
			  "\"2024-05-01T12:00:00Z\", \"value\": 1.5}"));
	(void)message(
		"b", NULL, bytes_str("{\"sensor\": \"s\\n2\", \"at\": \"2024-05-01T12:00:00Z\"}"));
	ck_assert_msg(handle() == RC_OK, "%s", t.err.text);
	ck_assert_int_eq(settle_and_commit(), RC_OK);
	ck_assert_str_eq(admin("SELECT string_agg(sensor || '=' || coalesce(value::text, 'NULL'), "
			       "';' ORDER BY sensor) FROM measurement"),
		"a \"quoted\", name=1.5;s\n2=NULL");
	end();
}
END_TEST

START_TEST(a_batch_commits_without_the_messages_that_its_handler_left_out)
{
	begin_open("handlers", "bulk", "{}");
	make_measurements();
	(void)message(
		"a", NULL, bytes_str("{\"sensor\": \"a\", \"at\": \"2024-05-01T12:00:00Z\"}"));
	(void)message("b", NULL, bytes_str("this is no JSON"));
	(void)message("c", NULL, bytes_str("{\"sensor\": \"c\"}"));
	(void)message(
		"d", NULL, bytes_str("{\"sensor\": \"d\", \"at\": \"2024-05-01T12:00:00Z\"}"));
	ck_assert_msg(handle() == RC_OK, "%s", t.err.text);
	ck_assert_int_eq(t.items[0].verdict, HOST_DONE);
	ck_assert_int_eq(t.items[1].verdict, HOST_REJECT);
	says(t.items[1].reason, "not JSON");
	ck_assert_int_eq(t.items[2].verdict, HOST_REJECT);
	says(t.items[2].reason, "at is missing");
	ck_assert_int_eq(t.items[3].verdict, HOST_DONE);
	ck_assert_int_eq(settle_and_commit(), RC_OK);
	ck_assert_str_eq(count("measurement"), "2");
	end();
}
END_TEST

START_TEST(an_error_in_a_copy_is_nobodys_alone)
{
	begin_open("handlers", "bulk", "{}");
	make_measurements();
	(void)message(
		"a", NULL, bytes_str("{\"sensor\": \"a\", \"at\": \"2024-05-01T12:00:00Z\"}"));
	(void)message("b", NULL, bytes_str("{\"sensor\": \"b\", \"at\": \"yesterday-ish\"}"));
	ck_assert_int_eq(handle(), RC_RETRY);
	ck_assert_uint_eq(t.failed, 2);
	says(t.err.text, "22007");
	rollback();
	/* Alone, each has its own verdict. */
	clear_messages();
	(void)message("b", NULL, bytes_str("{\"sensor\": \"b\", \"at\": \"yesterday-ish\"}"));
	ck_assert_int_eq(handle(), RC_OK);
	ck_assert_int_eq(settle_and_commit(), RC_RETRY);
	ck_assert_uint_eq(t.failed, 0);
	ck_assert_int_eq(t.items[0].verdict, HOST_REJECT);
	rollback();
	end();
}
END_TEST

/* ---- the sql handler ----------------------------------------------------------------- */

START_TEST(sql_takes_types_as_prepare_tells_them)
{
	begin("handlers", "sql",
		"statement: INSERT INTO wide VALUES ($1, $2, $3, $4, $5)\n"
		"parameters: ['json:/n', body, 'json:/missing', 'json:/null', 'json:/object']");
	(void)admin("SET ROLE inboxd; CREATE TABLE wide (n numeric, body bytea, a text, b int, o "
		    "jsonb); RESET ROLE");
	open_host();
	(void)message("m", NULL,
		bytes_str("{\"n\": 9007199254740993.10, \"null\": null, \"object\": {\"a\": "
			  "\"\\\\x41\"}}"));
	ck_assert_msg(handle() == RC_OK, "%s", t.err.text);
	ck_assert_msg(settle_and_commit() == RC_OK, "%s", t.err.text);
	ck_assert_str_eq(admin("SELECT n || '|' || (a IS NULL) || '|' || (b IS NULL) || '|' || "
			       "(o->>'a') FROM wide"),
		"9007199254740993.10|true|true|\\x41");
	/* Bytes arrive as they are: a text bytea would have eaten the backslashes. */
	ck_assert_str_eq(admin("SELECT convert_from(body, 'UTF8') FROM wide"),
		"{\"n\": 9007199254740993.10, \"null\": null, \"object\": {\"a\": \"\\\\x41\"}}");
	end();
}
END_TEST

START_TEST(sql_reports_every_wrong_option_with_its_place)
{
	begin_world();
	write_config("sql",
		"statment: SELECT 1\n"
		"statements:\n"
		"  - COMMIT\n"
		"  - {statement: SELECT 1, parametres: [body]}\n"
		"  - {statement: SELECT $1, parameters: ['jsn:/x'], on_no_rows: maybe}\n"
		"on_no_rows: retri");
	load("handlers", "sql");
	ck_assert_int_eq(host_check(t.host, &t.errors), RC_FATAL);
	const char *text = buf_str(&t.errors);
	says(text, "did you mean statement");
	says(text, "the transaction belongs to inboxd");
	says(text, "did you mean parameters?");
	says(text, "did you mean json:");
	says(text, "on_no_rows is done, retry or reject");
	says(text, "test.yaml:");
	end();
}
END_TEST

START_TEST(sql_needs_a_statement)
{
	begin_world();
	write_config("sql", "parameters: [body]");
	load("handlers", "sql");
	ck_assert_int_eq(host_check(t.host, &t.errors), RC_FATAL);
	says(buf_str(&t.errors), "needs a statement");
	end();
}
END_TEST

static void open_fails(const char *options, const char *part)
{
	begin("handlers", "sql", options);
	ck_assert_int_eq(host_check(t.host, &t.errors), RC_OK);
	ck_assert_int_eq(host_open(t.host, t.db, &t.errors, &t.err), RC_FATAL);
	says(buf_str(&t.errors), part);
	says(t.err.text, part);
	/* The session is as good as before. */
	exec("SELECT 1");
	end();
}

START_TEST(sql_finds_wrong_statements_when_it_connects)
{
	open_fails("statement: INSERT INTO nowhere VALUES ($1)", "nowhere");
	open_fails("statement: INSERT INTO plain VALUES ($1, $2)",
		"takes 2 parameters: name their sources");
	open_fails("statement: INSERT INTO plain VALUES ($1, $2)\nparameters: [body]",
		"takes 2 parameters, 1 sources are given");
	open_fails("statement: INSERT INTO plain VALUES ($1)\nparameters: [body, message_id]",
		"takes 1 parameters, 2 sources are given");
	open_fails("statement: SELEKT 1", "syntax error");
}
END_TEST

START_TEST(sql_statements_can_share_parameters)
{
	begin_open("handlers", "sql",
		"statements:\n"
		"  - INSERT INTO plain VALUES ($1, $2)\n"
		"  - UPDATE plain SET word = word || '!' WHERE id = $1\n"
		"parameters: [message_id, body]");
	(void)message("m-1", NULL, bytes_str("word"));
	ck_assert_msg(handle() == RC_OK, "%s", t.err.text);
	ck_assert_int_eq(settle_and_commit(), RC_OK);
	ck_assert_str_eq(admin("SELECT id || word FROM plain"), "m-1word!");
	end();
}
END_TEST

START_TEST(sql_decides_by_the_rows_that_a_statement_touched)
{
	begin_open("handlers", "sql",
		"statement: UPDATE plain SET word = 'seen' WHERE id = $1\n"
		"parameters: [message_id]\non_no_rows: retry");
	(void)admin("INSERT INTO plain VALUES ('there', '')");
	(void)do_message("there", NULL);
	ck_assert_int_eq(handle(), RC_OK);
	rollback();
	clear_messages();
	(void)do_message("there", NULL);
	(void)do_message("not there", NULL);
	ck_assert_int_eq(handle(), RC_RETRY);
	ck_assert_uint_eq(t.failed, 1);
	ck_assert_int_eq(t.items[1].verdict, HOST_RETRY);
	says(t.items[1].reason, "touched no row");
	rollback();
	end();
}
END_TEST

START_TEST(a_nul_in_a_text_parameter_is_a_fault_of_the_data)
{
	begin_open("handlers", "sql", "statement: INSERT INTO plain VALUES ('x', $1)");
	(void)message("m", NULL, bytes_of("a\0b", 3));
	ck_assert_int_eq(handle(), RC_RETRY);
	ck_assert_int_eq(t.items[0].verdict, HOST_REJECT);
	says(t.items[0].reason, "parameter $1 has a NUL inside");
	rollback();
	clear_messages();
	(void)message("m", NULL, bytes_of("\xff\xfe", 2));
	ck_assert_int_eq(handle(), RC_OK);
	ck_assert_int_eq(settle_and_commit(), RC_RETRY);
	ck_assert_int_eq(t.items[0].verdict, HOST_REJECT);
	ck_assert_str_eq(t.items[0].sqlstate, "22021");
	rollback();
	end();
}
END_TEST

/* ---- other languages, examples, trace ------------------------------------------------ */

START_TEST(handlers_of_other_languages_work)
{
	begin_open("tests/handlers", "plain_abi", "{}");
	(void)do_message("m-1", NULL);
	ck_assert_msg(handle() == RC_OK, "%s", t.err.text);
	ck_assert_int_eq(settle_and_commit(), RC_OK);
	ck_assert_str_eq(admin("SELECT id || '=' || word FROM plain"), "m-1=pla");
	end();

	begin_open("tests/handlers", "cxx", "{}");
	(void)do_message("m-2", NULL);
	ck_assert_msg(handle() == RC_OK, "%s", t.err.text);
	ck_assert_int_eq(settle_and_commit(), RC_OK);
	ck_assert_str_eq(admin("SELECT id || '=' || word FROM plain"), "m-2=body");
	/* An exception becomes a verdict. */
	clear_messages();
	(void)do_message("m-3", NULL);
	t.sources[0].props.present &= (uint16_t) ~(1u << PROP_MESSAGE_ID);
	ck_assert_int_eq(handle(), RC_RETRY);
	ck_assert_int_eq(t.items[0].verdict, HOST_REJECT);
	says(t.items[0].reason, "message_id is missing");
	rollback();
	end();
}
END_TEST

static const char order[] = "{\"order\": \"A-17\", \"customer\": \"alice\", \"lines\": ["
			    "{\"article\": \"pen\", \"quantity\": 3, \"price\": \"1.20\"},"
			    "{\"article\": \"ink\", \"quantity\": 1, \"price\": 4}]}";

static void make_ledger(void)
{
	AUTO(buf) struct buf sql = {0};
	char path[4096];
	(void)snprintf(path, sizeof path, "%s/../src/handlers/ledger.sql",
		environment("INBOXD_TEST_SOURCES"));
	ck_assert_msg(fd_read_file(path, 1 << 16, &sql, &t.err) == RC_OK, "%s", t.err.text);
	(void)admin("SET ROLE inboxd");
	(void)admin("%s", buf_str(&sql));
	(void)admin("RESET ROLE");
}

START_TEST(the_ledger_writes_an_order_and_its_lines)
{
	begin_open("handlers", "ledger", "{limit: 100}");
	make_ledger();
	(void)message("m", NULL, bytes_str(order));
	ck_assert_msg(handle() == RC_OK, "%s", t.err.text);
	ck_assert(t.items[0].has_result);
	ck_assert_mem_eq(t.items[0].result.data, "7.60", 4);
	ck_assert_int_eq(settle_and_commit(), RC_OK);
	ck_assert_str_eq(count("ledger_order"), "1");
	ck_assert_str_eq(admin("SELECT sum(quantity * price) FROM ledger_line"), "7.60");
	end();
}
END_TEST

START_TEST(the_ledger_takes_back_what_is_beyond_the_limit)
{
	begin_open("handlers", "ledger", "{limit: 5}");
	make_ledger();
	(void)message("m", NULL, bytes_str(order));
	ck_assert_int_eq(handle(), RC_RETRY);
	says(t.items[0].reason, "beyond the limit");
	rollback();
	ck_assert_str_eq(count("ledger_order"), "0");
	end();
}
END_TEST

static void note_statement(void *arg, const char *sql, size_t n, const struct db_value *args)
{
	buf_addf(arg, "%s /%zu/%s;", sql, n, n > 0 ? (const char *)args[0].data : "");
}

START_TEST(statements_can_be_watched)
{
	AUTO(buf) struct buf seen = {0};
	begin_open("handlers", "sql", "statement: INSERT INTO plain VALUES ('x', $1)");
	host_set_trace(t.host, note_statement, &seen);
	(void)do_message("m", NULL);
	ck_assert_int_eq(handle(), RC_OK);
	ck_assert_str_eq(buf_str(&seen), "INSERT INTO plain VALUES ('x', $1) /1/body;");
	rollback();
	end();
}
END_TEST

START_TEST(a_session_is_given_up_and_opened_again)
{
	begin_open("handlers", "sql", "statement: INSERT INTO plain VALUES ('x', $1)");
	host_close(t.host);
	open_host();
	(void)do_message("m", NULL);
	ck_assert_int_eq(handle(), RC_OK);
	ck_assert_int_eq(settle_and_commit(), RC_OK);
	ck_assert_str_eq(count("plain"), "1");
	end();
}
END_TEST

UNIT_SUITE_TIMEOUT(60, "handler/host", work_commits_with_the_transaction,
	a_verdict_of_the_handler_is_kept_with_reason_and_delay,
	a_long_and_dirty_reason_becomes_a_short_clean_one, errors_of_statements_are_told_apart,
	a_swallowed_error_is_no_success, an_error_undone_by_a_savepoint_is_forgiven,
	a_session_lost_is_no_messages_fault, a_commit_on_the_raw_connection_is_broken_for_good,
	what_may_stay_in_the_session_is_told, a_result_is_handed_over,
	the_message_that_fails_is_named_among_its_neighbours,
	an_error_of_a_queued_statement_is_laid_at_its_own_messages_door,
	a_later_exec_finds_the_queued_error_and_blames_the_right_one,
	statements_of_the_caller_stand_in_front, a_message_cannot_undo_its_neighbours_work,
	a_batch_goes_in_by_copy, a_batch_commits_without_the_messages_that_its_handler_left_out,
	an_error_in_a_copy_is_nobodys_alone, sql_takes_types_as_prepare_tells_them,
	sql_reports_every_wrong_option_with_its_place, sql_needs_a_statement,
	sql_finds_wrong_statements_when_it_connects, sql_statements_can_share_parameters,
	sql_decides_by_the_rows_that_a_statement_touched,
	a_nul_in_a_text_parameter_is_a_fault_of_the_data, handlers_of_other_languages_work,
	the_ledger_writes_an_order_and_its_lines, the_ledger_takes_back_what_is_beyond_the_limit,
	statements_can_be_watched, a_session_is_given_up_and_opened_again)

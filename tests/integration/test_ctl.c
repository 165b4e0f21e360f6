/* SPDX-License-Identifier: MIT */
/* inboxctl against real servers: migrations, messages sent and read back, and looking without
 * touching. */
#include "harness.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

static void write_all(const char *path, const void *data, size_t size)
{
	FILE *f = fopen(path, "w");
	ck_assert_msg(f != NULL, "%s", path);
	ck_assert_uint_eq(fwrite(data, 1, size, f), size);
	ck_assert_int_eq(fclose(f), 0);
}

static int ctl(struct world *w, const char *const arguments[])
{
	return inboxctl(w, "inboxd", arguments);
}

#define EXPECT(code_, text_, call_)                                                               \
	do {                                                                                      \
		int expect_code_ = (call_);                                                       \
		ck_assert_msg(expect_code_ == (code_), "exit %d instead of %d: %s", expect_code_, \
			(int)(code_), said);                                                      \
		ck_assert_msg(strstr(said, (text_)) != NULL, "no \"%s\" in: %s", (text_), said);  \
	} while (0)

/* ---- migrations ----------------------------------------------------------------------------- */

/* Another schema, beside the one that the world has. */
static const char *other_schema(struct world *w)
{
	static char name[80];
	(void)snprintf(name, sizeof name, "%s_b", w->name);
	return name;
}

static void drop_other(struct world *w)
{
	sql(w, "SET client_min_messages = warning");
	sql(w, "DROP SCHEMA IF EXISTS \"%s\" CASCADE", other_schema(w));
}

START_TEST(migrating_twice_changes_nothing)
{
	struct world w;
	world_begin(&w, "twice");
	const char *schema = other_schema(&w);
	EXPECT(0, "applied 0001_inboxd", ctl(&w, ARGS("migrate", "--schema", schema)));
	char before[64], after[64];
	(void)snprintf(before, sizeof before, "%s",
		sql_text(&w, "SELECT applied_at FROM \"%s\".migration WHERE version = 1", schema));
	EXPECT(0, "\"applied\": 0}", ctl(&w, ARGS("migrate", "--schema", schema, "--json")));
	(void)snprintf(after, sizeof after, "%s",
		sql_text(&w, "SELECT applied_at FROM \"%s\".migration WHERE version = 1", schema));
	ck_assert_str_eq(before, after);
	EXPECT(0, "Nothing to do", ctl(&w, ARGS("migrate", "--schema", schema, "--print")));
	drop_other(&w);
	world_end(&w);
}
END_TEST

static pid_t start_migration(struct world *w, int i)
{
	char out[340], config[340];
	(void)snprintf(out, sizeof out, "%s/migrate-%d.out", w->dir, i);
	(void)snprintf(config, sizeof config, "%s/inboxd.yaml", w->dir);
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid != 0)
		return pid;
	int fd = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	(void)dup2(fd, STDOUT_FILENO);
	(void)dup2(fd, STDERR_FILENO);
	(void)execl(built("inboxctl"), "inboxctl", "-c", config, "migrate", "--schema",
		other_schema(w), (char *)NULL);
	_exit(127);
}

START_TEST(several_migrations_at_once_wait_for_each_other)
{
	enum { MANY = 5 };
	struct world w;
	pid_t pids[MANY];
	int applied = 0;
	world_begin(&w, "at_once");
	for (int i = 0; i < MANY; i++)
		pids[i] = start_migration(&w, i);
	for (int i = 0; i < MANY; i++) {
		int status;
		char path[340];
		ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
		(void)snprintf(path, sizeof path, "%s/migrate-%d.out", w.dir, i);
		file_read(path, said, sizeof said);
		ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s", said);
		applied += strstr(said, "(1 applied now)") != NULL;
	}
	ck_assert_int_eq(applied, 1);
	ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM \"%s\".migration", other_schema(&w)), 1);
	drop_other(&w);
	world_end(&w);
}
END_TEST

/* A text that is the same for two schemas exactly if they hold the same things. */
static const char *shape_of(struct world *w, const char *schema)
{
	return sql_text(w,
		"SELECT md5(string_agg(t, E'\\n' ORDER BY t)) || ' ' || count(*) FROM ("
		"SELECT format('%%s %%s %%s %%s', c.relkind, c.relname, a.attname, "
		"format_type(a.atttypid, a.atttypmod)) AS t FROM pg_class c "
		"JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 "
		"WHERE c.relnamespace = '\"%s\"'::regnamespace AND c.relname !~ '^effect' "
		"UNION ALL SELECT p.proname || replace(p.prosrc, '\"%s\"', '@') FROM pg_proc p "
		"WHERE p.pronamespace = '\"%s\"'::regnamespace) x",
		schema, schema, schema);
}

START_TEST(what_is_printed_makes_the_same_schema_through_psql)
{
	struct world w;
	char path[340], before[64];
	world_begin(&w, "print");
	const char *schema = other_schema(&w);
	EXPECT(0, "CREATE TABLE", ctl(&w, ARGS("migrate", "--print", "--all", "--schema", schema)));
	(void)snprintf(path, sizeof path, "%s/script.sql", w.dir);
	write_all(path, said, strlen(said));
	run_program(&w, "psql.out",
		ARGS("psql", "-X", "-q", "-d", environment("INBOXD_TEST_CONNINFO"), "-f", path));
	EXPECT(0, "(0 applied now)", ctl(&w, ARGS("migrate", "--schema", schema)));
	(void)snprintf(before, sizeof before, "%s", shape_of(&w, w.name));
	ck_assert_str_eq(before, shape_of(&w, schema));
	drop_other(&w);
	/* Without --all it is what is missing, which is everything again. */
	EXPECT(0, "CREATE TABLE", ctl(&w, ARGS("migrate", "--print", "--schema", schema)));
	ck_assert_int_eq(
		sql_int(&w, "SELECT count(*) FROM pg_namespace WHERE nspname = '%s'", schema), 0);
	world_end(&w);
}
END_TEST

START_TEST(printing_everything_needs_neither_configuration_nor_database)
{
	struct world w;
	world_begin(&w, "bare");
	EXPECT(0, "CREATE TABLE \"x\".inbox",
		inboxctl(&w, "missing", ARGS("migrate", "--print", "--all", "--schema", "x")));
	EXPECT(EX_CONFIG, "missing.yaml", inboxctl(&w, "missing", ARGS("migrate")));
	world_end(&w);
}
END_TEST

START_TEST(refuses_a_schema_that_is_newer_or_was_made_otherwise)
{
	struct world w;
	world_begin(&w, "newer");
	sql(&w,
		"INSERT INTO migration (version, name, sha256, program) VALUES (2, '0002_x', '', "
		"'9.8.7')");
	EXPECT(EX_CONFIG, "use inboxctl 9.8.7", ctl(&w, ARGS("migrate")));
	sql(&w, "DELETE FROM migration WHERE version = 2");
	sql(&w, "UPDATE migration SET sha256 = sha256('x')");
	EXPECT(EX_CONFIG, "with other content", ctl(&w, ARGS("migrate")));
	EXPECT(EX_CONFIG, "0001_inboxd", ctl(&w, ARGS("migrate", "--print")));
	world_end(&w);
}
END_TEST

START_TEST(a_migration_that_fails_leaves_nothing_and_says_where)
{
	struct world w;
	world_begin(&w, "fails");
	const char *schema = other_schema(&w);
	sql(&w, "CREATE SCHEMA \"%s\" AUTHORIZATION inboxd", schema);
	sql(&w, "CREATE VIEW \"%s\".parked_view AS SELECT 1", schema);
	EXPECT(EX_CONFIG, "0001_inboxd: relation \"parked_view\" already exists",
		ctl(&w, ARGS("migrate", "--schema", schema)));
	ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM \"%s\".migration", schema), 0);
	ck_assert_int_eq(sql_int(&w,
				 "SELECT count(*) FROM pg_class WHERE relname = 'inbox' AND "
				 "relnamespace = '\"%s\"'::regnamespace",
				 schema),
		0);
	sql(&w, "DROP VIEW \"%s\".parked_view", schema);
	EXPECT(0, "(1 applied now)", ctl(&w, ARGS("migrate", "--schema", schema)));
	drop_other(&w);
	world_end(&w);
}
END_TEST

START_TEST(a_schema_that_does_not_fit_is_refused_with_the_remedy)
{
	struct world w;
	world_begin(&w, "unfit");
	const char *const try[] = {"try", "main", "/dev/null", "--body", "--id", "x", NULL};
	EXPECT(0, "done", ctl(&w, try));
	sql(&w,
		"CREATE OR REPLACE FUNCTION schema_serves(p_version integer) RETURNS boolean "
		"LANGUAGE sql AS 'SELECT p_version >= 2'");
	sql(&w,
		"INSERT INTO migration (version, name, sha256, program) VALUES (2, '0002_x', '', "
		"'9.8.7')");
	EXPECT(EX_CONFIG, "install inboxd 9.8.7 or a later one", ctl(&w, try));
	sql(&w, "DELETE FROM migration");
	EXPECT(EX_CONFIG, "is at version 0, this program needs 1: run inboxctl migrate",
		ctl(&w, try));
	sql(&w, "DROP TABLE migration");
	EXPECT(EX_CONFIG, "not there or not complete: run inboxctl migrate", ctl(&w, try));
	sql(&w, "CREATE TABLE migration (version integer, program text)");
	EXPECT(EX_CONFIG, "--grant-run ROLE", ctl(&w, try));
	world_end(&w);
}
END_TEST

/* ---- roles ---------------------------------------------------------------------------------- */

/* A configuration with the world's consumer that logs in as another role. */
static void config_as(struct world *w, const char *file, const char *role)
{
	char path[340];
	(void)snprintf(path, sizeof path, "%s/%s.yaml", w->dir, file);
	FILE *f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	(void)fprintf(f,
		"broker: {uri: \"%s\"}\n"
		"database: {conninfo: \"%s user=%s password=secret\", schema: %s}\n"
		"handlers: {directory: [\"%s\", \"%s\"]}\n"
		"runtime_directory: \"%s/run-%s\"\n"
		"consumers:\n"
		"  main:\n"
		"    queue: %s\n"
		"    handler: effect\n"
		"    retry: {immediate: 1, delays: [100ms]}\n"
		"    crash_limit: 1\n"
		"    options: {table: %s.effect}\n",
		environment("INBOXD_TEST_AMQP_URI"), environment("INBOXD_TEST_CONNINFO"), role,
		w->name, built("handlers"), built("tests/handlers"), w->dir, file, w->queue,
		w->name);
	ck_assert_int_eq(fclose(f), 0);
}

static void make_role(struct world *w, const char *kind, char *ret, size_t size)
{
	(void)snprintf(ret, size, "%s_%s", w->name, kind);
	sql(w, "CREATE ROLE \"%s\" LOGIN PASSWORD 'secret'", ret);
}

static void drop_role(struct world *w, const char *role)
{
	sql(w, "DROP OWNED BY \"%s\"; DROP ROLE \"%s\"", role, role);
}

START_TEST(grants_are_enough_for_the_daemon_and_no_more_than_that)
{
	struct world w;
	struct daemon d;
	char run[80], operator[80], reader[80];
	world_begin(&w, "grants");
	make_role(&w, "run", run, sizeof run);
	make_role(&w, "op", operator, sizeof operator);
	make_role(&w, "read", reader, sizeof reader);
	EXPECT(0, "grants_read",
		ctl(&w,
			ARGS("migrate", "--grant-run", run, "--grant-operator", operator,
				"--grant-read", reader)));
	sql(&w,
		"GRANT INSERT ON effect TO \"%s\"; GRANT USAGE ON SEQUENCE effect_seq_seq TO "
		"\"%s\"",
		run, run);

	/* The daemon, through everything it does. */
	config_as(&w, "run", run);
	daemon_start(&w, "run", &d);
	publish(&w, w.queue, &(struct msg){.id = "a"});
	publish(&w, w.queue, &(struct msg){.id = "a"});
	publish(&w, w.queue, &(struct msg){.id = "a", .body = "other"});
	publish(&w, w.queue, &(struct msg){.id = "b", .act = "reject"});
	publish(&w, w.queue, &(struct msg){.id = "c", .act = "retry:1"});
	publish(&w, w.queue, &(struct msg){.id = "d", .act = "crash"});
	publish(&w, w.queue, &(struct msg){.body = "no id"});
	publish_confirm(&w);
	WAIT_FOR(is_settled(w.queue) && effects(&w) == 2 && parked(&w, NULL) == 4, 30);
	ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM parked WHERE state = 'waiting'"), 0);
	ck_assert_int_eq(parked(&w, "mismatch"), 1);
	ck_assert_int_eq(log_lines(&d, "permission denied"), 0);
	ck_assert_int_eq(daemon_stop(&d), 0);

	config_as(&w, "operator", operator);
	config_as(&w, "reader", reader);
	EXPECT(0, "same", inboxctl(&w, "run", ARGS("consumers")));
	EXPECT(0, "mismatch", inboxctl(&w, "reader", ARGS("parked", "list")));
	EXPECT(EX_NOPERM, "permission denied", inboxctl(&w, "reader", ARGS("parked", "show", "1")));
	EXPECT(0, "properties", inboxctl(&w, "operator", ARGS("parked", "show", "1")));
	EXPECT(EX_NOPERM, "permission denied",
		inboxctl(&w, "reader", ARGS("parked", "discard", "--all", "--yes")));
	EXPECT(0, "mismatch", inboxctl(&w, "reader", ARGS("parked", "list", "--group")));
	EXPECT(0, "discarded ",
		inboxctl(&w, "operator", ARGS("parked", "discard", "--all", "--yes")));
	EXPECT(0, "restored ",
		inboxctl(&w, "operator", ARGS("parked", "restore", "--all", "--yes")));
	EXPECT(0, "retried ", inboxctl(&w, "operator", ARGS("parked", "retry", "--all", "--yes")));
	sql(&w, "UPDATE consumer_entry SET queue = 'elsewhere'");
	EXPECT(EX_NOPERM, "permission denied",
		inboxctl(&w, "run", ARGS("consumers", "accept", "main")));
	EXPECT(0, "accepted", inboxctl(&w, "operator", ARGS("consumers", "accept", "main")));
	EXPECT(EX_CONFIG, "does not exist",
		ctl(&w, ARGS("migrate", "--grant-read", "nobody_of_that_name")));
	drop_role(&w, run);
	drop_role(&w, operator);
	drop_role(&w, reader);
	world_end(&w);
}
END_TEST

/* ---- publish -------------------------------------------------------------------------------- */

static const amqp_field_value_t *header(const amqp_message_t *m, const char *name)
{
	const amqp_field_value_t *v = message_header(m, name);
	ck_assert_msg(v != NULL, "no header %s", name);
	return v;
}

START_TEST(publishes_every_property_and_header_type_as_it_was_given)
{
	struct world w;
	world_begin(&w, "publish");
	EXPECT(0, "1 published",
		ctl(&w,
			ARGS("publish", w.queue, "-m", "body \xc3\xa4", "--id", "id-1",
				"--content-type", "text/plain", "--property",
				"content_encoding=utf-8", "--property", "priority=4", "--property",
				"correlation-id=c", "--property", "reply_to=r", "--property",
				"expiration=60000")));
	amqp_message_t m = message_get(&w, w.queue);
	const amqp_basic_properties_t *p = &m.properties;
	is_text(m.body, "body \xc3\xa4");
	is_text(p->message_id, "id-1");
	is_text(p->content_type, "text/plain");
	is_text(p->content_encoding, "utf-8");
	is_text(p->correlation_id, "c");
	is_text(p->reply_to, "r");
	is_text(p->expiration, "60000");
	ck_assert_uint_eq(p->priority, 4);
	ck_assert_uint_eq(p->delivery_mode, 2);
	ck_assert_uint_eq(p->_flags & (AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_TYPE_FLAG), 0);
	amqp_destroy_message(&m);

	EXPECT(0, "1 published",
		ctl(&w,
			ARGS("publish", w.queue, "-m", "", "--transient", "--property",
				"timestamp=1700000000", "--property", "type=t", "--property",
				"user_id=inboxd", "--property", "app_id=a", "--header", "s=text",
				"--header", "x:bytes=raw", "--header", "t:bool=true", "--header",
				"b:int8=-5", "--header", "i:int32=-70000")));
	m = message_get(&w, w.queue);
	ck_assert_uint_eq(m.body.len, 0);
	ck_assert_uint_eq(m.properties.delivery_mode, 1);
	ck_assert_uint_eq(m.properties.timestamp, 1700000000);
	is_text(m.properties.type, "t");
	is_text(m.properties.user_id, "inboxd");
	is_text(m.properties.app_id, "a");
	ck_assert_int_eq(header(&m, "s")->kind, AMQP_FIELD_KIND_UTF8);
	is_text(header(&m, "s")->value.bytes, "text");
	ck_assert_int_eq(header(&m, "x")->kind, AMQP_FIELD_KIND_BYTES);
	is_text(header(&m, "x")->value.bytes, "raw");
	ck_assert_int_eq(header(&m, "t")->value.boolean, 1);
	ck_assert_int_eq(header(&m, "b")->kind, AMQP_FIELD_KIND_I8);
	ck_assert_int_eq(header(&m, "b")->value.i8, -5);
	ck_assert_int_eq(header(&m, "i")->kind, AMQP_FIELD_KIND_I32);
	ck_assert_int_eq(header(&m, "i")->value.i32, -70000);
	amqp_destroy_message(&m);
	world_end(&w);
}
END_TEST

START_TEST(publishes_numbers_tables_and_times_as_headers)
{
	struct world w;
	world_begin(&w, "headers");
	EXPECT(0, "1 published",
		ctl(&w,
			ARGS("publish", w.queue, "-m", "", "--header", "l:int=9007199254740993",
				"--header", "d:double=0.1", "--header", "f:float=1.5", "--header",
				"T:timestamp=1700000000", "--header", "D:decimal=12.34", "--header",
				"V:void", "--header", "F:json={\"a\": [1, null, \"x\"]}")));
	amqp_message_t m = message_get(&w, w.queue);
	ck_assert_int_eq(header(&m, "l")->kind, AMQP_FIELD_KIND_I64);
	ck_assert(header(&m, "l")->value.i64 == INT64_C(9007199254740993));
	ck_assert_int_eq(header(&m, "d")->kind, AMQP_FIELD_KIND_F64);
	ck_assert(header(&m, "d")->value.f64 > 0.0999999 && header(&m, "d")->value.f64 < 0.1000001);
	ck_assert_int_eq(header(&m, "f")->kind, AMQP_FIELD_KIND_F32);
	ck_assert_int_eq(header(&m, "T")->kind, AMQP_FIELD_KIND_TIMESTAMP);
	ck_assert_uint_eq(header(&m, "T")->value.u64, 1700000000);
	ck_assert_int_eq(header(&m, "D")->value.decimal.decimals, 2);
	ck_assert_uint_eq(header(&m, "D")->value.decimal.value, 1234);
	ck_assert_int_eq(header(&m, "V")->kind, AMQP_FIELD_KIND_VOID);
	const amqp_field_value_t *table = header(&m, "F");
	ck_assert_int_eq(table->kind, AMQP_FIELD_KIND_TABLE);
	ck_assert_int_eq(table->value.table.entries[0].value.value.array.num_entries, 3);
	amqp_destroy_message(&m);
	world_end(&w);
}
END_TEST

START_TEST(publishes_files_and_copies)
{
	struct world w;
	char path[340], body[100000];
	world_begin(&w, "files");
	for (size_t i = 0; i < sizeof body; i++)
		body[i] = (char)(i * 7);
	(void)snprintf(path, sizeof path, "%s/body", w.dir);
	write_all(path, body, sizeof body);
	EXPECT(0, "\"published\": 700",
		ctl(&w,
			ARGS("publish", "--json", w.queue, "--file", path, "--id", "x", "--count",
				"700")));
	WAIT_FOR(queue_state(w.queue).ready == 700, 10);
	amqp_message_t m = message_get(&w, w.queue);
	ck_assert_uint_eq(m.body.len, sizeof body);
	ck_assert(memcmp(m.body.bytes, body, sizeof body) == 0);
	amqp_destroy_message(&m);
	EXPECT(EX_NOINPUT, "missing", ctl(&w, ARGS("publish", w.queue, "--file", "/missing")));
	world_end(&w);
}
END_TEST

START_TEST(says_when_a_message_went_nowhere)
{
	struct world w;
	world_begin(&w, "nowhere");
	EXPECT(1, "has no queue \"nosuch-queue\"",
		ctl(&w, ARGS("publish", "nosuch-queue", "-m", "x")));
	EXPECT(1, "routing key \"a.b\"",
		ctl(&w,
			ARGS("publish", "--exchange", "amq.topic", "--routing-key", "a.b", "-m",
				"x")));
	EXPECT(1, "404", ctl(&w, ARGS("publish", "--exchange", "nosuch-exchange", "-m", "x")));
	EXPECT(EX_DATAERR, "406",
		ctl(&w, ARGS("publish", w.queue, "-m", "x", "--property", "user_id=root")));
	EXPECT(EX_USAGE, "either a queue or --exchange", ctl(&w, ARGS("publish", "-m", "x")));
	EXPECT(EX_USAGE, "did you mean \"priority\"",
		ctl(&w, ARGS("publish", w.queue, "-m", "x", "--property", "prority=1")));
	queue_bind(&w, w.queue, "amq.topic", "a.*");
	EXPECT(0, "1 published",
		ctl(&w,
			ARGS("publish", "--exchange", "amq.topic", "--routing-key", "a.b", "-m",
				"x")));
	WAIT_FOR(queue_state(w.queue).ready == 1, 10);
	world_end(&w);
}
END_TEST

/* ---- try ------------------------------------------------------------------------------------ */

static const char *message_file(struct world *w, const char *text)
{
	static char path[340];
	(void)snprintf(path, sizeof path, "%s/message.json", w->dir);
	write_all(path, text, strlen(text));
	return path;
}

static void assert_untouched(struct world *w, int effects_, int markers_)
{
	ck_assert_int_eq(effects(w), effects_);
	ck_assert_int_eq(markers(w), markers_);
	ck_assert_int_eq(
		sql_int(w, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"),
		0);
}

START_TEST(tries_a_message_and_leaves_no_trace)
{
	struct world w;
	world_begin(&w, "try");
	const char *good = message_file(
		&w, "{\"properties\": {\"message_id\": \"t-1\"}, \"body\": {\"a\": 1}}");
	EXPECT(0, "verdict      done", ctl(&w, ARGS("try", "main", good)));
	ck_assert_ptr_nonnull(strstr(said, "key          t-1"));
	ck_assert_ptr_nonnull(strstr(said, "INSERT INTO"));
	ck_assert_ptr_nonnull(strstr(said, "$1 = t-1"));
	ck_assert_ptr_nonnull(strstr(said, "result       (1) INSERT 0 1"));
	assert_untouched(&w, 0, 0);
	EXPECT(0, "\"verdict\": \"done\"", ctl(&w, ARGS("try", "main", good, "--json")));
	EXPECT(1, "verdict      reject",
		ctl(&w, ARGS("try", "main", good, "--header", "act=reject")));
	ck_assert_ptr_nonnull(strstr(said, "reason       never"));
	EXPECT(1, "verdict      retry",
		ctl(&w, ARGS("try", "main", good, "--header", "act=retry:1")));
	EXPECT(1, "sqlstate     22012", ctl(&w, ARGS("try", "main", good, "--header", "act=sql")));
	EXPECT(1, "no_key", ctl(&w, ARGS("try", "main", good, "--body")));
	EXPECT(0, "key          t-2", ctl(&w, ARGS("try", "main", good, "--body", "--id", "t-2")));
	EXPECT(EX_DATAERR, "not JSON", ctl(&w, ARGS("try", "main", message_file(&w, "x"))));
	EXPECT(EX_CONFIG, "did you mean \"main\"", ctl(&w, ARGS("try", "mian", good)));
	assert_untouched(&w, 0, 0);
	world_end(&w);
}
END_TEST

START_TEST(knows_keys_that_were_seen_before)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "seen");
	daemon_start_main(&w, &d);
	publish(&w, w.queue, &(struct msg){.id = "s-1", .body = "one"});
	publish(&w, w.queue, &(struct msg){.id = "s-2", .act = "reject"});
	publish_confirm(&w);
	WAIT_FOR(is_settled(w.queue) && effects(&w) == 1 && parked(&w, NULL) == 1, 20);
	ck_assert_int_eq(daemon_stop(&d), 0);
	EXPECT(1, "a duplicate",
		ctl(&w,
			ARGS("try", "main",
				message_file(&w,
					"{\"properties\": {\"message_id\": \"s-1\"}, \"body\": "
					"\"one\"}"))));
	EXPECT(1, "park it as a mismatch",
		ctl(&w,
			ARGS("try", "main",
				message_file(&w,
					"{\"properties\": {\"message_id\": \"s-1\"}, \"body\": "
					"\"two\"}"))));
	EXPECT(1, "the key is parked: failed",
		ctl(&w,
			ARGS("try", "main",
				message_file(&w,
					"{\"properties\": {\"message_id\": \"s-2\"}, \"body\": "
					"\"x\"}"))));
	assert_untouched(&w, 1, 1);
	world_end(&w);
}
END_TEST

/* ---- looking -------------------------------------------------------------------------------- */

START_TEST(shows_a_parked_message_whole_and_tries_it_again)
{
	struct world w;
	struct daemon d;
	char path[340], id[32], body[4096], bytes[300];
	world_begin(&w, "show");
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (char)i;
	(void)snprintf(path, sizeof path, "%s/bytes", w.dir);
	write_all(path, bytes, sizeof bytes);
	daemon_start_main(&w, &d);
	EXPECT(0, "1 published",
		ctl(&w,
			ARGS("publish", w.queue, "--id", "p-1", "--file", path, "--header",
				"act=reject", "--header", "n:int32=7", "--header",
				"t:timestamp=1700000000", "--property", "type=a\033b")));
	WAIT_FOR(parked(&w, NULL) == 1, 20);
	ck_assert_int_eq(daemon_stop(&d), 0);

	EXPECT(0, "p-1", ctl(&w, ARGS("parked")));
	EXPECT(0, "\"state\": \"failed\"",
		ctl(&w, ARGS("parked", "list", "--json", "--consumer", "main")));
	EXPECT(0, "[]", ctl(&w, ARGS("parked", "list", "--json", "--state", "waiting")));
	(void)snprintf(id, sizeof id, "%s", sql_text(&w, "SELECT id FROM parked"));
	EXPECT(0, "  n (int32): 7\n", ctl(&w, ARGS("parked", "show", id)));
	ck_assert_ptr_nonnull(strstr(said, "t (timestamp): 1700000000"));
	ck_assert_ptr_nonnull(strstr(said, "type: a\\x1bb"));

	EXPECT(0, "", ctl(&w, ARGS("parked", "show", id, "--body")));
	(void)snprintf(path, sizeof path, "%s/inboxctl.out", w.dir);
	FILE *f = fopen(path, "r");
	ck_assert_uint_eq(fread(body, 1, sizeof body, f), sizeof bytes);
	(void)fclose(f);
	ck_assert(memcmp(body, bytes, sizeof bytes) == 0);

	/* What is shown is what try takes; without its row and its refusal it goes through. */
	EXPECT(0, "body_base64", ctl(&w, ARGS("parked", "show", id, "--json")));
	const char *file = message_file(&w, said);
	EXPECT(1, "the key is parked: failed, id", ctl(&w, ARGS("try", "main", file)));
	sql(&w, "DELETE FROM parked");
	EXPECT(1, "reason       never", ctl(&w, ARGS("try", "main", file)));
	EXPECT(0, "verdict      done", ctl(&w, ARGS("try", "main", file, "--header", "act=ok")));
	EXPECT(1, "no message", ctl(&w, ARGS("parked", "show", id)));
	EXPECT(EX_USAGE, "is no id", ctl(&w, ARGS("parked", "show", "x")));
	world_end(&w);
}
END_TEST

START_TEST(accepts_a_change_of_a_consumer_after_showing_it)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "accept");
	EXPECT(1, "not registered", ctl(&w, ARGS("consumers", "accept", "main")));
	daemon_start_main(&w, &d);
	ck_assert_int_eq(daemon_stop(&d), 0);
	EXPECT(0, "same", ctl(&w, ARGS("consumers")));
	config_main(&w, "%s", "    key: header:k\n");
	EXPECT(0, "differs", ctl(&w, ARGS("consumers", "list")));
	EXPECT(0, "{\"name\": \"key\", \"old\": \"message_id\", \"new\": \"header:k\"}",
		ctl(&w, ARGS("consumers", "accept", "main", "--json")));
	EXPECT(0, "header:k", ctl(&w, ARGS("consumers", "accept", "main")));
	ck_assert_ptr_null(strstr(said, "accepted"));
	EXPECT(0, "same", ctl(&w, ARGS("consumers")));
	ck_assert_int_eq(
		sql_int(&w, "SELECT count(*) FROM consumer WHERE accepted_at IS NOT NULL"), 1);
	world_end(&w);
}
END_TEST

START_TEST(shows_the_counters_of_a_running_daemon)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "status");
	char path[340];
	(void)snprintf(path, sizeof path, "%s/run-inboxd", w.dir);
	(void)mkdir(path, 0755); /* as systemd makes it */
	EXPECT(EX_UNAVAILABLE, "no inboxd runs", ctl(&w, ARGS("status")));
	daemon_start_main(&w, &d);
	publish_many(&w, w.queue, "s", 20);
	publish(&w, w.queue, &(struct msg){.id = "s0", .body = "0"});
	publish(&w, w.queue, &(struct msg){.id = "bad", .act = "reject"});
	publish_confirm(&w);
	WAIT_FOR(is_settled(w.queue) && parked(&w, NULL) == 1, 20);
	EXPECT(0, "\"consumer\": \"main\", \"state\": \"consuming\", \"workers\": \"1/1\"",
		ctl(&w, ARGS("status", "--json")));
	ck_assert_ptr_nonnull(strstr(said, "\"processed\": 20,"));
	ck_assert_ptr_nonnull(strstr(said, "\"failed\": 1,"));
	EXPECT(0, "CONSUMER", ctl(&w, ARGS("status")));
	ck_assert_int_eq(daemon_stop(&d), 0);
	EXPECT(EX_UNAVAILABLE, "left from an earlier one", ctl(&w, ARGS("status")));
	world_end(&w);
}
END_TEST

START_TEST(answers_questions_about_itself)
{
	struct world w;
	world_begin(&w, "help");
	static const char *const commands[] = {
		"migrate", "publish", "try", "status", "consumers", "parked"};
	for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
		EXPECT(0, "Usage: inboxctl", inboxctl(&w, "missing", ARGS(commands[i], "--help")));
	EXPECT(0, "inboxctl 0.", ctl(&w, ARGS("--version")));
	EXPECT(EX_USAGE, "did you mean \"migrate\"", ctl(&w, ARGS("migrat")));
	EXPECT(EX_USAGE, "a command is missing", ctl(&w, (const char *const[]){NULL}));
	EXPECT(EX_USAGE, "nonsense", ctl(&w, ARGS("status", "--nonsense")));
	world_end(&w);
}
END_TEST

UNIT_SUITE_TIMEOUT(120, "integration/ctl", migrating_twice_changes_nothing,
	several_migrations_at_once_wait_for_each_other,
	what_is_printed_makes_the_same_schema_through_psql,
	printing_everything_needs_neither_configuration_nor_database,
	refuses_a_schema_that_is_newer_or_was_made_otherwise,
	a_migration_that_fails_leaves_nothing_and_says_where,
	a_schema_that_does_not_fit_is_refused_with_the_remedy,
	grants_are_enough_for_the_daemon_and_no_more_than_that,
	publishes_every_property_and_header_type_as_it_was_given,
	publishes_numbers_tables_and_times_as_headers, publishes_files_and_copies,
	says_when_a_message_went_nowhere, tries_a_message_and_leaves_no_trace,
	knows_keys_that_were_seen_before, shows_a_parked_message_whole_and_tries_it_again,
	accepts_a_change_of_a_consumer_after_showing_it, shows_the_counters_of_a_running_daemon,
	answers_questions_about_itself)

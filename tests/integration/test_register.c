/* SPDX-License-Identifier: MIT */
/* What a consumer is known by, and what is refused before any message is taken. */
#include "inbox_world.h"

#include "base/fd.h"

#include <stdio.h>

/* Registers another consumer on a session of its own; its id, or 0 if it is refused. */
static int register_as(const char *consumer, const char *vhost)
{
	struct session s = {.consumer = other_config(consumer)};
	MUST_OK(db_conn_open(s.consumer->database, "test", &s.db, &world.err));
	inbox_init(&s.x, s.db, s.consumer);
	enum rc rc = inbox_register(&s.x, vhost, &world.err);
	int id = rc == RC_OK ? s.x.id : 0;
	ck_assert_msg(rc == RC_OK || rc == RC_FATAL, "%s", world.err.text);
	ck_assert_int_eq(db_tx_state(s.db), DB_TX_NONE);
	session_close(&s);
	return id;
}

static void says(const char *part)
{
	ck_assert_msg(
		strstr(world.err.text, part) != NULL, "\"%s\" is not in: %s", part, world.err.text);
}

START_TEST(the_same_consumer_is_the_same_every_time)
{
	inbox_world_begin("");
	int id = world.a.x.id;
	ck_assert_int_gt(id, 0);
	session_open(&world.b, NULL);
	ck_assert_int_eq(world.b.x.id, id);
	ck_assert_int_eq(
		register_as("  main:\n    queue: q\n    handler: other\n    workers: 7\n", "/"),
		id);
	ck_assert_int_eq(admin_int("SELECT count(*) FROM consumer"), 1);
	ck_assert_str_eq(admin("SELECT concat_ws('|', entry, vhost, queue) FROM consumer_entry"),
		"main|/|q");
	inbox_world_end();
}
END_TEST

START_TEST(an_edited_rule_is_refused_and_both_are_named)
{
	inbox_world_begin("");
	const char *before = admin("SELECT string_agg(consumer::text, '') FROM consumer");
	ck_assert_int_eq(register_as("  main:\n    queue: q\n    handler: sql\n    key: [header:a, "
				     "message_id]\n",
				 "/"),
		0);
	says("'message_id'");
	says("'header:a,message_id'");
	says("inboxctl consumers accept main");
	ck_assert_int_eq(
		register_as(
			"  main:\n    queue: q\n    handler: sql\n    on_missing_key: body\n", "/"),
		0);
	says("'message_id|missing=body'");
	ck_assert_int_eq(
		register_as("  main:\n    queue: q\n    handler: sql\n    fingerprint: json:/id\n",
			"/"),
		0);
	says("'body'");
	says("'json:/id'");
	ck_assert_str_eq(admin("SELECT string_agg(consumer::text, '') FROM consumer"), before);
	inbox_world_end();
}
END_TEST

START_TEST(another_queue_under_the_same_name_is_refused_and_both_are_named)
{
	inbox_world_begin("");
	ck_assert_int_eq(register_as("  main:\n    queue: other\n    handler: sql\n", "/"), 0);
	says("queue 'q' of vhost '/'");
	says("queue 'other' of vhost '/'");
	ck_assert_int_eq(register_as("  main:\n    queue: q\n    handler: sql\n", "it's"), 0);
	says("vhost 'it''s'");
	ck_assert_str_eq(admin("SELECT concat_ws('|', entry, vhost, queue) FROM consumer_entry"),
		"main|/|q");
	inbox_world_end();
}
END_TEST

START_TEST(what_an_operator_accepts_is_the_same_consumer_from_then_on)
{
	static const char edited[] =
		"  main:\n    queue: q2\n    handler: sql\n    key: header:a\n";
	inbox_world_begin("");
	(void)run_one(&world.a, "\001k", 'x');
	ck_assert_int_eq(register_as(edited, "/v"), 0);
	(void)admin("SELECT accept_consumer('main', 'main', '/v', 'q2', 'header:a', 'body')");
	ck_assert_int_eq(register_as(edited, "/v"), world.a.x.id);
	ck_assert_str_eq(admin("SELECT (accepted_at IS NOT NULL)::text FROM consumer"), "true");
	ck_assert_int_eq(register_as("  main:\n    queue: q\n    handler: sql\n", "/"), 0);
	ck_assert_int_eq(world_markers(), 1);
	inbox_world_end();
}
END_TEST

START_TEST(entries_may_share_an_identity_if_they_make_the_same_keys)
{
	inbox_world_begin("");
	int id = world.a.x.id;
	ck_assert_int_eq(
		register_as(
			"  second:\n    identity: main\n    queue: q2\n    handler: sql\n", "/"),
		id);
	ck_assert_int_eq(
		register_as("  third:\n    identity: main\n    queue: q3\n    handler: sql\n"
			    "    key: body\n",
			"/"),
		0);
	ck_assert_int_ne(register_as("  fourth:\n    queue: q\n    handler: sql\n", "/"), id);
	ck_assert_str_eq(admin("SELECT string_agg(entry, ',' ORDER BY entry) FROM consumer_entry "
			       "WHERE consumer = %d",
				 id),
		"main,second");
	inbox_world_end();
}
END_TEST

/* Another program registers the same name at the same time, and is not done yet. */
START_TEST(two_that_come_at_once_become_one)
{
	inbox_world_begin("");
	struct session s = {.consumer = other_config("  fresh:\n    queue: q\n    handler: sql\n")};
	MUST_OK(db_conn_open(s.consumer->database, "test", &s.db, &world.err));
	inbox_init(&s.x, s.db, s.consumer);
	(void)admin("BEGIN");
	int theirs = admin_int(
		"SELECT consumer FROM register('fresh', 'fresh', '/', 'q', 'message_id', 'body')");
	/* Ours waits for theirs; theirs ends once ours is seen waiting. */
	ck_assert_int_eq(PQsendQuery(world.admin,
				 "DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM pg_locks WHERE NOT "
				 "granted) LOOP "
				 "PERFORM pg_sleep(0.01); END LOOP; END $$; COMMIT"),
		1);
	MUST_OK(inbox_register(&s.x, "/", &world.err));
	PGresult *res;
	while ((res = PQgetResult(world.admin)) != NULL)
		PQclear(res);
	ck_assert_int_eq(s.x.id, theirs);
	session_close(&s);
	inbox_world_end();
}
END_TEST

/* ---- before that ----------------------------------------------------------------------------- */

static enum rc check_schema_of(const struct config_consumer *c)
{
	struct session s = {.consumer = c};
	MUST_OK(db_conn_open(c->database, "test", &s.db, &world.err));
	inbox_init(&s.x, s.db, c);
	enum rc rc = inbox_check_schema(&s.x, &world.err);
	session_close(&s);
	return rc;
}

START_TEST(a_database_whose_encoding_cannot_hold_every_text_is_refused)
{
	inbox_world_begin("");
	struct config_database latin = *world.a.consumer->database;
	struct db_conn *db = NULL;
	(void)admin("CREATE DATABASE latin_%s ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' "
		    "TEMPLATE template0",
		world.schema);
	latin.conninfo = xasprintf("%s dbname=latin_%s", latin.conninfo, world.schema);
	ck_assert_int_eq(db_conn_open(&latin, "test", &db, &world.err), RC_FATAL);
	says("its encoding is LATIN1");
	says("ENCODING 'UTF8'");
	ck_assert_ptr_null(db);
	free(latin.conninfo);
	(void)admin("DROP DATABASE latin_%s", world.schema);
	inbox_world_end();
}
END_TEST

START_TEST(a_missing_schema_is_named_with_what_to_do)
{
	inbox_world_begin("");
	(void)admin("ALTER SCHEMA %s RENAME TO %s_away", world.schema, world.schema);
	ck_assert_int_eq(check_schema_of(world.a.consumer), RC_FATAL);
	says(world.schema);
	says("inboxctl migrate");
	(void)admin("ALTER SCHEMA %s_away RENAME TO %s", world.schema, world.schema);
	ck_assert_int_eq(check_schema_of(world.a.consumer), RC_OK);
	inbox_world_end();
}
END_TEST

START_TEST(more_keys_at_once_than_the_server_can_lock_are_refused)
{
	inbox_world_begin("");
	const struct config_consumer *c = other_config("  main:\n    queue: q\n    handler: sql\n  "
						       "  workers: 64\n    batch: {max: 1000}\n");
	ck_assert_int_eq(check_schema_of(c), RC_FATAL);
	says("64000");
	says("max_locks_per_transaction");
	inbox_world_end();
}
END_TEST

/* ---- the session ----------------------------------------------------------------------------- */

static enum rc exec(const char *sql)
{
	return db_exec(world.a.db, sql, 0, NULL, false, NULL, &world.err);
}

static const char *setting(const char *name)
{
	static char value[100];
	struct db_result *res = NULL;
	const struct db_value arg = {.data = name, .size = strlen(name)};
	MUST_OK(db_exec(
		world.a.db, "SELECT current_setting($1)", 1, &arg, false, &res, &world.err));
	struct bytes b = db_result_value(res, 0, 0);
	(void)snprintf(value, sizeof value, "%.*s", (int)b.size, (const char *)b.data);
	db_result_free(res);
	return value;
}

START_TEST(nothing_outside_our_transactions_can_write)
{
	inbox_world_begin("");
	ck_assert_int_ne(exec("INSERT INTO effect VALUES ('x')"), RC_OK);
	ck_assert_str_eq(world.err.sqlstate, "25006");
	ck_assert_int_eq(run_one(&world.a, "\001k", 'x'), CLAIM_NEW);
	ck_assert_int_ne(exec("INSERT INTO effect VALUES ('x')"), RC_OK);
	ck_assert_int_eq(world_effects(), 1);
	inbox_world_end();
}
END_TEST

START_TEST(a_reset_undoes_what_a_handler_left_and_keeps_our_limits)
{
	inbox_world_begin("");
	MUST_OK(db_conn_limit(world.a.db, 4321, 8765, &world.err));
	(void)run_one(&world.a, "\001k", 'x');
	MUST_OK(exec("SET default_transaction_read_only = off"));
	MUST_OK(exec("SET datestyle = 'German'"));
	MUST_OK(exec("SET statement_timeout = 0"));
	MUST_OK(exec("CREATE TEMP TABLE left_behind ()"));
	MUST_OK(exec("SELECT pg_advisory_lock(4711)"));
	MUST_OK(exec("LISTEN left_behind"));
	MUST_OK(db_conn_reset(world.a.db, &world.err));
	ck_assert_str_eq(setting("default_transaction_read_only"), "on");
	ck_assert_str_eq(setting("datestyle"), "ISO, YMD");
	ck_assert_str_eq(setting("statement_timeout"), "4321ms");
	ck_assert_str_eq(setting("idle_in_transaction_session_timeout"), "8765ms");
	ck_assert_int_ne(exec("SELECT * FROM left_behind"), RC_OK);
	ck_assert_int_eq(admin_int("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND "
				   "objid = 4711"),
		0);
	/* Statements parsed before are forgotten, and parsed again. */
	ck_assert_int_eq(run_one(&world.a, "\001l", 'x'), CLAIM_NEW);
	ck_assert_int_eq(run_one(&world.a, "\001k", 'x'), CLAIM_DUPLICATE);
	inbox_world_end();
}
END_TEST

START_TEST(a_statement_that_failed_to_parse_is_parsed_again_the_next_time)
{
	inbox_world_begin("");
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(exec("SELECT * FROM later_there"), RC_RETRY);
		ck_assert_str_eq(world.err.sqlstate, "42P01");
	}
	(void)admin("CREATE TABLE later_there (); GRANT SELECT ON later_there TO inboxd");
	MUST_OK(exec("SELECT * FROM later_there"));
	inbox_world_end();
}
END_TEST

/* The server refuses a statement of which it remembers other columns, once. */
START_TEST(a_statement_over_an_altered_table_works_again_the_next_time)
{
	inbox_world_begin("");
	(void)admin("CREATE TABLE altered (a int); GRANT SELECT ON altered TO inboxd");
	MUST_OK(exec("SELECT * FROM altered"));
	for (int i = 0; i < 3; i++) {
		(void)admin("ALTER TABLE altered ADD b%d int", i);
		(void)exec("SELECT * FROM altered");
		MUST_OK(exec("SELECT * FROM altered"));
	}
	(void)run_one(&world.a, "\001k", 'x');
	struct db_result *res = NULL;
	MUST_OK(db_exec(world.a.db,
		"SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%altered'", 0,
		NULL, true, &res, &world.err));
	ck_assert_int_le(db_result_int(res, 0, 0), 1); /* the old ones are gone */
	db_result_free(res);
	inbox_world_end();
}
END_TEST

START_TEST(statements_that_a_handler_deallocated_are_parsed_again)
{
	inbox_world_begin("");
	(void)run_one(&world.a, "\001k", 'x');
	MUST_OK(exec("DEALLOCATE ALL"));
	struct claim c = claim_of("\001l", 'x');
	ck_assert_int_ne(begin(&world.a, &c, 1), RC_OK);
	ck_assert_str_eq(world.err.sqlstate, "26000");
	ck_assert_int_eq(run_one(&world.a, "\001l", 'x'), CLAIM_NEW);
	ck_assert_int_eq(world_effects(), 2);
	inbox_world_end();
}
END_TEST

UNIT_SUITE_TIMEOUT(60, "inbox/register", the_same_consumer_is_the_same_every_time,
	an_edited_rule_is_refused_and_both_are_named,
	another_queue_under_the_same_name_is_refused_and_both_are_named,
	what_an_operator_accepts_is_the_same_consumer_from_then_on,
	entries_may_share_an_identity_if_they_make_the_same_keys, two_that_come_at_once_become_one,
	a_database_whose_encoding_cannot_hold_every_text_is_refused,
	a_missing_schema_is_named_with_what_to_do,
	more_keys_at_once_than_the_server_can_lock_are_refused,
	nothing_outside_our_transactions_can_write,
	a_reset_undoes_what_a_handler_left_and_keeps_our_limits,
	a_statement_that_failed_to_parse_is_parsed_again_the_next_time,
	a_statement_over_an_altered_table_works_again_the_next_time,
	statements_that_a_handler_deallocated_are_parsed_again)

/* SPDX-License-Identifier: MIT */
#include "db/db.h"

#include "unit.h"

static void all_are(enum db_verb verb, const char *const *texts, size_t n)
{
	for (size_t i = 0; i < n; i++)
		ck_assert_msg(db_verb_of(texts[i]) == verb, "\"%s\" is taken for %d, not %d",
			texts[i], (int)db_verb_of(texts[i]), (int)verb);
}
#define ALL_ARE(verb, ...)                                               \
	do {                                                             \
		static const char *const texts_[] = {__VA_ARGS__};       \
		all_are(verb, texts_, sizeof texts_ / sizeof texts_[0]); \
	} while (0)

/* ---- verbs ----------------------------------------------------------------------------------- */

START_TEST(whatever_ends_or_begins_a_transaction_is_refused)
{
	ALL_ARE(DB_VERB_CONTROL, "BEGIN", "begin", "BeGiN;", "BEGIN WORK", "START TRANSACTION",
		"COMMIT", "commit and chain", "COMMIT PREPARED 'x'", "END", "end;", "ABORT",
		"ROLLBACK", "rollback work", "ROLLBACK TRANSACTION", "ROLLBACK AND CHAIN",
		"ROLLBACK PREPARED 'x'", "PREPARE TRANSACTION 'x'", "prepare\ttransaction'x'");
}
END_TEST

START_TEST(nothing_hides_a_verb)
{
	ALL_ARE(DB_VERB_CONTROL, "  \t\r\n\f COMMIT", ";COMMIT", " ; ;; commit", "-- why\nCOMMIT",
		"-- why\rCOMMIT", "-- one\n-- two\n  COMMIT", "/* why */COMMIT", "/**/COMMIT",
		"/* a /* b */ c */ COMMIT", "/*/**/*/COMMIT", "/***/ COMMIT", "/* -- */ COMMIT",
		"-- /*\nCOMMIT", "ROLLBACK/**/;", "ROLLBACK -- to savepoint a\n", "COMMIT/* to */",
		"PREPARE /* x */ TRANSACTION 'x'", "(COMMIT)", "--\nCOMMIT");
}
END_TEST

START_TEST(a_comment_hides_what_is_inside_it)
{
	ALL_ARE(DB_VERB_PLAIN, "/* COMMIT */ SELECT 1", "-- COMMIT\nSELECT 1",
		"/* /* */ COMMIT */ SELECT 1", "/* COMMIT", "-- COMMIT", "/* /* COMMIT */", "", " ",
		";", "--", "/*", "/", "-");
}
END_TEST

START_TEST(a_word_that_only_begins_like_a_verb_is_none)
{
	ALL_ARE(DB_VERB_PLAIN, "beginning", "begin_work()", "commits", "COMMIT2", "ending", "end_1",
		"aborted", "starting", "settings", "rollbacks", "prepared", "calls", "doing",
		"loader", "resets", "END\xc3\xa9");
}
END_TEST

START_TEST(savepoints_are_the_handlers_own)
{
	ALL_ARE(DB_VERB_PLAIN, "SAVEPOINT a", "RELEASE a", "RELEASE SAVEPOINT a", "ROLLBACK TO a",
		"rollback to savepoint a", "ROLLBACK WORK TO SAVEPOINT a",
		"ROLLBACK TRANSACTION TO a", "ROLLBACK/* all of it */TO a",
		"ROLLBACK -- work\nTO a");
	ALL_ARE(DB_VERB_CONTROL, "ROLLBACK TOMORROW", "ROLLBACK TRANSACTION WORK TO a");
}
END_TEST

START_TEST(plain_statements_leave_nothing_behind)
{
	ALL_ARE(DB_VERB_PLAIN, "SELECT 1", "INSERT INTO t VALUES ($1)", "UPDATE t SET a = 1",
		"WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x",
		"WITH commit AS (DELETE FROM t RETURNING *) SELECT * FROM commit",
		"(SELECT 1) UNION (SELECT 2)", "VALUES (1)", "TABLE t",
		"MERGE INTO t USING s ON true WHEN MATCHED THEN DELETE", "CREATE TABLE t (a int)",
		"NOTIFY c, 'x'", "LOCK TABLE t", "TRUNCATE t", "SELECT 'x'; -- COMMIT");
}
END_TEST

START_TEST(local_settings_end_with_the_transaction)
{
	ALL_ARE(DB_VERB_PLAIN, "SET LOCAL work_mem = '1GB'", "set local statement_timeout to 0",
		"SET/**/LOCAL lock_timeout = 1", "SET LOCAL role x",
		"SET LOCAL transactional.x = 1", "SET CONSTRAINTS ALL DEFERRED",
		"set constraints a, b immediate");
}
END_TEST

START_TEST(what_the_transaction_is_cannot_be_set_by_any_spelling)
{
	ALL_ARE(DB_VERB_CONTROL, "SET TRANSACTION READ ONLY",
		"set transaction isolation level serializable", "SET LOCAL TRANSACTION READ ONLY",
		"SET SESSION TRANSACTION READ WRITE",
		"SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
		"SET LOCAL SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
		"SET transaction_read_only = on", "SET LOCAL transaction_read_only TO on",
		"SET LOCAL \"transaction_read_only\" TO on",
		"SET transaction_isolation = 'serializable'",
		"SET SESSION transaction_deferrable = on", "SET -- local\nTRANSACTION READ ONLY");
}
END_TEST

START_TEST(session_state_is_noticed)
{
	ALL_ARE(DB_VERB_STATE, "SET work_mem = '1GB'", "SET SESSION work_mem = 1",
		"SET TIME ZONE 'UTC'", "SET search_path = x", "SET ROLE x",
		"SET SESSION AUTHORIZATION x", "RESET ALL", "RESET work_mem", "DISCARD ALL",
		"LISTEN c", "UNLISTEN *", "PREPARE p AS SELECT 1", "DEALLOCATE p",
		"DECLARE c CURSOR WITH HOLD FOR SELECT 1", "LOAD 'x'", "DO $$ BEGIN END $$",
		"CALL p()", "CREATE TEMP TABLE t (a int)", "create temporary table t ()",
		"SELECT 1 INTO TEMP t", "CREATE\nTEMP\nTABLE t ()", "CREATE TABLE pg_temp.t ()",
		"SELECT pg_advisory_lock(1)", "SELECT pg_try_advisory_lock_shared(1)",
		"SELECT set_config('a.b', 'c', false)", "SELECT dblink_connect('x')",
		"SET LOCALE = 1");
}
END_TEST

START_TEST(an_attempt_is_no_temporary_table)
{
	ALL_ARE(DB_VERB_PLAIN, "UPDATE job SET attempts = attempts + 1", "SELECT * FROM template",
		"SELECT temperature, temp_c FROM weather", "INSERT INTO contempt VALUES (1)",
		"UPDATE a SET b = 1 WHERE temporary_until < now()");
}
END_TEST

/* ---- SQLSTATE -------------------------------------------------------------------------------- */

static void classes_are(enum rc rc, const char *const *states, size_t n)
{
	for (size_t i = 0; i < n; i++)
		ck_assert_msg(db_error_class(states[i]) == rc, "%s is %s, not %s", states[i],
			rc_name(db_error_class(states[i])), rc_name(rc));
}
#define CLASSES_ARE(rc, ...)                                                  \
	do {                                                                  \
		static const char *const states_[] = {__VA_ARGS__};           \
		classes_are(rc, states_, sizeof states_ / sizeof states_[0]); \
	} while (0)

START_TEST(data_errors_reject_the_message)
{
	CLASSES_ARE(RC_REJECT, "22001", "22003", "22007", "22012", "22021", "22P02", "22P05",
		"23000", "23001", "23502", "23505", "23514", "23P01");
}
END_TEST

START_TEST(a_missing_foreign_key_may_still_arrive)
{
	CLASSES_ARE(RC_RETRY, "23503");
}
END_TEST

START_TEST(a_server_that_lacks_something_is_not_the_messages_fault)
{
	CLASSES_ARE(RC_UNAVAILABLE, "08000", "08001", "08003", "08006", "08P01", "53000", "53100",
		"53200", "53300", "57P01", "57P02", "57P03", "57P04", "57P05", "25006", "58000",
		"58030", "F0000", "28000", "28P01", "3D000");
}
END_TEST

START_TEST(everything_else_is_tried_again)
{
	CLASSES_ARE(RC_RETRY, "40001", "40P01", "57014", "57000", "42P01", "42501", "42601",
		"P0001", "XX000", "25P02", "25001", "2D000", "54000", "55P03", "0A000", "",
		"99999");
}
END_TEST

START_TEST(a_statement_that_is_too_greedy_stops_no_other)
{
	CLASSES_ARE(RC_RETRY, "53400");
}
END_TEST

/* RAISE lends any code to anybody, and dblink speaks of the server it talked to. */
START_TEST(only_what_the_server_says_of_itself_is_believed_of_it)
{
	static const char *const its_own[] = {"53100", "53200", "25006", "58030", "57P01"};
	static const char *const elsewhere[] = {"08001", "08006", "28P01", "3D000", "F0000"};
	for (size_t i = 0; i < 5; i++) {
		ck_assert_int_eq(db_error_class_of_statement(its_own[i], "mdextend"), RC_UNAVAILABLE);
		ck_assert_int_eq(db_error_class_of_statement(its_own[i], NULL), RC_UNAVAILABLE);
		ck_assert_int_eq(db_error_class_of_statement(its_own[i], "exec_stmt_raise"), RC_RETRY);
		ck_assert_int_eq(db_error_class_of_statement(elsewhere[i], "dblink_connect"), RC_RETRY);
	}
	ck_assert_int_eq(db_error_class_of_statement("22000", "exec_stmt_raise"), RC_REJECT);
}
END_TEST

START_TEST(the_configuration_has_the_first_word_and_the_whole_code_before_its_class)
{
	struct config_sqlstate some[] = {
		{"23", false}, {"23505", true}, {"P0", true}, {"P0002", false}, {"53100", false}};
	const struct config_consumer with = {.sqlstates = some, .n_sqlstates = 5}, without = {0};
	static const struct {
		const char *state;
		enum rc with, without;
	} states[] = {
		{"23505", RC_REJECT, RC_REJECT},
		{"23502", RC_RETRY, RC_REJECT},
		{"23503", RC_RETRY, RC_RETRY},
		{"P0001", RC_REJECT, RC_RETRY},
		{"P0002", RC_RETRY, RC_RETRY},
		{"53100", RC_RETRY, RC_UNAVAILABLE},
		{"53200", RC_UNAVAILABLE, RC_UNAVAILABLE},
		{"22012", RC_REJECT, RC_REJECT},
		{"", RC_RETRY, RC_RETRY},
	};
	for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
		ck_assert_msg(db_error_class_of(&with, states[i].state,
				      db_error_class(states[i].state)) == states[i].with, "%s",
			states[i].state);
		ck_assert_msg(db_error_class_of(&without, states[i].state,
				      db_error_class(states[i].state)) == states[i].without,
			"%s", states[i].state);
	}
}
END_TEST

START_TEST(only_conflicts_between_transactions_run_again_at_once)
{
	ck_assert(db_error_is_serialization("40001"));
	ck_assert(db_error_is_serialization("40P01"));
	ck_assert(!db_error_is_serialization("40002"));
	ck_assert(!db_error_is_serialization("57014"));
	ck_assert(!db_error_is_serialization("55P03"));
	ck_assert(!db_error_is_serialization(""));
}
END_TEST

UNIT_SUITE("db/classify", whatever_ends_or_begins_a_transaction_is_refused, nothing_hides_a_verb,
	a_comment_hides_what_is_inside_it, a_word_that_only_begins_like_a_verb_is_none,
	savepoints_are_the_handlers_own, plain_statements_leave_nothing_behind,
	local_settings_end_with_the_transaction,
	what_the_transaction_is_cannot_be_set_by_any_spelling, session_state_is_noticed,
	an_attempt_is_no_temporary_table, data_errors_reject_the_message,
	a_missing_foreign_key_may_still_arrive,
	a_server_that_lacks_something_is_not_the_messages_fault, everything_else_is_tried_again,
	a_statement_that_is_too_greedy_stops_no_other,
	only_what_the_server_says_of_itself_is_believed_of_it,
	the_configuration_has_the_first_word_and_the_whole_code_before_its_class,
	only_conflicts_between_transactions_run_again_at_once)

/* SPDX-License-Identifier: MIT */
#define INBOXD_HANDLER_NAME sql_handler
#include <inboxd/testkit.h>

#include "handlers/sql.c"

#include "unit.h"

static struct inboxd_test *with_options(const char *const *pairs)
{
	struct inboxd_test *t = inboxd_test_new(&sql_handler);
	for (; pairs[0] != NULL; pairs += 2)
		inboxd_test_option(t, pairs[0], pairs[1]);
	return t;
}

/* Paths and values; ready for messages. */
#define opened(...) open_sql((const char *const[]){__VA_ARGS__, NULL})

static struct inboxd_test *open_sql(const char *const *pairs)
{
	struct inboxd_test *t = with_options(pairs);
	ck_assert_msg(inboxd_test_check(t) == INBOXD_DONE, "%s", t->errors);
	ck_assert_msg(inboxd_test_open(t) == INBOXD_DONE, "%s", t->errors);
	t->n_statements = 0; /* those of open */
	return t;
}

/* What check, or else open, complains about. */
#define complains(part_, ...) complains_of(part_, (const char *const[]){__VA_ARGS__, NULL})

static void complains_of(const char *part, const char *const *pairs)
{
	struct inboxd_test *t = with_options(pairs);
	if (inboxd_test_check(t) == INBOXD_DONE)
		ck_assert_int_eq(inboxd_test_open(t), INBOXD_REJECT);
	ck_assert_msg(strstr(t->errors, part) != NULL, "%s", t->errors);
	inboxd_test_free(t);
}

START_TEST(binds_the_body_unless_told_otherwise)
{
	struct inboxd_test *t = opened("statement", "INSERT INTO t VALUES ($1)");
	ck_assert_int_eq(inboxd_test_handle(inboxd_test_message(t, "hello")), INBOXD_DONE);
	ck_assert_str_eq(t->statements[0].how, "queue");
	ck_assert_uint_eq(t->statements[0].n, 1);
	ck_assert(inboxd_is(t->statements[0].args[0], "hello"));
	inboxd_test_free(t);
}
END_TEST

START_TEST(a_statement_may_take_nothing)
{
	struct inboxd_test *t = opened("statement", "INSERT INTO ticks DEFAULT VALUES");
	ck_assert_int_eq(inboxd_test_handle(inboxd_test_message(t, "hello")), INBOXD_DONE);
	ck_assert_uint_eq(t->statements[0].n, 0);
	inboxd_test_free(t);
}
END_TEST

START_TEST(takes_parameters_in_order_and_what_is_missing_as_null)
{
	struct inboxd_test *t = opened("statement", "INSERT INTO t VALUES ($1, $2, $3, $4)",
		"parameters/0", "json:/b/0", "parameters/1", "header:tenant", "parameters/2",
		"json:/nothing", "parameters/3", "json:/null");
	struct inboxd_call *m = inboxd_test_message(t, "{\"b\": [1e400], \"null\": null}");
	inboxd_test_header(m, "tenant", "acme");
	ck_assert_int_eq(inboxd_test_handle(m), INBOXD_DONE);
	const struct inboxd_value *args = t->statements[0].args;
	ck_assert(inboxd_is(args[0], "1e400"));
	ck_assert(inboxd_is(args[1], "acme"));
	ck_assert_ptr_null(args[2].data);
	ck_assert_ptr_null(args[3].data);
	inboxd_test_free(t);
}
END_TEST

START_TEST(one_parameter_needs_no_list)
{
	struct inboxd_test *t =
		opened("statement", "INSERT INTO t VALUES ($1)", "parameters", "property:type");
	struct inboxd_call *m = inboxd_test_message(t, "");
	inboxd_test_property(m, "type", "created");
	ck_assert_int_eq(inboxd_test_handle(m), INBOXD_DONE);
	ck_assert(inboxd_is(t->statements[0].args[0], "created"));
	inboxd_test_free(t);
}
END_TEST

START_TEST(runs_several_statements_with_their_own_parameters_or_shared_ones)
{
	struct inboxd_test *t = opened("statements/0/statement", "INSERT INTO a VALUES ($1)",
		"statements/0/parameters/0", "routing_key", "statements/1",
		"INSERT INTO b VALUES ($1)", "statements/2", "INSERT INTO c VALUES ($1, $2)",
		"parameters/0", "json:/x", "parameters/1", "json:/y");
	struct inboxd_call *m = inboxd_test_message(t, "{\"x\": 1, \"y\": 2}");
	inboxd_test_property(m, "routing_key", "key");
	ck_assert_int_eq(inboxd_test_handle(m), INBOXD_DONE);
	ck_assert_uint_eq(t->n_statements, 3);
	ck_assert(inboxd_is(t->statements[0].args[0], "key"));
	ck_assert_uint_eq(t->statements[1].n, 1);
	ck_assert(inboxd_is(t->statements[1].args[0], "1"));
	ck_assert(inboxd_is(t->statements[2].args[1], "2"));
	inboxd_test_free(t);
}
END_TEST

START_TEST(rows_touched_decide_where_that_is_wanted)
{
	struct inboxd_test *t = opened("statement", "UPDATE t SET x = 1", "on_no_rows", "retry");
	struct inboxd_call *m = inboxd_test_message(t, "");
	ck_assert_int_eq(inboxd_test_handle(m), INBOXD_DONE);
	ck_assert_str_eq(t->statements[0].how, "exec");
	inboxd_test_affected(t, "UPDATE t", 0);
	ck_assert_int_eq(inboxd_test_handle(m), INBOXD_RETRY);
	ck_assert_str_eq(m->reason, "statement touched no row");
	inboxd_test_free(t);

	t = opened("statements/0", "INSERT INTO log DEFAULT VALUES", "statements/1/statement",
		"UPDATE t SET x = 1", "statements/1/on_no_rows", "reject");
	inboxd_test_affected(t, "INSERT", 0);
	inboxd_test_affected(t, "UPDATE", 0);
	m = inboxd_test_message(t, "");
	ck_assert_int_eq(inboxd_test_handle(m), INBOXD_REJECT);
	ck_assert_str_eq(m->reason, "statements/1/statement touched no row");
	inboxd_test_free(t);
}
END_TEST

START_TEST(a_batch_goes_on_without_a_message_that_is_garbage)
{
	struct inboxd_test *t =
		opened("statement", "INSERT INTO t VALUES ($1)", "parameters/0", "json:/x");
	struct inboxd_call *first = inboxd_test_message(t, "{\"x\": 1}");
	struct inboxd_call *garbage = inboxd_test_message(t, "garbage {");
	struct inboxd_call *last = inboxd_test_message(t, "{\"x\": 3}");
	ck_assert_int_eq(inboxd_test_handle_batch(t), INBOXD_DONE);
	ck_assert_int_eq(first->verdict, INBOXD_DONE);
	ck_assert_int_eq(garbage->verdict, INBOXD_REJECT);
	ck_assert_int_eq(last->verdict, INBOXD_DONE);
	ck_assert_uint_eq(t->n_statements, 2);
	ck_assert_ptr_eq(t->statements[1].message, last);
	inboxd_test_free(t);
}
END_TEST

START_TEST(a_batch_that_looks_at_rows_stops_at_the_one_that_has_none)
{
	struct inboxd_test *t = opened("statement", "UPDATE t SET x = 1", "on_no_rows", "reject");
	(void)inboxd_test_message(t, "1");
	(void)inboxd_test_message(t, "2");
	inboxd_test_affected(t, "UPDATE", 0);
	ck_assert_int_eq(inboxd_test_handle_batch(t), INBOXD_REJECT);
	ck_assert_uint_eq(t->n_statements, 1);
	inboxd_test_free(t);
}
END_TEST

/* As if the database knew table t, with an integer column and one of type bpchar. */
static struct inboxd_test *open_set_on(const char *statement)
{
	const char *const pairs[] = {
		"statement", statement, "parameters/0", "json:/x", "parameters/1", "json:/y", NULL};
	struct inboxd_test *t = with_options(pairs);
	inboxd_test_rows(t, "WITH safe", 1, 1, (const char *const[]){"4711"});
	inboxd_test_rows(t, "SELECT pg_catalog.format_type", 1, 2,
		(const char *const[]){"integer[]", "bpchar[]"});
	ck_assert_int_eq(inboxd_test_open(t), INBOXD_DONE);
	t->n_statements = 0;
	return t;
}

START_TEST(a_batch_of_plain_inserts_is_one_statement_with_arrays)
{
	struct inboxd_test *t = open_set_on(
		"insert INTO s.\"a \"\"b\" (y, x)\nVALUES ( $2,$1 ) ON CONFLICT (x) DO NOTHING;");
	(void)inboxd_test_message(t, "{\"x\": 1, \"y\": \"\"}");
	(void)inboxd_test_message(t, "{\"x\": 2, \"y\": null}");
	struct inboxd_call *garbage = inboxd_test_message(t, "garbage {");
	(void)inboxd_test_message(t, "{\"y\": \"a\\\\\\\"b,{NULL}\"}");
	(void)inboxd_test_message(t, "{\"x\": 3, \"y\": \"NULL\"}");
	ck_assert_int_eq(inboxd_test_handle_batch(t), INBOXD_DONE);
	ck_assert_int_eq(garbage->verdict, INBOXD_REJECT);
	ck_assert_uint_eq(t->n_statements, 1);
	ck_assert_msg(
		strncmp(t->statements[0].sql,
			"insert INTO s.\"a \"\"b\" (y, x) SELECT u.p2, u.p1 FROM ROWS FROM "
			"(pg_catalog.unnest($1::integer[]), pg_catalog.unnest($2::bpchar[])) "
			"AS u (p1, p2) WHERE ",
			strlen("insert INTO s.\"a \"\"b\" (y, x) SELECT u.p2, u.p1 FROM ROWS FROM "
			       "(pg_catalog.unnest($1::integer[]), "
			       "pg_catalog.unnest($2::bpchar[])) "
			       "AS u (p1, p2) WHERE ")) == 0,
		"%s", t->statements[0].sql);
	ck_assert_ptr_nonnull(strstr(t->statements[0].sql, "c.oid = 4711 "));
	ck_assert_ptr_nonnull(strstr(t->statements[0].sql, ") = 1 ON CONFLICT (x) DO NOTHING"));
	ck_assert_ptr_null(strchr(t->statements[0].sql, ';'));
	ck_assert(inboxd_is(t->statements[0].args[0], "{\"1\",\"2\",NULL,\"3\"}"));
	ck_assert(
		inboxd_is(t->statements[0].args[1], "{\"\",NULL,\"a\\\\\\\"b,{NULL}\",\"NULL\"}"));
	inboxd_test_free(t);
}
END_TEST

START_TEST(what_is_more_than_a_plain_insert_stays_as_it_is)
{
	static const char *const others[] = {
		"INSERT INTO t VALUES ($1, $2) RETURNING x",
		"INSERT INTO t VALUES ($1, $2), ($1, $2)",
		"INSERT INTO t VALUES ($1, $2::text)",
		"INSERT INTO t VALUES ($1, lower($2))",
		"INSERT INTO t VALUES ($1, $2, DEFAULT)",
		"INSERT INTO t VALUES ($1, $2, $1)",
		"INSERT INTO t AS u VALUES ($1, $2)",
		"INSERT INTO t (a[1], b) VALUES ($1, $2)",
		"INSERT INTO t (a, b) OVERRIDING SYSTEM VALUE VALUES ($1, $2)",
		"INSERT INTO t VALUES ($1, $2) ON CONFLICT (x) DO UPDATE SET y = $2",
		"INSERT INTO t VALUES ($1, $2) ON CONFLICT (lower(x)) DO NOTHING",
		"INSERT INTO t VALUES ($1, $2) ON CONFLICT (x) WHERE y DO NOTHING",
		"INSERT INTO t /* so */ VALUES ($1, $2)",
		"INSERT INTO U&\"t\" VALUES ($1, $2)",
		"INSERT INTO t SELECT $1, $2",
		"WITH x AS (SELECT 1) INSERT INTO t VALUES ($1, $2)",
		"UPDATE t SET x = $1 WHERE y = $2",
	};
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
		struct inboxd_test *t = open_set_on(others[i]);
		(void)inboxd_test_message(t, "{\"x\": 1, \"y\": 2}");
		(void)inboxd_test_message(t, "{\"x\": 2, \"y\": 3}");
		ck_assert_int_eq(inboxd_test_handle_batch(t), INBOXD_DONE);
		ck_assert_msg(t->n_statements == 2, "%s", others[i]);
		ck_assert_str_eq(t->statements[1].sql, others[i]);
		inboxd_test_free(t);
	}
}
END_TEST

START_TEST(arrays_end_at_a_mebibyte_and_what_is_larger_travels_by_itself)
{
	static char large[(1 << 20) + 100], half[(1 << 19) + 100];
	struct inboxd_test *t = open_set_on("INSERT INTO t VALUES ($1, $2)");
	(void)snprintf(large, sizeof large, "{\"y\": \"%0*d\"}", (1 << 20) + 1, 0);
	(void)snprintf(half, sizeof half, "{\"y\": \"%0*d\"}", 1 << 19, 0);
	(void)inboxd_test_message(t, "{\"y\": 1}");
	struct inboxd_call *alone = inboxd_test_message(t, large);
	for (int i = 0; i < 3; i++)
		(void)inboxd_test_message(t, half);
	ck_assert_int_eq(inboxd_test_handle_batch(t), INBOXD_DONE);
	ck_assert_uint_eq(t->n_statements, 4);
	ck_assert(inboxd_is(t->statements[0].args[1], "{\"1\"}"));
	ck_assert_ptr_eq(t->statements[1].message, alone);
	ck_assert_str_eq(t->statements[1].sql, "INSERT INTO t VALUES ($1, $2)");
	ck_assert_uint_gt(t->statements[2].args[1].size, 1 << 20);
	ck_assert_uint_lt(t->statements[3].args[1].size, 1 << 20);
	inboxd_test_free(t);
}
END_TEST

START_TEST(wrong_options_are_reported_at_their_places)
{
	complains("the sql handler needs a statement", "on_no_rows", "done");
	complains("exclude each other", "statement", "SELECT 1", "statements/0", "SELECT 1");
	complains("statements: statements is a list", "statements", "SELECT 1");
	complains("statements: statements is a list", "statements/statement", "SELECT 1");
	complains("statment: ", "statment", "SELECT 1");
	complains("statements/0/parameter: ", "statements/0/statement", "SELECT 1",
		"statements/0/parameter", "body");
	complains(
		"statements/0/statement: a statement is a text", "statements/0/on_no_rows", "done");
	complains("statement: the transaction belongs to inboxd", "statement", "commit");
	complains("parameters/1: no source", "statement", "SELECT $1, $2", "parameters/0", "body",
		"parameters/1", "jason:/x");
	complains(
		"cloudevents is two values", "statement", "SELECT $1", "parameters", "cloudevents");
	complains("on_no_rows: on_no_rows is done, retry or reject", "statement", "SELECT 1",
		"on_no_rows", "duplicate");
}
END_TEST

START_TEST(parameters_must_be_as_many_as_the_statement_takes)
{
	complains("takes 2 parameters: name their sources", "statement", "SELECT $1, $2");
	complains("takes 1 parameters, 2 sources are given", "statement", "SELECT $1",
		"parameters/0", "body", "parameters/1", "body");
	complains("statements/1: the statement takes 3 parameters, 2 sources are given",
		"statements/0", "SELECT $1", "statements/1", "SELECT $3", "parameters/0", "body",
		"parameters/1", "body");
}
END_TEST

UNIT_SUITE("handlers/sql", binds_the_body_unless_told_otherwise, a_statement_may_take_nothing,
	takes_parameters_in_order_and_what_is_missing_as_null, one_parameter_needs_no_list,
	runs_several_statements_with_their_own_parameters_or_shared_ones,
	rows_touched_decide_where_that_is_wanted, a_batch_goes_on_without_a_message_that_is_garbage,
	a_batch_that_looks_at_rows_stops_at_the_one_that_has_none,
	a_batch_of_plain_inserts_is_one_statement_with_arrays,
	what_is_more_than_a_plain_insert_stays_as_it_is,
	arrays_end_at_a_mebibyte_and_what_is_larger_travels_by_itself,
	wrong_options_are_reported_at_their_places,
	parameters_must_be_as_many_as_the_statement_takes)

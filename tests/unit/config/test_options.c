/* SPDX-License-Identifier: MIT */
#include "config/options.h"

#include "fixture.h"
#include "unit.h"

#include <stdlib.h>

static const char *get(const struct config *c, const char *path)
{
	return (const char *)options_get(c->consumers[0]->options, path).data;
}

static const char *name(const struct config *c, const char *path, uint32_t i)
{
	return (const char *)options_name(c->consumers[0]->options, path, i).data;
}

static uint32_t count(const struct config *c, const char *path)
{
	return options_count(c->consumers[0]->options, path);
}

START_TEST(finds_values_by_names_and_indexes)
{
	struct config *c = config_of(CONSUMER("    options:\n"
					      "      statement: SELECT 1\n"
					      "      parameters: [json:/id, [a, b], {x: y}]\n"
					      "      limits: {daily: 010, none: ~, empty: \"\"}\n"
					      "      a/b: {c~d: 1, \"\": 2}\n"));
	ck_assert_str_eq(get(c, "statement"), "SELECT 1");
	ck_assert_str_eq(get(c, "parameters/0"), "json:/id");
	ck_assert_str_eq(get(c, "parameters/1/1"), "b");
	ck_assert_str_eq(get(c, "parameters/2/x"), "y");
	ck_assert_str_eq(get(c, "limits/daily"), "010");
	ck_assert_str_eq(get(c, "limits/empty"), "");
	ck_assert_str_eq(get(c, "a~1b/c~0d"), "1");
	ck_assert_str_eq(get(c, "a~1b/"), "2");
	config_free(c);
}
END_TEST

START_TEST(has_nothing_where_there_is_no_scalar)
{
	struct config *c = config_of(CONSUMER("    options: {l: [a], m: {n: ~}, s: x}\n"));
	static const char *const paths[] = {"", "l", "m", "m/n", "x", "l/1", "l/-1", "l/00", "l/x",
		"l/", "l/0/0", "s/0", "l/99999999999999999999999", "/l", "l~"};
	for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
		ck_assert_msg(get(c, paths[i]) == NULL, "%s", paths[i]);
	config_free(c);
}
END_TEST

START_TEST(counts_and_names_entries)
{
	struct config *c =
		config_of(CONSUMER("    options: {l: [a, b], m: {y: 1, x: ~}, s: x, n: null}\n"));
	ck_assert_uint_eq(count(c, ""), 4);
	ck_assert_uint_eq(count(c, "l"), 2);
	ck_assert_uint_eq(count(c, "m"), 2);
	ck_assert_uint_eq(count(c, "s"), 1);
	ck_assert_uint_eq(count(c, "n"), 0);
	ck_assert_uint_eq(count(c, "m/x"), 0);
	ck_assert_uint_eq(count(c, "nothing"), 0);
	ck_assert_str_eq(name(c, "", 0), "l");
	ck_assert_str_eq(name(c, "m", 0), "y"); /* in the order of the file */
	ck_assert_str_eq(name(c, "m", 1), "x");
	ck_assert_ptr_null(name(c, "m", 2));
	ck_assert_ptr_null(name(c, "l", 0));
	ck_assert_ptr_null(name(c, "s", 0));
	config_free(c);
}
END_TEST

START_TEST(places_a_handlers_errors_in_the_file)
{
	struct fixture f;
	fixture_open(&f, CONSUMER("    options:\n      parameters: [json:/id, nonsense]\n"));
	ck_assert_ptr_nonnull(f.config);
	const struct config_consumer *c = f.config->consumers[0];
	config_option_error(c, "parameters/1", "no such source", &f.errors);
	config_option_error(c, "statement", "is missing", &f.errors);
	config_option_error(c, "", "are wrong", &f.errors);
	config_option_error(c, "parameters/7/x", "is wrong", &f.errors);
	char *path = f.config->path;
	char *expected = xasprintf(
		"%s:6:30: consumers.orders.options.parameters.1: no such source\n"
		"        parameters: [json:/id, nonsense]\n"
		"                               ^\n"
		"%s:5:5: consumers.orders.options.statement: is missing\n      options:\n      ^\n"
		"%s:5:5: consumers.orders.options: are wrong\n      options:\n      ^\n"
		"%s:6:19: consumers.orders.options.parameters.7.x: is wrong\n"
		"        parameters: [json:/id, nonsense]\n"
		"                    ^\n",
		path, path, path, path);
	ck_assert_str_eq(buf_str(&f.errors), expected);
	free(expected);
	fixture_done(&f);
}
END_TEST

START_TEST(places_errors_of_options_that_do_not_stand_there_at_the_consumer)
{
	struct fixture f;
	fixture_open(&f, CONSUMER(""));
	config_option_error(f.config->consumers[0], "statement", "is missing", &f.errors);
	ck_assert_ptr_nonnull(strstr(buf_str(&f.errors),
		"inboxd.yaml:2:3: consumers.orders.options.statement: is missing\n    orders:\n    "
		"^\n"));
	fixture_done(&f);
}
END_TEST

START_TEST(places_errors_that_others_find_in_brokers_databases_and_consumers)
{
	struct fixture f;
	fixture_open(&f, "broker:\n  uri: [amqp://a, amqp://b:x@c]\n" CONSUMER(""));
	ck_assert_ptr_nonnull(f.config);
	config_error(f.config->brokers[0]->origin, "uri", 1, "no such port", &f.errors);
	config_error(f.config->databases[0]->origin, "conninfo", 0, "no such host", &f.errors);
	config_error(f.config->consumers[0]->origin, "handler", 0, "no such file", &f.errors);
	char *path = f.config->path;
	char *expected =
		xasprintf("%s:2:19: broker.uri: no such port\n"
			  "    uri: [amqp://a, amqp://b:********@c]\n"
			  "                    ^\n"
			  "%s:1:1: database.conninfo: no such host\n  broker:\n  ^\n"
			  "%s:6:14: consumers.orders.handler: no such file\n      handler: sql\n"
			  "               ^\n",
			path, path, path);
	ck_assert_str_eq(buf_str(&f.errors), expected);
	free(expected);
	fixture_done(&f);
}
END_TEST

UNIT_SUITE("config/options", finds_values_by_names_and_indexes,
	has_nothing_where_there_is_no_scalar, counts_and_names_entries,
	places_a_handlers_errors_in_the_file,
	places_errors_of_options_that_do_not_stand_there_at_the_consumer,
	places_errors_that_others_find_in_brokers_databases_and_consumers)

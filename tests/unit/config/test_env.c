/* SPDX-License-Identifier: MIT */
#include "config/env.h"

#include "config/options.h"
#include "fixture.h"
#include "unit.h"

#include <stdlib.h>

static void expect_option(const char *written, const char *value)
{
	char *text = xasprintf(CONSUMER("    options:\n      o: %s\n"), written);
	struct config *c = config_of(text);
	struct bytes got = options_get(c->consumers[0]->options, "o");
	ck_assert_ptr_nonnull(got.data);
	ck_assert_str_eq((const char *)got.data, value);
	config_free(c);
	free(text);
}

/* An error in the option `o`, whose value begins at 6:10. */
static void expect_refusal(const char *written, uint32_t column, const char *what)
{
	struct fixture f;
	char *text = xasprintf(CONSUMER("    options:\n      o: %s\n"), written);
	char *first = xasprintf("inboxd.yaml:6:%u: %s\n", column, what);
	fixture_open(&f, text);
	ck_assert_ptr_null(f.config);
	ck_assert_msg(strncmp(buf_str(&f.errors), first, strlen(first)) == 0, "%s is not %s",
		buf_str(&f.errors), first);
	ck_assert_ptr_nonnull(strstr(buf_str(&f.errors), "  hint: "));
	fixture_done(&f);
	free(first);
	free(text);
}

START_TEST(puts_variables_into_values_in_every_style)
{
	ck_assert_int_eq(setenv("T_A", "one", 1), 0);
	ck_assert_int_eq(setenv("T_EMPTY", "", 1), 0);
	(void)unsetenv("T_NONE");
	expect_option("${T_A}", "one");
	expect_option("x${T_A}y${T_A}", "xoneyone");
	expect_option("\"a: ${T_A}\"", "a: one");
	expect_option("'${T_A}'", "one");
	expect_option("|\n        ${T_A}\n", "one\n");
	expect_option("${T_A:-two}", "one");
	expect_option("${T_NONE:-two}", "two");
	expect_option("${T_EMPTY:-two}", "two");
	expect_option("x${T_EMPTY}y", "xy");
	expect_option("x${T_NONE:-}y", "xy");
	expect_option("${T_NONE:-a:-b}", "a:-b");
}
END_TEST

START_TEST(leaves_everything_else_with_a_dollar_alone)
{
	expect_option("SELECT $1, $2", "SELECT $1, $2");
	expect_option("$T_A $ $$ $$1 $", "$T_A $ $$ $$1 $");
	expect_option("$${T_A}", "${T_A}");
	expect_option("$$${T_A}", "$${T_A}");
	expect_option("\"{$}\"", "{$}");
}
END_TEST

START_TEST(never_reads_what_it_put_in_as_yaml_or_as_a_variable)
{
	static const char *const texts[] = {"[a, b]", "{a: b}", "~", "null", "# no", "a: b",
		"\"x\"", "*x", "!t", "${T_B}", "$${T_B}", "x\ny", "- a"};
	ck_assert_int_eq(setenv("T_B", "no", 1), 0);
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		ck_assert_int_eq(setenv("T_A", texts[i], 1), 0);
		expect_option("${T_A}", texts[i]);
	}
}
END_TEST

START_TEST(refuses_what_is_not_set_or_not_well_formed_at_its_very_place)
{
	(void)unsetenv("T_NONE");
	ck_assert_int_eq(setenv("T_BAD", "\xff", 1), 0);
	expect_refusal("a ${T_NONE}", 12, "environment variable T_NONE is not set");
	expect_refusal("\"a ${T_NONE}\"", 13, "environment variable T_NONE is not set");
	expect_refusal("\"\\x20 ${T_NONE}\"", 10, "environment variable T_NONE is not set");
	expect_refusal("${T_BAD}", 10, "environment variable T_BAD is not UTF-8");
	expect_refusal("ab${T_A", 12, "\"${\" without its \"}\"");
	expect_refusal("${}", 10, "no name of an environment variable behind \"${\"");
	expect_refusal("${1A}", 10, "no name of an environment variable behind \"${\"");
	expect_refusal("${T-A}", 10, "no name of an environment variable behind \"${\"");
	expect_refusal("${T_A:x}", 10, "no name of an environment variable behind \"${\"");
	expect_refusal("${T_NONE:-${T_A}}", 10, "a default cannot hold a variable itself");
}
END_TEST

START_TEST(puts_nothing_into_names)
{
	ck_assert_int_eq(setenv("T_A", "one", 1), 0);
	struct config *c = config_of(CONSUMER("    options:\n      \"${T_A}\": x\n"));
	ck_assert_str_eq(
		(const char *)options_name(c->consumers[0]->options, "", 0).data, "${T_A}");
	config_free(c);
}
END_TEST

START_TEST(remembers_the_variables_that_were_put_in)
{
	ck_assert_int_eq(setenv("T_A", "one", 1), 0);
	ck_assert_int_eq(setenv("T_B", "two", 1), 0);
	(void)unsetenv("T_NONE");
	struct config *c = config_of(CONSUMER("    options: {a: \"${T_B}\", b: \"${T_A}${T_B}\", "
					      "c: \"${T_NONE:-}\", d: \"$${T_C}\"}\n"));
	ck_assert_uint_eq(c->env_used.n, 2);
	ck_assert_str_eq(c->env_used.items[0], "T_A");
	ck_assert_str_eq(c->env_used.items[1], "T_B");
	config_free(c);
}
END_TEST

START_TEST(shows_the_variable_and_not_its_value_in_errors)
{
	ck_assert_int_eq(setenv("T_A", "sesame", 1), 0);
	expect_errors(CONSUMER("    workers: ${T_A}\n"),
		"inboxd.yaml:5:14: consumers.orders.workers must be a whole number from 1 to 64, "
		"not "
		"\"${T_A}\" with the variable's value\n"
		"      workers: ${T_A}\n"
		"               ^\n"
		"  hint: write decimal digits alone\n");
}
END_TEST

START_TEST(escapes_so_that_reading_gives_the_text_back)
{
	static const char *const texts[] = {
		"${A}", "$${A}", "$$${A}", "$", "$$", "${", "$${", "a$1", ""};
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		struct buf out = {0};
		env_escape(texts[i], &out);
		char *quoted = xasprintf("'%s'", buf_str(&out));
		expect_option(quoted, texts[i]);
		free(quoted);
		buf_done(&out);
	}
}
END_TEST

UNIT_SUITE("config/env", puts_variables_into_values_in_every_style,
	leaves_everything_else_with_a_dollar_alone,
	never_reads_what_it_put_in_as_yaml_or_as_a_variable,
	refuses_what_is_not_set_or_not_well_formed_at_its_very_place, puts_nothing_into_names,
	remembers_the_variables_that_were_put_in, shows_the_variable_and_not_its_value_in_errors,
	escapes_so_that_reading_gives_the_text_back)

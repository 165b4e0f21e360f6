/* SPDX-License-Identifier: MIT */
#include "ctl/ctl.h"

#include <getopt.h>
#include <stdlib.h>

#include "base/fd.h"
#include "unit.h"

static const struct ctl_option options[] = {
	{'m', "message", "TEXT", "the body"}, {0x100, "dry", NULL, "only look"}};
static const struct ctl_command command = {.name = "demo",
	.operands = "NAME",
	.summary = "Shows how",
	.details = "And why.",
	.options = options,
	.n_options = 2};

/* Runs the options of argv; what was taken goes to out as text. */
static int take(struct ctl *ctl, int argc, char **argv, struct buf *out)
{
	int id;
	ctl->command = &command;
	optind = 0;
	opterr = 0;
	while ((id = ctl_next_option(ctl, argc, argv)) >= 0)
		buf_addf(out, "%d=%s;", id, optarg != NULL ? optarg : "");
	if (id == CTL_END)
		for (int i = optind; i < argc; i++)
			buf_addf(out, "[%s]", argv[i]);
	return id;
}

static char *words[16];
static int split(const char *text)
{
	static char copy[200];
	int n = 0;
	(void)snprintf(copy, sizeof copy, "%s", text);
	for (char *p = strtok(copy, " "); p != NULL; p = strtok(NULL, " "))
		words[n++] = p;
	words[n] = NULL;
	return n;
}

START_TEST(finds_options_before_and_behind_operands)
{
	struct ctl ctl = {0};
	AUTO(buf) struct buf out = {0};
	int n = split("demo a -m x --json b --dry -c /etc/x --message=y -- --z");
	ck_assert_int_eq(take(&ctl, n, words, &out), CTL_END);
	ck_assert_str_eq(buf_str(&out), "109=x;256=;109=y;[a][b][--z]");
	ck_assert(ctl.json);
	ck_assert_str_eq(ctl.config_path, "/etc/x");
}
END_TEST

START_TEST(stops_at_a_wrong_option)
{
	static const char *const texts[] = {
		"demo --nonsense", "demo -m", "demo --dry=1", "demo -z"};
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		struct ctl ctl = {0};
		AUTO(buf) struct buf out = {0};
		int n = split(texts[i]);
		ck_assert_int_eq(take(&ctl, n, words, &out), CTL_STOP);
		ck_assert_int_eq(ctl.exit, EX_USAGE);
	}
}
END_TEST

START_TEST(prints_help_from_the_table)
{
	char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);
	ctl_print_help(f, &command);
	(void)fclose(f);
	ck_assert_ptr_nonnull(
		strstr(text, "Usage: inboxctl demo [OPTION…] NAME\n\nShows how.\nAnd why.\n"));
	ck_assert_ptr_nonnull(strstr(text, "  -m, --message TEXT "));
	ck_assert_ptr_nonnull(strstr(text, "      --dry "));
	ck_assert_ptr_nonnull(strstr(text, "  -c, --config FILE "));
	free(text);
}
END_TEST

START_TEST(reads_numbers_within_their_bounds)
{
	uint64_t v = 0;
	ck_assert(ctl_number("1", 1, 10, &v));
	ck_assert_uint_eq(v, 1);
	ck_assert(ctl_number("18446744073709551615", 0, UINT64_MAX, &v));
	ck_assert_uint_eq(v, UINT64_MAX);
	static const char *const texts[] = {
		"", "0", "11", "-1", "+1", " 1", "1 ", "1x", "0x1", "18446744073709551616"};
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		ck_assert_msg(!ctl_number(texts[i], 1, 10, &v), "took \"%s\"", texts[i]);
}
END_TEST

START_TEST(maps_errors_to_exit_codes)
{
	ck_assert_int_eq(ctl_exit_code(&(struct err){.rc = RC_UNAVAILABLE}), EX_UNAVAILABLE);
	ck_assert_int_eq(ctl_exit_code(&(struct err){.rc = RC_UNKNOWN}), EX_TEMPFAIL);
	ck_assert_int_eq(ctl_exit_code(&(struct err){.rc = RC_REJECT}), EX_DATAERR);
	ck_assert_int_eq(ctl_exit_code(&(struct err){.rc = RC_FATAL}), EX_CONFIG);
	ck_assert_int_eq(
		ctl_exit_code(&(struct err){.rc = RC_FATAL, .sqlstate = "42501"}), EX_NOPERM);
	ck_assert_int_eq(
		ctl_exit_code(&(struct err){.rc = RC_UNAVAILABLE, .sqlstate = "28P01"}), EX_NOPERM);
}
END_TEST

START_TEST(shows_text_without_driving_the_terminal)
{
	AUTO(buf) struct buf out = {0};
	ctl_add_visible(&out, bytes_of("a b\xc3\xa4\x1b]\xff\0", 9));
	ck_assert_str_eq(buf_str(&out), "a b\xc3\xa4\\x1b]\\xff\\x00");
}
END_TEST

START_TEST(names_the_nearest_entry_of_the_configuration)
{
	struct config_broker main = {.name = (char[]){"main"}}, spare = {.name = (char[]){"spare"}};
	struct config_broker *two[] = {&main, &spare};
	struct config c = {.brokers = two, .n_brokers = 2};
	struct err err;
	ck_assert_ptr_eq(ctl_find_broker(&c, "spare", &err), &spare);
	ck_assert_ptr_null(ctl_find_broker(&c, "spar", &err));
	ck_assert_ptr_nonnull(strstr(err.text, "did you mean \"spare\"?"));
	ck_assert_ptr_null(ctl_find_broker(&c, NULL, &err));
	ck_assert_ptr_nonnull(strstr(err.text, "--broker NAME"));
	c.n_brokers = 1;
	ck_assert_ptr_eq(ctl_find_broker(&c, NULL, &err), &main);
}
END_TEST

UNIT_SUITE("ctl/args", finds_options_before_and_behind_operands, stops_at_a_wrong_option,
	prints_help_from_the_table, reads_numbers_within_their_bounds, maps_errors_to_exit_codes,
	shows_text_without_driving_the_terminal, names_the_nearest_entry_of_the_configuration)

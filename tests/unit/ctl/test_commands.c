/* SPDX-License-Identifier: MIT */
#include "ctl/ctl.h"

#include "base/fd.h"
#include "unit.h"

static const struct ctl_command *const commands[] = {
	&ctl_migrate, &ctl_status, &ctl_consumers, &ctl_parked, &ctl_publish, &ctl_try};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

START_TEST(manual_names_every_command_and_option)
{
	AUTO(buf) struct buf manual = {0};
	struct err err;
	ck_assert_int_eq(fd_read_file("conf/man/inboxctl.8", 1 << 20, &manual, &err), RC_OK);
	const char *text = buf_str(&manual);
	for (size_t i = 0; i < N_COMMANDS; i++) {
		char words[80];
		(void)snprintf(words, sizeof words, ".Ss %s\n", commands[i]->name);
		ck_assert_msg(strstr(text, words) != NULL, "%s", words);
		for (size_t k = 0; k < commands[i]->n_options; k++) {
			const struct ctl_option *o = &commands[i]->options[k];
			(void)snprintf(words, sizeof words, "Fl -%s", o->name);
			/* A short form may stand for the long one. */
			if (o->id < 0x80)
				(void)snprintf(words, sizeof words, "Fl %c", o->id);
			ck_assert_msg(
				strstr(text, words) != NULL, "%s: %s", commands[i]->name, words);
		}
	}
}
END_TEST

START_TEST(options_of_a_command_differ)
{
	for (size_t i = 0; i < N_COMMANDS; i++)
		for (size_t k = 0; k < commands[i]->n_options; k++)
			for (size_t l = 0; l < k; l++) {
				const struct ctl_option *a = &commands[i]->options[k];
				const struct ctl_option *b = &commands[i]->options[l];
				ck_assert_int_ne(a->id, b->id);
				ck_assert_str_ne(a->name, b->name);
				ck_assert_str_ne(a->name, "config");
				ck_assert_str_ne(a->name, "json");
			}
}
END_TEST

START_TEST(help_fits_a_terminal)
{
	for (size_t i = 0; i < N_COMMANDS; i++) {
		char *text = NULL;
		size_t size = 0;
		FILE *f = open_memstream(&text, &size);
		ctl_print_help(f, commands[i]);
		(void)fclose(f);
		for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"))
			ck_assert_msg(strlen(line) <= 100, "%s: %s", commands[i]->name, line);
		free(text);
	}
}
END_TEST

UNIT_SUITE("ctl/commands", manual_names_every_command_and_option, options_of_a_command_differ,
	help_fits_a_terminal)

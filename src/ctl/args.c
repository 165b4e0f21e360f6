/* SPDX-License-Identifier: MIT */
/* Options and help of a command, both from its table. */
#include "ctl/ctl.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OPTIONS = 24, ID_JSON = 0x1000 };

static const struct ctl_option common[] = {
	{'c', "config", "FILE", "configuration (default " INBOXD_SYSCONFDIR "/inboxd/inboxd.yaml)"},
	{ID_JSON, "json", NULL, "print data as JSON"},
	{'h', "help", NULL, "print this help"},
};
enum { N_COMMON = sizeof common / sizeof common[0] };

struct parse_table {
	struct option longs[MOST_OPTIONS + 1];
	char shorts[2 * MOST_OPTIONS + 1];
};

static void add_option(struct parse_table *t, size_t i, const struct ctl_option *o)
{
	t->longs[i] = (struct option){.name = o->name,
		.has_arg = o->argument != NULL ? required_argument : no_argument,
		.val = o->id};
	if (o->id < 0x80) {
		size_t n = strlen(t->shorts);
		t->shorts[n++] = (char)o->id;
		if (o->argument != NULL)
			t->shorts[n++] = ':';
		t->shorts[n] = '\0';
	}
}

static void build(struct parse_table *t, const struct ctl_command *command)
{
	*t = (struct parse_table){0};
	size_t n = 0;
	for (size_t i = 0; i < N_COMMON; i++)
		add_option(t, n++, &common[i]);
	for (size_t i = 0; i < command->n_options && n < MOST_OPTIONS; i++)
		add_option(t, n++, &command->options[i]);
}

int ctl_next_option(struct ctl *ctl, int argc, char **argv)
{
	struct parse_table table;
	build(&table, ctl->command);
	for (;;) {
		int id = getopt_long(argc, argv, table.shorts, table.longs, NULL);
		switch (id) {
		case 'c':
			ctl->config_path = optarg;
			break;
		case ID_JSON:
			ctl->json = true;
			break;
		case 'h':
			ctl_print_help(stdout, ctl->command);
			ctl->exit = EX_OK;
			return CTL_STOP;
		case '?':
			/* getopt has said which. */
			if (opterr != 0)
				(void)fprintf(
					stderr, "see inboxctl %s --help\n", ctl->command->name);
			ctl->exit = EX_USAGE;
			return CTL_STOP;
		default:
			return id;
		}
	}
}

static void print_options(FILE *out, const struct ctl_option *options, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct ctl_option *o = &options[i];
		char text[80];
		(void)snprintf(text, sizeof text, "--%s%s%s", o->name,
			o->argument != NULL ? " " : "", o->argument != NULL ? o->argument : "");
		if (o->id < 0x80)
			(void)fprintf(out, "  -%c, %-26s %s\n", o->id, text, o->help);
		else
			(void)fprintf(out, "      %-26s %s\n", text, o->help);
	}
}

void ctl_print_help(FILE *out, const struct ctl_command *command)
{
	(void)fprintf(out, "Usage: inboxctl %s [OPTION…]%s%s\n\n%s.\n", command->name,
		command->operands[0] != '\0' ? " " : "", command->operands, command->summary);
	if (command->details != NULL)
		(void)fprintf(out, "%s\n", command->details);
	(void)fprintf(out, "\nOptions:\n");
	print_options(out, command->options, command->n_options);
	print_options(out, common, N_COMMON);
}

bool ctl_number(const char *text, uint64_t least, uint64_t most, uint64_t *ret)
{
	char *end;
	errno = 0;
	/* strtoull would take spaces and a sign. */
	if (!isdigit((unsigned char)text[0]))
		return false;
	unsigned long long v = strtoull(text, &end, 10);
	if (errno != 0 || *end != '\0' || v < least || v > most)
		return false;
	*ret = v;
	return true;
}

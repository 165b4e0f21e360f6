/* SPDX-License-Identifier: MIT */
/* inboxctl: finds the command and runs it. */
#include "ctl/ctl.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/nearest.h"
#include "base/version.h"

static const struct ctl_command *const commands[] = {
	&ctl_migrate, &ctl_status, &ctl_consumers, &ctl_parked, &ctl_publish, &ctl_try};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void print_help(void)
{
	(void)printf("Usage: inboxctl [-c FILE] [--json] COMMAND …\n\n"
		     "Looks after inboxd and what it keeps.\n\nCommands:\n");
	for (size_t i = 0; i < N_COMMANDS; i++)
		(void)printf("  %-10s %s\n", commands[i]->name, commands[i]->summary);
	(void)printf("\nOptions:\n"
		     "  -c, --config FILE   configuration (default " INBOXD_SYSCONFDIR
		     "/inboxd/inboxd.yaml)\n"
		     "      --json          print data as JSON\n"
		     "  -h, --help          print this help, or a command's\n"
		     "  -V, --version       print the version\n"
		     "\nExit codes: 0 done, 1 no, otherwise as in sysexits(3): 64 usage, 65 data, "
		     "66 input file,\n"
		     "69 server away, 74 output, 75 try again, 77 permission, 78 configuration.\n");
}

/* Options in front of the command; -1 to go on. */
static int take_options(struct ctl *ctl, int argc, char **argv)
{
	static const struct option longs[] = {{"config", required_argument, NULL, 'c'},
		{"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'}, {0}};
	int id;
	while ((id = getopt_long(argc, argv, "+c:hV", longs, NULL)) != -1) {
		switch (id) {
		case 'c':
			ctl->config_path = optarg;
			break;
		case 'j':
			ctl->json = true;
			break;
		case 'h':
			print_help();
			return EX_OK;
		case 'V':
			(void)printf("inboxctl " INBOXD_VERSION "\n");
			return EX_OK;
		default:
			(void)fprintf(stderr, "see inboxctl --help\n");
			return EX_USAGE;
		}
	}
	return -1;
}

static const struct ctl_command *find_command(const struct ctl *ctl, const char *name)
{
	const char *names[N_COMMANDS];
	for (size_t i = 0; i < N_COMMANDS; i++) {
		if (strcmp(commands[i]->name, name) == 0)
			return commands[i];
		names[i] = commands[i]->name;
	}
	const char *near = nearest_name(bytes_str(name), names, N_COMMANDS);
	if (near != NULL)
		(void)ctl_usage(
			ctl, "there is no command \"%s\"; did you mean \"%s\"?", name, near);
	else
		(void)ctl_usage(ctl, "there is no command \"%s\"", name);
	return NULL;
}

static int run(struct ctl *ctl, int argc, char **argv)
{
	int exit = take_options(ctl, argc, argv);
	if (exit >= 0)
		return exit;
	if (optind == argc)
		return ctl_usage(ctl, "a command is missing");
	ctl->command = find_command(ctl, argv[optind]);
	if (ctl->command == NULL)
		return EX_USAGE;
	argc -= optind;
	argv += optind;
	optind = 0; /* starts getopt anew, without the "+" */
	return ctl->command->run(ctl, argc, argv);
}

int main(int argc, char **argv)
{
	struct ctl ctl = {.config_path = INBOXD_SYSCONFDIR "/inboxd/inboxd.yaml"};
	int exit = run(&ctl, argc, argv);
	if (fflush(stdout) != 0 || ferror(stdout) != 0)
		return ctl_fail(&ctl, EX_IOERR, "writing to standard output: %s", strerror(errno));
	return exit;
}

/* SPDX-License-Identifier: MIT */
/* What the commands of inboxctl share: their table, their options, how they fail. */
#ifndef INBOXD_CTL_CTL_H
#define INBOXD_CTL_CTL_H

#include "config/config.h"

#include <stdio.h>
#include <sysexits.h>

/* Exit codes are those of sysexits.h, and: */
#define CTL_NO 1 /* the question was answered with no */

struct ctl {
	const struct ctl_command *command;
	const char *config_path;
	bool json; /* output that is data comes as JSON */
	int exit;  /* why ctl_next_option said CTL_STOP */
};

/* An option of one command. */
struct ctl_option {
	int id;               /* what ctl_next_option returns; a letter is its short form */
	const char *name;     /* long form */
	const char *argument; /* NULL: takes none */
	const char *help;
};

struct ctl_command {
	const char *name;
	const char *operands; /* "QUEUE", "" */
	const char *summary;  /* one line */
	const char *details;  /* further lines for --help; NULL: none */
	const struct ctl_option *options;
	size_t n_options;
	/* argv[0] is the command's name; returns the exit code. */
	int (*run)(struct ctl *ctl, int argc, char **argv);
};

extern const struct ctl_command ctl_migrate, ctl_publish, ctl_try, ctl_status, ctl_consumers,
	ctl_parked;

/* ---- args.c --------------------------------------------------------------------------------- */

enum { CTL_END = -1, CTL_STOP = -2 };

/* The next option's id, its argument in optarg; CTL_END: the operands begin at argv[optind];
 * CTL_STOP: return ctl->exit now (--help was answered, or an option is wrong and that was said).
 * -c, --json and --help are taken care of in every command. */
int ctl_next_option(struct ctl *ctl, int argc, char **argv);

/* Help of one command, of the program. */
void ctl_print_help(FILE *out, const struct ctl_command *command);

/* A decimal number of the whole text; false when it is none or lies outside. */
bool ctl_number(const char *text, uint64_t least, uint64_t most, uint64_t *ret);

/* ---- ctl.c ---------------------------------------------------------------------------------- */

/* Says "inboxctl publish: text" on standard error and returns exit. */
int ctl_fail(const struct ctl *ctl, int exit, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* EX_USAGE, with a pointer to --help. */
int ctl_usage(const struct ctl *ctl, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Says err's text and returns the exit code that belongs to it. */
int ctl_fail_err(const struct ctl *ctl, const struct err *err);
int ctl_exit_code(const struct err *err);

/* Reads the configuration; NULL: what is wrong was said, return EX_CONFIG. */
struct config *ctl_load(const struct ctl *ctl);
static inline void auto_config(struct config **c)
{
	config_free(*c);
}

/* The entry of that name, the only one when name is NULL; NULL with what to do in err. */
struct config_broker *ctl_find_broker(const struct config *c, const char *name, struct err *err);
struct config_database *ctl_find_database(
	const struct config *c, const char *name, struct err *err);
const struct config_consumer *ctl_find_consumer(
	const struct config *c, const char *name, struct err *err);

/* Text for a terminal: control characters and what is not UTF-8 become escapes. */
void ctl_add_visible(struct buf *out, struct bytes text);

bool ctl_is_utf8(struct bytes text);

/* Writes to standard output. */
void ctl_write(struct bytes text);

#endif

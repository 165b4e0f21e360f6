/* SPDX-License-Identifier: MIT */
/* What is wrong with a file before it is YAML, and what a YAML syntax error means in plain words.
 */
#ifndef INBOXD_CONFIG_TEXT_H
#define INBOXD_CONFIG_TEXT_H

#include "config/diag.h"

/* Whether the file is text that YAML can be read from: UTF-8, no NUL, no control characters, lines
 * that end in a line feed.  If not, the first thing that is wrong goes to d. */
bool text_check(const struct diag_file *file, struct diags *d);

/* Adds a syntax error as libyaml tells it (problem, context: its texts; context may be NULL),
 * translated into what to do about it. */
void text_syntax_error(struct diags *d, struct place at, const char *problem,
	struct place context_at, const char *context);

#endif

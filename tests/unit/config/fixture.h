/* SPDX-License-Identifier: MIT */
/* A configuration written into a directory of its own, read, and what came of it. */
#ifndef INBOXD_TESTS_CONFIG_FIXTURE_H
#define INBOXD_TESTS_CONFIG_FIXTURE_H

#include "config/config.h"

#include <check.h>

struct fixture {
	char directory[64]; /* of its own, absolute */
	struct config *config;
	struct buf errors; /* without the directory's name */
};

/* The directory; files are made below it, `name` may hold a slash. */
void fixture_init(struct fixture *f);
void fixture_write(const struct fixture *f, const char *name, const char *text, size_t size);
/* Reads inboxd.yaml of the directory. */
void fixture_load(struct fixture *f);
void fixture_done(struct fixture *f); /* removes everything */

/* All of it: inboxd.yaml holds text. */
void fixture_open(struct fixture *f, const char *text);

/* Fails with the errors if text is not a configuration; whoever asks owns it. */
struct config *config_of(const char *text);

/* Fails unless reading text gives exactly these errors. */
void expect_errors(const char *text, const char *errors);

/* A whole configuration around options of one consumer, whose first line is line 5, column 5. */
#define CONSUMER(options_)    \
	"consumers:\n"        \
	"  orders:\n"         \
	"    queue: orders\n" \
	"    handler: sql\n" options_

#endif

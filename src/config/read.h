/* SPDX-License-Identifier: MIT */
/* Reads the value of one option out of its node, with errors that say what would be right. */
#ifndef INBOXD_CONFIG_READ_H
#define INBOXD_CONFIG_READ_H

#include "config/config.h"
#include "config/schema.h"
#include "config/yaml.h"

struct reading {
	struct config *config;
	struct yaml_pool *pool;
	struct diags *diags;
	struct buf path;  /* dotted name of the option at hand: "consumers.orders.batch.max" */
	struct buf quote; /* what read_said returned last */
	bool is_quiet;    /* errors here were told before */
	bool is_defaults; /* reading `defaults:`: nothing is required */
	bool is_role; /* reading what config_print wrote: what is not there is not meant to be */
};

/* Adds a name to the path; returns what read_leave takes to drop it again. */
size_t read_enter(struct reading *r, const char *name);
void read_leave(struct reading *r, size_t mark);

/* "path text" ("path: text" for a text with a colon in front) at a place; then its hint. */
void read_error(struct reading *r, struct place place, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void read_hint(struct reading *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The value as an error may show it: quoted, or described where it is a secret or from the
 * environment. */
const char *read_said(struct reading *r, const struct option *o, const struct yaml_node *node);

/* Reads node into the option's field of the struct at base (see enum option_type); the field owns
 * what it holds.  False, with errors told and the field untouched, if it is wrong.  For all types
 * with one field; not for sections. */
bool read_option(
	struct reading *r, const struct option *o, const struct yaml_node *node, void *base);

void string_list_add(struct string_list *list, const char *text);
void string_list_done(struct string_list *list);

#endif

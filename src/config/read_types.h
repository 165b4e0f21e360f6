/* SPDX-License-Identifier: MIT */
/* The readers of each type, and what they share. */
#ifndef INBOXD_CONFIG_READ_TYPES_H
#define INBOXD_CONFIG_READ_TYPES_H

#include "config/read.h"

/* Tells that a value is not what the option must be. */
void read_must_be(struct reading *r, const struct option *o, const struct yaml_node *node);

/* Whether node is a scalar with a value; if not, that is told. */
bool read_is_scalar(struct reading *r, const struct option *o, const struct yaml_node *node);

/* A number of the option's type within its range. */
bool read_number(
	struct reading *r, const struct option *o, const struct yaml_node *node, uint64_t *ret);

/* Puts a copy of text into a char * that is owned; true. */
bool read_set_text(void *field, const char *text);

/* Reads node into the field; false, with errors told and the field untouched, if it is wrong. */
typedef bool read_field(
	struct reading *r, const struct option *o, const struct yaml_node *node, void *field);

read_field read_u32, read_seconds, read_size, read_text, read_name, read_handler, read_identifier,
	read_conninfo, read_word, read_word_text, read_bool;
read_field read_path, read_paths, read_uris, read_sources;
read_field read_durations; /* field: the struct itself, as there are two fields */

#endif

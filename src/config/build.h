/* SPDX-License-Identifier: MIT */
/* From the tree of nodes to the typed configuration. */
#ifndef INBOXD_CONFIG_BUILD_H
#define INBOXD_CONFIG_BUILD_H

#include "config/read.h"

/* A section's nodes: its own, and what `defaults:` puts beneath; each may be NULL. */
struct level {
	const struct yaml_node *own;
	const struct yaml_node *beneath;
	struct place place; /* of its name */
};

struct config_origin {
	struct level level;
	char *path; /* "consumers.orders" */
};

/* The value of an option, from its own level first; NULL if it is set nowhere. */
const struct yaml_node *level_find(const struct level *at, const char *name);

/* Reads a section's options into the struct at base. */
void build_section(struct reading *r, enum section_id id, const struct level *at, void *base);

/* Fills r->config from the root; errors go to r->diags, and then the configuration is only fit to
 * be freed. */
void build_config(struct reading *r, const struct yaml_node *root);

/* Frees what the fields of a section's struct own. */
void build_done(enum section_id id, void *base);

#endif

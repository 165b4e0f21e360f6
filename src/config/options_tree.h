/* SPDX-License-Identifier: MIT */
/* How a handler's options are made, printed and placed; options.h is for those who read them. */
#ifndef INBOXD_CONFIG_OPTIONS_TREE_H
#define INBOXD_CONFIG_OPTIONS_TREE_H

#include "config/options.h"
#include "config/yaml.h"

/* own over beneath: maps are merged, anything else of own replaces what is beneath.  Either may be
 * NULL or null.  The nodes belong to the pool and must outlive the options. */
struct options *options_new(struct yaml_pool *pool, const struct yaml_node *own,
	const struct yaml_node *beneath, struct place place);
void options_free(struct options *o);

const struct yaml_node *options_root(const struct options *o);

/* Where path stands, or what of it there is; where the options stand if there is nothing of it. */
struct place options_place(const struct options *o, const char *path);

#endif

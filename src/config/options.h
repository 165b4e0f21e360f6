/* SPDX-License-Identifier: MIT */
/* A handler's own options: a tree of YAML scalars, lists and maps, kept with its places in the
 * file, because only the handler knows what they mean. */
#ifndef INBOXD_CONFIG_OPTIONS_H
#define INBOXD_CONFIG_OPTIONS_H

#include "base/buf.h"

struct options;

/* path: names and indexes joined by '/', "" is the root: "parameters/0", "limits/daily".  In a name
 * '~1' stands for '/' and '~0' for '~'. */

/* A scalar's text; data == NULL if there is none at that path (or it is YAML null). */
struct bytes options_get(const struct options *o, const char *path);
/* Entries of a list or map, 1 for a scalar, 0 if absent or null. */
uint32_t options_count(const struct options *o, const char *path);
/* Name of the i-th entry of a map; data == NULL otherwise. */
struct bytes options_name(const struct options *o, const char *path, uint32_t i);

#endif

/* SPDX-License-Identifier: MIT */
/* The configuration's files as one tree. */
#ifndef INBOXD_CONFIG_FILES_H
#define INBOXD_CONFIG_FILES_H

#include "config/yaml.h"

#define FILES_DROP_IN "conf.d" /* beside the main file */

/* Reads path and the *.yaml files of conf.d beside it, in order of name, and merges them.  NULL if
 * one of them cannot be read or is not YAML; all errors go to d.  The first file of the pool's
 * order is the main one; *ret_main is set in any case. */
struct yaml_node *files_read(struct yaml_pool *pool, const char *path, struct diags *d,
	const struct diag_file **ret_main);

#endif

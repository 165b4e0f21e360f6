/* SPDX-License-Identifier: MIT */
/* Puts environment variables into scalars: ${NAME}, ${NAME:-default}; $${ stands for ${. */
#ifndef INBOXD_CONFIG_ENV_H
#define INBOXD_CONFIG_ENV_H

#include "config/config.h"
#include "config/yaml.h"

/* In all values beneath node, never in names; the text put in is not looked at again.  Names of
 * variables that were put in are added to *used, sorted, each once. */
void env_expand(struct yaml_node *node, struct string_list *used, struct diags *d);

/* Appends text so that env_expand gives it back: "${" as "$${". */
void env_escape(const char *text, struct buf *out);

#endif

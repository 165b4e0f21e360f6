/* SPDX-License-Identifier: MIT */
/* retry.sqlstates: what errors of a handler's statements mean, where it is not what is built in. */
#ifndef INBOXD_CONFIG_SQLSTATES_H
#define INBOXD_CONFIG_SQLSTATES_H

#include "config/read.h"

/* Reads a map of SQLSTATEs, or their classes, to retry or reject into c; wrong entries are told and
 * left out. */
void sqlstates_read(struct reading *r, const struct option *o, const struct yaml_node *node,
	struct config_consumer *c);

#endif

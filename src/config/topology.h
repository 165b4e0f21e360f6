/* SPDX-License-Identifier: MIT */
/* Arguments and bindings of a queue that is declared. */
#ifndef INBOXD_CONFIG_TOPOLOGY_H
#define INBOXD_CONFIG_TOPOLOGY_H

#include "config/build.h"

/* Each reads what is right into c->topology and tells what is wrong. */
void topology_read_arguments(struct reading *r, const struct option *o,
	const struct yaml_node *node, struct config_consumer *c);
void topology_read_bindings(struct reading *r, const struct option *o, const struct yaml_node *node,
	struct config_consumer *c);

void topology_arguments_done(struct config_consumer *c);
void topology_bindings_done(struct config_consumer *c);

#endif

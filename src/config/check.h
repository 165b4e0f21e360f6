/* SPDX-License-Identifier: MIT */
/* Checks of options against each other. */
#ifndef INBOXD_CONFIG_CHECK_H
#define INBOXD_CONFIG_CHECK_H

#include "config/build.h"

/* A broker's log in and TLS. */
void check_broker(struct reading *r, const struct yaml_node *own, const struct config_broker *b);

/* Compiles key and fingerprint, errors stand at the source that is wrong; looks at where dead letters
 * go. */
void check_rules(struct reading *r, const struct level *at, struct config_consumer *c);

/* check_rules, and finds broker and database, and the topology. */
void check_consumer(struct reading *r, const struct level *at, struct config_consumer *c);

/* Consumers that share an identity and a database must agree about keys and fingerprints. */
void check_identities(struct reading *r);

#endif

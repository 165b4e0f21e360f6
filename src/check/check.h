/* SPDX-License-Identifier: MIT */
/* `inboxd --check`: everything that can be wrong before any message is taken. */
#ifndef INBOXD_CHECK_CHECK_H
#define INBOXD_CHECK_CHECK_H

#include <stdbool.h>

/* Reads the configuration, loads each handler and runs its `check`; with_connect: also logs in to brokers
 * and databases, checks the schema and has the handlers' statements prepared.  Writes what is wrong to
 * standard error and returns EX_CONFIG, or EX_UNAVAILABLE if only a server was out of reach. */
int check_main(const char *config_path, bool with_connect, bool is_quiet);

#endif

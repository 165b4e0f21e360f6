/* SPDX-License-Identifier: MIT */
/* What the files of the harness share among themselves. */
#ifndef INBOXD_TESTS_INTEGRATION_INTERNAL_H
#define INBOXD_TESTS_INTEGRATION_INTERNAL_H

#include "harness.h"

int run(const char *log, const char *const argv[]); /* exit code, or 128 + signal */

PGconn *database_connect(const char *conninfo);
void console_close(void);

void broker_restore(void); /* as it was before any test */
void broker_open(struct world *w);
void broker_close(struct world *w); /* deletes the queues that were declared */

void daemons_end_all(void); /* SIGTERM; fails the test if one does not exit 0 or leaves a process */

#endif

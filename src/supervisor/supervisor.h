/* SPDX-License-Identifier: MIT */
/* The supervisor: reads the configuration, starts, reaps and restarts everybody, answers signals and
 * systemd.  Opens no connection and loads no handler. */
#ifndef INBOXD_SUPERVISOR_SUPERVISOR_H
#define INBOXD_SUPERVISOR_SUPERVISOR_H

/* Runs until SIGTERM or SIGINT; returns the exit code. */
int supervisor_main(const char *config_path);

#endif

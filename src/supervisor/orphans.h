/* SPDX-License-Identifier: MIT */
/* Processes that handlers leave behind: the supervisor inherits and ends them. */
#ifndef INBOXD_SUPERVISOR_ORPHANS_H
#define INBOXD_SUPERVISOR_ORPHANS_H

#include <stdbool.h>
#include <sys/types.h>

/* From now on whatever a descendant leaves behind becomes our child, whatever group or session it
 * is in. */
void orphans_adopt(void);

/* Ends and reaps all children that are not known. */
void orphans_end(bool (*is_known)(void *arg, pid_t pid), void *arg);

#endif

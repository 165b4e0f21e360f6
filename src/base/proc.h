/* SPDX-License-Identifier: MIT */
/* What the kernel says of processes. */
#ifndef INBOXD_BASE_PROC_H
#define INBOXD_BASE_PROC_H

#include <stdint.h>
#include <sys/types.h>

/* Memory of a process: what is resident, and what it may write to without asking again, touched or
 * not, which is what RLIMIT_DATA bounds.  All 0: it is gone. */
struct proc_memory {
	uint64_t resident, data;
};
struct proc_memory proc_memory(pid_t pid);

#endif

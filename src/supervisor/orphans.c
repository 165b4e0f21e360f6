/* SPDX-License-Identifier: MIT */
/* By the kernel's list of our children. */
#include "supervisor/orphans.h"

#include "base/fd.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { MOST_LIST = 1 << 20 };

void orphans_adopt(void)
{
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void orphans_end(bool (*is_known)(void *arg, pid_t pid), void *arg)
{
	AUTO(buf) struct buf list = {0};
	struct err err;
	char path[64];
	(void)snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
	if (fd_read_file(path, MOST_LIST, &list, &err) != RC_OK)
		return; /* a kernel without the list */
	const char *at = buf_str(&list);
	char *end;
	for (long pid; (pid = strtol(at, &end, 10)) > 0 && end != at; at = end) {
		if (is_known(arg, (pid_t)pid))
			continue;
		(void)kill((pid_t)pid, SIGKILL);
		(void)waitpid((pid_t)pid, NULL, WNOHANG); /* or the next time */
	}
}

/* SPDX-License-Identifier: MIT */
/* Reads /proc. */
#include "base/proc.h"

#include "base/fd.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct proc_memory proc_memory(pid_t pid)
{
	enum { SIZE, RESIDENT, SHARED, TEXT, LIBRARIES, DATA, FIELDS };
	char path[32], text[128];
	unsigned long long pages[FIELDS];
	(void)snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
	AUTO(fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
	text[n > 0 ? n : 0] = '\0';
	char *p = text;
	for (int i = 0; i < FIELDS; i++) {
		char *end;
		pages[i] = strtoull(p, &end, 10);
		if (end == p)
			return (struct proc_memory){0};
		p = end;
	}
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	return (struct proc_memory){.resident = pages[RESIDENT] * page, .data = pages[DATA] * page};
}

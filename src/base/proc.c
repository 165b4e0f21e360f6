/* SPDX-License-Identifier: MIT */
/* Reads /proc. */
#include "base/proc.h"

#include "base/fd.h"

#include <fcntl.h>
#include <stdio.h>

struct proc_memory proc_memory(pid_t pid)
{
	char path[32], text[128];
	unsigned long long resident = 0, data = 0;
	(void)snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
	AUTO(fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
	text[n > 0 ? n : 0] = '\0';
	if (sscanf(text, "%*u %llu %*u %*u %*u %llu", &resident, &data) != 2)
		return (struct proc_memory){0};
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	return (struct proc_memory){.resident = resident * page, .data = data * page};
}

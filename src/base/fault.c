/* SPDX-License-Identifier: MIT */
#include "base/fault.h"

#ifdef INBOXD_FAULTS

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct fault_map *map;

static void map_open(void)
{
	const char *path = getenv("INBOXD_FAULT_MAP");
	int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	void *p = mmap(NULL, sizeof(struct fault_map), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	(void)close(fd);
	map = p != MAP_FAILED ? p : NULL;
}

static int reach_test(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const struct timeval limit = {.tv_sec = FAULT_WAIT_S};
	size_t n = strlen(map->socket);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	memcpy(address.sun_path + 1, map->socket, n);
	socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	if (connect(fd, (struct sockaddr *)&address, size) == 0)
		return fd;
	(void)close(fd);
	return -1;
}

static void stand(const char *name)
{
	char answer;
	int fd = reach_test();
	if (fd < 0)
		return;
	if (dprintf(fd, "%s %d %s\n", name, (int)getpid(), program_invocation_name) > 0)
		while (recv(fd, &answer, 1, 0) < 0 && errno == EINTR)
			continue;
	(void)close(fd);
}

void fault_point(const char *name)
{
	int before = errno; /* a point stands anywhere, in any thread */
	uint32_t one = 1;
	(void)pthread_once(&once, map_open);
	if (map != NULL && atomic_load(&map->is_armed) == 1 && strcmp(map->name, name) == 0 &&
		atomic_compare_exchange_strong(&map->is_armed, &one, 0))
		stand(name);
	errno = before;
}

#endif

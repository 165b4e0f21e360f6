/* SPDX-License-Identifier: MIT */
#include "standing.h"

#include "base/fault.h"
#include "../integration/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void listen_at(struct standing *s, const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t n = strlen(name);
	memcpy(address.sun_path + 1, name, n);
	s->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(s->listener, (struct sockaddr *)&address,
				 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)),
		0);
	ck_assert_int_eq(listen(s->listener, 64), 0);
}

void standing_begin(struct standing *s, const char *dir)
{
	char path[320];
	*s = (struct standing){.fd = -1};
	(void)snprintf(path, sizeof path, "%s/fault.map", dir);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, sizeof *s->map), 0);
	s->map = mmap(NULL, sizeof *s->map, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(s->map, MAP_FAILED);
	(void)close(fd);
	(void)snprintf(s->map->socket, sizeof s->map->socket, "inboxd-fault-%d-%lld", (int)getpid(),
		(long long)now_ms());
	listen_at(s, s->map->socket);
	ck_assert_int_eq(setenv("INBOXD_FAULT_MAP", path, 1), 0);
}

void standing_end(struct standing *s)
{
	standing_release(s);
	(void)close(s->listener);
	(void)munmap(s->map, sizeof *s->map);
	(void)unsetenv("INBOXD_FAULT_MAP");
}

void standing_arm(struct standing *s, const char *point)
{
	ck_assert_uint_lt(strlen(point), sizeof s->map->name);
	s->map->is_armed = 0;
	(void)snprintf(s->map->name, sizeof s->map->name, "%s", point);
	s->map->is_armed = 1;
}

/* One line, sent whole. */
static bool read_who(struct standing *s)
{
	char line[256];
	int pid;
	ssize_t n = recv(s->fd, line, sizeof line - 1, 0);
	if (n <= 0)
		return false;
	line[n] = '\0';
	line[strcspn(line, "\n")] = '\0';
	ck_assert_msg(sscanf(line, "%63s %d %127[^\n]", s->point, &pid, s->process) == 3,
		"a process says \"%s\"", line);
	s->pid = pid;
	return true;
}

bool standing_wait(struct standing *s, double seconds)
{
	struct pollfd p = {.fd = s->listener, .events = POLLIN};
	ck_assert_int_eq(s->fd, -1);
	if (poll(&p, 1, (int)(seconds * 1000 * wait_factor())) != 1)
		return false;
	s->fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
	ck_assert_int_ge(s->fd, 0);
	if (read_who(s))
		return true;
	(void)close(s->fd); /* it died on the way */
	s->fd = -1;
	return false;
}

void standing_let_go(struct standing *s)
{
	if (s->fd < 0)
		return;
	(void)send(s->fd, "g", 1, MSG_NOSIGNAL);
	(void)close(s->fd);
	s->fd = -1;
}

void standing_release(struct standing *s)
{
	s->map->is_armed = 0;
	standing_let_go(s);
}

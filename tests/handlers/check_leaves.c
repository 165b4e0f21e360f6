/* SPDX-License-Identifier: MIT */
/* Its first check leaves a process behind, in a session of its own, and writes its pid to $INBOXD_TEST_LEFT. */
#include <inboxd/handler.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int32_t check(const struct inboxd_host *host, struct inboxd_call *call)
{
	const char *path = getenv("INBOXD_TEST_LEFT");
	(void)host;
	(void)call;
	if (path == NULL || access(path, F_OK) == 0 || fork() != 0)
		return INBOXD_DONE;
	(void)setsid();
	FILE *f = fopen(path, "w");
	if (f != NULL) {
		(void)fprintf(f, "%d\n", (int)getpid());
		(void)fclose(f);
	}
	for (;;)
		(void)pause();
}

static int32_t handle(const struct inboxd_host *host, struct inboxd_call *call)
{
	(void)host;
	(void)call;
	return INBOXD_DONE;
}

INBOXD_HANDLER(.check = check, .handle = handle)

/* SPDX-License-Identifier: MIT */
/* Its check never comes back, and no alarm or polite signal ends it. */
#include <inboxd/handler.h>

#include <signal.h>
#include <unistd.h>

static int32_t check(const struct inboxd_host *host, struct inboxd_call *call)
{
	(void)host;
	(void)call;
	(void)signal(SIGALRM, SIG_IGN);
	(void)signal(SIGTERM, SIG_IGN);
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

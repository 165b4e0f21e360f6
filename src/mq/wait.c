/* SPDX-License-Identifier: MIT */
/* poll with a deadline that signals do not prolong. */
#include "mq/wait.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"

static int left_ms(uint64_t deadline_ms)
{
	uint64_t now = clock_ms();
	uint64_t left = deadline_ms > now ? deadline_ms - now : 0;
	return left < INT32_MAX ? (int)left : INT32_MAX;
}

enum rc mq_wait_fd(int fd, short events, uint64_t deadline_ms, int interrupt_fd, struct err *err)
{
	struct pollfd fds[] = {
		{.fd = fd, .events = events}, {.fd = interrupt_fd, .events = POLLIN}};
	for (;;) {
		int timeout = left_ms(deadline_ms);
		int n = poll(fds, 2, timeout);
		if (n < 0 && errno != EINTR)
			return err_set(err, RC_UNAVAILABLE, "poll: %s", strerror(errno));
		if (n > 0 && fds[1].revents != 0)
			return err_set(err, RC_RETRY, "interrupted");
		if (n > 0)
			return RC_OK;
		if (n == 0 && timeout == 0)
			return err_set(err, RC_UNAVAILABLE, "no answer in time");
	}
}

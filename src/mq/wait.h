/* SPDX-License-Identifier: MIT */
/* The one way this room waits for a descriptor. */
#ifndef INBOXD_MQ_WAIT_H
#define INBOXD_MQ_WAIT_H

#include "base/err.h"

#include <stdint.h>

/* Waits for poll events on fd until deadline_ms (of clock_ms): RC_OK (also on a hang-up or error of
 * fd, which its next use will name); RC_RETRY when interrupt_fd (>= 0) became readable first;
 * RC_UNAVAILABLE when time is up. */
enum rc mq_wait_fd(
	int fd, short events, uint64_t deadline_ms, int interrupt_fd, struct err *err) MUST_CHECK;

#endif

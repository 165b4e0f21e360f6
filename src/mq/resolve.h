/* SPDX-License-Identifier: MIT */
/* Looks a host's addresses up without being at the mercy of the resolver's own time limits. */
#ifndef INBOXD_MQ_RESOLVE_H
#define INBOXD_MQ_RESOLVE_H

#include "base/err.h"

#include <netdb.h>
#include <stdint.h>

/* Waits until deadline_ms (of clock_ms) at most.  *ret is the caller's, for freeaddrinfo, never
 * empty. RC_RETRY when interrupt_fd (>= 0) became readable first; RC_UNAVAILABLE otherwise. */
enum rc mq_resolve(const char *host, uint16_t port, uint64_t deadline_ms, int interrupt_fd,
	struct addrinfo **ret, struct err *err) MUST_CHECK;

#endif

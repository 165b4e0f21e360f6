/* SPDX-License-Identifier: MIT */
/* A TCP connection whose every wait, the name lookup included, is bounded and can be interrupted.
 */
#ifndef INBOXD_MQ_TCP_H
#define INBOXD_MQ_TCP_H

#include "base/err.h"

#include <stdint.h>

#define MQ_NUMERIC_MAX 64 /* "fe80::…%interface" and its NUL */

/* Tries the addresses of host in turn, within timeout_ms in all.  On success *ret_fd is
 * non-blocking and CLOEXEC with TCP_NODELAY and SO_KEEPALIVE set, and ret_numeric says which
 * address answered. RC_RETRY when interrupt_fd (>= 0) became readable; RC_UNAVAILABLE with every
 * address and why it did not answer. */
enum rc mq_tcp_connect(const char *host, uint16_t port, uint32_t timeout_ms, int interrupt_fd,
	int *ret_fd, char ret_numeric[MQ_NUMERIC_MAX], struct err *err) MUST_CHECK;

/* Gives up on data that the peer does not acknowledge for that long, and sizes the send buffer so
 * that a socket that polls writable takes a whole frame. */
void mq_tcp_tune(int fd, uint32_t user_timeout_ms);

#endif

/* SPDX-License-Identifier: MIT */
/* What the supervisor tells a consumer: small datagrams over a SOCK_SEQPACKET pair, one with a
 * descriptor.  Both ends are this very program, so the structs travel as they are. */
#ifndef INBOXD_IPC_CONTROL_H
#define INBOXD_IPC_CONTROL_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum control_kind {
	CONTROL_WORKER = 1, /* a worker was started; its channel comes with it */
	CONTROL_GONE,       /* that worker is reaped */
	CONTROL_DRAIN,      /* stop taking, finish what runs, give the rest back, exit */
};

struct control {
	uint32_t kind;
	uint32_t index;      /* of the worker, from 0 */
	uint32_t life;       /* which life of that worker */
	int32_t pid;
	int32_t status;      /* CONTROL_GONE: as from waitid: exit code or signal */
	uint8_t was_killed;  /* by a signal */
	uint8_t timed_out;   /* by us, because its handler took too long */
	uint8_t over_memory; /* it held more than it may, then or when we killed it for that */
	uint8_t handler_ran; /* a handler had been started for what it had not answered for */
	uint64_t timeout_ms; /* CONTROL_DRAIN */
};

/* A connected pair, CLOEXEC and non-blocking. */
enum rc control_pair(int ret_fds[2], struct err *err) MUST_CHECK;
/* fd < 0: none goes with it.  The peer gets a copy. */
enum rc control_send(int socket, const struct control *c, int fd, struct err *err) MUST_CHECK;
/* 1: *ret is set, *ret_fd a descriptor or -1; 0: nothing there; -1: the peer is gone. */
int control_receive(int socket, struct control *ret, int *ret_fd);

#endif

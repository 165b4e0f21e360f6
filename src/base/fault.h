/* SPDX-License-Identifier: MIT */
/* Fault points: named places on a message's way where a test can hold a process and then kill it or
 * what it talks to.  Nothing of them is in a build without INBOXD_FAULTS (make VARIANT=faults).
 *
 * The environment variable INBOXD_FAULT_MAP names a file that test and daemon map: struct
 * fault_map.  A process that comes to the armed point disarms it, connects to the test's socket,
 * says "POINT PID ARGV0\n" and stands still until it is answered or has waited FAULT_WAIT_S. */
#ifndef INBOXD_BASE_FAULT_H
#define INBOXD_BASE_FAULT_H

#include <stdint.h>

enum { FAULT_WAIT_S = 30 };

struct fault_map {
	_Atomic uint32_t is_armed; /* set to 1 behind the name */
	char name[60];
	char socket[96]; /* abstract: without the NUL in front */
};

#ifdef INBOXD_FAULTS
void fault_point(const char *name);
#define FAULT(name) fault_point(name)
#else
#define FAULT(name) ((void)0)
#endif

#endif

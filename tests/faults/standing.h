/* SPDX-License-Identifier: MIT */
/* The test's side of the fault points (base/fault.h): arms one, waits until a process stands there,
 * lets it go on. */
#ifndef INBOXD_TESTS_FAULTS_STANDING_H
#define INBOXD_TESTS_FAULTS_STANDING_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct fault_map;

struct standing {
	struct fault_map *map;
	int listener;
	int fd; /* of whoever stands; -1: nobody */
	pid_t pid;
	char point[64];
	char process[128]; /* "inboxd: worker main/1"; the supervisor's is its path */
};

/* Daemons started from here on know of it; dir holds a file of it. */
void standing_begin(struct standing *s, const char *dir);
void standing_end(struct standing *s);

/* The next process that comes to the point stops there. */
void standing_arm(struct standing *s, const char *point);
/* Waits for it; nobody may be standing.  False: nobody came within the time. */
bool standing_wait(struct standing *s, double seconds);
/* Whoever stands goes on, if it still lives. */
void standing_let_go(struct standing *s);
/* The same, and nobody is to stop any more. */
void standing_release(struct standing *s);

#endif

/* SPDX-License-Identifier: MIT */
/* When a child that died is started again.  Pure. */
#ifndef INBOXD_SUPERVISOR_RESTART_H
#define INBOXD_SUPERVISOR_RESTART_H

#include <stdbool.h>
#include <stdint.h>

struct restart {
	uint32_t quick_deaths; /* in a row, each soon after its start */
};

/* Delay before the next start.  A child that lived long enough is started at once; quick deaths in a
 * row wait 0.1 s doubling to 10 s; one that says its configuration is wrong (exit 78) waits 30 s, for
 * only an edit can help. */
uint64_t restart_delay_ms(
	struct restart *r, uint64_t lived_ms, bool says_bad_configuration, uint32_t random);

#endif

/* SPDX-License-Identifier: MIT */
/* What the verbs of inboxctl parked share. */
#ifndef INBOXD_CTL_PARKED_H
#define INBOXD_CTL_PARKED_H

#include "ctl/login.h"

struct parked_args {
	struct login login;
	const char *consumer, *state, *reason; /* NULL: any */
	uint64_t limit; /* 0: none said */
	bool body, group, all, yes, dry_run;
};

/* Whether a verb changes messages: retry, discard, restore. */
bool parked_is_action(const char *verb);

/* Does it to the messages with these ids or, without ids, to those that args select; returns the
 * exit code: CTL_NO when one was refused, or when nobody said yes. */
int parked_act(
	const struct ctl *ctl, struct parked_args *args, const char *verb, int n, char **ids);

#endif

/* SPDX-License-Identifier: MIT */
/* Every fault point of the daemon, and how it is come to. */
#ifndef INBOXD_TESTS_FAULTS_POINTS_H
#define INBOXD_TESTS_FAULTS_POINTS_H

#include "field.h"

struct fault_at {
	const char *point;
	const char *via;      /* NULL: every mix of messages comes there */
	enum fault_action by; /* done to whoever stands at via */
};

extern const struct fault_at fault_points[];
extern const size_t n_fault_points;

#endif

/* SPDX-License-Identifier: MIT */
/* Chance that can be repeated: the same seed, the same run, as far as the processes let it. */
#ifndef INBOXD_TESTS_FAULTS_CHANCE_H
#define INBOXD_TESTS_FAULTS_CHANCE_H

#include <stdbool.h>
#include <stdint.h>

struct chance {
	uint64_t seed, state;
};

/* From INBOXD_FAULT_SEED, or one of its own; printed by whoever uses it. */
struct chance chance_begin(void);
unsigned chance_below(struct chance *c, unsigned n);
bool chance_percent(struct chance *c, unsigned percent);

/* A number from the environment, or what stands for it. */
int chance_setting(const char *variable, int standard);

#endif

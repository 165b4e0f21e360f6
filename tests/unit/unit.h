/* SPDX-License-Identifier: MIT */
/* A test file defines one suite, named room/file, and registers it; test names are sentences:
 *
 *     START_TEST(refuses_a_frame_beyond_the_limit) { … } END_TEST
 *     UNIT_SUITE("ipc/frame", refuses_a_frame_beyond_the_limit, …)
 *
 * The runner takes names of suites (or their beginnings) as arguments; without any it runs all.
 */
#ifndef INBOXD_TESTS_UNIT_H
#define INBOXD_TESTS_UNIT_H

#include <check.h>
#include <stddef.h>

/* A program that has this function has it called before each test, in the test's own process. */
void unit_setup(void);

/* Copies the list; timeout_s is per test. */
void unit_register(const char *suite, const TTest *const *tests, size_t n, int timeout_s);

#define UNIT_SUITE_TIMEOUT(timeout_s_, name_, ...)                                              \
	__attribute__((constructor)) static void register_this_suite(void)                      \
	{                                                                                       \
		const TTest *const these_tests[] = {__VA_ARGS__};                               \
		unit_register((name_), these_tests, sizeof these_tests / sizeof these_tests[0], \
			(timeout_s_));                                                          \
	}
#define UNIT_SUITE(name_, ...) UNIT_SUITE_TIMEOUT(20, name_, __VA_ARGS__)

#endif

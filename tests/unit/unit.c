/* SPDX-License-Identifier: MIT */
/* Runs the registered suites. */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma weak unit_setup

enum { MOST = 128 };

static struct {
	const char *name;
	Suite *suite;
} registered[MOST];
static size_t n_registered;

void unit_register(const char *suite, const TTest *const *tests, size_t n, int timeout_s)
{
	if (n_registered == MOST)
		abort();
	Suite *s = suite_create(suite);
	TCase *tc = tcase_create(suite);
	tcase_set_timeout(tc, timeout_s);
	if (unit_setup != NULL)
		tcase_add_checked_fixture(tc, unit_setup, NULL);
	const char *only = getenv("INBOXD_TEST_ONLY");
	for (size_t i = 0; i < n; i++)
		if (only == NULL || strstr(tests[i]->name, only) != NULL)
			tcase_add_test(tc, tests[i]);
	suite_add_tcase(s, tc);
	registered[n_registered].name = suite;
	registered[n_registered++].suite = s;
}

static int is_wanted(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strncmp(name, argv[i], strlen(argv[i])) == 0)
			return 1;
	return argc < 2;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const __typeof__(registered[0]) *)a)->name,
		((const __typeof__(registered[0]) *)b)->name);
}

int main(int argc, char **argv)
{
	SRunner *runner = NULL;
	qsort(registered, n_registered, sizeof registered[0], by_name);
	for (size_t i = 0; i < n_registered; i++) {
		if (!is_wanted(registered[i].name, argc, argv))
			continue;
		if (runner == NULL)
			runner = srunner_create(registered[i].suite);
		else
			srunner_add_suite(runner, registered[i].suite);
	}
	if (runner == NULL) {
		(void)fprintf(stderr, "no suite of that name\n");
		return EXIT_FAILURE;
	}
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

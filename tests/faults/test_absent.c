/* SPDX-License-Identifier: MIT */
/* What is shipped knows nothing of fault points. */
#include "field.h"
#include "points.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *read_program(const char *variable, const char *name, size_t *ret_size)
{
	char path[512];
	(void)snprintf(path, sizeof path, "%s/%s", environment(variable), name);
	FILE *f = fopen(path, "rb");
	ck_assert_msg(f != NULL, "no %s", path);
	ck_assert_int_eq(fseek(f, 0, SEEK_END), 0);
	*ret_size = (size_t)ftell(f);
	rewind(f);
	char *data = malloc(*ret_size);
	ck_assert_ptr_nonnull(data);
	ck_assert_uint_eq(fread(data, 1, *ret_size, f), *ret_size);
	(void)fclose(f);
	return data;
}

/* Points whose names nothing else has. */
static bool is_telling(const char *point)
{
	return strchr(point, '-') != NULL;
}

static size_t count_traces(const char *variable, const char *name)
{
	size_t size, n = 0;
	char *data = read_program(variable, name, &size);
	n += memmem(data, size, "fault_point", 11) != NULL;
	n += memmem(data, size, "INBOXD_FAULT_MAP", 16) != NULL;
	for (size_t i = 0; i < n_fault_points; i++) {
		const char *point = fault_points[i].point;
		n += is_telling(point) && memmem(data, size, point, strlen(point) + 1) != NULL;
	}
	free(data);
	return n;
}

START_TEST(the_programs_that_are_shipped_hold_no_fault_point)
{
	ck_assert_uint_eq(count_traces("INBOXD_TEST_SHIPPED", "inboxd"), 0);
	ck_assert_uint_eq(count_traces("INBOXD_TEST_SHIPPED", "inboxctl"), 0);
	/* Looked for rightly: these hold them all. */
	size_t telling = 2;
	for (size_t i = 0; i < n_fault_points; i++)
		telling += is_telling(fault_points[i].point);
	ck_assert_uint_eq(count_traces("INBOXD_TEST_BUILD", "inboxd"), telling);
}
END_TEST

UNIT_SUITE("faults/absent", the_programs_that_are_shipped_hold_no_fault_point)

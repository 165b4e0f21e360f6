/* SPDX-License-Identifier: MIT */
#include "base/nearest.h"

#include "unit.h"

static const char *const names[] = {"consumers", "broker", "database", "log", "on_missing_key"};

static const char *nearest(const char *word)
{
	const char *near = nearest_name(bytes_str(word), names, sizeof names / sizeof names[0]);
	return near != NULL ? near : "(none)";
}

START_TEST(finds_what_was_mistyped)
{
	ck_assert_str_eq(nearest("consumer"), "consumers");
	ck_assert_str_eq(nearest("borker"), "broker");
	ck_assert_str_eq(nearest("Database"), "database");
	ck_assert_str_eq(nearest("on-missing-key"), "on_missing_key");
	ck_assert_str_eq(nearest("lgo"), "log");
	ck_assert_str_eq(nearest("brokers"), "broker");
}
END_TEST

START_TEST(says_nothing_when_nothing_is_near)
{
	char longer[200];
	memset(longer, 'b', sizeof longer - 1);
	longer[sizeof longer - 1] = '\0';
	ck_assert_str_eq(nearest("retention"), "(none)");
	ck_assert_str_eq(nearest(""), "(none)");
	ck_assert_str_eq(nearest("x"), "(none)");
	ck_assert_str_eq(nearest(longer), "(none)");
}
END_TEST

UNIT_SUITE("base/nearest", finds_what_was_mistyped, says_nothing_when_nothing_is_near)

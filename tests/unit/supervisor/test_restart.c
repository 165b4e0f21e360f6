/* SPDX-License-Identifier: MIT */
#include "supervisor/restart.h"

#include "unit.h"

enum { QUICK_MS = 4999, LONG_MS = 5000 };

static void is_about(uint64_t delay, uint64_t middle)
{
	ck_assert_uint_ge(delay, middle - middle / 5);
	ck_assert_uint_le(delay, middle + middle / 5);
}

START_TEST(one_that_lived_long_starts_at_once)
{
	struct restart r = {0};
	ck_assert_uint_eq(restart_delay_ms(&r, LONG_MS, false, 7), 0);
	ck_assert_uint_eq(restart_delay_ms(&r, UINT64_MAX, false, 7), 0);
	ck_assert_uint_eq(r.quick_deaths, 0);
}
END_TEST

START_TEST(quick_deaths_wait_a_tenth_of_a_second_doubling_to_ten)
{
	const uint64_t middles[] = {100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000, 10000};
	const uint32_t randoms[] = {0, 1, UINT32_MAX, 12345};
	for (size_t j = 0; j < sizeof randoms / sizeof randoms[0]; j++) {
		struct restart r = {0};
		for (size_t i = 0; i < sizeof middles / sizeof middles[0]; i++)
			is_about(restart_delay_ms(&r, i % 2 != 0 ? 0 : QUICK_MS, false, randoms[j]),
				middles[i]);
		ck_assert_uint_eq(r.quick_deaths, sizeof middles / sizeof middles[0]);
	}
}
END_TEST

START_TEST(many_quick_deaths_never_wait_longer_nor_shorter)
{
	struct restart r = {.quick_deaths = 1000000};
	is_about(restart_delay_ms(&r, 0, false, 3), 10000);
	r.quick_deaths = UINT32_MAX;
	is_about(restart_delay_ms(&r, 0, false, 3), 10000);
	is_about(restart_delay_ms(&r, 0, false, 3), 10000);
}
END_TEST

START_TEST(a_long_life_ends_the_row)
{
	struct restart r = {0};
	for (int i = 0; i < 9; i++)
		(void)restart_delay_ms(&r, 0, false, 1);
	ck_assert_uint_eq(restart_delay_ms(&r, LONG_MS, false, 1), 0);
	is_about(restart_delay_ms(&r, 0, false, 1), 100);
}
END_TEST

START_TEST(a_bad_configuration_waits_half_a_minute_however_long_it_lived)
{
	struct restart r = {0};
	ck_assert_uint_eq(restart_delay_ms(&r, 0, true, 1), 30000);
	ck_assert_uint_eq(restart_delay_ms(&r, LONG_MS, true, 1), 30000);
	ck_assert_uint_eq(r.quick_deaths, 0);
}
END_TEST

START_TEST(those_that_die_together_do_not_start_together)
{
	struct restart a = {.quick_deaths = 9}, b = {.quick_deaths = 9};
	ck_assert_uint_ne(restart_delay_ms(&a, 0, false, 1), restart_delay_ms(&b, 0, false, 2));
}
END_TEST

UNIT_SUITE("supervisor/restart", one_that_lived_long_starts_at_once,
	quick_deaths_wait_a_tenth_of_a_second_doubling_to_ten,
	many_quick_deaths_never_wait_longer_nor_shorter, a_long_life_ends_the_row,
	a_bad_configuration_waits_half_a_minute_however_long_it_lived,
	those_that_die_together_do_not_start_together)

/* SPDX-License-Identifier: MIT */
#include "base/backoff.h"

#include "unit.h"

START_TEST(doubles_up_to_its_cap)
{
	static const uint32_t expected[] = {200, 400, 800, 1600, 3200, 5000, 5000};
	struct backoff b = {.first_ms = 200, .cap_ms = 5000};
	for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
		ck_assert_uint_eq(backoff_next_ms(&b, 12345), expected[i]);
	ck_assert_uint_eq(b.step, 7);
}
END_TEST

START_TEST(begins_anew_after_a_reset)
{
	struct backoff b = {.first_ms = 10, .cap_ms = 1000};
	(void)backoff_next_ms(&b, 0);
	(void)backoff_next_ms(&b, 0);
	backoff_reset(&b);
	ck_assert_uint_eq(backoff_next_ms(&b, 0), 10);
}
END_TEST

START_TEST(stays_at_the_cap_for_years)
{
	struct backoff b = {.first_ms = 1, .cap_ms = 30000, .step = UINT32_MAX - 1};
	for (int i = 0; i < 5; i++)
		ck_assert_uint_eq(backoff_next_ms(&b, 0), 30000);
	ck_assert_uint_eq(b.step, UINT32_MAX);
}
END_TEST

START_TEST(a_first_delay_of_nothing_stays_nothing)
{
	struct backoff b = {.first_ms = 0, .cap_ms = 1000, .step = UINT32_MAX};
	ck_assert_uint_eq(backoff_next_ms(&b, 7), 0);
}
END_TEST

START_TEST(jitter_reaches_both_ends_and_never_passes_them)
{
	ck_assert_uint_eq(jitter(1000, 20, 0), 800);
	ck_assert_uint_eq(jitter(1000, 20, 400), 1200);
	ck_assert_uint_eq(jitter(1000, 20, 401), 800);
	for (uint32_t r = 0; r < 5000; r += 7) {
		uint64_t v = jitter(1000, 20, r * 2654435761u);
		ck_assert_uint_ge(v, 800);
		ck_assert_uint_le(v, 1200);
	}
}
END_TEST

START_TEST(jitter_of_small_or_large_values_does_not_wrap)
{
	ck_assert_uint_eq(jitter(0, 20, 99), 0);
	ck_assert_uint_eq(jitter(1, 20, 99), 1);
	ck_assert_uint_ge(jitter(UINT64_MAX / 2, 20, 99), UINT64_MAX / 2 / 10 * 7);
	ck_assert_uint_le(jitter(1000, 400, UINT32_MAX), 2000);
}
END_TEST

START_TEST(random_bits_differ)
{
	ck_assert_uint_ne(random_u64(), random_u64());
}
END_TEST

UNIT_SUITE("base/backoff", doubles_up_to_its_cap, begins_anew_after_a_reset,
	stays_at_the_cap_for_years, a_first_delay_of_nothing_stays_nothing,
	jitter_reaches_both_ends_and_never_passes_them,
	jitter_of_small_or_large_values_does_not_wrap, random_bits_differ)

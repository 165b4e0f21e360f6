/* SPDX-License-Identifier: MIT */
/* How often, and when, a message is run again. */
#include "inbox/inbox.h"

#include "unit.h"

static uint64_t delays[] = {10000, 60000, 600000};

static struct config_consumer schedule(uint32_t immediate, size_t n_delays, uint32_t jitter_percent)
{
	return (struct config_consumer){.retry_immediate = immediate,
		.retry_delays_ms = n_delays != 0 ? delays : NULL,
		.n_retry_delays = n_delays,
		.retry_jitter_percent = jitter_percent};
}

START_TEST(a_message_runs_once_and_then_as_often_as_there_are_retries)
{
	const struct config_consumer usual = schedule(2, 3, 20), only_delays = schedule(0, 3, 20),
				     only_now = schedule(2, 0, 20), none = schedule(0, 0, 20);
	ck_assert_uint_eq(retry_attempts_max(&usual), 6);
	ck_assert_uint_eq(retry_attempts_max(&only_delays), 4);
	ck_assert_uint_eq(retry_attempts_max(&only_now), 3);
	ck_assert_uint_eq(retry_attempts_max(&none), 1);
}
END_TEST

START_TEST(the_first_retries_are_at_once_then_each_has_its_delay)
{
	const struct config_consumer c = schedule(2, 3, 0);
	const uint64_t expected[] = {0, 0, 0, 10000, 60000, 600000};
	for (uint32_t attempts = 0; attempts < 6; attempts++)
		ck_assert_uint_eq(retry_delay_ms(&c, attempts, 99), expected[attempts]);
}
END_TEST

START_TEST(past_the_last_delay_the_last_one_holds)
{
	const struct config_consumer c = schedule(2, 3, 0);
	ck_assert_uint_eq(retry_delay_ms(&c, 6, 0), 600000);
	ck_assert_uint_eq(retry_delay_ms(&c, UINT32_MAX, 0), 600000);
}
END_TEST

START_TEST(without_delays_every_retry_is_at_once)
{
	const struct config_consumer c = schedule(2, 0, 20);
	for (uint32_t attempts = 0; attempts < 10; attempts++)
		ck_assert_uint_eq(retry_delay_ms(&c, attempts, 5), 0);
	ck_assert_uint_eq(retry_delay_ms(&c, UINT32_MAX, 5), 0);
}
END_TEST

START_TEST(without_immediate_retries_the_first_has_the_first_delay)
{
	const struct config_consumer c = schedule(0, 3, 0);
	ck_assert_uint_eq(retry_delay_ms(&c, 1, 0), 10000);
	ck_assert_uint_eq(retry_delay_ms(&c, 3, 0), 600000);
}
END_TEST

START_TEST(jitter_stays_within_its_bounds_and_reaches_both)
{
	const struct config_consumer c = schedule(0, 1, 20);
	uint64_t least = UINT64_MAX, most = 0;
	for (uint32_t random = 0; random < 100000; random++) {
		uint64_t delay = retry_delay_ms(&c, 1, random * 2654435761u);
		least = delay < least ? delay : least;
		most = delay > most ? delay : most;
	}
	ck_assert_uint_ge(least, 8000);
	ck_assert_uint_le(most, 12000);
	ck_assert_uint_le(least, 8005);
	ck_assert_uint_ge(most, 11995);
	ck_assert_uint_eq(retry_delay_ms(&c, 1, 0), 8000);
	ck_assert_uint_eq(retry_delay_ms(&c, 1, 4000), 12000);
}
END_TEST

START_TEST(without_jitter_the_delay_is_exact)
{
	const struct config_consumer c = schedule(0, 1, 0);
	for (uint32_t random = 0; random < 1000; random++)
		ck_assert_uint_eq(retry_delay_ms(&c, 1, random * 2654435761u), 10000);
}
END_TEST

UNIT_SUITE("inbox/schedule", a_message_runs_once_and_then_as_often_as_there_are_retries,
	the_first_retries_are_at_once_then_each_has_its_delay,
	past_the_last_delay_the_last_one_holds, without_delays_every_retry_is_at_once,
	without_immediate_retries_the_first_has_the_first_delay,
	jitter_stays_within_its_bounds_and_reaches_both, without_jitter_the_delay_is_exact)

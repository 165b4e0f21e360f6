/* SPDX-License-Identifier: MIT */
#include "consumer/breaker.h"

#include "unit.h"

static struct breaker closed_breaker(void)
{
	return (struct breaker){.limit = 3, .pause_ms = 1000};
}

static struct breaker open_breaker(uint64_t now_ms)
{
	struct breaker b = closed_breaker();
	for (int i = 0; i < 3; i++)
		(void)breaker_parked(&b, now_ms);
	return b;
}

START_TEST(opens_at_the_limit_and_says_so_once)
{
	struct breaker b = closed_breaker();
	ck_assert(!breaker_parked(&b, 0));
	ck_assert(!breaker_parked(&b, 0));
	ck_assert(breaker_lets_through(&b, 0));
	ck_assert_uint_eq(breaker_next_ms(&b), UINT64_MAX);
	ck_assert(breaker_parked(&b, 0));
	ck_assert(!breaker_parked(&b, 0));
	ck_assert(!breaker_lets_through(&b, 0));
}
END_TEST

START_TEST(one_that_is_done_begins_the_row_anew)
{
	struct breaker b = closed_breaker();
	for (int i = 0; i < 10; i++) {
		ck_assert(!breaker_parked(&b, 0));
		ck_assert(!breaker_parked(&b, 0));
		ck_assert(!breaker_done(&b));
	}
}
END_TEST

START_TEST(tries_one_message_after_each_pause)
{
	struct breaker b = open_breaker(500);
	ck_assert_uint_eq(breaker_next_ms(&b), 1500);
	ck_assert(!breaker_lets_through(&b, 1499));
	ck_assert(breaker_lets_through(&b, 1500));
	breaker_try(&b);
	ck_assert(!breaker_lets_through(&b, 1500));
	ck_assert_uint_eq(breaker_next_ms(&b), UINT64_MAX);
	ck_assert(!breaker_parked(&b, 1700));
	ck_assert(!breaker_lets_through(&b, 2699));
	ck_assert(breaker_lets_through(&b, 2700));
}
END_TEST

START_TEST(those_that_were_under_way_when_it_opened_do_not_put_the_try_off)
{
	struct breaker b = open_breaker(0);
	ck_assert(!breaker_parked(&b, 900));
	ck_assert(breaker_lets_through(&b, 1000));
}
END_TEST

START_TEST(closes_when_one_is_done)
{
	struct breaker b = open_breaker(0);
	breaker_try(&b);
	ck_assert(breaker_done(&b));
	ck_assert(!breaker_done(&b));
	ck_assert(breaker_lets_through(&b, 0));
	ck_assert(!breaker_parked(&b, 0));
}
END_TEST

START_TEST(a_try_that_tells_nothing_is_followed_by_another_at_once)
{
	struct breaker b = open_breaker(0);
	breaker_try(&b);
	breaker_neither(&b);
	ck_assert(!breaker_lets_through(&b, 999));
	ck_assert(breaker_lets_through(&b, 1000));
}
END_TEST

START_TEST(while_it_is_closed_nothing_is_a_try)
{
	struct breaker b = closed_breaker();
	breaker_try(&b);
	ck_assert(!b.is_trying);
	ck_assert(breaker_lets_through(&b, 0));
}
END_TEST

UNIT_SUITE("consumer/breaker", opens_at_the_limit_and_says_so_once,
	one_that_is_done_begins_the_row_anew, tries_one_message_after_each_pause,
	those_that_were_under_way_when_it_opened_do_not_put_the_try_off, closes_when_one_is_done,
	a_try_that_tells_nothing_is_followed_by_another_at_once,
	while_it_is_closed_nothing_is_a_try)

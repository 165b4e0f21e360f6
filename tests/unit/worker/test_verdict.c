/* SPDX-License-Identifier: MIT */
#include "worker/verdict.h"

#include "ipc/protocol.h"
#include "unit.h"

#include <stdio.h>

static uint64_t delays[] = {10000, 60000};
static const struct config_consumer two_and_two = {
	.retry_immediate = 2, .retry_delays_ms = delays, .n_retry_delays = 2};

static struct park dispose(
	enum host_verdict v, const char *sqlstate, uint64_t delay_ms, uint32_t attempts)
{
	static struct host_item item;
	item = (struct host_item){.verdict = v, .reason = "because", .delay_ms = delay_ms};
	(void)snprintf(item.sqlstate, sizeof item.sqlstate, "%s", sqlstate);
	/* Nothing of what was there before may stay. */
	struct park park = {.state = "?", .reason = "?", .attempts = 99, .delay_ms = 77};
	verdict_dispose(&two_and_two, &item, attempts, 0, &park);
	ck_assert_str_eq(park.detail, "because");
	ck_assert_str_eq(park.sqlstate, sqlstate);
	ck_assert_uint_eq(park.attempts, attempts);
	return park;
}

START_TEST(only_a_retry_waits_and_only_while_attempts_are_left)
{
	static const struct {
		enum host_verdict verdict;
		uint32_t attempts;
		const char *state;
	} cases[] = {
		{HOST_RETRY, 1, "waiting"},
		{HOST_RETRY, 4, "waiting"},
		{HOST_RETRY, 5, "failed"},
		{HOST_RETRY, 6, "failed"},
		{HOST_RETRY, UINT32_MAX, "failed"},
		{HOST_REJECT, 1, "failed"},
		{HOST_REJECT, 5, "failed"},
		{HOST_BROKEN, 1, "failed"},
		{HOST_BROKEN, 5, "failed"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct park park = dispose(cases[i].verdict, "", 0, cases[i].attempts);
		ck_assert_str_eq(park.state, cases[i].state);
	}
}
END_TEST

START_TEST(the_reason_tells_what_happened)
{
	static const struct {
		enum host_verdict verdict;
		const char *sqlstate, *reason;
	} cases[] = {
		{HOST_RETRY, "", "retry"},
		{HOST_RETRY, "40001", "sql_error"},
		{HOST_RETRY, "57014", "timed_out"},
		{HOST_RETRY, "57P01", "sql_error"},
		{HOST_REJECT, "", "rejected"},
		{HOST_REJECT, "23505", "sql_error"},
		{HOST_REJECT, "57014", "timed_out"},
		{HOST_BROKEN, "", "broken"},
		{HOST_BROKEN, "2D000", "broken"},
		{HOST_BROKEN, "57014", "broken"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		ck_assert_str_eq(
			dispose(cases[i].verdict, cases[i].sqlstate, 0, 1).reason, cases[i].reason);
}
END_TEST

START_TEST(the_delay_follows_the_schedule_unless_the_handler_names_one)
{
	const uint64_t expected[] = {0, 0, 10000, 60000};
	for (uint32_t attempts = 1; attempts <= 4; attempts++) {
		ck_assert_uint_eq(
			dispose(HOST_RETRY, "", 0, attempts).delay_ms, expected[attempts - 1]);
		ck_assert_uint_eq(dispose(HOST_RETRY, "", 1234, attempts).delay_ms, 1234);
	}
}
END_TEST

START_TEST(what_does_not_wait_has_no_delay)
{
	ck_assert_uint_eq(dispose(HOST_RETRY, "", 1234, 5).delay_ms, 0);
	ck_assert_uint_eq(dispose(HOST_REJECT, "", 1234, 1).delay_ms, 0);
	ck_assert_uint_eq(dispose(HOST_BROKEN, "", 1234, 1).delay_ms, 0);
}
END_TEST

START_TEST(a_handlers_delay_is_a_year_at_most)
{
	ck_assert_uint_eq(dispose(HOST_RETRY, "", UINT64_MAX, 1).delay_ms, VERDICT_DELAY_MAX_MS);
	ck_assert_uint_eq(dispose(HOST_RETRY, "", INT64_MAX, 1).delay_ms, VERDICT_DELAY_MAX_MS);
	ck_assert_uint_eq(
		dispose(HOST_RETRY, "", VERDICT_DELAY_MAX_MS, 1).delay_ms, VERDICT_DELAY_MAX_MS);
}
END_TEST

static struct park dispose_crash(uint32_t crashes, uint32_t attempts)
{
	static const struct config_consumer c = {.crash_limit = 3,
		.retry_immediate = 2,
		.retry_delays_ms = delays,
		.n_retry_delays = 2};
	struct park park = {.crashes = crashes, .delay_ms = 77};
	verdict_dispose_crash(&c, attempts, 0, &park);
	ck_assert_uint_eq(park.attempts, attempts);
	ck_assert_uint_eq(park.crashes, crashes);
	return park;
}

START_TEST(a_crash_waits_until_there_are_enough_of_them_or_no_attempts_are_left)
{
	ck_assert_str_eq(dispose_crash(1, 1).state, "waiting");
	ck_assert_str_eq(dispose_crash(2, 4).state, "waiting");
	ck_assert_str_eq(dispose_crash(3, 3).state, "failed");
	ck_assert_str_eq(dispose_crash(1, 5).state, "failed");
	ck_assert_uint_eq(dispose_crash(1, 2).delay_ms, 0);
	ck_assert_uint_eq(dispose_crash(1, 3).delay_ms, 10000);
	ck_assert_uint_eq(dispose_crash(3, 3).delay_ms, 0);
}
END_TEST

START_TEST(a_full_disk_is_believed_for_long_the_end_of_a_session_a_few_times)
{
	ck_assert_uint_ge(verdict_losses_believed("53100"), 100);
	ck_assert_uint_ge(verdict_losses_believed("25006"), 100);
	ck_assert_uint_le(verdict_losses_believed("57P01"), 10);
	ck_assert_uint_le(verdict_losses_believed(""), 10);
}
END_TEST

START_TEST(a_duplicate_has_one_cause)
{
	ck_assert_int_eq(verdict_duplicate_cause(0, false), STATS_duplicates_republished);
	ck_assert_int_eq(verdict_duplicate_cause(0, true), STATS_duplicates_redelivered);
	ck_assert_int_eq(verdict_duplicate_cause(ITEM_ALONE, false), STATS_duplicates_republished);
	ck_assert_int_eq(verdict_duplicate_cause(ITEM_ALONE, true), STATS_duplicates_redelivered);
	ck_assert_int_eq(
		verdict_duplicate_cause(ITEM_CONCURRENT, false), STATS_duplicates_concurrent);
	ck_assert_int_eq(verdict_duplicate_cause(ITEM_CONCURRENT | ITEM_ALONE, true),
		STATS_duplicates_concurrent);
}
END_TEST

UNIT_SUITE("worker/verdict", only_a_retry_waits_and_only_while_attempts_are_left,
	the_reason_tells_what_happened, the_delay_follows_the_schedule_unless_the_handler_names_one,
	what_does_not_wait_has_no_delay,
	a_crash_waits_until_there_are_enough_of_them_or_no_attempts_are_left,
	a_handlers_delay_is_a_year_at_most,
	a_full_disk_is_believed_for_long_the_end_of_a_session_a_few_times, a_duplicate_has_one_cause)

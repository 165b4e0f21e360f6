/* SPDX-License-Identifier: MIT */
#include "consumer/publisher.h"

#include "unit.h"

START_TEST(waits_a_second_doubling_to_five_minutes)
{
	static const struct {
		uint32_t attempts, delay_ms;
	} expected[] = {{0, 1000}, {1, 1000}, {2, 2000}, {3, 4000}, {9, 256000}, {10, 300000},
		{1000000, 300000}, {UINT32_MAX, 300000}};
	for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
		for (uint32_t random = 0; random < 4000000000; random += 300000007) {
			uint32_t delay = publisher_delay_ms(expected[i].attempts, random);
			ck_assert_uint_ge(delay, expected[i].delay_ms / 10 * 8);
			ck_assert_uint_le(delay, expected[i].delay_ms / 10 * 12);
		}
}
END_TEST

UNIT_SUITE("consumer/publisher", waits_a_second_doubling_to_five_minutes)

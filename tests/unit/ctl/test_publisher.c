/* SPDX-License-Identifier: MIT */
#include "ctl/publisher.h"

#include "unit.h"

START_TEST(counts_confirms_in_any_order)
{
	struct publisher_window w = {.sent = 5};
	publisher_settle(&w, 2, false);
	ck_assert_uint_eq(w.settled, 0);
	publisher_settle(&w, 1, false);
	ck_assert_uint_eq(w.settled, 2);
	publisher_settle(&w, 5, false);
	publisher_settle(&w, 4, true);
	ck_assert_uint_eq(w.settled, 5);
}
END_TEST

START_TEST(passes_over_tags_that_are_not_under_way)
{
	struct publisher_window w = {.sent = 3};
	publisher_settle(&w, 4, true);
	publisher_settle(&w, 0, true);
	ck_assert_uint_eq(w.settled, 0);
	publisher_settle(&w, 3, true);
	publisher_settle(&w, 2, false);
	publisher_settle(&w, 3, true);
	ck_assert_uint_eq(w.settled, 3);
}
END_TEST

START_TEST(bounds_what_is_under_way_and_goes_round)
{
	struct publisher_window w = {0};
	for (uint64_t round = 1; round <= 10; round++) {
		while (publisher_has_room(&w))
			w.sent++;
		ck_assert_uint_eq(w.sent, w.settled + PUBLISHER_WINDOW);
		/* The newer half first: nothing is settled before the older one is answered. */
		uint64_t middle = w.settled + PUBLISHER_WINDOW / 2;
		for (uint64_t t = w.sent; t > middle; t--)
			publisher_settle(&w, t, false);
		ck_assert(!publisher_has_room(&w));
		publisher_settle(&w, middle, true);
		ck_assert_uint_eq(w.settled, w.sent);
	}
}
END_TEST

UNIT_SUITE("ctl/publisher", counts_confirms_in_any_order, passes_over_tags_that_are_not_under_way,
	bounds_what_is_under_way_and_goes_round)

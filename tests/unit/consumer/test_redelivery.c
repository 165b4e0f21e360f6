/* SPDX-License-Identifier: MIT */
#include "consumer/redelivery.h"

#include "base/fd.h"
#include "unit.h"

static bool may_count = true;

/* Property list with nothing but a header table. */
static bool is_often(struct buf *table, bool redelivered, uint32_t limit)
{
	AUTO(buf) struct buf raw = {0};
	struct props p = {.present = 1u << PROP_HEADERS};
	struct props read;
	p.text[PROP_HEADERS] = buf_bytes(table);
	props_encode(&raw, table->size != 0 ? &p : &(struct props){.present = 0});
	ck_assert(props_decode(buf_bytes(&raw), &read));
	return redelivery_is_often(&read, redelivered, may_count, limit);
}

static bool is_often_with(const char *header, int64_t count, bool redelivered, uint32_t limit)
{
	AUTO(buf) struct buf table = {0};
	field_add_string(&table, "other", bytes_str("x"));
	field_add_integer(&table, header, count);
	return is_often(&table, redelivered, limit);
}

START_TEST(a_first_delivery_is_never_often_whatever_its_headers_say)
{
	ck_assert(!is_often_with("x-delivery-count", 99, false, 20));
	ck_assert(!is_often(&(struct buf){0}, false, 20));
}
END_TEST

START_TEST(half_of_the_limit_is_often)
{
	ck_assert(!is_often_with("x-delivery-count", 9, true, 20));
	ck_assert(is_often_with("x-delivery-count", 10, true, 20));
	ck_assert(is_often_with("x-delivery-count", 1, true, 3));
	ck_assert(is_often_with("x-delivery-count", 1, true, 1));
}
END_TEST

START_TEST(any_redelivery_is_often_where_the_broker_does_not_count)
{
	ck_assert(is_often(&(struct buf){0}, true, 20));
	AUTO(buf) struct buf table = {0};
	field_add_string(&table, "x-delivery-count", bytes_str("1"));
	ck_assert(is_often(&table, true, 20));
	/* Nobody who counts has come to 0 by the second time: it is a publisher's. */
	ck_assert(is_often_with("x-delivery-count", 0, true, 20));
	ck_assert(is_often_with("x-acquired-count", 0, true, 20));
}
END_TEST

START_TEST(a_count_in_a_queue_that_counts_nothing_is_somebody_elses)
{
	may_count = false;
	ck_assert(is_often_with("x-delivery-count", 1, true, 20));
	ck_assert(is_often_with("x-acquired-count", 1, true, 20));
	ck_assert(!is_often_with("x-delivery-count", 99, false, 20));
}
END_TEST

START_TEST(what_was_only_given_back_is_not_often_where_that_is_counted_apart)
{
	ck_assert(!is_often_with("x-acquired-count", 50, true, 20));
	AUTO(buf) struct buf table = {0};
	field_add_integer(&table, "x-acquired-count", 50);
	field_add_integer(&table, "x-delivery-count", 10);
	ck_assert(is_often(&table, true, 20));
}
END_TEST

UNIT_SUITE("consumer/redelivery", a_count_in_a_queue_that_counts_nothing_is_somebody_elses,
	a_first_delivery_is_never_often_whatever_its_headers_say,
	half_of_the_limit_is_often, any_redelivery_is_often_where_the_broker_does_not_count,
	what_was_only_given_back_is_not_often_where_that_is_counted_apart)

/* SPDX-License-Identifier: MIT */
/* The window of deliveries: each rule by itself, then all of them against a model that is too
 * simple to be wrong. */
#include "consumer/window.h"

#include "unit.h"

#include <malloc.h>
#include <stdio.h>
#include <time.h>
#include <utlist.h>

enum { HOLD_MS = 10 };

/* As ck_assert, but for what is asked some millions of times: Check notes each of its own on disk.
 */
#define MUST(condition)                                         \
	do {                                                    \
		if (!(condition))                               \
			ck_abort_msg("not so: %s", #condition); \
	} while (0)
#define MUST_EQ(a, b)                                                                          \
	do {                                                                                   \
		unsigned long long a_ = (unsigned long long)(a), b_ = (unsigned long long)(b); \
		if (a_ != b_)                                                                  \
			ck_abort_msg("%s == %llu, but %s == %llu", #a, a_, #b, b_);            \
	} while (0)

/* ---- what must hold at any time -------------------------------------------------------------- */

struct tally {
	size_t held, ready, later, in_hand, loose, leaders;
	uint64_t bytes;
};

static bool is_held(const struct entry *e)
{
	return e->state != ENTRY_SETTLED;
}

static const struct entry *leader_of(struct window *w, const struct entry *e)
{
	struct entry *leader;
	HASH_FIND(hh, w->by_key, e->key, e->key_size, leader);
	return leader;
}

static void check_entry(struct window *w, const struct entry *e, uint64_t tag, struct tally *t)
{
	MUST_EQ(e->tag, tag);
	MUST(e->state != ENTRY_NONE);
	t->held += is_held(e);
	t->ready += e->state == ENTRY_READY;
	t->later += e->state == ENTRY_LATER;
	t->in_hand += e->state == ENTRY_IN_HAND;
	t->loose += e->state == ENTRY_SETTLED;
	if (e->state != ENTRY_RECEIVING)
		t->bytes += e->message.size;
	if (e->state == ENTRY_SETTLED)
		MUST_EQ(e->message.size, 0);
	if (e->key == NULL || e->state == ENTRY_SETTLED)
		return;
	const struct entry *leader = leader_of(w, e);
	MUST(leader != NULL);
	t->leaders += leader == e;
	if (e->state == ENTRY_BEHIND)
		MUST(leader->tag < e->tag);
	else
		MUST_EQ(leader, e);
}

/* Every entry of a list in the one state, in order of tag if that is asked for. */
static size_t check_list(const struct entry *list, enum entry_state state, bool in_order)
{
	size_t n = 0;
	const struct entry *e;
	DL_FOREACH(list, e)
	{
		MUST_EQ(e->state, state);
		if (in_order && e->next != NULL)
			MUST(e->tag < e->next->tag);
		n++;
	}
	return n;
}

static void check_invariants(struct window *w)
{
	struct tally t = {0};
	for (uint64_t tag = w->first; tag < w->next; tag++) {
		const struct delivery_ref ref = {.generation = w->generation, .tag = tag};
		const struct entry *e = window_find(w, &ref);
		if (e != NULL)
			check_entry(w, e, tag, &t);
		else
			MUST(tag != w->first);
	}
	MUST_EQ(w->n_held, t.held);
	MUST_EQ(w->n_ready, t.ready);
	MUST_EQ(w->n_in_hand, t.in_hand);
	MUST_EQ(w->n_loose, t.loose);
	MUST_EQ(w->bytes, t.bytes);
	MUST_EQ(HASH_COUNT(w->by_key), t.leaders);
	MUST_EQ(check_list(w->ready, ENTRY_READY, true), t.ready);
	MUST_EQ(check_list(w->later, ENTRY_LATER, false), t.later);
	MUST_EQ(check_list(w->loose, ENTRY_SETTLED, false), t.loose);
}

/* ---- short words for the tests --------------------------------------------------------------- */

static struct window w;

static struct entry *begin_arriving(size_t size)
{
	struct entry *e = window_add(&w, w.next);
	MUST(e != NULL);
	for (size_t i = 0; i < size; i++)
		buf_add_byte(&e->message, 'x');
	return e;
}

static struct entry *deliver(const char *key, size_t size)
{
	struct entry *e = begin_arriving(size);
	window_complete(&w, e, bytes_str(key));
	return e;
}

static struct entry *take(void)
{
	struct entry *e = window_peek(&w);
	MUST(e != NULL);
	window_take(&w, e);
	return e;
}

static void settle(struct entry *e)
{
	window_verdict(&w, e, VERDICT_DONE, 0);
}

static void ready_tag_is(uint64_t tag)
{
	const struct entry *e = window_peek(&w);
	ck_assert_uint_eq(e != NULL ? e->tag : 0, tag);
}

/* n deliveries without key, all in a worker's hand; the entry of tag t is at t - 1. */
static void take_many(struct entry **hand, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		hand[i] = deliver("", 1);
		(void)take();
	}
}

static void acks(uint64_t now_ms, uint64_t tag, bool multiple)
{
	uint64_t got = 0, wait;
	bool is_multiple;
	ck_assert(window_next_ack(&w, now_ms, HOLD_MS, &got, &is_multiple, &wait));
	ck_assert_uint_eq(got, tag);
	ck_assert_int_eq(is_multiple, multiple);
	check_invariants(&w);
}

static void acks_nothing(uint64_t now_ms, uint64_t wait_ms)
{
	uint64_t tag, wait = 0;
	bool multiple;
	ck_assert(!window_next_ack(&w, now_ms, HOLD_MS, &tag, &multiple, &wait));
	ck_assert_uint_eq(wait, wait_ms);
}

static void setup(void)
{
	window_init(&w);
}

static void done(void)
{
	check_invariants(&w);
	window_done(&w);
}

/* ---- tags and generations -------------------------------------------------------------------- */

START_TEST(takes_tags_one_by_one_and_no_other)
{
	setup();
	ck_assert_ptr_null(window_add(&w, 0));
	ck_assert_ptr_null(window_add(&w, 2));
	ck_assert_ptr_nonnull(window_add(&w, 1));
	ck_assert_ptr_null(window_add(&w, 1));
	ck_assert_ptr_null(window_add(&w, 3));
	ck_assert_ptr_nonnull(window_add(&w, 2));
	ck_assert_uint_eq(w.n_held, 2);
	done();
}
END_TEST

START_TEST(a_delivery_of_an_older_generation_is_not_found)
{
	setup();
	struct delivery_ref ref = {.generation = w.generation, .tag = 1};
	ck_assert_ptr_null(window_find(&w, &ref));
	(void)deliver("a", 1);
	ck_assert_ptr_nonnull(window_find(&w, &ref));
	window_reset(&w);
	ck_assert_ptr_null(window_find(&w, &ref));
	(void)deliver("a", 1);
	ck_assert_ptr_null(window_find(&w, &ref));
	ref.generation = w.generation;
	ck_assert_ptr_nonnull(window_find(&w, &ref));
	ref.tag = 0;
	ck_assert_ptr_null(window_find(&w, &ref));
	ref.tag = 2;
	ck_assert_ptr_null(window_find(&w, &ref));
	ref.tag = UINT64_MAX;
	ck_assert_ptr_null(window_find(&w, &ref));
	done();
}
END_TEST

START_TEST(what_was_acknowledged_is_not_found)
{
	struct entry *hand[2];
	setup();
	take_many(hand, 2);
	settle(hand[1]);
	acks(HOLD_MS, 2, false);
	const struct delivery_ref second = {.generation = w.generation, .tag = 2};
	ck_assert_ptr_null(window_find(&w, &second));
	settle(hand[0]);
	acks(0, 1, false);
	const struct delivery_ref first = {.generation = w.generation, .tag = 1};
	ck_assert_ptr_null(window_find(&w, &first));
	ck_assert_ptr_null(window_add(&w, 1));
	ck_assert_ptr_nonnull(window_add(&w, 3));
	done();
}
END_TEST

START_TEST(reset_frees_entries_of_every_state)
{
	setup();
	uint32_t generation = w.generation;
	for (int i = 0; i < 6; i++)
		(void)deliver(i % 2 != 0 ? "twin" : "", 100);
	settle(take());
	window_verdict(&w, take(), VERDICT_BUSY, 0);
	(void)take();
	(void)deliver("", 5);
	window_complete_parking(&w, begin_arriving(5), PARK_NO_KEY, "no message_id");
	struct entry *crashed = take();
	window_crashed(&w, crashed, true, PARK_CRASHED, "signal 11");
	(void)begin_arriving(1000);
	check_invariants(&w);
	window_reset(&w);
	check_invariants(&w);
	ck_assert_uint_eq(w.generation, generation + 1);
	ck_assert_uint_eq(w.first, 1);
	ck_assert_uint_eq(w.next, 1);
	ck_assert_uint_eq(w.n_held, 0);
	ck_assert_uint_eq(w.bytes, 0);
	ck_assert_ptr_null(window_peek(&w));
	ck_assert_uint_eq(window_wake(&w, UINT64_MAX), UINT64_MAX);
	acks_nothing(UINT64_MAX / 2, UINT64_MAX);
	done();
}
END_TEST

START_TEST(holds_thousands)
{
	enum { N = 3000 };
	static struct entry *hand[N];
	setup();
	take_many(hand, N);
	for (size_t i = 0; i < N; i++) {
		const struct delivery_ref ref = {.generation = w.generation, .tag = i + 1};
		ck_assert_ptr_eq(window_find(&w, &ref), hand[i]);
	}
	check_invariants(&w);
	for (size_t i = N; i > 0; i--)
		settle(hand[i - 1]);
	acks(0, N, true);
	done();
}
END_TEST

START_TEST(grows_right_also_when_many_have_passed)
{
	struct entry *hand[900];
	setup();
	take_many(hand, 200);
	for (size_t i = 0; i < 190; i++)
		settle(hand[i]);
	acks(0, 190, true);
	take_many(hand, 900);
	check_invariants(&w);
	for (uint64_t tag = 191; tag <= 1100; tag++) {
		const struct delivery_ref ref = {.generation = w.generation, .tag = tag};
		ck_assert_uint_eq(window_find(&w, &ref)->tag, tag);
	}
	done();
}
END_TEST

/* ---- order ----------------------------------------------------------------------------------- */

START_TEST(the_oldest_comes_first)
{
	setup();
	ck_assert_ptr_null(window_peek(&w));
	(void)deliver("a", 1);
	(void)deliver("b", 1);
	(void)deliver("c", 1);
	ck_assert_uint_eq(take()->tag, 1);
	ck_assert_uint_eq(take()->tag, 2);
	ck_assert_uint_eq(take()->tag, 3);
	ck_assert_ptr_null(window_peek(&w));
	done();
}
END_TEST

START_TEST(what_comes_back_stands_where_it_stood)
{
	struct entry *hand[4];
	setup();
	take_many(hand, 4);
	(void)deliver("", 1);
	window_give_back(&w, hand[2]);
	window_verdict(&w, hand[0], VERDICT_AGAIN, 0);
	window_verdict(&w, hand[3], VERDICT_ALONE, 0);
	window_crashed(&w, hand[1], false, PARK_CRASHED, NULL);
	check_invariants(&w);
	for (uint64_t tag = 1; tag <= 5; tag++)
		ck_assert_uint_eq(take()->tag, tag);
	done();
}
END_TEST

START_TEST(only_what_nobody_heard_of_is_said_to_come_again)
{
	struct entry *hand[4];
	setup();
	take_many(hand, 4);
	window_verdict(&w, hand[0], VERDICT_AGAIN, 0);
	window_verdict(&w, hand[1], VERDICT_ALONE, 0);
	window_verdict(&w, hand[2], VERDICT_BUSY, 0);
	window_crashed(&w, hand[3], false, PARK_CRASHED, NULL);
	ck_assert_uint_ne(hand[0]->flags & ITEM_AGAIN, 0);
	ck_assert_uint_eq(hand[1]->flags & ITEM_AGAIN, 0);
	ck_assert_uint_eq(hand[2]->flags & ITEM_AGAIN, 0);
	ck_assert_uint_ne(hand[3]->flags & ITEM_AGAIN, 0);
	done();
}
END_TEST

START_TEST(only_a_failed_batch_sends_its_messages_alone)
{
	struct entry *hand[3];
	setup();
	take_many(hand, 3);
	window_verdict(&w, hand[0], VERDICT_AGAIN, 0);
	ck_assert_uint_eq(hand[0]->flags & ITEM_ALONE, 0);
	window_verdict(&w, hand[1], VERDICT_ALONE, 0);
	ck_assert_uint_ne(hand[1]->flags & ITEM_ALONE, 0);
	window_give_back(&w, hand[2]);
	ck_assert_uint_eq(hand[2]->flags, 0);
	done();
}
END_TEST

/* ---- twins ----------------------------------------------------------------------------------- */

START_TEST(copies_wait_for_the_oldest_of_their_key)
{
	setup();
	struct entry *first = deliver("k", 1);
	struct entry *second = deliver("k", 1);
	struct entry *other = deliver("l", 1);
	struct entry *third = deliver("k", 1);
	check_invariants(&w);
	ck_assert_int_eq(second->state, ENTRY_BEHIND);
	ck_assert_int_eq(third->state, ENTRY_BEHIND);
	ck_assert_uint_eq(first->flags & ITEM_CONCURRENT, 0);
	ck_assert_uint_ne(second->flags & ITEM_CONCURRENT, 0);
	ck_assert_ptr_eq(take(), first);
	ck_assert_ptr_eq(take(), other);
	ck_assert_ptr_null(window_peek(&w));
	settle(first);
	check_invariants(&w);
	ck_assert_ptr_eq(take(), second);
	ck_assert_ptr_null(window_peek(&w));
	settle(second);
	ck_assert_ptr_eq(take(), third);
	done();
}
END_TEST

START_TEST(copies_wait_while_their_leader_is_busy_or_comes_back)
{
	setup();
	struct entry *first = deliver("k", 1);
	struct entry *second = deliver("k", 1);
	window_verdict(&w, take(), VERDICT_BUSY, 0);
	ck_assert_ptr_null(window_peek(&w));
	ck_assert_int_eq(second->state, ENTRY_BEHIND);
	(void)deliver("k", 1);
	ck_assert_ptr_null(window_peek(&w));
	ck_assert_uint_eq(window_wake(&w, 200), UINT64_MAX);
	ck_assert_ptr_eq(take(), first);
	window_verdict(&w, first, VERDICT_ALONE, 0);
	ck_assert_ptr_eq(take(), first);
	window_crashed(&w, first, true, PARK_CRASHED, NULL);
	ck_assert_ptr_eq(take(), first);
	ck_assert_ptr_null(window_peek(&w));
	window_verdict(&w, first, VERDICT_PARKED, 0);
	ck_assert_ptr_eq(take(), second);
	done();
}
END_TEST

START_TEST(a_dropped_leader_lets_its_twin_go_in_any_state)
{
	const enum verdict before[] = {VERDICT_BUSY, VERDICT_AGAIN};
	for (size_t i = 0; i < 3; i++) {
		setup();
		struct entry *first = deliver("k", 7);
		struct entry *second = deliver("k", 1);
		(void)take();
		if (i < 2)
			window_verdict(&w, first, before[i], 0);
		window_drop(&w, first);
		check_invariants(&w);
		ck_assert_uint_eq(w.bytes, 1);
		ck_assert_ptr_eq(take(), second);
		ck_assert_uint_eq(w.n_in_hand, 1);
		ck_assert_uint_eq(window_wake(&w, UINT64_MAX), UINT64_MAX);
		done();
	}
}
END_TEST

START_TEST(a_promoted_twin_stands_in_order_of_its_tag)
{
	setup();
	struct entry *first = deliver("k", 1);
	(void)deliver("k", 1);
	(void)deliver("other", 1);
	(void)take();
	settle(first);
	ck_assert_uint_eq(take()->tag, 2);
	ck_assert_uint_eq(take()->tag, 3);
	done();
}
END_TEST

START_TEST(keys_are_bytes_and_none_is_no_key)
{
	setup();
	struct entry *e = begin_arriving(1);
	window_complete(&w, e, bytes_of("a\0b", 3));
	e = begin_arriving(1);
	window_complete(&w, e, bytes_of("a\0c", 3));
	e = begin_arriving(1);
	window_complete(&w, e, bytes_of("a", 1));
	(void)deliver("", 1);
	(void)deliver("", 1);
	ck_assert_uint_eq(w.n_ready, 5);
	e = begin_arriving(1);
	window_complete(&w, e, bytes_of("a\0c", 3));
	ck_assert_int_eq(e->state, ENTRY_BEHIND);
	done();
}
END_TEST

START_TEST(the_key_is_free_once_its_last_copy_is_settled)
{
	setup();
	(void)deliver("k", 1);
	settle(take());
	struct entry *later = deliver("k", 1);
	ck_assert_int_eq(later->state, ENTRY_READY);
	ck_assert_uint_eq(later->flags & ITEM_CONCURRENT, 0);
	done();
}
END_TEST

/* ---- busy ------------------------------------------------------------------------------------ */

START_TEST(a_busy_key_is_offered_after_fifth_of_a_second_doubling_to_five)
{
	const uint64_t delays[] = {200, 200, 400, 800, 1600, 3200, 5000, 5000};
	for (uint32_t times = 0; times < sizeof delays / sizeof delays[0]; times++)
		ck_assert_uint_eq(window_busy_delay_ms(times), delays[times]);
	ck_assert_uint_eq(window_busy_delay_ms(UINT32_MAX), 5000);
}
END_TEST

START_TEST(busy_ones_wake_when_due_and_say_who_is_next)
{
	struct entry *hand[2];
	setup();
	take_many(hand, 2);
	window_verdict(&w, hand[1], VERDICT_BUSY, 1000);
	window_verdict(&w, hand[0], VERDICT_BUSY, 1050);
	ck_assert_uint_eq(window_wake(&w, 1199), 1200);
	ck_assert_ptr_null(window_peek(&w));
	ck_assert_uint_eq(window_wake(&w, 1200), 1250);
	ready_tag_is(2);
	ck_assert_uint_eq(window_wake(&w, 1300), UINT64_MAX);
	ready_tag_is(1);
	done();
}
END_TEST

START_TEST(the_delay_grows_only_while_it_is_busy_in_a_row)
{
	setup();
	(void)deliver("", 1);
	struct entry *e = take();
	window_verdict(&w, e, VERDICT_BUSY, 0);
	(void)window_wake(&w, 1000);
	window_verdict(&w, take(), VERDICT_BUSY, 1000);
	ck_assert_uint_eq(window_wake(&w, 1000), 1400);
	(void)window_wake(&w, 2000);
	window_verdict(&w, take(), VERDICT_AGAIN, 2000);
	window_verdict(&w, take(), VERDICT_BUSY, 2000);
	ck_assert_uint_eq(window_wake(&w, 2000), 2200);
	done();
}
END_TEST

/* ---- acknowledgements ------------------------------------------------------------------------ */

START_TEST(the_settled_prefix_goes_by_one_ack)
{
	struct entry *hand[5];
	setup();
	take_many(hand, 5);
	acks_nothing(0, UINT64_MAX);
	settle(hand[0]);
	settle(hand[2]);
	settle(hand[1]);
	acks(0, 3, true);
	acks_nothing(0, UINT64_MAX);
	settle(hand[3]);
	acks(0, 4, false);
	settle(hand[4]);
	acks(0, 5, false);
	acks_nothing(0, UINT64_MAX);
	ck_assert_uint_eq(w.first, w.next);
	done();
}
END_TEST

START_TEST(what_is_settled_out_of_order_waits_a_little_then_goes_singly)
{
	struct entry *hand[4];
	setup();
	take_many(hand, 4);
	window_verdict(&w, hand[2], VERDICT_DONE, 100);
	window_verdict(&w, hand[1], VERDICT_DUPLICATE, 104);
	acks_nothing(105, 5);
	acks(110, 3, false);
	acks_nothing(110, 4);
	acks(114, 2, false);
	acks_nothing(200, UINT64_MAX);
	window_verdict(&w, hand[0], VERDICT_PARKED, 200);
	acks(200, 1, false);
	window_verdict(&w, hand[3], VERDICT_DONE, 200);
	acks(200, 4, false);
	done();
}
END_TEST

START_TEST(a_prefix_ack_names_a_tag_that_the_broker_still_knows)
{
	struct entry *hand[4];
	setup();
	take_many(hand, 4);
	settle(hand[3]);
	acks(HOLD_MS, 4, false);
	settle(hand[1]);
	acks(HOLD_MS, 2, false);
	settle(hand[0]);
	settle(hand[2]);
	acks(0, 3, true);
	acks_nothing(0, UINT64_MAX);
	ck_assert_uint_eq(w.first, 5);
	done();
}
END_TEST

START_TEST(a_single_one_left_of_a_prefix_is_not_multiple)
{
	struct entry *hand[3];
	setup();
	take_many(hand, 3);
	settle(hand[1]);
	acks(HOLD_MS, 2, false);
	settle(hand[0]);
	/* Tag 2 is gone: naming 1 with multiple would be no harm, but no use. */
	acks(HOLD_MS, 1, false);
	done();
}
END_TEST

START_TEST(a_dropped_delivery_is_never_acknowledged)
{
	struct entry *hand[4];
	setup();
	take_many(hand, 4);
	window_drop(&w, hand[1]);
	check_invariants(&w);
	settle(hand[3]);
	settle(hand[0]);
	acks(0, 1, false);
	acks(HOLD_MS, 4, false);
	window_drop(&w, hand[2]);
	acks_nothing(HOLD_MS, UINT64_MAX);
	ck_assert_uint_eq(w.first, w.next);
	ck_assert_uint_eq(w.n_held, 0);
	done();
}
END_TEST

static double seconds(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* A handler that runs for half a minute, while others do ten thousand messages in each second. */
START_TEST(one_slow_message_makes_all_behind_it_neither_kept_nor_looked_through)
{
	enum { N = 300000, AT_ONCE = 100 };
	uint64_t tag, wait, acked = 0;
	bool multiple;
	setup();
	(void)deliver("slow", 1);
	(void)take();
	size_t used = mallinfo2().uordblks;
	double begin = seconds();
	for (uint64_t i = 0; i < N; i++) {
		(void)deliver("", 100);
		window_verdict(&w, take(), VERDICT_DONE, i);
		if (i % AT_ONCE == 0)
			while (window_next_ack(&w, i, HOLD_MS, &tag, &multiple, &wait))
				acked++;
	}
	ck_assert_msg(seconds() - begin < 8, "took %.1f s", seconds() - begin);
	ck_assert_uint_ge(acked, N - AT_ONCE - HOLD_MS - 1);
	ck_assert_uint_eq(w.n_held, 1);
	ck_assert_uint_eq(w.bytes, w.by_tag->message.size);
	ck_assert_uint_lt(mallinfo2().uordblks - used, 100000);
	done();
}
END_TEST

/* ---- crashes and parking --------------------------------------------------------------------- */

START_TEST(a_crash_of_one_alone_is_counted_and_parked)
{
	setup();
	(void)deliver("k", 1);
	struct entry *e = take();
	window_crashed(&w, e, true, PARK_TIMED_OUT, "killed after 30 s");
	ck_assert_uint_eq(e->crashes, 1);
	ck_assert(e->is_parking);
	ck_assert_int_eq(e->park_reason, PARK_TIMED_OUT);
	ck_assert_str_eq(e->park_detail, "killed after 30 s");
	ck_assert_ptr_eq(window_peek(&w), e);
	done();
}
END_TEST

START_TEST(a_crash_of_several_is_nobodys_yet)
{
	struct entry *hand[2];
	setup();
	take_many(hand, 2);
	for (size_t i = 0; i < 2; i++) {
		window_crashed(&w, hand[i], false, PARK_CRASHED, "signal 9");
		ck_assert_uint_eq(hand[i]->crashes, 0);
		ck_assert(!hand[i]->is_parking);
		ck_assert_uint_ne(hand[i]->flags & ITEM_ALONE, 0);
	}
	(void)take();
	window_crashed(&w, hand[0], true, PARK_CRASHED, "signal 9");
	ck_assert_uint_eq(hand[0]->crashes, 1);
	ck_assert(!hand[1]->is_parking);
	done();
}
END_TEST

START_TEST(a_crash_while_parking_counts_for_nothing)
{
	setup();
	window_complete_parking(&w, begin_arriving(3), PARK_NO_KEY, "message_id is missing");
	struct entry *e = take();
	window_crashed(&w, e, true, PARK_CRASHED, "signal 9");
	ck_assert_uint_eq(e->crashes, 0);
	ck_assert_int_eq(e->park_reason, PARK_NO_KEY);
	ck_assert_str_eq(e->park_detail, "message_id is missing");
	done();
}
END_TEST

/* The first may be anybody's fault; then each time later, and others go on. */
START_TEST(one_whose_session_is_lost_runs_again_ever_later_and_who_keeps_order_waits)
{
	setup();
	struct entry *bad = deliver("a", 1), *other = deliver("b", 1);
	static const uint64_t delays[] = {0, 1600, 3200, 5000, 5000};
	uint64_t now = 1000;
	for (size_t i = 0; i < sizeof delays / sizeof delays[0]; i++) {
		ck_assert_ptr_eq(window_peek(&w), bad);
		window_take(&w, bad);
		window_verdict(&w, bad, VERDICT_LOST, now);
		ck_assert_uint_eq(bad->losses, i + 1);
		ck_assert((bad->flags & ITEM_ALONE) != 0);
		ck_assert(window_is_held_up(&w, other) == (delays[i] != 0));
		ck_assert_ptr_eq(window_peek(&w), delays[i] == 0 ? bad : other);
		now += delays[i];
		(void)window_wake(&w, now);
		ck_assert(!window_is_held_up(&w, other));
	}
	window_take(&w, bad);
	window_verdict(&w, bad, VERDICT_CRASHED, now);
	ck_assert(bad->is_parking);
	ck_assert_int_eq(bad->park_reason, PARK_CRASHED);
	ck_assert_uint_eq(bad->crashes, 1);
	ck_assert_ptr_eq(window_peek(&w), bad);
	done();
}
END_TEST

START_TEST(what_cannot_run_is_parked_in_its_turn)
{
	setup();
	(void)deliver("k", 1);
	window_complete_parking(&w, begin_arriving(10), PARK_UNUSABLE_KEY, NULL);
	(void)deliver("k", 1);
	ck_assert_uint_eq(w.bytes, 12);
	ck_assert_uint_eq(take()->tag, 1);
	struct entry *e = take();
	ck_assert(e->is_parking);
	ck_assert_int_eq(e->park_reason, PARK_UNUSABLE_KEY);
	ck_assert_ptr_null(e->park_detail);
	window_verdict(&w, e, VERDICT_PARKED, 0);
	ck_assert_uint_eq(w.bytes, 2);
	done();
}
END_TEST

START_TEST(a_delivery_given_up_while_it_arrives_was_never_counted)
{
	setup();
	(void)deliver("", 10);
	struct entry *e = begin_arriving(5000);
	ck_assert_uint_eq(w.bytes, 10);
	window_drop(&w, e);
	ck_assert_uint_eq(w.bytes, 10);
	ck_assert_uint_eq(w.n_held, 1);
	done();
}
END_TEST

START_TEST(bytes_are_free_again_as_soon_as_a_delivery_is_settled_or_dropped)
{
	struct entry *hand[3];
	setup();
	for (size_t i = 0; i < 3; i++) {
		hand[i] = deliver("", 1000);
		(void)take();
	}
	settle(hand[2]);
	ck_assert_uint_eq(w.bytes, 2000);
	window_drop(&w, hand[1]);
	ck_assert_uint_eq(w.bytes, 1000);
	done();
}
END_TEST

/* ---- batch size ------------------------------------------------------------------------------ */

START_TEST(batches_grow_from_one_to_the_most_and_halve)
{
	uint32_t limit = 1;
	int steps = 0;
	for (; limit < 100; steps++) {
		uint32_t grown = window_batch_limit(limit, 100, 99999, 100000, false);
		ck_assert_uint_gt(grown, limit);
		limit = grown;
	}
	ck_assert_int_le(steps, 25);
	ck_assert_uint_eq(window_batch_limit(100, 100, 0, 100000, false), 100);
	ck_assert_uint_eq(window_batch_limit(100, 100, 100001, 100000, false), 50);
	ck_assert_uint_eq(window_batch_limit(100, 100, 100000, 100000, false), 100);
	ck_assert_uint_eq(window_batch_limit(100, 100, 0, 100000, true), 50);
	ck_assert_uint_eq(window_batch_limit(1, 100, 0, 100000, true), 1);
	ck_assert_uint_eq(window_batch_limit(2, 100, 0, 100000, true), 1);
	ck_assert_uint_eq(window_batch_limit(1, 1, 0, 100000, false), 1);
	ck_assert_uint_eq(window_batch_limit(1000, 1000, 0, 100000, false), 1000);
}
END_TEST

/* ---- all of it, against a model -------------------------------------------------------------- */

enum { MODEL_STEPS = 100000, MODEL_TAGS = 200000, MODEL_KEYS = 7, MODEL_MOST_HELD = 150 };

enum place { GONE, ARRIVING, WAITING, IN_HAND, LATER, SETTLED };

/* A delivery, as somebody knows it who keeps no lists and counts nothing. */
struct fact {
	enum place place;
	int key; /* 0: none */
	size_t size;
	bool parking;
	uint32_t crashes, busy_times, losses;
	uint64_t later_at, settled_at;
};

static struct {
	struct fact fact[MODEL_TAGS + 1];
	uint64_t n;   /* tags so far, of this generation */
	uint64_t low; /* all below are gone */
	uint64_t now;
	uint32_t generation;
	uint64_t random;
	size_t did_ack_multiple, did_ack_single, did_promote; /* that it was a test at all */
} m;

static uint32_t roll(uint32_t n)
{
	m.random = m.random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(m.random >> 33) % n;
}

static bool model_is_held(uint64_t tag)
{
	return m.fact[tag].place != GONE && m.fact[tag].place != SETTLED;
}

/* Held back by an older one of the same key. */
static bool model_is_behind(uint64_t tag)
{
	int key = m.fact[tag].key;
	if (key == 0 || key > MODEL_KEYS)
		return false;
	for (uint64_t t = m.low; t < tag; t++)
		if (model_is_held(t) && m.fact[t].key == key)
			return true;
	return false;
}

static bool model_is_ready(uint64_t tag)
{
	return m.fact[tag].place == WAITING && !model_is_behind(tag);
}

static uint64_t model_first_ready(void)
{
	for (uint64_t t = m.low; t <= m.n; t++)
		if (model_is_ready(t))
			return t;
	return 0;
}

/* Any delivery of one kind, by chance; 0: there is none. */
static uint64_t model_pick(enum place place)
{
	uint64_t found = 0;
	uint32_t n = 0;
	for (uint64_t t = m.low; t <= m.n; t++)
		if (m.fact[t].place == place && (place != WAITING || model_is_ready(t)) &&
			roll(++n) == 0)
			found = t;
	return found;
}

static size_t model_count(enum place place)
{
	size_t n = 0;
	for (uint64_t t = m.low; t <= m.n; t++)
		n += m.fact[t].place == place;
	return n;
}

static struct entry *entry_of(uint64_t tag)
{
	const struct delivery_ref ref = {.generation = w.generation, .tag = tag};
	struct entry *e = window_find(&w, &ref);
	MUST(e != NULL);
	return e;
}

static void model_compare(void)
{
	uint64_t bytes = 0;
	size_t held = 0, ready = 0;
	while (m.low <= m.n && m.fact[m.low].place == GONE)
		m.low++;
	for (uint64_t t = m.low; t <= m.n; t++) {
		const struct fact *f = &m.fact[t];
		const struct delivery_ref ref = {.generation = w.generation, .tag = t};
		const struct entry *e = window_find(&w, &ref);
		MUST_EQ(e == NULL, f->place == GONE);
		if (e == NULL)
			continue;
		if (f->place != ARRIVING && f->place != SETTLED)
			bytes += f->size;
		held += model_is_held(t);
		ready += e->state == ENTRY_READY;
		MUST_EQ(e->state == ENTRY_READY, model_is_ready(t));
		MUST_EQ(e->state == ENTRY_BEHIND, f->place == WAITING && model_is_behind(t));
		MUST_EQ(e->state == ENTRY_IN_HAND, f->place == IN_HAND);
		MUST_EQ(e->state == ENTRY_LATER, f->place == LATER);
		MUST_EQ(e->crashes, f->crashes);
		MUST_EQ(e->is_parking, f->parking);
	}
	const struct entry *first = window_peek(&w);
	MUST_EQ(first != NULL ? first->tag : 0, model_first_ready());
	MUST_EQ(w.bytes, bytes);
	MUST_EQ(w.n_held, held);
	MUST_EQ(w.n_ready, ready);
	MUST_EQ(w.n_in_hand, model_count(IN_HAND));
	MUST_EQ(w.n_loose, model_count(SETTLED));
}

/* ---- its steps ------------------------------------------------------------------------------- */

static void do_arrive(void)
{
	if (model_count(ARRIVING) != 0 || w.n_held >= MODEL_MOST_HELD || m.n == MODEL_TAGS)
		return;
	struct fact *f = &m.fact[++m.n];
	*f = (struct fact){.place = ARRIVING, .size = roll(300)};
	struct entry *e = window_add(&w, m.n);
	MUST(e != NULL);
	for (size_t i = 0; i < f->size; i++)
		buf_add_byte(&e->message, 'y');
}

static void do_complete(void)
{
	uint64_t tag = model_pick(ARRIVING);
	if (tag == 0)
		return;
	struct fact *f = &m.fact[tag];
	f->place = WAITING;
	if (roll(10) == 0) {
		f->parking = true;
		window_complete_parking(
			&w, entry_of(tag), PARK_NO_KEY, roll(2) != 0 ? "none" : NULL);
		return;
	}
	f->key = (int)roll(3 * MODEL_KEYS);
	f->key = f->key <= MODEL_KEYS ? f->key : (int)(MODEL_KEYS + tag);
	window_complete(&w, entry_of(tag), bytes_of(&f->key, f->key != 0 ? sizeof f->key : 0));
}

static void do_take(void)
{
	uint64_t tag = model_first_ready();
	if (tag == 0)
		return;
	window_take(&w, window_peek(&w));
	m.fact[tag].place = IN_HAND;
}

static void do_verdict(void)
{
	static const enum verdict verdicts[] = {VERDICT_DONE, VERDICT_DONE, VERDICT_PARKED,
		VERDICT_DUPLICATE, VERDICT_BUSY, VERDICT_AGAIN, VERDICT_ALONE, VERDICT_LOST,
		VERDICT_CRASHED};
	uint64_t tag = model_pick(IN_HAND);
	enum verdict v = verdicts[roll(sizeof verdicts / sizeof verdicts[0])];
	if (tag == 0)
		return;
	struct fact *f = &m.fact[tag];
	window_verdict(&w, entry_of(tag), v, m.now);
	if (v == VERDICT_BUSY) {
		f->place = LATER;
		f->later_at = m.now + window_busy_delay_ms(++f->busy_times);
		return;
	}
	f->busy_times = 0;
	if (v == VERDICT_LOST && ++f->losses > 1) {
		f->place = LATER;
		f->later_at = m.now + loss_delay_ms(f->losses);
		return;
	}
	if (v == VERDICT_LOST || v == VERDICT_CRASHED) {
		f->place = WAITING;
		f->crashes += v == VERDICT_CRASHED;
		f->parking = f->parking || v == VERDICT_CRASHED;
		f->losses = v == VERDICT_CRASHED ? 0 : f->losses;
		return;
	}
	f->place = v == VERDICT_AGAIN || v == VERDICT_ALONE ? WAITING : SETTLED;
	f->settled_at = m.now;
	m.did_promote += f->place == SETTLED && f->key != 0 && f->key <= MODEL_KEYS;
}

static void do_crash(void)
{
	uint64_t tag = model_pick(IN_HAND);
	bool was_alone = roll(2) != 0;
	if (tag == 0)
		return;
	struct fact *f = &m.fact[tag];
	window_crashed(&w, entry_of(tag), was_alone, PARK_CRASHED, "signal 11");
	f->place = WAITING;
	f->losses = was_alone && !f->parking ? 0 : f->losses;
	f->crashes += was_alone && !f->parking;
	f->parking = f->parking || was_alone;
}

static void do_give_back(void)
{
	uint64_t tag = model_pick(IN_HAND);
	if (tag == 0)
		return;
	window_give_back(&w, entry_of(tag));
	m.fact[tag].place = WAITING;
}

static void do_drop(void)
{
	static const enum place places[] = {ARRIVING, WAITING, IN_HAND, LATER};
	uint64_t tag = model_pick(places[roll(4)]);
	if (tag == 0)
		return;
	window_drop(&w, entry_of(tag));
	m.fact[tag].place = GONE;
}

static void do_wake(void)
{
	uint64_t next = UINT64_MAX;
	m.now += roll(400);
	for (uint64_t t = m.low; t <= m.n; t++) {
		struct fact *f = &m.fact[t];
		if (f->place == LATER && f->later_at <= m.now)
			f->place = WAITING;
		else if (f->place == LATER)
			next = f->later_at < next ? f->later_at : next;
	}
	MUST_EQ(window_wake(&w, m.now), next);
}

/* Whatever it acknowledges must be settled and unknown to the broker afterwards, and nothing else.
 */
static void take_ack(uint64_t tag, bool multiple)
{
	MUST(tag >= 1);
	MUST(tag <= m.n);
	MUST_EQ(m.fact[tag].place, SETTLED);
	if (!multiple) {
		bool is_first = true;
		for (uint64_t t = m.low; t < tag; t++)
			is_first = is_first && m.fact[t].place == GONE;
		if (!is_first)
			MUST(m.fact[tag].settled_at + HOLD_MS <= m.now);
		m.fact[tag].place = GONE;
		m.did_ack_single++;
		return;
	}
	for (uint64_t t = m.low; t <= tag; t++) {
		MUST(!model_is_held(t));
		m.fact[t].place = GONE;
	}
	m.did_ack_multiple++;
}

static void do_acks(void)
{
	uint64_t tag, wait, expected = UINT64_MAX;
	bool multiple;
	m.now += roll(4);
	while (window_next_ack(&w, m.now, HOLD_MS, &tag, &multiple, &wait))
		take_ack(tag, multiple);
	bool is_prefix = true;
	for (uint64_t t = m.low; t <= m.n; t++) {
		const struct fact *f = &m.fact[t];
		is_prefix = is_prefix && !model_is_held(t);
		if (f->place != SETTLED)
			continue;
		MUST(!is_prefix);
		MUST(f->settled_at + HOLD_MS > m.now);
		uint64_t left = f->settled_at + HOLD_MS - m.now;
		expected = left < expected ? left : expected;
	}
	MUST_EQ(wait, expected);
}

static void do_reset(void)
{
	window_reset(&w);
	MUST_EQ(w.generation, ++m.generation);
	m.n = 0;
	m.low = 1;
}

static void do_step(void)
{
	uint32_t dice = roll(1000);
	if (dice < 1)
		do_reset();
	else if (dice < 300)
		do_arrive();
	else if (dice < 550)
		do_complete();
	else if (dice < 730)
		do_take();
	else if (dice < 850)
		do_verdict();
	else if (dice < 870)
		do_crash();
	else if (dice < 890)
		do_give_back();
	else if (dice < 900)
		do_drop();
	else if (dice < 940)
		do_wake();
	else
		do_acks();
}

START_TEST(does_what_the_model_does_whatever_happens)
{
	const char *given = getenv("INBOXD_TEST_SEED");
	uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
	(void)printf("consumer/window: INBOXD_TEST_SEED=%llu\n", (unsigned long long)seed);
	(void)fflush(stdout);
	setup();
	m.random = seed;
	m.low = 1;
	m.now = 1;
	for (int i = 0; i < MODEL_STEPS; i++) {
		do_step();
		if (i % 16 == 0 || w.n_held < 30) {
			model_compare();
			check_invariants(&w);
		}
	}
	ck_assert_uint_gt(m.did_ack_multiple, 100);
	ck_assert_uint_gt(m.did_ack_single, 100);
	ck_assert_uint_gt(m.did_promote, 100);
	done();
}
END_TEST

UNIT_SUITE_TIMEOUT(120, "consumer/window", takes_tags_one_by_one_and_no_other,
	a_delivery_of_an_older_generation_is_not_found, what_was_acknowledged_is_not_found,
	reset_frees_entries_of_every_state, holds_thousands,
	grows_right_also_when_many_have_passed, the_oldest_comes_first,
	what_comes_back_stands_where_it_stood, only_what_nobody_heard_of_is_said_to_come_again,
	only_a_failed_batch_sends_its_messages_alone,
	copies_wait_for_the_oldest_of_their_key,
	copies_wait_while_their_leader_is_busy_or_comes_back,
	a_dropped_leader_lets_its_twin_go_in_any_state, a_promoted_twin_stands_in_order_of_its_tag,
	keys_are_bytes_and_none_is_no_key, the_key_is_free_once_its_last_copy_is_settled,
	a_busy_key_is_offered_after_fifth_of_a_second_doubling_to_five,
	busy_ones_wake_when_due_and_say_who_is_next, the_delay_grows_only_while_it_is_busy_in_a_row,
	the_settled_prefix_goes_by_one_ack,
	what_is_settled_out_of_order_waits_a_little_then_goes_singly,
	a_prefix_ack_names_a_tag_that_the_broker_still_knows,
	a_single_one_left_of_a_prefix_is_not_multiple, a_dropped_delivery_is_never_acknowledged,
	one_slow_message_makes_all_behind_it_neither_kept_nor_looked_through,
	a_crash_of_one_alone_is_counted_and_parked, a_crash_of_several_is_nobodys_yet,
	a_crash_while_parking_counts_for_nothing, one_whose_session_is_lost_runs_again_ever_later_and_who_keeps_order_waits,
	what_cannot_run_is_parked_in_its_turn,
	a_delivery_given_up_while_it_arrives_was_never_counted,
	bytes_are_free_again_as_soon_as_a_delivery_is_settled_or_dropped,
	batches_grow_from_one_to_the_most_and_halve, does_what_the_model_does_whatever_happens)

/* SPDX-License-Identifier: MIT */
#include "handler/arena.h"

#include "unit.h"

#include <stdlib.h>

START_TEST(what_it_gives_stays_where_it_is)
{
	struct arena a = {NULL};
	char *pieces[200];
	for (size_t i = 0; i < 200; i++) {
		pieces[i] = arena_alloc(&a, i * 100 + 1);
		ck_assert_uint_eq((uintptr_t)pieces[i] % _Alignof(max_align_t), 0);
		memset(pieces[i], (int)i, i * 100 + 1);
	}
	for (size_t i = 0; i < 200; i++) {
		size_t right = 0;
		while (right <= i * 100 && (unsigned char)pieces[i][right] == i)
			right++;
		ck_assert_uint_eq(right, i * 100 + 1);
	}
	arena_done(&a);
}
END_TEST

START_TEST(copies_have_a_nul_behind_them)
{
	struct arena a = {NULL};
	struct bytes b = arena_copy(&a, bytes_of("abcdef", 3));
	ck_assert_uint_eq(b.size, 3);
	ck_assert_str_eq((const char *)b.data, "abc");
	ck_assert_ptr_nonnull(arena_copy(&a, bytes_of("", 0)).data);
	ck_assert_ptr_null(arena_copy(&a, bytes_of(NULL, 0)).data);
	arena_done(&a);
}
END_TEST

START_TEST(knows_what_is_its_own_and_ends_with_a_nul)
{
	struct arena a = {NULL};
	struct bytes b = arena_copy(&a, bytes_str("hello"));
	(void)arena_alloc(&a, 1 << 20);
	ck_assert(arena_has(&a, b));
	ck_assert(arena_has(&a, bytes_of(b.data + 2, 3)));
	ck_assert(!arena_has(&a, bytes_of(b.data, 4)));
	ck_assert(!arena_has(&a, bytes_str("hello")));
	ck_assert(!arena_has(&a, bytes_of(NULL, 0)));
	/* Beyond what it has given. */
	ck_assert(!arena_has(&a, bytes_of(b.data, 1 << 24)));
	arena_done(&a);
}
END_TEST

START_TEST(can_be_used_again_when_cleared)
{
	struct arena a = {NULL};
	void *first = arena_alloc(&a, 100);
	arena_clear(&a);
	ck_assert_ptr_eq(arena_alloc(&a, 100), first);
	(void)arena_alloc(&a, 16 << 20);
	arena_clear(&a);
	(void)arena_alloc(&a, 100);
	arena_done(&a);
	ck_assert_ptr_null(a.last);
}
END_TEST

UNIT_SUITE("handler/arena", what_it_gives_stays_where_it_is, copies_have_a_nul_behind_them,
	knows_what_is_its_own_and_ends_with_a_nul, can_be_used_again_when_cleared)

/* SPDX-License-Identifier: MIT */
#include "base/stats.h"

#include "unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int fd;
static struct stats *stats;

static void create(void)
{
	struct err err;
	ck_assert_int_eq(stats_create(&fd, &stats, &err), RC_OK);
}

static void destroy(void)
{
	stats_unmap(stats);
	(void)close(fd);
}

START_TEST(another_process_sees_what_is_counted)
{
	create();
	struct stats_slot *slot = stats_slot_take(stats, STATS_WORKER, "orders", 2);
	pid_t child = fork();
	if (child == 0) {
		struct stats *mine = NULL;
		if (stats_map(fd, true, &mine, NULL) != RC_OK)
			_exit(1);
		struct stats_slot *same = stats_slot_take(mine, STATS_WORKER, "orders", 2);
		stats_add(same, STATS_processed, 41);
		stats_add(same, STATS_processed, 1);
		stats_set(same, STATS_in_hand, 7);
		stats_unmap(mine);
		_exit(0);
	}
	int status = -1;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(stats_get(slot, STATS_processed), 42);
	ck_assert_uint_eq(stats_get(slot, STATS_in_hand), 7);
	ck_assert_uint_eq(stats_get(slot, STATS_duplicates_redelivered), 0);
	destroy();
}
END_TEST

START_TEST(a_place_keeps_its_slot_and_its_counters)
{
	create();
	struct stats_slot *a = stats_slot_take(stats, STATS_WORKER, "orders", 1);
	struct stats_slot *b = stats_slot_take(stats, STATS_WORKER, "orders", 2);
	struct stats_slot *c = stats_slot_take(stats, STATS_CONSUMER, "orders", 1);
	struct stats_slot *d = stats_slot_take(stats, STATS_WORKER, "order", 1);
	ck_assert_ptr_ne(a, b);
	ck_assert_ptr_ne(a, c);
	ck_assert_ptr_ne(a, d);
	stats_add(a, STATS_acked, 5);
	ck_assert_ptr_eq(stats_slot_take(stats, STATS_WORKER, "orders", 1), a);
	ck_assert_uint_eq(stats_get(a, STATS_acked), 5);
	destroy();
}
END_TEST

START_TEST(a_released_slot_is_taken_again_empty)
{
	create();
	struct stats_slot *a = stats_slot_take(stats, STATS_WORKER, "orders", 1);
	stats_add(a, STATS_acked, 5);
	stats_slot_release(a);
	struct stats_slot *b = stats_slot_take(stats, STATS_WORKER, "billing", 1);
	ck_assert_ptr_eq(a, b);
	ck_assert_str_eq(b->name, "billing");
	ck_assert_uint_eq(stats_get(b, STATS_acked), 0);
	stats_slot_release(NULL);
	destroy();
}
END_TEST

START_TEST(says_when_all_slots_are_taken)
{
	create();
	for (uint32_t i = 0; i < STATS_SLOTS; i++)
		ck_assert_ptr_nonnull(stats_slot_take(stats, STATS_WORKER, "orders", i));
	ck_assert_ptr_null(stats_slot_take(stats, STATS_WORKER, "orders", STATS_SLOTS));
	ck_assert_ptr_nonnull(stats_slot_take(stats, STATS_WORKER, "orders", STATS_SLOTS - 1));
	destroy();
}
END_TEST

START_TEST(the_longest_names_are_told_apart_and_found_again)
{
	char a[STATS_NAME_MAX], b[STATS_NAME_MAX];
	create();
	memset(a, 'n', sizeof a - 1);
	a[sizeof a - 1] = '\0';
	memcpy(b, a, sizeof b);
	b[sizeof b - 2] = 'm';
	struct stats_slot *slot = stats_slot_take(stats, STATS_CONSUMER, a, 0);
	ck_assert_ptr_ne(stats_slot_take(stats, STATS_CONSUMER, b, 0), slot);
	ck_assert_ptr_eq(stats_slot_take(stats, STATS_CONSUMER, a, 0), slot);
	destroy();
}
END_TEST

START_TEST(refuses_a_map_that_is_not_of_this_version)
{
	struct err err;
	struct stats *other = NULL;
	create();
	stats->version++;
	ck_assert_int_eq(stats_map(fd, false, &other, &err), RC_FATAL);
	ck_assert_ptr_nonnull(strstr(err.text, "another version"));
	stats->version--;
	ck_assert_int_eq(stats_map(fd, false, &other, &err), RC_OK);
	stats_unmap(other);
	int small = memfd_create("small", MFD_CLOEXEC);
	ck_assert_int_eq(ftruncate(small, 4096), 0);
	ck_assert_int_eq(stats_map(small, false, &other, &err), RC_FATAL);
	ck_assert_int_eq(stats_map(-1, false, &other, &err), RC_FATAL);
	(void)close(small);
	stats_unmap(NULL);
	destroy();
}
END_TEST

START_TEST(a_map_in_a_directory_is_fresh_and_has_one_owner)
{
	char directory[] = "/tmp/inboxd-unit-XXXXXX", path[64];
	struct err err;
	struct stats *other = NULL, *seen = NULL;
	int other_fd = -1;
	ck_assert_ptr_nonnull(mkdtemp(directory));
	(void)snprintf(path, sizeof path, "%s/stats", directory);
	ck_assert_int_eq(stats_create_in(directory, &fd, &stats, &err), RC_OK);
	stats_add(stats_slot_take(stats, STATS_WORKER, "orders", 0), STATS_acked, 5);
	ck_assert_int_eq(stats_create_in(directory, &other_fd, &other, &err), RC_FATAL);
	ck_assert_ptr_nonnull(strstr(err.text, "that is running"));
	int reader = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_eq(stats_map(reader, false, &seen, &err), RC_OK);
	ck_assert_uint_eq(stats_get(&seen->slot[0], STATS_acked), 5);
	destroy();
	ck_assert_int_eq(stats_create_in(directory, &fd, &stats, &err), RC_OK);
	ck_assert_uint_eq(stats_get(&seen->slot[0], STATS_acked), 0);
	ck_assert_uint_eq(atomic_load(&stats->slot[0].role), STATS_FREE);
	stats_unmap(seen);
	(void)close(reader);
	destroy();
	(void)unlink(path);
	(void)rmdir(directory);
	ck_assert_int_eq(stats_create_in(directory, &fd, &stats, &err), RC_FATAL);
	ck_assert_ptr_nonnull(strstr(err.text, path));
}
END_TEST

START_TEST(every_counter_has_a_name_and_a_help_text)
{
	for (int c = 0; c < STATS_COUNT; c++) {
		ck_assert_uint_gt(strlen(stats_counter_name((enum stats_counter)c)), 0);
		ck_assert_uint_gt(strlen(stats_counter_help((enum stats_counter)c)), 0);
		for (int other = 0; other < c; other++)
			ck_assert_str_ne(stats_counter_name((enum stats_counter)c),
				stats_counter_name((enum stats_counter)other));
	}
	ck_assert_str_eq(stats_counter_name(STATS_processed), "processed");
}
END_TEST

UNIT_SUITE("base/stats", another_process_sees_what_is_counted,
	a_place_keeps_its_slot_and_its_counters, a_released_slot_is_taken_again_empty,
	says_when_all_slots_are_taken, the_longest_names_are_told_apart_and_found_again,
	refuses_a_map_that_is_not_of_this_version, a_map_in_a_directory_is_fresh_and_has_one_owner,
	every_counter_has_a_name_and_a_help_text)

/* SPDX-License-Identifier: MIT */
#include "base/buf.h"

#include "unit.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

START_TEST(grows_and_keeps_what_it_holds)
{
	struct buf b = {0};
	for (int i = 0; i < 100000; i++)
		buf_add_u32(&b, (uint32_t)i);
	ck_assert_uint_eq(b.size, 400000);
	struct reader r = reader_of(buf_bytes(&b));
	for (int i = 0; i < 100000; i++)
		ck_assert_uint_eq(reader_u32(&r), (uint32_t)i);
	ck_assert_uint_eq(reader_left(&r), 0);
	ck_assert(!r.bad);
	buf_done(&b);
	ck_assert_ptr_null(b.data);
	buf_add_str(&b, "usable again");
	ck_assert_str_eq(buf_str(&b), "usable again");
	buf_done(&b);
}
END_TEST

START_TEST(reads_integers_as_they_were_written)
{
	struct buf b = {0};
	buf_add_byte(&b, 0xfe);
	buf_add_u16(&b, 0x0102);
	buf_add_u32(&b, 0xfffefdfc);
	buf_add_u64(&b, UINT64_C(0x8899aabbccddeeff));
	const uint8_t wire[] = {
		0xfe, 1, 2, 0xff, 0xfe, 0xfd, 0xfc, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff};
	ck_assert_uint_eq(b.size, sizeof wire);
	ck_assert_mem_eq(b.data, wire, sizeof wire);
	struct reader r = reader_of(buf_bytes(&b));
	ck_assert_uint_eq(reader_u8(&r), 0xfe);
	ck_assert_uint_eq(reader_u16(&r), 0x0102);
	ck_assert_uint_eq(reader_u32(&r), 0xfffefdfc);
	ck_assert_uint_eq(reader_u64(&r), UINT64_C(0x8899aabbccddeeff));
	ck_assert(!r.bad);
	buf_done(&b);
}
END_TEST

START_TEST(a_read_past_the_end_is_bad_for_ever)
{
	const uint8_t in[] = {1, 2, 3};
	struct reader r = reader_of(bytes_of(in, sizeof in));
	ck_assert_uint_eq(reader_u16(&r), 0x0102);
	ck_assert_uint_eq(reader_u16(&r), 0);
	ck_assert(r.bad);
	ck_assert_uint_eq(reader_u8(&r), 0);
	r = reader_of(bytes_of(in, sizeof in));
	ck_assert_ptr_null(reader_bytes(&r, SIZE_MAX).data);
	ck_assert(r.bad);
	r = reader_of(bytes_of(in, sizeof in));
	ck_assert_uint_eq(reader_u64(&r), 0);
	ck_assert(r.bad);
}
END_TEST

START_TEST(an_absent_run_of_bytes_reads_as_nothing)
{
	struct reader r = reader_of(bytes_of(NULL, 0));
	ck_assert_uint_eq(reader_left(&r), 0);
	ck_assert_uint_eq(reader_bytes(&r, 0).size, 0);
	ck_assert(!r.bad);
	ck_assert_uint_eq(reader_u8(&r), 0);
	ck_assert(r.bad);
}
END_TEST

START_TEST(an_empty_run_inside_a_message_is_not_absent)
{
	const uint8_t in[] = {1};
	struct reader r = reader_of(bytes_of(in, sizeof in));
	(void)reader_u8(&r);
	ck_assert_ptr_nonnull(reader_bytes(&r, 0).data);
	ck_assert(!r.bad);
}
END_TEST

START_TEST(formats_behind_what_is_there)
{
	struct buf b = {0};
	char longer[2000];
	memset(longer, 'y', sizeof longer - 1);
	longer[sizeof longer - 1] = '\0';
	buf_addf(&b, "%s-%d", "x", 42);
	buf_addf(&b, "/%s", longer);
	ck_assert_uint_eq(b.size, 5 + sizeof longer - 1);
	ck_assert_mem_eq(buf_str(&b), "x-42/yyy", 8);
	ck_assert_uint_eq(strlen(buf_str(&b)), b.size);
	buf_done(&b);
}
END_TEST

START_TEST(drops_from_the_front)
{
	struct buf b = {0};
	buf_consume(&b, 0);
	buf_add_str(&b, "abcdef");
	buf_consume(&b, 4);
	ck_assert_str_eq(buf_str(&b), "ef");
	buf_consume(&b, 2);
	ck_assert_uint_eq(b.size, 0);
	buf_done(&b);
}
END_TEST

START_TEST(has_a_place_to_write_even_for_nothing)
{
	struct buf b = {0};
	ck_assert_ptr_nonnull(buf_reserve(&b, 0));
	ck_assert_str_eq(buf_str(&b), "");
	buf_done(&b);
}
END_TEST

START_TEST(ends_the_process_rather_than_run_out_of_memory)
{
	pid_t child = fork();
	if (child == 0) {
		struct buf b = {0};
		(void)close(STDERR_FILENO);
		buf_add_byte(&b, 1);
		(void)buf_reserve(&b, SIZE_MAX - 100);
		_exit(0);
	}
	int status = 0;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFSIGNALED(status));
	ck_assert_int_eq(WTERMSIG(status), SIGABRT);
}
END_TEST

START_TEST(absent_equals_empty_in_content_only)
{
	ck_assert(bytes_equal(bytes_of(NULL, 0), bytes_str("")));
	ck_assert(!bytes_equal(bytes_str("a"), bytes_str("")));
	ck_assert_int_lt(bytes_compare(bytes_str("a"), bytes_str("ab")), 0);
	ck_assert_int_gt(bytes_compare(bytes_str("b"), bytes_str("ab")), 0);
	ck_assert_int_gt(bytes_compare(bytes_str("\xff"), bytes_str("a")), 0);
	ck_assert_int_eq(bytes_compare(bytes_of(NULL, 0), bytes_str("")), 0);
	ck_assert_ptr_null(bytes_str(NULL).data);
}
END_TEST

START_TEST(copies_texts)
{
	char *a = xstrdup("abc"), *b = xstrndup("abcdef", 2), *c = xasprintf("%d%%", 7);
	ck_assert_str_eq(a, "abc");
	ck_assert_str_eq(b, "ab");
	ck_assert_str_eq(c, "7%");
	free(a);
	free(b);
	free(c);
	uint8_t *zeros = xcalloc(0, 8);
	ck_assert_uint_eq(zeros[0], 0);
	free(zeros);
}
END_TEST

UNIT_SUITE("base/buf", grows_and_keeps_what_it_holds, reads_integers_as_they_were_written,
	a_read_past_the_end_is_bad_for_ever, an_absent_run_of_bytes_reads_as_nothing,
	an_empty_run_inside_a_message_is_not_absent, formats_behind_what_is_there,
	drops_from_the_front, has_a_place_to_write_even_for_nothing,
	ends_the_process_rather_than_run_out_of_memory, absent_equals_empty_in_content_only,
	copies_texts)

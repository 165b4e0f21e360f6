/* SPDX-License-Identifier: MIT */
#include "ipc/frame.h"

#include "unit.h"

START_TEST(gives_back_what_was_put_in)
{
	struct buf out = {0};
	size_t at = frame_begin(&out, 7);
	buf_add_str(&out, "hello");
	frame_end(&out, at);
	at = frame_begin(&out, 9);
	frame_end(&out, at);

	struct frame f;
	size_t size;
	ck_assert_int_eq(frame_decode(buf_bytes(&out), &f, &size), FRAME_OK);
	ck_assert_uint_eq(size, FRAME_HEADER_SIZE + 5);
	ck_assert_uint_eq(f.type, 7);
	ck_assert_mem_eq(f.payload.data, "hello", 5);
	buf_consume(&out, size);
	ck_assert_int_eq(frame_decode(buf_bytes(&out), &f, &size), FRAME_OK);
	ck_assert_uint_eq(f.type, 9);
	ck_assert_uint_eq(f.payload.size, 0);
	buf_done(&out);
}
END_TEST

START_TEST(says_how_many_bytes_it_needs)
{
	const uint8_t in[] = {0, 0, 1, 0, 3, 'x'};
	struct frame f;
	size_t size;
	ck_assert_int_eq(frame_decode(bytes_of(in, 4), &f, &size), FRAME_MORE);
	ck_assert_uint_eq(size, FRAME_HEADER_SIZE);
	ck_assert_int_eq(frame_decode(bytes_of(in, 6), &f, &size), FRAME_MORE);
	ck_assert_uint_eq(size, FRAME_HEADER_SIZE + 256);
}
END_TEST

START_TEST(refuses_a_frame_beyond_the_limit)
{
	const uint8_t in[] = {0xff, 0xff, 0xff, 0xff, 1};
	struct frame f;
	size_t size;
	ck_assert_int_eq(frame_decode(bytes_of(in, sizeof in), &f, &size), FRAME_BAD);
}
END_TEST

UNIT_SUITE("ipc/frame", gives_back_what_was_put_in, says_how_many_bytes_it_needs,
	refuses_a_frame_beyond_the_limit)

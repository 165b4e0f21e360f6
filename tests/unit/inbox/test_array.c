/* SPDX-License-Identifier: MIT */
#include "inbox/array.h"

#include "unit.h"

static void is_bytes(const struct buf *b, const char *expected, size_t size)
{
	ck_assert_uint_eq(b->size, size);
	ck_assert_mem_eq(b->data, expected, size);
}
#define IS_BYTES(b, literal) is_bytes(b, literal, sizeof(literal) - 1)

START_TEST(writes_an_array_of_bytea_as_postgresql_sends_it)
{
	struct buf out = {0};
	array_begin_bytea(&out, 3);
	array_add_bytea(&out, bytes_of("\0a", 2));
	array_add_bytea(&out, bytes_of("", 0));
	array_add_bytea(&out, bytes_of(NULL, 0)); /* absent is empty here, never NULL */
	IS_BYTES(&out,
		"\0\0\0\1"
		"\0\0\0\0"
		"\0\0\0\21"
		"\0\0\0\3"
		"\0\0\0\1"
		"\0\0\0\2\0a"
		"\0\0\0\0"
		"\0\0\0\0");
	buf_done(&out);
}
END_TEST

START_TEST(writes_an_array_of_int8_as_postgresql_sends_it)
{
	struct buf out = {0};
	array_begin_int8(&out, 3);
	array_add_int8(&out, 1);
	array_add_int8(&out, -2);
	array_add_int8(&out, INT64_MIN);
	IS_BYTES(&out,
		"\0\0\0\1"
		"\0\0\0\0"
		"\0\0\0\24"
		"\0\0\0\3"
		"\0\0\0\1"
		"\0\0\0\10\0\0\0\0\0\0\0\1"
		"\0\0\0\10\377\377\377\377\377\377\377\376"
		"\0\0\0\10\200\0\0\0\0\0\0\0");
	buf_done(&out);
}
END_TEST

START_TEST(appends_to_what_is_there)
{
	struct buf out = {0};
	buf_add_str(&out, "x");
	array_begin_int8(&out, 0);
	ck_assert_uint_eq(out.size, 21);
	ck_assert_int_eq(out.data[0], 'x');
	buf_done(&out);
}
END_TEST

struct numbers {
	uint32_t v[8];
	size_t n;
};

static void note(void *arg, uint32_t number)
{
	struct numbers *got = arg;
	ck_assert_uint_lt(got->n, 8);
	got->v[got->n++] = number;
}

static struct numbers read_numbers(const char *text)
{
	struct numbers got = {.n = 0};
	array_each_number(bytes_str(text), note, &got);
	return got;
}

START_TEST(reads_the_numbers_of_an_array_in_text_form)
{
	struct numbers got = read_numbers("{1,23,1000}");
	ck_assert_uint_eq(got.n, 3);
	ck_assert_uint_eq(got.v[0], 1);
	ck_assert_uint_eq(got.v[1], 23);
	ck_assert_uint_eq(got.v[2], 1000);
	ck_assert_uint_eq(read_numbers("{7}").v[0], 7);
	ck_assert_uint_eq(read_numbers("{4294967295}").v[0], UINT32_MAX);
}
END_TEST

START_TEST(an_empty_array_has_no_numbers)
{
	ck_assert_uint_eq(read_numbers("{}").n, 0);
	ck_assert_uint_eq(read_numbers("").n, 0);
	ck_assert_uint_eq(read_numbers(NULL).n, 0);
}
END_TEST

START_TEST(a_parameter_knows_whether_it_is_null_empty_text_or_bytes)
{
	ck_assert_ptr_null(value_text(NULL).data);
	ck_assert_uint_eq(value_text("abc").size, 3);
	ck_assert(!value_text("abc").binary);
	ck_assert_ptr_null(value_bytea(bytes_of(NULL, 0)).data);
	ck_assert_ptr_nonnull(value_bytea(bytes_of("", 0)).data);
	ck_assert(value_bytea(bytes_of("", 0)).binary);
}
END_TEST

START_TEST(every_number_has_room_for_its_text)
{
	struct number_text a, b, c;
	ck_assert_str_eq(value_int(&a, INT64_MIN).data, "-9223372036854775808");
	ck_assert_str_eq(value_int(&b, INT64_MAX).data, "9223372036854775807");
	struct db_value zero = value_int(&c, 0);
	ck_assert_str_eq(zero.data, "0");
	ck_assert_uint_eq(zero.size, 1);
	ck_assert(!zero.binary);
	ck_assert_str_eq(a.text, "-9223372036854775808");
}
END_TEST

UNIT_SUITE("inbox/array", writes_an_array_of_bytea_as_postgresql_sends_it,
	writes_an_array_of_int8_as_postgresql_sends_it, appends_to_what_is_there,
	reads_the_numbers_of_an_array_in_text_form, an_empty_array_has_no_numbers,
	a_parameter_knows_whether_it_is_null_empty_text_or_bytes,
	every_number_has_room_for_its_text)

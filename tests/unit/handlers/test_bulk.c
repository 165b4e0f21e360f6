/* SPDX-License-Identifier: MIT */
#define INBOXD_HANDLER_NAME bulk_handler
#include <inboxd/testkit.h>

#include "handlers/bulk.c"

#include "unit.h"

START_TEST(copies_a_batch_and_leaves_out_what_is_bad)
{
	struct inboxd_test *t = inboxd_test_new(&bulk_handler);
	struct inboxd_call *good = inboxd_test_message(
		t, "{\"sensor\": \"say \\\"hi\\\", all\", \"at\": \"2024-05-01\", \"value\": 2.5}");
	struct inboxd_call *no_json = inboxd_test_message(t, "{");
	struct inboxd_call *no_time = inboxd_test_message(t, "{\"sensor\": \"b\"}");
	struct inboxd_call *no_value =
		inboxd_test_message(t, "{\"sensor\": \"c\", \"at\": \"2024-05-02\"}");
	ck_assert_int_eq(inboxd_test_handle_batch(t), INBOXD_DONE);
	ck_assert_int_eq(good->verdict, INBOXD_DONE);
	ck_assert_int_eq(no_json->verdict, INBOXD_REJECT);
	ck_assert_int_eq(no_time->verdict, INBOXD_REJECT);
	ck_assert_str_eq(no_time->reason, "sensor or at is missing");
	ck_assert_int_eq(no_value->verdict, INBOXD_DONE);
	ck_assert_uint_eq(t->n_statements, 1);
	ck_assert_str_eq(t->statements[0].how, "copy");
	ck_assert(inboxd_is(t->statements[0].args[0],
		"\"say \"\"hi\"\", all\",\"2024-05-01\",\"2.5\"\n\"c\",\"2024-05-02\",\n"));
	inboxd_test_free(t);
}
END_TEST

START_TEST(hands_on_the_error_of_the_copy)
{
	struct inboxd_test *t = inboxd_test_new(&bulk_handler);
	inboxd_test_fail(t, "COPY measurement", INBOXD_REJECT, "no timestamp");
	(void)inboxd_test_message(t, "{\"sensor\": \"a\", \"at\": \"now-ish\"}");
	ck_assert_int_eq(inboxd_test_handle_batch(t), INBOXD_REJECT);
	inboxd_test_free(t);
}
END_TEST

START_TEST(inserts_a_single_message)
{
	struct inboxd_test *t = inboxd_test_new(&bulk_handler);
	struct inboxd_call *m =
		inboxd_test_message(t, "{\"sensor\": \"a\", \"at\": \"2024-05-01\"}");
	ck_assert_int_eq(inboxd_test_handle(m), INBOXD_DONE);
	ck_assert_uint_eq(t->statements[0].n, 3);
	ck_assert_ptr_null(t->statements[0].args[2].data);
	ck_assert_int_eq(inboxd_test_handle(inboxd_test_message(t, "[]")), INBOXD_REJECT);
	inboxd_test_free(t);
}
END_TEST

UNIT_SUITE("handlers/bulk", copies_a_batch_and_leaves_out_what_is_bad,
	hands_on_the_error_of_the_copy, inserts_a_single_message)

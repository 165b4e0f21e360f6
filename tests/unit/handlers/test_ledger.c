/* SPDX-License-Identifier: MIT */
/* How a handler is tested without servers, by the example of ledger.c.  A test of your own would
 * be linked with the handler's object; here several handlers share a program, so each gets another
 * name. */
#define INBOXD_HANDLER_NAME ledger_handler
#include <inboxd/testkit.h>

#include "handlers/ledger.c"

#include "unit.h"

static const char order[] = "{\"order\": \"A-17\", \"customer\": \"al\\u00efce\", \"lines\": "
			    "[{\"article\": \"pen\", \"quantity\": 3, \"price\": \"1.20\"}]}";

static const char *const total[] = {"3.60"};

/* A ledger that has been checked and opened, whose database finds the order worth 3.60. */
static struct inboxd_test *open_ledger(const char *limit)
{
	struct inboxd_test *t = inboxd_test_new(&ledger_handler);
	if (limit != NULL)
		inboxd_test_option(t, "limit", limit);
	ck_assert_int_eq(inboxd_test_check(t), INBOXD_DONE);
	ck_assert_int_eq(inboxd_test_open(t), INBOXD_DONE);
	inboxd_test_rows(t, "WITH line AS", 1, 1, total);
	return t;
}

START_TEST(writes_the_order_and_its_lines)
{
	struct inboxd_test *t = open_ledger(NULL);
	struct inboxd_call *m = inboxd_test_message(t, order);
	ck_assert_int_eq(inboxd_test_handle(m), INBOXD_DONE);

	ck_assert_uint_eq(t->n_statements, 2);
	ck_assert_str_eq(t->statements[0].how, "queue");
	ck_assert(inboxd_is(t->statements[0].args[0], "A-17"));
	ck_assert(inboxd_is(t->statements[0].args[1],
		"al\xc3\xaf"
		"ce"));
	ck_assert_str_eq(t->statements[1].how, "exec");
	ck_assert(inboxd_is(t->statements[1].args[1],
		"[{\"article\": \"pen\", \"quantity\": 3, \"price\": \"1.20\"}]"));
	ck_assert(inboxd_is(m->result, "3.60"));
	inboxd_test_free(t);
}
END_TEST

START_TEST(rejects_what_is_no_order_before_it_writes)
{
	struct inboxd_test *t = open_ledger(NULL);
	struct inboxd_call *m = inboxd_test_message(t, "{\"order\": \"A-17\", \"customer\": null}");
	ck_assert_int_eq(inboxd_test_handle(m), INBOXD_REJECT);
	ck_assert_str_eq(m->reason, "order, customer or lines is missing");
	m = inboxd_test_message(t, "order A-17 for alice");
	ck_assert_int_eq(inboxd_test_handle(m), INBOXD_REJECT);
	ck_assert_uint_eq(t->n_statements, 0);
	inboxd_test_free(t);
}
END_TEST

START_TEST(returns_what_the_database_says)
{
	struct inboxd_test *t = open_ledger(NULL);
	struct inboxd_call *m = inboxd_test_message(t, order);
	inboxd_test_fail(t, "WITH line AS", INBOXD_REJECT, "quantity is no number");
	ck_assert_int_eq(inboxd_test_handle(m), INBOXD_REJECT);
	ck_assert_str_eq(m->reason, "quantity is no number");
	inboxd_test_fail(t, "INSERT INTO ledger_order", INBOXD_RETRY, "deadlock detected");
	ck_assert_int_eq(inboxd_test_handle(m), INBOXD_RETRY);
	inboxd_test_free(t);
}
END_TEST

START_TEST(rejects_an_order_beyond_the_limit)
{
	struct inboxd_test *t = open_ledger("3.59");
	struct inboxd_call *m = inboxd_test_message(t, order);
	ck_assert_int_eq(inboxd_test_handle(m), INBOXD_REJECT);
	ck_assert_str_eq(m->reason, "the order is beyond the limit");
	inboxd_test_free(t);
	t = open_ledger("3.60");
	ck_assert_int_eq(inboxd_test_handle(inboxd_test_message(t, order)), INBOXD_DONE);
	inboxd_test_free(t);
}
END_TEST

START_TEST(checks_its_options)
{
	struct inboxd_test *t = inboxd_test_new(&ledger_handler);
	inboxd_test_option(t, "limit", "much");
	inboxd_test_option(t, "limits", "10");
	ck_assert_int_eq(inboxd_test_check(t), INBOXD_REJECT);
	ck_assert_ptr_nonnull(strstr(t->errors, "limit: limit is a number above 0"));
	ck_assert_ptr_nonnull(strstr(t->errors, "limits: "));
	inboxd_test_free(t);
}
END_TEST

UNIT_SUITE("handlers/ledger", writes_the_order_and_its_lines,
	rejects_what_is_no_order_before_it_writes, returns_what_the_database_says,
	rejects_an_order_beyond_the_limit, checks_its_options)

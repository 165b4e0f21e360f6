/* SPDX-License-Identifier: MIT */
/* Tests orders.c without servers and without a framework. */
#undef NDEBUG
#include <inboxd/testkit.h>

#include <assert.h>

extern const struct inboxd_handler inboxd_handler;

int main(void)
{
	struct inboxd_test *t = inboxd_test_new(&inboxd_handler);
	struct inboxd_call *m = inboxd_test_message(t, "{\"id\": 17, \"total\": 12.50}");
	assert(inboxd_test_handle(m) == INBOXD_DONE);
	assert(t->n_statements == 1);
	assert(inboxd_is(t->statements[0].args[0], "17"));
	assert(inboxd_is(t->statements[0].args[1], "12.50"));

	/* What the database would say of a second order 17. */
	inboxd_test_fail(t, "INSERT INTO orders", INBOXD_REJECT, "duplicate key");
	assert(inboxd_test_handle(m) == INBOXD_REJECT);
	assert(strcmp(m->reason, "duplicate key") == 0);

	/* Garbage is refused by get, though this handler does not look. */
	m = inboxd_test_message(t, "id 17, total 12.50");
	inboxd_test_affected(t, "INSERT INTO orders", 1);
	assert(inboxd_test_handle(m) == INBOXD_REJECT);
	inboxd_test_free(t);
	return 0;
}

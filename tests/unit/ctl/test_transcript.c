/* SPDX-License-Identifier: MIT */
#include "ctl/transcript.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/fd.h"
#include "base/json.h"
#include "unit.h"

/* Runs tell with standard output caught. */
static void catch (void (*tell)(struct transcript *t), bool json, struct buf *out)
{
	struct transcript t;
	struct err err;
	char path[] = "/tmp/inboxd-transcript-XXXXXX";
	int fd = mkstemp(path);
	(void)fflush(stdout);
	int before = dup(STDOUT_FILENO);
	ck_assert_int_ge(dup2(fd, STDOUT_FILENO), 0);
	transcript_init(&t, json);
	tell(&t);
	transcript_end(&t);
	transcript_done(&t);
	(void)fflush(stdout);
	ck_assert_int_ge(dup2(before, STDOUT_FILENO), 0);
	(void)close(before);
	(void)close(fd);
	ck_assert_int_eq(fd_read_file(path, 1 << 20, out, &err), RC_OK);
	(void)unlink(path);
}

static void tell_two(struct transcript *t)
{
	const struct db_value args[] = {{.data = "a\nb", .size = 3}, {.data = NULL}};
	transcript_fact(t, "key", bytes_str("k\"1"));
	transcript_fact(t, "absent", bytes_of(NULL, 0));
	transcript_sql(t, "INSERT INTO t VALUES ($1, $2)", 2, args);
	transcript_sql(t, "SELECT 1", 0, NULL);
	transcript_result(t, "INSERT 0 1");
	transcript_result(t, "SELECT 1");
	transcript_result(t, "one too many");
	transcript_fact(t, "verdict", bytes_str("done"));
}

START_TEST(tells_people_in_order)
{
	AUTO(buf) struct buf out = {0};
	catch (tell_two, false, &out);
	ck_assert_str_eq(buf_str(&out),
		"key          k\"1\n"
		"statement    (1) INSERT INTO t VALUES ($1, $2)\n"
		"                 $1 = a\\x0ab\n"
		"                 $2 = NULL\n"
		"statement    (2) SELECT 1\n"
		"result       (1) INSERT 0 1\n"
		"result       (2) SELECT 1\n"
		"verdict      done\n");
}
END_TEST

static void expect_json(struct bytes text, const char *pointer, const char *raw)
{
	enum json_kind kind;
	struct bytes found;
	const char *why = "";
	size_t at;
	ck_assert_msg(json_find(text, pointer, &kind, &found, &why, &at), "%s at %zu", why, at);
	ck_assert_msg(bytes_equal(found, bytes_str(raw)), "%s: %.*s", pointer, (int)found.size,
		(const char *)found.data);
}

START_TEST(tells_programs_one_json_object)
{
	AUTO(buf) struct buf out = {0};
	catch (tell_two, true, &out);
	expect_json(buf_bytes(&out), "/key", "\"k\\\"1\"");
	expect_json(buf_bytes(&out), "/statements/0/parameters/1", "null");
	expect_json(buf_bytes(&out), "/statements/0/result", "\"INSERT 0 1\"");
	expect_json(buf_bytes(&out), "/statements/1/sql", "\"SELECT 1\"");
	expect_json(buf_bytes(&out), "/verdict", "\"done\"");
}
END_TEST

static void tell_long(struct transcript *t)
{
	static char text[1000];
	memset(text, 'x', sizeof text - 1);
	transcript_fact(t, "key", bytes_str(text));
}

START_TEST(cuts_long_values_for_people_only)
{
	AUTO(buf) struct buf out = {0}, json = {0};
	catch (tell_long, false, &out);
	ck_assert_uint_lt(out.size, 500);
	ck_assert_ptr_nonnull(strstr(buf_str(&out), "… (999 bytes)"));
	catch (tell_long, true, &json);
	ck_assert_uint_gt(json.size, 999);
}
END_TEST

UNIT_SUITE("ctl/transcript", tells_people_in_order, tells_programs_one_json_object,
	cuts_long_values_for_people_only)

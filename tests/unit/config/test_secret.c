/* SPDX-License-Identifier: MIT */
#include "config/config.h"

#include "fixture.h"
#include "unit.h"

#include <stdlib.h>
#include <sys/stat.h>

static enum rc read_from(const char *text, size_t size, struct buf *ret, struct err *err)
{
	struct fixture f;
	fixture_init(&f);
	fixture_write(&f, "pw", text, size);
	char *path = xasprintf("%s/pw", f.directory);
	enum rc rc = config_read_secret(path, ret, err);
	if (rc != RC_OK)
		ck_assert_msg(strstr(err->text, path) != NULL, "%s", err->text);
	free(path);
	fixture_done(&f);
	return rc;
}

static void expect(const char *text, const char *secret)
{
	struct buf out = {0};
	struct err err;
	buf_add_str(&out, "old");
	ck_assert_int_eq(read_from(text, strlen(text), &out, &err), RC_OK);
	ck_assert_str_eq(buf_str(&out), secret);
	buf_done(&out);
}

static void expect_refusal(const char *text, size_t size, const char *why)
{
	struct buf out = {0};
	struct err err;
	buf_add_str(&out, "old");
	ck_assert_int_eq(read_from(text, size, &out, &err), RC_UNAVAILABLE);
	ck_assert_int_eq(err.rc, RC_UNAVAILABLE);
	ck_assert_msg(strstr(err.text, why) != NULL, "%s", err.text);
	ck_assert_ptr_null(strstr(err.text, "sesame"));
	ck_assert_uint_eq(out.size, 0);
	buf_done(&out);
}

START_TEST(drops_one_newline_at_the_end_and_nothing_else)
{
	expect("sesame", "sesame");
	expect("sesame\n", "sesame");
	expect("sesame\r\n", "sesame");
	expect(" ses ame \n", " ses ame ");
	expect("0123\n", "0123");
	expect("p@:/#%\xc3\xa9\n", "p@:/#%\xc3\xa9");
}
END_TEST

START_TEST(refuses_files_that_cannot_hold_a_secret)
{
	char *large = xmalloc(CONFIG_SECRET_MAX + 1);
	memset(large, 'x', CONFIG_SECRET_MAX + 1);
	expect_refusal("", 0, "is empty");
	expect_refusal("\n", 1, "is empty");
	expect_refusal("ses\0ame\n", 8, "holds a NUL");
	expect_refusal("sesame\nsesame\n", 14, "holds more than one line");
	expect_refusal("sesame\n\n", 8, "holds more than one line");
	expect_refusal(large, CONFIG_SECRET_MAX + 1, "longer than 4096 bytes");
	struct buf out = {0};
	struct err err;
	ck_assert_int_eq(read_from(large, CONFIG_SECRET_MAX, &out, &err), RC_OK);
	buf_done(&out);
	free(large);
}
END_TEST

START_TEST(does_not_wait_for_a_fifo_and_tells_a_missing_file)
{
	struct fixture f;
	struct buf out = {0};
	struct err err;
	fixture_init(&f);
	char *path = xasprintf("%s/pw", f.directory);
	ck_assert_int_eq(config_read_secret(path, &out, &err), RC_UNAVAILABLE);
	ck_assert_ptr_nonnull(strstr(err.text, "No such file"));
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(config_read_secret(path, &out, &err), RC_UNAVAILABLE);
	ck_assert_ptr_nonnull(strstr(err.text, "is empty"));
	ck_assert_int_eq(config_read_secret(f.directory, &out, NULL), RC_UNAVAILABLE);
	free(path);
	buf_done(&out);
	fixture_done(&f);
}
END_TEST

UNIT_SUITE("config/secret", drops_one_newline_at_the_end_and_nothing_else,
	refuses_files_that_cannot_hold_a_secret, does_not_wait_for_a_fifo_and_tells_a_missing_file)

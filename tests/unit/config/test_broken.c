/* SPDX-License-Identifier: MIT */
/* Each file of tests/config/broken gives exactly the errors written beside it. */
#include "base/fd.h"
#include "config/config.h"

#include "unit.h"

#include <glob.h>
#include <stdlib.h>

#define BROKEN "tests/config/broken/"

static char *expected_of(const char *path)
{
	struct buf text = {0};
	struct err err = {0};
	char *name = xasprintf("%.*s.expect", (int)(strlen(path) - strlen(".yaml")), path);
	ck_assert_msg(fd_read_file(name, 1 << 20, &text, &err) == RC_OK, "%s", err.text);
	char *copy = xstrdup(buf_str(&text));
	buf_done(&text);
	free(name);
	return copy;
}

/* The expected text names files without their directory. */
static char *without_directory(const char *text)
{
	struct buf out = {0};
	while (*text != '\0') {
		if (strncmp(text, BROKEN, strlen(BROKEN)) == 0)
			text += strlen(BROKEN);
		else
			buf_add_byte(&out, (uint8_t)*text++);
	}
	char *copy = xstrdup(buf_str(&out));
	buf_done(&out);
	return copy;
}

START_TEST(every_broken_configuration_gives_the_errors_beside_it)
{
	glob_t found;
	(void)unsetenv("INBOXD_NO_SUCH_VARIABLE");
	ck_assert_int_eq(glob(BROKEN "*.yaml", 0, NULL, &found), 0);
	ck_assert_uint_ge(found.gl_pathc, 12);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		struct buf errors = {0};
		char *expected = expected_of(found.gl_pathv[i]);
		ck_assert_ptr_null(config_load(found.gl_pathv[i], &errors));
		char *got = without_directory(buf_str(&errors));
		size_t same = 0;
		while (got[same] != '\0' && got[same] == expected[same])
			same++;
		ck_assert_msg(strcmp(got, expected) == 0, "%s: got \"%.100s\", expected \"%.100s\"",
			found.gl_pathv[i], got + same, expected + same);
		free(got);
		free(expected);
		buf_done(&errors);
	}
	globfree(&found);
}
END_TEST

START_TEST(every_error_has_a_place_a_line_a_caret_and_a_hint)
{
	glob_t found;
	ck_assert_int_eq(glob(BROKEN "*.expect", 0, NULL, &found), 0);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		char *path = xasprintf(
			"%.*s.yaml", (int)(strlen(found.gl_pathv[i]) - 7), found.gl_pathv[i]);
		char *text = expected_of(path);
		size_t errors = 0, carets = 0, hints = 0;
		for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL;) {
			errors += strstr(line, ".yaml:") != NULL && line[0] != ' ';
			carets += line[strspn(line, " \t")] == '^';
			hints += strncmp(line, "  hint: ", 8) == 0;
		}
		ck_assert_uint_gt(errors, 0);
		ck_assert_uint_eq(carets, errors);
		ck_assert_msg(hints == errors, "%s: %zu errors, %zu hints", path, errors, hints);
		free(text);
		free(path);
	}
	globfree(&found);
}
END_TEST

START_TEST(no_error_shows_a_secret)
{
	char *text = expected_of(BROKEN "12-secrets.yaml");
	ck_assert_ptr_null(strstr(text, "sesame"));
	ck_assert_ptr_null(strstr(text, "ses"));
	ck_assert_ptr_null(strstr(text, "ame\n"));
	free(text);
	text = expected_of(BROKEN "09-colon-in-a-text.yaml");
	ck_assert_ptr_null(strstr(text, "sesame"));
	free(text);
}
END_TEST

UNIT_SUITE("config/broken", every_broken_configuration_gives_the_errors_beside_it,
	every_error_has_a_place_a_line_a_caret_and_a_hint, no_error_shows_a_secret)

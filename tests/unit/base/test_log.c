/* SPDX-License-Identifier: MIT */
#include "base/log.h"

#include "base/fd.h"
#include "base/json.h"
#include "unit.h"

#include <fcntl.h>
#include <sys/mman.h>

static int saved_stderr = -1, capture = -1;
static struct buf captured;

/* Standard error goes to a memfd until caught. */
static void catch (enum log_level level, enum log_format format)
{
	capture = memfd_create("log", MFD_CLOEXEC);
	saved_stderr = dup(STDERR_FILENO);
	ck_assert_int_ge(dup2(capture, STDERR_FILENO), 0);
	log_init(level, format);
}

static const char *caught(void)
{
	struct err err;
	ck_assert_int_ge(dup2(saved_stderr, STDERR_FILENO), 0);
	(void)close(saved_stderr);
	ck_assert_int_eq(lseek(capture, 0, SEEK_SET), 0);
	buf_clear(&captured);
	ck_assert_int_eq(fd_read_all(capture, 1 << 20, &captured, &err), RC_OK);
	(void)close(capture);
	log_init(L_INFO, LOG_LOGFMT);
	log_set_role(NULL, NULL);
	return buf_str(&captured);
}

/* Behind the time, which is another one each time. */
static const char *behind_time(const char *line)
{
	ck_assert_msg(strncmp(line, "time=", 5) == 0, "%s", line);
	ck_assert_uint_eq(strcspn(line, " "), strlen("time=2026-01-01T00:00:00.000Z"));
	return strchr(line, ' ') + 1;
}

static struct bytes json_member(const char *line, const char *pointer, enum json_kind *ret_kind)
{
	struct bytes raw;
	const char *why = "";
	size_t at = 0;
	ck_assert_msg(json_find(bytes_str(line), pointer, ret_kind, &raw, &why, &at),
		"%s at %zu: %s", why, at, line);
	return raw;
}

START_TEST(writes_one_line_per_event)
{
	catch (L_INFO, LOG_LOGFMT);
	log_set_role("consumer", "orders");
	log_event(L_INFO, "consuming", LS("queue", "q 1"), LU("prefetch", 200), LI("delta", -3));
	ck_assert_str_eq(behind_time(caught()),
		"level=info event=consuming role=consumer consumer=orders queue=\"q 1\" "
		"prefetch=200 delta=-3\n");
}
END_TEST

START_TEST(keeps_quiet_below_its_level)
{
	catch (L_WARNING, LOG_LOGFMT);
	log_event(L_INFO, "nothing", LI("n", 1));
	log_event(L_DEBUG, "nothing", LI("n", 1));
	ck_assert(log_enabled(L_WARNING));
	ck_assert(!log_enabled(L_INFO));
	log_event(L_ERROR, "something", LI("n", 1));
	ck_assert_str_eq(behind_time(caught()), "level=error event=something n=1\n");
}
END_TEST

START_TEST(leaves_out_absent_fields_and_keeps_empty_ones)
{
	catch (L_INFO, LOG_LOGFMT);
	log_event(L_INFO, "e", LS("absent", NULL), LB("gone", bytes_of(NULL, 0)), LS("empty", ""));
	ck_assert_str_eq(behind_time(caught()), "level=info event=e empty=\"\"\n");
}
END_TEST

START_TEST(a_value_cannot_forge_a_line_or_a_field)
{
	catch (L_INFO, LOG_LOGFMT);
	log_event(L_INFO, "e", LS("key", "a\nlevel=error b=\"c\" \\"), LS("next", "x=y"));
	ck_assert_str_eq(behind_time(caught()),
		"level=info event=e key=\"a\\nlevel=error b=\\\"c\\\" \\\\\" next=\"x=y\"\n");
}
END_TEST

START_TEST(escapes_what_is_not_utf8_or_would_steer_a_terminal)
{
	catch (L_INFO, LOG_LOGFMT);
	log_event(L_INFO, "e",
		LB("v", bytes_str("\x1b[31m\xff \xc2\x9b \xe2\x80\xa8 \xf3\xa0\x81\x81 \xc3\xa9")));
	ck_assert_str_eq(behind_time(caught()),
		"level=info event=e v=\"\\u001b[31m\\xff \\u009b \\u2028 \\udb40\\udc41 "
		"\xc3\xa9\"\n");
}
END_TEST

START_TEST(json_lines_are_json_whatever_they_quote)
{
	uint8_t every[256];
	enum json_kind kind;
	for (int i = 0; i < 256; i++)
		every[i] = (uint8_t)i;
	catch (L_INFO, LOG_JSON);
	log_set_role("worker", NULL);
	log_event(L_WARNING, "e", LB("all", bytes_of(every, sizeof every)),
		LB("far", bytes_str("\xf3\xa0\x81\x81")), LU("big", UINT64_MAX), LS("t", "\"\\"));
	const char *line = caught();
	struct bytes big = json_member(line, "/big", &kind);
	ck_assert(bytes_equal(big, bytes_str("18446744073709551615")));
	ck_assert(bytes_equal(json_member(line, "/level", &kind), bytes_str("\"warning\"")));
	ck_assert(bytes_equal(json_member(line, "/role", &kind), bytes_str("\"worker\"")));
	(void)json_member(line, "/consumer", &kind);
	ck_assert_int_eq(kind, JSON_ABSENT);
	struct buf text = {0};
	json_unescape(json_member(line, "/t", &kind), &text);
	ck_assert_str_eq(buf_str(&text), "\"\\");
	buf_clear(&text);
	json_unescape(json_member(line, "/far", &kind), &text);
	ck_assert_str_eq(buf_str(&text), "\xf3\xa0\x81\x81");
	buf_done(&text);
}
END_TEST

START_TEST(text_for_people_is_lines_and_one_event_for_programs)
{
	enum json_kind kind;
	struct buf text = {0};
	catch (L_INFO, LOG_LOGFMT);
	log_text(L_ERROR, "configuration", bytes_str("a.yaml:1:2: no\n  ^\n"));
	log_text(L_ERROR, "configuration", bytes_str(""));
	ck_assert_str_eq(caught(), "a.yaml:1:2: no\n  ^\n");
	catch (L_INFO, LOG_JSON);
	log_text(L_ERROR, "configuration", bytes_str("a.yaml:1:2: no\n  ^\n"));
	const char *line = caught();
	ck_assert(bytes_equal(json_member(line, "/level", &kind), bytes_str("\"error\"")));
	ck_assert(bytes_equal(json_member(line, "/event", &kind), bytes_str("\"configuration\"")));
	json_unescape(json_member(line, "/text", &kind), &text);
	ck_assert_str_eq(buf_str(&text), "a.yaml:1:2: no\n  ^\n");
	buf_done(&text);
}
END_TEST

START_TEST(an_unreachable_journal_is_no_reason_to_lose_the_line)
{
	catch (L_INFO, LOG_JOURNAL);
	bool has_journal = access("/run/systemd/journal/socket", F_OK) == 0;
	log_event(L_INFO, "e", LS("a", "b"));
	const char *text = caught();
	if (!has_journal)
		ck_assert_str_eq(behind_time(text), "level=info event=e a=b\n");
	else
		ck_assert_str_eq(text, "");
}
END_TEST

START_TEST(a_closed_log_harms_nothing)
{
	catch (L_INFO, LOG_LOGFMT);
	(void)close(STDERR_FILENO);
	log_event(L_INFO, "e", LS("a", "b"));
	ck_assert_str_eq(caught(), "");
	ck_assert_str_eq(log_level_name(L_DEBUG), "debug");
}
END_TEST

/* Standard error is the writing end of a pipe that holds a page. */
static int catch_pipe(void)
{
	int ends[2];
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	ck_assert_int_gt(fcntl(ends[1], F_SETPIPE_SZ, 4096), 0);
	saved_stderr = dup(STDERR_FILENO);
	ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
	(void)close(ends[1]);
	log_init(L_INFO, LOG_LOGFMT);
	return ends[0];
}

static const char *read_pipe(int fd)
{
	uint8_t text[8192];
	ssize_t n = read(fd, text, sizeof text);
	ck_assert_int_gt(n, 0);
	buf_clear(&captured);
	buf_add(&captured, text, (size_t)n);
	return buf_str(&captured);
}

START_TEST(a_log_that_nobody_reads_holds_nobody_up_and_tells_later_what_was_lost)
{
	int reader = catch_pipe();
	char filler[1500];
	memset(filler, 'x', sizeof filler - 1);
	filler[sizeof filler - 1] = '\0';
	for (int i = 0; i < 200; i++) /* would hang at the third */
		log_event(L_INFO, "e", LS("a", filler));
	(void)read_pipe(reader);
	log_event(L_INFO, "after", LS("a", "b"));
	const char *text = read_pipe(reader);
	bool is_open = (fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK) == 0;
	ck_assert_int_ge(dup2(saved_stderr, STDERR_FILENO), 0);
	ck_assert_ptr_nonnull(strstr(text, "level=warning event=log_lines_lost lines=19"));
	ck_assert_ptr_nonnull(strstr(text, "Z level=info event=after a=b\n"));
	ck_assert(is_open); /* others share it */
	(void)close(reader);
}
END_TEST

START_TEST(a_full_disk_under_the_log_harms_nothing)
{
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
	ck_assert_int_ge(full, 0);
	saved_stderr = dup(STDERR_FILENO);
	ck_assert_int_ge(dup2(full, STDERR_FILENO), 0);
	for (int i = 0; i < 100; i++)
		log_event(L_INFO, "e", LS("a", "b"));
	ck_assert_int_ge(dup2(saved_stderr, STDERR_FILENO), 0);
	catch (L_INFO, LOG_LOGFMT);
	log_event(L_INFO, "e", LS("a", "b"));
	ck_assert_ptr_nonnull(strstr(caught(), "event=log_lines_lost lines=100"));
	(void)close(full);
}
END_TEST

UNIT_SUITE("base/log", writes_one_line_per_event, keeps_quiet_below_its_level,
	leaves_out_absent_fields_and_keeps_empty_ones, a_value_cannot_forge_a_line_or_a_field,
	escapes_what_is_not_utf8_or_would_steer_a_terminal, json_lines_are_json_whatever_they_quote,
	text_for_people_is_lines_and_one_event_for_programs,
	an_unreachable_journal_is_no_reason_to_lose_the_line, a_closed_log_harms_nothing,
	a_log_that_nobody_reads_holds_nobody_up_and_tells_later_what_was_lost,
	a_full_disk_under_the_log_harms_nothing)

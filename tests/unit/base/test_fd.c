/* SPDX-License-Identifier: MIT */
#include "base/fd.h"

#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

static int scratch(char path[64], const char *text)
{
	(void)snprintf(path, 64, "/tmp/inboxd-unit-XXXXXX");
	int fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	ck_assert(fd_write_all(fd, text, strlen(text)));
	return fd;
}

START_TEST(reads_a_whole_file)
{
	char path[64];
	struct err err;
	struct buf b = {0};
	int fd = scratch(path, "some text");
	buf_add_str(&b, "before ");
	ck_assert_int_eq(fd_read_file(path, 9, &b, &err), RC_OK);
	ck_assert_str_eq(buf_str(&b), "before some text");
	ck_assert_int_eq(fd_read_file(path, 8, &b, &err), RC_FATAL);
	ck_assert_ptr_nonnull(strstr(err.text, path));
	ck_assert_ptr_nonnull(strstr(err.text, "longer than 8 bytes"));
	(void)close(fd);
	(void)unlink(path);
	ck_assert_int_eq(fd_read_file(path, 9, &b, &err), RC_FATAL);
	ck_assert_ptr_nonnull(strstr(err.text, strerror(ENOENT)));
	ck_assert_int_eq(fd_read_file("/", 9, &b, &err), RC_FATAL);
	ck_assert_ptr_nonnull(strstr(err.text, strerror(EISDIR)));
	buf_done(&b);
}
END_TEST

START_TEST(a_memfd_holds_the_text_and_cannot_be_changed)
{
	struct err err;
	struct buf b = {0};
	int fd = -1;
	ck_assert_int_eq(fd_memfd("config", bytes_str("secret: x"), &fd, &err), RC_OK);
	ck_assert_int_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	ck_assert_int_eq(fd_read_all(fd, 100, &b, &err), RC_OK);
	ck_assert_str_eq(buf_str(&b), "secret: x");
	ck_assert_int_lt(write(fd, "y", 1), 0);
	ck_assert_int_ne(ftruncate(fd, 0), 0);
	ck_assert_ptr_eq(mmap(NULL, 9, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	(void)close(fd);
	buf_clear(&b);
	ck_assert_int_eq(fd_memfd("empty", bytes_of(NULL, 0), &fd, &err), RC_OK);
	ck_assert_int_eq(fd_read_all(fd, 100, &b, &err), RC_OK);
	ck_assert_uint_eq(b.size, 0);
	(void)close(fd);
	buf_done(&b);
}
END_TEST

START_TEST(says_when_it_cannot_write_all)
{
	int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert(!fd_write_all(fd, "x", 1));
	ck_assert(fd_write_all(fd, NULL, 0));
	(void)close(fd);
	ck_assert(!fd_write_all(-1, "x", 1));
}
END_TEST

START_TEST(a_scope_closes_what_was_not_handed_over)
{
	int closed, kept;
	{
		AUTO(fd) int a = open("/dev/null", O_RDONLY | O_CLOEXEC);
		AUTO(fd) int b = open("/dev/null", O_RDONLY | O_CLOEXEC);
		AUTO(fd) int none = -1;
		AUTO(buf) struct buf text = {0};
		AUTO(free) char *copy = xstrdup("x");
		buf_add_str(&text, copy);
		(void)none;
		closed = a;
		kept = TAKE_FD(b);
		ck_assert_int_eq(b, -1);
	}
	ck_assert_int_lt(fcntl(closed, F_GETFD), 0);
	ck_assert_int_ge(fcntl(kept, F_GETFD), 0);
	(void)close(kept);
}
END_TEST

UNIT_SUITE("base/fd", reads_a_whole_file, a_memfd_holds_the_text_and_cannot_be_changed,
	says_when_it_cannot_write_all, a_scope_closes_what_was_not_handed_over)

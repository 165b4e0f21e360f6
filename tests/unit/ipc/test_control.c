/* SPDX-License-Identifier: MIT */
#include "ipc/control.h"

#include "unit.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static int ends[2]; /* 0: the supervisor's, 1: the consumer's */
static struct err err;

static void setup(void)
{
	ck_assert_int_eq(control_pair(ends, &err), RC_OK);
}

static void done(void)
{
	(void)close(ends[0]);
	(void)close(ends[1]);
}

static int open_descriptors(void)
{
	int n = 0;
	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static bool is_same_file(int a, int b)
{
	struct stat x, y;
	ck_assert_int_eq(fstat(a, &x), 0);
	ck_assert_int_eq(fstat(b, &y), 0);
	return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static const struct control gone = {.kind = CONTROL_GONE,
	.index = 3,
	.life = 77,
	.pid = 4242,
	.status = -11,
	.was_killed = 1,
	.timed_out = 1,
	.timeout_ms = UINT64_MAX};

START_TEST(what_is_said_arrives_whole)
{
	struct control got;
	int fd = 99;
	setup();
	ck_assert_int_eq(control_send(ends[0], &gone, -1, &err), RC_OK);
	ck_assert_int_eq(control_receive(ends[1], &got, &fd), 1);
	ck_assert_mem_eq(&got, &gone, sizeof got);
	ck_assert_int_eq(fd, -1);
	done();
}
END_TEST

START_TEST(nothing_there_is_no_end)
{
	struct control got;
	int fd = 99;
	setup();
	ck_assert_int_eq(control_receive(ends[1], &got, &fd), 0);
	ck_assert_int_eq(fd, -1);
	done();
}
END_TEST

START_TEST(several_arrive_one_by_one_in_order)
{
	struct control got;
	int fd;
	setup();
	for (uint32_t i = 0; i < 5; i++) {
		const struct control c = {.kind = CONTROL_GONE, .index = i};
		ck_assert_int_eq(control_send(ends[0], &c, -1, &err), RC_OK);
	}
	for (uint32_t i = 0; i < 5; i++) {
		ck_assert_int_eq(control_receive(ends[1], &got, &fd), 1);
		ck_assert_uint_eq(got.index, i);
	}
	ck_assert_int_eq(control_receive(ends[1], &got, &fd), 0);
	done();
}
END_TEST

START_TEST(a_descriptor_arrives_as_a_copy_that_no_child_inherits)
{
	struct control got;
	int pipe_ends[2], fd;
	char byte = 0;
	const struct control worker = {.kind = CONTROL_WORKER, .index = 1};
	setup();
	ck_assert_int_eq(pipe(pipe_ends), 0);
	ck_assert_int_eq(control_send(ends[0], &worker, pipe_ends[1], &err), RC_OK);
	ck_assert(fcntl(pipe_ends[1], F_GETFD) >= 0);
	ck_assert_int_eq(control_receive(ends[1], &got, &fd), 1);
	ck_assert_uint_eq(got.kind, CONTROL_WORKER);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_ne(fd, pipe_ends[1]);
	ck_assert(is_same_file(fd, pipe_ends[1]));
	ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
	(void)close(pipe_ends[1]);
	ck_assert_int_eq(write(fd, "x", 1), 1);
	ck_assert_int_eq(read(pipe_ends[0], &byte, 1), 1);
	ck_assert_int_eq(byte, 'x');
	(void)close(fd);
	(void)close(pipe_ends[0]);
	done();
}
END_TEST

START_TEST(each_descriptor_comes_with_its_own_message)
{
	struct control got;
	int files[2][2], fd;
	setup();
	for (uint32_t i = 0; i < 2; i++) {
		const struct control c = {.kind = CONTROL_WORKER, .index = i};
		ck_assert_int_eq(pipe(files[i]), 0);
		ck_assert_int_eq(control_send(ends[0], &gone, -1, &err), RC_OK);
		ck_assert_int_eq(control_send(ends[0], &c, files[i][0], &err), RC_OK);
	}
	for (uint32_t i = 0; i < 2; i++) {
		ck_assert_int_eq(control_receive(ends[1], &got, &fd), 1);
		ck_assert_int_eq(fd, -1);
		ck_assert_int_eq(control_receive(ends[1], &got, &fd), 1);
		ck_assert_uint_eq(got.index, i);
		ck_assert(is_same_file(fd, files[i][0]));
		(void)close(fd);
		(void)close(files[i][0]);
		(void)close(files[i][1]);
	}
	done();
}
END_TEST

START_TEST(what_was_said_before_the_end_still_arrives)
{
	struct control got;
	int fd;
	setup();
	ck_assert_int_eq(control_send(ends[0], &gone, -1, &err), RC_OK);
	(void)close(ends[0]);
	ck_assert_int_eq(control_receive(ends[1], &got, &fd), 1);
	ck_assert_uint_eq(got.life, 77);
	ck_assert_int_eq(control_receive(ends[1], &got, &fd), -1);
	ck_assert_int_eq(fd, -1);
	ck_assert_int_eq(control_receive(ends[1], &got, &fd), -1);
	(void)close(ends[1]);
}
END_TEST

START_TEST(a_peer_that_is_gone_is_told_by_an_error_and_no_signal)
{
	setup();
	(void)close(ends[1]);
	ck_assert_int_eq(control_send(ends[0], &gone, -1, &err), RC_UNAVAILABLE);
	ck_assert_ptr_nonnull(strstr(err.text, "control channel"));
	(void)close(ends[0]);
}
END_TEST

START_TEST(a_full_line_is_an_error_at_once_and_loses_nothing_that_was_taken)
{
	struct control got;
	uint32_t sent = 0;
	int fd, before;
	setup();
	before = open_descriptors();
	for (;; sent++) {
		const struct control c = {.kind = CONTROL_WORKER, .index = sent};
		if (control_send(ends[0], &c, ends[0], &err) != RC_OK)
			break;
		ck_assert_uint_lt(sent, 1000000);
	}
	ck_assert_int_eq(err.rc, RC_UNAVAILABLE);
	ck_assert_uint_ge(sent, 64); /* a few workers are no crowd */
	for (uint32_t i = 0; i < sent; i++) {
		ck_assert_int_eq(control_receive(ends[1], &got, &fd), 1);
		ck_assert_uint_eq(got.index, i);
		ck_assert_int_ge(fd, 0);
		(void)close(fd);
	}
	ck_assert_int_eq(control_receive(ends[1], &got, &fd), 0);
	ck_assert_int_eq(open_descriptors(), before);
	ck_assert_int_eq(control_send(ends[0], &gone, -1, &err), RC_OK);
	done();
}
END_TEST

START_TEST(a_datagram_of_another_size_is_no_peer_of_ours)
{
	struct control got;
	int fd;
	setup();
	ck_assert_int_eq(send(ends[0], "hello", 5, 0), 5);
	ck_assert_int_eq(control_receive(ends[1], &got, &fd), -1);
	ck_assert_int_eq(fd, -1);
	done();
}
END_TEST

START_TEST(neither_end_is_inherited_nor_blocks)
{
	setup();
	for (int i = 0; i < 2; i++) {
		ck_assert_int_ne(fcntl(ends[i], F_GETFD) & FD_CLOEXEC, 0);
		ck_assert_int_ne(fcntl(ends[i], F_GETFL) & O_NONBLOCK, 0);
	}
	done();
}
END_TEST

UNIT_SUITE("ipc/control", what_is_said_arrives_whole, nothing_there_is_no_end,
	several_arrive_one_by_one_in_order, a_descriptor_arrives_as_a_copy_that_no_child_inherits,
	each_descriptor_comes_with_its_own_message, what_was_said_before_the_end_still_arrives,
	a_peer_that_is_gone_is_told_by_an_error_and_no_signal,
	a_full_line_is_an_error_at_once_and_loses_nothing_that_was_taken,
	a_datagram_of_another_size_is_no_peer_of_ours, neither_end_is_inherited_nor_blocks)

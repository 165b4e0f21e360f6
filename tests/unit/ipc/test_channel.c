/* SPDX-License-Identifier: MIT */
#include "ipc/channel.h"

#include "unit.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LARGE = 16 << 20 };

static struct channel a, b;

static void pair(bool is_blocking)
{
	int fds[2];
	struct err err;
	ck_assert_int_eq(channel_pair(fds, &err), RC_OK);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(fcntl(fds[i], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
		if (!is_blocking)
			ck_assert_int_eq(fcntl(fds[i], F_SETFL, O_NONBLOCK), 0);
	}
	channel_init(&a, fds[0]);
	channel_init(&b, fds[1]);
}

static void done(void)
{
	channel_done(&a);
	channel_done(&b);
}

static void put(struct channel *c, uint8_t type, const char *text)
{
	size_t at = channel_begin(c, type);
	buf_add_str(&c->out, text);
	channel_end(c, at);
}

/* A frame whose bytes depend on their place, so that none can be lost or change places. */
static void put_large(struct channel *c, uint8_t seed)
{
	size_t at = channel_begin(c, seed);
	uint8_t *p = buf_reserve(&c->out, LARGE);
	for (size_t i = 0; i < LARGE; i++)
		p[i] = (uint8_t)(seed + i / 7 + i % 251);
	c->out.size += LARGE;
	channel_end(c, at);
}

static void check_large(const struct frame *f)
{
	ck_assert_uint_eq(f->payload.size, LARGE);
	for (size_t i = 0; i < LARGE; i++)
		if (f->payload.data[i] != (uint8_t)(f->type + i / 7 + i % 251))
			ck_abort_msg("byte %zu of frame %u", i, f->type);
}

START_TEST(frames_arrive_in_order_and_whole)
{
	struct frame f;
	pair(false);
	put(&a, 1, "first");
	put(&a, 2, "");
	put(&a, 3, "third");
	ck_assert_uint_eq(channel_pending(&a), 3 * FRAME_HEADER_SIZE + 10);
	ck_assert_int_eq(channel_next(&b, &f), 0);
	ck_assert_int_eq(channel_flush(&a), RC_OK);
	ck_assert_uint_eq(channel_pending(&a), 0);
	ck_assert_int_eq(channel_fill(&b), RC_OK);
	ck_assert_int_eq(channel_next(&b, &f), 1);
	ck_assert_uint_eq(f.type, 1);
	struct bytes first = f.payload;
	ck_assert_int_eq(channel_next(&b, &f), 1);
	ck_assert_uint_eq(f.type, 2);
	ck_assert_uint_eq(f.payload.size, 0);
	ck_assert_int_eq(channel_next(&b, &f), 1);
	ck_assert(bytes_equal(f.payload, bytes_str("third")));
	ck_assert(bytes_equal(first, bytes_str("first")));
	ck_assert_int_eq(channel_next(&b, &f), 0);
	done();
}
END_TEST

START_TEST(nothing_to_read_is_no_error)
{
	struct frame f;
	pair(false);
	ck_assert_int_eq(channel_fill(&b), RC_OK);
	ck_assert_int_eq(channel_next(&b, &f), 0);
	ck_assert_int_eq(channel_flush(&b), RC_OK);
	done();
}
END_TEST

START_TEST(a_frame_that_comes_byte_by_byte_is_put_together)
{
	static const uint8_t wire[] = {0, 0, 0, 3, 9, 'a', 'b', 'c', 0, 0, 0, 0, 7};
	struct frame f;
	pair(false);
	for (size_t i = 0; i < sizeof wire; i++) {
		ck_assert_int_eq(write(a.fd, &wire[i], 1), 1);
		ck_assert_int_eq(channel_fill(&b), RC_OK);
		int got = channel_next(&b, &f);
		ck_assert_int_eq(got, i == 7 || i == 12);
		if (i == 7)
			ck_assert(bytes_equal(f.payload, bytes_str("abc")));
	}
	ck_assert_uint_eq(f.type, 7);
	done();
}
END_TEST

/* Both directions at once, each end sending when it can and reading when it must. */
START_TEST(large_frames_pass_both_ways_at_once)
{
	struct channel *ends[] = {&a, &b};
	struct frame f;
	int received = 0;
	pair(false);
	put_large(&a, 3);
	put_large(&b, 5);
	while (received < 2) {
		struct pollfd fds[2];
		for (int i = 0; i < 2; i++)
			fds[i] = (struct pollfd){.fd = ends[i]->fd,
				.events = (short)(POLLIN |
					(channel_pending(ends[i]) != 0 ? POLLOUT : 0))};
		ck_assert_int_gt(poll(fds, 2, 5000), 0);
		for (int i = 0; i < 2; i++) {
			if ((fds[i].revents & POLLOUT) != 0)
				ck_assert_int_eq(channel_flush(ends[i]), RC_OK);
			if ((fds[i].revents & POLLIN) == 0)
				continue;
			ck_assert_int_eq(channel_fill(ends[i]), RC_OK);
			if (channel_next(ends[i], &f) == 1) {
				check_large(&f);
				received++;
			}
		}
	}
	done();
}
END_TEST

static void wait_for_frame(struct frame *ret)
{
	int got = 0;
	while ((got = channel_next(&b, ret)) == 0)
		ck_assert_int_eq(channel_fill(&b), RC_OK);
	ck_assert_int_eq(got, 1);
}

START_TEST(a_blocking_end_sends_all_to_a_slow_reader)
{
	pair(true);
	pid_t child = fork();
	if (child == 0) {
		channel_done(&b);
		put_large(&a, 3);
		put(&a, 4, "end");
		_exit(channel_flush(&a) == RC_OK && channel_pending(&a) == 0 ? 0 : 1);
	}
	struct frame f;
	channel_done(&a);
	wait_for_frame(&f);
	check_large(&f);
	wait_for_frame(&f);
	ck_assert(bytes_equal(f.payload, bytes_str("end")));
	int status = -1;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	done();
}
END_TEST

START_TEST(a_peer_that_does_not_read_leaves_bytes_pending)
{
	struct frame f;
	size_t sent = 0, got = 0;
	pair(false);
	while (channel_pending(&a) < 1000000) {
		put(&a, 1, "0123456789012345678901234567890123456789");
		sent++;
		ck_assert_int_eq(channel_flush(&a), RC_OK);
	}
	ck_assert_uint_gt(sent, 1000000 / 45);
	while (got < sent) {
		ck_assert_int_eq(channel_fill(&b), RC_OK);
		while (channel_next(&b, &f) == 1) {
			ck_assert_uint_eq(f.payload.size, 40);
			got++;
		}
		ck_assert_int_eq(channel_flush(&a), RC_OK);
	}
	ck_assert_uint_eq(channel_pending(&a), 0);
	done();
}
END_TEST

/* Never quite empty, for long: what is sent must not pile up in the sender's memory. */
START_TEST(a_queue_that_is_never_empty_does_not_keep_what_it_sent)
{
	static const char line[1000] = {'x'};
	struct frame f;
	size_t queued = 0, most = 0;
	pair(false);
	for (int round = 0; queued < 20000000; round++) {
		if (round > 100000)
			ck_abort_msg("stuck");
		while (channel_pending(&a) < 200000) {
			size_t at = channel_begin(&a, 1);
			buf_add(&a.out, line, sizeof line);
			channel_end(&a, at);
			queued += sizeof line;
		}
		if (channel_flush(&a) != RC_OK || channel_fill(&b) != RC_OK)
			ck_abort_msg("peer gone");
		if (a.out.size > most)
			most = a.out.size;
		while (channel_next(&b, &f) == 1)
			continue;
	}
	ck_assert_uint_lt(most, 2000000);
	done();
}
END_TEST

START_TEST(memory_of_a_large_frame_is_given_back)
{
	struct frame f;
	pair(false);
	put_large(&a, 3);
	while (channel_next(&b, &f) == 0) {
		ck_assert_int_eq(channel_flush(&a), RC_OK);
		ck_assert_int_eq(channel_fill(&b), RC_OK);
	}
	ck_assert_int_eq(channel_flush(&a), RC_OK);
	ck_assert_uint_lt(a.out.cap, LARGE / 2);
	ck_assert_int_eq(channel_fill(&b), RC_OK);
	ck_assert_uint_lt(b.in.cap, LARGE / 2);
	done();
}
END_TEST

START_TEST(a_peer_that_is_gone_shows_after_its_last_frames)
{
	struct frame f;
	pair(false);
	put(&a, 1, "last words");
	ck_assert_int_eq(channel_flush(&a), RC_OK);
	channel_done(&a);
	ck_assert_int_eq(channel_fill(&b), RC_OK);
	ck_assert_int_eq(channel_next(&b, &f), 1);
	ck_assert(bytes_equal(f.payload, bytes_str("last words")));
	ck_assert_int_eq(channel_fill(&b), RC_UNAVAILABLE);
	put(&b, 1, "too late");
	ck_assert_int_eq(channel_flush(&b), RC_UNAVAILABLE);
	ck_assert_int_eq(channel_flush(&b), RC_UNAVAILABLE);
	done();
}
END_TEST

START_TEST(a_peer_that_sends_nonsense_is_found_out)
{
	struct frame f;
	pair(false);
	ck_assert_int_eq(write(a.fd, "\xff\xff\xff\xff\1", 5), 5);
	ck_assert_int_eq(channel_fill(&b), RC_OK);
	ck_assert_int_eq(channel_next(&b, &f), -1);
	ck_assert_int_eq(channel_next(&b, &f), -1);
	done();
	done();
}
END_TEST

UNIT_SUITE("ipc/channel", frames_arrive_in_order_and_whole, nothing_to_read_is_no_error,
	a_frame_that_comes_byte_by_byte_is_put_together, large_frames_pass_both_ways_at_once,
	a_blocking_end_sends_all_to_a_slow_reader, a_peer_that_does_not_read_leaves_bytes_pending,
	a_queue_that_is_never_empty_does_not_keep_what_it_sent,
	memory_of_a_large_frame_is_given_back, a_peer_that_is_gone_shows_after_its_last_frames,
	a_peer_that_sends_nonsense_is_found_out)

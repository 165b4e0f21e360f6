/* SPDX-License-Identifier: MIT */
#include "mq/mq.h"

#include "fake_broker.h"
#include "unit.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

static const uint8_t no_properties[2];

/* What is bounded by less must have ended by then, on a slow machine too; without its bound it
 * would take far longer. */
enum { SOON = 2500 };

/* Tries to connect and must fail; ms it took. */
static uint64_t refused(const struct config_broker *broker, int interrupt_fd, enum rc expected,
	const char *must_say)
{
	struct mq_conn *c = NULL;
	struct mq_place place;
	struct err err = {0};
	uint64_t begin = clock_ms();
	enum rc rc = mq_conn_open(broker, 0, "test", interrupt_fd, &c, &place, &err);
	ck_assert_msg(rc == expected, "%s: %s", rc_name(rc), err.text);
	ck_assert_int_eq(err.rc, expected);
	ck_assert_ptr_null(c);
	ck_assert_msg(strstr(err.text, must_say) != NULL, "%s", err.text);
	return clock_ms() - begin;
}

static struct mq_conn *opened(const struct config_broker *broker)
{
	struct mq_conn *c = NULL;
	struct mq_place place;
	struct err err = {0};
	enum rc rc = mq_conn_open(broker, 0, "test", -1, &c, &place, &err);
	ck_assert_msg(rc == RC_OK, "%s", err.text);
	return c;
}

/* ---- who does not answer ------------------------------------------------------------------ */

START_TEST(a_refused_connection_names_the_address_and_the_reason)
{
	struct fake_broker f;
	fake_listen(&f, false);
	(void)close(f.listener);
	uint64_t ms = refused(&f.broker, -1, RC_UNAVAILABLE, "127.0.0.1: Connection refused");
	ck_assert_uint_lt(ms, SOON);
}
END_TEST

START_TEST(a_black_hole_takes_no_longer_than_allowed)
{
	struct fake_broker f;
	fake_listen(&f, true);
	f.broker.connect_timeout_ms = 500;
	uint64_t ms = refused(&f.broker, -1, RC_UNAVAILABLE, "127.0.0.1: no answer in time");
	ck_assert_uint_ge(ms, 400);
	ck_assert_uint_lt(ms, SOON);
	fake_stop(&f);
}
END_TEST

static void *interrupt_later(void *data)
{
	const uint64_t one = 1;
	(void)usleep(100000);
	ck_assert_int_eq(write(*(int *)data, &one, sizeof one), sizeof one);
	return NULL;
}

START_TEST(an_interrupt_ends_connecting_at_once)
{
	struct fake_broker f;
	pthread_t thread;
	AUTO(fd) int fd = eventfd(0, EFD_CLOEXEC);
	fake_listen(&f, true);
	f.broker.connect_timeout_ms = 10000;
	ck_assert_int_eq(pthread_create(&thread, NULL, interrupt_later, &fd), 0);
	uint64_t ms = refused(&f.broker, fd, RC_RETRY, "interrupted");
	ck_assert_uint_lt(ms, SOON);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	/* TLS too, and a name that has to be looked up */
	char tls[] = "amqps://localhost:1";
	f.uris[0] = tls;
	ck_assert_uint_lt(refused(&f.broker, fd, RC_RETRY, "interrupted"), SOON);
	fake_stop(&f);
}
END_TEST

START_TEST(a_server_that_never_speaks_takes_no_longer_than_allowed)
{
	struct fake_broker f;
	fake_listen(&f, false);
	f.broker.connect_timeout_ms = 300;
	uint64_t ms = refused(&f.broker, -1, RC_UNAVAILABLE, "no answer in time");
	ck_assert_uint_lt(ms, SOON);
	(void)snprintf(f.uri, sizeof f.uri, "amqps://127.0.0.1:%u", f.port);
	ms = refused(&f.broker, -1, RC_UNAVAILABLE, "no answer in time");
	ck_assert_uint_lt(ms, SOON);
	fake_stop(&f);
}
END_TEST

static void until_login_script(struct fake_broker *f, int fd)
{
	fake_login(f, fd);
	while (fake_receive(fd, NULL) != 0)
		continue;
}

START_TEST(a_channel_that_never_opens_takes_no_longer_than_allowed)
{
	struct fake_broker f;
	fake_start(&f, until_login_script);
	f.broker.connect_timeout_ms = 300;
	uint64_t ms = refused(&f.broker, -1, RC_UNAVAILABLE, "no answer in time");
	ck_assert_uint_lt(ms, SOON);
	fake_stop(&f);
}
END_TEST

static void http_script(struct fake_broker *f, int fd)
{
	(void)f;
	AUTO(buf) struct buf out = {0};
	buf_add_str(&out, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
	fake_send(fd, &out);
	char ignored[64];
	while (recv(fd, ignored, sizeof ignored, 0) > 0)
		continue;
}

START_TEST(a_server_of_another_kind_is_recognised)
{
	struct fake_broker f;
	fake_start(&f, http_script);
	refused(&f.broker, -1, RC_UNAVAILABLE, "not AMQP");
	fake_stop(&f);
	fake_start(&f, http_script);
	(void)snprintf(f.uri, sizeof f.uri, "amqps://127.0.0.1:%u", f.port);
	refused(&f.broker, -1, RC_UNAVAILABLE, "TLS");
	fake_stop(&f);
}
END_TEST

START_TEST(an_unknown_host_is_named)
{
	char uri[] = "amqp://no-such-host.invalid";
	char *uris[] = {uri};
	const struct config_broker broker = {
		.uris = {.items = uris, .n = 1}, .heartbeat_s = 10, .connect_timeout_ms = 3000};
	uint64_t ms = refused(&broker, -1, RC_UNAVAILABLE, "looking up no-such-host.invalid");
	ck_assert_uint_lt(ms, 3000 + SOON);
}
END_TEST

/* ---- URIs and secrets --------------------------------------------------------------------- */

START_TEST(uris_are_tried_by_number)
{
	char first[] = "amqp://a@127.0.0.1:1/first", second[] = "amqp://[::1]:1/a%2Fb";
	char *uris[] = {first, second};
	const struct config_broker broker = {
		.uris = {.items = uris, .n = 2}, .heartbeat_s = 10, .connect_timeout_ms = 1000};
	for (size_t which = 0; which < 4; which++) {
		struct mq_conn *c = NULL;
		struct mq_place place;
		ck_assert_int_eq(
			mq_conn_open(&broker, which, "test", -1, &c, &place, NULL), RC_UNAVAILABLE);
		ck_assert_str_eq(place.address, which % 2 == 0 ? "127.0.0.1:1" : "[::1]:1");
		ck_assert_str_eq(place.vhost, which % 2 == 0 ? "first" : "a/b");
		ck_assert_str_eq(place.user, which % 2 == 0 ? "a" : "guest");
	}
}
END_TEST

static void login_alone_script(struct fake_broker *f, int fd)
{
	fake_login(f, fd);
}

static void assert_sasl(struct config_broker broker, const char *expected, size_t size)
{
	struct fake_broker f;
	struct mq_conn *c = NULL;
	struct mq_place place;
	fake_start(&f, login_alone_script);
	broker.uris = f.broker.uris;
	broker.heartbeat_s = f.broker.heartbeat_s;
	broker.connect_timeout_ms = f.broker.connect_timeout_ms;
	if (broker.name != NULL)
		(void)snprintf(f.uri, sizeof f.uri, "amqp://%s127.0.0.1:%u", broker.name, f.port);
	ck_assert_int_eq(mq_conn_open(&broker, 0, "test", -1, &c, &place, NULL), RC_UNAVAILABLE);
	fake_stop(&f);
	ck_assert_uint_eq(f.sasl_size, size);
	ck_assert_mem_eq(f.sasl, expected, size);
}

START_TEST(password_file_goes_before_password_before_uri)
{
	char path[] = "/tmp/inboxd-test-password-XXXXXX";
	AUTO(fd) int fd = mkstemp(path);
	char user[] = "me", password[] = "option", with_password[] = "x:uri@", bare[] = "";
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, "first\n", 6), 6);
	assert_sasl((struct config_broker){0}, "\0u\0p", 4);
	assert_sasl((struct config_broker){.password = password}, "\0u\0option", 9);
	assert_sasl((struct config_broker){.user = user, .password = password}, "\0me\0option", 10);
	assert_sasl((struct config_broker){.password = password, .password_file = path},
		"\0u\0first", 8);
	/* read anew at each connect */
	ck_assert_int_eq(pwrite(fd, "other\n", 6, 0), 6);
	assert_sasl((struct config_broker){.password_file = path}, "\0u\0other", 8);
	ck_assert_int_eq(unlink(path), 0);
	/* The default password belongs to the default user. */
	assert_sasl((struct config_broker){.name = bare}, "\0guest\0guest", 12);
	assert_sasl((struct config_broker){.name = bare, .user = user}, "\0me\0", 4);
	assert_sasl((struct config_broker){.name = with_password, .user = user}, "\0me\0uri", 7);
}
END_TEST

START_TEST(a_missing_password_file_is_named_and_may_come_later)
{
	struct fake_broker f;
	char path[] = "/nonexistent/password";
	fake_listen(&f, false);
	f.broker.password_file = path;
	refused(&f.broker, -1, RC_UNAVAILABLE, "/nonexistent/password");
	fake_stop(&f);
}
END_TEST

START_TEST(a_bad_uri_is_for_a_person)
{
	struct fake_broker f;
	fake_listen(&f, false);
	(void)snprintf(f.uri, sizeof f.uri, "amqp://u:hunter2@x@h");
	refused(&f.broker, -1, RC_FATAL, "%40");
	fake_stop(&f);
}
END_TEST

static void greeting_script(struct fake_broker *f, int fd)
{
	(void)f;
	fake_greet(fd);
	if (fake_receive(fd, NULL) != 0)
		abort();
}

START_TEST(a_mechanism_that_is_not_offered_is_named)
{
	struct fake_broker f;
	fake_start(&f, greeting_script);
	f.broker.auth = BROKER_AUTH_EXTERNAL;
	refused(&f.broker, -1, RC_UNAVAILABLE, "EXTERNAL");
	fake_stop(&f);
}
END_TEST

/* ---- heartbeats --------------------------------------------------------------------------- */

static void accepting_script(struct fake_broker *f, int fd)
{
	fake_accept(f, fd);
	while (fake_receive(fd, NULL) != 0)
		continue;
}

static uint32_t negotiated(uint16_t server, uint32_t ours)
{
	struct fake_broker f;
	fake_start(&f, accepting_script);
	f.heartbeat_s = server;
	f.broker.heartbeat_s = ours;
	struct mq_conn *c = opened(&f.broker);
	uint32_t s = mq_heartbeat_s(c);
	mq_conn_close(c, false);
	fake_stop(&f);
	return s;
}

/* ---- frames ------------------------------------------------------------------------------- */

enum { SMALL_FRAME = 4096, FRAME_OVERHEAD = 8, LARGE_BODY = 100000 };
static size_t body_bytes, largest_piece;

static void measuring_script(struct fake_broker *f, int fd)
{
	struct buf payload = {0};
	fake_accept(f, fd);
	while (body_bytes < LARGE_BODY) {
		buf_clear(&payload);
		uint32_t type = fake_receive(fd, &payload);
		if (type == 0)
			break;
		if (type != 3)
			continue;
		body_bytes += payload.size;
		largest_piece = payload.size > largest_piece ? payload.size : largest_piece;
	}
	buf_done(&payload);
}

START_TEST(a_body_goes_out_in_frames_as_small_as_the_broker_wants_them)
{
	static uint8_t body[LARGE_BODY];
	struct fake_broker f;
	struct err err;
	fake_start(&f, measuring_script);
	f.frame_max = SMALL_FRAME;
	struct mq_conn *c = opened(&f.broker);
	body_bytes = largest_piece = 0;
	ck_assert_int_eq(mq_publish(c, bytes_str(""), bytes_str("q"), bytes_of(no_properties, 2),
				 bytes_of(body, sizeof body), &err),
		RC_OK);
	fake_stop(&f);
	mq_conn_close(c, false);
	ck_assert_uint_eq(body_bytes, LARGE_BODY);
	ck_assert_uint_eq(largest_piece, SMALL_FRAME - FRAME_OVERHEAD);
}
END_TEST

START_TEST(the_smaller_heartbeat_counts_and_none_is_ours)
{
	ck_assert_uint_eq(negotiated(60, 15), 15);
	ck_assert_uint_eq(negotiated(5, 15), 5);
	ck_assert_uint_eq(negotiated(0, 15), 15);
}
END_TEST

static _Atomic int heartbeats;

static void counting_script(struct fake_broker *f, int fd)
{
	uint8_t frame[8];
	fake_accept(f, fd);
	while (recv(fd, frame, sizeof frame, MSG_WAITALL) == sizeof frame && frame[0] == 8) {
		heartbeats++;
		if (send(fd, frame, sizeof frame, MSG_NOSIGNAL) != sizeof frame)
			return;
	}
}

START_TEST(heartbeats_are_sent_and_answered_ones_keep_the_connection)
{
	struct fake_broker f;
	struct mq_event e;
	struct err err = {0};
	heartbeats = 0;
	fake_start(&f, counting_script);
	f.heartbeat_s = 1;
	struct mq_conn *c = opened(&f.broker);
	uint64_t begin = clock_ms();
	while (clock_ms() - begin < 4000) {
		struct pollfd p = {.fd = mq_conn_fd(c), .events = POLLIN};
		(void)poll(&p, 1, 200);
		ck_assert_msg(mq_read(c, &e, &err) == RC_OK, "%s", err.text);
		ck_assert_int_eq(e.kind, MQ_NONE);
	}
	ck_assert_int_ge(heartbeats, 5); /* every half second */
	ck_assert_int_le(heartbeats, 9);
	ck_assert_int_eq(mq_heartbeat(c, &err), RC_OK);
	mq_conn_close(c, false);
	fake_stop(&f);
}
END_TEST

START_TEST(a_silent_broker_is_lost_after_two_heartbeats)
{
	struct fake_broker f;
	struct mq_event e;
	struct err err = {0};
	fake_start(&f, accepting_script);
	f.heartbeat_s = 1;
	struct mq_conn *c = opened(&f.broker);
	uint64_t begin = clock_ms();
	while (mq_read(c, &e, &err) == RC_OK) {
		ck_assert_int_eq(e.kind, MQ_NONE);
		struct pollfd p = {.fd = mq_conn_fd(c), .events = POLLIN};
		(void)poll(&p, 1, 100);
		ck_assert_uint_lt(clock_ms() - begin, 2000 + 2 * SOON);
	}
	ck_assert_uint_ge(clock_ms() - begin, 1000);
	ck_assert_msg(strstr(err.text, "two heartbeats") != NULL, "%s", err.text);
	ck_assert_int_ge(mq_conn_fd(c), 0);
	mq_conn_close(c, true);
	fake_stop(&f);
}
END_TEST

/* ---- a broker that does not read ---------------------------------------------------------- */

static _Atomic bool is_over;

/* Reads nothing more; says that it lives if asked to. */
static void frozen(struct fake_broker *f, int fd, bool is_talking)
{
	static const uint8_t heartbeat[] = {8, 0, 0, 0, 0, 0, 0, 0xce};
	fake_accept(f, fd);
	for (int i = 0; !is_over; i++) {
		if (is_talking && i % 20 == 0)
			(void)!send(fd, heartbeat, sizeof heartbeat, MSG_NOSIGNAL);
		(void)usleep(10000);
	}
}

static void frozen_script(struct fake_broker *f, int fd)
{
	frozen(f, fd, false);
}

static void talking_script(struct fake_broker *f, int fd)
{
	frozen(f, fd, true);
}

static void (*const frozen_scripts[])(struct fake_broker *, int) = {frozen_script, talking_script};

/* The kernel's own limit for data that is not taken, and a generous buffer, would hide ours. */
static void set_options(int fd)
{
	int user_timeout = 0, buffer = 212992; /* the usual net.core.wmem_max */
	ck_assert_int_eq(
		setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout, sizeof(int)), 0);
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer), 0);
}

static struct mq_conn *opened_frozen(struct fake_broker *f, int which, uint16_t heartbeat_s)
{
	is_over = false;
	fake_start(f, frozen_scripts[which]);
	f->heartbeat_s = heartbeat_s;
	struct mq_conn *c = opened(&f->broker);
	set_options(mq_conn_fd(c));
	return c;
}

static void stop_frozen(struct fake_broker *f, struct mq_conn *c)
{
	mq_conn_close(c, false);
	is_over = true;
	fake_stop(f);
}

static void publish_to_frozen(int which)
{
	struct fake_broker f;
	struct err err = {0};
	struct mq_conn *c = opened_frozen(&f, which, 1);
	AUTO(free) uint8_t *body = xcalloc(1, 16 << 20);
	uint64_t begin = clock_ms();
	ck_assert_int_eq(mq_publish(c, bytes_str(""), bytes_str("q"), bytes_of(no_properties, 2),
				 bytes_of(body, 16 << 20), &err),
		RC_UNAVAILABLE);
	ck_assert_msg(
		strstr(err.text, "took nothing") != NULL || strstr(err.text, "timed out") != NULL,
		"%s", err.text);
	ck_assert_uint_lt(clock_ms() - begin, 2000 + SOON);
	ck_assert_int_eq(mq_heartbeat(c, &err), RC_UNAVAILABLE); /* at once now */
	ck_assert_uint_lt(clock_ms() - begin, 2000 + SOON);
	stop_frozen(&f, c);
}

START_TEST(publishing_to_a_frozen_broker_ends_within_two_heartbeats)
{
	publish_to_frozen(0);
	publish_to_frozen(1);
}
END_TEST

static void publish_headers_to_frozen(int which)
{
	struct fake_broker f;
	struct err err = {0};
	enum { TEXT = 130000 };
	struct mq_conn *c = opened_frozen(&f, which, 1);
	AUTO(buf) struct buf properties = {0};
	buf_add_u16(&properties, 0x2000);
	buf_add_u32(&properties, TEXT + 7);
	buf_add(&properties, "\1hS", 3);
	buf_add_u32(&properties, TEXT);
	memset(buf_reserve(&properties, TEXT), 'x', TEXT);
	properties.size += TEXT;
	uint64_t last;
	do
		last = clock_ms();
	while (mq_publish(c, bytes_str(""), bytes_str("q"), buf_bytes(&properties), bytes_str(""),
		       &err) == RC_OK);
	ck_assert_uint_lt(clock_ms() - last, 2000 + SOON);
	ck_assert_msg(strstr(err.text, "took nothing") != NULL, "%s", err.text);
	stop_frozen(&f, c);
}

/* The largest frames there are: one that the socket takes in part would have no limit. */
START_TEST(publishing_large_headers_to_a_frozen_broker_ends_within_two_heartbeats)
{
	publish_headers_to_frozen(0);
	publish_headers_to_frozen(1);
}
END_TEST

static void ack_to_frozen(int which)
{
	struct fake_broker f;
	struct err err = {0};
	struct mq_conn *c = opened_frozen(&f, which, 1);
	uint64_t begin = clock_ms(), last = begin;
	while (mq_ack(c, 1, true, &err) == RC_OK) {
		last = clock_ms();
		ck_assert_uint_lt(last - begin, 60000);
	}
	ck_assert_uint_lt(clock_ms() - last, 2000 + SOON);
	/* Sometimes the kernel's own limit comes first. */
	ck_assert_msg(
		strstr(err.text, "took nothing") != NULL || strstr(err.text, "timed out") != NULL,
		"%s", err.text);
	begin = clock_ms();
	mq_conn_close(c, true);
	ck_assert_uint_lt(clock_ms() - begin, 1000 + SOON);
	stop_frozen(&f, NULL);
}

START_TEST(acking_to_a_frozen_broker_ends_within_two_heartbeats)
{
	ack_to_frozen(0);
	ack_to_frozen(1);
}
END_TEST

/* Fills the socket to the last byte, beyond where it no longer polls writable. */
static void fill(struct mq_conn *c)
{
	static const uint8_t heartbeat[] = {8, 0, 0, 0, 0, 0, 0, 0xce};
	while (send(mq_conn_fd(c), heartbeat, sizeof heartbeat, MSG_DONTWAIT) > 0)
		continue;
}

static void read_from_frozen(int which)
{
	struct fake_broker f;
	struct mq_event e;
	struct err err = {0};
	enum rc rc;
	struct mq_conn *c = opened_frozen(&f, which, 1);
	uint64_t begin = clock_ms();
	fill(c);
	do {
		uint64_t call = clock_ms();
		rc = mq_read(c, &e, &err);
		ck_assert_uint_lt(clock_ms() - call, SOON / 2);
		(void)usleep(50000);
		ck_assert_uint_lt(clock_ms() - begin, 10000);
	} while (rc == RC_OK);
	ck_assert_int_eq(rc, RC_UNAVAILABLE);
	ck_assert_uint_ge(clock_ms() - begin, 1500);
	stop_frozen(&f, c);
}

START_TEST(reading_from_a_frozen_broker_never_waits_and_ends_within_two_heartbeats)
{
	read_from_frozen(0);
	read_from_frozen(1);
}
END_TEST

START_TEST(goodbye_to_a_broker_that_does_not_answer_takes_a_second)
{
	struct fake_broker f;
	for (int which = 0; which < 2; which++) {
		struct mq_conn *c = opened_frozen(&f, which, 10);
		uint64_t begin = clock_ms();
		mq_conn_close(c, true);
		ck_assert_uint_lt(clock_ms() - begin, 1000 + SOON);
		stop_frozen(&f, NULL);
		c = opened_frozen(&f, which, 10);
		fill(c);
		begin = clock_ms();
		mq_conn_close(c, true);
		ck_assert_uint_lt(clock_ms() - begin, 1000 + SOON);
		stop_frozen(&f, NULL);
	}
}
END_TEST

UNIT_SUITE("mq/conn", a_refused_connection_names_the_address_and_the_reason,
	a_black_hole_takes_no_longer_than_allowed, an_interrupt_ends_connecting_at_once,
	a_server_that_never_speaks_takes_no_longer_than_allowed,
	a_channel_that_never_opens_takes_no_longer_than_allowed,
	a_server_of_another_kind_is_recognised, an_unknown_host_is_named, uris_are_tried_by_number,
	password_file_goes_before_password_before_uri,
	a_missing_password_file_is_named_and_may_come_later, a_bad_uri_is_for_a_person,
	a_mechanism_that_is_not_offered_is_named,
	a_body_goes_out_in_frames_as_small_as_the_broker_wants_them,
	the_smaller_heartbeat_counts_and_none_is_ours,
	heartbeats_are_sent_and_answered_ones_keep_the_connection,
	a_silent_broker_is_lost_after_two_heartbeats,
	publishing_to_a_frozen_broker_ends_within_two_heartbeats,
	publishing_large_headers_to_a_frozen_broker_ends_within_two_heartbeats,
	acking_to_a_frozen_broker_ends_within_two_heartbeats,
	reading_from_a_frozen_broker_never_waits_and_ends_within_two_heartbeats,
	goodbye_to_a_broker_that_does_not_answer_takes_a_second)

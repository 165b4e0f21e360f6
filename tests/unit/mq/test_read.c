/* SPDX-License-Identifier: MIT */
#include "mq/mq.h"

#include "fake_broker.h"
#include "unit.h"

#include "base/clock.h"
#include "base/fd.h"

#include <malloc.h>
#include <poll.h>
#include <string.h>

static const uint8_t no_properties[2];

static struct mq_conn *opened(struct fake_broker *f)
{
	struct mq_conn *c = NULL;
	struct mq_place place;
	struct err err = {0};
	enum rc rc = mq_conn_open(&f->broker, 0, "test", -1, &c, &place, &err);
	ck_assert_msg(rc == RC_OK, "%s", err.text);
	return c;
}

/* What mq_read says next, other than that nothing has come. */
static enum rc next(struct mq_conn *c, struct mq_event *ret, struct err *err)
{
	uint64_t deadline = clock_ms() + 10000;
	for (;;) {
		enum rc rc = mq_read(c, ret, err);
		if (rc != RC_OK || ret->kind != MQ_NONE)
			return rc;
		ck_assert_msg(clock_ms() < deadline, "nothing came");
		struct pollfd p = {.fd = mq_conn_fd(c), .events = POLLIN};
		(void)poll(&p, 1, 100);
	}
}

static struct mq_event event(struct mq_conn *c, enum mq_event_kind kind)
{
	struct mq_event e;
	struct err err = {0};
	ck_assert_msg(next(c, &e, &err) == RC_OK, "%s", err.text);
	ck_assert_int_eq(e.kind, kind);
	return e;
}

static void lost(struct mq_conn *c, const char *must_say)
{
	struct mq_event e;
	struct err err = {0};
	ck_assert_int_eq(next(c, &e, &err), RC_UNAVAILABLE);
	ck_assert_msg(strstr(err.text, must_say) != NULL, "%s", err.text);
	ck_assert_int_eq(mq_read(c, &e, &err), RC_UNAVAILABLE);
	ck_assert_int_eq(mq_ack(c, 1, false, &err), RC_UNAVAILABLE);
}

static void assert_bytes(struct bytes b, const char *text)
{
	ck_assert_uint_eq(b.size, strlen(text));
	ck_assert_mem_eq(b.data, text, b.size);
}

static void send_and_wait(struct fake_broker *f, int fd, const struct buf *out)
{
	fake_accept(f, fd);
	fake_send(fd, out);
	while (fake_receive(fd, NULL) != 0)
		continue;
}

static void deliver_script(struct fake_broker *f, int fd)
{
	AUTO(buf) struct buf out = {0};
	AUTO(buf) struct buf properties = {0};
	buf_add_u16(&properties, 0x8080);
	add_short(&properties, "text/plain");
	add_short(&properties, "id-1");
	add_deliver(&out, 7, true, "x", "k");
	add_header(&out, 8, buf_bytes(&properties));
	add_body(&out, bytes_str("hello"));
	add_body(&out, bytes_str(""));
	add_body(&out, bytes_str("you"));
	add_deliver(&out, 8, false, "", "queue");
	add_header(&out, 0, bytes_of(no_properties, 2));
	add_deliver(&out, 9, false, "", "queue");
	add_header(&out, 1, bytes_of(no_properties, 2));
	add_body(&out, bytes_str("z"));
	send_and_wait(f, fd, &out);
}

START_TEST(a_delivery_is_its_head_and_its_pieces)
{
	struct fake_broker f;
	fake_start(&f, deliver_script);
	struct mq_conn *c = opened(&f);
	struct mq_event e = event(c, MQ_DELIVERY);
	ck_assert_uint_eq(e.tag, 7);
	ck_assert(e.redelivered);
	assert_bytes(e.exchange, "x");
	assert_bytes(e.routing_key, "k");
	ck_assert_uint_eq(e.body_size, 8);
	ck_assert_uint_eq(e.properties.size, 18);
	ck_assert_mem_eq(e.properties.data, "\x80\x80\x0atext/plain\x04id-1", 18);
	assert_bytes(event(c, MQ_BODY).piece, "hello");
	assert_bytes(event(c, MQ_BODY).piece, "you");
	e = event(c, MQ_DELIVERY);
	ck_assert_uint_eq(e.tag, 8);
	ck_assert(!e.redelivered);
	assert_bytes(e.exchange, "");
	ck_assert_uint_eq(e.body_size, 0);
	ck_assert_uint_eq(event(c, MQ_DELIVERY).tag, 9);
	assert_bytes(event(c, MQ_BODY).piece, "z");
	mq_conn_close(c, false);
	fake_stop(&f);
}
END_TEST

/* A header of a type that nobody knows. */
static void undecodable_script(struct fake_broker *f, int fd)
{
	AUTO(buf) struct buf out = {0};
	static const uint8_t properties[] = {0x20, 0x00, 0, 0, 0, 4, 1, 'h', '?', 0};
	AUTO(buf) struct buf payload = {0};
	fake_accept(f, fd);
	add_deliver(&out, 41, true, "x", "k");
	add_header(&out, 5, bytes_of(properties, sizeof properties));
	add_body(&out, bytes_str("hello"));
	fake_send(fd, &out);
	if (fake_receive(fd, &payload) != METHOD(60, 90) || payload.size != 13 ||
		payload.data[11] != 41 || payload.data[12] != 0)
		abort();
	fake_await(fd, METHOD(10, 50));
	if (fake_receive(fd, NULL) != 0)
		abort();
}

START_TEST(undecodable_properties_leave_a_delivery_that_can_be_rejected)
{
	struct fake_broker f;
	struct mq_event e;
	struct err err = {0};
	fake_start(&f, undecodable_script);
	struct mq_conn *c = opened(&f);
	e = event(c, MQ_UNDECODABLE);
	ck_assert_uint_eq(e.tag, 41);
	ck_assert(e.redelivered);
	assert_bytes(e.exchange, "x");
	assert_bytes(e.routing_key, "k");
	ck_assert_int_eq(mq_read(c, &e, &err), RC_UNAVAILABLE);
	ck_assert_int_eq(mq_reject(c, 41, &err), RC_OK);
	uint64_t begin = clock_ms();
	mq_conn_close(c, true);
	ck_assert_uint_lt(clock_ms() - begin, 3000);
	fake_stop(&f); /* has checked that reject and goodbye arrived, then the end of file */
}
END_TEST

static void too_long_script(struct fake_broker *f, int fd)
{
	AUTO(buf) struct buf out = {0};
	add_deliver(&out, 1, false, "", "q");
	add_header(&out, 3, bytes_of(no_properties, 2));
	add_body(&out, bytes_str("four"));
	send_and_wait(f, fd, &out);
}

START_TEST(a_body_longer_than_announced_ends_the_connection)
{
	struct fake_broker f;
	fake_start(&f, too_long_script);
	struct mq_conn *c = opened(&f);
	ck_assert_uint_eq(event(c, MQ_DELIVERY).body_size, 3);
	lost(c, "longer than announced");
	mq_conn_close(c, true);
	fake_stop(&f);
}
END_TEST

static void too_short_script(struct fake_broker *f, int fd)
{
	AUTO(buf) struct buf out = {0};
	add_deliver(&out, 1, false, "", "q");
	add_header(&out, UINT64_MAX, bytes_of(no_properties, 2));
	add_body(&out, bytes_str("four"));
	add_deliver(&out, 2, false, "", "q");
	send_and_wait(f, fd, &out);
}

START_TEST(a_message_cut_short_ends_the_connection)
{
	struct fake_broker f;
	fake_start(&f, too_short_script);
	struct mq_conn *c = opened(&f);
	ck_assert_uint_eq(event(c, MQ_DELIVERY).body_size, UINT64_MAX);
	assert_bytes(event(c, MQ_BODY).piece, "four");
	lost(c, "within a message");
	mq_conn_close(c, true);
	fake_stop(&f);
}
END_TEST

static void header_alone_script(struct fake_broker *f, int fd)
{
	AUTO(buf) struct buf out = {0};
	add_header(&out, 3, bytes_of(no_properties, 2));
	send_and_wait(f, fd, &out);
}

static void body_alone_script(struct fake_broker *f, int fd)
{
	AUTO(buf) struct buf out = {0};
	add_body(&out, bytes_str("x"));
	send_and_wait(f, fd, &out);
}

START_TEST(content_without_a_message_ends_the_connection)
{
	void (*const scripts[])(struct fake_broker *, int) = {
		header_alone_script, body_alone_script};
	for (int i = 0; i < 2; i++) {
		struct fake_broker f;
		fake_start(&f, scripts[i]);
		struct mq_conn *c = opened(&f);
		lost(c, "of no message");
		mq_conn_close(c, true);
		fake_stop(&f);
	}
}
END_TEST

static void garbage_script(struct fake_broker *f, int fd)
{
	AUTO(buf) struct buf out = {0};
	buf_add_str(&out, "HTTP/1.1 400 Bad Request\r\n\r\n");
	send_and_wait(f, fd, &out);
}

START_TEST(garbage_ends_the_connection)
{
	struct fake_broker f;
	fake_start(&f, garbage_script);
	struct mq_conn *c = opened(&f);
	lost(c, "not AMQP");
	mq_conn_close(c, true);
	fake_stop(&f);
}
END_TEST

static void eof_script(struct fake_broker *f, int fd)
{
	fake_accept(f, fd);
}

START_TEST(the_end_of_the_socket_is_named)
{
	struct fake_broker f;
	fake_start(&f, eof_script);
	struct mq_conn *c = opened(&f);
	lost(c, "closed the socket");
	ck_assert_int_ge(mq_conn_fd(c), 0); /* still ours, for the event loop */
	mq_conn_close(c, true);
	fake_stop(&f);
}
END_TEST

static void cancel_script(struct fake_broker *f, int fd)
{
	AUTO(buf) struct buf out = {0};
	fake_accept(f, fd);
	fake_await(fd, METHOD(60, 10));
	fake_await(fd, METHOD(60, 20));
	add_method(&out, 1, METHOD(60, 11), (struct bytes){0});
	add_method(&out, 1, METHOD(60, 21), bytes_of("\4test", 5));
	add_method(&out, 1, METHOD(60, 30), bytes_of("\4test\0", 6));
	fake_send(fd, &out);
	fake_await(fd, METHOD(60, 31)); /* asked for by its no-wait bit of 0 */
	fake_await(fd, METHOD(60, 30));
	buf_clear(&out);
	add_method(&out, 1, METHOD(60, 31), bytes_of("\4test", 5));
	add_method(&out, 1, METHOD(20, 20), bytes_of("\1", 1));
	fake_send(fd, &out);
	fake_await(fd, METHOD(20, 21));
	while (fake_receive(fd, NULL) != 0)
		continue;
}

START_TEST(consuming_and_cancelling_come_as_events)
{
	struct fake_broker f;
	struct err err = {0};
	struct mq_event e;
	fake_start(&f, cancel_script);
	struct mq_conn *c = opened(&f);
	ck_assert_int_eq(mq_consume(c, "q", 10, &err), RC_OK);
	event(c, MQ_CONSUMING);
	event(c, MQ_CANCELLED);
	ck_assert_int_eq(mq_cancel(c, &err), RC_OK);
	event(c, MQ_CANCEL_OK);
	ck_assert_int_eq(mq_read(c, &e, &err), RC_OK); /* answers channel.flow */
	mq_conn_close(c, false);
	fake_stop(&f);
}
END_TEST

static void channel_close_script(struct fake_broker *f, int fd)
{
	AUTO(buf) struct buf out = {0};
	fake_accept(f, fd);
	/* It may come in the middle of a message. */
	add_deliver(&out, 1, false, "", "q");
	add_header(&out, 8, bytes_of(no_properties, 2));
	add_close(&out, 1, 406, "PRECONDITION_FAILED - too\1slow");
	fake_send(fd, &out);
	/* close-ok, then nothing of the old channel */
	if (fake_receive(fd, NULL) != METHOD(20, 41) || fake_receive(fd, NULL) != METHOD(20, 10))
		abort();
	buf_clear(&out);
	add_method(&out, 1, METHOD(20, 11), bytes_of("\0\0\0", 4));
	add_deliver(&out, 1, false, "", "q");
	add_header(&out, 0, bytes_of(no_properties, 2));
	fake_send(fd, &out);
	if (fake_receive(fd, NULL) != METHOD(60, 80))
		abort();
}

START_TEST(a_closed_channel_is_answered_and_takes_nothing_until_it_is_reopened)
{
	struct fake_broker f;
	struct err err = {0};
	fake_start(&f, channel_close_script);
	struct mq_conn *c = opened(&f);
	event(c, MQ_DELIVERY);
	struct mq_event e = event(c, MQ_CHANNEL_CLOSED);
	ck_assert_uint_eq(e.code, 406);
	ck_assert_str_eq(e.text, "PRECONDITION_FAILED - too\\x01slow");
	ck_assert_int_eq(mq_ack(c, 1, true, &err), RC_RETRY);
	ck_assert_int_eq(mq_nack(c, 1, true, &err), RC_RETRY);
	ck_assert_int_eq(mq_reject(c, 1, &err), RC_RETRY);
	ck_assert_int_eq(mq_consume(c, "q", 1, &err), RC_RETRY);
	ck_assert_int_eq(mq_cancel(c, &err), RC_RETRY);
	ck_assert_int_eq(mq_publish(c, bytes_str(""), bytes_str("q"), bytes_of(no_properties, 2),
				 bytes_str(""), &err),
		RC_RETRY);
	ck_assert_int_eq(mq_channel_reopen(c, &err), RC_OK);
	ck_assert_uint_eq(event(c, MQ_DELIVERY).tag, 1);
	ck_assert_int_eq(mq_ack(c, 1, false, &err), RC_OK);
	lost(c, "closed the socket");
	mq_conn_close(c, false);
	fake_stop(&f);
}
END_TEST

static void close_script(struct fake_broker *f, int fd)
{
	AUTO(buf) struct buf out = {0};
	fake_accept(f, fd);
	add_method(&out, 0, METHOD(10, 60), bytes_of("\10low disk", 9));
	add_method(&out, 0, METHOD(10, 61), (struct bytes){0});
	add_close(&out, 0, 320, "CONNECTION_FORCED - by operator");
	fake_send(fd, &out);
	fake_await(fd, METHOD(10, 51));
}

START_TEST(a_closed_connection_is_answered_and_says_why)
{
	struct fake_broker f;
	struct err err = {0};
	fake_start(&f, close_script);
	struct mq_conn *c = opened(&f);
	ck_assert_str_eq(event(c, MQ_BLOCKED).text, "low disk");
	event(c, MQ_UNBLOCKED);
	struct mq_event e = event(c, MQ_CLOSED);
	ck_assert_uint_eq(e.code, 320);
	ck_assert_str_eq(e.text, "CONNECTION_FORCED - by operator");
	ck_assert_int_eq(mq_ack(c, 1, false, &err), RC_UNAVAILABLE);
	ck_assert_int_eq(mq_heartbeat(c, &err), RC_UNAVAILABLE);
	ck_assert_int_eq(mq_channel_reopen(c, &err), RC_UNAVAILABLE);
	mq_conn_close(c, true);
	fake_stop(&f);
}
END_TEST

static void return_script(struct fake_broker *f, int fd)
{
	AUTO(buf) struct buf out = {0};
	AUTO(buf) struct buf a = {0};
	fake_accept(f, fd);
	fake_await(fd, 3); /* the body */
	buf_add_u16(&a, 312);
	add_short(&a, "NO_ROUTE");
	add_short(&a, "");
	add_short(&a, "nowhere");
	add_method(&out, 1, METHOD(60, 50), buf_bytes(&a));
	add_header(&out, 5, bytes_of(no_properties, 2));
	add_body(&out, bytes_str("he"));
	add_body(&out, bytes_str("llo"));
	add_method(&out, 1, METHOD(60, 80), bytes_of("\0\0\0\0\0\0\0\1\0", 9));
	add_method(&out, 1, METHOD(60, 120), bytes_of("\0\0\0\0\0\0\0\3\1", 9));
	fake_send(fd, &out);
	while (fake_receive(fd, NULL) != 0)
		continue;
}

START_TEST(a_returned_message_is_read_over_up_to_its_confirm)
{
	struct fake_broker f;
	struct err err = {0};
	fake_start(&f, return_script);
	struct mq_conn *c = opened(&f);
	ck_assert_int_eq(mq_publish(c, bytes_str(""), bytes_str("nowhere"),
				 bytes_of(no_properties, 2), bytes_str("hello"), &err),
		RC_OK);
	struct mq_event e = event(c, MQ_RETURNED);
	ck_assert_uint_eq(e.code, 312);
	ck_assert_str_eq(e.text, "NO_ROUTE");
	assert_bytes(e.routing_key, "nowhere");
	ck_assert_uint_eq(e.properties.size, 2);
	e = event(c, MQ_CONFIRMED);
	ck_assert_uint_eq(e.tag, 1);
	ck_assert(!e.multiple);
	e = event(c, MQ_NACKED);
	ck_assert_uint_eq(e.tag, 3);
	ck_assert(e.multiple);
	mq_conn_close(c, false);
	fake_stop(&f);
}
END_TEST

static void queued_script(struct fake_broker *f, int fd)
{
	AUTO(buf) struct buf out = {0};
	fake_accept(f, fd);
	fake_await(fd, METHOD(85, 10));
	add_deliver(&out, 1, false, "x", "first");
	add_header(&out, 5, bytes_of(no_properties, 2));
	add_body(&out, bytes_str("hello"));
	add_deliver(&out, 2, false, "x", "second");
	add_method(&out, 0, METHOD(10, 61), (struct bytes){0});
	add_header(&out, 0, bytes_of(no_properties, 2));
	add_method(&out, 1, METHOD(85, 11), (struct bytes){0});
	fake_send(fd, &out);
	fake_await(fd, METHOD(85, 10));
	buf_clear(&out);
	add_deliver(&out, 3, false, "x", "third");
	add_header(&out, 5, bytes_of(no_properties, 2));
	add_close(&out, 1, 540, "NOT_IMPLEMENTED");
	fake_send(fd, &out);
	fake_await(fd, METHOD(20, 10));
	buf_clear(&out);
	add_method(&out, 1, METHOD(20, 11), bytes_of("\0\0\0", 4));
	add_deliver(&out, 1, false, "x", "fresh");
	add_header(&out, 0, bytes_of(no_properties, 2));
	fake_send(fd, &out);
	while (fake_receive(fd, NULL) != 0)
		continue;
}

START_TEST(what_arrives_while_a_call_waits_is_read_later)
{
	struct fake_broker f;
	struct err err = {0};
	fake_start(&f, queued_script);
	struct mq_conn *c = opened(&f);
	ck_assert_int_eq(mq_confirm_select(c, &err), RC_OK);
	struct mq_event e = event(c, MQ_DELIVERY);
	ck_assert_uint_eq(e.tag, 1);
	assert_bytes(e.routing_key, "first");
	assert_bytes(event(c, MQ_BODY).piece, "hello");
	event(c, MQ_UNBLOCKED);
	assert_bytes(event(c, MQ_DELIVERY).routing_key, "second");
	/* With the channel its queued deliveries go: the next channel counts tags from 1 again. */
	ck_assert_int_eq(mq_confirm_select(c, &err), RC_UNAVAILABLE);
	ck_assert_msg(strstr(err.text, "540 NOT_IMPLEMENTED") != NULL, "%s", err.text);
	ck_assert_int_eq(mq_channel_reopen(c, &err), RC_OK);
	assert_bytes(event(c, MQ_DELIVERY).routing_key, "fresh");
	mq_conn_close(c, false);
	fake_stop(&f);
}
END_TEST

enum { MANY = 20000 };

static void many_script(struct fake_broker *f, int fd)
{
	AUTO(buf) struct buf out = {0};
	AUTO(buf) struct buf properties = {0};
	static uint8_t body[1000];
	buf_add_u16(&properties, 0x2000);
	buf_add_u32(&properties, 20 * 12);
	for (int i = 0; i < 20; i++) {
		add_short(&properties, "name");
		buf_add_byte(&properties, 'S');
		buf_add_u32(&properties, 2);
		buf_add_str(&properties, "ab");
	}
	fake_accept(f, fd);
	for (uint64_t i = 1; i <= MANY; i++) {
		add_deliver(&out, i, false, "x", "k");
		add_header(&out, sizeof body, buf_bytes(&properties));
		add_body(&out, bytes_of(body, sizeof body));
		if (i % 100 != 0)
			continue;
		fake_send(fd, &out);
		buf_clear(&out);
	}
	while (fake_receive(fd, NULL) != 0)
		continue;
}

START_TEST(memory_does_not_grow_with_messages)
{
	struct fake_broker f;
	size_t early = 0;
	fake_start(&f, many_script);
	struct mq_conn *c = opened(&f);
	for (uint64_t i = 1; i <= MANY; i++) {
		ck_assert_uint_eq(event(c, MQ_DELIVERY).tag, i);
		ck_assert_uint_eq(event(c, MQ_BODY).piece.size, 1000);
		if (i == MANY / 20)
			early = mallinfo2().uordblks + mallinfo2().hblkhd;
	}
	ck_assert_uint_lt(mallinfo2().uordblks + mallinfo2().hblkhd, early + 1000000);
	mq_conn_close(c, false);
	fake_stop(&f);
}
END_TEST

UNIT_SUITE("mq/read", a_delivery_is_its_head_and_its_pieces,
	undecodable_properties_leave_a_delivery_that_can_be_rejected,
	a_body_longer_than_announced_ends_the_connection, a_message_cut_short_ends_the_connection,
	content_without_a_message_ends_the_connection, garbage_ends_the_connection,
	the_end_of_the_socket_is_named, consuming_and_cancelling_come_as_events,
	a_closed_channel_is_answered_and_takes_nothing_until_it_is_reopened,
	a_closed_connection_is_answered_and_says_why,
	a_returned_message_is_read_over_up_to_its_confirm,
	what_arrives_while_a_call_waits_is_read_later, memory_does_not_grow_with_messages)

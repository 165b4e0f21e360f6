/* SPDX-License-Identifier: MIT */
#include "mq_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"

static const uint8_t none[2]; /* no properties */
#define NO_PROPERTIES bytes_of(none, sizeof none)

struct pair {
	struct mq_conn *consumer, *publisher;
	const char *queue;
};

static struct pair pair_open(void)
{
	struct err err = {0};
	struct pair p = {.consumer = client_open(client_broker(NULL)),
		.publisher = client_open(client_broker(NULL))};
	ck_assert_int_eq(mq_confirm_select(p.publisher, &err), RC_OK);
	p.queue = client_queue(p.publisher);
	return p;
}

static void consume(struct mq_conn *c, const char *queue, uint16_t prefetch)
{
	struct err err = {0};
	ck_assert_msg(mq_consume(c, queue, prefetch, &err) == RC_OK, "%s", err.text);
	(void)client_event(c, MQ_CONSUMING);
}

static void pair_close(struct pair *p)
{
	mq_conn_close(p->consumer, true);
	mq_conn_close(p->publisher, true);
}

static void ok(enum rc rc, const struct err *err)
{
	ck_assert_msg(rc == RC_OK, "%s: %s", rc_name(rc), err->text);
}

/* ---- messages ----------------------------------------------------------------------------- */

START_TEST(messages_are_acked_given_back_and_rejected)
{
	struct pair p = pair_open();
	struct err err = {0};
	AUTO(buf) struct buf body = {0};
	for (int i = 0; i < 5; i++)
		client_publish(p.publisher, p.queue, NO_PROPERTIES, bytes_of(&"01234"[i], 1));
	consume(p.consumer, p.queue, 100);
	for (uint64_t tag = 1; tag <= 5; tag++) {
		struct mq_event e = client_delivery(p.consumer, &body);
		ck_assert_uint_eq(e.tag, tag);
		ck_assert(!e.redelivered);
		ck_assert_int_eq(body.data[0], '0' + (int)tag - 1);
		ck_assert_uint_eq(e.exchange.size, 0);
		ck_assert(bytes_equal(e.routing_key, bytes_str(p.queue)));
	}
	WAIT_FOR(queue_state(p.queue).unacked == 5, 5);
	ok(mq_ack(p.consumer, 2, true, &err), &err);
	ok(mq_reject(p.consumer, 3, &err), &err);
	ok(mq_nack(p.consumer, 4, false, &err), &err);
	struct mq_event e = client_delivery(p.consumer, &body);
	ck_assert_uint_eq(e.tag, 6);
	ck_assert(e.redelivered);
	ck_assert_int_eq(body.data[0], '3');
	ck_assert_int_eq(queue_state(p.queue).unacked, 2);
	ok(mq_nack(p.consumer, 6, true, &err), &err);
	ck_assert(client_delivery(p.consumer, &body).redelivered);
	ck_assert_uint_eq(client_delivery(p.consumer, &body).tag, 8);
	ok(mq_ack(p.consumer, 8, true, &err), &err);
	WAIT_FOR(is_settled(p.queue), 5);
	pair_close(&p);
}
END_TEST

START_TEST(prefetch_holds)
{
	struct pair p = pair_open();
	struct err err = {0};
	AUTO(buf) struct buf body = {0};
	for (int i = 0; i < 5; i++)
		client_publish(p.publisher, p.queue, NO_PROPERTIES, bytes_str("x"));
	consume(p.consumer, p.queue, 2);
	(void)client_delivery(p.consumer, &body);
	(void)client_delivery(p.consumer, &body);
	client_silent(p.consumer, 300);
	ok(mq_ack(p.consumer, 1, false, &err), &err);
	ck_assert_uint_eq(client_delivery(p.consumer, &body).tag, 3);
	pair_close(&p);
}
END_TEST

START_TEST(a_body_of_sixteen_mebibytes_passes)
{
	struct pair p = pair_open();
	struct err err = {0};
	enum { SIZE = 16 << 20 };
	AUTO(free) uint8_t *sent = xmalloc(SIZE);
	for (size_t i = 0; i < SIZE; i++)
		sent[i] = (uint8_t)(i * 2654435761u >> 13);
	client_publish(p.publisher, p.queue, NO_PROPERTIES, bytes_of(sent, SIZE));
	consume(p.consumer, p.queue, 1);
	AUTO(buf) struct buf body = {0};
	struct mq_event e = client_delivery(p.consumer, &body);
	ck_assert_uint_eq(e.body_size, SIZE);
	ck_assert_int_eq(memcmp(body.data, sent, SIZE), 0);
	ok(mq_ack(p.consumer, e.tag, false, &err), &err);
	WAIT_FOR(is_settled(p.queue), 5);
	pair_close(&p);
}
END_TEST

/* Every type of field value that RabbitMQ knows, each in a header of its own, and every property.
 */
static void add_every_property(struct buf *out)
{
	/* In the order of their names, each once, and no L: RabbitMQ 4 sorts a table, keeps one of
	 * equal names, and makes an l of an L. */
	static const uint8_t table[] = "\1AA\x00\x00\x00\x09S\x00\x00\x00\x01xt\x00V"
				       "\1BB\xfb"
				       "\1DD\x02\x00\x00\x04\xd2"
				       "\1FF\x00\x00\x00\x0a\1aF\x00\x00\x00\x03\1nV"
				       "\1II\xff\xff\xff\xfb"
				       "\1SS\x00\x00\x00\x03\xff\x00z"
				       "\1TT\x00\x00\x00\x00\x65\x00\x00\x00"
				       "\1VV"
				       "\1bb\xfb"
				       "\1dd\x3f\xf8\x00\x00\x00\x00\x00\x00"
				       "\1eS\x00\x00\x00\x00"
				       "\1ff\x3f\xc0\x00\x00"
				       "\1ii\xff\xff\xff\xfb"
				       "\1ll\x7f\xff\xff\xff\xff\xff\xff\xff"
				       "\1ss\xff\x00"
				       "\1tt\1"
				       "\1uu\xff\x00"
				       "\1xx\x00\x00\x00\x02\xff\x00";
	static const char *const texts[] = {"text/plain", "gzip", NULL, NULL, NULL, "corr", "reply",
		"60000", "id \xff\xfe", NULL, "type", NULL, "app", "cluster"};
	buf_add_u16(out, 0xfffc & ~0x0010); /* all but user id, which must be the login's */
	for (size_t i = 0; i < 2; i++) {
		buf_add_byte(out, (uint8_t)strlen(texts[i]));
		buf_add_str(out, texts[i]);
	}
	size_t size = sizeof table - 1;
	buf_add_u32(out, (uint32_t)size);
	buf_add(out, table, size);
	buf_add(out, "\x02\x07", 2); /* delivery mode, priority */
	for (size_t i = 5; i < sizeof texts / sizeof texts[0]; i++) {
		if (i == 9)
			buf_add_u64(out, 1700000000);
		if (texts[i] == NULL)
			continue;
		buf_add_byte(out, (uint8_t)strlen(texts[i]));
		buf_add_str(out, texts[i]);
	}
}

START_TEST(properties_of_every_kind_arrive_byte_for_byte)
{
	struct pair p = pair_open();
	AUTO(buf) struct buf sent = {0};
	add_every_property(&sent);
	client_publish(p.publisher, p.queue, buf_bytes(&sent), bytes_str("x"));
	consume(p.consumer, p.queue, 1);
	struct mq_event e = client_event(p.consumer, MQ_DELIVERY);
	ck_assert_uint_eq(e.properties.size, sent.size);
	for (size_t i = 0; i < sent.size; i++)
		ck_assert_msg(e.properties.data[i] == sent.data[i], "byte %zu: %02x, not %02x", i,
			e.properties.data[i], sent.data[i]);
	(void)client_event(p.consumer, MQ_BODY);
	pair_close(&p);
}
END_TEST

/* librabbitmq 0.14 and later refuse to decode what is nested deeper than 100. */
START_TEST(deeply_nested_headers_harm_nobody)
{
	struct pair p = pair_open();
	struct err err = {0};
	publish_nested(p.queue);
	consume(p.consumer, p.queue, 1);
	if (amqp_version_number() < AMQP_VERSION_CODE(0, 14, 0, 0)) {
		struct mq_event e = client_event(p.consumer, MQ_DELIVERY);
		ck_assert_uint_gt(e.properties.size, 7 * 17000);
		(void)client_event(p.consumer, MQ_BODY);
		ok(mq_ack(p.consumer, e.tag, false, &err), &err);
		WAIT_FOR(is_settled(p.queue), 5);
	} else {
		struct mq_event e = client_event(p.consumer, MQ_UNDECODABLE);
		ck_assert(bytes_equal(e.routing_key, bytes_str(p.queue)));
		ok(mq_reject(p.consumer, e.tag, &err), &err);
		mq_conn_close(p.consumer, true);
		p.consumer = NULL;
		WAIT_FOR(is_settled(p.queue), 5);
	}
	pair_close(&p);
}
END_TEST

START_TEST(a_message_for_nobody_comes_back_before_its_confirm)
{
	struct pair p = pair_open();
	struct err err = {0};
	AUTO(buf) struct buf sent = {0};
	AUTO(free) uint8_t *body = xcalloc(1, 300000);
	add_every_property(&sent);
	ok(mq_publish(p.publisher, bytes_str("amq.direct"), bytes_str("nobody"), buf_bytes(&sent),
		   bytes_of(body, 300000), &err),
		&err);
	struct mq_event e = client_event(p.publisher, MQ_RETURNED);
	ck_assert_uint_eq(e.code, 312);
	ck_assert_str_eq(e.text, "NO_ROUTE");
	ck_assert(bytes_equal(e.exchange, bytes_str("amq.direct")));
	ck_assert(bytes_equal(e.routing_key, bytes_str("nobody")));
	ck_assert(bytes_equal(e.properties, buf_bytes(&sent)));
	ck_assert_uint_eq(client_event(p.publisher, MQ_CONFIRMED).tag, 1);
	client_publish(p.publisher, p.queue, NO_PROPERTIES, bytes_str("x"));
	pair_close(&p);
}
END_TEST

START_TEST(what_can_be_no_message_is_refused_and_harms_nothing)
{
	struct pair p = pair_open();
	struct err err = {0};
	AUTO(free) uint8_t *much = xcalloc(1, 200000);
	const struct bytes queue = bytes_str(p.queue), x = bytes_str("x");
	ck_assert_int_eq(
		mq_publish(p.publisher, x, queue, bytes_of("\xff", 1), x, &err), RC_REJECT);
	ck_assert_int_eq(mq_publish(p.publisher, x, queue, bytes_of("\x80\x00\x05xx", 5), x, &err),
		RC_REJECT);
	ck_assert_int_eq(
		mq_publish(p.publisher, x, queue, bytes_of(much, 200000), x, &err), RC_REJECT);
	ck_assert_int_eq(
		mq_publish(p.publisher, x, bytes_of(much, 256), NO_PROPERTIES, x, &err), RC_REJECT);
	client_publish(p.publisher, p.queue, NO_PROPERTIES, x);
	pair_close(&p);
}
END_TEST

START_TEST(properties_that_fill_a_frame_pass)
{
	struct pair p = pair_open();
	AUTO(buf) struct buf sent = {0};
	enum { TEXT = 131072 - 8 - 12 - 2 - 4 - 2 - 1 - 4 };
	buf_add_u16(&sent, 0x2000);
	buf_add_u32(&sent, TEXT + 7);
	buf_add(&sent, "\1hS", 3);
	buf_add_u32(&sent, TEXT);
	memset(buf_reserve(&sent, TEXT), 'x', TEXT);
	sent.size += TEXT;
	client_publish(p.publisher, p.queue, buf_bytes(&sent), bytes_str("x"));
	consume(p.consumer, p.queue, 1);
	struct mq_event e = client_event(p.consumer, MQ_DELIVERY);
	ck_assert(bytes_equal(e.properties, buf_bytes(&sent)));
	pair_close(&p);
}
END_TEST

START_TEST(deliveries_that_cross_a_call_are_kept)
{
	struct pair p = pair_open();
	struct err err = {0};
	AUTO(buf) struct buf body = {0};
	for (int i = 0; i < 200; i++)
		client_publish(p.publisher, p.queue, NO_PROPERTIES, bytes_str("x"));
	ok(mq_consume(p.consumer, p.queue, 1000, &err), &err);
	WAIT_FOR(queue_state(p.queue).unacked == 200, 5);
	ok(mq_confirm_select(p.consumer, &err), &err);
	(void)client_event(p.consumer, MQ_CONSUMING);
	for (uint64_t tag = 1; tag <= 200; tag++)
		ck_assert_uint_eq(client_delivery(p.consumer, &body).tag, tag);
	ok(mq_ack(p.consumer, 200, true, &err), &err);
	WAIT_FOR(is_settled(p.queue), 5);
	pair_close(&p);
}
END_TEST

START_TEST(cancel_stops_deliveries_and_consuming_can_begin_again)
{
	struct pair p = pair_open();
	struct err err = {0};
	AUTO(buf) struct buf body = {0};
	consume(p.consumer, p.queue, 10);
	ok(mq_cancel(p.consumer, &err), &err);
	(void)client_event(p.consumer, MQ_CANCEL_OK);
	client_publish(p.publisher, p.queue, NO_PROPERTIES, bytes_str("x"));
	client_silent(p.consumer, 200);
	ck_assert_int_eq(queue_state(p.queue).consumers, 0);
	consume(p.consumer, p.queue, 10);
	ck_assert_uint_eq(client_delivery(p.consumer, &body).tag, 1);
	pair_close(&p);
}
END_TEST

/* ---- login -------------------------------------------------------------------------------- */

START_TEST(the_broker_knows_who_we_are_and_what_we_understand)
{
	struct mq_conn *c = client_open(client_broker(NULL));
	const char *answer =
		broker_eval("rabbit_reader:info(%s, [client_properties, timeout, frame_max, "
			    "channel_max, user, vhost])",
			client_pid(c));
	static const char *const parts[] = {
		"{<<\"product\">>,longstr,<<\"inboxd\">>}",
		"{<<\"version\">>,longstr,<<\"",
		"{<<\"connection_name\">>,longstr,<<\"inboxd test\">>}",
		"{<<\"consumer_cancel_notify\">>,bool,true}",
		"{<<\"basic.nack\">>,bool,true}",
		"{<<\"publisher_confirms\">>,bool,true}",
		"{<<\"connection.blocked\">>,bool,true}",
		"{<<\"authentication_failure_close\">>,bool,true}",
		"{timeout,30}",
		"{frame_max,131072}",
	};
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
		ck_assert_msg(strstr(answer, parts[i]) != NULL, "%s: %s", parts[i], answer);
	ck_assert_uint_eq(mq_heartbeat_s(c), 30);
	mq_conn_close(c, true);
}
END_TEST

static char *uri_for(const char *user_password, const char *vhost)
{
	return xasprintf("amqp://%s@127.0.0.1:%s/%s", user_password,
		environment("INBOXD_TEST_AMQP_PORT"), vhost);
}

static void user_new(const char *user, const char *password, const char *vhost,
	const char *configure, const char *write, const char *read)
{
	const char *answer = broker_eval(
		"rabbit_auth_backend_internal:put_user(#{name => <<\"%s\">>, password => "
		"<<\"%s\">>, "
		"tags => <<>>}, <<\"test\">>), "
		"rabbit_auth_backend_internal:set_permissions(<<\"%s\">>, <<\"%s\">>, <<\"%s\">>, "
		"<<\"%s\">>, <<\"%s\">>, <<\"test\">>)",
		user, password, user, vhost, configure, write, read);
	ck_assert_msg(strcmp(answer, "ok") == 0, "%s", answer);
}

START_TEST(a_wrong_password_is_a_clear_refusal_without_the_password)
{
	AUTO(free) char *uri = uri_for("inboxd:hunter2", "%2F");
	client_refused(client_broker(uri), RC_UNAVAILABLE, "403 ACCESS_REFUSED");
}
END_TEST

START_TEST(a_wrong_vhost_is_named)
{
	AUTO(free) char *login = xasprintf("inboxd:%s", environment("INBOXD_TEST_AMQP_PASSWORD"));
	AUTO(free) char *uri = uri_for(login, "nowhere");
	client_refused(
		client_broker(uri), RC_UNAVAILABLE, "530 NOT_ALLOWED - vhost nowhere not found");
	user_new("mq.lodger", "hunter2", "/", "", "", "");
	AUTO(free) char *lodger = uri_for("mq.lodger:hunter2", "nowhere");
	client_refused(client_broker(lodger), RC_UNAVAILABLE, "nowhere");
}
END_TEST

START_TEST(odd_users_passwords_and_vhosts_log_in_by_uri_and_by_option)
{
	char user[] = "u@x", password[] = "p@:/#%\xc3\xa9hunter2", vhost[] = "a/b";
	ck_assert_str_eq(broker_eval("rabbit_vhost:add(<<\"a/b\">>, <<\"test\">>)"), "ok");
	user_new(user, password, vhost, ".*", ".*", ".*");
	AUTO(free) char *uri = uri_for("u%40x:p%40%3A%2F%23%25%C3%A9hunter2", "a%2Fb");
	struct mq_conn *c = client_open(client_broker(uri));
	(void)client_queue(c);
	mq_conn_close(c, true);
	AUTO(free) char *other = uri_for("nobody:nothing", "nowhere");
	struct config_broker *b = client_broker(other);
	b->user = user;
	b->password = password;
	b->vhost = vhost;
	c = client_open(b);
	const char *answer = broker_eval("rabbit_reader:info(%s, [user, vhost])", client_pid(c));
	ck_assert_msg(
		strstr(answer, "<<\"u@x\">>") != NULL && strstr(answer, "<<\"a/b\">>") != NULL,
		"%s", answer);
	mq_conn_close(c, true);
}
END_TEST

START_TEST(read_permission_alone_is_enough_to_consume)
{
	struct pair p = pair_open();
	struct err err = {0};
	AUTO(buf) struct buf body = {0};
	AUTO(free) char *pattern = xasprintf("^%s$", p.queue);
	user_new("mq.reader", "hunter2", "/", "", "", pattern);
	AUTO(free) char *uri = uri_for("mq.reader:hunter2", "%2F");
	struct mq_conn *c = client_open(client_broker(uri));
	client_publish(p.publisher, p.queue, NO_PROPERTIES, bytes_str("x"));
	consume(c, p.queue, 1);
	ok(mq_ack(c, client_delivery(c, &body).tag, false, &err), &err);
	WAIT_FOR(is_settled(p.queue), 5);
	char type[] = "classic";
	const struct config_topology t = {.declare = true, .type = type, .durable = true};
	struct mq_conn *declaring = client_open(client_broker(uri));
	ck_assert_int_eq(mq_declare(declaring, "mq.not-yours", &t, &err), RC_UNAVAILABLE);
	ck_assert_msg(
		strstr(err.text, "mq.not-yours") && strstr(err.text, "configure"), "%s", err.text);
	ck_assert(!mq_is_lost(declaring));
	consume(declaring, p.queue, 1);
	mq_conn_close(declaring, true);
	mq_conn_close(c, true);
	pair_close(&p);
}
END_TEST

/* ---- what the server ends ----------------------------------------------------------------- */

START_TEST(a_deleted_queue_cancels_its_consumer)
{
	struct pair p = pair_open();
	struct err err = {0};
	consume(p.consumer, p.queue, 10);
	const char *answer =
		broker_eval("{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"/\">>, queue, "
			    "<<\"%s\">>)), rabbit_amqqueue:delete(Q, false, false, <<\"test\">>)",
			p.queue);
	ck_assert_msg(strstr(answer, "ok") != NULL, "%s", answer);
	(void)client_event(p.consumer, MQ_CANCELLED);
	/* The connection goes on; a queue that is not there closes the channel alone. */
	ok(mq_consume(p.consumer, p.queue, 10, &err), &err);
	struct mq_event e = client_event(p.consumer, MQ_CHANNEL_CLOSED);
	ck_assert_uint_eq(e.code, 404);
	ck_assert_msg(strstr(e.text, p.queue) != NULL, "%s", e.text);
	ok(mq_channel_reopen(p.consumer, &err), &err);
	consume(p.consumer, client_queue(p.publisher), 10);
	pair_close(&p);
}
END_TEST

START_TEST(an_unknown_tag_costs_the_channel_alone)
{
	struct pair p = pair_open();
	struct err err = {0};
	AUTO(buf) struct buf body = {0};
	client_publish(p.publisher, p.queue, NO_PROPERTIES, bytes_str("x"));
	consume(p.consumer, p.queue, 10);
	(void)client_delivery(p.consumer, &body);
	ok(mq_ack(p.consumer, 17, false, &err), &err);
	struct mq_event e = client_event(p.consumer, MQ_CHANNEL_CLOSED);
	ck_assert_uint_eq(e.code, 406);
	ck_assert_msg(strstr(e.text, "unknown delivery tag 17") != NULL, "%s", e.text);
	ck_assert_int_eq(mq_ack(p.consumer, 1, false, &err), RC_RETRY);
	ok(mq_channel_reopen(p.consumer, &err), &err);
	consume(p.consumer, p.queue, 10);
	e = client_delivery(p.consumer, &body);
	ck_assert(e.redelivered);
	ck_assert_uint_eq(e.tag, 1);
	ok(mq_ack(p.consumer, 1, false, &err), &err);
	WAIT_FOR(is_settled(p.queue), 5);
	pair_close(&p);
}
END_TEST

START_TEST(the_brokers_consumer_timeout_costs_the_channel_alone)
{
	(void)broker_eval("application:set_env(rabbit, consumer_timeout, 500), "
			  "application:set_env(rabbit, channel_tick_interval, 250)");
	struct pair p = pair_open();
	struct err err = {0};
	AUTO(buf) struct buf body = {0};
	client_publish(p.publisher, p.queue, NO_PROPERTIES, bytes_str("x"));
	consume(p.consumer, p.queue, 10);
	(void)client_delivery(p.consumer, &body);
	struct mq_event e = client_event(p.consumer, MQ_CHANNEL_CLOSED);
	ck_assert_uint_eq(e.code, 406);
	ck_assert_msg(strstr(e.text, "timed out") != NULL, "%s", e.text);
	ok(mq_channel_reopen(p.consumer, &err), &err);
	consume(p.consumer, p.queue, 10);
	ok(mq_ack(p.consumer, client_delivery(p.consumer, &body).tag, false, &err), &err);
	WAIT_FOR(is_settled(p.queue), 5);
	pair_close(&p);
}
END_TEST

START_TEST(a_connection_closed_by_an_operator_says_so)
{
	struct pair p = pair_open();
	struct err err = {0};
	consume(p.consumer, p.queue, 10);
	ck_assert_str_eq(broker_eval("rabbit_networking:close_connection(%s, \"maintenance\")",
				 client_pid(p.consumer)),
		"ok");
	struct mq_event e = client_event(p.consumer, MQ_CLOSED);
	ck_assert_uint_eq(e.code, 320);
	ck_assert_msg(strstr(e.text, "maintenance") != NULL, "%s", e.text);
	ck_assert_int_eq(mq_ack(p.consumer, 1, false, &err), RC_UNAVAILABLE);
	ck_assert(mq_is_lost(p.consumer));
	pair_close(&p);
}
END_TEST

START_TEST(a_connection_closed_while_a_call_waits_says_so)
{
	struct mq_conn *c = client_open(client_broker(NULL));
	struct err err = {0};
	ck_assert_str_eq(broker_eval("rabbit_networking:close_connection(%s, \"maintenance\")",
				 client_pid(c)),
		"ok");
	ck_assert_int_eq(mq_confirm_select(c, &err), RC_UNAVAILABLE);
	ck_assert_msg(
		strstr(err.text, "320 CONNECTION_FORCED - maintenance") != NULL, "%s", err.text);
	ck_assert(mq_is_lost(c));
	mq_conn_close(c, true);
}
END_TEST

START_TEST(goodbye_gives_unsettled_deliveries_back_at_once)
{
	struct pair p = pair_open();
	struct err err = {0};
	AUTO(buf) struct buf body = {0};
	for (int i = 0; i < 500; i++)
		ok(mq_publish(p.publisher, bytes_str(""), bytes_str(p.queue), NO_PROPERTIES,
			   bytes_of(none, 2), &err),
			&err);
	consume(p.consumer, p.queue, 1000);
	(void)client_delivery(p.consumer, &body);
	ok(mq_ack(p.consumer, 1, false, &err), &err);
	int64_t begin = now_ms();
	mq_conn_close(p.consumer, true);
	ck_assert_int_lt(now_ms() - begin, 2500);
	p.consumer = NULL;
	WAIT_FOR(queue_state(p.queue).ready == 499 && queue_state(p.queue).unacked == 0, 5);
	pair_close(&p);
}
END_TEST

/* ---- a broker in need --------------------------------------------------------------------- */

START_TEST(an_alarm_blocks_publishing_and_never_acks)
{
	struct pair p = pair_open();
	struct err err = {0};
	AUTO(buf) struct buf body = {0};
	for (int i = 0; i < 20; i++)
		client_publish(p.publisher, p.queue, NO_PROPERTIES, bytes_str("x"));
	consume(p.consumer, p.queue, 100);
	for (int i = 0; i < 20; i++)
		(void)client_delivery(p.consumer, &body);
	broker_alarm(true);
	ok(mq_publish(p.publisher, bytes_str(""), bytes_str(p.queue), NO_PROPERTIES, bytes_str("x"),
		   &err),
		&err);
	struct mq_event blocked = client_event(p.publisher, MQ_BLOCKED);
	ok(mq_ack(p.consumer, 20, true, &err), &err);
	WAIT_FOR(queue_state(p.queue).unacked == 0, 5);
	broker_alarm(false);
	ck_assert_msg(strstr(blocked.text, "memory") != NULL, "%s", blocked.text);
	struct mq_event e = client_event(p.publisher, MQ_UNBLOCKED);
	e = client_event(p.publisher, MQ_CONFIRMED);
	ck_assert_uint_eq(e.tag, 21);
	pair_close(&p);
}
END_TEST

/* ---- topology ----------------------------------------------------------------------------- */

static void declare_as(struct mq_conn *c, const char *queue, char *type, char *name, int64_t value,
	enum rc expected, struct err *err)
{
	struct config_argument arguments[] = {
		{.name = name, .kind = ARGUMENT_INTEGER, .integer = value},
	};
	const struct config_topology t = {.declare = true,
		.type = type,
		.durable = true,
		.arguments = arguments,
		.n_arguments = name != NULL};
	enum rc rc = mq_declare(c, queue, &t, err);
	ck_assert_msg(rc == expected, "%s: %s", rc_name(rc), err->text);
}

START_TEST(an_existing_queue_that_differs_is_left_alone_and_named)
{
	struct mq_conn *c = client_open(client_broker(NULL));
	struct err err = {0};
	char classic[] = "classic", quorum[] = "quorum", length[] = "x-max-length";
	AUTO(free) char *queue = xasprintf("%s.declared", client_queue(c));
	declare_as(c, queue, classic, length, 5, RC_OK, &err);
	declare_as(c, queue, classic, length, 5, RC_OK, &err);
	declare_as(c, queue, NULL, length, 5, RC_OK, &err);
	declare_as(c, queue, classic, length, 6, RC_FATAL, &err);
	ck_assert_msg(strstr(err.text, queue) && strstr(err.text, "'x-max-length'") &&
			strstr(err.text, "remove `topology:`"),
		"%s", err.text);
	ck_assert(!mq_is_lost(c));
	declare_as(c, queue, quorum, length, 5, RC_FATAL, &err);
	ck_assert_msg(strstr(err.text, "x-queue-type") != NULL, "%s", err.text);
	consume(c, queue, 1); /* goes on all the same */
	(void)broker_eval(
		"{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"/\">>, queue, <<\"%s\">>)), "
		"rabbit_amqqueue:delete(Q, false, false, <<\"test\">>)",
		queue);
	(void)client_event(c, MQ_CANCELLED);
	mq_conn_close(c, true);
}
END_TEST

START_TEST(a_queue_made_without_a_type_is_classic_and_one_may_be_quorum_or_lazy)
{
	struct mq_conn *c = client_open(client_broker(NULL));
	struct err err = {0};
	char classic[] = "classic", quorum[] = "quorum", mode[] = "x-queue-mode", lazy[] = "lazy";
	const char *base = client_queue(c);
	AUTO(free) char *plain = xasprintf("%s.plain", base);
	AUTO(free) char *replicated = xasprintf("%s.quorum", base);
	AUTO(free) char *slow = xasprintf("%s.lazy", base);
	struct config_argument argument = {.name = mode, .kind = ARGUMENT_STRING, .string = lazy};
	const struct config_topology t = {.declare = true,
		.type = classic,
		.durable = true,
		.arguments = &argument,
		.n_arguments = 1};
	declare_as(c, plain, NULL, NULL, 0, RC_OK, &err);
	declare_as(c, plain, classic, NULL, 0, RC_OK, &err);
	declare_as(c, replicated, quorum, NULL, 0, RC_OK, &err);
	declare_as(c, replicated, quorum, NULL, 0, RC_OK, &err);
	ok(mq_declare(c, slow, &t, &err), &err);
	ok(mq_declare(c, slow, &t, &err), &err);
	char *const queues[] = {plain, replicated, slow};
	for (size_t i = 0; i < 3; i++) {
		consume(c, queues[i], 1);
		(void)broker_eval(
			"{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"/\">>, queue, "
			"<<\"%s\">>)), rabbit_amqqueue:delete(Q, false, false, <<\"test\">>)",
			queues[i]);
		(void)client_event(c, MQ_CANCELLED);
	}
	mq_conn_close(c, true);
}
END_TEST

START_TEST(bindings_are_made_and_a_missing_exchange_is_named)
{
	struct pair p = pair_open();
	struct err err = {0};
	AUTO(buf) struct buf body = {0};
	char type[] = "classic", topic[] = "amq.topic", key[] = "capture.#",
	     missing[] = "no.such.exchange";
	char expires[] = "x-expires", fanout[] = "amq.fanout";
	struct config_argument argument = {
		.name = expires, .kind = ARGUMENT_INTEGER, .integer = 60000};
	struct config_binding bindings[] = {
		{.exchange = topic, .routing_key = key}, {.exchange = fanout}};
	struct config_topology t = {.declare = true,
		.type = type,
		.durable = true,
		.arguments = &argument,
		.n_arguments = 1,
		.bindings = bindings,
		.n_bindings = 2};
	ok(mq_declare(p.consumer, p.queue, &t, &err), &err);
	ok(mq_publish(p.publisher, bytes_str("amq.topic"), bytes_str("capture.a.b"), NO_PROPERTIES,
		   bytes_str("x"), &err),
		&err);
	(void)client_event(p.publisher, MQ_CONFIRMED);
	bindings[1].exchange = missing;
	ck_assert_int_eq(mq_declare(p.consumer, p.queue, &t, &err), RC_UNAVAILABLE);
	ck_assert_msg(
		strstr(err.text, "no.such.exchange") && strstr(err.text, p.queue), "%s", err.text);
	ck_assert(!mq_is_lost(p.consumer));
	consume(p.consumer, p.queue, 1);
	struct mq_event e = client_delivery(p.consumer, &body);
	ck_assert(bytes_equal(e.exchange, bytes_str("amq.topic")));
	ck_assert(bytes_equal(e.routing_key, bytes_str("capture.a.b")));
	pair_close(&p);
}
END_TEST

UNIT_SUITE_TIMEOUT(60, "mq/broker", messages_are_acked_given_back_and_rejected, prefetch_holds,
	a_body_of_sixteen_mebibytes_passes, properties_of_every_kind_arrive_byte_for_byte,
	deeply_nested_headers_harm_nobody, a_message_for_nobody_comes_back_before_its_confirm,
	what_can_be_no_message_is_refused_and_harms_nothing, properties_that_fill_a_frame_pass,
	deliveries_that_cross_a_call_are_kept,
	cancel_stops_deliveries_and_consuming_can_begin_again,
	the_broker_knows_who_we_are_and_what_we_understand,
	a_wrong_password_is_a_clear_refusal_without_the_password, a_wrong_vhost_is_named,
	odd_users_passwords_and_vhosts_log_in_by_uri_and_by_option,
	read_permission_alone_is_enough_to_consume, a_deleted_queue_cancels_its_consumer,
	an_unknown_tag_costs_the_channel_alone,
	the_brokers_consumer_timeout_costs_the_channel_alone,
	a_connection_closed_by_an_operator_says_so, a_connection_closed_while_a_call_waits_says_so,
	goodbye_gives_unsettled_deliveries_back_at_once, an_alarm_blocks_publishing_and_never_acks,
	an_existing_queue_that_differs_is_left_alone_and_named,
	a_queue_made_without_a_type_is_classic_and_one_may_be_quorum_or_lazy,
	bindings_are_made_and_a_missing_exchange_is_named)

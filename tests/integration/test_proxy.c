/* SPDX-License-Identifier: MIT */
/* Answers that are lost on the wire, and what the daemon says there: acknowledged exactly what is
 * committed, rejected what failed, given back what nobody ran. */
#include "harness.h"
#include "proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BASIC = 60, ACK = 80, REJECT = 90, NACK = 120 };

struct setting {
	struct world w;
	struct daemon d;
	struct proxy *broker, *database;
};

static uint16_t port_of(const char *variable)
{
	return (uint16_t)atoi(environment(variable));
}

/* A world whose daemon, not yet started, talks through proxies. */
static void setting_begin(struct setting *s, const char *name, const char *more)
{
	world_begin(&s->w, name);
	s->broker = proxy_new(PROXY_AMQP, port_of("INBOXD_TEST_AMQP_PORT"));
	s->database = proxy_new(PROXY_POSTGRES, port_of("INBOXD_TEST_PGPORT"));
	s->w.broker_port = proxy_port(s->broker);
	s->w.database_port = proxy_port(s->database);
	config_main(&s->w, "%s", more);
}

static void setting_end(struct setting *s)
{
	world_end(&s->w);
	proxy_free(s->broker);
	proxy_free(s->database);
}

START_TEST(a_lost_answer_to_commit_is_one_effect_and_nothing_is_parked)
{
	struct setting s;
	setting_begin(&s, "lostcommit", "");
	daemon_start_main(&s.w, &s.d);
	uint64_t sessions = proxy_accepted(s.database);
	proxy_drop_commits(s.database, 3);
	for (int i = 0; i < 6; i++) {
		char prefix[16];
		(void)snprintf(prefix, sizeof prefix, "%d-", i);
		publish_many(&s.w, s.w.queue, prefix, 1);
		WAIT_FOR(effects(&s.w) >= i + 1, 20);
	}
	all_once(&s.w, 6);
	ck_assert_int_eq(proxy_drops_left(s.database), 0);
	ck_assert_uint_ge(proxy_accepted(s.database), sessions + 3);
	setting_end(&s);
}
END_TEST

/* A key would tell that it is the same one. */
START_TEST(a_lost_answer_to_the_commit_that_parks_leaves_one_row_even_without_a_key)
{
	struct setting s;
	setting_begin(&s, "lostpark", "");
	daemon_start_main(&s.w, &s.d);
	proxy_drop_commits(s.database, 1);
	publish(&s.w, s.w.queue, &(struct msg){.body = "keyless"});
	publish_confirm(&s.w);
	WAIT_FOR(is_settled(s.w.queue), 20);
	ck_assert_int_eq(proxy_drops_left(s.database), 0);
	ck_assert_int_eq(parked(&s.w, "no_key"), 1);
	/* Sent again by somebody, it is another one. */
	publish(&s.w, s.w.queue, &(struct msg){.body = "keyless"});
	publish_confirm(&s.w);
	WAIT_FOR(parked(&s.w, "no_key") == 2 && is_settled(s.w.queue), 20);
	setting_end(&s);
}
END_TEST

START_TEST(a_lost_answer_to_the_commit_that_parks_does_not_run_a_failed_message_again)
{
	struct setting s;
	setting_begin(&s, "lostfail", "");
	daemon_start_main(&s.w, &s.d);
	proxy_drop_commits(s.database, 1);
	publish(&s.w, s.w.queue, &(struct msg){.id = "bad", .act = "reject"});
	publish_confirm(&s.w);
	WAIT_FOR(is_settled(s.w.queue), 20);
	ck_assert_int_eq(proxy_drops_left(s.database), 0);
	ck_assert_int_eq(log_lines(&s.d, "event=revived"), 0);
	ck_assert_int_eq(sql_int(&s.w, "SELECT count(*) FROM parked WHERE state = 'failed'"), 1);
	/* Sent again by somebody, it has all its tries once more. */
	publish(&s.w, s.w.queue, &(struct msg){.id = "bad", .act = "reject"});
	publish_confirm(&s.w);
	WAIT_FOR(log_lines(&s.d, "event=revived") == 1 && is_settled(s.w.queue), 20);
	setting_end(&s);
}
END_TEST

START_TEST(a_lost_ack_is_a_delivery_again_and_one_effect)
{
	struct setting s;
	setting_begin(&s, "lostack", "    batch: {max: 1}\n");
	daemon_start_main(&s.w, &s.d);
	proxy_drop_method(s.broker, BASIC, ACK, 2);
	for (int i = 0; i < 2; i++) {
		char prefix[16];
		(void)snprintf(prefix, sizeof prefix, "%d-", i);
		publish_many(&s.w, s.w.queue, prefix, 1);
		WAIT_FOR(proxy_drops_left(s.broker) == 1 - i, 20);
	}
	/* The daemon believes that they are settled, the broker that they are in hand. */
	WAIT_FOR(queue_state(s.w.queue).unacked == 2, 10);
	ck_assert_int_eq(effects(&s.w), 2);
	ck_assert_int_eq(proxy_cut(s.broker), 1);
	all_once(&s.w, 2);
	setting_end(&s);
}
END_TEST

/* The copy that a quorum queue gives out again counts its deliveries in a header, and has its headers
 * sorted. */
START_TEST(a_lost_ack_of_a_quorum_queue_parks_a_message_without_key_once)
{
	struct setting s;
	amqp_table_entry_t headers[] = {
		{.key = amqp_cstring_bytes("zone"),
			.value = {.kind = AMQP_FIELD_KIND_UTF8,
				.value.bytes = amqp_cstring_bytes("eu")}},
		{.key = amqp_cstring_bytes("count"),
			.value = {.kind = AMQP_FIELD_KIND_I32, .value.i32 = 7}},
		{.key = amqp_cstring_bytes("Byte"),
			.value = {.kind = AMQP_FIELD_KIND_U8, .value.u8 = 200}},
		{.key = amqp_cstring_bytes("at"),
			.value = {.kind = AMQP_FIELD_KIND_TIMESTAMP, .value.u64 = 1700000000}},
	};
	const amqp_basic_properties_t p = {
		._flags = AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_HEADERS_FLAG,
		.delivery_mode = 2,
		.headers = {.num_entries = 4, .entries = headers}};
	setting_begin(&s, "lostcount", "");
	queue_delete(&s.w, s.w.queue);
	queue_declare(&s.w, s.w.queue, "quorum");
	daemon_start_main(&s.w, &s.d);
	proxy_drop_method(s.broker, BASIC, ACK, 2);
	for (int i = 0; i < 2; i++) {
		publish(&s.w, s.w.queue,
			&(struct msg){.body = "keyless", .properties = i == 0 ? &p : NULL});
		publish_confirm(&s.w);
		WAIT_FOR(proxy_drops_left(s.broker) == 1 - i, 20);
	}
	WAIT_FOR(queue_state(s.w.queue).unacked == 2, 10);
	ck_assert_int_eq(proxy_cut(s.broker), 1);
	WAIT_FOR(log_lines(&s.d, "event=connected") == 2 && is_settled(s.w.queue), 30);
	ck_assert_int_eq(parked(&s.w, "no_key"), 2);
	ck_assert_int_eq(parked(&s.w, NULL), 2);
	setting_end(&s);
}
END_TEST

START_TEST(a_message_without_id_whose_ack_and_consumer_are_lost_is_known_by_its_body)
{
	struct setting s;
	setting_begin(&s, "lostidless", "    on_missing_key: body\n");
	daemon_start_main(&s.w, &s.d);
	proxy_drop_method(s.broker, BASIC, ACK, 1);
	publish(&s.w, s.w.queue, &(struct msg){.body = "without id"});
	publish_confirm(&s.w);
	WAIT_FOR(proxy_drops_left(s.broker) == 0, 20);
	WAIT_FOR(queue_state(s.w.queue).unacked == 1, 10);
	ck_assert_int_eq(effects(&s.w), 1);
	role_kill(&s.d, "inboxd: consumer main");
	/* Killed is not settled yet: it must have been there again. */
	WAIT_FOR(log_lines(&s.d, "event=connected") == 2 && is_settled(s.w.queue), 30);
	ck_assert_int_eq(effects(&s.w), 1);
	ck_assert_int_eq(markers(&s.w), 1);
	ck_assert_int_eq(parked(&s.w, NULL), 0);
	setting_end(&s);
}
END_TEST

START_TEST(what_cannot_be_decoded_is_parked_and_rejected_not_given_back)
{
	struct setting s;
	setting_begin(&s, "spoilt", "");
	daemon_start_main(&s.w, &s.d);
	proxy_spoil_properties(s.broker, 1);
	publish_many(&s.w, s.w.queue, "spoilt", 1);
	WAIT_FOR(proxy_methods(s.broker, BASIC, REJECT) == 1, 20);
	publish_many(&s.w, s.w.queue, "whole", 1);
	WAIT_FOR(effects(&s.w) == 1 && is_settled(s.w.queue), 20);
	ck_assert_int_eq(parked(&s.w, "undecodable"), 1);
	ck_assert_uint_eq(proxy_methods(s.broker, BASIC, REJECT), 1);
	ck_assert_uint_eq(proxy_methods(s.broker, BASIC, NACK), 0);
	setting_end(&s);
}
END_TEST

/* Of the second one the broker only gets to know that it was given out: it comes again. */
START_TEST(each_of_two_that_cannot_be_decoded_is_parked)
{
	struct setting s;
	setting_begin(&s, "spoiltboth", "");
	proxy_spoil_properties(s.broker, 100);
	publish_many(&s.w, s.w.queue, "spoilt", 2);
	daemon_start(&s.w, "inboxd", &s.d);
	/* A reject that is lost with its connection makes a row more. */
	WAIT_FOR(proxy_methods(s.broker, BASIC, REJECT) >= 2 && is_settled(s.w.queue), 60);
	ck_assert_int_ge(parked(&s.w, "undecodable"), 2);
	ck_assert_int_eq(log_lines(&s.d, "event=parked"), (int)parked(&s.w, NULL));
	setting_end(&s);
}
END_TEST

/* Neither is it nacked: that moves it behind others in a quorum queue. */
START_TEST(what_is_given_back_at_the_end_is_not_rejected)
{
	struct setting s;
	setting_begin(&s, "giveback", "    prefetch: 50\n    batch: {max: 1}\n");
	for (int i = 0; i < 20; i++) {
		char id[16];
		(void)snprintf(id, sizeof id, "m%d", i);
		publish(&s.w, s.w.queue, &(struct msg){.id = id, .act = "sleep:500"});
	}
	publish_confirm(&s.w);
	daemon_start_main(&s.w, &s.d);
	WAIT_FOR(effects(&s.w) >= 1, 20);
	ck_assert_int_eq(daemon_stop(&s.d), 0);
	int64_t done = effects(&s.w);
	ck_assert_int_lt(done, 20);
	WAIT_FOR(queue_state(s.w.queue).ready == 20 - done, 10);
	ck_assert_uint_eq(proxy_methods(s.broker, BASIC, NACK), 0);
	ck_assert_uint_eq(proxy_methods(s.broker, BASIC, REJECT), 0);
	setting_end(&s);
}
END_TEST

/* Four behind one that takes long: they are acknowledged one by one, it never with them. */
START_TEST(acks_of_those_behind_do_not_settle_the_one_in_front)
{
	struct setting s;
	setting_begin(&s, "front", "    workers: 5\n    batch: {max: 1}\n    prefetch: 5\n");
	daemon_start_main(&s.w, &s.d);
	publish(&s.w, s.w.queue, &(struct msg){.id = "front", .act = "sleep:6000"});
	publish_many(&s.w, s.w.queue, "behind", 4);
	WAIT_FOR(effects(&s.w) == 4, 20);
	WAIT_FOR(queue_state(s.w.queue).unacked == 1, 20);
	ck_assert_uint_eq(proxy_methods(s.broker, BASIC, ACK), 4);
	ck_assert_int_eq(kill(s.d.pid, SIGKILL), 0);
	ck_assert_int_eq(daemon_wait(&s.d, 10), 128 + SIGKILL);
	WAIT_FOR(session_size(&s.d) == 0, 10);
	WAIT_FOR(queue_state(s.w.queue).ready == 1, 20);
	ck_assert_int_eq(effects(&s.w), 4);
	daemon_start_main(&s.w, &s.d);
	all_once(&s.w, 5);
	setting_end(&s);
}
END_TEST

/* ---- the proxy itself ------------------------------------------------------------ */

struct pipe_through {
	struct proxy *p;
	int listener, client, server;
};

static struct sockaddr_in address_of(uint16_t port)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int connect_to(uint16_t port)
{
	struct sockaddr_in a = address_of(port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
		return fd;
	(void)close(fd);
	return -1;
}

static struct pipe_through pipe_open(void)
{
	struct pipe_through t;
	struct sockaddr_in a = address_of(0);
	socklen_t size = sizeof a;
	t.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(t.listener, (struct sockaddr *)&a, sizeof a), 0);
	ck_assert_int_eq(listen(t.listener, 8), 0);
	ck_assert_int_eq(getsockname(t.listener, (struct sockaddr *)&a, &size), 0);
	t.p = proxy_new(PROXY_BYTES, ntohs(a.sin_port));
	t.client = connect_to(proxy_port(t.p));
	ck_assert_int_ge(t.client, 0);
	t.server = accept(t.listener, NULL, NULL);
	ck_assert_int_ge(t.server, 0);
	return t;
}

static void pipe_close(struct pipe_through *t)
{
	(void)close(t->client);
	(void)close(t->server);
	(void)close(t->listener);
	proxy_free(t->p);
}

/* What can be read within a while, up to n bytes; -1: reset. */
static ssize_t read_some(int fd, size_t n, int wait_ms)
{
	char data[4096];
	size_t got = 0;
	struct timeval t = {.tv_sec = wait_ms / 1000, .tv_usec = wait_ms % 1000 * 1000};
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
	while (got < n) {
		ssize_t r = recv(fd, data, n - got < sizeof data ? n - got : sizeof data, 0);
		if (r < 0 && errno == ECONNRESET)
			return -1;
		if (r <= 0)
			break;
		got += (size_t)r;
	}
	return (ssize_t)got;
}

START_TEST(a_frozen_proxy_passes_what_was_allowed_and_the_rest_when_it_thaws)
{
	struct pipe_through t = pipe_open();
	proxy_freeze(t.p, PROXY_TO_SERVER, 10);
	ck_assert_int_eq(write(t.client, "0123456789abcdefghij", 20), 20);
	ck_assert_int_eq(read_some(t.server, 10, 5000), 10);
	ck_assert_int_eq(read_some(t.server, 1, 200), 0);
	ck_assert_int_eq(write(t.server, "back", 4), 4);
	ck_assert_int_eq(read_some(t.client, 4, 5000), 4);
	int second = connect_to(proxy_port(t.p));
	ck_assert_int_ge(second, 0);
	(void)close(second);
	proxy_thaw(t.p);
	ck_assert_int_eq(read_some(t.server, 10, 5000), 10);
	ck_assert_uint_eq(proxy_bytes(t.p, PROXY_TO_SERVER), 20);
	pipe_close(&t);
}
END_TEST

START_TEST(a_cut_closes_and_a_reset_resets_and_a_refusal_is_one)
{
	struct pipe_through t = pipe_open();
	ck_assert_int_eq(proxy_cut(t.p), 1);
	ck_assert_int_eq(recv(t.client, &(char){0}, 1, 0), 0);
	ck_assert_int_eq(recv(t.server, &(char){0}, 1, 0), 0);
	ck_assert_int_eq(proxy_open(t.p), 0);
	pipe_close(&t);

	t = pipe_open();
	ck_assert_int_eq(proxy_reset(t.p), 1);
	ck_assert_int_eq(read_some(t.client, 1, 5000), -1);
	ck_assert_int_eq(read_some(t.server, 1, 5000), -1);
	proxy_refuse(t.p, true);
	ck_assert_int_eq(connect_to(proxy_port(t.p)), -1);
	proxy_refuse(t.p, false);
	(void)close(t.client);
	t.client = connect_to(proxy_port(t.p));
	ck_assert_int_ge(t.client, 0);
	pipe_close(&t);
}
END_TEST

START_TEST(what_is_delayed_comes_later_and_whole)
{
	struct pipe_through t = pipe_open();
	proxy_delay(t.p, PROXY_TO_CLIENT, 300);
	int64_t begun = now_ms();
	ck_assert_int_eq(write(t.server, "later", 5), 5);
	ck_assert_int_eq(read_some(t.client, 5, 10000), 5);
	ck_assert_int_ge(now_ms() - begun, 290);
	pipe_close(&t);
}
END_TEST

UNIT_SUITE_TIMEOUT(90, "integration/proxy",
	a_frozen_proxy_passes_what_was_allowed_and_the_rest_when_it_thaws,
	a_cut_closes_and_a_reset_resets_and_a_refusal_is_one, what_is_delayed_comes_later_and_whole,
	a_lost_answer_to_commit_is_one_effect_and_nothing_is_parked,
	a_lost_answer_to_the_commit_that_parks_leaves_one_row_even_without_a_key,
	a_lost_answer_to_the_commit_that_parks_does_not_run_a_failed_message_again,
	a_lost_ack_is_a_delivery_again_and_one_effect,
	a_lost_ack_of_a_quorum_queue_parks_a_message_without_key_once,
	a_message_without_id_whose_ack_and_consumer_are_lost_is_known_by_its_body,
	what_cannot_be_decoded_is_parked_and_rejected_not_given_back,
	each_of_two_that_cannot_be_decoded_is_parked,
	what_is_given_back_at_the_end_is_not_rejected,
	acks_of_those_behind_do_not_settle_the_one_in_front)

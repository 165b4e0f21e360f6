/* SPDX-License-Identifier: MIT */
/* A broker that refuses, blocks, freezes or throws us out: we wait without noise, can be stopped at
 * any time, and go on where we were; nothing is leaked and no secret is told. */
#include "harness.h"

#include "proxy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <netinet/in.h>
#include <unistd.h>

static bool is_consumed(const struct world *w)
{
	return queue_state(w->queue).consumers == 1;
}

/* ---- alarms ---------------------------------------------------------------------- */

START_TEST(a_broker_with_a_memory_alarm_still_takes_acknowledgements_and_lets_us_go)
{
	struct world w;
	struct daemon d;
	world_begin(&w, "alarm");
	publish_many(&w, w.queue, "m", 200);
	config_write(&w, "inboxd", "",
		"  main: {queue: %s, handler: effect, options: {table: %s.effect, delay_ms: 10}}\n",
		w.queue, w.name);
	daemon_start_main(&w, &d);
	broker_alarm(true);
	ck_assert_int_lt(effects(&w), 200); /* at work */
	all_once(&w, 200);
	ck_assert_int_eq(daemon_stop(&d), 0);
	world_end(&w);
}
END_TEST

/* ---- who we are, and what we may ------------------------------------------------- */

static void write_secret(struct world *w, const char *text)
{
	char path[320], next[330];
	(void)snprintf(path, sizeof path, "%s/secret", w->dir);
	(void)snprintf(next, sizeof next, "%s.new", path);
	FILE *f = fopen(next, "w");
	ck_assert_ptr_nonnull(f);
	(void)fprintf(f, "%s\n", text);
	(void)fclose(f);
	ck_assert_int_eq(rename(next, path), 0);
}

static void config_as(struct world *w, const char *user)
{
	char brokers[512];
	(void)snprintf(brokers, sizeof brokers,
		"brokers: {own: {uri: \"amqp://127.0.0.1:%s\", user: %s, password_file: "
		"%s/secret}}\n"
		"log: {level: debug}\n",
		environment("INBOXD_TEST_AMQP_PORT"), user, w->dir);
	config_write(w, "inboxd", brokers,
		"  main: {queue: %s, handler: effect, broker: own, options: {table: %s.effect}}\n",
		w->queue, w->name);
}

START_TEST(permission_to_read_the_queue_is_enough_and_may_be_taken_and_given_back)
{
	struct world w;
	struct daemon d;
	char user[80];
	world_begin(&w, "reader");
	(void)snprintf(user, sizeof user, "%s-user", w.name);
	user_make(user, "first-Secret-1");
	user_permit(user, "", w.queue);
	write_secret(&w, "first-Secret-1");
	config_as(&w, user);
	daemon_start_main(&w, &d);
	publish_many(&w, w.queue, "with", 20);
	all_once(&w, 20);
	user_permit(user, "", "other");
	close_consuming_connection(w.queue);
	WAIT_FOR(log_lines(&d, "403") > 0, 20);
	publish_many(&w, w.queue, "without", 20);
	stays_calm(&d, 5);
	user_permit(user, "", w.queue);
	WAIT_FOR(is_consumed(&w), 30);
	all_once(&w, 40);
	world_end(&w);
}
END_TEST

static bool is_told(const struct daemon *d, const char *secret)
{
	char path[64], line[8192];
	if (log_lines(d, secret) > 0)
		return true;
	static const char *const roles[] = {"inboxd: ", "inboxd: consumer", "inboxd: worker"};
	for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
		(void)snprintf(path, sizeof path, "/proc/%d/cmdline", (int)role_pid(d, roles[i]));
		FILE *f = fopen(path, "r");
		size_t n = f != NULL ? fread(line, 1, sizeof line, f) : 0;
		if (f != NULL)
			(void)fclose(f);
		if (n != 0 && memmem(line, n, secret, strlen(secret)) != NULL)
			return true;
	}
	return false;
}

START_TEST(a_password_changed_at_the_broker_is_read_again_and_the_old_one_is_not_pressed)
{
	struct world w;
	struct daemon d;
	char user[80];
	world_begin(&w, "rotated");
	(void)snprintf(user, sizeof user, "%s-user", w.name);
	user_make(user, "first-Secret-2");
	user_permit(user, "", w.queue);
	write_secret(&w, "first-Secret-2");
	config_as(&w, user);
	daemon_start_main(&w, &d);
	publish_many(&w, w.queue, "old", 20);
	all_once(&w, 20);
	ck_assert_str_eq(broker_eval("rabbit_auth_backend_internal:change_password(<<\"%s\">>, "
				     "<<\"second-Secret-2\">>, <<\"test\">>)",
				 user),
		"ok");
	close_consuming_connection(w.queue);
	WAIT_FOR(log_lines(&d, "403") + log_lines(&d, "ACCESS_REFUSED") > 0, 20);
	publish_many(&w, w.queue, "new", 20);
	stays_calm(&d, 5);
	write_secret(&w, "second-Secret-2");
	WAIT_FOR(is_consumed(&w), 30);
	all_once(&w, 40);
	ck_assert(!is_told(&d, "first-Secret-2"));
	ck_assert(!is_told(&d, "second-Secret-2"));
	ck_assert(!is_told(&d, environment("INBOXD_TEST_PGPASSWORD")));
	world_end(&w);
}
END_TEST

/* ---- queues ---------------------------------------------------------------------- */

START_TEST(a_queue_made_anew_with_another_type_is_consumed_unless_it_was_to_be_declared)
{
	struct world w;
	struct daemon d, other;
	world_begin(&w, "anew");
	daemon_start_main(&w, &d);
	config_write(&w, "declaring", "",
		"  main:\n    queue: %s\n    handler: effect\n    options: {table: %s.effect}\n"
		"    topology: {arguments: {x-max-length: 100000}}\n",
		w.queue, w.name);
	daemon_start(&w, "declaring", &other);
	WAIT_FOR(log_lines(&other, "event=topology_differs") == 1, 20);
	ck_assert_int_ge(log_lines(&other, "x-max-length"), 1);
	stays_calm(&other, 3);
	ck_assert_int_eq(daemon_stop(&other), 0);
	queue_delete(&w, w.queue);
	queue_declare(&w, w.queue, "quorum");
	WAIT_FOR(is_consumed(&w), 30);
	publish_many(&w, w.queue, "m", 50);
	all_once(&w, 50);
	world_end(&w);
}
END_TEST

/* ---- frozen links ---------------------------------------------------------------- */

static struct proxy *before_broker(struct world *w, const char *more)
{
	struct proxy *p = proxy_new(
		PROXY_AMQP, (uint16_t)strtoul(environment("INBOXD_TEST_AMQP_PORT"), NULL, 10));
	char brokers[512];
	(void)snprintf(brokers, sizeof brokers,
		"brokers: {own: {uri: \"amqp://inboxd:%s@127.0.0.1:%u\", heartbeat: 2s, "
		"connect_timeout: 2s}}\n",
		environment("INBOXD_TEST_AMQP_PASSWORD"), proxy_port(p));
	config_write(w, "inboxd", brokers,
		"  main:\n    queue: %s\n    handler: effect\n    broker: own\n"
		"    options: {table: %s.effect}\n%s",
		w->queue, w->name, more);
	return p;
}

/* Frozen is not closed: only the heartbeats tell. */
static void check_frozen(const char *name, enum proxy_way way)
{
	struct world w;
	struct daemon d;
	world_begin(&w, name);
	struct proxy *p = before_broker(&w, "");
	daemon_start_main(&w, &d);
	publish_many(&w, w.queue, "before", 20);
	all_once(&w, 20);
	proxy_freeze(p, way, 0);
	publish_many(&w, w.queue, "frozen", 20);
	WAIT_FOR(log_lines(&d, "event=broker_lost") > 0, 20);
	stays_calm(&d, 5);
	ck_assert_int_eq(daemon_stop(&d), 0);
	daemon_start(&w, "inboxd", &d);
	WAIT_FOR(log_lines(&d, "event=broker_unavailable") > 0, 20);
	proxy_thaw(p);
	all_once(&w, 40);
	ck_assert_int_eq(daemon_stop(&d), 0);
	proxy_free(p);
	world_end(&w);
}

START_TEST(a_link_frozen_from_the_broker_to_us_is_given_up_and_we_can_be_stopped)
{
	check_frozen("frozen_in", PROXY_TO_CLIENT);
}
END_TEST

START_TEST(a_link_frozen_both_ways_is_given_up_and_we_can_be_stopped)
{
	check_frozen("frozen_both", PROXY_BOTH);
}
END_TEST

START_TEST(a_body_that_stalls_half_way_is_given_up_and_delivered_again)
{
	enum { SIZE = 400000 };
	static char body[SIZE];
	struct world w;
	struct daemon d;
	world_begin(&w, "stalled");
	memset(body, 'x', sizeof body);
	struct proxy *p = before_broker(&w, "");
	daemon_start_main(&w, &d);
	proxy_freeze(p, PROXY_TO_CLIENT, 60000);
	publish(&w, w.queue, &(struct msg){.id = "large", .body = body, .size = SIZE});
	publish_confirm(&w);
	WAIT_FOR(queue_state(w.queue).unacked == 1, 10);
	WAIT_FOR(log_lines(&d, "event=broker_lost") > 0, 20);
	ck_assert_int_eq(sql_int(&w,
				 "SELECT count(*) FROM pg_stat_activity WHERE application_name = "
				 "'inboxd main' AND state LIKE 'idle in%%'"),
		0);
	proxy_thaw(p);
	all_once(&w, 1);
	ck_assert_int_eq(sql_int(&w, "SELECT max(size) FROM effect"), SIZE);
	/* Stopped in the midst of another one. */
	proxy_freeze(p, PROXY_TO_CLIENT, 60000);
	publish(&w, w.queue, &(struct msg){.id = "another", .body = body, .size = SIZE});
	publish_confirm(&w);
	WAIT_FOR(queue_state(w.queue).unacked == 1, 10);
	ck_assert_int_eq(daemon_stop(&d), 0);
	proxy_free(p);
	WAIT_FOR(queue_state(w.queue).ready == 1, 20);
	ck_assert_int_eq(effects(&w), 1);
	world_end(&w);
}
END_TEST

/* A listener whose backlog is full answers no further SYN, like an address behind a black hole. */
START_TEST(sigterm_ends_a_daemon_that_waits_for_an_address_which_does_not_answer)
{
	struct world w;
	struct daemon d;
	char brokers[256];
	int filler[4];
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof a;
	world_begin(&w, "black_hole");
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&a, size), 0);
	ck_assert_int_eq(listen(listener, 0), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&a, &size), 0);
	for (int i = 0; i < 4; i++) {
		filler[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		(void)connect(filler[i], (struct sockaddr *)&a, size);
	}
	(void)snprintf(brokers, sizeof brokers,
		"brokers: {hole: {uri: \"amqp://127.0.0.1:%u\", connect_timeout: 60s}}\n",
		ntohs(a.sin_port));
	config_write(&w, "inboxd", brokers,
		"  main: {queue: %s, handler: effect, broker: hole, options: {table: %s.effect}}\n",
		w.queue, w.name);
	daemon_start(&w, "inboxd", &d);
	WAIT_FOR(role_pid(&d, "inboxd: consumer") > 0, 20);
	stays_calm(&d, 3);
	int64_t begun = now_ms();
	ck_assert_int_eq(daemon_stop(&d), 0);
	ck_assert_int_lt(now_ms() - begun, (int64_t)(5000 * wait_factor()));
	for (int i = 0; i < 4; i++)
		(void)close(filler[i]);
	(void)close(listener);
	world_end(&w);
}
END_TEST

/* ---- again and again ------------------------------------------------------------- */

/* Names of the daemon's connections, each in front of another. */
static const char *connections(void)
{
	return broker_eval("lists:sort([binary_to_list(N) || C <- rabbit_networking:connections(), "
			   "[{client_properties, P}] <- [rabbit_networking:connection_info(C, "
			   "[client_properties])], {<<\"connection_name\">>, _, N} <- P])");
}

static bool is_consumed_by_another(const struct world *w, const char *before)
{
	const char *now = consuming_connection(w->queue);
	return strstr(now, "{connection,") != NULL && strcmp(now, before) != 0 && is_consumed(w);
}

START_TEST(closes_for_a_minute_leak_no_descriptor_no_connection_no_consumer_and_no_memory)
{
	enum { MOST = 200, LEAST = 40, WARM = 5, LONG_MS = 60000 };
	struct world w;
	struct daemon d;
	int files = 0, n = 0;
	int64_t memory = 0;
	world_begin(&w, "closes");
	config_main(&w, "%s", "    dead_letter: {exchange: \"\", routing_key: nowhere}\n");
	publish(&w, w.queue, &(struct msg){.id = "bad", .act = "reject"});
	daemon_start_main(&w, &d);
	WAIT_FOR(log_lines(&d, "event=publisher_connected") == 1, 20);
	pid_t consumer = role_pid(&d, "inboxd: consumer");
	for (int64_t until = now_ms() + LONG_MS; n < MOST && (n < LEAST || now_ms() < until); n++) {
		char id[16], before[128];
		(void)snprintf(id, sizeof id, "m%d", n);
		(void)snprintf(before, sizeof before, "%s", consuming_connection(w.queue));
		close_consuming_connection(w.queue);
		WAIT_FOR(is_consumed_by_another(&w, before), 30);
		publish(&w, w.queue, &(struct msg){.id = id});
		WAIT_FOR(effects(&w) == n + 1, 30);
		if (n == WARM) {
			files = open_files(consumer);
			memory = memory_kib(consumer, false);
		}
	}
	WAIT_FOR(is_settled(w.queue), 10);
	ck_assert_int_eq(effect_keys(&w), n);
	ck_assert_int_eq(role_pid(&d, "inboxd: consumer"), consumer);
	ck_assert_int_le(abs(open_files(consumer) - files), 3);
	ck_assert_int_lt(memory_kib(consumer, false) - memory, 512);
	WAIT_FOR(strcmp(connections(), "[\"inboxd main\",\"inboxd main publisher\"]") == 0, 20);
	world_end(&w);
}
END_TEST

UNIT_SUITE_TIMEOUT(180, "integration/broker_faults",
	a_broker_with_a_memory_alarm_still_takes_acknowledgements_and_lets_us_go,
	permission_to_read_the_queue_is_enough_and_may_be_taken_and_given_back,
	a_password_changed_at_the_broker_is_read_again_and_the_old_one_is_not_pressed,
	a_queue_made_anew_with_another_type_is_consumed_unless_it_was_to_be_declared,
	a_link_frozen_from_the_broker_to_us_is_given_up_and_we_can_be_stopped,
	a_link_frozen_both_ways_is_given_up_and_we_can_be_stopped,
	a_body_that_stalls_half_way_is_given_up_and_delivered_again,
	sigterm_ends_a_daemon_that_waits_for_an_address_which_does_not_answer,
	closes_for_a_minute_leak_no_descriptor_no_connection_no_consumer_and_no_memory)

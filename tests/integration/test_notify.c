/* SPDX-License-Identifier: MIT */
/* What the service manager is told: states, and the watchdog's signs of life. */
#include "harness.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Stands for the service manager's end: a datagram socket, and all that came so far, a line each. */
struct manager {
	int fd;
	char told[65536];
	size_t size;
	int datagrams;
};

/* is_abstract: a name without a file, as "@NAME". */
static void manager_open(struct manager *m, struct world *w, bool is_abstract, const char *watchdog_usec)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	char name[108];
	memset(m, 0, sizeof *m);
	(void)snprintf(name, sizeof name, is_abstract ? "@inboxd-%s" : "/tmp/%s", w->name);
	size_t n = strlen(name);
	memcpy(a.sun_path, name, n);
	if (is_abstract)
		a.sun_path[0] = '\0';
	m->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(m->fd, 0);
	ck_assert_msg(bind(m->fd, (struct sockaddr *)&a,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) == 0,
		"%s: %s", name, strerror(errno));
	ck_assert_int_eq(setenv("NOTIFY_SOCKET", name, 1), 0);
	if (watchdog_usec != NULL)
		ck_assert_int_eq(setenv("WATCHDOG_USEC", watchdog_usec, 1), 0);
}

static void manager_close(struct manager *m)
{
	const char *name = getenv("NOTIFY_SOCKET");
	if (name != NULL && *name == '/')
		(void)unlink(name);
	(void)unsetenv("NOTIFY_SOCKET");
	(void)unsetenv("WATCHDOG_USEC");
	(void)close(m->fd);
}

static void listen_for(struct manager *m, int ms)
{
	int64_t until = now_ms() + ms;
	struct pollfd p = {.fd = m->fd, .events = POLLIN};
	while (poll(&p, 1, until > now_ms() ? (int)(until - now_ms()) : 0) == 1) {
		char *to = m->told + m->size;
		ssize_t n = recv(m->fd, to, sizeof m->told - m->size - 2, 0);
		ck_assert_int_gt(n, 0);
		to[n] = '\n';
		to[n + 1] = '\0';
		m->size += (size_t)n + 1;
		m->datagrams++;
	}
}

static bool was_told(struct manager *m, const char *text)
{
	listen_for(m, 10);
	return strstr(m->told, text) != NULL;
}

static void forget(struct manager *m)
{
	listen_for(m, 0);
	m->size = 0;
	m->told[0] = '\0';
	m->datagrams = 0;
}

static int times(const struct manager *m, const char *text)
{
	int n = 0;
	for (const char *p = m->told; (p = strstr(p, text)) != NULL; p++)
		n++;
	return n;
}

static void go_through_life(struct world *w, bool is_abstract)
{
	struct daemon d;
	struct manager m;
	manager_open(&m, w, is_abstract, NULL);
	daemon_start(w, "inboxd", &d);
	WAIT_FOR(was_told(&m, "READY=1"), 20);
	WAIT_FOR(was_told(&m, "STATUS=1 of 1 consumers consuming"), 20);
	publish_many(w, w->queue, is_abstract ? "a" : "b", 3);
	WAIT_FOR(was_told(&m, "processed 3, duplicates 0, parked 0"), 20);
	ck_assert_ptr_null(strstr(m.told, "WATCHDOG"));

	forget(&m);
	ck_assert_int_eq(kill(d.pid, SIGHUP), 0);
	WAIT_FOR(was_told(&m, "READY=1"), 20);
	const char *reloading = strstr(m.told, "RELOADING=1\nMONOTONIC_USEC=");
	ck_assert_ptr_nonnull(reloading);
	ck_assert(reloading < strstr(m.told, "READY=1"));

	forget(&m);
	ck_assert_int_eq(daemon_stop(&d), 0);
	WAIT_FOR(was_told(&m, "STOPPING=1"), 5);
	ck_assert_ptr_null(strstr(m.told, "READY=1"));
	manager_close(&m);
}

START_TEST(each_state_is_told_as_it_comes_to_sockets_of_both_kinds)
{
	struct world w;
	world_begin(&w, "states");
	go_through_life(&w, false);
	go_through_life(&w, true);
	world_end(&w);
}
END_TEST

START_TEST(a_refused_reload_ends_ready_too)
{
	struct world w;
	struct daemon d;
	struct manager m;
	world_begin(&w, "refused");
	manager_open(&m, &w, true, NULL);
	daemon_start_main(&w, &d);
	WAIT_FOR(was_told(&m, "READY=1"), 20);
	forget(&m);
	config_write(&w, "inboxd", "", "  main: {queue: 5, handlr: effect}\n");
	ck_assert_int_eq(kill(d.pid, SIGHUP), 0);
	WAIT_FOR(was_told(&m, "RELOADING=1") && was_told(&m, "READY=1"), 20);
	ck_assert_int_eq(log_lines(&d, "event=reload_refused"), 1);
	publish_many(&w, w.queue, "m", 5);
	WAIT_FOR(effects(&w) == 5 && is_settled(w.queue), 20);
	manager_close(&m);
	world_end(&w);
}
END_TEST

/* Ready means that the configuration is good and everybody runs; the rest is for the status. */
START_TEST(ready_does_not_wait_for_servers_and_the_status_tells_of_them)
{
	struct world w;
	struct daemon d;
	struct manager m;
	world_begin(&w, "waiting");
	manager_open(&m, &w, true, NULL);
	config_write(&w, "inboxd", "brokers: {away: {uri: \"amqp://127.0.0.1:1\"}}\n",
		"  main: {queue: %s, handler: effect, options: {table: %s.effect}}\n", w.queue, w.name);
	daemon_start(&w, "inboxd", &d);
	WAIT_FOR(was_told(&m, "READY=1"), 20);
	WAIT_FOR(was_told(&m, "STATUS=0 of 1 consumers consuming"), 20);
	ck_assert_int_eq(daemon_stop(&d), 0);
	manager_close(&m);
	world_end(&w);
}
END_TEST

START_TEST(signs_of_life_come_from_the_loop_and_not_while_it_stands_still)
{
	struct world w;
	struct daemon d;
	struct manager m;
	world_begin(&w, "watchdog");
	manager_open(&m, &w, true, "2000000");
	daemon_start_main(&w, &d);
	publish(&w, w.queue, &(struct msg){.id = "long", .act = "sleep:6000"});
	publish_confirm(&w);
	WAIT_FOR(queue_state(w.queue).unacked == 1, 10);
	/* A handler that takes its time is no reason to be silent, nor to talk without end. */
	forget(&m);
	listen_for(&m, 4000);
	ck_assert_int_ge(times(&m, "WATCHDOG=1"), 2);
	ck_assert_int_lt(m.datagrams, 5 * 4);
	ck_assert_int_eq(effects(&w), 0);
	ck_assert_int_eq(kill(d.pid, SIGSTOP), 0);
	forget(&m);
	listen_for(&m, 2500);
	ck_assert_int_eq(m.datagrams, 0);
	ck_assert_int_eq(kill(d.pid, SIGCONT), 0);
	WAIT_FOR(was_told(&m, "WATCHDOG=1"), 10);
	WAIT_FOR(effects(&w) == 1 && is_settled(w.queue), 30);
	manager_close(&m);
	world_end(&w);
}
END_TEST

START_TEST(a_consumer_that_stands_still_is_found_and_replaced)
{
	struct world w;
	struct daemon d;
	char broker[300];
	world_begin(&w, "stuck");
	(void)snprintf(broker, sizeof broker,
		"brokers: {default: {uri: \"%s\", connect_timeout: 100ms}}\n",
		environment("INBOXD_TEST_AMQP_URI"));
	config_write(&w, "inboxd", broker,
		"  main: {queue: %s, handler: effect, options: {table: %s.effect}}\n", w.queue, w.name);
	daemon_start_main(&w, &d);
	pid_t pid = role_pid(&d, "inboxd: consumer main");
	ck_assert_int_eq(kill(pid, SIGSTOP), 0);
	publish_many(&w, w.queue, "m", 5);
	WAIT_FOR(log_lines(&d, "event=consumer_stuck") == 1, 60);
	WAIT_FOR(effects(&w) == 5 && is_settled(w.queue), 60);
	ck_assert_int_eq(effect_keys(&w), 5);
	ck_assert_int_ne(role_pid(&d, "inboxd: consumer main"), pid);
	world_end(&w);
}
END_TEST

UNIT_SUITE_TIMEOUT(150, "integration/notify",
	each_state_is_told_as_it_comes_to_sockets_of_both_kinds, a_refused_reload_ends_ready_too,
	ready_does_not_wait_for_servers_and_the_status_tells_of_them,
	signs_of_life_come_from_the_loop_and_not_while_it_stands_still,
	a_consumer_that_stands_still_is_found_and_replaced)

/* SPDX-License-Identifier: MIT */
#include "mq/mq.h"

#include <fcntl.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "fake_broker.h"
#include "relay.h"
#include "unit.h"

/* A fake broker behind TLS, and the files that a client may need. */
struct scene {
	struct fake_broker fake;
	struct relay relay;
	struct cert ca, server, client;
	char dir[64], ca_file[128], client_file[128];
	char uri[128];
	char *uris[1];
	struct config_broker broker;
};

static const uint8_t no_properties[2];

static void accepting(struct fake_broker *f, int fd)
{
	fake_accept(f, fd);
	while (fake_receive(fd, NULL) != 0)
		continue;
}

static void scene_prepare(struct scene *s, const char *alt_names, int from_days, int to_days)
{
	memset(s, 0, sizeof *s);
	(void)snprintf(s->dir, sizeof s->dir, "/tmp/inboxd-test-tls-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(s->dir));
	(void)snprintf(s->ca_file, sizeof s->ca_file, "%s/ca.pem", s->dir);
	(void)snprintf(s->client_file, sizeof s->client_file, "%s/client.pem", s->dir);
	cert_make(&s->ca, "test CA", NULL, -1, 10, NULL);
	cert_make(&s->server, "broker", alt_names, from_days, to_days, &s->ca);
	cert_make(&s->client, "me", NULL, -1, 1, &s->ca);
	cert_write(&s->ca, s->ca_file, NULL);
	cert_write(&s->client, s->client_file, NULL);
	s->uris[0] = s->uri;
	s->broker = (struct config_broker){.uris = {.items = s->uris, .n = 1},
		.heartbeat_s = 60,
		.connect_timeout_ms = 5000,
		.tls = {.ca = s->ca_file, .verify = TLS_VERIFY_FULL}};
	s->relay.cert = &s->server;
}

static void scene_start(struct scene *s, void (*script)(struct fake_broker *f, int fd))
{
	fake_start(&s->fake, script);
	s->relay.target = s->fake.port;
	relay_start(&s->relay);
}

static void scene_end(struct scene *s)
{
	relay_stop(&s->relay);
	fake_stop(&s->fake);
	cert_free(&s->ca);
	cert_free(&s->server);
	cert_free(&s->client);
	(void)unlink(s->ca_file);
	(void)unlink(s->client_file);
	ck_assert_int_eq(rmdir(s->dir), 0);
}

static enum rc try(struct scene *s, const char *host, struct mq_conn **ret, struct err *err)
{
	struct mq_place place;
	(void)snprintf(s->uri, sizeof s->uri, "amqps://u:hunter2@%s:%u", host, s->relay.port);
	return mq_conn_open(&s->broker, 0, "test", -1, ret, &place, err);
}

static void works(struct scene *s, const char *host)
{
	struct mq_conn *c = NULL;
	struct err err = {0};
	enum rc rc = try(s, host, &c, &err);
	ck_assert_msg(rc == RC_OK, "%s", err.text);
	mq_conn_close(c, false);
}

/* Refused, for that reason, and before a byte of AMQP was sent. */
static void refuses(struct scene *s, const char *host, const char *must_say)
{
	struct mq_conn *c = NULL;
	struct err err = {0};
	ck_assert_int_eq(try(s, host, &c, &err), RC_UNAVAILABLE);
	ck_assert_msg(strstr(err.text, must_say) != NULL, "%s", err.text);
	ck_assert_msg(strstr(err.text, "hunter2") == NULL, "%s", err.text);
	ck_assert_uint_eq(s->relay.received, 0);
}

START_TEST(the_right_name_is_accepted_and_asked_for)
{
	struct scene s;
	scene_prepare(&s, "DNS:localhost", -1, 1);
	scene_start(&s, accepting);
	works(&s, "localhost");
	ck_assert_str_eq(s.relay.server_name, "localhost");
	ck_assert_uint_gt(s.relay.received, 0);
	scene_end(&s);
}
END_TEST

START_TEST(the_right_address_is_accepted_and_no_name_is_asked_for)
{
	struct scene s;
	scene_prepare(&s, "IP:127.0.0.1", -1, 1);
	scene_start(&s, accepting);
	(void)snprintf(s.relay.server_name, sizeof s.relay.server_name, "unset");
	works(&s, "127.0.0.1");
	ck_assert_str_eq(s.relay.server_name, "");
	scene_end(&s);
}
END_TEST

START_TEST(another_name_is_refused_and_named)
{
	struct scene s;
	scene_prepare(&s, "DNS:other.example,DNS:third.example,IP:10.0.0.1", -1, 1);
	scene_start(&s, accepting);
	refuses(&s, "localhost", "ostname mismatch");
	refuses(&s, "localhost", "other.example, third.example, 10.0.0.1");
	refuses(&s, "127.0.0.1", "IP address mismatch");
	/* The name counts only where it is asked for. */
	s.broker.tls.verify = TLS_VERIFY_PEER;
	works(&s, "localhost");
	scene_end(&s);
}
END_TEST

START_TEST(an_unknown_ca_is_refused)
{
	struct scene s;
	struct cert other;
	scene_prepare(&s, "DNS:localhost", -1, 1);
	cert_make(&other, "other CA", NULL, -1, 10, NULL);
	cert_write(&other, s.ca_file, NULL);
	scene_start(&s, accepting);
	refuses(&s, "localhost", "unable to get local issuer certificate");
	s.broker.tls.verify = TLS_VERIFY_PEER;
	refuses(&s, "localhost", "unable to get local issuer certificate");
	/* no CA named: the system's, which does not know ours */
	s.broker.tls.ca = NULL;
	refuses(&s, "localhost", "unable to get local issuer certificate");
	s.broker.tls.verify = TLS_VERIFY_NONE;
	works(&s, "localhost");
	cert_free(&other);
	scene_end(&s);
}
END_TEST

START_TEST(without_a_ca_the_systems_counts)
{
	struct scene s;
	scene_prepare(&s, "DNS:localhost", -1, 1);
	scene_start(&s, accepting);
	s.broker.tls.ca = NULL;
	ck_assert_int_eq(setenv("SSL_CERT_FILE", s.ca_file, 1), 0);
	works(&s, "localhost");
	ck_assert_int_eq(unsetenv("SSL_CERT_FILE"), 0);
	scene_end(&s);
}
END_TEST

START_TEST(an_expired_certificate_is_refused)
{
	struct scene s;
	scene_prepare(&s, "DNS:localhost", -10, -1);
	scene_start(&s, accepting);
	refuses(&s, "localhost", "certificate has expired");
	scene_end(&s);
	scene_prepare(&s, "DNS:localhost", 1, 2);
	scene_start(&s, accepting);
	refuses(&s, "localhost", "certificate is not yet valid");
	scene_end(&s);
}
END_TEST

START_TEST(a_broker_that_wants_a_certificate_gets_ours)
{
	struct scene s;
	struct mq_conn *c = NULL;
	struct err err = {0};
	scene_prepare(&s, "DNS:localhost", -1, 1);
	s.relay.client_ca = &s.ca;
	scene_start(&s, accepting);
	ck_assert_int_eq(try(&s, "localhost", &c, &err), RC_UNAVAILABLE);
	ck_assert_msg(strstr(err.text, "certificate required") != NULL, "%s", err.text);
	s.broker.tls.cert = s.broker.tls.key = s.client_file;
	works(&s, "localhost");
	scene_end(&s);
}
END_TEST

START_TEST(files_that_cannot_be_used_are_named)
{
	struct scene s;
	char nowhere[] = "/nonexistent/file.pem";
	scene_prepare(&s, "DNS:localhost", -1, 1);
	scene_start(&s, accepting);
	s.broker.tls.ca = nowhere;
	refuses(&s, "localhost", "tls.ca /nonexistent/file.pem");
	s.broker.tls.ca = s.ca_file;
	s.broker.tls.cert = nowhere;
	refuses(&s, "localhost", "tls.cert /nonexistent/file.pem");
	s.broker.tls.cert = s.client_file;
	s.broker.tls.key = nowhere;
	refuses(&s, "localhost", "tls.key /nonexistent/file.pem");
	s.broker.tls.key = s.ca_file; /* of another certificate */
	refuses(&s, "localhost", "tls.key");
	scene_end(&s);
}
END_TEST

/* Whoever asked for it would wait for ever. */
START_TEST(nobody_is_asked_for_the_password_of_a_key)
{
	struct scene s;
	int silent[2];
	scene_prepare(&s, "DNS:localhost", -1, 1);
	scene_start(&s, accepting);
	cert_write(&s.client, s.client_file, "secret");
	s.broker.tls.cert = s.client_file;
	ck_assert_int_eq(pipe2(silent, O_CLOEXEC), 0);
	AUTO(fd) int old = dup(STDIN_FILENO);
	(void)setsid(); /* no terminal either */
	ck_assert_int_eq(dup2(silent[0], STDIN_FILENO), STDIN_FILENO);
	refuses(&s, "localhost", "tls.key");
	ck_assert_int_eq(dup2(old, STDIN_FILENO), STDIN_FILENO);
	(void)close(silent[0]);
	(void)close(silent[1]);
	scene_end(&s);
}
END_TEST

START_TEST(old_protocols_are_refused)
{
	struct scene s;
	scene_prepare(&s, "DNS:localhost", -1, 1);
	s.relay.max_version = TLS1_1_VERSION;
	scene_start(&s, accepting);
	refuses(&s, "localhost", "TLS");
	scene_end(&s);
	scene_prepare(&s, "DNS:localhost", -1, 1);
	s.relay.max_version = TLS1_2_VERSION;
	scene_start(&s, accepting);
	works(&s, "localhost");
	scene_end(&s);
}
END_TEST

enum { MANY = 300, SIZE = 5000 };

static void delivering(struct fake_broker *f, int fd)
{
	static const uint8_t body[SIZE];
	AUTO(buf) struct buf out = {0};
	for (uint64_t i = 1; i <= MANY; i++) {
		add_deliver(&out, i, false, "x", "k");
		add_header(&out, SIZE, bytes_of(no_properties, 2));
		add_body(&out, bytes_of(body, SIZE));
	}
	fake_accept(f, fd);
	fake_send(fd, &out);
	while (fake_receive(fd, NULL) != 0)
		continue;
}

/* What OpenSSL has taken off the socket wakes nobody: it must be read before the next poll. */
START_TEST(nothing_is_left_in_the_library_when_the_socket_is_polled)
{
	struct scene s;
	struct mq_conn *c = NULL;
	struct err err = {0};
	struct mq_event e;
	scene_prepare(&s, "DNS:localhost", -1, 1);
	scene_start(&s, delivering);
	ck_assert_msg(try(&s, "localhost", &c, &err) == RC_OK, "%s", err.text);
	for (int events = 0; events < 2 * MANY;) {
		ck_assert_msg(mq_read(c, &e, &err) == RC_OK, "%s", err.text);
		struct pollfd p = {.fd = mq_conn_fd(c), .events = POLLIN};
		if (e.kind == MQ_NONE)
			ck_assert_msg(poll(&p, 1, 5000) == 1, "asleep after %d events", events);
		else
			events++;
	}
	mq_conn_close(c, true);
	scene_end(&s);
}
END_TEST

START_TEST(a_frozen_broker_behind_tls_ends_a_publish_within_two_heartbeats)
{
	struct scene s;
	struct mq_conn *c = NULL;
	struct err err = {0};
	AUTO(free) uint8_t *body = xcalloc(1, 16 << 20);
	scene_prepare(&s, "DNS:localhost", -1, 1);
	scene_start(&s, accepting);
	s.broker.heartbeat_s = 1;
	ck_assert_msg(try(&s, "localhost", &c, &err) == RC_OK, "%s", err.text);
	s.relay.is_frozen = true;
	uint64_t begin = clock_ms();
	ck_assert_int_eq(mq_publish(c, bytes_str(""), bytes_str("q"), bytes_of(no_properties, 2),
				 bytes_of(body, 16 << 20), &err),
		RC_UNAVAILABLE);
	ck_assert_uint_lt(clock_ms() - begin, 5000);
	mq_conn_close(c, false);
	scene_end(&s);
}
END_TEST

UNIT_SUITE("mq/tls", the_right_name_is_accepted_and_asked_for,
	the_right_address_is_accepted_and_no_name_is_asked_for, another_name_is_refused_and_named,
	an_unknown_ca_is_refused, without_a_ca_the_systems_counts,
	an_expired_certificate_is_refused, a_broker_that_wants_a_certificate_gets_ours,
	files_that_cannot_be_used_are_named, nobody_is_asked_for_the_password_of_a_key,
	old_protocols_are_refused, nothing_is_left_in_the_library_when_the_socket_is_polled,
	a_frozen_broker_behind_tls_ends_a_publish_within_two_heartbeats)

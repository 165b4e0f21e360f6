/* SPDX-License-Identifier: MIT */
#include "mq_client.h"

#include <openssl/evp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "mq/certs.h"
#include "mq/relay.h"

static const uint8_t none[2];
#define NO_PROPERTIES bytes_of(none, sizeof none)

static void add_hex(struct buf *out, const uint8_t *der, int size)
{
	for (int i = 0; i < size; i++)
		buf_addf(out, "%02X", der[i]);
}

/* {cert, Der}, {key, {'PrivateKeyInfo', Der}} as Erlang has them. */
static void add_certificate(struct buf *out, const struct cert *c)
{
	uint8_t *der = NULL;
	int size = i2d_X509(c->x509, &der);
	buf_addf(out, "{cert, binary:decode_hex(<<\"");
	add_hex(out, der, size);
	OPENSSL_free(der);
	der = NULL;
	PKCS8_PRIV_KEY_INFO *key = EVP_PKEY2PKCS8(c->key);
	size = i2d_PKCS8_PRIV_KEY_INFO(key, &der);
	buf_addf(out, "\">>)}, {key, {'PrivateKeyInfo', binary:decode_hex(<<\"");
	add_hex(out, der, size);
	buf_addf(out, "\">>)}}");
	OPENSSL_free(der);
	PKCS8_PRIV_KEY_INFO_free(key);
}

static void add_ca(struct buf *out, const struct cert *ca)
{
	uint8_t *der = NULL;
	int size = i2d_X509(ca->x509, &der);
	buf_addf(out, ", {cacerts, [binary:decode_hex(<<\"");
	add_hex(out, der, size);
	buf_addf(out, "\">>)]}, {verify, verify_peer}, {fail_if_no_peer_cert, false}");
	OPENSSL_free(der);
}

/* The broker's own TLS listener on a free port; the port. */
static int listener_start(const struct cert *server, const struct cert *ca)
{
	AUTO(buf) struct buf options = {0};
	add_certificate(&options, server);
	add_ca(&options, ca);
	int port =
		atoi(broker_eval("{ok, S} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}]), {ok, P} = "
				 "inet:port(S), gen_tcp:close(S), P"));
	const char *answer = broker_eval(
		"Listener = {\"127.0.0.1\", %d, inet}, Options = [%s], "
		"case erlang:function_exported(rabbit_networking, start_ssl_listener, 4) of "
		"true -> rabbit_networking:start_ssl_listener(Listener, Options, 2, 1); "
		"false -> rabbit_networking:start_ssl_listener(Listener, Options, 2) end",
		port, buf_str(&options));
	ck_assert_msg(strncmp(answer, "{ok", 3) == 0 || strcmp(answer, "ok") == 0, "%s", answer);
	return port;
}

static void listener_stop(int port)
{
	(void)broker_eval("rabbit_networking:stop_tcp_listener({\"127.0.0.1\", %d, inet})", port);
}

struct files {
	struct cert ca, server, client;
	char dir[64], ca_file[128], client_file[128];
};

static void files_make(struct files *f)
{
	(void)snprintf(f->dir, sizeof f->dir, "/tmp/inboxd-test-tls-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(f->dir));
	(void)snprintf(f->ca_file, sizeof f->ca_file, "%s/ca.pem", f->dir);
	(void)snprintf(f->client_file, sizeof f->client_file, "%s/client.pem", f->dir);
	cert_make(&f->ca, "test CA", NULL, -1, 10, NULL);
	cert_make(&f->server, "broker", "DNS:localhost", -1, 1, &f->ca);
	cert_make(&f->client, "mq.certified", NULL, -1, 1, &f->ca);
	cert_write(&f->ca, f->ca_file, NULL);
	cert_write(&f->client, f->client_file, NULL);
}

static void files_remove(struct files *f)
{
	cert_free(&f->ca);
	cert_free(&f->server);
	cert_free(&f->client);
	(void)unlink(f->ca_file);
	(void)unlink(f->client_file);
	ck_assert_int_eq(rmdir(f->dir), 0);
}

static struct config_broker tls_broker(struct files *f, int port)
{
	static char uri[256];
	(void)snprintf(uri, sizeof uri, "amqps://inboxd:%s@localhost:%d",
		environment("INBOXD_TEST_AMQP_PASSWORD"), port);
	struct config_broker b = *client_broker(uri);
	b.tls.ca = f->ca_file;
	b.tls.verify = TLS_VERIFY_FULL;
	return b;
}

START_TEST(large_messages_pass_the_brokers_own_tls)
{
	struct files f;
	struct err err = {0};
	enum { SIZE = 4 << 20 };
	files_make(&f);
	int port = listener_start(&f.server, &f.ca);
	struct config_broker b = tls_broker(&f, port);
	struct mq_conn *c = client_open(&b);
	ck_assert_int_eq(mq_confirm_select(c, &err), RC_OK);
	const char *queue = client_queue(c);
	AUTO(free) uint8_t *sent = xmalloc(SIZE);
	for (size_t i = 0; i < SIZE; i++)
		sent[i] = (uint8_t)(i * 2654435761u >> 13);
	client_publish(c, queue, NO_PROPERTIES, bytes_of(sent, SIZE));
	ck_assert_int_eq(mq_consume(c, queue, 1, &err), RC_OK);
	(void)client_event(c, MQ_CONSUMING);
	AUTO(buf) struct buf body = {0};
	struct mq_event e = client_delivery(c, &body);
	ck_assert_int_eq(memcmp(body.data, sent, SIZE), 0);
	ck_assert_int_eq(mq_ack(c, e.tag, false, &err), RC_OK);
	WAIT_FOR(is_settled(queue), 5);
	mq_conn_close(c, true);
	listener_stop(port);
	files_remove(&f);
}
END_TEST

/* Needs the broker's plugin rabbitmq_auth_mechanism_ssl; its code is loaded here if it is not
 * enabled. */
static void offer_external(void)
{
	const char *answer = broker_eval(
		"[code:add_pathz(D) || D <- "
		"filelib:wildcard(filename:dirname(code:lib_dir(rabbit)) ++ "
		"\"/rabbitmq_auth_mechanism_ssl-*/ebin\")], "
		"application:set_env(rabbit, auth_mechanisms, ['PLAIN', 'AMQPLAIN', 'EXTERNAL']), "
		"application:set_env(rabbit, ssl_cert_login_from, common_name), "
		"application:set_env(rabbit, ssl_options, [{verify, verify_peer}]), "
		"rabbit_registry:register(auth_mechanism, <<\"EXTERNAL\">>, "
		"rabbit_auth_mechanism_ssl)");
	ck_assert_msg(strcmp(answer, "ok") == 0, "%s", answer);
}

START_TEST(a_certificate_logs_in_without_a_password)
{
	struct files f;
	files_make(&f);
	int port = listener_start(&f.server, &f.ca);
	struct config_broker b = tls_broker(&f, port);
	b.auth = BROKER_AUTH_EXTERNAL;
	b.tls.cert = b.tls.key = f.client_file;
	client_refused(&b, RC_UNAVAILABLE, "does not offer the mechanism EXTERNAL");
	offer_external();
	client_refused(&b, RC_UNAVAILABLE, "403 ACCESS_REFUSED");
	const char *answer = broker_eval(
		"rabbit_auth_backend_internal:put_user(#{name => <<\"mq.certified\">>, password => "
		"<<\"hunter2\">>, tags => <<>>}, <<\"test\">>), "
		"rabbit_auth_backend_internal:set_permissions(<<\"mq.certified\">>, <<\"/\">>, "
		"<<\".*\">>, "
		"<<\".*\">>, <<\".*\">>, <<\"test\">>)");
	ck_assert_msg(strcmp(answer, "ok") == 0, "%s", answer);
	struct mq_conn *c = client_open(&b);
	answer = broker_eval("rabbit_reader:info(%s, [user])", client_pid(c));
	ck_assert_msg(strstr(answer, "mq.certified") != NULL, "%s", answer);
	mq_conn_close(c, true);
	listener_stop(port);
	files_remove(&f);
}
END_TEST

/* ---- a relay between us and the broker ---------------------------------------------------- */

START_TEST(a_frozen_link_is_lost_after_two_heartbeats_and_an_idle_one_lives)
{
	struct relay r = {.target = (uint16_t)atoi(environment("INBOXD_TEST_AMQP_PORT"))};
	struct mq_event e;
	struct err err = {0};
	relay_start(&r);
	AUTO(free) char *uri = xasprintf(
		"amqp://inboxd:%s@127.0.0.1:%u", environment("INBOXD_TEST_AMQP_PASSWORD"), r.port);
	struct config_broker *b = client_broker(uri);
	b->heartbeat_s = 1;
	struct mq_conn *c = client_open(b);
	ck_assert_uint_eq(mq_heartbeat_s(c), 1);
	client_silent(c, 5000);
	r.is_frozen = true;
	int64_t begin = now_ms();
	while (mq_read(c, &e, &err) == RC_OK) {
		struct pollfd p = {.fd = mq_conn_fd(c), .events = POLLIN};
		(void)poll(&p, 1, 100);
		ck_assert_int_lt(now_ms() - begin, 4000);
	}
	ck_assert_int_ge(now_ms() - begin, 900);
	ck_assert_msg(strstr(err.text, "two heartbeats") != NULL, "%s", err.text);
	mq_conn_close(c, true);
	relay_stop(&r);
}
END_TEST

/* The tail of a large message never comes: no call hangs on it. */
START_TEST(a_link_frozen_within_a_message_is_lost_too)
{
	struct relay r = {.target = (uint16_t)atoi(environment("INBOXD_TEST_AMQP_PORT"))};
	struct mq_event e;
	struct err err = {0};
	struct mq_conn *publisher = client_open(client_broker(NULL));
	AUTO(free) uint8_t *body = xcalloc(1, 8 << 20);
	ck_assert_int_eq(mq_confirm_select(publisher, &err), RC_OK);
	const char *queue = client_queue(publisher);
	client_publish(publisher, queue, NO_PROPERTIES, bytes_of(body, 8 << 20));
	relay_start(&r);
	AUTO(free) char *uri = xasprintf(
		"amqp://inboxd:%s@127.0.0.1:%u", environment("INBOXD_TEST_AMQP_PASSWORD"), r.port);
	struct config_broker *b = client_broker(uri);
	b->heartbeat_s = 1;
	struct mq_conn *c = client_open(b);
	ck_assert_int_eq(mq_consume(c, queue, 1, &err), RC_OK);
	(void)client_event(c, MQ_CONSUMING);
	(void)client_event(c, MQ_DELIVERY);
	(void)client_event(c, MQ_BODY);
	r.is_frozen = true;
	uint64_t size = 0;
	int64_t begin = now_ms();
	while (mq_read(c, &e, &err) == RC_OK) {
		size += e.piece.size;
		struct pollfd p = {.fd = mq_conn_fd(c), .events = POLLIN};
		if (e.kind == MQ_NONE)
			(void)poll(&p, 1, 100);
		ck_assert_int_lt(now_ms() - begin, 4000);
	}
	ck_assert_uint_lt(size, 8 << 20);
	mq_conn_close(c, true);
	relay_stop(&r);
	WAIT_FOR(queue_state(queue).ready == 1, 10);
	mq_conn_close(publisher, true);
}
END_TEST

UNIT_SUITE_TIMEOUT(60, "mq/link", large_messages_pass_the_brokers_own_tls,
	a_certificate_logs_in_without_a_password,
	a_frozen_link_is_lost_after_two_heartbeats_and_an_idle_one_lives,
	a_link_frozen_within_a_message_is_lost_too)

/* SPDX-License-Identifier: MIT */
#include "relay.h"

#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "unit.h"

/* One connection that is being relayed. */
struct link {
	int client, target;
	SSL *ssl; /* NULL: none */
};

static struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static ssize_t client_read(const struct link *l, void *buf, int size)
{
	return l->ssl != NULL ? SSL_read(l->ssl, buf, size) : read(l->client, buf, (size_t)size);
}

static bool client_write(const struct link *l, const uint8_t *buf, ssize_t size)
{
	for (ssize_t at = 0; at < size;) {
		ssize_t n = l->ssl != NULL
			? SSL_write(l->ssl, buf + at, (int)(size - at))
			: send(l->client, buf + at, (size_t)(size - at), MSG_NOSIGNAL);
		if (n <= 0)
			return false;
		at += n;
	}
	return true;
}

static bool target_write(const struct link *l, const uint8_t *buf, ssize_t size)
{
	for (ssize_t at = 0; at < size;) {
		ssize_t n = send(l->target, buf + at, (size_t)(size - at), MSG_NOSIGNAL);
		if (n <= 0)
			return false;
		at += n;
	}
	return true;
}

/* Moves what is there; false at the end of either side. */
static bool move(struct relay *r, const struct link *l)
{
	uint8_t buf[65536];
	struct pollfd p[] = {
		{.fd = l->client, .events = POLLIN}, {.fd = l->target, .events = POLLIN}};
	bool is_pending = l->ssl != NULL && SSL_pending(l->ssl) > 0;
	(void)poll(p, 2, is_pending ? 0 : 20);
	if (r->is_frozen)
		return true;
	if (is_pending || p[0].revents != 0) {
		ssize_t n = client_read(l, buf, sizeof buf);
		if (n <= 0 || !target_write(l, buf, n))
			return false;
		r->received += (size_t)n;
	}
	if (p[1].revents != 0) {
		ssize_t n = read(l->target, buf, sizeof buf);
		if (n <= 0 || !client_write(l, buf, n))
			return false;
	}
	return true;
}

/* An alert that was sent last would be lost with a reset. */
static void drain(int client)
{
	char ignored[4096];
	struct pollfd p = {.fd = client, .events = POLLIN};
	(void)shutdown(client, SHUT_WR);
	while (poll(&p, 1, 1000) == 1 && read(client, ignored, sizeof ignored) > 0)
		continue;
}

static void serve(struct relay *r, int client)
{
	struct sockaddr_in address = loopback(r->target);
	struct link l = {
		.client = client, .target = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
	if (r->ctx != NULL) {
		l.ssl = SSL_new(r->ctx);
		(void)SSL_set_fd(l.ssl, client);
	}
	if ((l.ssl == NULL || SSL_accept(l.ssl) == 1) &&
		connect(l.target, (struct sockaddr *)&address, sizeof address) == 0)
		while (!r->is_over && move(r, &l))
			continue;
	SSL_free(l.ssl);
	(void)close(l.target);
	drain(client);
	(void)close(client);
}

static void *run(void *data)
{
	struct relay *r = data;
	int client = accept(r->listener, NULL, NULL);
	while (client >= 0) {
		serve(r, client);
		client = accept(r->listener, NULL, NULL);
	}
	return NULL;
}

static int on_server_name(SSL *ssl, int *alert, void *data)
{
	(void)alert;
	struct relay *r = data;
	const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
	(void)snprintf(r->server_name, sizeof r->server_name, "%s", name != NULL ? name : "");
	return SSL_TLSEXT_ERR_OK;
}

static void prepare_tls(struct relay *r)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
	ck_assert_int_eq(SSL_CTX_use_certificate(ctx, r->cert->x509), 1);
	ck_assert_int_eq(SSL_CTX_use_PrivateKey(ctx, r->cert->key), 1);
	(void)SSL_CTX_set_tlsext_servername_callback(ctx, on_server_name);
	(void)SSL_CTX_set_tlsext_servername_arg(ctx, r);
	if (r->max_version != 0) {
		ck_assert_int_eq(SSL_CTX_set_min_proto_version(ctx, TLS1_VERSION), 1);
		ck_assert_int_eq(SSL_CTX_set_max_proto_version(ctx, r->max_version), 1);
		ck_assert_int_eq(SSL_CTX_set_cipher_list(ctx, "ALL:@SECLEVEL=0"), 1);
	}
	if (r->client_ca != NULL) {
		SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
		ck_assert_int_eq(
			X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), r->client_ca->x509), 1);
	}
	r->ctx = ctx;
}

void relay_start(struct relay *r)
{
	struct sockaddr_in address = loopback(0);
	socklen_t size = sizeof address;
	(void)signal(SIGPIPE, SIG_IGN); /* OpenSSL's own write */
	if (r->cert != NULL)
		prepare_tls(r);
	r->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(r->listener, (struct sockaddr *)&address, sizeof address), 0);
	ck_assert_int_eq(listen(r->listener, 8), 0);
	ck_assert_int_eq(getsockname(r->listener, (struct sockaddr *)&address, &size), 0);
	r->port = ntohs(address.sin_port);
	ck_assert_int_eq(pthread_create(&r->thread, NULL, run, r), 0);
}

void relay_stop(struct relay *r)
{
	r->is_over = true;
	(void)shutdown(r->listener, SHUT_RDWR);
	ck_assert_int_eq(pthread_join(r->thread, NULL), 0);
	(void)close(r->listener);
	SSL_CTX_free(r->ctx);
}

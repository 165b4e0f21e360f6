/* SPDX-License-Identifier: MIT */
/* Connections: opened step by step within a time limit, said goodbye to within another. */
#include "mq/conn.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/version.h"
#include "mq/tcp.h"
#include "mq/uri.h"
#include "mq/wait.h"

enum { GOODBYE_MS = 1000 };

/* Who goes where: the URI and what the configuration puts in its place. */
struct target {
	struct mq_uri uri;
	const char *user;
	const char *vhost;
	struct buf password;
	bool is_external;
};

static void auto_target(struct target *t)
{
	if (t->password.data != NULL)
		explicit_bzero(t->password.data, t->password.size);
	buf_done(&t->password);
	explicit_bzero(&t->uri, sizeof t->uri);
}

void mq_escape(char *ret, size_t size, amqp_bytes_t in)
{
	size_t n = 0;
	for (size_t i = 0; i < in.len; i++) {
		uint8_t c = ((const uint8_t *)in.bytes)[i];
		bool is_plain = c >= ' ' && c < 0x7f;
		if (n + (is_plain ? 1 : 4) >= size)
			break;
		n += (size_t)snprintf(ret + n, size - n, is_plain ? "%c" : "\\x%02x", c);
	}
	ret[n] = '\0';
}

/* ---- failures ----------------------------------------------------------------------------- */

static enum rc explain(const struct mq_conn *c, int status, struct err *err)
{
	int error = errno;
	switch (status) {
	case AMQP_STATUS_HEARTBEAT_TIMEOUT:
		return err_set(err, RC_UNAVAILABLE,
			"nothing from the broker for %u s (two heartbeats)", 2 * c->heartbeat_s);
	case AMQP_STATUS_CONNECTION_CLOSED:
	case AMQP_STATUS_SOCKET_CLOSED:
		return err_set(err, RC_UNAVAILABLE, "the broker closed the socket");
	case AMQP_STATUS_TIMEOUT:
		return err_set(err, RC_UNAVAILABLE, "no answer in time");
	case AMQP_STATUS_SOCKET_ERROR:
	case AMQP_STATUS_TCP_ERROR:
		return err_set(err, RC_UNAVAILABLE, "socket: %s",
			error != 0 ? strerror(error) : "unknown error");
	case AMQP_STATUS_BAD_AMQP_DATA:
	case AMQP_STATUS_UNKNOWN_CLASS:
	case AMQP_STATUS_UNKNOWN_METHOD:
	case AMQP_STATUS_WRONG_METHOD:
		return err_set(err, RC_UNAVAILABLE, "what came is not AMQP 0-9-1 as expected: %s",
			amqp_error_string2(status));
	default:
		if (c->is_tls && status <= AMQP_STATUS_SSL_ERROR)
			return mq_tls_failed(&c->tls, amqp_error_string2(status), error, err);
		return err_set(err, RC_UNAVAILABLE, "%s", amqp_error_string2(status));
	}
}

enum rc mq_lost(struct mq_conn *c, int status, struct err *err)
{
	c->is_lost = true;
	return explain(c, status, err);
}

enum rc mq_answer_channel_close(struct mq_conn *c, struct err *err)
{
	const amqp_channel_close_ok_t ok = {0};
	c->is_channel_open = false;
	c->content.state = CONTENT_NONE;
	return mq_send_method(c, MQ_CHANNEL, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok, err);
}

void mq_answer_close(struct mq_conn *c)
{
	const amqp_connection_close_ok_t ok = {0};
	c->patience_ms = 0; /* a courtesy */
	(void)!mq_send_method(c, 0, AMQP_CONNECTION_CLOSE_OK_METHOD, &ok, NULL);
	c->is_lost = true;
}

/* Deliveries of a closed channel may lie in the library's queue from when it waited; their tags
 * would be taken for tags of the next channel. */
static void drop_queued(struct mq_conn *c)
{
	const struct timeval now = {0};
	amqp_frame_t ignored;
	while (amqp_frames_enqueued(c->amqp))
		(void)amqp_simple_wait_frame_noblock(c->amqp, &ignored, &now);
}

static enum rc refused_by_channel(
	struct mq_conn *c, const amqp_channel_close_t *m, struct mq_refusal *ret, struct err *err)
{
	ret->code = m->reply_code;
	mq_escape(ret->text, sizeof ret->text, m->reply_text);
	enum rc rc = mq_answer_channel_close(c, err);
	if (rc != RC_OK)
		return rc;
	drop_queued(c);
	return err_set(
		err, RC_UNAVAILABLE, "the broker closed the channel: %u %s", ret->code, ret->text);
}

static enum rc refused_by_connection(
	struct mq_conn *c, const amqp_connection_close_t *m, struct err *err)
{
	char text[256];
	mq_escape(text, sizeof text, m->reply_text);
	unsigned code = m->reply_code;
	mq_answer_close(c);
	return err_set(err, RC_UNAVAILABLE, "the broker closed the connection: %u %s", code, text);
}

enum rc mq_rpc_result(
	struct mq_conn *c, amqp_rpc_reply_t reply, struct mq_refusal *ret, struct err *err)
{
	*ret = (struct mq_refusal){0};
	c->written_ms = clock_ms();
	if (reply.reply_type == AMQP_RESPONSE_NORMAL)
		return RC_OK;
	if (reply.reply_type != AMQP_RESPONSE_SERVER_EXCEPTION)
		return mq_lost(c, reply.library_error, err);
	if (reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD)
		return refused_by_channel(c, reply.reply.decoded, ret, err);
	if (reply.reply.id == AMQP_CONNECTION_CLOSE_METHOD)
		return refused_by_connection(c, reply.reply.decoded, err);
	return mq_lost(c, AMQP_STATUS_WRONG_METHOD, err);
}

/* ---- where to, and as whom ---------------------------------------------------------------- */

static enum rc read_password(const struct config_broker *broker, struct target *t, struct err *err)
{
	const char *password = t->uri.password;
	if (broker->password_file != NULL) {
		enum rc rc = config_read_secret(broker->password_file, &t->password, err);
		if (rc != RC_OK) /* whoever changes the password may be half way through */
			return err_set(err, RC_UNAVAILABLE, "password file: %s",
				err != NULL ? err->text : "");
		(void)buf_str(&t->password);
		return RC_OK;
	}
	if (broker->password != NULL)
		password = broker->password;
	else if (broker->user != NULL && !t->uri.has_password)
		password = ""; /* the URI's default is guest's, not this user's */
	buf_add_str(&t->password, password);
	(void)buf_str(&t->password);
	return RC_OK;
}

static void set_place(const struct target *t, struct mq_place *ret)
{
	bool is_ipv6 = strchr(t->uri.host, ':') != NULL;
	(void)snprintf(ret->address, sizeof ret->address, is_ipv6 ? "[%s]:%u" : "%s:%u",
		t->uri.host, t->uri.port);
	(void)snprintf(ret->vhost, sizeof ret->vhost, "%s", t->vhost);
	(void)snprintf(ret->user, sizeof ret->user, "%s", t->user);
}

static enum rc choose_target(const struct config_broker *broker, size_t which, struct target *t,
	struct mq_place *ret_place, struct err *err)
{
	assert(broker->uris.n != 0);
	enum rc rc = mq_uri_parse(broker->uris.items[which % broker->uris.n], &t->uri, err);
	if (rc != RC_OK)
		return rc;
	t->user = broker->user != NULL ? broker->user : t->uri.user;
	t->vhost = broker->vhost != NULL ? broker->vhost : t->uri.vhost;
	t->is_external = broker->auth == BROKER_AUTH_EXTERNAL;
	set_place(t, ret_place);
	return t->is_external ? RC_OK : read_password(broker, t, err);
}

/* ---- TCP and TLS -------------------------------------------------------------------------- */

static struct timeval time_of(uint64_t ms)
{
	return (struct timeval){
		.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000)};
}

static uint64_t left_ms(uint64_t deadline_ms)
{
	uint64_t now = clock_ms();
	return deadline_ms > now ? deadline_ms - now : 1;
}

static enum rc start_plain(struct mq_conn *c, int *fd, struct err *err)
{
	amqp_socket_t *s = amqp_tcp_socket_new(c->amqp);
	if (s == NULL)
		return err_set(err, RC_UNAVAILABLE, "out of memory");
	amqp_tcp_socket_set_sockfd(s, TAKE_FD(*fd));
	return RC_OK;
}

/* The library makes the TCP connection of a TLS socket itself and waits for it without looking at
 * anything else, so it is given an address that has just answered. */
static enum rc start_tls(struct mq_conn *c, const struct config_broker *broker,
	const struct mq_uri *uri, const char *numeric, uint64_t deadline_ms, struct err *err)
{
	amqp_socket_t *s = amqp_ssl_socket_new(c->amqp);
	if (s == NULL)
		return err_set(err, RC_UNAVAILABLE, "TLS cannot be set up");
	c->is_tls = true;
	enum rc rc =
		mq_tls_prepare(&c->tls, amqp_ssl_socket_get_context(s), broker, uri->host, err);
	if (rc != RC_OK)
		return rc;
	amqp_ssl_socket_set_verify_peer(s, broker->tls.verify != TLS_VERIFY_NONE);
	/* It knows the address only; OpenSSL has the name. */
	amqp_ssl_socket_set_verify_hostname(s, 0);
	const struct timeval timeout = time_of(left_ms(deadline_ms));
	int status = amqp_socket_open_noblock(s, numeric, uri->port, &timeout);
	return status == AMQP_STATUS_OK ? RC_OK : explain(c, status, err);
}

static enum rc open_socket(struct mq_conn *c, const struct config_broker *broker,
	const struct mq_uri *uri, int interrupt_fd, uint64_t deadline_ms, struct err *err)
{
	AUTO(fd) int fd = -1;
	char numeric[MQ_NUMERIC_MAX];
	enum rc rc = mq_tcp_connect(
		uri->host, uri->port, broker->connect_timeout_ms, interrupt_fd, &fd, numeric, err);
	if (rc != RC_OK)
		return rc;
	if (uri->tls) {
		(void)close(TAKE_FD(fd));
		rc = start_tls(c, broker, uri, numeric, deadline_ms, err);
	} else {
		rc = start_plain(c, &fd, err);
	}
	if (rc != RC_OK)
		return rc;
	c->fd = fcntl(amqp_get_sockfd(c->amqp), F_DUPFD_CLOEXEC, 3);
	if (c->fd < 0)
		return err_set(err, RC_UNAVAILABLE, "socket: %s", strerror(errno));
	mq_tcp_tune(c->fd, 2000 * broker->heartbeat_s);
	return RC_OK;
}

/* ---- login -------------------------------------------------------------------------------- */

static amqp_table_entry_t text_entry(const char *name, const char *value)
{
	return (amqp_table_entry_t){
		.key = mq_amqp_bytes(bytes_str(name)),
		.value = {.kind = AMQP_FIELD_KIND_UTF8,
			.value.bytes = mq_amqp_bytes(bytes_str(value))},
	};
}

static amqp_table_entry_t true_entry(const char *name)
{
	return (amqp_table_entry_t){
		.key = mq_amqp_bytes(bytes_str(name)),
		.value = {.kind = AMQP_FIELD_KIND_BOOLEAN, .value.boolean = 1},
	};
}

/* Without consumer_cancel_notify a deleted queue is silence; without authentication_failure_close a
 * wrong password is a closed socket. */
static amqp_rpc_reply_t log_in(struct mq_conn *c, const struct config_broker *broker,
	const struct target *t, const char *name)
{
	amqp_table_entry_t capabilities[] = {
		true_entry("consumer_cancel_notify"),
		true_entry("basic.nack"),
		true_entry("publisher_confirms"),
		true_entry("connection.blocked"),
		true_entry("authentication_failure_close"),
	};
	amqp_table_entry_t entries[] = {
		text_entry("product", "inboxd"),
		text_entry("version", INBOXD_VERSION),
		text_entry("platform", "Linux, rabbitmq-c"),
		text_entry("copyright", "MIT licence"),
		text_entry("information", "idempotent consumer"),
		text_entry("connection_name", name),
		{.key = mq_amqp_bytes(bytes_str("capabilities")),
			.value = {.kind = AMQP_FIELD_KIND_TABLE,
				.value.table = {.num_entries = sizeof capabilities /
						sizeof capabilities[0],
					.entries = capabilities}}},
	};
	const amqp_table_t table = {
		.num_entries = sizeof entries / sizeof entries[0], .entries = entries};
	int heartbeat = broker->heartbeat_s < UINT16_MAX ? (int)broker->heartbeat_s : UINT16_MAX;
	if (t->is_external) /* the broker takes the name from the certificate; 0.11 refuses "" */
		return amqp_login_with_properties(c->amqp, t->vhost, MQ_CHANNEL, MQ_FRAME_MAX,
			heartbeat, &table, AMQP_SASL_METHOD_EXTERNAL,
			t->user[0] != '\0' ? t->user : "-");
	return amqp_login_with_properties(c->amqp, t->vhost, MQ_CHANNEL, MQ_FRAME_MAX, heartbeat,
		&table, AMQP_SASL_METHOD_PLAIN, t->user, (const char *)t->password.data);
}

static enum rc login(struct mq_conn *c, const struct config_broker *broker, const struct target *t,
	const char *name, uint64_t deadline_ms, struct err *err)
{
	struct mq_refusal refusal;
	const struct timeval timeout = time_of(left_ms(deadline_ms));
	(void)amqp_set_handshake_timeout(c->amqp, &timeout);
	amqp_rpc_reply_t reply = log_in(c, broker, t, name);
	if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION &&
		reply.library_error == AMQP_STATUS_BROKER_UNSUPPORTED_SASL_METHOD)
		return err_set(err, RC_UNAVAILABLE, "the broker does not offer the mechanism %s",
			t->is_external ? "EXTERNAL" : "PLAIN");
	enum rc rc = mq_rpc_result(c, reply, &refusal, err);
	if (rc != RC_OK)
		return rc;
	int heartbeat = amqp_get_heartbeat(c->amqp);
	c->heartbeat_s = heartbeat > 0 ? (uint32_t)heartbeat : broker->heartbeat_s;
	c->patience_ms = 2000 * c->heartbeat_s;
	mq_tcp_tune(c->fd, c->patience_ms);
	return RC_OK;
}

enum rc mq_channel_reopen(struct mq_conn *c, struct err *err)
{
	struct mq_refusal refusal;
	enum rc rc = mq_wait_writable(c, err);
	if (rc != RC_OK)
		return rc;
	(void)amqp_channel_open(c->amqp, MQ_CHANNEL);
	rc = mq_rpc_result(c, amqp_get_rpc_reply(c->amqp), &refusal, err);
	if (rc == RC_OK)
		c->is_channel_open = true;
	return rc;
}

static enum rc open_conn(struct mq_conn *c, const struct config_broker *broker,
	const struct target *t, const char *name, int interrupt_fd, struct err *err)
{
	uint64_t deadline_ms = clock_ms() + 2 * (uint64_t)broker->connect_timeout_ms;
	enum rc rc = open_socket(c, broker, &t->uri, interrupt_fd, deadline_ms, err);
	if (rc != RC_OK)
		return rc;
	rc = login(c, broker, t, name, deadline_ms, err);
	if (rc != RC_OK)
		return rc;
	struct timeval timeout = time_of(left_ms(deadline_ms));
	(void)amqp_set_rpc_timeout(c->amqp, &timeout);
	rc = mq_channel_reopen(c, err);
	timeout = time_of(broker->connect_timeout_ms);
	(void)amqp_set_rpc_timeout(c->amqp, &timeout);
	return rc;
}

enum rc mq_conn_open(const struct config_broker *broker, size_t which, const char *name,
	int interrupt_fd, struct mq_conn **ret, struct mq_place *ret_place, struct err *err)
{
	AUTO(target) struct target t = {0};
	assert(broker->heartbeat_s != 0 && broker->connect_timeout_ms != 0);
	*ret_place = (struct mq_place){0};
	enum rc rc = choose_target(broker, which, &t, ret_place, err);
	if (rc != RC_OK)
		return rc;
	struct mq_conn *c = xcalloc(1, sizeof *c);
	c->fd = -1;
	c->heartbeat_s = broker->heartbeat_s;
	c->patience_ms = broker->connect_timeout_ms;
	(void)snprintf(c->consumer_tag, sizeof c->consumer_tag, "%s", name);
	c->amqp = amqp_new_connection();
	rc = c->amqp != NULL ? open_conn(c, broker, &t, name, interrupt_fd, err)
			     : err_set(err, RC_UNAVAILABLE, "out of memory");
	if (rc != RC_OK) {
		mq_conn_close(c, false);
		return rc;
	}
	*ret = c;
	return RC_OK;
}

int mq_conn_fd(const struct mq_conn *c)
{
	return c->fd;
}

bool mq_is_lost(const struct mq_conn *c)
{
	return c->is_lost;
}

/* ---- goodbye ------------------------------------------------------------------------------ */

/* Frames that still come are for nobody. */
static void wait_for_close_ok(struct mq_conn *c, uint64_t deadline_ms)
{
	amqp_frame_t f;
	for (;;) {
		const struct timeval timeout = time_of(left_ms(deadline_ms));
		amqp_maybe_release_buffers(c->amqp);
		if (amqp_simple_wait_frame_noblock(c->amqp, &f, &timeout) != AMQP_STATUS_OK)
			return;
		if (f.frame_type == AMQP_FRAME_METHOD && f.channel == 0 &&
			(f.payload.method.id == AMQP_CONNECTION_CLOSE_OK_METHOD ||
				f.payload.method.id == AMQP_CONNECTION_CLOSE_METHOD))
			return;
		if (clock_ms() >= deadline_ms)
			return;
	}
}

/* Closing a socket with bytes unread resets it, and the peer might never see what was sent last. */
static void wait_for_end_of_file(struct mq_conn *c, uint64_t deadline_ms)
{
	char ignored[4096];
	(void)shutdown(c->fd, SHUT_WR);
	while (mq_wait_fd(c->fd, POLLIN, deadline_ms, -1, NULL) == RC_OK)
		if (recv(c->fd, ignored, sizeof ignored, 0) <= 0 || clock_ms() >= deadline_ms)
			return;
}

static void say_goodbye(struct mq_conn *c)
{
	uint64_t deadline_ms = clock_ms() + GOODBYE_MS;
	const amqp_connection_close_t m = {
		.reply_code = AMQP_REPLY_SUCCESS,
		.reply_text = mq_amqp_bytes(bytes_str("done")),
	};
	c->patience_ms = GOODBYE_MS;
	if (mq_send_method(c, 0, AMQP_CONNECTION_CLOSE_METHOD, &m, NULL) != RC_OK)
		return;
	if (c->is_unreadable)
		wait_for_end_of_file(c, deadline_ms);
	else
		wait_for_close_ok(c, deadline_ms);
}

void mq_conn_close(struct mq_conn *c, bool is_polite)
{
	if (c == NULL)
		return;
	if (is_polite && !c->is_lost)
		say_goodbye(c);
	if (c->amqp != NULL)
		(void)amqp_destroy_connection(c->amqp);
	if (c->fd >= 0)
		(void)close(c->fd);
	free(c);
}

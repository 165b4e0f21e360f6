/* SPDX-License-Identifier: MIT */
#include "amqp.h"

#if __has_include(<rabbitmq-c/tcp_socket.h>)
#include <rabbitmq-c/tcp_socket.h>
#else
#include <amqp_tcp_socket.h>
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void give_up(const char *what, const char *why)
{
	(void)fprintf(stderr, "%s: %s\n", what, why);
	exit(1);
}

static int64_t now_us(clockid_t clock)
{
	struct timespec t;
	(void)clock_gettime(clock, &t);
	return t.tv_sec * INT64_C(1000000) + t.tv_nsec / 1000;
}

int64_t wall_us(void)
{
	return now_us(CLOCK_REALTIME);
}

int64_t steady_us(void)
{
	return now_us(CLOCK_MONOTONIC);
}

void bench_expect(amqp_connection_state_t c, const char *what)
{
	amqp_rpc_reply_t reply = amqp_get_rpc_reply(c);
	if (reply.reply_type == AMQP_RESPONSE_NORMAL)
		return;
	give_up(what, reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION
			? amqp_error_string2(reply.library_error)
			: "refused by the broker");
}

amqp_connection_state_t bench_connect(const char *uri)
{
	struct amqp_connection_info info;
	char *copy = strdup(uri);
	amqp_connection_state_t c = amqp_new_connection();
	amqp_socket_t *socket = amqp_tcp_socket_new(c);
	if (copy == NULL || amqp_parse_url(copy, &info) != AMQP_STATUS_OK)
		give_up(uri, "is no AMQP URI");
	if (amqp_socket_open(socket, info.host, info.port) != AMQP_STATUS_OK)
		give_up(uri, "cannot connect");
	amqp_rpc_reply_t reply = amqp_login(
		c, info.vhost, 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, info.user, info.password);
	if (reply.reply_type != AMQP_RESPONSE_NORMAL)
		give_up(uri, "cannot log in");
	(void)amqp_channel_open(c, 1);
	bench_expect(c, "channel.open");
	free(copy);
	return c;
}

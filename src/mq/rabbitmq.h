/* SPDX-License-Identifier: MIT */
/* rabbitmq-c's headers, where this version has them: 0.12 and later warn about the old names. */
#ifndef INBOXD_MQ_RABBITMQ_H
#define INBOXD_MQ_RABBITMQ_H

#if __has_include(<rabbitmq-c/amqp.h>)
#include <rabbitmq-c/amqp.h>
#include <rabbitmq-c/framing.h>
#include <rabbitmq-c/ssl_socket.h>
#include <rabbitmq-c/tcp_socket.h>
#else
#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#endif

#endif

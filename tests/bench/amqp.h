/* SPDX-License-Identifier: MIT */
/* What the programs of `make bench` share: a connection that ends the program when anything fails. */
#ifndef INBOXD_TESTS_BENCH_AMQP_H
#define INBOXD_TESTS_BENCH_AMQP_H

#include "mq/rabbitmq.h"

#include <stdbool.h>
#include <stdint.h>

/* Prints and exits with 1. */
_Noreturn void give_up(const char *what, const char *why);

/* Logged in, with channel 1. */
amqp_connection_state_t bench_connect(const char *uri);
/* The last answer was good, or the program ends. */
void bench_expect(amqp_connection_state_t c, const char *what);

/* Microseconds since the epoch, and of a clock that only goes forward. */
int64_t wall_us(void);
int64_t steady_us(void);

#endif

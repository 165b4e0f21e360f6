/* SPDX-License-Identifier: MIT */
/* Stands before a broker, real or fake: ends TLS, freezes, remembers what passed.  One connection
 * at a time, in a thread of the test. */
#ifndef INBOXD_TESTS_UNIT_MQ_RELAY_H
#define INBOXD_TESTS_UNIT_MQ_RELAY_H

#include "certs.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct relay {
	/* set before relay_start */
	uint16_t target;              /* port on 127.0.0.1 */
	const struct cert *cert;      /* NULL: no TLS */
	const struct cert *client_ca; /* NULL: no certificate is asked for */
	int max_version;              /* of TLS; 0: any */
	/* set any time */
	_Atomic bool is_frozen;
	/* to be read */
	uint16_t port;
	_Atomic size_t received; /* bytes of clients, after TLS */
	char server_name[256];   /* that the last client asked for; "" if none */
	/* own */
	_Atomic bool is_over;
	int listener;
	void *ctx;
	pthread_t thread;
};

void relay_start(struct relay *r);
void relay_stop(struct relay *r);

#endif

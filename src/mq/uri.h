/* SPDX-License-Identifier: MIT */
/* amqp[s]://user:password@host:port/vhost, percent-decoded.  Pure. */
#ifndef INBOXD_MQ_URI_H
#define INBOXD_MQ_URI_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct mq_uri {
	bool tls;
	char host[256];      /* IPv6 without its brackets */
	uint16_t port;       /* 5672, 5671 */
	char user[256];      /* "guest" if absent */
	char password[1024]; /* "guest" if user and password are absent */
	bool has_user, has_password;
	char vhost[256]; /* "/" if absent; "" if the path is a lone "/" */
};

/* RC_FATAL with what is wrong and where in the text; the message never holds the password. */
enum rc mq_uri_parse(const char *text, struct mq_uri *ret, struct err *err) MUST_CHECK;

#endif

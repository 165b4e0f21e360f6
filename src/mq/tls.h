/* SPDX-License-Identifier: MIT */
/* What TLS adds to a connection: certificates, the checks of the broker's, and why they failed. */
#ifndef INBOXD_MQ_TLS_H
#define INBOXD_MQ_TLS_H

#include "base/err.h"
#include "config/config.h"

/* Lives as long as the socket whose context points to it. */
struct mq_tls {
	char server_name[256]; /* for SNI; "" where the host is an address */
	int verify_error;      /* X509_V_ERR_…; X509_V_OK until a check fails */
	char subject[256];     /* of the certificate that failed it */
	char names[256];       /* that certificate is for, when the host is none of them */
};

/* Prepares an SSL_CTX before the handshake: TLS 1.2 at least, CA (the system's if none is named),
 * client certificate, and checks that end the handshake before anything is sent over it.  host is
 * what the certificate must name. */
enum rc mq_tls_prepare(struct mq_tls *tls, void *ssl_ctx, const struct config_broker *broker,
	const char *host, struct err *err) MUST_CHECK;

/* After a failed handshake or read, with errno as it was: what was wrong; RC_UNAVAILABLE. */
enum rc mq_tls_failed(const struct mq_tls *tls, const char *fallback, int error, struct err *err);

#endif

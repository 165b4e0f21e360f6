/* SPDX-License-Identifier: MIT */
/* Certificates for tests, good and bad ones. */
#ifndef INBOXD_TESTS_UNIT_MQ_CERTS_H
#define INBOXD_TESTS_UNIT_MQ_CERTS_H

#include <openssl/x509.h>

struct cert {
	EVP_PKEY *key;
	X509 *x509;
};

/* alt_names: as openssl writes them, "DNS:localhost,IP:127.0.0.1", or NULL.  Valid from_days …
 * to_days from now.  issuer NULL: signs itself and may sign others. */
void cert_make(struct cert *ret, const char *common_name, const char *alt_names, int from_days,
	int to_days, const struct cert *issuer);
void cert_free(struct cert *c);
/* Certificate and key as PEM; the key encrypted if there is a password. */
void cert_write(const struct cert *c, const char *path, const char *password);

#endif

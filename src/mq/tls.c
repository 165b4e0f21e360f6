/* SPDX-License-Identifier: MIT */
/* OpenSSL makes the checks during the handshake, where it can say what failed; rabbitmq-c would
 * look only afterwards and tell that something did. */
#include "mq/tls.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"

static struct mq_tls *tls_of(const SSL *ssl)
{
	return SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
}

static void add_name(struct buf *names, const GENERAL_NAME *name)
{
	char text[INET6_ADDRSTRLEN];
	if (name->type == GEN_DNS) {
		buf_addf(names, "%s%.*s", names->size != 0 ? ", " : "",
			ASN1_STRING_length(name->d.dNSName),
			(const char *)ASN1_STRING_get0_data(name->d.dNSName));
	} else if (name->type == GEN_IPADD) {
		int family = ASN1_STRING_length(name->d.iPAddress) == 4 ? AF_INET : AF_INET6;
		if (inet_ntop(family, ASN1_STRING_get0_data(name->d.iPAddress), text,
			    sizeof text) != NULL)
			buf_addf(names, "%s%s", names->size != 0 ? ", " : "", text);
	}
}

static void note_names(struct mq_tls *tls, const X509 *cert)
{
	GENERAL_NAMES *list = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
	AUTO(buf) struct buf names = {0};
	for (int i = 0; i < sk_GENERAL_NAME_num(list); i++)
		add_name(&names, sk_GENERAL_NAME_value(list, i));
	(void)snprintf(tls->names, sizeof tls->names, "%s", buf_str(&names));
	GENERAL_NAMES_free(list);
}

/* Keeps the first failure; never overrules OpenSSL. */
static int on_verify(int is_ok, X509_STORE_CTX *store)
{
	const SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
	struct mq_tls *tls = tls_of(ssl);
	if (is_ok || tls->verify_error != X509_V_OK)
		return is_ok;
	tls->verify_error = X509_STORE_CTX_get_error(store);
	const X509 *cert = X509_STORE_CTX_get_current_cert(store);
	if (cert == NULL)
		return is_ok;
	(void)X509_NAME_oneline(X509_get_subject_name(cert), tls->subject, sizeof tls->subject);
	note_names(tls, cert);
	return is_ok;
}

/* rabbitmq-c is told an address, so that it connects to the one that answered; the name that the
 * broker should present its certificate for is put right before the first message is built. */
static void on_info(const SSL *ssl, int where, int value)
{
	(void)value;
	if ((where & SSL_CB_HANDSHAKE_START) == 0 || SSL_is_init_finished(ssl))
		return;
	struct mq_tls *tls = tls_of(ssl);
	char *name = tls->server_name[0] != '\0' ? tls->server_name : NULL;
	union {
		const SSL *from;
		SSL *to;
	} cast = {.from = ssl};
	(void)SSL_set_tlsext_host_name(cast.to, name);
}

/* An encrypted key is an error: nobody is there to type its password. */
static int no_password(char *buf, int size, int is_writing, void *data)
{
	(void)buf, (void)size, (void)is_writing, (void)data;
	return -1;
}

static const char *openssl_reason(void)
{
	const char *reason = ERR_reason_error_string(ERR_peek_error());
	return reason != NULL ? reason : "unknown error";
}

static enum rc load_ca(SSL_CTX *ctx, const char *ca, struct err *err)
{
	if (ca == NULL && SSL_CTX_set_default_verify_paths(ctx) != 1)
		return err_set(
			err, RC_UNAVAILABLE, "the system's CA certificates: %s", openssl_reason());
	if (ca != NULL && SSL_CTX_load_verify_locations(ctx, ca, NULL) != 1)
		return err_set(err, RC_UNAVAILABLE, "tls.ca %s: %s", ca, openssl_reason());
	return RC_OK;
}

static enum rc load_identity(SSL_CTX *ctx, const char *cert, const char *key, struct err *err)
{
	if (cert == NULL)
		return RC_OK;
	if (key == NULL)
		key = cert;
	SSL_CTX_set_default_passwd_cb(ctx, no_password);
	if (SSL_CTX_use_certificate_chain_file(ctx, cert) != 1)
		return err_set(err, RC_UNAVAILABLE, "tls.cert %s: %s", cert, openssl_reason());
	if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1 ||
		SSL_CTX_check_private_key(ctx) != 1)
		return err_set(err, RC_UNAVAILABLE, "tls.key %s: %s", key, openssl_reason());
	return RC_OK;
}

static bool is_address(const char *host)
{
	struct in6_addr ignored;
	return inet_pton(AF_INET, host, &ignored) == 1 || inet_pton(AF_INET6, host, &ignored) == 1;
}

static enum rc require_name(SSL_CTX *ctx, const char *host, struct err *err)
{
	X509_VERIFY_PARAM *param = SSL_CTX_get0_param(ctx);
	X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	int ok = is_address(host) ? X509_VERIFY_PARAM_set1_ip_asc(param, host)
				  : X509_VERIFY_PARAM_set1_host(param, host, 0);
	return ok == 1 ? RC_OK : err_set(err, RC_UNAVAILABLE, "%s: %s", host, openssl_reason());
}

enum rc mq_tls_prepare(struct mq_tls *tls, void *ssl_ctx, const struct config_broker *broker,
	const char *host, struct err *err)
{
	SSL_CTX *ctx = ssl_ctx;
	ERR_clear_error();
	*tls = (struct mq_tls){.verify_error = X509_V_OK};
	if (!is_address(host))
		(void)snprintf(tls->server_name, sizeof tls->server_name, "%s", host);
	SSL_CTX_set_app_data(ctx, tls);
	SSL_CTX_set_info_callback(ctx, on_info);
	if (SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1)
		return err_set(err, RC_UNAVAILABLE, "TLS 1.2: %s", openssl_reason());
	enum rc rc = load_identity(ctx, broker->tls.cert, broker->tls.key, err);
	if (rc != RC_OK)
		return rc;
	if (broker->tls.verify == TLS_VERIFY_NONE) {
		SSL_CTX_set_verify(ctx, SSL_VERIFY_NONE, NULL);
		return RC_OK;
	}
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, on_verify);
	rc = load_ca(ctx, broker->tls.ca, err);
	if (rc != RC_OK || broker->tls.verify == TLS_VERIFY_PEER)
		return rc;
	return require_name(ctx, host, err);
}

/* What OpenSSL has queued as an error, or else what the system said. */
static enum rc failed_otherwise(const char *fallback, int error, struct err *err)
{
	const char *reason = ERR_reason_error_string(ERR_peek_error());
	if (reason == NULL && error != 0)
		reason = strerror(error);
	return err_set(err, RC_UNAVAILABLE, "TLS: %s%s%s", fallback, reason != NULL ? ": " : "",
		reason != NULL ? reason : "");
}

enum rc mq_tls_failed(const struct mq_tls *tls, const char *fallback, int error, struct err *err)
{
	if (tls->verify_error == X509_V_OK)
		return failed_otherwise(fallback, error, err);
	const char *why = X509_verify_cert_error_string(tls->verify_error);
	bool is_other_name = tls->verify_error == X509_V_ERR_HOSTNAME_MISMATCH ||
		tls->verify_error == X509_V_ERR_IP_ADDRESS_MISMATCH;
	if (is_other_name && tls->names[0] != '\0')
		return err_set(err, RC_UNAVAILABLE,
			"TLS: the broker's certificate is refused: %s: it is for %s", why,
			tls->names);
	return err_set(err, RC_UNAVAILABLE, "TLS: the broker's certificate is refused: %s: %s", why,
		tls->subject);
}

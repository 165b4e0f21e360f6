/* SPDX-License-Identifier: MIT */
#include "certs.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>

#include "unit.h"

static void add_extension(struct cert *c, X509V3_CTX *ctx, int nid, const char *value)
{
	X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, ctx, nid, value);
	ck_assert_ptr_nonnull(e);
	ck_assert_int_eq(X509_add_ext(c->x509, e, -1), 1);
	X509_EXTENSION_free(e);
}

static void set_names(struct cert *c, const char *common_name, const struct cert *issuer)
{
	X509_NAME *name = X509_NAME_new();
	ck_assert_int_eq(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
				 (const unsigned char *)common_name, -1, -1, 0),
		1);
	ck_assert_int_eq(X509_set_subject_name(c->x509, name), 1);
	ck_assert_int_eq(X509_set_issuer_name(c->x509,
				 issuer != NULL ? X509_get_subject_name(issuer->x509) : name),
		1);
	X509_NAME_free(name);
}

void cert_make(struct cert *ret, const char *common_name, const char *alt_names, int from_days,
	int to_days, const struct cert *issuer)
{
	static long serial = 1;
	enum { DAY = 86400 };
	X509V3_CTX ctx;
	struct cert c = {.key = EVP_EC_gen("P-256"), .x509 = X509_new()};
	ck_assert(c.key != NULL && c.x509 != NULL);
	(void)X509_set_version(c.x509, 2);
	(void)ASN1_INTEGER_set(X509_get_serialNumber(c.x509), serial++);
	(void)X509_gmtime_adj(X509_getm_notBefore(c.x509), (long)from_days * DAY);
	(void)X509_gmtime_adj(X509_getm_notAfter(c.x509), (long)to_days * DAY);
	(void)X509_set_pubkey(c.x509, c.key);
	set_names(&c, common_name, issuer);
	X509V3_set_ctx(&ctx, issuer != NULL ? issuer->x509 : c.x509, c.x509, NULL, NULL, 0);
	add_extension(
		&c, &ctx, NID_basic_constraints, issuer == NULL ? "critical,CA:TRUE" : "CA:FALSE");
	add_extension(&c, &ctx, NID_subject_key_identifier, "hash");
	if (alt_names != NULL)
		add_extension(&c, &ctx, NID_subject_alt_name, alt_names);
	ck_assert_int_ne(X509_sign(c.x509, issuer != NULL ? issuer->key : c.key, EVP_sha256()), 0);
	*ret = c;
}

void cert_free(struct cert *c)
{
	X509_free(c->x509);
	EVP_PKEY_free(c->key);
}

void cert_write(const struct cert *c, const char *path, const char *password)
{
	FILE *f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(PEM_write_X509(f, c->x509), 1);
	ck_assert_int_eq(
		PEM_write_PKCS8PrivateKey(f, c->key, password != NULL ? EVP_aes_128_cbc() : NULL,
			password, password != NULL ? (int)strlen(password) : 0, NULL, NULL),
		1);
	ck_assert_int_eq(fclose(f), 0);
}

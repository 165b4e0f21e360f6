/* SPDX-License-Identifier: MIT */
/* SHA-256 by OpenSSL.  Looking an algorithm up takes longer than hashing a short text, so that is
 * done once; a context that is begun again keeps its memory. */
#include "base/hash.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>

static void must(int ok)
{
	if (ok == 1)
		return;
	(void)fprintf(stderr, "level=error event=hash_failed algorithm=SHA256\n");
	abort();
}

static const EVP_MD *sha256(void)
{
	static EVP_MD *md;
	if (md == NULL)
		md = EVP_MD_fetch(NULL, "SHA256", NULL);
	must(md != NULL);
	return md;
}

void hash_begin(struct hash *h)
{
	if (h->context == NULL) {
		h->context = EVP_MD_CTX_new();
		must(h->context != NULL && EVP_DigestInit_ex2(h->context, sha256(), NULL));
	} else {
		must(EVP_DigestInit_ex2(h->context, NULL, NULL));
	}
}

void hash_add(struct hash *h, struct bytes data)
{
	if (data.size != 0)
		must(EVP_DigestUpdate(h->context, data.data, data.size));
}

void hash_end(struct hash *h, uint8_t ret[HASH_SIZE])
{
	must(EVP_DigestFinal_ex(h->context, ret, NULL));
}

void hash_done(struct hash *h)
{
	EVP_MD_CTX_free(h->context);
	h->context = NULL;
}

void hash_sha256_parts(const struct bytes *parts, size_t n, uint8_t ret[HASH_SIZE])
{
	static struct hash shared;
	hash_begin(&shared);
	for (size_t i = 0; i < n; i++)
		hash_add(&shared, parts[i]);
	hash_end(&shared, ret);
}

void hash_sha256(struct bytes data, uint8_t ret[HASH_SIZE])
{
	hash_sha256_parts(&data, 1, ret);
}

/* SPDX-License-Identifier: MIT */
/* SHA-256.  It cannot fail: a process whose library has no SHA-256 ends. */
#ifndef INBOXD_BASE_HASH_H
#define INBOXD_BASE_HASH_H

#include "base/bytes.h"

#define HASH_SIZE 32

/* In one go; costs no allocation after the first call.  One thread at a time. */
void hash_sha256(struct bytes data, uint8_t ret[HASH_SIZE]);

/* The same of several runs of bytes, one behind the other; their borders do not show in the hash.
 */
void hash_sha256_parts(const struct bytes *parts, size_t n, uint8_t ret[HASH_SIZE]);

/* Piece by piece: hash_begin, hash_add…, hash_end, and again from hash_begin with the same
 * memory.  {0} is a good start; hash_done frees. */
struct hash {
	void *context; /* owned */
};
void hash_begin(struct hash *h);
void hash_add(struct hash *h, struct bytes data);
void hash_end(struct hash *h, uint8_t ret[HASH_SIZE]);
void hash_done(struct hash *h);

#endif

/* SPDX-License-Identifier: MIT */
#include "base/hash.h"

#include "base/buf.h"
#include "unit.h"

#include <stdio.h>

static const char *hex(const uint8_t *p, size_t n)
{
	static char text[2 * HASH_SIZE + 1];
	for (size_t i = 0; i < n; i++)
		(void)snprintf(text + 2 * i, 3, "%02x", p[i]);
	return text;
}

/* FIPS 180-4 and its examples. */
#define OF_NOTHING "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define OF_ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define OF_MILLION_A "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"

START_TEST(hashes_the_published_examples)
{
	uint8_t hash[HASH_SIZE];
	hash_sha256(bytes_str("abc"), hash);
	ck_assert_str_eq(hex(hash, sizeof hash), OF_ABC);
	hash_sha256(bytes_str(""), hash);
	ck_assert_str_eq(hex(hash, sizeof hash), OF_NOTHING);
	hash_sha256(bytes_of(NULL, 0), hash);
	ck_assert_str_eq(hex(hash, sizeof hash), OF_NOTHING);
}
END_TEST

START_TEST(parts_hash_like_the_whole)
{
	const struct bytes parts[] = {bytes_str("a"), bytes_of(NULL, 0), bytes_str("bc")};
	uint8_t hash[HASH_SIZE];
	hash_sha256_parts(parts, 3, hash);
	ck_assert_str_eq(hex(hash, sizeof hash), OF_ABC);
	hash_sha256_parts(NULL, 0, hash);
	ck_assert_str_eq(hex(hash, sizeof hash), OF_NOTHING);
}
END_TEST

START_TEST(hashes_piece_by_piece_and_again_with_the_same_memory)
{
	struct hash h = {0};
	uint8_t hash[HASH_SIZE];
	for (int round = 0; round < 3; round++) {
		hash_begin(&h);
		for (int i = 0; i < 1000000; i += 100)
			hash_add(&h,
				bytes_str("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
					  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
		hash_end(&h, hash);
		ck_assert_str_eq(hex(hash, sizeof hash), OF_MILLION_A);
	}
	hash_done(&h);
	ck_assert_ptr_null(h.context);
	hash_done(&h);
}
END_TEST

START_TEST(two_streams_and_a_hash_in_one_go_do_not_mix)
{
	struct hash a = {0}, b = {0};
	uint8_t hash[HASH_SIZE];
	hash_begin(&a);
	hash_begin(&b);
	hash_add(&a, bytes_str("ab"));
	hash_add(&b, bytes_str("x"));
	hash_sha256(bytes_str("something else"), hash);
	hash_add(&a, bytes_str("c"));
	hash_end(&a, hash);
	ck_assert_str_eq(hex(hash, sizeof hash), OF_ABC);
	hash_end(&b, hash);
	ck_assert_str_ne(hex(hash, sizeof hash), OF_ABC);
	hash_done(&a);
	hash_done(&b);
}
END_TEST

UNIT_SUITE("base/hash", hashes_the_published_examples, parts_hash_like_the_whole,
	hashes_piece_by_piece_and_again_with_the_same_memory,
	two_streams_and_a_hash_in_one_go_do_not_mix)

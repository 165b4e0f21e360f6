/* SPDX-License-Identifier: MIT */
/* What the schema's functions and the code both compute must be the same: an operator finds in a
 * view the key that a log line shows, and a lock taken in SQL is the one that a worker takes. */
#include "harness.h"

#include "message/key.h"

#include <stdio.h>
#include <stdlib.h>

enum { KEYS = 4000 };

/* Text of every awkward kind: separators, what other kinds of key look like, UTF-8 whole and
 * broken, what nobody sees. */
static const char *const pieces[] = {"a", "b ", ",", ", ", "\\", "?",
	"sha256:", "list-sha256:", "body-", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xff",
	"\xc3", "\xe2\x82", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x80\xa8", "\xf3\xa0\x81\x81",
	"\n", " ", "\x7f", "\xc2\x85", "\xc2\xa0", "\xef\xbb\xbf", "\xe0\x80\xaf", "\xc0\x80",
	"0b0c6f5e-5f8a-4a2b-9d1c-1234567890ab", "~", "[", "]"};

static uint32_t state = 1;

static uint32_t any(uint32_t below)
{
	state = state * 1664525 + 1013904223;
	return (state >> 8) % below;
}

static void add_value(struct buf *out)
{
	for (uint32_t n = any(5); n > 0; n--)
		if (any(8) == 0)
			buf_add_byte(out, (uint8_t)any(256));
		else
			buf_add_str(out, pieces[any(sizeof pieces / sizeof pieces[0])]);
}

static void add_list(struct buf *out)
{
	for (uint32_t n = any(4); n > 0; n--) {
		struct buf value = {0};
		add_value(&value);
		buf_add_u16(out, (uint16_t)(value.size + (any(30) == 0)));
		buf_add(out, value.data, value.size);
		buf_done(&value);
	}
}

/* A key of any kind, now and then one that is none of ours. */
static void add_key(struct buf *out)
{
	uint8_t kind = (uint8_t)any(9);
	buf_add_byte(out, kind > KEY_BODY ? KEY_GIVEN : kind);
	if (kind == KEY_LIST)
		add_list(out);
	else if (any(2) == 0 && kind >= KEY_UUID && kind <= KEY_BODY)
		for (int i = 0; i < (kind == KEY_UUID ? 16 : HASH_SIZE); i++)
			buf_add_byte(out, (uint8_t)any(256));
	else
		add_value(out);
}

static const char *value_of(PGresult *result)
{
	ck_assert_msg(
		PQresultStatus(result) == PGRES_TUPLES_OK, "%s", PQresultErrorMessage(result));
	ck_assert_int_eq(PQntuples(result), 1);
	return PQgetvalue(result, 0, 0);
}

/* A statement with the key as $1. */
static PGresult *call(struct world *w, const char *statement, const struct buf *key)
{
	const char *values[] = {(const char *)key->data};
	const int sizes[] = {(int)key->size}, formats[] = {1};
	const Oid bytea[] = {17};
	return PQexecParams(w->db, statement, 1, bytea, values, sizes, formats, 0);
}

START_TEST(a_key_is_shown_and_locked_alike_in_sql_and_in_code)
{
	struct world w;
	struct buf key = {0}, text = {0};
	char lock[24];
	world_begin(&w, "functions");
	sql(&w, "CREATE TABLE seen (key bytea, text text)");
	for (int i = 0; i < KEYS; i++) {
		buf_clear(&key);
		buf_clear(&text);
		add_key(&key);
		key_text(buf_bytes(&key), &text);
		PGresult *shown =
			call(&w, "INSERT INTO seen SELECT $1, key_text($1) RETURNING text", &key);
		ck_assert_str_eq(value_of(shown), buf_str(&text));
		PQclear(shown);
		PGresult *locked = call(&w, "SELECT key_lock(7, $1)", &key);
		(void)snprintf(
			lock, sizeof lock, "%lld", (long long)key_lock_id(7, buf_bytes(&key)));
		ck_assert_str_eq(value_of(locked), lock);
		PQclear(locked);
	}
	ck_assert_int_eq(
		sql_int(&w, "SELECT count(DISTINCT key) - count(DISTINCT text) FROM seen"), 0);
	buf_done(&key);
	buf_done(&text);
	world_end(&w);
}
END_TEST

START_TEST(fingerprints_differ_alike_in_sql_and_in_code)
{
	static const char *const prints[] = {"", "\1", "\1aaaaaaaaaaaaaaaa", "\1bbbbbbbbbbbbbbbb",
		"\2xyaaaaaaaaaaaaaaaa", "\2xybbbbbbbbbbbbbbbb", "\2xzaaaaaaaaaaaaaaaa",
		"\3aaaaaaaaaaaaaaaa", "\3bbbbbbbbbbbbbbbb", "\1a", "\1b", "\2xya", "\2xyb",
		"\1aaaaaaaaaaaaaaaaaa", "\1bbbbbbbbbbbbbbbbbb"};
	enum { N = sizeof prints / sizeof prints[0] };
	struct world w;
	world_begin(&w, "fingerprints");
	for (size_t i = 0; i < N; i++)
		for (size_t k = 0; k < N; k++) {
			const char *values[] = {prints[i], prints[k]};
			const int sizes[] = {(int)strlen(prints[i]), (int)strlen(prints[k])};
			const int formats[] = {1, 1};
			const Oid bytea[] = {17, 17};
			PGresult *result = PQexecParams(w.db, "SELECT fingerprints_differ($1, $2)",
				2, bytea, values, sizes, formats, 0);
			bool differ = fingerprint_compare(bytes_str(prints[i]),
					      bytes_str(prints[k])) == FINGERPRINT_DIFFERENT;
			ck_assert_msg(strcmp(value_of(result), differ ? "t" : "f") == 0,
				"fingerprints %zu and %zu", i, k);
			PQclear(result);
		}
	world_end(&w);
}
END_TEST

UNIT_SUITE_TIMEOUT(120, "integration/functions", a_key_is_shown_and_locked_alike_in_sql_and_in_code,
	fingerprints_differ_alike_in_sql_and_in_code)

/* SPDX-License-Identifier: MIT */
/* Keys and fingerprints: what makes two deliveries the same message, and the same content.  Pure.
 *
 * A key is bytes led by one byte that tells its kind, so that none can pass for another:
 *   KEY_GIVEN  the value as given, at most KEY_MAX bytes
 *   KEY_UUID   16 bytes, where the value was a UUID in its canonical text (lower case, hyphens):
 *              another spelling is another key
 *   KEY_LONG   SHA-256 of a longer value
 *   KEY_LIST   several values, each led by its length (u16; from 65535 bytes on 0xffff and u64),
 *              at most KEY_MAX bytes in all.  A CloudEvent counts as two values, its source and
 *              its id; a body as its SHA-256
 *   KEY_LONG_LIST  SHA-256 of a longer list
 *   KEY_BODY   SHA-256 of the body
 * A fingerprint is one kind byte and the first 16 bytes of a SHA-256; for a list of fields two
 * bytes of the rule's own hash stand between, so that only fingerprints made by the same rule
 * compare.  What is hashed for fields: for each a byte 0 if it is missing (also JSON null), else a
 * byte 1, the length of its text (u64) and the text as source.h has it; so missing and empty
 * differ, and the numbers 1.0 and 1.00.
 *
 * Keys and fingerprints are stored: what is written here cannot change without a migration.
 */
#ifndef INBOXD_MESSAGE_KEY_H
#define INBOXD_MESSAGE_KEY_H

#include "base/hash.h"
#include "message/source.h"

#define KEY_MAX 255
#define KEY_SIZE_MAX (KEY_MAX + 1)
#define KEY_SOURCES_MAX 16 /* in one rule */
#define FINGERPRINT_SIZE_MAX 19
#define FINGERPRINT_HASH_SIZE 16

enum key_kind {
	KEY_GIVEN = 1,
	KEY_UUID = 2,
	KEY_LONG = 3,
	KEY_LIST = 4,
	KEY_LONG_LIST = 5,
	KEY_BODY = 6,
};

enum fingerprint_kind { FINGERPRINT_BODY = 1, FINGERPRINT_FIELDS = 2 };

enum on_missing_key { ON_MISSING_KEY_PARK, ON_MISSING_KEY_BODY, ON_MISSING_KEY_PROCESS };

/* Canonical text of a rule: its sources in order, joined by commas; a comma, a bar or a backslash
 * inside a name has a backslash in front; "|missing=body" behind them where messages without a key
 * get one from their body (park and process make no keys, so changing between them needs nobody's
 * consent). "message_id", "header:merchant,message_id", "json:/id|missing=body".  Of a fingerprint:
 * "body", "none" or the fields in the same form.  Two rules make the same keys exactly if their
 * texts are the same. */
struct key_rule {
	struct source *sources; /* owned */
	size_t n;
	enum on_missing_key on_missing;
	char *text; /* owned; canonical form, what inboxd.consumer remembers */
};

struct fingerprint_rule {
	bool none;
	struct source *sources; /* owned; n == 0: the body */
	size_t n;
	uint8_t rule_hash[2];
	char *text; /* owned; canonical form */
};

/* Compiles a rule from the texts of its sources; none at all is the default (message_id, body).
 * RC_FATAL with *ret_bad the index of the wrong one (0 where it is the rule as a whole).
 * fingerprint: one text "none" or "body", or field sources. */
enum rc key_rule_parse(const char *const *sources, size_t n, enum on_missing_key on_missing,
	struct key_rule *ret, size_t *ret_bad, struct err *err) MUST_CHECK;
enum rc fingerprint_rule_parse(const char *const *sources, size_t n, struct fingerprint_rule *ret,
	size_t *ret_bad, struct err *err) MUST_CHECK;
void key_rule_done(struct key_rule *r);
void fingerprint_rule_done(struct fingerprint_rule *r);

enum key_result {
	KEY_OK,       /* *ret_key is appended */
	KEY_NONE,     /* no key, and the rule says process: run without deduplication */
	KEY_MISSING,  /* no key, and the rule says park (or body, and that is empty); err says which
		       */
	KEY_UNUSABLE, /* there is one, but it cannot be used; err says why */
};
/* The first source that is missing, empty or unusable decides.  ret_key is as before unless KEY_OK;
 * it is used as scratch, so one that is kept and cleared costs no allocation. */
enum key_result key_extract(const struct key_rule *rule, const struct source_message *sm,
	struct buf *ret_key, struct err *err);

/* Appends the fingerprint; nothing for `none`.  false with err: a field cannot be used. */
bool fingerprint_compute(const struct fingerprint_rule *rule, const struct source_message *sm,
	struct buf *ret, struct err *err);

/* The fingerprint of a body from its SHA-256, for bodies that are streamed. */
void fingerprint_of_body(const uint8_t sha256[HASH_SIZE], struct buf *ret);

/* Incomparable: one is absent, their kinds or rules differ, or one is none of ours. */
enum fingerprint_match { FINGERPRINT_SAME, FINGERPRINT_DIFFERENT, FINGERPRINT_INCOMPARABLE };
enum fingerprint_match fingerprint_compare(struct bytes a, struct bytes b);

/* A key for people, printable UTF-8, another one for every key: as given; a UUID's text; list
 * elements joined by ", "; sha256:HEX of KEY_LONG, list-sha256:HEX, body-sha256:HEX.  A backslash
 * is doubled, a comma within a value has one in front, and bytes that are not UTF-8 or not visible
 * are \xNN; so are a space at either end of a value and the first letter of a given key that would
 * pass for one of the others.  Of bytes that are no key of ours: ?\xNN… */
void key_text(struct bytes key, struct buf *out);

/* 64 bits to lock a key by (advisory lock): the first 8 bytes, big-endian, of the SHA-256 over
 * consumer_id (4 bytes, big-endian) and key.  The same in every process and version. */
uint64_t key_lock_id(uint32_t consumer_id, struct bytes key);

/* What handlers pass on as idempotency key: 43 characters of URL-safe base64 (no padding) of the
 * SHA-256 over consumer, key and step, each led by its length (u32).  step may be NULL, which is as
 * "". */
void key_idempotency(const char *consumer, struct bytes key, const char *step, struct buf *out);

#endif

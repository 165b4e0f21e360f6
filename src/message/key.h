/* SPDX-License-Identifier: MIT */
/* Keys and fingerprints: what makes two deliveries the same message, and the same content.  Pure.
 *
 * A key is bytes led by one byte that tells its kind, so that none can pass for another:
 *   KEY_GIVEN  the value as given, at most KEY_MAX bytes
 *   KEY_UUID   16 bytes, where the value was a UUID in its canonical text (lower case, hyphens):
 *              another spelling is another key
 *   KEY_LONG   SHA-256 of a longer value
 *   KEY_LIST   several values, each led by its length (u16) - CloudEvents too
 *   KEY_LONG_LIST  SHA-256 of a longer list
 *   KEY_BODY   SHA-256 of the body
 * A fingerprint is one kind byte and the first 16 bytes of a SHA-256; for a list of fields two bytes
 * of the rule's own hash stand between, so that only fingerprints made by the same rule compare.
 */
#ifndef INBOXD_MESSAGE_KEY_H
#define INBOXD_MESSAGE_KEY_H

#include "message/source.h"

#define KEY_MAX 255
#define KEY_SIZE_MAX (KEY_MAX + 1)
#define FINGERPRINT_SIZE_MAX 19

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

/* Compiles a rule from the texts of its sources; RC_FATAL with *ret_bad the index of the wrong one.
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
	KEY_MISSING,  /* no key, and the rule says park */
	KEY_UNUSABLE, /* there is one, but it cannot be used; err says why */
};
enum key_result key_extract(const struct key_rule *rule, const struct source_message *sm,
	struct buf *ret_key, struct err *err);

/* Appends the fingerprint; nothing for `none`.  false with err: a field cannot be used. */
bool fingerprint_compute(const struct fingerprint_rule *rule, const struct source_message *sm,
	struct buf *ret, struct err *err);

enum fingerprint_match { FINGERPRINT_SAME, FINGERPRINT_DIFFERENT, FINGERPRINT_INCOMPARABLE };
enum fingerprint_match fingerprint_compare(struct bytes a, struct bytes b);

/* A key for people: as given, a UUID's text, sha256:hex…, list elements joined by ", ". */
void key_text(struct bytes key, struct buf *out);

/* 64 bits to lock a key by (advisory lock), from namespace and key. */
uint64_t key_lock_id(uint32_t consumer_id, struct bytes key);

/* What handlers pass on as idempotency key: 43 characters of URL-safe base64 of a SHA-256 over
 * consumer, key and step. */
void key_idempotency(const char *consumer, struct bytes key, const char *step, struct buf *out);

#endif

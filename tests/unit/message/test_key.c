/* SPDX-License-Identifier: MIT */
/* Keys and fingerprints are stored, so their bytes are checked against values worked out elsewhere.
 */
#include "message/key.h"

#include "maker.h"
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>

static struct maker mk;
static struct buf key, text;
static struct err err;

#define SOURCES(...) \
	(const char *const[]){__VA_ARGS__}, (sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *))

static struct key_rule rule_of(const char *const *sources, size_t n, enum on_missing_key on_missing)
{
	struct key_rule rule;
	size_t bad;
	ck_assert_msg(
		key_rule_parse(sources, n, on_missing, &rule, &bad, &err) == RC_OK, "%s", err.text);
	return rule;
}

static enum key_result extract(const char *const *sources, size_t n, enum on_missing_key on_missing,
	const struct source_message *sm)
{
	struct key_rule rule = rule_of(sources, n, on_missing);
	buf_clear(&key);
	err.text[0] = '\0';
	enum key_result result = key_extract(&rule, sm, &key, &err);
	key_rule_done(&rule);
	return result;
}

static void expect_key(enum key_kind kind, const void *rest, size_t size)
{
	ck_assert_uint_eq(key.size, size + 1);
	ck_assert_uint_eq(key.data[0], kind);
	ck_assert_mem_eq(key.data + 1, rest, size);
}

static const char *hex(const uint8_t *p, size_t n)
{
	static char digits[2 * KEY_SIZE_MAX + 1];
	for (size_t i = 0; i < n; i++)
		(void)snprintf(digits + 2 * i, 3, "%02x", p[i]);
	return digits;
}

static const struct source_message *with_id(const char *id)
{
	maker_begin(&mk);
	maker_text(&mk, PROP_MESSAGE_ID, id);
	maker_body(&mk, "{}");
	return maker_end(&mk);
}

static const struct source_message *with_body(const char *body)
{
	maker_begin(&mk);
	maker_body(&mk, body);
	return maker_end(&mk);
}

static const char *shown(void)
{
	buf_clear(&text);
	key_text(buf_bytes(&key), &text);
	return buf_str(&text);
}

#define OF_BRACES "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"

/* ---- keys ------------------------------------------------------------------------ */

START_TEST(a_short_value_is_the_key_as_given)
{
	ck_assert_int_eq(extract(NULL, 0, ON_MISSING_KEY_PARK, with_id("abc")), KEY_OK);
	expect_key(KEY_GIVEN, "abc", 3);
	ck_assert_int_eq(
		extract(SOURCES("message_id"), ON_MISSING_KEY_PARK, with_id("\xff\xfe-")), KEY_OK);
	expect_key(KEY_GIVEN, "\xff\xfe-", 3);
}
END_TEST

START_TEST(only_a_canonical_uuid_is_shortened)
{
	static const char *const as_given[] = {"0B0C6F5E-5F8A-4A2B-9D1C-1234567890AB",
		"0b0c6f5e5f8a4a2b9d1c1234567890ab", "{0b0c6f5e-5f8a-4a2b-9d1c-1234567890ab}",
		"0b0c6f5e-5f8a-4a2b-9d1c-1234567890a", "0b0c6f5e-5f8a-4a2b-9d1c-1234567890ag",
		"0b0c6f5e-5f8a-4a2b-9d1c01234567890ab", "0b0c6f5ea5f8a-4a2b-9d1c-1234567890ab",
		"0b0c6f5e-5f8a-4a2b-9d1c-1234567890ab "};
	static const uint8_t uuid[] = {0x0b, 0x0c, 0x6f, 0x5e, 0x5f, 0x8a, 0x4a, 0x2b, 0x9d, 0x1c,
		0x12, 0x34, 0x56, 0x78, 0x90, 0xab};
	ck_assert_int_eq(extract(NULL, 0, ON_MISSING_KEY_PARK,
				 with_id("0b0c6f5e-5f8a-4a2b-9d1c-1234567890ab")),
		KEY_OK);
	expect_key(KEY_UUID, uuid, sizeof uuid);
	ck_assert_str_eq(shown(), "0b0c6f5e-5f8a-4a2b-9d1c-1234567890ab");
	for (size_t i = 0; i < sizeof as_given / sizeof as_given[0]; i++) {
		ck_assert_int_eq(
			extract(NULL, 0, ON_MISSING_KEY_PARK, with_id(as_given[i])), KEY_OK);
		expect_key(KEY_GIVEN, as_given[i], strlen(as_given[i]));
	}
}
END_TEST

START_TEST(a_value_too_long_for_an_index_becomes_its_hash)
{
	char value[257];
	memset(value, 'a', 256);
	value[255] = '\0';
	maker_begin(&mk);
	maker_header(&mk, "k", value);
	ck_assert_int_eq(extract(SOURCES("header:k"), ON_MISSING_KEY_PARK, maker_end(&mk)), KEY_OK);
	expect_key(KEY_GIVEN, value, 255);
	value[255] = 'a';
	value[256] = '\0';
	maker_begin(&mk);
	maker_header(&mk, "k", value);
	ck_assert_int_eq(extract(SOURCES("header:k"), ON_MISSING_KEY_PARK, maker_end(&mk)), KEY_OK);
	ck_assert_uint_eq(key.data[0], KEY_LONG);
	ck_assert_str_eq(hex(key.data + 1, key.size - 1),
		"02d7160d77e18c6447be80c2e355c7ed4388545271702c50253b0914c65ce5fe");
	ck_assert_str_eq(
		shown(), "sha256:02d7160d77e18c6447be80c2e355c7ed4388545271702c50253b0914c65ce5fe");
}
END_TEST

START_TEST(a_body_as_key_is_its_hash)
{
	ck_assert_int_eq(extract(SOURCES("body"), ON_MISSING_KEY_PARK, with_body("{}")), KEY_OK);
	ck_assert_uint_eq(key.data[0], KEY_BODY);
	ck_assert_str_eq(hex(key.data + 1, key.size - 1), OF_BRACES);
	ck_assert_str_eq(shown(), "body-sha256:" OF_BRACES);
}
END_TEST

START_TEST(lists_are_joined_without_ambiguity)
{
	static const char *const pairs[][2] = {
		{"a", "bc"}, {"ab", "c"}, {"a,", "bc"}, {"a", ",bc"}};
	uint8_t seen[4][KEY_SIZE_MAX];
	size_t sizes[4];
	for (size_t i = 0; i < 4; i++) {
		maker_begin(&mk);
		maker_header(&mk, "m", pairs[i][0]);
		maker_text(&mk, PROP_MESSAGE_ID, pairs[i][1]);
		ck_assert_int_eq(extract(SOURCES("header:m", "message_id"), ON_MISSING_KEY_PARK,
					 maker_end(&mk)),
			KEY_OK);
		memcpy(seen[i], key.data, key.size);
		sizes[i] = key.size;
		for (size_t k = 0; k < i; k++)
			ck_assert(!bytes_equal(
				bytes_of(seen[k], sizes[k]), bytes_of(seen[i], sizes[i])));
	}
	key.size = sizes[0];
	memcpy(key.data, seen[0], sizes[0]);
	expect_key(KEY_LIST, "\0\1a\0\2bc", 7);
	ck_assert_str_eq(shown(), "a, bc");
}
END_TEST

START_TEST(a_long_list_becomes_its_hash)
{
	char value[301];
	memset(value, 'a', 300);
	value[300] = '\0';
	maker_begin(&mk);
	maker_header(&mk, "m", "shop");
	maker_header(&mk, "k", value);
	ck_assert_int_eq(
		extract(SOURCES("header:m", "header:k"), ON_MISSING_KEY_PARK, maker_end(&mk)),
		KEY_OK);
	ck_assert_uint_eq(key.data[0], KEY_LONG_LIST);
	ck_assert_str_eq(hex(key.data + 1, key.size - 1),
		"cbb0b7fb3c4a6725947da6a72fe8dbe828a086b61bce0db5c73a46a6bb9629e1");
	ck_assert_ptr_eq(strstr(shown(), "list-sha256:cbb0b7fb"), shown());
}
END_TEST

START_TEST(an_element_longer_than_its_length_field_keeps_the_list_unambiguous)
{
	char *value = xcalloc(1, 70001);
	memset(value, 'x', 70000);
	maker_begin(&mk);
	maker_header(&mk, "m", "m");
	maker_header(&mk, "k", value);
	ck_assert_int_eq(
		extract(SOURCES("header:m", "header:k"), ON_MISSING_KEY_PARK, maker_end(&mk)),
		KEY_OK);
	ck_assert_uint_eq(key.data[0], KEY_LONG_LIST);
	ck_assert_str_eq(hex(key.data + 1, key.size - 1),
		"3d47fe6b537c010c3575d57b32d0a92114a47023035678e1b87fcdcdd83cae37");
	free(value);
}
END_TEST

START_TEST(a_body_in_a_list_stands_there_as_its_hash)
{
	maker_begin(&mk);
	maker_header(&mk, "m", "x");
	maker_body(&mk, "{}");
	ck_assert_int_eq(
		extract(SOURCES("header:m", "body"), ON_MISSING_KEY_PARK, maker_end(&mk)), KEY_OK);
	ck_assert_uint_eq(key.size, 1 + 3 + 2 + HASH_SIZE);
	ck_assert_str_eq(hex(key.data + 6, HASH_SIZE), OF_BRACES);
}
END_TEST

static void extract_event(const char *source, const char *id)
{
	maker_begin(&mk);
	maker_header(&mk, "cloudEvents:source", source);
	maker_header(&mk, "cloudEvents_id", id);
	ck_assert_int_eq(
		extract(SOURCES("cloudevents"), ON_MISSING_KEY_PARK, maker_end(&mk)), KEY_OK);
}

START_TEST(a_cloudevent_is_its_source_and_its_id)
{
	extract_event("a", "bc");
	expect_key(KEY_LIST, "\0\1a\0\2bc", 7);
	extract_event("ab", "c");
	expect_key(KEY_LIST, "\0\2ab\0\1c", 7);
	maker_begin(&mk);
	maker_text(&mk, PROP_CONTENT_TYPE, "application/cloudevents+json; charset=UTF-8");
	maker_body(&mk, "{\"source\":\"ab\",\"id\":\"c\"}");
	ck_assert_int_eq(
		extract(SOURCES("cloudevents"), ON_MISSING_KEY_PARK, maker_end(&mk)), KEY_OK);
	expect_key(KEY_LIST, "\0\2ab\0\1c", 7);
	maker_header(&mk, "t", "tenant");
	ck_assert_int_eq(
		extract(SOURCES("header:t", "cloudevents"), ON_MISSING_KEY_PARK, maker_end(&mk)),
		KEY_OK);
	expect_key(KEY_LIST, "\0\6tenant\0\2ab\0\1c", 15);
}
END_TEST

START_TEST(numbers_are_keys_by_their_literal_token)
{
	static const char *const same[] = {"{\"id\":42}", "{\"id\":\"42\"}"};
	static const char *const others[] = {"{\"id\":42.0}", "{\"id\":4.2e1}"};
	for (size_t i = 0; i < 2; i++) {
		ck_assert_int_eq(
			extract(SOURCES("json:/id"), ON_MISSING_KEY_PARK, with_body(same[i])),
			KEY_OK);
		expect_key(KEY_GIVEN, "42", 2);
		ck_assert_int_eq(
			extract(SOURCES("json:/id"), ON_MISSING_KEY_PARK, with_body(others[i])),
			KEY_OK);
		expect_key(KEY_GIVEN, strchr(others[i], ':') + 1, strlen(others[i]) - 7);
	}
	ck_assert_int_eq(extract(SOURCES("json:/id"), ON_MISSING_KEY_PARK,
				 with_body("{\"id\":9007199254740993}")),
		KEY_OK);
	expect_key(KEY_GIVEN, "9007199254740993", 16);
	ck_assert_int_eq(extract(SOURCES("json:/id"), ON_MISSING_KEY_PARK,
				 with_body("{\"id\":\"a\\u0000b\"}")),
		KEY_OK);
	expect_key(KEY_GIVEN, "a\0b", 3);
}
END_TEST

START_TEST(present_but_empty_is_missing)
{
	ck_assert_int_eq(extract(NULL, 0, ON_MISSING_KEY_PARK, with_id("")), KEY_MISSING);
	ck_assert_str_eq(err.text, "message_id is missing or empty");
	ck_assert_uint_eq(key.size, 0);
	ck_assert_int_eq(
		extract(SOURCES("json:/id"), ON_MISSING_KEY_PARK, with_body("{\"id\":\"\"}")),
		KEY_MISSING);
	ck_assert_int_eq(
		extract(SOURCES("json:/id"), ON_MISSING_KEY_PARK, with_body("{\"id\":null}")),
		KEY_MISSING);
	ck_assert_int_eq(extract(SOURCES("body"), ON_MISSING_KEY_PARK, with_body("")), KEY_MISSING);
	ck_assert_int_eq(
		extract(SOURCES("header:m", "message_id"), ON_MISSING_KEY_PARK, with_id("abc")),
		KEY_MISSING);
	ck_assert_str_eq(err.text, "header:m is missing or empty");
	ck_assert_uint_eq(key.size, 0);
}
END_TEST

START_TEST(the_rule_says_what_becomes_of_a_message_without_key)
{
	ck_assert_int_eq(extract(NULL, 0, ON_MISSING_KEY_PROCESS, with_body("{}")), KEY_NONE);
	ck_assert_uint_eq(key.size, 0);
	ck_assert_int_eq(extract(NULL, 0, ON_MISSING_KEY_BODY, with_body("{}")), KEY_OK);
	ck_assert_uint_eq(key.data[0], KEY_BODY);
	ck_assert_str_eq(hex(key.data + 1, key.size - 1), OF_BRACES);
	ck_assert_int_eq(extract(NULL, 0, ON_MISSING_KEY_BODY, with_body("")), KEY_MISSING);
	ck_assert_ptr_nonnull(strstr(err.text, "and so is the body"));
	ck_assert_int_eq(extract(NULL, 0, ON_MISSING_KEY_BODY, with_id("abc")), KEY_OK);
	expect_key(KEY_GIVEN, "abc", 3);
	maker_begin(&mk);
	mk.message.body_size = 7;
	ck_assert_int_eq(extract(NULL, 0, ON_MISSING_KEY_BODY, maker_end(&mk)), KEY_UNUSABLE);
}
END_TEST

START_TEST(a_key_that_cannot_be_read_is_unusable_whatever_the_rule_says)
{
	static const enum on_missing_key policies[] = {
		ON_MISSING_KEY_PARK, ON_MISSING_KEY_BODY, ON_MISSING_KEY_PROCESS};
	for (size_t i = 0; i < 3; i++) {
		ck_assert_int_eq(
			extract(SOURCES("json:/id"), policies[i], with_body("{\"id\":[]}")),
			KEY_UNUSABLE);
		ck_assert_str_eq(err.text, "json:/id is an array, not a single value");
		ck_assert_int_eq(
			extract(SOURCES("json:/id"), policies[i], with_body("nan")), KEY_UNUSABLE);
		ck_assert_ptr_nonnull(strstr(err.text, "not JSON"));
		ck_assert_uint_eq(key.size, 0);
	}
}
END_TEST

START_TEST(a_key_is_appended_to_what_is_there)
{
	struct key_rule rule = rule_of(SOURCES("header:m", "message_id"), ON_MISSING_KEY_PARK);
	maker_begin(&mk);
	maker_header(&mk, "m", "x");
	maker_text(&mk, PROP_MESSAGE_ID, "y");
	const struct source_message *sm = maker_end(&mk);
	buf_clear(&key);
	buf_add_str(&key, "before");
	ck_assert_int_eq(key_extract(&rule, sm, &key, &err), KEY_OK);
	ck_assert_mem_eq(key.data, "before\4\0\1x\0\1y", 13);
	ck_assert_uint_eq(key.size, 13);
	ck_assert_int_eq(key_extract(&rule, with_id("y"), &key, &err), KEY_MISSING);
	ck_assert_uint_eq(key.size, 13);
	key_rule_done(&rule);
}
END_TEST

/* ---- rules ----------------------------------------------------------------------- */

static const char *canonical(const char *const *sources, size_t n, enum on_missing_key on_missing)
{
	static char copy[400];
	struct key_rule rule = rule_of(sources, n, on_missing);
	(void)snprintf(copy, sizeof copy, "%s", rule.text);
	key_rule_done(&rule);
	return copy;
}

START_TEST(a_rule_has_one_text)
{
	ck_assert_str_eq(canonical(NULL, 0, ON_MISSING_KEY_PARK), "message_id");
	ck_assert_str_eq(
		canonical(SOURCES("property:message_id"), ON_MISSING_KEY_PROCESS), "message_id");
	ck_assert_str_eq(canonical(SOURCES("header:merchant", "message_id"), ON_MISSING_KEY_PARK),
		"header:merchant,message_id");
	ck_assert_str_eq(
		canonical(SOURCES("json:/id"), ON_MISSING_KEY_BODY), "json:/id|missing=body");
	ck_assert_str_eq(
		canonical(SOURCES("header:a,message_id|missing=body\\"), ON_MISSING_KEY_PARK),
		"header:a\\,message_id\\|missing=body\\\\");
}
END_TEST

static void expect_bad_rule(
	const char *const *sources, size_t n, size_t expected_bad, const char *reason)
{
	struct key_rule rule;
	size_t bad = 99;
	ck_assert_int_eq(
		key_rule_parse(sources, n, ON_MISSING_KEY_PARK, &rule, &bad, &err), RC_FATAL);
	ck_assert_uint_eq(bad, expected_bad);
	ck_assert_msg(strstr(err.text, reason) != NULL, "%s", err.text);
}

START_TEST(refuses_rules_that_would_swallow_or_repeat_messages)
{
	const char *many[KEY_SOURCES_MAX + 1];
	char names[KEY_SOURCES_MAX + 1][16];
	for (size_t i = 0; i <= KEY_SOURCES_MAX; i++) {
		(void)snprintf(names[i], sizeof names[i], "header:h%zu", i);
		many[i] = names[i];
	}
	expect_bad_rule(SOURCES("property:timestamp"), 0, "property:timestamp is a time");
	expect_bad_rule(SOURCES("message_id", "property:correlation_id"), 1, "is shared by all");
	expect_bad_rule(SOURCES("header:x-death"), 0, "changes from delivery to delivery");
	expect_bad_rule(SOURCES("message_id", "redelivered"), 1, "redelivered is no source");
	expect_bad_rule(
		SOURCES("json:/a", "message_id", "json:/a"), 2, "json:/a stands here twice");
	expect_bad_rule(SOURCES("message_id", "property:message_id"), 1, "stands here twice");
	expect_bad_rule(SOURCES("property:app_id", "property:content_type"), 0, "shared by many");
	expect_bad_rule(SOURCES("json:/a", "nonsense"), 1, "\"nonsense\" is no source");
	expect_bad_rule(many, KEY_SOURCES_MAX + 1, KEY_SOURCES_MAX, "at most 16");
	struct key_rule rule = rule_of(many, KEY_SOURCES_MAX, ON_MISSING_KEY_PARK);
	key_rule_done(&rule);
	key_rule_done(&rule);
	key_rule_done(NULL);
	rule = rule_of(SOURCES("property:app_id", "message_id"), ON_MISSING_KEY_PARK);
	key_rule_done(&rule);
}
END_TEST

/* ---- fingerprints ---------------------------------------------------------------- */

static struct buf print;

static bool compute(const char *const *sources, size_t n, const struct source_message *sm)
{
	struct fingerprint_rule rule;
	size_t bad;
	ck_assert_msg(
		fingerprint_rule_parse(sources, n, &rule, &bad, &err) == RC_OK, "%s", err.text);
	buf_clear(&print);
	bool ok = fingerprint_compute(&rule, sm, &print, &err);
	fingerprint_rule_done(&rule);
	return ok;
}

static enum fingerprint_match compare_bodies(
	const char *const *sources, size_t n, const char *a, const char *b)
{
	uint8_t first[FINGERPRINT_SIZE_MAX];
	ck_assert(compute(sources, n, with_body(a)));
	size_t size = print.size;
	ck_assert_uint_le(size, sizeof first);
	memcpy(first, print.data, size);
	ck_assert(compute(sources, n, with_body(b)));
	return fingerprint_compare(bytes_of(first, size), buf_bytes(&print));
}

START_TEST(the_body_is_the_usual_fingerprint)
{
	ck_assert(compute(NULL, 0, with_body("{}")));
	ck_assert_uint_eq(print.size, 1 + FINGERPRINT_HASH_SIZE);
	ck_assert_uint_eq(print.data[0], FINGERPRINT_BODY);
	ck_assert_str_eq(hex(print.data + 1, 16), "44136fa355b3678a1146ad16f7e8649e");
	ck_assert_int_eq(compare_bodies(SOURCES("body"), "a", "a"), FINGERPRINT_SAME);
	ck_assert_int_eq(compare_bodies(SOURCES("body"), "a", "b"), FINGERPRINT_DIFFERENT);
	ck_assert_int_eq(compare_bodies(SOURCES("body"), "", "b"), FINGERPRINT_DIFFERENT);
}
END_TEST

START_TEST(nothing_but_the_body_counts_for_it)
{
	uint8_t first[FINGERPRINT_SIZE_MAX];
	ck_assert(compute(NULL, 0, with_body("x")));
	memcpy(first, print.data, print.size);
	maker_begin(&mk);
	maker_body(&mk, "x");
	maker_header(&mk, "x-death", "1");
	mk.message.redelivered = true;
	mk.props.present |= 1u << PROP_TIMESTAMP;
	ck_assert(compute(NULL, 0, maker_end(&mk)));
	ck_assert_mem_eq(first, print.data, print.size);
}
END_TEST

START_TEST(chosen_fields_are_compared_and_nothing_else)
{
	ck_assert(compute(SOURCES("json:/amount", "json:/currency", "header:none"),
		with_body("{\"amount\":1.50,\"currency\":\"EUR\"}")));
	ck_assert_uint_eq(print.size, FINGERPRINT_SIZE_MAX);
	ck_assert_str_eq(hex(print.data, print.size), "02f6517f35076b7fb86ee7cb61ecb0c9ba314b");
	ck_assert_int_eq(
		compare_bodies(SOURCES("json:/a"), "{\"a\":1,\"t\":1}", "{\"t\":2,\"a\":1}"),
		FINGERPRINT_SAME);
	ck_assert_int_eq(compare_bodies(SOURCES("json:/a"), "{\"a\":1.0}", "{\"a\":1.00}"),
		FINGERPRINT_DIFFERENT);
}
END_TEST

START_TEST(missing_and_empty_fields_differ_and_borders_show)
{
	ck_assert_int_eq(
		compare_bodies(SOURCES("json:/a"), "{}", "{\"a\":\"\"}"), FINGERPRINT_DIFFERENT);
	ck_assert_int_eq(
		compare_bodies(SOURCES("json:/a"), "{}", "{\"a\":null}"), FINGERPRINT_SAME);
	ck_assert_int_eq(compare_bodies(SOURCES("json:/a", "json:/b"), "{\"a\":\"xy\",\"b\":\"z\"}",
				 "{\"a\":\"x\",\"b\":\"yz\"}"),
		FINGERPRINT_DIFFERENT);
	ck_assert_int_eq(
		compare_bodies(SOURCES("json:/a", "json:/b"), "{\"a\":\"x\"}", "{\"b\":\"x\"}"),
		FINGERPRINT_DIFFERENT);
}
END_TEST

START_TEST(a_field_that_cannot_be_read_gives_no_fingerprint)
{
	ck_assert(!compute(SOURCES("header:h", "json:/a"), with_body("{\"a\":{}}")));
	ck_assert_ptr_nonnull(strstr(err.text, "json:/a is an object"));
	ck_assert_uint_eq(print.size, 0);
	ck_assert(!compute(SOURCES("json:/a"), with_body("x")));
	maker_begin(&mk);
	mk.message.body_size = 7;
	ck_assert(!compute(NULL, 0, maker_end(&mk)));
	ck_assert_uint_eq(print.size, 0);
}
END_TEST

START_TEST(only_fingerprints_of_the_same_making_are_compared)
{
	uint8_t body[FINGERPRINT_SIZE_MAX], fields[FINGERPRINT_SIZE_MAX];
	const struct source_message *sm = with_body("{\"a\":1,\"b\":1}");
	ck_assert(compute(NULL, 0, sm));
	memcpy(body, print.data, print.size);
	struct bytes b = bytes_of(body, print.size);
	ck_assert(compute(SOURCES("json:/a"), sm));
	memcpy(fields, print.data, print.size);
	struct bytes f = bytes_of(fields, print.size), none = {0};
	ck_assert_int_eq(fingerprint_compare(b, f), FINGERPRINT_INCOMPARABLE);
	ck_assert_int_eq(fingerprint_compare(f, b), FINGERPRINT_INCOMPARABLE);
	ck_assert(compute(SOURCES("json:/b"), sm));
	ck_assert_int_eq(fingerprint_compare(f, buf_bytes(&print)), FINGERPRINT_INCOMPARABLE);
	ck_assert(compute(SOURCES("none"), sm));
	ck_assert_uint_eq(print.size, 0);
	ck_assert_int_eq(fingerprint_compare(b, none), FINGERPRINT_INCOMPARABLE);
	ck_assert_int_eq(fingerprint_compare(none, none), FINGERPRINT_INCOMPARABLE);
	ck_assert_int_eq(fingerprint_compare(bytes_of(body, 16), bytes_of(body, 16)),
		FINGERPRINT_INCOMPARABLE);
	ck_assert_int_eq(fingerprint_compare(bytes_str("\3bcdefghijklmnopqrs"),
				 bytes_str("\3bcdefghijklmnopqrs")),
		FINGERPRINT_INCOMPARABLE);
}
END_TEST

START_TEST(a_streamed_body_has_the_same_fingerprint)
{
	struct hash h = {0};
	uint8_t hash[HASH_SIZE];
	struct buf streamed = {0};
	hash_begin(&h);
	hash_add(&h, bytes_str("{"));
	hash_add(&h, bytes_str("}"));
	hash_end(&h, hash);
	fingerprint_of_body(hash, &streamed);
	ck_assert(compute(NULL, 0, with_body("{}")));
	ck_assert_int_eq(
		fingerprint_compare(buf_bytes(&streamed), buf_bytes(&print)), FINGERPRINT_SAME);
	hash_done(&h);
	buf_done(&streamed);
}
END_TEST

START_TEST(a_fingerprint_rule_has_one_text)
{
	struct fingerprint_rule rule;
	size_t bad = 99;
	ck_assert_int_eq(fingerprint_rule_parse(NULL, 0, &rule, &bad, &err), RC_OK);
	ck_assert_str_eq(rule.text, "body");
	fingerprint_rule_done(&rule);
	ck_assert_int_eq(fingerprint_rule_parse(SOURCES("none"), &rule, &bad, &err), RC_OK);
	ck_assert_str_eq(rule.text, "none");
	ck_assert(rule.none);
	fingerprint_rule_done(&rule);
	ck_assert_int_eq(
		fingerprint_rule_parse(SOURCES("json:/a", "body"), &rule, &bad, &err), RC_OK);
	ck_assert_str_eq(rule.text, "json:/a,body");
	fingerprint_rule_done(&rule);
	fingerprint_rule_done(&rule);
	fingerprint_rule_done(NULL);
	ck_assert_int_eq(
		fingerprint_rule_parse(SOURCES("json:/a", "none"), &rule, &bad, &err), RC_FATAL);
	ck_assert_uint_eq(bad, 1);
	ck_assert_ptr_nonnull(strstr(err.text, "stands alone"));
	ck_assert_int_eq(
		fingerprint_rule_parse(SOURCES("json:/a", "header:x-death"), &rule, &bad, &err),
		RC_FATAL);
	ck_assert_uint_eq(bad, 1);
}
END_TEST

/* ---- forms for people and servers ------------------------------------------------ */

static const char *text_of(const char *raw, size_t size)
{
	buf_clear(&text);
	key_text(bytes_of(raw, size), &text);
	return buf_str(&text);
}

START_TEST(a_key_shows_as_printable_text)
{
	ck_assert_str_eq(text_of("\1abc", 4), "abc");
	ck_assert_str_eq(text_of("\1a b\xc3\xa9", 6), "a b\xc3\xa9");
	ck_assert_str_eq(text_of("\1\xff\xfe-", 4), "\\xff\\xfe-");
	ck_assert_str_eq(text_of("\1a\0\n\x1b", 5), "a\\x00\\x0a\\x1b");
	ck_assert_str_eq(text_of("\1a\\xff", 6), "a\\\\xff");
	ck_assert_str_eq(text_of("\1 a ", 4), "\\x20a\\x20");
	ck_assert_str_eq(text_of("\1\xe2\x80\xa8-", 5), "\\xe2\\x80\\xa8-");
	ck_assert_str_eq(text_of("\4\0\1a\0\3b,c", 9), "a, b\\,c");
}
END_TEST

START_TEST(no_two_keys_show_the_same)
{
	ck_assert_str_eq(text_of("\1a, b", 5), "a\\, b");
	ck_assert_str_eq(text_of("\1sha256:00", 10), "\\x73ha256:00");
	ck_assert_str_eq(text_of("\1list-sha256:00", 15), "\\x6cist-sha256:00");
	ck_assert_str_eq(text_of("\1body-sha256:00", 15), "\\x62ody-sha256:00");
	ck_assert_str_eq(text_of("\1?\\x01", 6), "\\x3f\\\\x01");
	ck_assert_str_eq(text_of("\1? a", 4), "\\x3f a");
	ck_assert_str_eq(text_of("\4\0\1a", 4), "?\\x04\\x00\\x01\\x61");
}
END_TEST

START_TEST(bytes_that_are_no_key_show_as_such)
{
	ck_assert_str_eq(text_of("", 0), "?");
	ck_assert_str_eq(text_of("\1", 1), "?\\x01");
	ck_assert_str_eq(text_of("\x09x", 2), "?\\x09\\x78");
	ck_assert_str_eq(text_of("\2x", 2), "?\\x02\\x78");
	ck_assert_str_eq(text_of("\3x", 2), "?\\x03\\x78");
	ck_assert_str_eq(text_of("\4\0\5a", 4), "?\\x04\\x00\\x05\\x61");
}
END_TEST

START_TEST(locks_are_the_same_in_every_process_and_version)
{
	ck_assert_uint_eq(key_lock_id(7, bytes_str("\1abc")), UINT64_C(139537991409019054));
	ck_assert_uint_ne(key_lock_id(8, bytes_str("\1abc")), UINT64_C(139537991409019054));
	ck_assert_uint_ne(key_lock_id(7, bytes_str("\1abd")), UINT64_C(139537991409019054));
}
END_TEST

static const char *idempotency(const char *consumer, const char *raw, const char *step)
{
	buf_clear(&text);
	key_idempotency(consumer, bytes_str(raw), step, &text);
	return buf_str(&text);
}

START_TEST(idempotency_keys_depend_on_consumer_key_and_step)
{
	ck_assert_str_eq(idempotency("orders", "\1abc", "charge"),
		"zRKdutahk8ySdxalJaqS3uh4U0MTK_OGPNBBB5dE-fU");
	ck_assert_str_eq(idempotency("orders", "\1abc", NULL),
		"orJiIvFcCcxxXhd96veXEcV73_7Lzrw1mxwtyHkBUaE");
	ck_assert_str_eq(
		idempotency("orders", "\1abc", ""), "orJiIvFcCcxxXhd96veXEcV73_7Lzrw1mxwtyHkBUaE");
	ck_assert_str_ne(idempotency("order", "s\1abc", NULL),
		"orJiIvFcCcxxXhd96veXEcV73_7Lzrw1mxwtyHkBUaE");
}
END_TEST

UNIT_SUITE("message/key", a_short_value_is_the_key_as_given, only_a_canonical_uuid_is_shortened,
	a_value_too_long_for_an_index_becomes_its_hash, a_body_as_key_is_its_hash,
	lists_are_joined_without_ambiguity, a_long_list_becomes_its_hash,
	an_element_longer_than_its_length_field_keeps_the_list_unambiguous,
	a_body_in_a_list_stands_there_as_its_hash, a_cloudevent_is_its_source_and_its_id,
	numbers_are_keys_by_their_literal_token, present_but_empty_is_missing,
	the_rule_says_what_becomes_of_a_message_without_key,
	a_key_that_cannot_be_read_is_unusable_whatever_the_rule_says,
	a_key_is_appended_to_what_is_there, a_rule_has_one_text,
	refuses_rules_that_would_swallow_or_repeat_messages, the_body_is_the_usual_fingerprint,
	nothing_but_the_body_counts_for_it, chosen_fields_are_compared_and_nothing_else,
	missing_and_empty_fields_differ_and_borders_show,
	a_field_that_cannot_be_read_gives_no_fingerprint,
	only_fingerprints_of_the_same_making_are_compared, a_streamed_body_has_the_same_fingerprint,
	a_fingerprint_rule_has_one_text, a_key_shows_as_printable_text, no_two_keys_show_the_same,
	bytes_that_are_no_key_show_as_such, locks_are_the_same_in_every_process_and_version,
	idempotency_keys_depend_on_consumer_key_and_step)

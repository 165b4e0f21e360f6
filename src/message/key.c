/* SPDX-License-Identifier: MIT */
/* Rules for keys and fingerprints, and what they make of a message.
 *
 * Everything is built in the caller's buffer behind what it holds, then shortened to its hash
 * there: the common path allocates nothing. */
#include "message/key.h"

#include "base/utf8.h"

#include <stdlib.h>

/* ---- rules ----------------------------------------------------------------------- */

static void sources_done(struct source *sources, size_t n)
{
	for (size_t i = 0; i < n; i++)
		source_done(&sources[i]);
	free(sources);
}

static bool is_same_source(const struct source *a, const struct source *b)
{
	return a->kind == b->kind && a->property == b->property &&
		bytes_equal(bytes_of(a->argument, a->argument_size),
			bytes_of(b->argument, b->argument_size));
}

/* A source that may stand in a rule, and stands there once. */
static enum rc parse_rule_source(
	const char *text, struct source *sources, size_t n, struct err *err)
{
	struct source s;
	if (source_parse(text, &s, err) != RC_OK)
		return RC_FATAL;
	const char *why = source_unfit_for_key(&s);
	for (size_t i = 0; i < n && why == NULL; i++)
		if (is_same_source(&s, &sources[i]))
			why = "stands here twice";
	if (why != NULL) {
		source_done(&s);
		return err_set(err, RC_FATAL, "%s %s", text, why);
	}
	sources[n] = s;
	return RC_OK;
}

static enum rc parse_sources(
	const char *const *texts, size_t n, struct source **ret, size_t *ret_bad, struct err *err)
{
	*ret_bad = 0;
	if (n > KEY_SOURCES_MAX) {
		*ret_bad = KEY_SOURCES_MAX;
		(void)err_set(err, RC_FATAL, "at most %d sources in one list", KEY_SOURCES_MAX);
		return RC_FATAL;
	}
	struct source *sources = xcalloc(n, sizeof *sources);
	for (size_t i = 0; i < n; i++)
		if (parse_rule_source(texts[i], sources, i, err) != RC_OK) {
			*ret_bad = i;
			sources_done(sources, i);
			return RC_FATAL;
		}
	*ret = sources;
	return RC_OK;
}

static void add_sources_text(const struct source *sources, size_t n, struct buf *out)
{
	struct buf text = {0};
	for (size_t i = 0; i < n; i++) {
		buf_clear(&text);
		source_text(&sources[i], &text);
		if (i != 0)
			buf_add_byte(out, ',');
		for (size_t k = 0; k < text.size; k++) {
			if (strchr(",|\\", text.data[k]) != NULL)
				buf_add_byte(out, '\\');
			buf_add_byte(out, text.data[k]);
		}
	}
	buf_done(&text);
}

/* Names of senders and formats: fine beside something that tells messages apart, never alone. */
static bool is_shared(const struct source *s)
{
	static const bool shared[PROP_COUNT] = {
		[PROP_CONTENT_TYPE] = true,
		[PROP_CONTENT_ENCODING] = true,
		[PROP_REPLY_TO] = true,
		[PROP_USER_ID] = true,
		[PROP_APP_ID] = true,
		[PROP_CLUSTER_ID] = true,
	};
	return s->kind == SOURCE_PROPERTY && shared[s->property];
}

enum rc key_rule_parse(const char *const *sources, size_t n, enum on_missing_key on_missing,
	struct key_rule *ret, size_t *ret_bad, struct err *err)
{
	static const char *const standard[] = {"message_id"};
	struct key_rule rule = {.on_missing = on_missing, .n = n != 0 ? n : 1};
	struct buf text = {0};
	if (parse_sources(n != 0 ? sources : standard, rule.n, &rule.sources, ret_bad, err) !=
		RC_OK)
		return RC_FATAL;
	size_t shared = 0;
	while (shared < rule.n && is_shared(&rule.sources[shared]))
		shared++;
	if (shared == rule.n) {
		key_rule_done(&rule);
		return err_set(err, RC_FATAL,
			"%s is shared by many messages: add what tells them apart, such as "
			"message_id",
			sources[0]);
	}
	add_sources_text(rule.sources, rule.n, &text);
	if (on_missing == ON_MISSING_KEY_BODY)
		buf_add_str(&text, "|missing=body");
	rule.text = xstrdup(buf_str(&text));
	buf_done(&text);
	*ret = rule;
	return RC_OK;
}

void key_rule_done(struct key_rule *r)
{
	if (r == NULL)
		return;
	sources_done(r->sources, r->n);
	free(r->text);
	*r = (struct key_rule){0};
}

enum rc fingerprint_rule_parse(const char *const *sources, size_t n, struct fingerprint_rule *ret,
	size_t *ret_bad, struct err *err)
{
	struct fingerprint_rule rule = {0};
	struct buf text = {0};
	uint8_t hash[HASH_SIZE];
	*ret_bad = 0;
	rule.none = n == 1 && strcmp(sources[0], "none") == 0;
	if (rule.none || n == 0 || (n == 1 && strcmp(sources[0], "body") == 0)) {
		rule.text = xstrdup(rule.none ? "none" : "body");
		*ret = rule;
		return RC_OK;
	}
	for (size_t i = 0; i < n; i++)
		if (strcmp(sources[i], "none") == 0) {
			*ret_bad = i;
			return err_set(err, RC_FATAL, "none stands alone, not among fields");
		}
	if (parse_sources(sources, n, &rule.sources, ret_bad, err) != RC_OK)
		return RC_FATAL;
	rule.n = n;
	add_sources_text(rule.sources, n, &text);
	hash_sha256(buf_bytes(&text), hash);
	memcpy(rule.rule_hash, hash, sizeof rule.rule_hash);
	rule.text = xstrdup(buf_str(&text));
	buf_done(&text);
	*ret = rule;
	return RC_OK;
}

void fingerprint_rule_done(struct fingerprint_rule *r)
{
	if (r == NULL)
		return;
	sources_done(r->sources, r->n);
	free(r->text);
	*r = (struct fingerprint_rule){0};
}

/* ---- keys ------------------------------------------------------------------------ */

static void err_source(struct err *err, const struct source *s, const char *text)
{
	struct buf name = {0};
	source_text(s, &name);
	(void)err_set(err, RC_REJECT, "%s %s", buf_str(&name), text);
	buf_done(&name);
}

/* Puts a hash in place of everything from `at` on. */
static void shorten(struct buf *b, size_t at)
{
	uint8_t hash[HASH_SIZE];
	hash_sha256(bytes_of(b->data + at, b->size - at), hash);
	b->size = at;
	buf_add(b, hash, sizeof hash);
}

static int hex_value(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool is_hyphen_place(size_t i)
{
	return i == 8 || i == 13 || i == 18 || i == 23;
}

/* Only the canonical text, so that the text can be had back from the bytes. */
static bool uuid_parse(struct bytes text, uint8_t ret[16])
{
	size_t n = 0;
	if (text.size != 36)
		return false;
	for (size_t i = 0; i < 36; i++) {
		if (is_hyphen_place(i)) {
			if (text.data[i] != '-')
				return false;
			continue;
		}
		int digit = hex_value(text.data[i]);
		if (digit < 0)
			return false;
		ret[n / 2] = (uint8_t)(n % 2 == 0 ? digit << 4 : ret[n / 2] | digit);
		n++;
	}
	return true;
}

static enum source_result body_hash(
	const struct source_message *sm, struct buf *out, struct err *err)
{
	struct bytes body;
	uint8_t hash[HASH_SIZE];
	if (source_body(sm, &body, err) != SOURCE_PRESENT)
		return SOURCE_UNUSABLE;
	if (body.size == 0)
		return SOURCE_MISSING;
	hash_sha256(body, hash);
	buf_add(out, hash, sizeof hash);
	return SOURCE_PRESENT;
}

static enum source_result source_key_value(
	const struct source *s, const struct source_message *sm, struct buf *out, struct err *err)
{
	size_t at = out->size;
	if (s->kind == SOURCE_BODY)
		return body_hash(sm, out, err);
	enum source_result result = source_get_scalar(s, sm, out, err);
	return result == SOURCE_PRESENT && out->size == at ? SOURCE_MISSING : result;
}

static enum source_result single_key(
	const struct source *s, const struct source_message *sm, struct buf *out, struct err *err)
{
	uint8_t uuid[16];
	size_t at = out->size;
	buf_add_byte(out, s->kind == SOURCE_BODY ? KEY_BODY : KEY_GIVEN);
	enum source_result result = source_key_value(s, sm, out, err);
	if (result != SOURCE_PRESENT || s->kind == SOURCE_BODY)
		return result;
	struct bytes value = bytes_of(out->data + at + 1, out->size - at - 1);
	if (value.size > KEY_MAX) {
		out->data[at] = KEY_LONG;
		shorten(out, at + 1);
	} else if (uuid_parse(value, uuid)) {
		out->data[at] = KEY_UUID;
		out->size = at + 1;
		buf_add(out, uuid, sizeof uuid);
	}
	return SOURCE_PRESENT;
}

/* Puts its length in front of the value that stands at `at`, size bytes long. */
static void lead_by_length(struct buf *b, size_t at, size_t size)
{
	size_t lead = size < 0xffff ? 2 : 10, end = b->size;
	(void)buf_reserve(b, lead);
	memmove(b->data + at + lead, b->data + at, end - at);
	b->size = at;
	buf_add_u16(b, (uint16_t)(size < 0xffff ? size : 0xffff));
	if (size >= 0xffff)
		buf_add_u64(b, size);
	b->size = end + lead;
}

static enum source_result list_element(
	const struct source *s, const struct source_message *sm, struct buf *out, struct err *err)
{
	size_t at = out->size, first = 0;
	bool is_event = s->kind == SOURCE_CLOUDEVENTS;
	enum source_result result = is_event ? source_get_cloudevent(sm, out, &first, err)
					     : source_key_value(s, sm, out, err);
	if (result != SOURCE_PRESENT)
		return result;
	if (is_event)
		lead_by_length(out, at + first, out->size - at - first);
	lead_by_length(out, at, is_event ? first : out->size - at);
	return SOURCE_PRESENT;
}

static enum source_result list_key(const struct key_rule *rule, const struct source_message *sm,
	struct buf *out, const struct source **ret_source, struct err *err)
{
	size_t at = out->size;
	buf_add_byte(out, KEY_LIST);
	for (size_t i = 0; i < rule->n; i++) {
		*ret_source = &rule->sources[i];
		enum source_result result = list_element(&rule->sources[i], sm, out, err);
		if (result != SOURCE_PRESENT)
			return result;
	}
	if (out->size - at - 1 > KEY_MAX) {
		out->data[at] = KEY_LONG_LIST;
		shorten(out, at + 1);
	}
	return SOURCE_PRESENT;
}

static enum key_result missing_key(const struct key_rule *rule, const struct source *missing,
	const struct source_message *sm, struct buf *out, struct err *err)
{
	size_t at = out->size;
	enum source_result result;
	switch (rule->on_missing) {
	case ON_MISSING_KEY_PARK:
		err_source(err, missing, "is missing or empty");
		return KEY_MISSING;
	case ON_MISSING_KEY_PROCESS:
		return KEY_NONE;
	case ON_MISSING_KEY_BODY:
		break;
	}
	buf_add_byte(out, KEY_BODY);
	result = body_hash(sm, out, err);
	if (result == SOURCE_PRESENT)
		return KEY_OK;
	out->size = at;
	if (result == SOURCE_UNUSABLE)
		return KEY_UNUSABLE;
	err_source(err, missing, "is missing, and so is the body that would stand in for it");
	return KEY_MISSING;
}

enum key_result key_extract(const struct key_rule *rule, const struct source_message *sm,
	struct buf *ret_key, struct err *err)
{
	size_t at = ret_key->size;
	const struct source *s = &rule->sources[0];
	bool is_single = rule->n == 1 && s->kind != SOURCE_CLOUDEVENTS;
	enum source_result result =
		is_single ? single_key(s, sm, ret_key, err) : list_key(rule, sm, ret_key, &s, err);
	if (result == SOURCE_PRESENT)
		return KEY_OK;
	ret_key->size = at;
	if (result == SOURCE_UNUSABLE)
		return KEY_UNUSABLE;
	return missing_key(rule, s, sm, ret_key, err);
}

/* ---- fingerprints ---------------------------------------------------------------- */

void fingerprint_of_body(const uint8_t sha256[HASH_SIZE], struct buf *ret)
{
	buf_add_byte(ret, FINGERPRINT_BODY);
	buf_add(ret, sha256, FINGERPRINT_HASH_SIZE);
}

static bool add_field(
	const struct source *s, const struct source_message *sm, struct buf *out, struct err *err)
{
	size_t at = out->size;
	buf_add_byte(out, 1);
	buf_add_u64(out, 0);
	size_t begin = out->size;
	switch (source_get_scalar(s, sm, out, err)) {
	case SOURCE_UNUSABLE:
		return false;
	case SOURCE_MISSING:
		out->size = at;
		buf_add_byte(out, 0);
		return true;
	case SOURCE_PRESENT:
		break;
	}
	size_t end = out->size;
	out->size = at + 1;
	buf_add_u64(out, end - begin);
	out->size = end;
	return true;
}

bool fingerprint_compute(const struct fingerprint_rule *rule, const struct source_message *sm,
	struct buf *ret, struct err *err)
{
	struct bytes body;
	uint8_t hash[HASH_SIZE];
	size_t at = ret->size;
	if (rule->none)
		return true;
	if (rule->n == 0) {
		if (source_body(sm, &body, err) != SOURCE_PRESENT)
			return false;
		hash_sha256(body, hash);
		fingerprint_of_body(hash, ret);
		return true;
	}
	for (size_t i = 0; i < rule->n; i++)
		if (!add_field(&rule->sources[i], sm, ret, err)) {
			ret->size = at;
			return false;
		}
	hash_sha256(bytes_of(ret->data + at, ret->size - at), hash);
	ret->size = at;
	buf_add_byte(ret, FINGERPRINT_FIELDS);
	buf_add(ret, rule->rule_hash, sizeof rule->rule_hash);
	buf_add(ret, hash, FINGERPRINT_HASH_SIZE);
	return true;
}

/* Length of what says how a fingerprint was made; 0 if it is none of ours. */
static size_t fingerprint_lead(struct bytes f)
{
	size_t lead = f.size == 0 ? 0 : f.data[0] == FINGERPRINT_BODY ? 1 : 3;
	if (lead == 3 && f.data[0] != FINGERPRINT_FIELDS)
		return 0;
	return f.size == lead + FINGERPRINT_HASH_SIZE ? lead : 0;
}

enum fingerprint_match fingerprint_compare(struct bytes a, struct bytes b)
{
	size_t lead = fingerprint_lead(a);
	if (lead == 0 || fingerprint_lead(b) != lead || memcmp(a.data, b.data, lead) != 0)
		return FINGERPRINT_INCOMPARABLE;
	return bytes_equal(a, b) ? FINGERPRINT_SAME : FINGERPRINT_DIFFERENT;
}

/* ---- forms for people and servers ------------------------------------------------ */

static void add_hex(struct buf *out, struct bytes b)
{
	static const char digits[] = "0123456789abcdef";
	for (size_t i = 0; i < b.size; i++) {
		buf_add_byte(out, (uint8_t)digits[b.data[i] >> 4]);
		buf_add_byte(out, (uint8_t)digits[b.data[i] & 15]);
	}
}

static void add_escaped_bytes(struct buf *out, struct bytes b)
{
	for (size_t i = 0; i < b.size; i++) {
		buf_add_str(out, "\\x");
		add_hex(out, bytes_of(b.data + i, 1));
	}
}

/* What stands in value from `from` on. */
static void add_visible(struct buf *out, struct bytes value, size_t from)
{
	for (size_t i = from; i < value.size;) {
		uint32_t c = 0;
		size_t n = utf8_decode(value.data + i, value.size - i, &c);
		bool is_outer_space = c == ' ' && (i == 0 || i + 1 == value.size);
		if (n == 0 || is_outer_space || !utf8_is_visible(c)) {
			n = n != 0 ? n : 1;
			add_escaped_bytes(out, bytes_of(value.data + i, n));
		} else {
			if (c == '\\' || c == ',')
				buf_add_byte(out, '\\');
			buf_add(out, value.data + i, n);
		}
		i += n;
	}
}

static const char *const hash_names[] = {
	[KEY_LONG] = "sha256:", [KEY_LONG_LIST] = "list-sha256:", [KEY_BODY] = "body-sha256:"};

static bool is_like_a_hash(struct bytes value)
{
	for (size_t i = 0; i < sizeof hash_names / sizeof hash_names[0]; i++) {
		struct bytes name = bytes_str(hash_names[i]);
		if (name.size != 0 && value.size >= name.size &&
			memcmp(value.data, name.data, name.size) == 0)
			return true;
	}
	return false;
}

static void add_given(struct buf *out, struct bytes value)
{
	bool is_like_another = value.data[0] == '?' || is_like_a_hash(value);
	if (is_like_another)
		add_escaped_bytes(out, bytes_of(value.data, 1));
	add_visible(out, value, is_like_another ? 1 : 0);
}

static void add_uuid(struct buf *out, struct bytes uuid)
{
	for (size_t i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			buf_add_byte(out, '-');
		add_hex(out, bytes_of(uuid.data + i, 1));
	}
}

/* False for what is no list of at least two. */
static bool add_list(struct buf *out, struct bytes list)
{
	struct reader r = reader_of(list);
	size_t n = 0;
	for (; reader_left(&r) != 0; n++) {
		struct bytes value = reader_bytes(&r, reader_u16(&r));
		if (r.bad)
			return false;
		if (n != 0)
			buf_add_str(out, ", ");
		add_visible(out, value, 0);
	}
	return n > 1;
}

static bool add_key(struct buf *out, uint8_t kind, struct bytes rest)
{
	switch (kind) {
	case KEY_GIVEN:
		add_given(out, rest);
		return true;
	case KEY_UUID:
		if (rest.size != 16)
			return false;
		add_uuid(out, rest);
		return true;
	case KEY_LIST:
		return add_list(out, rest);
	case KEY_LONG:
	case KEY_LONG_LIST:
	case KEY_BODY:
		if (rest.size != HASH_SIZE)
			return false;
		buf_add_str(out, hash_names[kind]);
		add_hex(out, rest);
		return true;
	default:
		return false;
	}
}

void key_text(struct bytes key, struct buf *out)
{
	size_t at = out->size;
	if (key.size > 1 && add_key(out, key.data[0], bytes_of(key.data + 1, key.size - 1)))
		return;
	out->size = at;
	buf_add_byte(out, '?');
	add_escaped_bytes(out, key);
}

uint64_t key_lock_id(uint32_t consumer_id, struct bytes key)
{
	const uint8_t id[] = {(uint8_t)(consumer_id >> 24), (uint8_t)(consumer_id >> 16),
		(uint8_t)(consumer_id >> 8), (uint8_t)consumer_id};
	const struct bytes parts[] = {bytes_of(id, sizeof id), key};
	uint8_t hash[HASH_SIZE];
	hash_sha256_parts(parts, 2, hash);
	struct reader r = reader_of(bytes_of(hash, sizeof hash));
	return reader_u64(&r);
}

static void add_base64url(struct buf *out, const uint8_t *p, size_t n)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	uint32_t bits = 0;
	unsigned have = 0;
	for (size_t i = 0; i < n; i++) {
		bits = bits << 8 | p[i];
		for (have += 8; have >= 6; have -= 6)
			buf_add_byte(out, (uint8_t)digits[bits >> (have - 6) & 63]);
	}
	if (have != 0)
		buf_add_byte(out, (uint8_t)digits[bits << (6 - have) & 63]);
}

void key_idempotency(const char *consumer, struct bytes key, const char *step, struct buf *out)
{
	const struct bytes values[] = {
		bytes_str(consumer), key, bytes_str(step != NULL ? step : "")};
	uint8_t hash[HASH_SIZE];
	size_t at = out->size;
	for (size_t i = 0; i < 3; i++) {
		buf_add_u32(out, (uint32_t)values[i].size);
		buf_add(out, values[i].data, values[i].size);
	}
	hash_sha256(bytes_of(out->data + at, out->size - at), hash);
	out->size = at;
	add_base64url(out, hash, sizeof hash);
}

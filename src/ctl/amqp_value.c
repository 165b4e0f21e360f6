/* SPDX-License-Identifier: MIT */
/* One table of types serves all directions. */
#include "ctl/amqp_value.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base64.h"
#include "base/fd.h"
#include "base/json_each.h"

enum shape {
	SHAPE_TEXT,
	SHAPE_BASE64,
	SHAPE_BOOL,
	SHAPE_SIGNED,
	SHAPE_UNSIGNED,
	SHAPE_REAL,
	SHAPE_DECIMAL,
	SHAPE_VOID,
	SHAPE_JSON,
	SHAPE_LITERAL, /* a table whatever its names are */
};

/* Letters as RabbitMQ takes them.  Of several types with one letter the first is what the letter is
 * called.  RabbitMQ knows no unsigned 64-bit integer; it stands here for what others may have
 * stored. */
static const struct type {
	const char *name;
	char letter;
	enum shape shape;
	uint8_t size; /* of numbers, in bytes */
} types[] = {
	{"string", 'S', SHAPE_TEXT, 0},
	{"string-base64", 'S', SHAPE_BASE64, 0},
	{"bytes", 'x', SHAPE_TEXT, 0},
	{"base64", 'x', SHAPE_BASE64, 0},
	{"bool", 't', SHAPE_BOOL, 1},
	{"int8", 'b', SHAPE_SIGNED, 1},
	{"uint8", 'B', SHAPE_UNSIGNED, 1},
	{"int16", 's', SHAPE_SIGNED, 2},
	{"uint16", 'u', SHAPE_UNSIGNED, 2},
	{"int32", 'I', SHAPE_SIGNED, 4},
	{"uint32", 'i', SHAPE_UNSIGNED, 4},
	{"int64", 'l', SHAPE_SIGNED, 8},
	{"int", 'l', SHAPE_SIGNED, 8},
	{"uint64", 'L', SHAPE_UNSIGNED, 8},
	{"float", 'f', SHAPE_REAL, 4},
	{"double", 'd', SHAPE_REAL, 8},
	{"decimal", 'D', SHAPE_DECIMAL, 5},
	{"timestamp", 'T', SHAPE_UNSIGNED, 8},
	{"void", 'V', SHAPE_VOID, 0},
	{"array", 'A', SHAPE_JSON, 0},
	{"json", '\0', SHAPE_JSON, 0},
	{"table", 'F', SHAPE_LITERAL, 0},
	{"array-base64", 'A', SHAPE_BASE64, 0}, /* for contents that cannot be shown otherwise */
	{"table-base64", 'F', SHAPE_BASE64, 0},
};
enum { N_TYPES = sizeof types / sizeof types[0] };

static const struct type *type_by_name(struct bytes name)
{
	for (size_t i = 0; i < N_TYPES; i++)
		if (bytes_equal(name, bytes_str(types[i].name)))
			return &types[i];
	return NULL;
}

const char *amqp_type_of_letter(uint8_t letter)
{
	for (size_t i = 0; i < N_TYPES; i++)
		if (types[i].letter == (char)letter)
			return types[i].name;
	return "?";
}

bool amqp_is_type(struct bytes name)
{
	return type_by_name(name) != NULL;
}

/* ---- numbers -------------------------------------------------------------------------------- */

static void add_number(struct buf *out, uint64_t v, size_t size)
{
	for (size_t i = size; i-- > 0;)
		buf_add_byte(out, (uint8_t)(v >> (8 * i)));
}

static enum rc bad_value(const struct type *t, const char *text, struct err *err)
{
	return err_set(err, RC_REJECT, "\"%s\" is no %s", text, t->name);
}

static enum rc add_signed(struct buf *out, const struct type *t, const char *text, struct err *err)
{
	char *end;
	errno = 0;
	long long v = strtoll(text, &end, 10);
	int64_t most = t->size == 8 ? INT64_MAX : (INT64_C(1) << (8 * t->size - 1)) - 1;
	if (isspace((unsigned char)text[0]) || end == text || *end != '\0' || errno != 0 ||
		v > most || v < -most - 1)
		return bad_value(t, text, err);
	add_number(out, (uint64_t)v, t->size);
	return RC_OK;
}

static enum rc add_unsigned(
	struct buf *out, const struct type *t, const char *text, struct err *err)
{
	char *end;
	errno = 0;
	unsigned long long v = strtoull(text, &end, 10);
	uint64_t most = t->size == 8 ? UINT64_MAX : (UINT64_C(1) << (8 * t->size)) - 1;
	if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno != 0 || v > most)
		return bad_value(t, text, err);
	add_number(out, v, t->size);
	return RC_OK;
}

static enum rc add_real(struct buf *out, const struct type *t, const char *text, struct err *err)
{
	char *end;
	double d = strtod(text, &end);
	if (isspace((unsigned char)text[0]) || end == text || *end != '\0')
		return bad_value(t, text, err);
	float f = (float)d;
	uint32_t bits32;
	uint64_t bits64;
	memcpy(&bits32, &f, sizeof bits32);
	memcpy(&bits64, &d, sizeof bits64);
	add_number(out, t->size == 4 ? bits32 : bits64, t->size);
	return RC_OK;
}

/* 12.34 is a scale of 2 and the integer 1234, of 32 bits. */
static enum rc add_decimal(struct buf *out, const struct type *t, const char *text, struct err *err)
{
	char digits[40];
	size_t n = 0, scale = 0;
	bool has_point = false;
	for (const char *p = text; *p != '\0' && n + 1 < sizeof digits; p++) {
		if (*p == '.' && !has_point) {
			has_point = true;
			continue;
		}
		digits[n++] = *p;
		scale += has_point;
	}
	digits[n] = '\0';
	static const struct type integer = {"decimal", 'D', SHAPE_SIGNED, 4};
	buf_add_byte(out, (uint8_t)scale);
	if (add_signed(out, &integer, digits, NULL) != RC_OK)
		return bad_value(t, text, err);
	return RC_OK;
}

static enum rc add_bool(struct buf *out, const struct type *t, const char *text, struct err *err)
{
	bool is_true = strcmp(text, "true") == 0;
	if (!is_true && strcmp(text, "false") != 0)
		return bad_value(t, text, err);
	buf_add_byte(out, is_true);
	return RC_OK;
}

/* ---- everything ----------------------------------------------------------------------------- */

/* Content led by its length, which is known only behind it. */
static size_t begin_long(struct buf *out)
{
	size_t at = out->size;
	buf_add_u32(out, 0);
	return at;
}

static void end_long(struct buf *out, size_t at)
{
	size_t n = out->size - at - 4;
	for (int i = 0; i < 4; i++)
		out->data[at + (size_t)i] = (uint8_t)(n >> (8 * (3 - i)));
}

static enum rc add_json_text(struct buf *out, struct bytes text, struct err *err)
{
	enum json_kind kind;
	struct bytes raw;
	const char *why;
	size_t at;
	if (!json_find(text, "", &kind, &raw, &why, &at))
		return err_set(err, RC_REJECT, "not JSON at byte %zu: %s", at + 1, why);
	return amqp_add_json(out, kind, raw, err);
}

static enum rc add_scalar(struct buf *out, const struct type *t, struct bytes text, struct err *err)
{
	/* Numbers are read as C strings, so a NUL inside would hide what stands behind it. */
	AUTO(free) char *s = xstrndup((const char *)text.data, text.size);
	if (strlen(s) != text.size)
		return bad_value(t, s, err);
	switch (t->shape) {
	case SHAPE_BOOL:
		return add_bool(out, t, s, err);
	case SHAPE_SIGNED:
		return add_signed(out, t, s, err);
	case SHAPE_UNSIGNED:
		return add_unsigned(out, t, s, err);
	case SHAPE_REAL:
		return add_real(out, t, s, err);
	case SHAPE_DECIMAL:
		return add_decimal(out, t, s, err);
	case SHAPE_VOID:
		return text.size == 0 ? RC_OK : err_set(err, RC_REJECT, "void takes no value");
	case SHAPE_TEXT:
	case SHAPE_BASE64:
	case SHAPE_JSON:
	case SHAPE_LITERAL:
		break;
	}
	return bad_value(t, s, err);
}

static enum rc add_long(struct buf *out, const struct type *t, struct bytes text, struct err *err)
{
	size_t at = begin_long(out);
	if (t->shape == SHAPE_TEXT)
		buf_add(out, text.data, text.size);
	else if (!base64_decode(text, out))
		return err_set(err, RC_REJECT, "this is not base64");
	end_long(out, at);
	return RC_OK;
}

enum rc amqp_add_text(struct buf *out, struct bytes type, struct bytes text, struct err *err)
{
	const struct type *t = type_by_name(type);
	if (t == NULL)
		return err_set(err, RC_REJECT, "\"%.*s\" is no type", (int)type.size,
			(const char *)type.data);
	if (t->shape == SHAPE_JSON || t->shape == SHAPE_LITERAL)
		return add_json_text(out, text, err);
	buf_add_byte(out, (uint8_t)t->letter);
	if (t->shape == SHAPE_TEXT || t->shape == SHAPE_BASE64)
		return add_long(out, t, text, err);
	return add_scalar(out, t, text, err);
}

/* The text of a scalar in JSON: a string's, or the literal. */
static void add_scalar_text(struct buf *out, enum json_kind kind, struct bytes raw)
{
	if (kind == JSON_STRING)
		json_unescape(raw, out);
	else
		buf_add(out, raw.data, raw.size);
}

enum rc amqp_add_name(struct buf *table, struct bytes name, struct err *err)
{
	if (name.size > 255)
		return err_set(err, RC_REJECT, "the name %.40s… is longer than 255 bytes",
			(const char *)name.data);
	buf_add_byte(table, (uint8_t)name.size);
	buf_add(table, name.data, name.size);
	return RC_OK;
}

static enum rc add_members(struct buf *table, struct bytes raw, struct err *err)
{
	struct json_each each = json_each_of(raw);
	struct bytes raw_name, child;
	enum json_kind kind;
	while (json_each_next(&each, &raw_name, &kind, &child)) {
		AUTO(buf) struct buf name = {0};
		json_unescape(raw_name, &name);
		if (amqp_add_name(table, buf_bytes(&name), err) != RC_OK)
			return err->rc;
		if (amqp_add_json(table, kind, child, err) != RC_OK)
			return err_ctx(err, "%s", buf_str(&name));
	}
	return RC_OK;
}

static enum rc add_table(struct buf *out, struct bytes raw, struct err *err)
{
	buf_add_byte(out, 'F');
	size_t at = begin_long(out);
	enum rc rc = add_members(out, raw, err);
	if (rc == RC_OK)
		end_long(out, at);
	return rc;
}

static enum rc add_array(struct buf *out, struct bytes raw, struct err *err)
{
	struct json_each each = json_each_of(raw);
	struct bytes name, child;
	enum json_kind kind;
	buf_add_byte(out, 'A');
	size_t at = begin_long(out);
	while (json_each_next(&each, &name, &kind, &child))
		if (amqp_add_json(out, kind, child, err) != RC_OK)
			return err->rc;
	end_long(out, at);
	return RC_OK;
}

/* {"$type": …, "$value": …}; false when the object is none of these. */
static bool find_typed(
	struct bytes raw, struct bytes *ret_type, enum json_kind *ret_kind, struct bytes *ret_value)
{
	struct json_each each = json_each_of(raw);
	struct bytes name, child;
	enum json_kind kind;
	bool has_type = false;
	*ret_kind = JSON_ABSENT;
	while (json_each_next(&each, &name, &kind, &child)) {
		if (bytes_equal(name, bytes_str("\"$type\"")) && kind == JSON_STRING) {
			has_type = true;
			*ret_type = child;
		} else if (bytes_equal(name, bytes_str("\"$value\""))) {
			*ret_kind = kind;
			*ret_value = child;
		} else {
			return false;
		}
	}
	return has_type;
}

static enum rc add_typed(struct buf *out, struct bytes raw_type, enum json_kind kind,
	struct bytes raw, struct err *err)
{
	AUTO(buf) struct buf type = {0}, text = {0};
	json_unescape(raw_type, &type);
	const struct type *t = type_by_name(buf_bytes(&type));
	if (t == NULL)
		return err_set(err, RC_REJECT, "\"%s\" is no type", buf_str(&type));
	if (t->shape == SHAPE_LITERAL && kind == JSON_OBJECT)
		return add_table(out, raw, err);
	if (t->shape == SHAPE_LITERAL || t->shape == SHAPE_JSON)
		return err_set(
			err, RC_REJECT, "\"$type\" %s does not go with this \"$value\"", t->name);
	if (kind == JSON_OBJECT || kind == JSON_ARRAY || kind == JSON_NULL)
		return err_set(
			err, RC_REJECT, "\"$value\" of a %s is a string or a number", t->name);
	if (kind != JSON_ABSENT)
		add_scalar_text(&text, kind, raw);
	return amqp_add_text(
		out, buf_bytes(&type), text.data != NULL ? buf_bytes(&text) : bytes_str(""), err);
}

static bool is_integer(struct bytes raw)
{
	return memchr(raw.data, '.', raw.size) == NULL && memchr(raw.data, 'e', raw.size) == NULL &&
		memchr(raw.data, 'E', raw.size) == NULL;
}

enum rc amqp_add_json(struct buf *out, enum json_kind kind, struct bytes raw, struct err *err)
{
	struct bytes type = {0}, value = {0};
	AUTO(buf) struct buf text = {0};
	switch (kind) {
	case JSON_ABSENT:
	case JSON_NULL:
		buf_add_byte(out, 'V');
		return RC_OK;
	case JSON_BOOL:
		return amqp_add_text(out, bytes_str("bool"), raw, err);
	case JSON_NUMBER:
		return amqp_add_text(
			out, bytes_str(is_integer(raw) ? "int64" : "double"), raw, err);
	case JSON_STRING:
		json_unescape(raw, &text);
		return amqp_add_text(out, bytes_str("string"), buf_bytes(&text), err);
	case JSON_ARRAY:
		return add_array(out, raw, err);
	case JSON_OBJECT:
		break;
	}
	if (find_typed(raw, &type, &kind, &value))
		return add_typed(out, type, kind, value, err);
	return add_table(out, raw, err);
}

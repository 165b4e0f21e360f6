/* SPDX-License-Identifier: MIT */
/* Messages from words: properties and headers go to wire form at once, so that a message made here
 * is read by the same code as one from the broker. */
#include "ctl/draft.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base64.h"
#include "base/fd.h"
#include "base/json_each.h"
#include "base/nearest.h"
#include "ctl/amqp_value.h"
#include "ctl/ctl.h"

void draft_done(struct draft *d)
{
	buf_done(&d->exchange);
	buf_done(&d->routing_key);
	buf_done(&d->headers);
	buf_done(&d->body);
	buf_done(&d->wire);
	for (int p = 0; p < PROP_COUNT; p++)
		buf_done(&d->text[p]);
	*d = (struct draft){0};
}

/* ---- properties and headers ----------------------------------------------------------------- */

static enum rc set_number(struct draft *d, enum prop p, struct bytes value, struct err *err)
{
	uint64_t most = p == PROP_TIMESTAMP ? UINT64_MAX : 255;
	AUTO(free) char *text = xstrndup((const char *)value.data, value.size);
	if (!ctl_number(text, 0, most, &d->number[p]))
		return err_set(err, RC_REJECT,
			"property %s: \"%s\" is no number from 0 to %" PRIu64, prop_name(p), text,
			most);
	return RC_OK;
}

enum rc draft_set(struct draft *d, enum prop p, struct bytes value, struct err *err)
{
	if (prop_is_number(p)) {
		if (set_number(d, p, value, err) != RC_OK)
			return err->rc;
	} else if (value.size > 255) {
		return err_set(err, RC_REJECT, "property %s: %zu bytes, AMQP has room for 255",
			prop_name(p), value.size);
	} else {
		buf_clear(&d->text[p]);
		buf_add(&d->text[p], value.data, value.size);
	}
	d->present |= (uint16_t)(1u << p);
	return RC_OK;
}

static enum rc find_property(struct bytes name, enum prop *ret, struct err *err)
{
	char text[64];
	const char *names[PROP_COUNT];
	(void)snprintf(text, sizeof text, "%.*s", (int)name.size, (const char *)name.data);
	for (char *p = text; *p != '\0'; p++)
		if (*p == '-')
			*p = '_';
	*ret = prop_by_name(bytes_str(text));
	if (*ret != PROP_COUNT)
		return RC_OK;
	for (int p = 0; p < PROP_COUNT; p++)
		names[p] = prop_name((enum prop)p);
	const char *near = nearest_name(bytes_str(text), names, PROP_COUNT);
	return err_set(err, RC_REJECT, "AMQP has no property \"%s\"%s%s%s", text,
		near != NULL ? "; did you mean \"" : "", near != NULL ? near : "",
		near != NULL ? "\"?" : "");
}

enum rc draft_property(struct draft *d, const char *assignment, struct err *err)
{
	const char *equals = strchr(assignment, '=');
	enum prop p;
	if (equals == NULL)
		return err_set(err, RC_REJECT, "\"%s\" is not NAME=VALUE", assignment);
	if (find_property(bytes_of(assignment, (size_t)(equals - assignment)), &p, err) != RC_OK)
		return err->rc;
	return draft_set(d, p, bytes_str(equals + 1), err);
}

/* Takes ":TYPE" off the end of a name. */
static struct bytes split_type(struct bytes *name)
{
	for (size_t i = name->size; i-- > 0;) {
		if (name->data[i] != ':')
			continue;
		struct bytes type = bytes_of(name->data + i + 1, name->size - i - 1);
		if (!amqp_is_type(type))
			break;
		name->size = i;
		return type;
	}
	return bytes_str("string");
}

enum rc draft_header(struct draft *d, const char *assignment, struct err *err)
{
	const char *equals = strchr(assignment, '=');
	struct bytes name = equals != NULL ? bytes_of(assignment, (size_t)(equals - assignment))
					   : bytes_str(assignment);
	struct bytes type = split_type(&name);
	bool is_void = bytes_equal(type, bytes_str("void"));
	if (name.size == 0 || (equals == NULL && !is_void))
		return err_set(err, RC_REJECT, "\"%s\" is neither NAME=VALUE nor NAME:TYPE=VALUE",
			assignment);
	if (amqp_add_name(&d->headers, name, err) != RC_OK)
		return err->rc;
	if (amqp_add_text(&d->headers, type, bytes_str(equals != NULL ? equals + 1 : ""), err) !=
		RC_OK)
		return err_ctx(err, "header %.*s", (int)name.size, (const char *)name.data);
	d->present |= 1u << PROP_HEADERS;
	return RC_OK;
}

/* ---- a file --------------------------------------------------------------------------------- */

static enum rc take_properties(
	struct draft *d, enum json_kind kind, struct bytes raw, struct err *err)
{
	struct json_each each = json_each_of(raw);
	struct bytes raw_name, child;
	if (kind != JSON_OBJECT)
		return err_set(err, RC_REJECT, "is no object");
	while (json_each_next(&each, &raw_name, &kind, &child)) {
		AUTO(buf) struct buf name = {0}, text = {0};
		enum prop p;
		json_unescape(raw_name, &name);
		if (find_property(buf_bytes(&name), &p, err) != RC_OK)
			return err->rc;
		if (kind == JSON_STRING)
			json_unescape(child, &text);
		else if (kind == JSON_NUMBER && prop_is_number(p))
			buf_add(&text, child.data, child.size);
		else
			return err_set(err, RC_REJECT, "%s must be a %s", prop_name(p),
				prop_is_number(p) ? "number" : "string");
		if (draft_set(d, p, buf_bytes(&text), err) != RC_OK)
			return err->rc;
	}
	return RC_OK;
}

static enum rc take_headers(struct draft *d, enum json_kind kind, struct bytes raw, struct err *err)
{
	enum { TABLE_HEAD = 5 }; /* letter and length */
	AUTO(buf) struct buf value = {0};
	if (kind != JSON_OBJECT)
		return err_set(err, RC_REJECT, "is no object");
	if (amqp_add_json(&value, kind, raw, err) != RC_OK)
		return err->rc;
	if (value.data[0] != 'F')
		return err_set(err, RC_REJECT, "is no table");
	buf_add(&d->headers, value.data + TABLE_HEAD, value.size - TABLE_HEAD);
	d->present |= 1u << PROP_HEADERS;
	return RC_OK;
}

static enum rc take_short(struct buf *to, enum json_kind kind, struct bytes raw, struct err *err)
{
	if (kind != JSON_STRING)
		return err_set(err, RC_REJECT, "is no string");
	buf_clear(to);
	json_unescape(raw, to);
	if (to->size > 255)
		return err_set(err, RC_REJECT, "is longer than 255 bytes");
	return RC_OK;
}

static enum rc take_exchange(
	struct draft *d, enum json_kind kind, struct bytes raw, struct err *err)
{
	return take_short(&d->exchange, kind, raw, err);
}

static enum rc take_routing_key(
	struct draft *d, enum json_kind kind, struct bytes raw, struct err *err)
{
	return take_short(&d->routing_key, kind, raw, err);
}

static enum rc take_redelivered(
	struct draft *d, enum json_kind kind, struct bytes raw, struct err *err)
{
	if (kind != JSON_BOOL)
		return err_set(err, RC_REJECT, "is neither true nor false");
	d->redelivered = raw.data[0] == 't';
	return RC_OK;
}

static enum rc take_body(struct draft *d, enum json_kind kind, struct bytes raw, struct err *err)
{
	if (d->body.data != NULL)
		return err_set(err, RC_REJECT, "is there twice");
	if (kind == JSON_STRING)
		json_unescape(raw, &d->body);
	else if (kind == JSON_OBJECT || kind == JSON_ARRAY)
		buf_add(&d->body, raw.data, raw.size);
	else
		return err_set(err, RC_REJECT, "is neither a string nor an object or array");
	(void)buf_str(&d->body); /* now it is there, even if empty */
	return RC_OK;
}

static enum rc take_base64(struct draft *d, enum json_kind kind, struct bytes raw, struct err *err)
{
	AUTO(buf) struct buf text = {0};
	if (d->body.data != NULL)
		return err_set(err, RC_REJECT, "stands beside another body");
	if (kind != JSON_STRING)
		return err_set(err, RC_REJECT, "is no string");
	json_unescape(raw, &text);
	if (!base64_decode(buf_bytes(&text), &d->body))
		return err_set(err, RC_REJECT, "is not base64");
	(void)buf_str(&d->body);
	return RC_OK;
}

static const struct member {
	const char *name;
	enum rc (*take)(struct draft *d, enum json_kind kind, struct bytes raw, struct err *err);
} members[] = {
	{"exchange", take_exchange},
	{"routing_key", take_routing_key},
	{"redelivered", take_redelivered},
	{"properties", take_properties},
	{"headers", take_headers},
	{"body", take_body},
	{"body_base64", take_base64},
};
enum { N_MEMBERS = sizeof members / sizeof members[0] };

static enum rc unknown_member(const char *name, struct err *err)
{
	const char *names[N_MEMBERS];
	for (size_t i = 0; i < N_MEMBERS; i++)
		names[i] = members[i].name;
	const char *near = nearest_name(bytes_str(name), names, N_MEMBERS);
	return err_set(err, RC_REJECT, "a message has no \"%s\"%s%s%s", name,
		near != NULL ? "; did you mean \"" : "", near != NULL ? near : "",
		near != NULL ? "\"?" : "");
}

static enum rc take_member(
	struct draft *d, const char *name, enum json_kind kind, struct bytes raw, struct err *err)
{
	for (size_t i = 0; i < N_MEMBERS; i++)
		if (strcmp(members[i].name, name) == 0)
			return members[i].take(d, kind, raw, err) == RC_OK
				? RC_OK
				: err_ctx(err, "\"%s\"", name);
	return unknown_member(name, err);
}

/* The message's own object: the whole, or its member "message". */
static enum rc find_message(struct bytes text, struct bytes *ret, struct err *err)
{
	enum json_kind kind;
	const char *why;
	size_t at;
	if (!json_find(text, "/message", &kind, ret, &why, &at) ||
		(kind != JSON_OBJECT && !json_find(text, "", &kind, ret, &why, &at)))
		return err_set(err, RC_REJECT, "not JSON at byte %zu: %s", at + 1, why);
	if (kind != JSON_OBJECT)
		return err_set(err, RC_REJECT, "this is no JSON object");
	return RC_OK;
}

enum rc draft_json(struct draft *d, struct bytes text, struct err *err)
{
	struct bytes raw, raw_name, child;
	enum json_kind kind;
	if (find_message(text, &raw, err) != RC_OK)
		return err->rc;
	struct json_each each = json_each_of(raw);
	while (json_each_next(&each, &raw_name, &kind, &child)) {
		AUTO(buf) struct buf name = {0};
		json_unescape(raw_name, &name);
		if (take_member(d, buf_str(&name), kind, child, err) != RC_OK)
			return err->rc;
	}
	return RC_OK;
}

/* ---- the message ---------------------------------------------------------------------------- */

static struct bytes present_bytes(const struct buf *b)
{
	return b->data != NULL ? buf_bytes(b) : bytes_str("");
}

void draft_merge(struct draft *d, const struct draft *changes)
{
	for (int p = 0; p < PROP_COUNT; p++) {
		if ((changes->present & (1u << p)) == 0)
			continue;
		buf_clear(&d->text[p]);
		buf_add(&d->text[p], changes->text[p].data, changes->text[p].size);
		d->number[p] = changes->number[p];
	}
	/* Of a name that stands twice the last one counts. */
	buf_add(&d->headers, changes->headers.data, changes->headers.size);
	d->present |= changes->present;
}

struct message draft_message(struct draft *d)
{
	struct props props = {.present = d->present};
	for (int p = 0; p < PROP_COUNT; p++) {
		props.text[p] = present_bytes(&d->text[p]);
		props.number[p] = d->number[p];
	}
	props.text[PROP_HEADERS] = present_bytes(&d->headers);
	buf_clear(&d->wire);
	props_encode(&d->wire, &props);
	return (struct message){.exchange = present_bytes(&d->exchange),
		.routing_key = present_bytes(&d->routing_key),
		.properties = buf_bytes(&d->wire),
		.body = present_bytes(&d->body),
		.body_size = d->body.size,
		.redelivered = d->redelivered};
}

static void print_properties(struct buf *out, const struct props *p)
{
	const char *comma = "";
	buf_add_byte(out, '{');
	for (int i = 0; i < PROP_COUNT; i++) {
		if (i == PROP_HEADERS || (p->present & (1u << i)) == 0)
			continue;
		buf_addf(out, "%s\"%s\": ", comma, prop_name((enum prop)i));
		if (prop_is_number((enum prop)i))
			buf_addf(out, "%" PRIu64, p->number[i]);
		else
			json_add_string(out, p->text[i]);
		comma = ", ";
	}
	buf_add_byte(out, '}');
}

static void print_headers(struct buf *out, const struct props *p)
{
	struct amqp_entry e = {
		.field = {.kind = FIELD_TABLE, .content = p->text[PROP_HEADERS]}, .type = "table"};
	amqp_add_as_json(out, &e);
}

static void print_body(struct buf *out, struct bytes body)
{
	if (ctl_is_utf8(body)) {
		buf_add_str(out, "\"body\": ");
		json_add_string(out, body);
		return;
	}
	buf_add_str(out, "\"body_base64\": \"");
	base64_encode(body, out);
	buf_add_byte(out, '"');
}

void draft_print(struct buf *out, const struct message *m, const char *indent)
{
	struct props props;
	(void)props_decode(m->properties, &props);
	buf_addf(out, "{\n%s  \"exchange\": ", indent);
	json_add_string(out, m->exchange);
	buf_addf(out, ",\n%s  \"routing_key\": ", indent);
	json_add_string(out, m->routing_key);
	buf_addf(out, ",\n%s  \"redelivered\": %s", indent, m->redelivered ? "true" : "false");
	buf_addf(out, ",\n%s  \"properties\": ", indent);
	print_properties(out, &props);
	if ((props.present & (1u << PROP_HEADERS)) != 0) {
		buf_addf(out, ",\n%s  \"headers\": ", indent);
		print_headers(out, &props);
	}
	if (m->body.data != NULL) {
		buf_addf(out, ",\n%s  ", indent);
		print_body(out, m->body);
	}
	buf_addf(out, "\n%s}", indent);
}

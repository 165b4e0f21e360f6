/* SPDX-License-Identifier: MIT */
/* Sources: their names, and how each takes its value out of a message. */
#include "message/source.h"

#include "base/json.h"
#include "base/nearest.h"

#include <stdlib.h>
#include <strings.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* ---- names ----------------------------------------------------------------------- */

static const struct {
	const char *name; /* with its colon if an argument follows */
	enum source_kind kind;
} kinds[] = {
	{"message_id", SOURCE_MESSAGE_ID},
	{"header:", SOURCE_HEADER},
	{"json:", SOURCE_JSON},
	{"property:", SOURCE_PROPERTY},
	{"routing_key", SOURCE_ROUTING_KEY},
	{"body", SOURCE_BODY},
	{"cloudevents", SOURCE_CLOUDEVENTS},
};

/* What people write and what they should; NULL: the text says it all. */
static const struct {
	const char *name, *text;
} strangers[] = {
	{"delivery_tag",
		"delivery_tag is no source: it is a new number at each delivery and after each "
		"reconnect, so it cannot tell a message from its copy"},
	{"redelivered",
		"redelivered is no source: it tells how this copy came, not which message it is"},
	{"property:delivery_tag",
		"delivery_tag is not a property but a number of the delivery, new each "
		"time, so it cannot tell a message from its copy"},
	{"property:redelivered",
		"redelivered is not a property but a mark of this delivery; it does not "
		"tell which message it is"},
	{"property:headers", "headers are a table: take one of them with header:NAME"},
	{"headers", "headers are a table: take one of them with header:NAME"},
	{"exchange", "exchange is no source: it is the same for all messages of a publisher"},
	{"property:routing_key", "the routing key is not a property: write routing_key"},
	{"property:body", "the body is not a property: write body"},
};

#define HINT_KINDS                                                                                 \
	"a source is message_id, header:NAME, json:/pointer, property:NAME, routing_key, body or " \
	"cloudevents"

static enum rc unknown_property(const char *name, struct err *err)
{
	const char *names[PROP_COUNT];
	size_t n = 0;
	for (int i = 0; i < PROP_COUNT; i++)
		if (i != PROP_HEADERS)
			names[n++] = prop_name((enum prop)i);
	const char *near = nearest_name(bytes_str(name), names, n);
	if (near != NULL)
		return err_set(err, RC_FATAL,
			"AMQP messages have no property \"%s\"; did you mean property:%s?", name,
			near);
	return err_set(err, RC_FATAL,
		"AMQP messages have no property \"%s\"; a publisher's own values are headers: "
		"header:%s",
		name, name);
}

static enum rc unknown_source(const char *text, struct err *err)
{
	const char *names[COUNT(kinds)];
	struct bytes word = bytes_of(text, strcspn(text, ":"));
	if (text[word.size] == ':')
		word.size++;
	for (size_t i = 0; i < COUNT(kinds); i++)
		names[i] = kinds[i].name;
	if (*text == '\0')
		return err_set(err, RC_FATAL, "empty; " HINT_KINDS);
	if (*text == '/')
		return err_set(
			err, RC_FATAL, "\"%s\" is no source; did you mean json:%s?", text, text);
	if (prop_by_name(bytes_str(text)) != PROP_COUNT)
		return err_set(err, RC_FATAL, "\"%s\" is no source; did you mean property:%s?",
			text, text);
	const char *near = nearest_name(word, names, COUNT(names));
	if (near != NULL)
		return err_set(err, RC_FATAL, "\"%s\" is no source; did you mean %s%s?", text, near,
			near[strlen(near) - 1] == ':' ? text + word.size : "");
	return err_set(err, RC_FATAL, "\"%s\" is no source; " HINT_KINDS, text);
}

static enum rc parse_property(const char *name, struct source *ret, struct err *err)
{
	ret->property = prop_by_name(bytes_str(name));
	if (ret->property == PROP_COUNT)
		return unknown_property(name, err);
	if (ret->property == PROP_MESSAGE_ID)
		*ret = (struct source){.kind = SOURCE_MESSAGE_ID, .property = PROP_COUNT};
	return RC_OK;
}

static enum rc parse_argument(const char *argument, struct source *ret, struct err *err)
{
	size_t size = strlen(argument);
	const char *why = ret->kind == SOURCE_JSON ? json_pointer_error(argument) : NULL;
	if (why != NULL)
		return err_set(err, RC_FATAL, "json:%s: %s", argument, why);
	if (ret->kind == SOURCE_HEADER && size == 0)
		return err_set(err, RC_FATAL, "header: needs a name, as in header:x-order-id");
	if (ret->kind == SOURCE_HEADER && size > 255)
		return err_set(err, RC_FATAL, "header:%s: AMQP header names have at most 255 bytes",
			argument);
	ret->argument = xstrdup(argument);
	ret->argument_size = size;
	return RC_OK;
}

enum rc source_parse(const char *text, struct source *ret, struct err *err)
{
	struct source s = {.property = PROP_COUNT};
	for (size_t i = 0; i < COUNT(strangers); i++)
		if (strcasecmp(text, strangers[i].name) == 0)
			return err_set(err, RC_FATAL, "%s", strangers[i].text);
	for (size_t i = 0; i < COUNT(kinds); i++) {
		size_t n = strlen(kinds[i].name);
		bool takes_argument = kinds[i].name[n - 1] == ':';
		if (strncmp(text, kinds[i].name, n) != 0 || (!takes_argument && text[n] != '\0'))
			continue;
		s.kind = kinds[i].kind;
		enum rc rc = RC_OK;
		if (s.kind == SOURCE_PROPERTY)
			rc = parse_property(text + n, &s, err);
		else if (takes_argument)
			rc = parse_argument(text + n, &s, err);
		if (rc == RC_OK)
			*ret = s;
		return rc;
	}
	return unknown_source(text, err);
}

void source_done(struct source *s)
{
	if (s == NULL)
		return;
	free(s->argument);
	*s = (struct source){.property = PROP_COUNT};
}

void source_text(const struct source *s, struct buf *out)
{
	for (size_t i = 0; i < COUNT(kinds); i++)
		if (kinds[i].kind == s->kind)
			buf_add_str(out, kinds[i].name);
	if (s->kind == SOURCE_PROPERTY)
		buf_add_str(out, prop_name(s->property));
	buf_add(out, s->argument, s->argument_size);
}

/* ---- fit for a key? -------------------------------------------------------------- */

#define BY_BROKER "is written by the broker and changes from delivery to delivery"
#define BY_ROUTE "is written by the brokers on the way and changes when a message takes another one"
#define BY_CONVERSATION \
	"is shared by all messages of one conversation (a request, its replies and what follows)"
#define BY_CLOCK "is a time: a copy sent again has another one, and many messages share it"

/* A name that ends in * is a prefix.  x-stream-offset is left out: within one stream it is the same
 * at each delivery and no other message has it. */
static const struct {
	const char *header, *why;
} unfit_headers[] = {
	{"x-death", BY_BROKER},
	{"x-first-death-*", BY_BROKER},
	{"x-last-death-*", BY_BROKER},
	{"x-delivery-count", BY_BROKER},
	{"x-acquired-count", BY_BROKER},
	{"x-received-from", BY_ROUTE},
	{"x-shovelled*", BY_ROUTE},
	{"x-routed-by", BY_ROUTE},
	{"timestamp_in_ms", BY_CLOCK},
	{"x-opt-rabbitmq-received-time", BY_CLOCK},
};

static const char *const unfit_properties[PROP_COUNT] = {
	[PROP_TIMESTAMP] = BY_CLOCK,
	[PROP_CORRELATION_ID] = BY_CONVERSATION,
	[PROP_DELIVERY_MODE] = "says how a message is stored, not which one it is",
	[PROP_PRIORITY] = "says how urgent a message is, not which one it is",
	[PROP_EXPIRATION] = "is taken away by the broker when it dead-letters a message",
};

static const char *header_unfit_for_key(const char *name)
{
	for (size_t i = 0; i < COUNT(unfit_headers); i++) {
		const char *unfit = unfit_headers[i].header;
		size_t n = strcspn(unfit, "*");
		bool is_prefix = unfit[n] == '*';
		if (strncmp(name, unfit, n) == 0 && (is_prefix || name[n] == '\0'))
			return unfit_headers[i].why;
	}
	return NULL;
}

const char *source_unfit_for_key(const struct source *s)
{
	if (s->kind == SOURCE_HEADER)
		return header_unfit_for_key(s->argument);
	return s->kind == SOURCE_PROPERTY ? unfit_properties[s->property] : NULL;
}

/* ---- values ---------------------------------------------------------------------- */

void source_message_init(struct source_message *sm, const struct message *m)
{
	sm->message = m;
	sm->has_props = props_decode(m->properties, &sm->props);
}

static enum source_result unusable(struct err *err, const char *why)
{
	(void)err_set(err, RC_REJECT, "%s", why);
	return SOURCE_UNUSABLE;
}

static enum source_result malformed(struct err *err)
{
	return unusable(err, "the message's property list is malformed");
}

enum source_result source_body(const struct source_message *sm, struct bytes *ret, struct err *err)
{
	const struct message *m = sm->message;
	if (m->body.size != m->body_size)
		return unusable(err, "the body is too large to be looked into");
	*ret = m->body;
	return SOURCE_PRESENT;
}

static bool is_one_of(struct bytes text, const char *const *words, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (text.size == strlen(words[i]) &&
			strncasecmp((const char *)text.data, words[i], text.size) == 0)
			return true;
	return false;
}

/* Publishers use content-encoding for character sets and MIME encodings too. */
static bool is_plain_text(const struct source_message *sm, struct err *err)
{
	static const char *const plain[] = {
		"identity", "binary", "7bit", "8bit", "utf-8", "utf8", "us-ascii", "ascii"};
	struct bytes encoding = sm->props.text[PROP_CONTENT_ENCODING];
	if (encoding.size == 0 || is_one_of(encoding, plain, COUNT(plain)))
		return true;
	(void)err_set(err, RC_REJECT, "cannot read JSON from a body with content-encoding %.*s",
		(int)encoding.size, (const char *)encoding.data);
	return false;
}

static enum source_result json_value(const struct source_message *sm, const char *pointer,
	bool scalars_only, struct buf *out, struct err *err)
{
	struct bytes body, raw;
	enum json_kind kind;
	const char *why;
	size_t at;
	if (!sm->has_props)
		return malformed(err);
	if (!is_plain_text(sm, err) || source_body(sm, &body, err) != SOURCE_PRESENT)
		return SOURCE_UNUSABLE;
	if (!json_find(body, pointer, &kind, &raw, &why, &at)) {
		(void)err_set(err, RC_REJECT, "the body is not JSON: %s at byte %zu", why, at);
		return SOURCE_UNUSABLE;
	}
	if (kind == JSON_ABSENT || kind == JSON_NULL)
		return SOURCE_MISSING;
	if (scalars_only && (kind == JSON_ARRAY || kind == JSON_OBJECT)) {
		(void)err_set(err, RC_REJECT, "json:%s is %s, not a single value", pointer,
			kind == JSON_ARRAY ? "an array" : "an object");
		return SOURCE_UNUSABLE;
	}
	if (kind == JSON_STRING)
		json_unescape(raw, out);
	else
		buf_add(out, raw.data, raw.size);
	return SOURCE_PRESENT;
}

static enum source_result field_value(const struct field *f, struct buf *out, struct err *err)
{
	if (f->kind == FIELD_ABSENT || f->kind == FIELD_VOID)
		return SOURCE_MISSING;
	if (field_text(f, out))
		return SOURCE_PRESENT;
	(void)err_set(err, RC_REJECT, "header:%.*s is %s, not a single value", (int)f->name.size,
		(const char *)f->name.data, f->kind == FIELD_ARRAY ? "an array" : "a table");
	return SOURCE_UNUSABLE;
}

static enum source_result header_value(
	const struct source *s, const struct source_message *sm, struct buf *out, struct err *err)
{
	struct field f;
	if (!sm->has_props)
		return malformed(err);
	if (!props_header(&sm->props, bytes_of(s->argument, s->argument_size), &f))
		return unusable(err, "the message's headers are malformed");
	return field_value(&f, out, err);
}

static enum source_result property_value(
	enum prop p, const struct source_message *sm, struct buf *out, struct err *err)
{
	if (!sm->has_props)
		return malformed(err);
	if ((sm->props.present & (1u << p)) == 0)
		return SOURCE_MISSING;
	if (prop_is_number(p))
		buf_addf(out, "%llu", (unsigned long long)sm->props.number[p]);
	else
		buf_add(out, sm->props.text[p].data, sm->props.text[p].size);
	return SOURCE_PRESENT;
}

/* ---- CloudEvents ----------------------------------------------------------------- */

/* The AMQP binding of CloudEvents is written for AMQP 1.0; over 0-9-1 publishers use its prefixes
 * or those of the HTTP binding.  What stands behind the prefix, or absent. */
static struct bytes cloudevents_attribute(struct bytes header)
{
	static const char *const prefixes[] = {"cloudEvents:", "cloudEvents_", "ce-", "ce_"};
	for (size_t i = 0; i < COUNT(prefixes); i++) {
		size_t n = strlen(prefixes[i]);
		if (header.size > n && strncasecmp((const char *)header.data, prefixes[i], n) == 0)
			return bytes_of(header.data + n, header.size - n);
	}
	return bytes_of(NULL, 0);
}

enum cloudevents_mode {
	CLOUDEVENTS_BINARY,
	CLOUDEVENTS_STRUCTURED,
	CLOUDEVENTS_BATCH,
	CLOUDEVENTS_OTHER
};

static enum cloudevents_mode cloudevents_mode(const struct source_message *sm)
{
	static const char prefix[] = "application/cloudevents";
	static const char *const json[] = {"+json"}, *const batch[] = {"-batch+json"};
	const size_t n = sizeof prefix - 1;
	struct bytes type = sm->props.text[PROP_CONTENT_TYPE];
	if (type.size < n || strncasecmp((const char *)type.data, prefix, n) != 0)
		return CLOUDEVENTS_BINARY;
	struct bytes rest = bytes_of(type.data + n, 0);
	while (n + rest.size < type.size && strchr("; \t", rest.data[rest.size]) == NULL)
		rest.size++;
	if (is_one_of(rest, json, 1))
		return CLOUDEVENTS_STRUCTURED;
	return is_one_of(rest, batch, 1) ? CLOUDEVENTS_BATCH : CLOUDEVENTS_OTHER;
}

/* Compares a further place of a value, appended at `at`, with the first, which starts at `start`.
 */
static enum source_result agree(
	struct buf *out, size_t start, size_t at, const char *name, struct err *err)
{
	struct bytes first = bytes_of(out->data + start, at - start);
	struct bytes further = bytes_of(out->data + at, out->size - at);
	bool is_same = bytes_equal(first, further);
	out->size = at;
	if (is_same)
		return SOURCE_PRESENT;
	(void)err_set(err, RC_REJECT, "the CloudEvent has two different values of %s", name);
	return SOURCE_UNUSABLE;
}

/* An attribute from the headers, which must agree with what stands at start already. */
static enum source_result cloudevents_headers(const struct source_message *sm, const char *name,
	struct buf *out, size_t start, struct err *err)
{
	struct reader r = reader_of(sm->props.text[PROP_HEADERS]);
	struct field f;
	while (field_next(&r, false, &f)) {
		if (!is_one_of(cloudevents_attribute(f.name), &name, 1))
			continue;
		size_t at = out->size;
		enum source_result result = field_value(&f, out, err);
		if (result == SOURCE_PRESENT && at != start)
			result = agree(out, start, at, name, err);
		if (result == SOURCE_UNUSABLE)
			return result;
	}
	return r.bad ? unusable(err, "the message's headers are malformed") : SOURCE_PRESENT;
}

static enum source_result cloudevents_value(const struct source_message *sm, bool is_structured,
	const char *name, struct buf *out, struct err *err)
{
	size_t start = out->size;
	enum source_result result = SOURCE_PRESENT;
	if (is_structured)
		result =
			json_value(sm, strcmp(name, "id") == 0 ? "/id" : "/source", true, out, err);
	if (result != SOURCE_UNUSABLE)
		result = cloudevents_headers(sm, name, out, start, err);
	if (result == SOURCE_PRESENT && out->size == start)
		result = SOURCE_MISSING;
	return result;
}

enum source_result source_get_cloudevent(
	const struct source_message *sm, struct buf *out, size_t *ret_size, struct err *err)
{
	size_t start = out->size;
	if (!sm->has_props)
		return malformed(err);
	enum cloudevents_mode mode = cloudevents_mode(sm);
	if (mode == CLOUDEVENTS_BATCH)
		return unusable(err,
			"a batch of CloudEvents is many events in one message; publish "
			"each as a message of its own");
	if (mode == CLOUDEVENTS_OTHER)
		return unusable(err,
			"of structured CloudEvents only application/cloudevents+json can be read");
	bool is_structured = mode == CLOUDEVENTS_STRUCTURED;
	enum source_result result = cloudevents_value(sm, is_structured, "source", out, err);
	size_t size = out->size - start;
	if (result == SOURCE_PRESENT)
		result = cloudevents_value(sm, is_structured, "id", out, err);
	if (result == SOURCE_PRESENT)
		*ret_size = size;
	else
		out->size = start;
	return result;
}

static enum source_result joined_cloudevent(
	const struct source_message *sm, struct buf *out, struct err *err)
{
	size_t start = out->size, size;
	enum source_result result = source_get_cloudevent(sm, out, &size, err);
	if (result != SOURCE_PRESENT)
		return result;
	buf_add_byte(out, '\0');
	uint8_t *id = out->data + start + size;
	memmove(id + 1, id, out->size - start - size - 1);
	*id = '\0';
	return SOURCE_PRESENT;
}

/* ---- any ------------------------------------------------------------------------- */

static enum source_result get(const struct source *s, const struct source_message *sm,
	bool scalars_only, struct buf *out, struct err *err)
{
	struct bytes body;
	switch (s->kind) {
	case SOURCE_MESSAGE_ID:
		return property_value(PROP_MESSAGE_ID, sm, out, err);
	case SOURCE_HEADER:
		return header_value(s, sm, out, err);
	case SOURCE_JSON:
		return json_value(sm, s->argument, scalars_only, out, err);
	case SOURCE_PROPERTY:
		return property_value(s->property, sm, out, err);
	case SOURCE_ROUTING_KEY:
		buf_add(out, sm->message->routing_key.data, sm->message->routing_key.size);
		return SOURCE_PRESENT;
	case SOURCE_BODY:
		if (source_body(sm, &body, err) != SOURCE_PRESENT)
			return SOURCE_UNUSABLE;
		buf_add(out, body.data, body.size);
		return SOURCE_PRESENT;
	case SOURCE_CLOUDEVENTS:
		return joined_cloudevent(sm, out, err);
	}
	return SOURCE_MISSING;
}

enum source_result source_get(
	const struct source *s, const struct source_message *sm, struct buf *out, struct err *err)
{
	return get(s, sm, false, out, err);
}

enum source_result source_get_scalar(
	const struct source *s, const struct source_message *sm, struct buf *out, struct err *err)
{
	return get(s, sm, true, out, err);
}

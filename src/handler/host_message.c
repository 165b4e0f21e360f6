/* SPDX-License-Identifier: MIT */
/* Lends the message: sources, headers, properties. */
#include "handler/host_call.h"

#include "message/key.h"

#include <stdlib.h>

/* A handler that makes up its sources as it goes (json:/items/17/id) must not fill the memory. */
enum { MOST_SOURCES = 1024 };

static struct inboxd_value absent(void)
{
	return (struct inboxd_value){.data = NULL, .size = 0};
}

/* ---- sources ------------------------------------------------------------------------- */

void host_forget_sources(struct host *h)
{
	/* The table goes; its entries still know their next. */
	struct known_source *s = h->sources, *next;
	HASH_CLEAR(hh, h->sources);
	for (; s != NULL; s = next) {
		next = s->hh.next;
		source_done(&s->source);
		free(s->error);
		free(s->text);
		free(s);
	}
}

/* Each text is compiled once. */
static const struct known_source *find_source(struct host *h, const char *text)
{
	struct known_source *s;
	struct err err;
	HASH_FIND_STR(h->sources, text, s);
	if (s != NULL)
		return s;
	if (HASH_COUNT(h->sources) == MOST_SOURCES)
		host_forget_sources(h);
	s = xcalloc(1, sizeof *s);
	s->text = xstrdup(text);
	if (source_parse(text, &s->source, &err) != RC_OK)
		s->error = xstrdup(err.text);
	HASH_ADD_KEYPTR(hh, h->sources, s->text, strlen(s->text), s);
	return s;
}

const char *lend_source_error(struct inboxd_call *call, const char *source)
{
	return call_copy(call, bytes_str(find_source(call->host, source)->error)).data;
}

/* Garbage must not look like a value that is missing: the message fails even if nobody notices. */
static struct inboxd_value refuse(struct inboxd_call *call, const char *source, const char *why)
{
	call_note(call, "%s: %s", source, why);
	call_mark(call, HOST_REJECT);
	return absent();
}

struct inboxd_value lend_get(struct inboxd_call *call, const char *source)
{
	struct host *h = call->host;
	struct err err;
	if (call->item == NULL)
		return refuse(
			call, source, "there is no message here; in handle_batch use batch_item");
	const struct known_source *s = find_source(h, source);
	if (s->error != NULL)
		return refuse(call, source, s->error);
	if (s->source.kind == SOURCE_BODY)
		return lend_body(call);
	buf_clear(&h->scratch);
	switch (source_get(&s->source, call->item->message, &h->scratch, &err)) {
	case SOURCE_PRESENT:
		(void)buf_reserve(&h->scratch, 1); /* an empty value is there, and has an address */
		return call_copy(call, buf_bytes(&h->scratch));
	case SOURCE_MISSING:
		break;
	case SOURCE_UNUSABLE:
		return refuse(call, source, err.text);
	}
	return absent();
}

struct inboxd_value lend_body(struct inboxd_call *call)
{
	if (call->item != NULL && call->body.data == NULL) {
		struct bytes body = call->item->message->message->body;
		call->body = call_copy(call, body.data != NULL ? body : bytes_str(""));
	}
	return call->body;
}

/* ---- headers and properties ---------------------------------------------------------- */

static struct field find_header(const struct inboxd_call *call, const char *name)
{
	struct field f = {.kind = FIELD_ABSENT};
	if (call->item != NULL && call->item->message->has_props)
		(void)props_header(&call->item->message->props, bytes_str(name), &f);
	return f;
}

int32_t lend_header_kind(struct inboxd_call *call, const char *name)
{
	static const int32_t kinds[] = {
		[FIELD_ABSENT] = INBOXD_KIND_ABSENT,
		[FIELD_VOID] = INBOXD_KIND_VOID,
		[FIELD_BOOL] = INBOXD_KIND_BOOL,
		[FIELD_INTEGER] = INBOXD_KIND_INTEGER,
		[FIELD_FLOAT] = INBOXD_KIND_FLOAT,
		[FIELD_DECIMAL] = INBOXD_KIND_DECIMAL,
		[FIELD_TIMESTAMP] = INBOXD_KIND_TIMESTAMP,
		[FIELD_STRING] = INBOXD_KIND_STRING,
		[FIELD_BYTES] = INBOXD_KIND_BYTES,
		[FIELD_ARRAY] = INBOXD_KIND_ARRAY,
		[FIELD_TABLE] = INBOXD_KIND_TABLE,
	};
	return kinds[find_header(call, name).kind];
}

int32_t lend_header_int(struct inboxd_call *call, const char *name, int64_t *ret)
{
	struct field f = find_header(call, name);
	bool is_timestamp = f.kind == FIELD_TIMESTAMP && f.unsigned_integer <= INT64_MAX;
	bool is_integer = f.kind == FIELD_BOOL || (f.kind == FIELD_INTEGER && !f.is_unsigned);
	if (!is_timestamp && !is_integer)
		return 0;
	*ret = is_timestamp ? (int64_t)f.unsigned_integer : f.integer;
	return 1;
}

int32_t lend_header_float(struct inboxd_call *call, const char *name, double *ret)
{
	struct field f = find_header(call, name);
	double scale = 1;
	if (f.kind != FIELD_INTEGER && f.kind != FIELD_FLOAT && f.kind != FIELD_DECIMAL)
		return 0;
	for (uint8_t i = 0; f.kind == FIELD_DECIMAL && i < f.scale; i++)
		scale *= 10;
	if (f.kind == FIELD_FLOAT)
		*ret = f.real;
	else if (f.is_unsigned)
		*ret = (double)f.unsigned_integer;
	else
		*ret = (double)f.integer / scale;
	return 1;
}

struct inboxd_value lend_header_name(struct inboxd_call *call, uint32_t i)
{
	struct field f;
	if (call->item == NULL || !call->item->message->has_props)
		return absent();
	struct reader r = reader_of(call->item->message->props.text[PROP_HEADERS]);
	while (field_next(&r, false, &f))
		if (i-- == 0)
			return call_copy(call, f.name.data != NULL ? f.name : bytes_str(""));
	return absent();
}

int32_t lend_property_int(struct inboxd_call *call, const char *name, uint64_t *ret)
{
	enum prop p = prop_by_name(bytes_str(name));
	if (call->item == NULL || !call->item->message->has_props || p == PROP_COUNT ||
		!prop_is_number(p) || (call->item->message->props.present & (1u << p)) == 0)
		return 0;
	*ret = call->item->message->props.number[p];
	return 1;
}

/* ---- the delivery -------------------------------------------------------------------- */

uint32_t lend_attempt(struct inboxd_call *call)
{
	return call->item != NULL ? call->item->attempt : 0;
}

int32_t lend_redelivered(struct inboxd_call *call)
{
	return call->item != NULL && call->item->message->message->redelivered;
}

struct inboxd_value lend_idempotency_key(struct inboxd_call *call, const char *step)
{
	struct host *h = call->host;
	if (call->item == NULL || call->item->key.size == 0)
		return absent();
	buf_clear(&h->scratch);
	key_idempotency(h->consumer->identity, call->item->key, step, &h->scratch);
	return call_copy(call, buf_bytes(&h->scratch));
}

uint32_t lend_batch_size(struct inboxd_call *call)
{
	if (call->item != NULL)
		return 1;
	return call->host->entry == ENTRY_BATCH ? (uint32_t)call->host->n_calls : 0;
}

struct inboxd_call *lend_batch_item(struct inboxd_call *call, uint32_t i)
{
	if (i >= lend_batch_size(call))
		return NULL;
	return call->item != NULL ? call : &call->host->calls[i];
}

/* SPDX-License-Identifier: MIT */
/* Values on the wire become JSON, all of it: what JSON has no form for is an object with its type.
 */
#include "ctl/amqp_value.h"

#include "base/base64.h"
#include "base/fd.h"
#include "ctl/ctl.h"

/* A 128 kB frame has room for tables nested 17 000 deep; the stack has not. */
enum { MOST_DEPTH = 64 };

bool amqp_next(struct reader *r, bool is_array, struct amqp_entry *ret)
{
	/* The letter is what field_next does not tell. */
	size_t at = is_array || reader_left(r) == 0 ? 0 : 1u + r->p[0];
	uint8_t letter = at < reader_left(r) ? r->p[at] : 0;
	ret->type = amqp_type_of_letter(letter);
	return field_next(r, is_array, &ret->field);
}

static void add_typed_json(struct buf *out, const char *type, struct bytes text, bool is_quoted)
{
	buf_addf(out, "{\"$type\": \"%s\", \"$value\": ", type);
	if (is_quoted)
		json_add_string(out, text);
	else
		buf_add(out, text.data, text.size);
	buf_add_byte(out, '}');
}

static void add_base64_json(struct buf *out, const char *type, struct bytes content)
{
	AUTO(buf) struct buf text = {0};
	base64_encode(content, &text);
	add_typed_json(out, type, buf_bytes(&text), true);
}

/* A double with something in it that tells it from an integer. */
static void add_real_json(struct buf *out, const struct amqp_entry *e)
{
	AUTO(buf) struct buf text = {0};
	(void)field_text(&e->field, &text);
	const char *s = buf_str(&text);
	bool is_number = strpbrk(s, "in") == NULL; /* not inf, not nan */
	if (!is_number || strcmp(e->type, "double") != 0) {
		add_typed_json(out, e->type, buf_bytes(&text), !is_number);
		return;
	}
	buf_add_str(out, s);
	if (strpbrk(s, ".e") == NULL)
		buf_add_str(out, ".0");
}

static void add_value(struct buf *out, const struct amqp_entry *e, unsigned depth);

/* Children one behind the other; false: too deep, or malformed. */
static bool add_children(struct buf *out, struct bytes content, bool is_array, unsigned depth)
{
	struct reader r = reader_of(content);
	struct amqp_entry e;
	if (depth == MOST_DEPTH)
		return false;
	for (bool is_first = true; amqp_next(&r, is_array, &e); is_first = false) {
		if (!is_first)
			buf_add_str(out, ", ");
		if (!is_array) {
			json_add_string(out, e.field.name);
			buf_add_str(out, ": ");
		}
		add_value(out, &e, depth + 1);
	}
	return !r.bad;
}

static bool has_name(struct bytes table, const char *name)
{
	struct reader r = reader_of(table);
	struct field f;
	while (field_next(&r, false, &f))
		if (bytes_equal(f.name, bytes_str(name)))
			return true;
	return false;
}

static void add_container(struct buf *out, struct bytes content, bool is_array, unsigned depth)
{
	size_t before = out->size;
	bool is_literal = !is_array && has_name(content, "$type");
	if (is_literal)
		buf_add_str(out, "{\"$type\": \"table\", \"$value\": ");
	buf_add_byte(out, is_array ? '[' : '{');
	if (!add_children(out, content, is_array, depth)) {
		out->size = before;
		add_base64_json(out, is_array ? "array-base64" : "table-base64", content);
		return;
	}
	buf_add_byte(out, is_array ? ']' : '}');
	if (is_literal)
		buf_add_byte(out, '}');
}

static void add_value(struct buf *out, const struct amqp_entry *e, unsigned depth)
{
	AUTO(buf) struct buf text = {0};
	switch (e->field.kind) {
	case FIELD_ABSENT:
	case FIELD_VOID:
		buf_add_str(out, "null");
		break;
	case FIELD_STRING:
		if (ctl_is_utf8(e->field.content))
			json_add_string(out, e->field.content);
		else
			add_base64_json(out, "string-base64", e->field.content);
		break;
	case FIELD_BYTES:
		add_base64_json(out, "base64", e->field.content);
		break;
	case FIELD_FLOAT:
		add_real_json(out, e);
		break;
	case FIELD_BOOL:
	case FIELD_INTEGER:
	case FIELD_DECIMAL:
	case FIELD_TIMESTAMP:
		(void)field_text(&e->field, &text);
		if (strcmp(e->type, "int64") == 0 || strcmp(e->type, "bool") == 0)
			buf_add(out, text.data, text.size);
		else
			add_typed_json(out, e->type, buf_bytes(&text), false);
		break;
	case FIELD_ARRAY:
	case FIELD_TABLE:
		add_container(out, e->field.content, e->field.kind == FIELD_ARRAY, depth);
		break;
	}
}

void amqp_add_as_json(struct buf *out, const struct amqp_entry *e)
{
	add_value(out, e, 0);
}

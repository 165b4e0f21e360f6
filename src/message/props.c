/* SPDX-License-Identifier: MIT */
/* AMQP 0-9-1 property lists and field tables, read in place. */
#include "message/props.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum wire { WIRE_SHORTSTR, WIRE_TABLE, WIRE_OCTET, WIRE_U64 };

/* In the order of the flags, from bit 15 down (AMQP 0-9-1, class basic). */
static const struct {
	const char *name;
	enum wire wire;
} props_table[PROP_COUNT] = {
	[PROP_CONTENT_TYPE] = {"content_type", WIRE_SHORTSTR},
	[PROP_CONTENT_ENCODING] = {"content_encoding", WIRE_SHORTSTR},
	[PROP_HEADERS] = {"headers", WIRE_TABLE},
	[PROP_DELIVERY_MODE] = {"delivery_mode", WIRE_OCTET},
	[PROP_PRIORITY] = {"priority", WIRE_OCTET},
	[PROP_CORRELATION_ID] = {"correlation_id", WIRE_SHORTSTR},
	[PROP_REPLY_TO] = {"reply_to", WIRE_SHORTSTR},
	[PROP_EXPIRATION] = {"expiration", WIRE_SHORTSTR},
	[PROP_MESSAGE_ID] = {"message_id", WIRE_SHORTSTR},
	[PROP_TIMESTAMP] = {"timestamp", WIRE_U64},
	[PROP_TYPE] = {"type", WIRE_SHORTSTR},
	[PROP_USER_ID] = {"user_id", WIRE_SHORTSTR},
	[PROP_APP_ID] = {"app_id", WIRE_SHORTSTR},
	[PROP_CLUSTER_ID] = {"cluster_id", WIRE_SHORTSTR},
};

static bool has(uint16_t flags, int p)
{
	return (flags & (0x8000u >> p)) != 0;
}

bool props_decode(struct bytes raw, struct props *ret)
{
	struct reader r = reader_of(raw);
	struct props p = {0};
	uint16_t flags = reader_u16(&r);
	/* Bit 0 would announce a second flag word, bit 1 a property that class basic does not have.
	 */
	if (r.bad || (flags & 3) != 0) {
		*ret = (struct props){0};
		return false;
	}
	for (int i = 0; i < PROP_COUNT; i++) {
		if (!has(flags, i))
			continue;
		p.present |= (uint16_t)(1u << i);
		switch (props_table[i].wire) {
		case WIRE_SHORTSTR:
			p.text[i] = reader_bytes(&r, reader_u8(&r));
			break;
		case WIRE_TABLE:
			p.text[i] = reader_bytes(&r, reader_u32(&r));
			break;
		case WIRE_OCTET:
			p.number[i] = reader_u8(&r);
			break;
		case WIRE_U64:
			p.number[i] = reader_u64(&r);
			break;
		}
	}
	bool is_whole = !r.bad && reader_left(&r) == 0;
	*ret = is_whole ? p : (struct props){0};
	return is_whole;
}

static void add_shortstr(struct buf *out, struct bytes text)
{
	size_t n = text.size < 255 ? text.size : 255;
	buf_add_byte(out, (uint8_t)n);
	buf_add(out, text.data, n);
}

void props_encode(struct buf *out, const struct props *p)
{
	uint16_t flags = 0;
	for (int i = 0; i < PROP_COUNT; i++)
		if ((p->present & (1u << i)) != 0)
			flags |= (uint16_t)(0x8000u >> i);
	buf_add_u16(out, flags);
	for (int i = 0; i < PROP_COUNT; i++) {
		if (!has(flags, i))
			continue;
		switch (props_table[i].wire) {
		case WIRE_SHORTSTR:
			add_shortstr(out, p->text[i]);
			break;
		case WIRE_TABLE:
			buf_add_u32(out, (uint32_t)p->text[i].size);
			buf_add(out, p->text[i].data, p->text[i].size);
			break;
		case WIRE_OCTET:
			buf_add_byte(out, (uint8_t)p->number[i]);
			break;
		case WIRE_U64:
			buf_add_u64(out, p->number[i]);
			break;
		}
	}
}

enum prop prop_by_name(struct bytes name)
{
	for (int i = 0; i < PROP_COUNT; i++)
		if (i != PROP_HEADERS && bytes_equal(name, bytes_str(props_table[i].name)))
			return (enum prop)i;
	return PROP_COUNT;
}

const char *prop_name(enum prop p)
{
	return props_table[p].name;
}

bool prop_is_number(enum prop p)
{
	return props_table[p].wire == WIRE_OCTET || props_table[p].wire == WIRE_U64;
}

static double float_of(uint32_t bits)
{
	float f;
	memcpy(&f, &bits, sizeof f);
	return (double)f;
}

static double double_of(uint64_t bits)
{
	double d;
	memcpy(&d, &bits, sizeof d);
	return d;
}

/* Letters as RabbitMQ uses them, which is what every client follows. */
static bool read_value(struct reader *r, struct field *f)
{
	switch (reader_u8(r)) {
	case 'V':
		f->kind = FIELD_VOID;
		break;
	case 't':
		f->kind = FIELD_BOOL;
		f->integer = reader_u8(r) != 0;
		break;
	case 'b':
		f->kind = FIELD_INTEGER;
		f->integer = reader_u8(r);
		f->integer -= f->integer > INT8_MAX ? 256 : 0;
		break;
	case 'B':
		f->kind = FIELD_INTEGER;
		f->integer = reader_u8(r);
		break;
	case 's':
		f->kind = FIELD_INTEGER;
		f->integer = (int16_t)reader_u16(r);
		break;
	case 'u':
		f->kind = FIELD_INTEGER;
		f->integer = reader_u16(r);
		break;
	case 'I':
		f->kind = FIELD_INTEGER;
		f->integer = (int32_t)reader_u32(r);
		break;
	case 'i':
		f->kind = FIELD_INTEGER;
		f->integer = reader_u32(r);
		break;
	case 'l':
		f->kind = FIELD_INTEGER;
		f->integer = (int64_t)reader_u64(r);
		break;
	case 'L':
		f->kind = FIELD_INTEGER;
		f->unsigned_integer = reader_u64(r);
		f->integer = (int64_t)f->unsigned_integer;
		f->is_unsigned = f->unsigned_integer > INT64_MAX;
		break;
	case 'f':
		f->kind = FIELD_FLOAT;
		f->real = float_of(reader_u32(r));
		break;
	case 'd':
		f->kind = FIELD_FLOAT;
		f->real = double_of(reader_u64(r));
		break;
	case 'D':
		f->kind = FIELD_DECIMAL;
		f->scale = reader_u8(r);
		f->integer = (int32_t)reader_u32(r);
		break;
	case 'T':
		f->kind = FIELD_TIMESTAMP;
		f->unsigned_integer = reader_u64(r);
		break;
	case 'S':
		f->kind = FIELD_STRING;
		f->content = reader_bytes(r, reader_u32(r));
		break;
	case 'x':
		f->kind = FIELD_BYTES;
		f->content = reader_bytes(r, reader_u32(r));
		break;
	case 'A':
		f->kind = FIELD_ARRAY;
		f->content = reader_bytes(r, reader_u32(r));
		break;
	case 'F':
		f->kind = FIELD_TABLE;
		f->content = reader_bytes(r, reader_u32(r));
		break;
	default:
		r->bad = true;
	}
	return !r->bad;
}

bool field_next(struct reader *r, bool is_array, struct field *ret)
{
	if (r->bad || reader_left(r) == 0)
		return false;
	*ret = (struct field){0};
	if (!is_array)
		ret->name = reader_bytes(r, reader_u8(r));
	return read_value(r, ret);
}

bool props_header(const struct props *p, struct bytes name, struct field *ret)
{
	struct reader r = reader_of(p->text[PROP_HEADERS]);
	struct field f;
	*ret = (struct field){.kind = FIELD_ABSENT};
	while (field_next(&r, false, &f))
		if (bytes_equal(f.name, name))
			*ret = f;
	return !r.bad;
}

bool props_is_count(struct bytes name)
{
	return bytes_equal(name, bytes_str("x-delivery-count")) ||
	       bytes_equal(name, bytes_str("x-acquired-count"));
}

static void add_decimal(struct buf *out, int64_t value, uint8_t scale)
{
	uint64_t magnitude = value < 0 ? (uint64_t)-value : (uint64_t)value;
	char digits[300];
	(void)snprintf(digits, sizeof digits, "%0*" PRIu64, (int)scale + 1, magnitude);
	size_t n = strlen(digits);
	buf_addf(out, "%s%.*s", value < 0 ? "-" : "", (int)(n - scale), digits);
	if (scale != 0)
		buf_addf(out, ".%s", digits + n - scale);
}

/* The shortest decimal that reads back as the same double; with a point, whatever locale a handler
 * may have set. */
static void add_real(struct buf *out, double v)
{
	char text[40];
	if (isnan(v)) {
		buf_add_str(out, "nan");
		return;
	}
	for (int digits = 1; digits <= 17; digits++) {
		(void)snprintf(text, sizeof text, "%.*g", digits, v);
		if (strtod(text, NULL) == v)
			break;
	}
	size_t whole = strspn(text, "+-0123456789einf"), rest = whole;
	while (text[rest] != '\0' && strchr("0123456789", text[rest]) == NULL)
		rest++;
	buf_add(out, text, whole);
	if (rest != whole)
		buf_add_byte(out, '.');
	buf_add_str(out, text + rest);
}

bool field_text(const struct field *f, struct buf *out)
{
	switch (f->kind) {
	case FIELD_BOOL:
		buf_add_str(out, f->integer != 0 ? "true" : "false");
		return true;
	case FIELD_INTEGER:
		if (f->is_unsigned)
			buf_addf(out, "%" PRIu64, f->unsigned_integer);
		else
			buf_addf(out, "%" PRId64, f->integer);
		return true;
	case FIELD_TIMESTAMP:
		buf_addf(out, "%" PRIu64, f->unsigned_integer);
		return true;
	case FIELD_FLOAT:
		add_real(out, f->real);
		return true;
	case FIELD_DECIMAL:
		add_decimal(out, f->integer, f->scale);
		return true;
	case FIELD_STRING:
	case FIELD_BYTES:
		buf_add(out, f->content.data, f->content.size);
		return true;
	case FIELD_ABSENT:
	case FIELD_VOID:
	case FIELD_ARRAY:
	case FIELD_TABLE:
		break;
	}
	return false;
}

void field_add_string(struct buf *table, const char *name, struct bytes value)
{
	add_shortstr(table, bytes_str(name));
	buf_add_byte(table, 'S');
	buf_add_u32(table, (uint32_t)value.size);
	buf_add(table, value.data, value.size);
}

void field_add_integer(struct buf *table, const char *name, int64_t value)
{
	add_shortstr(table, bytes_str(name));
	buf_add_byte(table, 'l');
	buf_add_u64(table, (uint64_t)value);
}

/* SPDX-License-Identifier: MIT */
/* Only borders are looked for: the text is known to be valid. */
#include "base/json_each.h"

struct json_each json_each_of(struct bytes raw)
{
	return (struct json_each){.raw = raw, .at = 1};
}

static void skip_between(struct json_each *e)
{
	while (e->at < e->raw.size && strchr(" \n\r\t,:", e->raw.data[e->at]) != NULL)
		e->at++;
}

static void skip_string(struct json_each *e)
{
	e->at++;
	while (e->at < e->raw.size && e->raw.data[e->at] != '"')
		e->at += e->raw.data[e->at] == '\\' ? 2 : 1;
	e->at++;
}

static void skip_container(struct json_each *e)
{
	size_t depth = 0;
	do {
		switch (e->raw.data[e->at]) {
		case '"':
			skip_string(e);
			continue;
		case '{':
		case '[':
			depth++;
			break;
		case '}':
		case ']':
			depth--;
			break;
		default:
			break;
		}
		e->at++;
	} while (depth != 0 && e->at < e->raw.size);
}

static enum json_kind skip_value(struct json_each *e)
{
	switch (e->raw.data[e->at]) {
	case '"':
		skip_string(e);
		return JSON_STRING;
	case '{':
		skip_container(e);
		return JSON_OBJECT;
	case '[':
		skip_container(e);
		return JSON_ARRAY;
	default:
		break;
	}
	uint8_t first = e->raw.data[e->at];
	while (e->at < e->raw.size && strchr(" \n\r\t,]}", e->raw.data[e->at]) == NULL)
		e->at++;
	return first == 'n' ? JSON_NULL : first == 't' || first == 'f' ? JSON_BOOL : JSON_NUMBER;
}

bool json_each_next(struct json_each *e, struct bytes *ret_name, enum json_kind *ret_kind,
	struct bytes *ret_raw)
{
	*ret_name = bytes_of(NULL, 0);
	skip_between(e);
	if (e->at + 1 >= e->raw.size)
		return false;
	size_t begin = e->at;
	if (e->raw.data[0] == '{') {
		skip_string(e);
		*ret_name = bytes_of(e->raw.data + begin, e->at - begin);
		skip_between(e);
		begin = e->at;
	}
	*ret_kind = skip_value(e);
	*ret_raw = bytes_of(e->raw.data + begin, e->at - begin);
	return true;
}

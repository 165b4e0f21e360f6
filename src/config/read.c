/* SPDX-License-Identifier: MIT */
/* Errors about options, and which reader is for which type. */
#include "config/read.h"

#include "base/fd.h"
#include "config/read_types.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

size_t read_enter(struct reading *r, const char *name)
{
	size_t mark = r->path.size;
	if (mark != 0)
		buf_add_byte(&r->path, '.');
	diag_quote(&r->path, name);
	return mark;
}

void read_leave(struct reading *r, size_t mark)
{
	r->path.size = mark;
}

void read_error(struct reading *r, struct place place, const char *fmt, ...)
{
	if (r->is_quiet)
		return;
	char text[1400];
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	diag_add(r->diags, place, "%s%s%s", buf_str(&r->path), text[0] == ':' ? "" : " ", text);
}

void read_hint(struct reading *r, const char *fmt, ...)
{
	if (r->is_quiet)
		return;
	char text[1400];
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	diag_hint(r->diags, "%s", text);
}

const char *read_said(struct reading *r, const struct option *o, const struct yaml_node *node)
{
	buf_clear(&r->quote);
	if (node->kind == NODE_LIST || node->kind == NODE_MAP)
		return node->kind == NODE_LIST ? "a list" : "a map";
	if ((o->flags & OPTION_SECRET) != 0 || o->type == OPTION_URIS || o->type == OPTION_CONNINFO)
		return "what stands here";
	if (node->text[0] == '\0')
		return "an empty text";
	buf_add_byte(&r->quote, '"');
	diag_quote(&r->quote, node->written != NULL ? node->written : node->text);
	buf_add_str(&r->quote, node->written != NULL ? "\" with the variable's value" : "\"");
	return buf_str(&r->quote);
}

void string_list_add(struct string_list *list, const char *text)
{
	list->items = xrealloc(list->items, (list->n + 1) * sizeof list->items[0]);
	list->items[list->n++] = xstrdup(text);
}

void string_list_done(struct string_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		free(list->items[i]);
	free(list->items);
	*list = (struct string_list){0};
}

void read_must_be(struct reading *r, const struct option *o, const struct yaml_node *node)
{
	AUTO(buf) struct buf what = {0};
	schema_describe(o, &what);
	read_error(r, node->place, "must be %s, not %s", buf_str(&what), read_said(r, o, node));
}

bool read_is_scalar(struct reading *r, const struct option *o, const struct yaml_node *node)
{
	if (node->is_broken)
		return false;
	if (node->kind == NODE_SCALAR)
		return true;
	if (node->kind != NODE_NULL) {
		read_must_be(r, o, node);
		read_hint(r, "%s: %s", o->name, o->help);
		return false;
	}
	read_error(r, node->place, "has no value");
	if (node->text[0] != '\0')
		read_hint(r, "%s stands for nothing; put it in quotes if the text is meant",
			node->text);
	else if (o->def != NULL)
		read_hint(r, "give it one, or remove the line: the default is %s", o->def);
	else
		read_hint(r, "give it one, or remove the line");
	return false;
}

bool read_set_text(void *field, const char *text)
{
	free(*(char **)field);
	*(char **)field = xstrdup(text);
	return true;
}

bool read_option(
	struct reading *r, const struct option *o, const struct yaml_node *node, void *base)
{
	static read_field *const readers[OPTION_TYPE_COUNT] = {
		[OPTION_TEXT] = read_text,
		[OPTION_NAME] = read_name,
		[OPTION_HANDLER] = read_handler,
		[OPTION_IDENTIFIER] = read_identifier,
		[OPTION_PATH] = read_path,
		[OPTION_DIRECTORY] = read_path,
		[OPTION_PATHS] = read_paths,
		[OPTION_WORD] = read_word,
		[OPTION_WORD_TEXT] = read_word_text,
		[OPTION_BOOL] = read_bool,
		[OPTION_COUNT] = read_u32,
		[OPTION_PERCENT] = read_u32,
		[OPTION_SECONDS] = read_seconds,
		[OPTION_DURATION] = read_u32,
		[OPTION_SIZE] = read_size,
		[OPTION_URIS] = read_uris,
		[OPTION_CONNINFO] = read_conninfo,
		[OPTION_SOURCES] = read_sources,
	};
	if (o->type == OPTION_DURATIONS)
		return read_durations(r, o, node, base);
	return readers[o->type](r, o, node, (char *)base + o->offset);
}

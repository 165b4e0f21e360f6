/* SPDX-License-Identifier: MIT */
/* Environment variables in values. */
#include "config/env.h"

#include "base/fd.h"
#include "base/utf8.h"

#include <ctype.h>
#include <stdlib.h>

struct expansion {
	struct yaml_node *node;
	const char *text; /* as written */
	struct buf out;
	struct string_list *used;
	struct diags *diags;
};

static bool is_name_char(char c, bool is_first)
{
	return c == '_' || (is_first ? isalpha((unsigned char)c) : isalnum((unsigned char)c)) != 0;
}

static bool is_utf8(const char *text)
{
	const uint8_t *p = (const uint8_t *)text;
	size_t left = strlen(text);
	uint32_t code;
	while (left > 0) {
		size_t n = utf8_decode(p, left, &code);
		if (n == 0)
			return false;
		p += n;
		left -= n;
	}
	return true;
}

static void remember(struct string_list *used, const char *name)
{
	size_t at = 0;
	while (at < used->n && strcmp(used->items[at], name) < 0)
		at++;
	if (at < used->n && strcmp(used->items[at], name) == 0)
		return;
	used->items = xrealloc(used->items, (used->n + 1) * sizeof used->items[0]);
	memmove(used->items + at + 1, used->items + at, (used->n - at) * sizeof used->items[0]);
	used->items[at] = xstrdup(name);
	used->n++;
}

static struct place place_at(const struct expansion *e, const char *p)
{
	return yaml_place_in(e->node, (size_t)(p - e->text));
}

/* Puts in one variable; dollar: at its "${".  fallback: its default, NULL without one. */
static bool put_in(struct expansion *e, const char *dollar, const char *name, const char *fallback)
{
	const char *value = getenv(name);
	if (fallback != NULL && (value == NULL || value[0] == '\0')) {
		buf_add_str(&e->out, fallback);
		return true;
	}
	if (value == NULL) {
		diag_add(e->diags, place_at(e, dollar), "environment variable %s is not set", name);
		diag_hint(e->diags,
			"set it, or write ${%s:-default}; for a plain \"${\" write \"$${\"", name);
		return false;
	}
	if (!is_utf8(value)) {
		diag_add(e->diags, place_at(e, dollar), "environment variable %s is not UTF-8",
			name);
		diag_hint(e->diags, "texts here are UTF-8; set it so");
		diag_hint(e->diags, "texts here are UTF-8; set it so");
		return false;
	}
	buf_add_str(&e->out, value);
	remember(e->used, name);
	return true;
}

static bool refuse(struct expansion *e, const char *dollar, const char *text)
{
	diag_add(e->diags, place_at(e, dollar), "%s", text);
	diag_hint(e->diags,
		"${NAME} and ${NAME:-default} are read; for a plain \"${\" write \"$${\"");
	return false;
}

/* p: at a "${"; moved behind its '}'. */
static bool take_variable(struct expansion *e, const char **p)
{
	const char *dollar = *p, *name = dollar + 2, *end = name;
	while (is_name_char(*end, end == name))
		end++;
	const char *close = strchr(end, '}');
	if (close == NULL)
		return refuse(e, dollar, "\"${\" without its \"}\"");
	if (end == name || (*end != '}' && strncmp(end, ":-", 2) != 0))
		return refuse(e, dollar, "no name of an environment variable behind \"${\"");
	AUTO(free) char *variable = xstrndup(name, (size_t)(end - name));
	AUTO(free) char *fallback = NULL;
	if (*end == ':')
		fallback = xstrndup(end + 2, (size_t)(close - end) - 2);
	if (fallback != NULL && strstr(fallback, "${") != NULL)
		return refuse(e, dollar, "a default cannot hold a variable itself");
	*p = close + 1;
	return put_in(e, dollar, variable, fallback);
}

static bool expand_text(struct expansion *e)
{
	for (const char *p = e->text; *p != '\0';) {
		if (strncmp(p, "$${", 3) == 0) {
			buf_add_str(&e->out, "${");
			p += 3;
		} else if (strncmp(p, "${", 2) != 0) {
			buf_add_byte(&e->out, (uint8_t)*p++);
		} else if (!take_variable(e, &p)) {
			return false;
		}
	}
	return true;
}

static void expand_scalar(struct yaml_node *node, struct string_list *used, struct diags *d)
{
	if (strstr(node->text, "${") == NULL)
		return;
	struct expansion e = {.node = node, .text = node->text, .used = used, .diags = d};
	if (expand_text(&e)) {
		node->written = node->text;
		node->text = xstrdup(buf_str(&e.out));
	} else {
		node->is_broken = true;
	}
	buf_done(&e.out);
}

void env_expand(struct yaml_node *node, struct string_list *used, struct diags *d)
{
	if (node->kind == NODE_SCALAR && !node->is_broken)
		expand_scalar(node, used, d);
	for (size_t i = 0; i < node->n; i++)
		env_expand(node->items[i], used, d);
}

void env_escape(const char *text, struct buf *out)
{
	for (; *text != '\0'; text++) {
		if (strncmp(text, "${", 2) == 0)
			buf_add_byte(out, '$');
		buf_add_byte(out, (uint8_t)*text);
	}
}

/* SPDX-License-Identifier: MIT */
/* Arguments and bindings of a queue that is declared. */
#include "config/topology.h"

#include "base/fd.h"
#include "config/scalar.h"

#include <strings.h>

/* Plain text whose form decides: an integer, true, false; else text, unless a reader of YAML could
 * take it for something else. */
static bool read_argument(
	struct reading *r, const struct yaml_node *node, struct config_argument *ret)
{
	static const char *const doubtful[] = {"yes", "no", "on", "off", "y", "n", "true", "false"};
	const char *text = node->text;
	bool is_plain = !node->is_quoted;
	if (is_plain && (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)) {
		ret->kind = ARGUMENT_BOOL;
		ret->integer = text[0] == 't';
		return true;
	}
	int64_t integer;
	enum scalar_fault fault = scalar_integer(text, &integer);
	if (is_plain && fault == SCALAR_FINE) {
		ret->kind = ARGUMENT_INTEGER;
		ret->integer = integer;
		return true;
	}
	bool is_doubtful = is_plain && fault != SCALAR_FINE && fault != SCALAR_NO_NUMBER;
	for (size_t i = 0; i < sizeof doubtful / sizeof doubtful[0]; i++)
		is_doubtful |= is_plain && strcasecmp(text, doubtful[i]) == 0;
	if (is_doubtful) {
		AUTO(buf) struct buf quoted = {0};
		diag_quote(&quoted, text);
		read_error(r, node->place, "could be a text, a number or a boolean");
		read_hint(r,
			"write a decimal integer, true or false; put \"%s\" in quotes if text is "
			"meant",
			node->written != NULL ? "…" : buf_str(&quoted));
		return false;
	}
	ret->kind = ARGUMENT_STRING;
	ret->string = xstrdup(text);
	return true;
}

static bool is_argument_fit(
	struct reading *r, const struct yaml_node *key, const struct yaml_node *node)
{
	if (node->is_broken || key->is_broken)
		return false;
	if (strcmp(key->text, "x-queue-type") == 0) {
		read_error(r, key->place, "cannot stand here");
		read_hint(r, "write topology.type");
		return false;
	}
	if (strlen(key->text) > 128) {
		read_error(r, key->place, "is too long for the name of an argument");
		read_hint(r, "at most 128 bytes are possible");
		return false;
	}
	if (node->kind == NODE_SCALAR)
		return true;
	read_error(r, node->place, "must be a text, an integer, true or false, not %s",
		node->kind == NODE_LIST          ? "a list"
			: node->kind == NODE_MAP ? "a map"
						 : "nothing");
	read_hint(r, "queues take no other arguments");
	return false;
}

void topology_read_arguments(struct reading *r, const struct option *o,
	const struct yaml_node *node, struct config_consumer *c)
{
	if (node->is_broken || node->kind == NODE_NULL)
		return;
	if (node->kind != NODE_MAP) {
		read_error(r, node->place, "must be a map, not %s", read_said(r, o, node));
		read_hint(r, "as in {x-max-length: 100000}");
		return;
	}
	struct config_topology *t = &c->topology;
	t->arguments = xcalloc(node->n, sizeof t->arguments[0]);
	for (size_t i = 0; i < node->n; i++) {
		struct config_argument argument = {0};
		size_t mark = read_enter(r, node->keys[i]->text);
		if (is_argument_fit(r, node->keys[i], node->items[i]) &&
			read_argument(r, node->items[i], &argument)) {
			argument.name = xstrdup(node->keys[i]->text);
			t->arguments[t->n_arguments++] = argument;
		}
		read_leave(r, mark);
	}
}

void topology_read_bindings(struct reading *r, const struct option *o, const struct yaml_node *node,
	struct config_consumer *c)
{
	if (node->is_broken || node->kind == NODE_NULL)
		return;
	if (node->kind != NODE_LIST) {
		read_error(r, node->place, "must be a list, not %s", read_said(r, o, node));
		read_hint(r, "as in [{exchange: pay, routing_key: \"capture.#\"}]");
		return;
	}
	struct config_topology *t = &c->topology;
	t->bindings = xcalloc(node->n, sizeof t->bindings[0]);
	t->n_bindings = node->n;
	for (size_t i = 0; i < node->n; i++) {
		struct level at = {.own = node->items[i], .place = node->items[i]->place};
		build_section(r, SECTION_BINDING, &at, &t->bindings[i]);
	}
}

void topology_arguments_done(struct config_consumer *c)
{
	for (size_t i = 0; i < c->topology.n_arguments; i++) {
		free(c->topology.arguments[i].name);
		free(c->topology.arguments[i].string);
	}
	free(c->topology.arguments);
}

void topology_bindings_done(struct config_consumer *c)
{
	for (size_t i = 0; i < c->topology.n_bindings; i++)
		build_done(SECTION_BINDING, &c->topology.bindings[i]);
	free(c->topology.bindings);
}

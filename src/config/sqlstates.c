/* SPDX-License-Identifier: MIT */
/* The map of SQLSTATEs, entry by entry. */
#include "config/sqlstates.h"

#include "base/fd.h"

#include <ctype.h>

static bool is_sqlstate(const char *text)
{
	size_t n = strlen(text);
	for (const char *c = text; *c != '\0'; c++)
		if ((unsigned char)*c >= 0x80 ||
			(isdigit((unsigned char)*c) == 0 && isupper((unsigned char)*c) == 0))
			return false;
	return n == 2 || n == 5;
}

/* Success, a warning, no data: nothing fails with these. */
static bool is_no_error(const char *state)
{
	return state[0] == '0' && state[1] <= '2';
}

static bool read_entry(struct reading *r, const struct yaml_node *key,
	const struct yaml_node *value, struct config_sqlstate *ret)
{
	if (key->is_broken || value->is_broken)
		return false;
	if (!is_sqlstate(key->text)) {
		read_error(r, key->place, "is no SQLSTATE");
		read_hint(r,
			"five digits and capitals, as in 23505, or two for a whole class, as in "
			"23");
		return false;
	}
	if (is_no_error(key->text)) {
		read_error(r, key->place, "is the SQLSTATE of no error");
		read_hint(r, "classes 00, 01 and 02 are success, warnings and \"no data\"");
		return false;
	}
	bool is_reject = value->kind == NODE_SCALAR && strcmp(value->text, "reject") == 0;
	if (!is_reject && (value->kind != NODE_SCALAR || strcmp(value->text, "retry") != 0)) {
		read_error(r, value->place, "must be retry or reject");
		read_hint(r, "retry: it may pass; reject: this message can never succeed");
		return false;
	}
	(void)stpcpy(ret->state, key->text);
	ret->is_reject = is_reject;
	return true;
}

void sqlstates_read(struct reading *r, const struct option *o, const struct yaml_node *node,
	struct config_consumer *c)
{
	if (node->is_broken || node->kind == NODE_NULL || (node->kind == NODE_MAP && node->n == 0))
		return;
	if (node->kind != NODE_MAP) {
		read_error(r, node->place, "must be a map, not %s", read_said(r, o, node));
		read_hint(r, "as in {P0001: reject, 23: retry}");
		return;
	}
	c->sqlstates = xcalloc(node->n, sizeof c->sqlstates[0]);
	for (size_t i = 0; i < node->n; i++) {
		size_t mark = read_enter(r, node->keys[i]->text);
		if (read_entry(r, node->keys[i], node->items[i], &c->sqlstates[c->n_sqlstates]))
			c->n_sqlstates++;
		read_leave(r, mark);
	}
}

/* SPDX-License-Identifier: MIT */
/* The effective configuration as YAML, for people or for the roles. */
#include "base/fd.h"
#include "base/utf8.h"
#include "config/build.h"
#include "config/env.h"
#include "config/mask.h"
#include "config/options_tree.h"
#include "config/scalar.h"

#include <ctype.h>
#include <inttypes.h>
#include <strings.h>

struct printing {
	struct buf *out;
	unsigned depth;
	bool is_masked;
	bool is_item;      /* the next line begins an item of a list */
	unsigned left_out; /* options with one of these flags */
};

/* ---- scalars ------------------------------------------------------------------------------- */

static void begin_line(struct printing *p)
{
	for (unsigned i = 0; i < p->depth; i++)
		buf_add_str(p->out, i + 1 == p->depth && p->is_item ? "- " : "  ");
	p->is_item = false;
}

/* Texts that some reader of YAML takes for something else are quoted, so that nobody wonders. */
static bool is_word_of_yaml(const char *text)
{
	static const char *const words[] = {
		"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		if (strcasecmp(text, words[i]) == 0)
			return true;
	return false;
}

static bool is_plain(const char *text)
{
	int64_t number;
	if (scalar_integer(text, &number) == SCALAR_FINE)
		return true;
	if ((isalpha((unsigned char)text[0]) == 0 && strchr("/_", text[0]) == NULL) ||
		is_word_of_yaml(text))
		return false;
	for (const char *c = text; *c != '\0'; c++) {
		if ((unsigned char)*c >= 0x80 ||
			(isalnum((unsigned char)*c) == 0 && strchr("_./:@+-%=", *c) == NULL))
			return false;
		if (*c == ':' && c[1] == '\0')
			return false;
	}
	return text[0] != '\0';
}

static void put_quoted(struct buf *out, const char *text)
{
	const uint8_t *c = (const uint8_t *)text;
	size_t left = strlen(text);
	uint32_t code = 0;
	buf_add_byte(out, '"');
	while (left > 0) {
		size_t n = diag_step(c, left, &code);
		if (code == '\n')
			buf_add_str(out, "\\n");
		else if (code == '\t')
			buf_add_str(out, "\\t");
		else if (code == '"' || code == '\\')
			buf_addf(out, "\\%c", (int)code);
		else if (utf8_is_visible(code) || code == ' ')
			buf_add(out, c, n);
		else if (code < 0x100)
			buf_addf(out, "\\x%02" PRIX32, code);
		else
			buf_addf(out, code < 0x10000 ? "\\u%04" PRIX32 : "\\U%08" PRIX32, code);
		c += n;
		left -= n;
	}
	buf_add_byte(out, '"');
}

static void put_text(struct buf *out, const char *text)
{
	if (is_plain(text))
		buf_add_str(out, text);
	else
		put_quoted(out, text);
}

/* A value: passwords in it masked for people, "${" kept from being read as a variable. */
static void put_value(struct printing *p, const char *text, bool is_always_quoted)
{
	AUTO(buf) struct buf shown = {0}, escaped = {0};
	if (p->is_masked)
		mask_value(text, &shown);
	else
		buf_add_str(&shown, text);
	env_escape(buf_str(&shown), &escaped);
	if (is_always_quoted)
		put_quoted(p->out, buf_str(&escaped));
	else
		put_text(p->out, buf_str(&escaped));
}

static void put_name(struct printing *p, const char *name)
{
	begin_line(p);
	put_text(p->out, name);
	buf_add_byte(p->out, ':');
}

/* ---- a handler's options ------------------------------------------------------------------- */

static void print_node(struct printing *p, const struct yaml_node *node, bool is_secret);

static void print_entries(struct printing *p, const struct yaml_node *node, bool is_secret)
{
	p->depth++;
	for (size_t i = 0; i < node->n; i++) {
		if (node->kind == NODE_MAP) {
			put_name(p, node->keys[i]->text);
		} else {
			begin_line(p);
			buf_add_byte(p->out, '-');
		}
		print_node(p, node->items[i],
			is_secret ||
				(node->kind == NODE_MAP &&
					mask_is_secret_name(node->keys[i]->text)));
	}
	p->depth--;
}

/* What stands behind "name:" or "-", with the end of the line. */
static void print_node(struct printing *p, const struct yaml_node *node, bool is_secret)
{
	if (node->n > 0) {
		buf_add_byte(p->out, '\n');
		print_entries(p, node, is_secret);
		return;
	}
	buf_add_byte(p->out, ' ');
	if (node->kind == NODE_LIST || node->kind == NODE_MAP)
		buf_add_str(p->out, node->kind == NODE_LIST ? "[]" : "{}");
	else if (node->kind == NODE_NULL)
		buf_add_str(p->out, "null");
	else if (is_secret && p->is_masked)
		put_text(p->out, MASK);
	else
		put_value(p, node->text, false);
	buf_add_byte(p->out, '\n');
}

/* ---- fields by type ------------------------------------------------------------------------ */

static const void *field_of(const void *base, size_t offset)
{
	return (const char *)base + offset;
}

static const char *text_of(const struct option *o, const void *base)
{
	return *(const char *const *)field_of(base, o->offset);
}

static void put_list(struct printing *p, const struct string_list *list)
{
	if (list->n == 1) {
		put_value(p, list->items[0], false);
		return;
	}
	for (size_t i = 0; i < list->n; i++) {
		buf_add_str(p->out, i == 0 ? "[" : ", ");
		put_value(p, list->items[i], false);
	}
	buf_add_byte(p->out, ']');
}

static void put_durations(struct printing *p, const uint64_t *values, size_t n)
{
	buf_add_byte(p->out, '[');
	for (size_t i = 0; i < n; i++) {
		buf_add_str(p->out, i == 0 ? "" : ", ");
		scalar_add_duration(p->out, values[i]);
	}
	buf_add_byte(p->out, ']');
}

static void put_sqlstates(struct printing *p, const struct config_consumer *c)
{
	buf_add_byte(p->out, '{');
	for (size_t i = 0; i < c->n_sqlstates; i++)
		buf_addf(p->out, "%s\"%s\": %s", i == 0 ? "" : ", ", c->sqlstates[i].state,
			c->sqlstates[i].is_reject ? "reject" : "retry");
	buf_add_byte(p->out, '}');
}

static void put_number(struct printing *p, const struct option *o, const void *base)
{
	if (o->type == OPTION_SIZE) {
		scalar_add_size(p->out, *(const uint64_t *)field_of(base, o->offset));
		return;
	}
	uint32_t value = *(const uint32_t *)field_of(base, o->offset);
	if (value == 0 && o->zero != NULL)
		buf_add_str(p->out, o->zero);
	else if (o->type == OPTION_SECONDS)
		scalar_add_duration(p->out, UINT64_C(1000) * value);
	else if (o->type == OPTION_DURATION)
		scalar_add_duration(p->out, value);
	else
		buf_addf(p->out, "%" PRIu32 "%s", value, o->type == OPTION_PERCENT ? "%" : "");
}

static bool is_text(enum option_type type)
{
	static const bool texts[OPTION_TYPE_COUNT] = {
		[OPTION_TEXT] = true,
		[OPTION_NAME] = true,
		[OPTION_HANDLER] = true,
		[OPTION_IDENTIFIER] = true,
		[OPTION_PATH] = true,
		[OPTION_DIRECTORY] = true,
		[OPTION_WORD_TEXT] = true,
		[OPTION_CONNINFO] = true,
	};
	return texts[type];
}

/* One line: the name and what belongs to it. */
static void print_field(struct printing *p, const struct option *o, const void *base)
{
	if ((is_text(o->type) || o->type == OPTION_SQLSTATES) && text_of(o, base) == NULL)
		return;
	put_name(p, o->name);
	buf_add_byte(p->out, ' ');
	if (is_text(o->type) && p->is_masked && (o->flags & OPTION_SECRET) != 0)
		put_text(p->out, MASK);
	else if (is_text(o->type))
		put_value(p, text_of(o, base), false);
	else if (o->type == OPTION_PATHS || o->type == OPTION_URIS || o->type == OPTION_SOURCES)
		put_list(p, field_of(base, o->offset));
	else if (o->type == OPTION_WORD)
		put_text(p->out, o->words[*(const unsigned *)field_of(base, o->offset)]);
	else if (o->type == OPTION_BOOL)
		buf_add_str(p->out, *(const bool *)field_of(base, o->offset) ? "true" : "false");
	else if (o->type == OPTION_SQLSTATES)
		put_sqlstates(p, base);
	else if (o->type == OPTION_DURATIONS)
		put_durations(p, *(uint64_t *const *)field_of(base, o->offset),
			*(const size_t *)field_of(base, o->offset_n));
	else
		put_number(p, o, base);
	buf_add_byte(p->out, '\n');
}

/* ---- sections ------------------------------------------------------------------------------ */

static void print_section(struct printing *p, enum section_id id, const void *base);

static void print_child(struct printing *p, const char *name, enum section_id id, const void *base)
{
	put_name(p, name);
	buf_add_byte(p->out, '\n');
	p->depth++;
	print_section(p, id, base);
	p->depth--;
}

static void print_arguments(struct printing *p, const struct config_topology *t)
{
	if (t->n_arguments == 0)
		return;
	put_name(p, "arguments");
	buf_add_byte(p->out, '\n');
	p->depth++;
	for (size_t i = 0; i < t->n_arguments; i++) {
		const struct config_argument *a = &t->arguments[i];
		put_name(p, a->name);
		buf_add_byte(p->out, ' ');
		if (a->kind == ARGUMENT_STRING)
			put_value(p, a->string, true);
		else if (a->kind == ARGUMENT_INTEGER)
			buf_addf(p->out, "%" PRId64, a->integer);
		else
			buf_add_str(p->out, a->integer != 0 ? "true" : "false");
		buf_add_byte(p->out, '\n');
	}
	p->depth--;
}

static void print_bindings(struct printing *p, const struct config_topology *t)
{
	if (t->n_bindings == 0)
		return;
	put_name(p, "bindings");
	buf_add_byte(p->out, '\n');
	p->depth += 2;
	for (size_t i = 0; i < t->n_bindings; i++) {
		p->is_item = true;
		print_section(p, SECTION_BINDING, &t->bindings[i]);
	}
	p->depth -= 2;
}

static void print_options(struct printing *p, const struct config_consumer *c)
{
	const struct yaml_node *root = options_root(c->options);
	if (root->n == 0)
		return;
	put_name(p, "options");
	print_node(p, root, false);
}

/* Without TLS its options mean nothing, and reading them back would say so. */
static bool has_tls(const struct config_broker *b)
{
	return strncmp(b->uris.items[0], "amqps", 5) == 0;
}

static void print_option(struct printing *p, const struct option *o, const void *base)
{
	if ((o->flags & p->left_out) != 0 || o->type == OPTION_ONE || o->type == OPTION_MANY)
		return;
	if (o->child == SECTION_TOPOLOGY &&
		!((const struct config_consumer *)base)->topology.declare)
		return;
	if (o->child == SECTION_DEAD_LETTER &&
		((const struct config_consumer *)base)->dead_letter.exchange == NULL)
		return;
	if (o->child == SECTION_TLS && !has_tls(base))
		return;
	if (o->type == OPTION_SECTION)
		print_child(p, o->name, o->child, base);
	else if (o->type == OPTION_ARGUMENTS)
		print_arguments(p, &((const struct config_consumer *)base)->topology);
	else if (o->type == OPTION_BINDINGS)
		print_bindings(p, &((const struct config_consumer *)base)->topology);
	else if (o->type == OPTION_FREE)
		print_options(p, base);
	else
		print_field(p, o, base);
}

static void print_section(struct printing *p, enum section_id id, const void *base)
{
	const struct section *s = schema_section(id);
	for (size_t i = 0; i < s->n; i++)
		print_option(p, &s->options[i], base);
}

/* ---- the whole ----------------------------------------------------------------------------- */

static void print_brokers(
	struct printing *p, const struct config *c, const struct config_broker *only)
{
	bool is_single = (only != NULL || c->n_brokers == 1) &&
		strcmp((only != NULL ? only : c->brokers[0])->name, "default") == 0;
	if (c->n_brokers == 0 || (p->left_out & OPTION_OF_BROKER) != 0)
		return;
	if (!is_single)
		put_name(p, "brokers");
	buf_add_str(p->out, is_single ? "" : "\n");
	p->depth += is_single ? 0 : 1;
	for (size_t i = 0; i < c->n_brokers; i++)
		if (only == NULL || only == c->brokers[i])
			print_child(p, is_single ? "broker" : c->brokers[i]->name, SECTION_BROKER,
				c->brokers[i]);
	p->depth -= is_single ? 0 : 1;
}

static void print_databases(
	struct printing *p, const struct config *c, const struct config_database *only)
{
	bool is_single = (only != NULL || c->n_databases == 1) &&
		strcmp((only != NULL ? only : c->databases[0])->name, "default") == 0;
	if (c->n_databases == 0 || (p->left_out & OPTION_OF_DATABASE) != 0)
		return;
	if (!is_single)
		put_name(p, "databases");
	buf_add_str(p->out, is_single ? "" : "\n");
	p->depth += is_single ? 0 : 1;
	for (size_t i = 0; i < c->n_databases; i++)
		if (only == NULL || only == c->databases[i])
			print_child(p, is_single ? "database" : c->databases[i]->name,
				SECTION_DATABASE, c->databases[i]);
	p->depth -= is_single ? 0 : 1;
}

void config_print(
	const struct config *c, enum config_part part, const char *consumer, struct buf *out)
{
	static const unsigned left_out[] = {
		[CONFIG_FOR_CONSUMER] = OPTION_OF_DATABASE | OPTION_OF_HANDLER,
		[CONFIG_FOR_WORKER] = OPTION_OF_BROKER,
		[CONFIG_FOR_JANITOR] = OPTION_OF_BROKER | OPTION_OF_HANDLER,
		[CONFIG_FOR_PEOPLE] = 0,
		[CONFIG_COMPLETE] = 0,
	};
	struct printing p = {
		.out = out, .is_masked = part == CONFIG_FOR_PEOPLE, .left_out = left_out[part]};
	const struct config_consumer *only =
		consumer != NULL ? config_find_consumer(c, consumer) : NULL;
	print_section(&p, SECTION_TOP, c);
	print_brokers(&p, c, only != NULL ? only->broker : NULL);
	print_databases(&p, c, only != NULL ? only->database : NULL);
	put_name(&p, "consumers");
	buf_add_byte(out, '\n');
	p.depth++;
	for (size_t i = 0; i < c->n_consumers; i++)
		if (consumer == NULL || only == c->consumers[i])
			print_child(&p, c->consumers[i]->name, SECTION_CONSUMER, c->consumers[i]);
}

/* SPDX-License-Identifier: MIT */
/* Sections, named maps and the consumers over their defaults. */
#include "config/build.h"

#include "base/fd.h"
#include "config/check.h"
#include "config/env.h"
#include "config/options_tree.h"
#include "config/sqlstates.h"
#include "config/topology.h"

#include <ctype.h>

const struct yaml_node *level_find(const struct level *at, const char *name)
{
	const struct yaml_node *own = yaml_find(at->own, name);
	return own != NULL ? own : yaml_find(at->beneath, name);
}

static void *field_of(void *base, size_t offset)
{
	return (char *)base + offset;
}

/* ---- sections ------------------------------------------------------------------------------ */

/* Whether a section can be read: it is a map, or nothing. */
static bool is_map(struct reading *r, const struct yaml_node *map)
{
	if (map == NULL || map->kind == NODE_NULL || map->kind == NODE_MAP)
		return map == NULL || !map->is_broken;
	if (!map->is_broken) {
		read_error(r, map->place, "must be a map of options, not a %s",
			map->kind == NODE_LIST ? "list" : "text");
		read_hint(
			r, "write each option as \"name: value\", indented, on a line of its own");
	}
	return false;
}

/* Tells names that are none of the section's options. */
static void check_names(struct reading *r, enum section_id id, const struct yaml_node *map)
{
	for (size_t i = 0; map != NULL && i < map->n; i++) {
		const struct yaml_node *key = map->keys[i];
		const struct option *o = schema_find(id, key->text);
		if (key->is_broken ||
			(o != NULL && (!r->is_defaults || (o->flags & OPTION_OWN) == 0)))
			continue;
		AUTO(buf) struct buf name = {0}, hint = {0};
		diag_quote(&name, key->text);
		if (o != NULL) {
			diag_add(r->diags, key->place, "\"%s\" cannot stand in defaults",
				buf_str(&name));
			diag_hint(r->diags, "each consumer has its own");
			continue;
		}
		schema_hint_unknown(id, key->text, &hint);
		diag_add(r->diags, key->place, "unknown option \"%s\"%s%s", buf_str(&name),
			r->path.size != 0 ? " in " : "", buf_str(&r->path));
		diag_hint(r->diags, "%s", buf_str(&hint));
	}
}

/* The default as a node: "x", or "[x, y]". */
static const struct yaml_node *default_node(
	struct reading *r, const struct option *o, struct place place)
{
	const char *def = strcmp(o->def, "\"\"") == 0 ? "" : o->def;
	struct yaml_node *node = yaml_new(r->pool, NODE_SCALAR, place);
	if (def[0] != '[') {
		node->text = xstrdup(def);
		return node;
	}
	node->kind = NODE_LIST;
	for (const char *p = def + 1; *p != '\0';) {
		size_t n = strcspn(p, ",]");
		struct yaml_node *item = yaml_new(r->pool, NODE_SCALAR, place);
		item->text = xstrndup(p, n);
		yaml_append(node, NULL, item);
		p += n + 1 + strspn(p + n + 1, " ");
	}
	return node;
}

/* ---- one option ---------------------------------------------------------------------------- */

static void read_options(struct reading *r, const struct option *o, const struct level *at,
	struct config_consumer *c)
{
	const struct yaml_node *own = yaml_find(at->own, o->name);
	const struct yaml_node *beneath = yaml_find(at->beneath, o->name);
	if (own != NULL && !own->is_broken && own->kind != NODE_MAP && own->kind != NODE_NULL) {
		read_error(r, own->place, "must be a map, not %s", read_said(r, o, own));
		read_hint(r, "the handler's manual tells its options");
	}
	c->options = options_new(
		r->pool, own, beneath, own != NULL ? yaml_key_place(at->own, o->name) : at->place);
}

/* ---- one option ---------------------------------------------------------------------------- */

static void read_node(
	struct reading *r, const struct option *o, const struct yaml_node *node, void *base)
{
	if (o->type == OPTION_ARGUMENTS)
		topology_read_arguments(r, o, node, base);
	else if (o->type == OPTION_BINDINGS)
		topology_read_bindings(r, o, node, base);
	else if (o->type == OPTION_SQLSTATES)
		sqlstates_read(r, o, node, base);
	else
		(void)read_option(r, o, node, base);
}

static void read_value(
	struct reading *r, const struct option *o, const struct level *at, void *base)
{
	const struct yaml_node *own = yaml_find(at->own, o->name), *node = level_find(at, o->name);
	if (node == NULL && o->def != NULL)
		node = default_node(r, o, at->place);
	if (node != NULL) {
		/* What stands in defaults is checked once, there. */
		bool was_quiet = r->is_quiet;
		r->is_quiet = was_quiet || own == NULL;
		read_node(r, o, node, base);
		r->is_quiet = was_quiet;
	} else if ((o->flags & OPTION_REQUIRED) != 0 && !r->is_defaults) {
		read_error(r, at->place, "is missing");
		read_hint(r, "%s: %s", o->name, o->help);
	}
}

static void read_entry(
	struct reading *r, const struct option *o, const struct level *at, void *base)
{
	struct level child = {
		yaml_find(at->own, o->name), yaml_find(at->beneath, o->name), at->place};
	size_t mark = read_enter(r, o->name);
	if (child.own != NULL) {
		child.place = yaml_key_place(at->own, o->name);
		if ((o->flags & OPTION_WHOLE) != 0)
			child.beneath = NULL;
	}
	if (o->type == OPTION_SECTION)
		build_section(r, o->child, &child, base);
	else if (o->type == OPTION_FREE)
		read_options(r, o, at, base);
	else if (o->type != OPTION_ONE && o->type != OPTION_MANY)
		read_value(r, o, at, base);
	read_leave(r, mark);
}

void build_section(struct reading *r, enum section_id id, const struct level *at, void *base)
{
	const struct section *s = schema_section(id);
	if (!is_map(r, at->own))
		return;
	check_names(r, id, at->own);
	for (size_t i = 0; i < s->n; i++)
		read_entry(r, &s->options[i], at, base);
}

/* ---- brokers, databases -------------------------------------------------------------------- */

static struct config_origin *origin_new(struct reading *r, const struct level *at)
{
	struct config_origin *origin = xcalloc(1, sizeof *origin);
	origin->level = *at;
	origin->path = xstrdup(buf_str(&r->path));
	return origin;
}

static void *grown(void *array, size_t n, void *item)
{
	void **items = xrealloc(array, (n + 1) * sizeof items[0]);
	items[n] = item;
	return items;
}

static void add_broker(struct reading *r, const char *name, const struct level *at)
{
	struct config_broker *b = xcalloc(1, sizeof *b);
	b->name = xstrdup(name);
	b->origin = origin_new(r, at);
	r->config->brokers = grown(r->config->brokers, r->config->n_brokers++, b);
	build_section(r, SECTION_BROKER, at, b);
	check_broker(r, at->own, b);
}

static void add_database(struct reading *r, const char *name, const struct level *at)
{
	struct config_database *d = xcalloc(1, sizeof *d);
	d->name = xstrdup(name);
	d->origin = origin_new(r, at);
	r->config->databases = grown(r->config->databases, r->config->n_databases++, d);
	build_section(r, SECTION_DATABASE, at, d);
}

static bool is_name(const char *text)
{
	size_t n = strlen(text);
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)text[i] >= 0x80 ||
			(isalnum((unsigned char)text[i]) == 0 && strchr("_.-", text[i]) == NULL))
			return false;
	return n > 0 && n <= CONFIG_NAME_MAX;
}

typedef void add_named(struct reading *r, const char *name, const struct level *at);

/* A map of names to sections. */
static void read_many(struct reading *r, const struct yaml_node *map,
	const struct yaml_node *beneath, add_named *add)
{
	if (map->is_broken)
		return;
	if (map->kind != NODE_MAP || map->n == 0) {
		read_error(r, map->place,
			map->kind == NODE_MAP || map->kind == NODE_NULL ? "is empty"
									: "must be a map of names");
		read_hint(r, "write a name, and its options indented beneath");
		return;
	}
	for (size_t i = 0; i < map->n; i++) {
		const struct yaml_node *key = map->keys[i];
		struct level at = {map->items[i], beneath, key->place};
		if (!key->is_broken && !is_name(key->text)) {
			AUTO(buf) struct buf quoted = {0};
			diag_quote(&quoted, key->text);
			read_error(r, key->place, ": \"%s\" cannot be a name", buf_str(&quoted));
			read_hint(r, "letters, digits, \"_\", \".\" and \"-\", at most %d",
				CONFIG_NAME_MAX);
		}
		size_t mark = read_enter(r, key->text);
		add(r, key->text, &at);
		read_leave(r, mark);
	}
}

/* `broker:` or `brokers:`; neither is the default, but in a role it is none. */
static void read_one_or_many(struct reading *r, const struct yaml_node *root, const char *one,
	const char *many, add_named *add)
{
	const struct yaml_node *single = yaml_find(root, one), *map = yaml_find(root, many);
	struct level at = {single, NULL, yaml_key_place(root, one)};
	if (single != NULL && map != NULL) {
		diag_add(r->diags, yaml_key_place(root, many),
			"\"%s\" and \"%s\" exclude each other", one, many);
		diag_hint(r->diags, "put the single one into \"%s\", under the name default", many);
	}
	size_t mark = read_enter(r, map != NULL ? many : one);
	if (map != NULL)
		read_many(r, map, NULL, add);
	else if (single != NULL || !r->is_role)
		add(r, "default", &at);
	read_leave(r, mark);
}

/* ---- consumers ----------------------------------------------------------------------------- */

enum { DELIVERY_LIMIT = 20 }; /* of quorum queues since RabbitMQ 4.0 */

static uint32_t declared_limit(const struct config_topology *t)
{
	for (size_t i = 0; i < t->n_arguments; i++) {
		const struct config_argument *a = &t->arguments[i];
		if (strcmp(a->name, "x-delivery-limit") == 0 && a->kind == ARGUMENT_INTEGER &&
			a->integer > 0 && a->integer < DELIVERY_LIMIT_MAX)
			return (uint32_t)a->integer;
	}
	return DELIVERY_LIMIT;
}

static void set_computed(const struct level *at, struct config_consumer *c)
{
	if (c->identity == NULL)
		c->identity = xstrdup(c->name);
	if (level_find(at, "prefetch") == NULL) {
		uint64_t held = UINT64_C(4) * c->workers * c->batch_max;
		c->prefetch = held < UINT16_MAX ? (uint32_t)held : UINT16_MAX;
	}
	if (level_find(at, "delivery_limit") == NULL)
		c->delivery_limit = declared_limit(&c->topology);
	c->topology.declare = yaml_find(at->own, "topology") != NULL;
}

static void add_consumer(struct reading *r, const char *name, const struct level *at)
{
	struct config_consumer *c = xcalloc(1, sizeof *c);
	c->name = xstrdup(name);
	c->origin = origin_new(r, at);
	r->config->consumers = grown(r->config->consumers, r->config->n_consumers++, c);
	build_section(r, SECTION_CONSUMER, at, c);
	if (c->options == NULL)
		c->options = options_new(r->pool, NULL, NULL, at->place);
	set_computed(at, c);
	check_consumer(r, at, c);
}

/* Values in defaults are wrong or right by themselves, whether a consumer uses them or not. */
static void check_defaults(struct reading *r, const struct yaml_node *defaults)
{
	struct config_consumer c = {0};
	struct level at = {defaults, NULL, defaults->place};
	size_t mark = read_enter(r, "defaults");
	r->is_defaults = true;
	build_section(r, SECTION_CONSUMER, &at, &c);
	check_rules(r, &at, &c);
	r->is_defaults = false;
	read_leave(r, mark);
	build_done(SECTION_CONSUMER, &c);
	key_rule_done(&c.key);
	fingerprint_rule_done(&c.fingerprint);
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(struct config_consumer *const *)a)->name,
		(*(struct config_consumer *const *)b)->name);
}

static void read_consumers(struct reading *r, const struct yaml_node *root)
{
	const struct yaml_node *defaults = yaml_find(root, "defaults");
	const struct yaml_node *consumers = yaml_find(root, "consumers");
	const struct option *o = schema_find(SECTION_TOP, "consumers");
	if (defaults != NULL)
		check_defaults(r, defaults);
	size_t mark = read_enter(r, "consumers");
	if (consumers != NULL) {
		read_many(r, consumers, defaults, add_consumer);
	} else {
		read_error(r, root->place, "is missing");
		read_hint(r, "%s: %s", o->name, o->help);
	}
	read_leave(r, mark);
	if (r->config->n_consumers > 1)
		qsort(r->config->consumers, r->config->n_consumers, sizeof(void *), by_name);
	check_identities(r);
}

/* systemd gives a list where a unit has several; the first is the one meant. */
static void set_runtime_directory(struct config *c)
{
	const char *given = getenv("RUNTIME_DIRECTORY");
	if (c->runtime_directory != NULL)
		return;
	if (given != NULL && given[0] == '/')
		c->runtime_directory = xstrndup(given, strcspn(given, ":"));
	else
		c->runtime_directory = xstrdup("/run/inboxd");
}

void build_config(struct reading *r, const struct yaml_node *root)
{
	struct level at = {root, NULL, root->place};
	build_section(r, SECTION_TOP, &at, r->config);
	set_runtime_directory(r->config);
	read_one_or_many(r, root, "broker", "brokers", add_broker);
	read_one_or_many(r, root, "database", "databases", add_database);
	read_consumers(r, root);
}

/* ---- the end ------------------------------------------------------------------------------- */

static void option_done(const struct option *o, void *base)
{
	static const bool is_pointer[OPTION_TYPE_COUNT] = {
		[OPTION_TEXT] = true,
		[OPTION_NAME] = true,
		[OPTION_HANDLER] = true,
		[OPTION_IDENTIFIER] = true,
		[OPTION_PATH] = true,
		[OPTION_DIRECTORY] = true,
		[OPTION_WORD_TEXT] = true,
		[OPTION_CONNINFO] = true,
		[OPTION_DURATIONS] = true,
		[OPTION_SQLSTATES] = true,
	};
	if (is_pointer[o->type])
		free(*(void **)field_of(base, o->offset));
	else if (o->type == OPTION_PATHS || o->type == OPTION_URIS || o->type == OPTION_SOURCES)
		string_list_done(field_of(base, o->offset));
	else if (o->type == OPTION_FREE)
		options_free(*(struct options **)field_of(base, o->offset));
	else if (o->type == OPTION_ARGUMENTS)
		topology_arguments_done(base);
	else if (o->type == OPTION_BINDINGS)
		topology_bindings_done(base);
	else if (o->type == OPTION_SECTION)
		build_done(o->child, base);
}

void build_done(enum section_id id, void *base)
{
	const struct section *s = schema_section(id);
	for (size_t i = 0; i < s->n; i++)
		option_done(&s->options[i], base);
}

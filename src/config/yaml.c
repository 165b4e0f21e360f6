/* SPDX-License-Identifier: MIT */
/* libyaml's events to nodes. */
#include "config/yaml.h"

#include "base/fd.h"
#include "config/text.h"

#include <yaml.h>

struct parsing {
	yaml_parser_t parser;
	yaml_event_t event;
	struct yaml_pool *pool;
	const struct diag_file *file;
	struct diags *diags;
	unsigned depth;
};

void yaml_pool_done(struct yaml_pool *pool)
{
	while (pool->nodes != NULL) {
		struct yaml_node *node = pool->nodes;
		pool->nodes = node->next;
		free(node->text);
		free(node->written);
		free(node->keys);
		free(node->items);
		free(node);
	}
	while (pool->files != NULL) {
		struct diag_file *file = pool->files;
		pool->files = file->next;
		free(file->name);
		free(file->directory);
		free(file->text);
		free(file);
	}
	*pool = (struct yaml_pool){0};
}

struct diag_file *yaml_add_file(
	struct yaml_pool *pool, const char *name, const char *directory, struct bytes text)
{
	struct diag_file *file = xcalloc(1, sizeof *file);
	if (text.size >= 3 && memcmp(text.data, "\xef\xbb\xbf", 3) == 0)
		text = bytes_of(text.data + 3, text.size - 3);
	file->name = xstrdup(name);
	file->directory = xstrdup(directory);
	file->text = xcalloc(1, text.size + 1);
	if (text.size != 0)
		memcpy(file->text, text.data, text.size);
	file->size = text.size;
	file->order = pool->n_files++;
	file->next = pool->files;
	pool->files = file;
	return file;
}

struct yaml_node *yaml_new(struct yaml_pool *pool, enum node_kind kind, struct place place)
{
	struct yaml_node *node = xcalloc(1, sizeof *node);
	node->kind = kind;
	node->place = place;
	node->next = pool->nodes;
	pool->nodes = node;
	return node;
}

void yaml_append(struct yaml_node *to, struct yaml_node *key, struct yaml_node *item)
{
	if (to->n == to->cap) {
		to->cap = to->cap != 0 ? 2 * to->cap : 8;
		to->items = xrealloc(to->items, to->cap * sizeof to->items[0]);
		if (to->kind == NODE_MAP)
			to->keys = xrealloc(to->keys, to->cap * sizeof to->keys[0]);
	}
	if (to->kind == NODE_MAP)
		to->keys[to->n] = key;
	to->items[to->n++] = item;
}

/* Index of a key; n if there is none. */
static size_t index_of(const struct yaml_node *map, const char *key)
{
	size_t i = 0;
	while (i < map->n && strcmp(map->keys[i]->text, key) != 0)
		i++;
	return i;
}

struct yaml_node *yaml_find(const struct yaml_node *map, const char *key)
{
	if (map == NULL || map->kind != NODE_MAP)
		return NULL;
	size_t i = index_of(map, key);
	return i < map->n ? map->items[i] : NULL;
}

struct place yaml_key_place(const struct yaml_node *map, const char *key)
{
	size_t i = map->kind == NODE_MAP ? index_of(map, key) : map->n;
	return i < map->n ? map->keys[i]->place : map->place;
}

static struct place place_of(const struct parsing *p, yaml_mark_t mark)
{
	return (struct place){.file = p->file,
		.line = (uint32_t)mark.line + 1,
		.column = (uint32_t)mark.column + 1};
}

static bool next_event(struct parsing *p)
{
	yaml_event_delete(&p->event);
	if (yaml_parser_parse(&p->parser, &p->event) != 0)
		return true;
	text_syntax_error(p->diags, place_of(p, p->parser.problem_mark), p->parser.problem,
		place_of(p, p->parser.context_mark), p->parser.context);
	return false;
}

static bool is_null_text(const char *text)
{
	static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
	for (size_t i = 0; i < sizeof nulls / sizeof nulls[0]; i++)
		if (strcmp(text, nulls[i]) == 0)
			return true;
	return false;
}

static struct yaml_node *take_scalar(struct parsing *p)
{
	const char *text = (const char *)p->event.data.scalar.value;
	struct yaml_node *node = yaml_new(p->pool, NODE_SCALAR, place_of(p, p->event.start_mark));
	node->is_quoted = p->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
	node->text = xstrdup(text);
	if (!node->is_quoted && is_null_text(text))
		node->kind = NODE_NULL;
	if (strlen(text) != p->event.data.scalar.length) {
		diag_add(p->diags, node->place, "a NUL character cannot stand in a text");
		diag_hint(p->diags, "remove the \"\\0\"");
		node->is_broken = true;
	}
	return node;
}

static void refuse_anchor(struct parsing *p, const yaml_char_t *anchor)
{
	if (anchor == NULL)
		return;
	diag_add(p->diags, place_of(p, p->event.start_mark), "anchors (\"&%s\") are not read",
		anchor);
	diag_hint(p->diags, "write the value out; what consumers share can stand in \"defaults\"");
}

static void refuse_tag(struct parsing *p, const yaml_char_t *tag)
{
	if (tag == NULL)
		return;
	static const char standard[] = "tag:yaml.org,2002:"; /* written "!!" */
	AUTO(buf) struct buf quoted = {0};
	bool is_standard = strncmp((const char *)tag, standard, sizeof standard - 1) == 0;
	buf_add_str(&quoted, is_standard ? "!!" : "");
	diag_quote(&quoted, (const char *)tag + (is_standard ? sizeof standard - 1 : 0));
	diag_add(p->diags, place_of(p, p->event.start_mark), "tags (\"%s\") are not read",
		buf_str(&quoted));
	diag_hint(p->diags,
		"leave it out: a value is read as its option asks; "
		"a text that begins with \"!\" must be quoted");
}

static struct yaml_node *take_alias(struct parsing *p)
{
	struct yaml_node *node = yaml_new(p->pool, NODE_NULL, place_of(p, p->event.start_mark));
	node->text = xstrdup("");
	node->is_broken = true;
	diag_add(p->diags, node->place, "aliases (\"*%s\") are not read",
		p->event.data.alias.anchor);
	diag_hint(p->diags, "write the value out; a text that begins with \"*\" must be quoted");
	return node;
}

static struct yaml_node *take_node(struct parsing *p);

static struct yaml_node *take_list(struct parsing *p)
{
	struct yaml_node *node = yaml_new(p->pool, NODE_LIST, place_of(p, p->event.start_mark));
	for (;;) {
		if (!next_event(p))
			return NULL;
		if (p->event.type == YAML_SEQUENCE_END_EVENT)
			return node;
		struct yaml_node *item = take_node(p);
		if (item == NULL)
			return NULL;
		yaml_append(node, NULL, item);
	}
}

/* By text, then by place: of two keys with one name the later one is the mistake. */
static int by_key(const void *a, const void *b)
{
	const struct yaml_node *x = *(struct yaml_node *const *)a,
			       *y = *(struct yaml_node *const *)b;
	int c = strcmp(x->text, y->text);
	if (c != 0)
		return c;
	if (x->place.line != y->place.line)
		return x->place.line < y->place.line ? -1 : 1;
	return x->place.column < y->place.column ? -1 : 1;
}

static void refuse_duplicates(struct parsing *p, const struct yaml_node *map)
{
	if (map->n < 2)
		return;
	AUTO(free) struct yaml_node **keys = xmalloc(map->n * sizeof keys[0]);
	memcpy(keys, map->keys, map->n * sizeof keys[0]);
	qsort(keys, map->n, sizeof keys[0], by_key);
	for (size_t i = 1; i < map->n; i++) {
		if (keys[i]->is_broken || strcmp(keys[i - 1]->text, keys[i]->text) != 0)
			continue;
		AUTO(buf) struct buf quoted = {0};
		diag_quote(&quoted, keys[i]->text);
		diag_add(p->diags, keys[i]->place, "\"%s\" is set twice", buf_str(&quoted));
		diag_hint(p->diags, "it was set in line %u already; remove one of the two",
			keys[i - 1]->place.line);
	}
}

/* A key that is a list, map or alias is told, and an empty name takes its place. */
static struct yaml_node *take_key(struct parsing *p)
{
	struct yaml_node *key = take_node(p);
	if (key == NULL || key->kind == NODE_SCALAR)
		return key;
	bool is_missing = key->kind == NODE_NULL && key->text[0] == '\0' && !key->is_broken;
	if (is_missing)
		diag_add(p->diags, key->place, "a key is missing in front of the colon");
	else if (key->kind != NODE_NULL)
		diag_add(p->diags, key->place, "a key must be a text, not a %s",
			key->kind == NODE_LIST ? "list" : "map");
	if (is_missing || key->kind != NODE_NULL)
		diag_hint(p->diags, "write \"name: value\"");
	struct yaml_node *named = yaml_new(p->pool, NODE_SCALAR, key->place);
	named->text = xstrdup(key->text != NULL ? key->text : "");
	named->is_broken = named->text[0] == '\0';
	return named;
}

static struct yaml_node *take_map(struct parsing *p)
{
	struct yaml_node *node = yaml_new(p->pool, NODE_MAP, place_of(p, p->event.start_mark));
	for (;;) {
		if (!next_event(p))
			return NULL;
		if (p->event.type == YAML_MAPPING_END_EVENT)
			break;
		struct yaml_node *key = take_key(p);
		if (key == NULL || !next_event(p))
			return NULL;
		struct yaml_node *item = take_node(p);
		if (item == NULL)
			return NULL;
		yaml_append(node, key, item);
	}
	refuse_duplicates(p, node);
	return node;
}

static struct yaml_node *take_collection(struct parsing *p)
{
	if (p->depth == YAML_DEPTH_MAX) {
		diag_add(p->diags, place_of(p, p->event.start_mark),
			"lists and maps are nested more than %d deep", YAML_DEPTH_MAX);
		diag_hint(p->diags, "write it flatter");
		return NULL;
	}
	bool is_list = p->event.type == YAML_SEQUENCE_START_EVENT;
	refuse_anchor(p,
		is_list ? p->event.data.sequence_start.anchor : p->event.data.mapping_start.anchor);
	refuse_tag(p, is_list ? p->event.data.sequence_start.tag : p->event.data.mapping_start.tag);
	p->depth++;
	struct yaml_node *node = is_list ? take_list(p) : take_map(p);
	p->depth--;
	return node;
}

/* The node that begins with the current event; NULL when the text cannot be read on. */
static struct yaml_node *take_node(struct parsing *p)
{
	if (p->event.type == YAML_ALIAS_EVENT)
		return take_alias(p);
	if (p->event.type != YAML_SCALAR_EVENT)
		return take_collection(p);
	refuse_anchor(p, p->event.data.scalar.anchor);
	refuse_tag(p, p->event.data.scalar.tag);
	return take_scalar(p);
}

/* What follows the first document: nothing. */
static bool take_end(struct parsing *p)
{
	if (!next_event(p) || !next_event(p))
		return false;
	if (p->event.type == YAML_DOCUMENT_START_EVENT) {
		diag_add(p->diags, place_of(p, p->event.start_mark),
			"a second document begins here; only one is read");
		diag_hint(p->diags,
			"remove the \"---\", or put the rest into a file of its own in "
			"conf.d");
	}
	return true;
}

static struct yaml_node *take_document(struct parsing *p)
{
	struct place start = {.file = p->file, .line = 1, .column = 1};
	if (!next_event(p) || !next_event(p)) /* the stream, the document */
		return NULL;
	if (p->event.type == YAML_STREAM_END_EVENT)
		return yaml_new(p->pool, NODE_MAP, start);
	if (!next_event(p))
		return NULL;
	struct yaml_node *root = take_node(p);
	if (root == NULL || !take_end(p))
		return NULL;
	if (root->kind == NODE_NULL && root->text[0] == '\0')
		return yaml_new(p->pool, NODE_MAP, start);
	if (root->kind != NODE_MAP) {
		diag_add(p->diags, root->place,
			"the file must be a map of options, \"name: value\"");
		diag_hint(p->diags, "a blank must follow the colon behind a name");
		return NULL;
	}
	return root;
}

struct yaml_node *yaml_parse(struct yaml_pool *pool, const struct diag_file *file, struct diags *d)
{
	struct parsing p = {.pool = pool, .file = file, .diags = d};
	if (!text_check(file, d))
		return NULL;
	if (yaml_parser_initialize(&p.parser) == 0)
		abort(); /* out of memory, as in xmalloc */
	yaml_parser_set_encoding(&p.parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&p.parser, (const unsigned char *)file->text, file->size);
	struct yaml_node *root = take_document(&p);
	yaml_event_delete(&p.event);
	yaml_parser_delete(&p.parser);
	return root;
}

static bool is_empty(const struct yaml_node *node)
{
	return node->kind == NODE_NULL && !node->is_broken;
}

void yaml_merge(struct yaml_node *into, const struct yaml_node *from, struct diags *d)
{
	size_t n = into->n; /* what this very file brings cannot clash with itself */
	for (size_t i = 0; i < from->n; i++) {
		struct yaml_node *key = from->keys[i], *item = from->items[i], *old = NULL;
		size_t at = 0;
		while (at < n && strcmp(into->keys[at]->text, key->text) != 0)
			at++;
		if (at < n)
			old = into->items[at];
		if (old == NULL) {
			yaml_append(into, key, item);
		} else if (is_empty(old) && item->kind == NODE_MAP) {
			into->items[at] = item;
		} else if (old->kind == NODE_MAP && item->kind == NODE_MAP) {
			yaml_merge(old, item, d);
		} else if (old->kind != NODE_MAP || !is_empty(item)) {
			AUTO(buf) struct buf quoted = {0};
			diag_quote(&quoted, key->text);
			diag_add(d, key->place, "\"%s\" is set already", buf_str(&quoted));
			diag_hint(d, "it was set in %s:%u; only maps of several files are merged",
				into->keys[at]->place.file->name, into->keys[at]->place.line);
		}
	}
}

struct place yaml_place_in(const struct yaml_node *scalar, size_t offset)
{
	struct place place = scalar->place;
	const char *written = scalar->written != NULL ? scalar->written : scalar->text;
	struct bytes line = diag_line(place.file, place.line);
	const uint8_t *p = line.data, *end = line.data + line.size;
	uint32_t code;
	for (uint32_t i = 1; i < place.column && p < end; i++)
		p += diag_step(p, (size_t)(end - p), &code);
	if (offset == 0)
		return place;
	uint32_t quote = scalar->is_quoted && p < end ? 1 : 0;
	p += quote;
	if ((size_t)(end - p) < offset || memcmp(p, written, offset) != 0)
		return place;
	const uint8_t *stop = p + offset;
	for (place.column += quote; p < stop; place.column++)
		p += diag_step(p, (size_t)(stop - p), &code);
	return place;
}

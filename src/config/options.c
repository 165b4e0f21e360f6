/* SPDX-License-Identifier: MIT */
/* A handler's options: paths through a tree of nodes. */
#include "config/options.h"

#include "base/fd.h"
#include "config/options_tree.h"

#include <ctype.h>

struct options {
	const struct yaml_node *root;
	struct place place;
};

static struct yaml_node *copy_map(struct yaml_pool *pool, const struct yaml_node *map)
{
	struct yaml_node *copy = yaml_new(pool, NODE_MAP, map->place);
	for (size_t i = 0; i < map->n; i++)
		yaml_append(copy, map->keys[i], map->items[i]);
	return copy;
}

/* Both are maps. */
static struct yaml_node *overlay(
	struct yaml_pool *pool, const struct yaml_node *own, const struct yaml_node *beneath)
{
	struct yaml_node *both = copy_map(pool, own);
	for (size_t i = 0; i < both->n; i++) {
		const struct yaml_node *other = yaml_find(beneath, both->keys[i]->text);
		if (other != NULL && other->kind == NODE_MAP && both->items[i]->kind == NODE_MAP)
			both->items[i] = overlay(pool, both->items[i], other);
	}
	for (size_t i = 0; i < beneath->n; i++)
		if (yaml_find(own, beneath->keys[i]->text) == NULL)
			yaml_append(both, beneath->keys[i], beneath->items[i]);
	return both;
}

struct options *options_new(struct yaml_pool *pool, const struct yaml_node *own,
	const struct yaml_node *beneath, struct place place)
{
	struct options *o = xcalloc(1, sizeof *o);
	bool has_own = own != NULL && own->kind == NODE_MAP;
	bool has_beneath = beneath != NULL && beneath->kind == NODE_MAP;
	o->place = place;
	if (has_own && has_beneath)
		o->root = overlay(pool, own, beneath);
	else if (has_own || has_beneath)
		o->root = has_own ? own : beneath;
	else
		o->root = yaml_new(pool, NODE_MAP, place);
	return o;
}

void options_free(struct options *o)
{
	free(o);
}

const struct yaml_node *options_root(const struct options *o)
{
	return o->root;
}

/* Takes one name off the path, its escapes resolved. */
static void take_step(const char **path, struct buf *step)
{
	const char *p = *path;
	buf_clear(step);
	for (; *p != '\0' && *p != '/'; p++) {
		bool is_escape = *p == '~' && (p[1] == '0' || p[1] == '1');
		buf_add_byte(step, (uint8_t)(!is_escape ? *p : p[1] == '0' ? '~' : '/'));
		p += is_escape;
	}
	*path = *p == '/' ? p + 1 : NULL;
}

static const struct yaml_node *item_at(const struct yaml_node *list, const char *index)
{
	size_t i = 0;
	if (index[0] == '\0' || (index[0] == '0' && index[1] != '\0'))
		return NULL;
	for (const char *p = index; *p != '\0'; p++) {
		if (isdigit((unsigned char)*p) == 0 || i > UINT32_MAX)
			return NULL;
		i = 10 * i + (size_t)(*p - '0');
	}
	return i < list->n ? list->items[i] : NULL;
}

/* The node at path, or NULL; *ret_last is the last one on the way. */
static const struct yaml_node *walk(
	const struct options *o, const char *path, const struct yaml_node **ret_last)
{
	const struct yaml_node *node = o->root;
	AUTO(buf) struct buf step = {0};
	*ret_last = node;
	if (path[0] == '\0')
		return node;
	while (path != NULL) {
		take_step(&path, &step);
		node = node->kind == NODE_LIST ? item_at(node, buf_str(&step))
					       : yaml_find(node, buf_str(&step));
		if (node == NULL)
			return NULL;
		*ret_last = node;
	}
	return node;
}

struct bytes options_get(const struct options *o, const char *path)
{
	const struct yaml_node *last, *node = walk(o, path, &last);
	return bytes_str(node != NULL && node->kind == NODE_SCALAR ? node->text : NULL);
}

uint32_t options_count(const struct options *o, const char *path)
{
	const struct yaml_node *last, *node = walk(o, path, &last);
	if (node == NULL || node->kind == NODE_NULL)
		return 0;
	return node->kind == NODE_SCALAR ? 1 : (uint32_t)node->n;
}

struct bytes options_name(const struct options *o, const char *path, uint32_t i)
{
	const struct yaml_node *last, *node = walk(o, path, &last);
	bool has_name = node != NULL && node->kind == NODE_MAP && i < node->n;
	return bytes_str(has_name ? node->keys[i]->text : NULL);
}

struct place options_place(const struct options *o, const char *path)
{
	const struct yaml_node *last;
	(void)walk(o, path, &last);
	return last != o->root ? last->place : o->place;
}

/* SPDX-License-Identifier: MIT */
/* YAML text to a tree of nodes with their places.  The only includer of libyaml.
 *
 * Less than YAML is read, so that a file says what it seems to say: one document, scalar keys, each
 * once in its map, no anchors, aliases or tags.  A scalar is text; whoever needs a number reads one
 * from the text.  Only null is told apart: a plain scalar that is empty, `~` or `null`. */
#ifndef INBOXD_CONFIG_YAML_H
#define INBOXD_CONFIG_YAML_H

#include "config/diag.h"

#define YAML_DEPTH_MAX 32
#define YAML_SIZE_MAX (1024 * 1024)

enum node_kind { NODE_NULL, NODE_SCALAR, NODE_LIST, NODE_MAP };

struct yaml_node {
	enum node_kind kind;
	bool is_quoted; /* scalar: not plain */
	bool is_broken; /* an error about it was told already */
	struct place place;
	char *text;    /* scalar (and null: as written): UTF-8 without NUL; owned */
	char *written; /* owned; the text before the environment was put in; NULL: the same */
	struct yaml_node **keys;  /* map: n scalars, in order of the file */
	struct yaml_node **items; /* map, list: n nodes */
	size_t n, cap;
	struct yaml_node *next; /* in the pool */
};

/* Owns nodes and files, so that trees may share parts. */
struct yaml_pool {
	struct yaml_node *nodes;
	struct diag_file *files;
	uint32_t n_files;
};

void yaml_pool_done(struct yaml_pool *pool);

/* A new file of the pool; text is copied, a byte order mark dropped. */
struct diag_file *yaml_add_file(
	struct yaml_pool *pool, const char *name, const char *directory, struct bytes text);

/* The file's document, an empty map for an empty file.  NULL if it is not YAML at all; other errors
 * leave a tree that can be checked further.  All errors go to d. */
struct yaml_node *yaml_parse(struct yaml_pool *pool, const struct diag_file *file, struct diags *d);

/* Value of a key; NULL if there is none, or the node is NULL or no map. */
struct yaml_node *yaml_find(const struct yaml_node *map, const char *key);

/* Where the key stands; where the node does if there is none. */
struct place yaml_key_place(const struct yaml_node *map, const char *key);

struct yaml_node *yaml_new(struct yaml_pool *pool, enum node_kind kind, struct place place);
/* Appends to a list (key NULL) or map. */
void yaml_append(struct yaml_node *to, struct yaml_node *key, struct yaml_node *item);

/* Puts `from` (a map) into `into`: maps merge, anything else set twice is an error at its second
 * place. */
void yaml_merge(struct yaml_node *into, const struct yaml_node *from, struct diags *d);

/* The place of a scalar's text behind `offset` bytes of what is written, where the file has it
 * letter by letter on one line; else the scalar's beginning. */
struct place yaml_place_in(const struct yaml_node *scalar, size_t offset);

#endif

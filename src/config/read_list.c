/* SPDX-License-Identifier: MIT */
/* Paths, and options of several values. */
#include "base/fd.h"
#include "config/read_types.h"

#include <ctype.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- paths --------------------------------------------------------------------------------- */

/* Absolute: beside the credentials of the service if it is there, else beside the file it stands
 * in. */
static char *absolute_path(const char *path, const char *directory, bool is_file)
{
	const char *credentials = getenv("CREDENTIALS_DIRECTORY");
	if (path[0] == '/')
		return xstrdup(path);
	if (is_file && credentials != NULL && credentials[0] == '/') {
		char *found = xasprintf("%s/%s", credentials, path);
		if (access(found, F_OK) == 0)
			return found;
		free(found);
	}
	return xasprintf("%s/%s", strcmp(directory, "/") == 0 ? "" : directory, path);
}

static char *take_path(
	struct reading *r, const struct option *o, const struct yaml_node *node, bool is_file)
{
	if (!read_is_scalar(r, o, node))
		return NULL;
	if (node->text[0] == '\0') {
		read_error(r, node->place, "is empty");
		read_hint(r, "%s: %s", o->name, o->help);
		return NULL;
	}
	if (strncmp(node->text, "~/", 2) == 0) {
		read_error(r, node->place, "cannot begin with \"~\"");
		read_hint(r, "write the directory out, or ${HOME}%s", node->text + 1);
		return NULL;
	}
	return absolute_path(node->text, node->place.file->directory, is_file);
}

bool read_path(struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
{
	char *path = take_path(r, o, node, o->type == OPTION_PATH);
	if (path == NULL)
		return false;
	free(*(char **)field);
	*(char **)field = path;
	return true;
}

/* ---- lists --------------------------------------------------------------------------------- */

typedef bool read_item(struct reading *r, const struct option *o, const struct yaml_node *item,
	struct string_list *list);

/* One scalar, or a list of them. */
static bool read_items(struct reading *r, const struct option *o, const struct yaml_node *node,
	read_item *item, void *field)
{
	struct string_list list = {0};
	bool is_fine = true;
	if (node->kind != NODE_LIST)
		is_fine = read_is_scalar(r, o, node) && item(r, o, node, &list);
	for (size_t i = 0; node->kind == NODE_LIST && i < node->n; i++)
		is_fine &=
			read_is_scalar(r, o, node->items[i]) && item(r, o, node->items[i], &list);
	if (node->kind == NODE_LIST && (node->n < o->min || node->n > o->max)) {
		if (node->n == 0)
			read_error(r, node->place, "is an empty list");
		else
			read_error(r, node->place, "is a list of %zu", node->n);
		read_hint(r, "from 1 to %u are possible", (unsigned)o->max);
		is_fine = false;
	}
	if (!is_fine) {
		string_list_done(&list);
		return false;
	}
	string_list_done(field);
	*(struct string_list *)field = list;
	return true;
}

static bool add_directory(struct reading *r, const struct option *o, const struct yaml_node *node,
	struct string_list *list)
{
	AUTO(free) char *path = take_path(r, o, node, false);
	if (path == NULL)
		return false;
	for (size_t i = 0; i < list->n; i++) {
		if (strcmp(list->items[i], path) != 0)
			continue;
		read_error(r, node->place, "names a directory twice");
		read_hint(r, "each handler in it would be found twice; remove one of the two");
		return false;
	}
	string_list_add(list, path);
	return true;
}

bool read_paths(
	struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
{
	return read_items(r, o, node, add_directory, field);
}

/* What is wrong with a URI as far as this room can tell, and where; mq/uri knows the rest. */
static const char *uri_fault(const char *text, size_t *ret_at, const char **ret_hint)
{
	*ret_at = 0;
	*ret_hint = "amqp://user@host:port/vhost";
	if (strncmp(text, "amqp://", 7) != 0 && strncmp(text, "amqps://", 8) != 0)
		return "must begin with amqp:// or amqps://";
	for (const char *p = text; *p != '\0'; p++) {
		*ret_at = (size_t)(p - text);
		*ret_hint = "in user, password and vhost write @ as %40, : as %3A, / as %2F, a "
			    "blank as "
			    "%20 and % as %25";
		if ((unsigned char)*p <= ' ' || *p == 0x7f)
			return "holds a blank or control character";
		if (*p != '%')
			continue;
		if (isxdigit((unsigned char)p[1]) == 0 || isxdigit((unsigned char)p[2]) == 0)
			return "holds a \"%\" without two hexadecimal digits";
		if (p[1] == '0' && p[2] == '0')
			return "holds a NUL (%00)";
	}
	return NULL;
}

static bool add_uri(struct reading *r, const struct option *o, const struct yaml_node *node,
	struct string_list *list)
{
	(void)o;
	size_t at;
	const char *hint, *fault = uri_fault(node->text, &at, &hint);
	if (fault != NULL) { /* never with the text: it may hold a password */
		read_error(r, node->written != NULL ? node->place : yaml_place_in(node, at), "%s",
			fault);
		read_hint(r, "%s", hint);
		return false;
	}
	if (list->n > 0 &&
		(strncmp(list->items[0], "amqps", 5) == 0) !=
			(strncmp(node->text, "amqps", 5) == 0)) {
		read_error(r, node->place, "mixes amqp:// and amqps://");
		read_hint(
			r, "a broker is reached with TLS or without; nothing falls back by itself");
		return false;
	}
	string_list_add(list, node->text);
	return true;
}

bool read_uris(struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
{
	return read_items(r, o, node, add_uri, field);
}

static bool add_source(struct reading *r, const struct option *o, const struct yaml_node *node,
	struct string_list *list)
{
	(void)r;
	(void)o;
	string_list_add(list, node->text);
	return true;
}

bool read_sources(
	struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
{
	return read_items(r, o, node, add_source, field);
}

/* An empty list is no delayed try at all. */
bool read_durations(
	struct reading *r, const struct option *o, const struct yaml_node *node, void *base)
{
	enum { MOST = 100 };
	if (node->is_broken)
		return false;
	if (node->kind != NODE_LIST) {
		read_must_be(r, o, node);
		read_hint(r, "write it in brackets: %s", o->def);
		return false;
	}
	if (node->n > MOST) {
		read_error(r, node->place, "has %zu items", node->n);
		read_hint(r, "at most %d are possible", MOST);
		return false;
	}
	uint64_t *values = xcalloc(node->n, sizeof values[0]);
	bool is_fine = true;
	struct option item = *o;
	item.type = OPTION_DURATION;
	for (size_t i = 0; i < node->n; i++)
		is_fine &= read_number(r, &item, node->items[i], &values[i]);
	if (!is_fine) {
		free(values);
		return false;
	}
	uint64_t **field = (void *)((char *)base + o->offset);
	free(*field);
	*field = values;
	*(size_t *)(void *)((char *)base + o->offset_n) = node->n;
	return true;
}

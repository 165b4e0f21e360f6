/* SPDX-License-Identifier: MIT */
/* Values of options: from a node's text to a field. */
#include "config/read.h"

#include "base/fd.h"
#include "config/scalar.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>

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
	char text[512];
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (r->path.size != 0)
		diag_add(r->diags, place, "%s%s%s", buf_str(&r->path), text[0] == ':' ? "" : " ",
			text);
	else
		diag_add(r->diags, place, "%s", text);
}

void read_hint(struct reading *r, const char *fmt, ...)
{
	if (r->is_quiet)
		return;
	char text[1024];
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

static void must_be(struct reading *r, const struct option *o, const struct yaml_node *node)
{
	AUTO(buf) struct buf what = {0};
	schema_describe(o, &what);
	read_error(r, node->place, "must be %s, not %s", buf_str(&what), read_said(r, o, node));
}

/* A scalar with a value; tells what is wrong otherwise. */
static bool is_scalar(struct reading *r, const struct option *o, const struct yaml_node *node)
{
	if (node->is_broken)
		return false;
	if (node->kind == NODE_SCALAR)
		return true;
	if (node->kind != NODE_NULL) {
		must_be(r, o, node);
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

/* ---- numbers ----------------------------------------------------------------------------------
 */

static void hint_number(struct reading *r, const struct option *o, enum scalar_fault fault)
{
	bool is_size = o->type == OPTION_SIZE, is_percent = o->type == OPTION_PERCENT;
	const char *units = is_size ? "sizes end in B, KiB, MiB or GiB, without a blank: 16MiB"
		: is_percent        ? "write a percent sign: 20%"
				    : "durations end in ms, s, m, h or d, without a blank: 30s";
	const char *number = o->type == OPTION_COUNT ? "write decimal digits alone" : units;
	const char *const hints[] = {
		[SCALAR_FINE] = NULL,
		[SCALAR_NO_NUMBER] = number,
		[SCALAR_NEGATIVE] = "it cannot be negative",
		[SCALAR_ZERO_LED] = "write it without the leading zero: nothing here is octal",
		[SCALAR_FRACTION] = "write a whole number, of a smaller unit if there is one",
		[SCALAR_OTHER_FORM] = "write it out in decimal digits: 1e3 is 1000, 0x10 is 16",
		[SCALAR_TOO_LARGE] = "it is beyond 64 bits",
		[SCALAR_NO_UNIT] = units,
		[SCALAR_BAD_UNIT] = units,
	};
	if (hints[fault] != NULL)
		read_hint(r, "%s", hints[fault]);
	else if (o->def != NULL)
		read_hint(r, "the default is %s", o->def);
	else if (o->computed != NULL)
		read_hint(r, "the default is %s", o->computed);
}

static enum scalar_fault parse_number(const struct option *o, const char *text, uint64_t *ret)
{
	if (o->type == OPTION_COUNT)
		return scalar_count(text, ret);
	if (o->type == OPTION_PERCENT)
		return scalar_percent(text, ret);
	if (o->type == OPTION_SIZE)
		return scalar_size(text, ret);
	return scalar_duration(text, ret);
}

static bool refuse(struct reading *r, const struct option *o, const struct yaml_node *node)
{
	read_error(r, node->place, "cannot be %s", o->refused);
	read_hint(r, "%s", o->why);
	return false;
}

static bool read_number(
	struct reading *r, const struct option *o, const struct yaml_node *node, uint64_t *ret)
{
	uint64_t value = 0;
	if (!is_scalar(r, o, node))
		return false;
	enum scalar_fault fault = parse_number(o, node->text, &value);
	if (o->refused != NULL && value == 0 &&
		(fault == SCALAR_FINE || strcmp(node->text, o->refused) == 0))
		return refuse(r, o, node);
	if (fault == SCALAR_FINE && value >= o->min && value <= o->max) {
		*ret = value;
		return true;
	}
	must_be(r, o, node);
	hint_number(r, o, fault);
	return false;
}

static bool read_u32(
	struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
{
	uint64_t value;
	if (!read_number(r, o, node, &value))
		return false;
	*(uint32_t *)field = (uint32_t)value; /* max is within */
	return true;
}

static bool read_seconds(
	struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
{
	uint64_t ms;
	if (!read_number(r, o, node, &ms))
		return false;
	if (ms % 1000 != 0) {
		read_error(r, node->place, "must be whole seconds, not %s", read_said(r, o, node));
		read_hint(r, "the default is %s", o->def);
		return false;
	}
	*(uint32_t *)field = (uint32_t)(ms / 1000);
	return true;
}

static bool read_size(
	struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
{
	return read_number(r, o, node, field);
}

/* ---- texts ------------------------------------------------------------------------------------
 */

static bool set_text(void *field, const char *text)
{
	free(*(char **)field);
	*(char **)field = xstrdup(text);
	return true;
}

static bool read_text(
	struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
{
	if (!is_scalar(r, o, node))
		return false;
	size_t n = strlen(node->text);
	if (n < o->min) {
		read_error(r, node->place, "is empty");
		read_hint(r, "%s: %s", o->name, o->help);
		return false;
	}
	if (n > o->max) {
		read_error(r, node->place, "is %zu bytes long", n);
		read_hint(r, "at most %u bytes are possible here", (unsigned)o->max);
		return false;
	}
	return set_text(field, node->text);
}

static bool is_made_of(const char *text, const char *more)
{
	for (; *text != '\0'; text++)
		if ((unsigned char)*text >= 0x80 ||
			(isalnum((unsigned char)*text) == 0 && strchr(more, *text) == NULL))
			return false;
	return true;
}

static bool read_name(
	struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
{
	if (!is_scalar(r, o, node))
		return false;
	if (node->text[0] != '\0' && strlen(node->text) <= CONFIG_NAME_MAX &&
		is_made_of(node->text, "_.-"))
		return set_text(field, node->text);
	must_be(r, o, node);
	read_hint(r, "%s: %s", o->name, o->help);
	return false;
}

static bool read_handler(
	struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
{
	if (!is_scalar(r, o, node))
		return false;
	size_t n = strlen(node->text);
	bool has_suffix = n > 3 && strcmp(node->text + n - 3, ".so") == 0;
	if (n != 0 && n <= CONFIG_NAME_MAX && node->text[0] != '.' && !has_suffix &&
		is_made_of(node->text, "_.-"))
		return set_text(field, node->text);
	must_be(r, o, node);
	if (strchr(node->text, '/') != NULL)
		read_hint(r, "its directory goes into handlers.directory");
	else if (has_suffix && node->written == NULL)
		read_hint(r, "leave the \".so\" out: %.*s", (int)(n - 3), node->text);
	else
		read_hint(
			r, "letters, digits, \"_\", \".\" and \"-\", at most %d", CONFIG_NAME_MAX);
	return false;
}

static bool read_identifier(
	struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
{
	if (!is_scalar(r, o, node))
		return false;
	const char *text = node->text;
	size_t n = strlen(text);
	if (n < o->min || n > o->max || !is_made_of(text, "_") ||
		isdigit((unsigned char)text[0]) != 0) {
		must_be(r, o, node);
		read_hint(r, "it begins with a letter or \"_\"; the default is %s", o->def);
		return false;
	}
	if (strncmp(text, "pg_", 3) == 0) {
		read_error(r, node->place, "cannot begin with \"pg_\"");
		read_hint(r, "PostgreSQL keeps those names for itself");
		return false;
	}
	return set_text(field, text);
}

static bool read_conninfo(
	struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
{
	return is_scalar(r, o, node) && set_text(field, node->text);
}

/* ---- words ------------------------------------------------------------------------------------
 */

static size_t count_words(const char *const *words)
{
	size_t n = 0;
	while (words[n] != NULL)
		n++;
	return n;
}

static bool find_word(
	struct reading *r, const struct option *o, const struct yaml_node *node, size_t *ret)
{
	if (!is_scalar(r, o, node))
		return false;
	if (o->refused != NULL && strcmp(node->text, o->refused) == 0)
		return refuse(r, o, node);
	size_t n = count_words(o->words);
	for (*ret = 0; *ret < n; ++*ret)
		if (strcmp(o->words[*ret], node->text) == 0)
			return true;
	must_be(r, o, node);
	const char *near = schema_nearest(node->text, o->words, n);
	if (near != NULL)
		read_hint(r, "did you mean %s?", near);
	else
		read_hint(r, "the default is %s", o->def);
	return false;
}

static bool read_word(
	struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
{
	size_t word;
	if (!find_word(r, o, node, &word))
		return false;
	*(unsigned *)field = (unsigned)word;
	return true;
}

static bool read_word_text(
	struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
{
	size_t word;
	return find_word(r, o, node, &word) && set_text(field, o->words[word]);
}

static bool read_bool(
	struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
{
	static const char *const yes[] = {"yes", "on", "y", "1"},
				 *const no[] = {"no", "off", "n", "0"};
	if (!is_scalar(r, o, node))
		return false;
	if (strcmp(node->text, "true") == 0 || strcmp(node->text, "false") == 0) {
		*(bool *)field = node->text[0] == 't';
		return true;
	}
	must_be(r, o, node);
	for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
		if (strcasecmp(node->text, yes[i]) == 0 || strcasecmp(node->text, "true") == 0)
			return read_hint(r, "write true"), false;
		if (strcasecmp(node->text, no[i]) == 0 || strcasecmp(node->text, "false") == 0)
			return read_hint(r, "write false"), false;
	}
	read_hint(r, "the default is %s", o->def);
	return false;
}

/* ---- paths ------------------------------------------------------------------------------------
 */

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
	if (!is_scalar(r, o, node))
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

static bool read_path(
	struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
{
	char *path = take_path(r, o, node, o->type == OPTION_PATH);
	if (path == NULL)
		return false;
	free(*(char **)field);
	*(char **)field = path;
	return true;
}

/* ---- lists ------------------------------------------------------------------------------------
 */

typedef bool read_item(struct reading *r, const struct option *o, const struct yaml_node *item,
	struct string_list *list);

/* One scalar, or a list of them. */
static bool read_items(struct reading *r, const struct option *o, const struct yaml_node *node,
	read_item *item, void *field)
{
	struct string_list list = {0};
	bool is_fine = true;
	if (node->kind != NODE_LIST)
		is_fine = is_scalar(r, o, node) && item(r, o, node, &list);
	for (size_t i = 0; node->kind == NODE_LIST && i < node->n; i++)
		is_fine &= is_scalar(r, o, node->items[i]) && item(r, o, node->items[i], &list);
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

static bool read_paths(
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

static bool read_uris(
	struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
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

static bool read_sources(
	struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
{
	return read_items(r, o, node, add_source, field);
}

/* An empty list is no delayed try at all. */
static bool read_durations(
	struct reading *r, const struct option *o, const struct yaml_node *node, void *base)
{
	enum { MOST = 100 };
	if (node->is_broken)
		return false;
	if (node->kind != NODE_LIST) {
		must_be(r, o, node);
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

typedef bool read_field(
	struct reading *r, const struct option *o, const struct yaml_node *node, void *field);

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

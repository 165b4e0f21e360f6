/* SPDX-License-Identifier: MIT */
/* Options of one value: numbers, texts, words. */
#include "config/read_types.h"
#include "config/scalar.h"

#include <ctype.h>
#include <stdlib.h>
#include <strings.h>

/* ---- numbers ------------------------------------------------------------------------------- */

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

bool read_number(
	struct reading *r, const struct option *o, const struct yaml_node *node, uint64_t *ret)
{
	uint64_t value = 0;
	if (!read_is_scalar(r, o, node))
		return false;
	if (o->zero != NULL && strcmp(node->text, o->zero) == 0) {
		*ret = 0;
		return true;
	}
	enum scalar_fault fault = parse_number(o, node->text, &value);
	if (o->refused != NULL && value == 0 &&
		(fault == SCALAR_FINE || strcmp(node->text, o->refused) == 0))
		return refuse(r, o, node);
	if (fault == SCALAR_FINE && value >= o->min && value <= o->max) {
		*ret = value;
		return true;
	}
	read_must_be(r, o, node);
	hint_number(r, o, fault);
	return false;
}

bool read_u32(struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
{
	uint64_t value;
	if (!read_number(r, o, node, &value))
		return false;
	*(uint32_t *)field = (uint32_t)value; /* max is within */
	return true;
}

bool read_seconds(
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

bool read_size(struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
{
	return read_number(r, o, node, field);
}

/* ---- texts --------------------------------------------------------------------------------- */

bool read_text(struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
{
	if (!read_is_scalar(r, o, node))
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
	return read_set_text(field, node->text);
}

static bool is_made_of(const char *text, const char *more)
{
	for (; *text != '\0'; text++)
		if ((unsigned char)*text >= 0x80 ||
			(isalnum((unsigned char)*text) == 0 && strchr(more, *text) == NULL))
			return false;
	return true;
}

bool read_name(struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
{
	if (!read_is_scalar(r, o, node))
		return false;
	if (node->text[0] != '\0' && strlen(node->text) <= CONFIG_NAME_MAX &&
		is_made_of(node->text, "_.-"))
		return read_set_text(field, node->text);
	read_must_be(r, o, node);
	read_hint(r, "%s: %s", o->name, o->help);
	return false;
}

bool read_handler(
	struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
{
	if (!read_is_scalar(r, o, node))
		return false;
	size_t n = strlen(node->text);
	bool has_suffix = n > 3 && strcmp(node->text + n - 3, ".so") == 0;
	if (n != 0 && n <= CONFIG_NAME_MAX && node->text[0] != '.' && !has_suffix &&
		is_made_of(node->text, "_.-"))
		return read_set_text(field, node->text);
	read_must_be(r, o, node);
	if (strchr(node->text, '/') != NULL)
		read_hint(r, "its directory goes into handlers.directory");
	else if (has_suffix && node->written == NULL)
		read_hint(r, "leave the \".so\" out: %.*s", (int)(n - 3), node->text);
	else
		read_hint(
			r, "letters, digits, \"_\", \".\" and \"-\", at most %d", CONFIG_NAME_MAX);
	return false;
}

bool read_identifier(
	struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
{
	if (!read_is_scalar(r, o, node))
		return false;
	const char *text = node->text;
	size_t n = strlen(text);
	if (n < o->min || n > o->max || !is_made_of(text, "_") ||
		isdigit((unsigned char)text[0]) != 0) {
		read_must_be(r, o, node);
		read_hint(r, "it begins with a letter or \"_\"; the default is %s", o->def);
		return false;
	}
	if (strncmp(text, "pg_", 3) == 0) {
		read_error(r, node->place, "cannot begin with \"pg_\"");
		read_hint(r, "PostgreSQL keeps those names for itself");
		return false;
	}
	return read_set_text(field, text);
}

bool read_conninfo(
	struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
{
	return read_is_scalar(r, o, node) && read_set_text(field, node->text);
}

/* ---- words --------------------------------------------------------------------------------- */

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
	if (!read_is_scalar(r, o, node))
		return false;
	if (o->refused != NULL && strcmp(node->text, o->refused) == 0)
		return refuse(r, o, node);
	size_t n = count_words(o->words);
	for (*ret = 0; *ret < n; ++*ret)
		if (strcmp(o->words[*ret], node->text) == 0)
			return true;
	read_must_be(r, o, node);
	const char *near = schema_nearest(node->text, o->words, n);
	if (near != NULL)
		read_hint(r, "did you mean %s?", near);
	else
		read_hint(r, "the default is %s", o->def);
	return false;
}

bool read_word(struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
{
	size_t word;
	if (!find_word(r, o, node, &word))
		return false;
	*(unsigned *)field = (unsigned)word;
	return true;
}

bool read_word_text(
	struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
{
	size_t word;
	return find_word(r, o, node, &word) && read_set_text(field, o->words[word]);
}

/* What somebody means who writes neither true nor false: one of these, or NULL. */
static const char *meant_bool(const char *text)
{
	static const char *const words[][2] = {{"yes", "true"}, {"on", "true"}, {"y", "true"},
		{"1", "true"}, {"true", "true"}, {"no", "false"}, {"off", "false"}, {"n", "false"},
		{"0", "false"}, {"false", "false"}};
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		if (strcasecmp(text, words[i][0]) == 0)
			return words[i][1];
	return NULL;
}

bool read_bool(struct reading *r, const struct option *o, const struct yaml_node *node, void *field)
{
	if (!read_is_scalar(r, o, node))
		return false;
	if (strcmp(node->text, "true") == 0 || strcmp(node->text, "false") == 0) {
		*(bool *)field = node->text[0] == 't';
		return true;
	}
	const char *meant = meant_bool(node->text);
	read_must_be(r, o, node);
	if (meant != NULL)
		read_hint(r, "write %s", meant);
	else
		read_hint(r, "the default is %s", o->def);
	return false;
}

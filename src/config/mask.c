/* SPDX-License-Identifier: MIT */
/* Finding passwords by the look of the text around them: it must also work on a file that cannot be
 * parsed, because it is just then that its lines are shown. */
#include "config/mask.h"

#include <ctype.h>
#include <stdlib.h>
#include <strings.h>

enum { REACH = 4096 }; /* bytes looked at around a place, so that no text takes long */

struct text {
	char *s;
	size_t size;
};

bool mask_is_secret_name(const char *name)
{
	static const char *const endings[] = {"password", "passwd", "passphrase", "pwd", "secret",
		"token", "api_key", "apikey", "private_key", "credential", "credentials"};
	size_t n = strlen(name);
	for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
		size_t m = strlen(endings[i]);
		if (n >= m && strcasecmp(name + n - m, endings[i]) == 0)
			return true;
	}
	return false;
}

static void overwrite(struct text t, size_t from, size_t to)
{
	for (size_t i = from; i < to && i < t.size; i++)
		if (t.s[i] != '\n')
			t.s[i] = MASK_BYTE;
}

static bool is_name_char(char c)
{
	return isalnum((unsigned char)c) != 0 || c == '_' || c == '-';
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static size_t skip_blanks(struct text t, size_t at)
{
	while (at < t.size && is_blank(t.s[at]))
		at++;
	return at;
}

static size_t find_char(struct text t, size_t from, size_t to, char c)
{
	while (from < to && t.s[from] != c)
		from++;
	return from;
}

static size_t find_last_char(struct text t, size_t from, size_t to, char c)
{
	for (size_t i = to; i > from; i--)
		if (t.s[i - 1] == c)
			return i - 1;
	return to;
}

/* Whether what stands at `at` can be the port of a URI without a password. */
static bool is_port(struct text t, size_t at)
{
	while (at < t.size && isdigit((unsigned char)t.s[at]) != 0)
		at++;
	return at == t.size || strchr("/?,\"'})] \t\n", t.s[at]) != NULL;
}

/* The word a URI stands in: one may hold "://" many times, and is looked through once. */
struct word {
	size_t end;
	size_t last_at; /* its last '@'; end if there is none */
};

/* at: behind "://".  A password may hold any character that should have been escaped: it ends at
 * the last '@' of the word, or of the line if the word has none and the colon begins no port. */
static void mask_userinfo(struct text t, size_t at, struct word *word)
{
	size_t reach = at + REACH < t.size ? at + REACH : t.size;
	if (at >= word->end) {
		for (word->end = at; word->end < reach && strchr(" \t\n", t.s[word->end]) == NULL;)
			word->end++;
		word->last_at = find_last_char(t, at, word->end, '@');
	}
	size_t host = word->last_at >= at ? word->last_at : word->end;
	size_t colon = find_char(t, at, host, ':');
	if (colon == host)
		return;
	if (host == word->end) {
		if (t.s[at] == '[' || find_char(t, at, colon, '/') != colon ||
			is_port(t, colon + 1))
			return;
		host = find_last_char(t, host, find_char(t, host, reach, '\n'), '@');
	}
	overwrite(t, colon + 1, host);
}

static size_t line_end(struct text t, size_t at)
{
	return find_char(t, at, t.size, '\n');
}

/* The closing quote, or where the text ends; a backslash takes the next character along, which is
 * wrong only for YAML's single quotes and there masks more. */
static size_t quoted_end(struct text t, size_t at)
{
	char quote = t.s[at];
	size_t end = at + 1;
	while (end < t.size && t.s[end] != quote)
		end += t.s[end] == '\\' ? 2 : 1;
	return end;
}

/* at: behind the '=' of a conninfo or of a URI's parameter, which begins at `name`.  Inside a YAML
 * file quotes may be doubled or escaped once more: there a quoted value is the rest of the line. */
static void mask_conninfo_value(struct text t, size_t name, size_t at, bool is_yaml)
{
	bool is_parameter = name > 0 && strchr("?&", t.s[name - 1]) != NULL;
	at = skip_blanks(t, at);
	size_t end = at;
	if (at < t.size && t.s[at] == '\'' && is_yaml) {
		end = line_end(t, at);
	} else if (at < t.size && t.s[at] == '\'') {
		end = quoted_end(t, at) + 1;
	} else {
		while (end < t.size && strchr(is_parameter ? "& \t\n" : " \t\n", t.s[end]) == NULL)
			end += t.s[end] == '\\' ? 2 : 1;
	}
	overwrite(t, at, end);
}

static size_t line_start(struct text t, size_t at)
{
	size_t least = at > REACH ? at - REACH : 0;
	while (at > least && t.s[at - 1] != '\n')
		at--;
	return at;
}

/* Where the lines that are indented deeper than `indent` end; blank ones belong to them. */
static size_t block_end(struct text t, size_t at, size_t indent)
{
	size_t end = line_end(t, at);
	while (end < t.size) {
		size_t first = skip_blanks(t, end + 1);
		if (first < t.size && t.s[first] != '\n' && first - (end + 1) <= indent)
			break;
		end = line_end(t, first);
	}
	return end;
}

/* at: behind the ':' of a YAML key that begins at `key`. */
static void mask_yaml_value(struct text t, size_t key, size_t at)
{
	size_t start = line_start(t, key);
	size_t first = skip_blanks(t, start);
	bool is_flow = find_char(t, start, key, '{') != key;
	at = skip_blanks(t, at);
	size_t end;
	if (at < t.size && (t.s[at] == '"' || t.s[at] == '\'')) {
		end = quoted_end(t, at);
	} else if (is_flow) {
		for (end = at; end < t.size && strchr(",}\n", t.s[end]) == NULL;)
			end++;
	} else {
		end = block_end(t, at, first - start);
	}
	overwrite(t, at, end);
}

/* A name that stands in front of '=' or ':', perhaps in quotes. */
static void mask_named(struct text t, size_t start, size_t end, bool is_yaml)
{
	char name[64];
	size_t n = end - start < sizeof name ? end - start : sizeof name - 1;
	memcpy(name, t.s + end - n, n);
	name[n] = '\0';
	if (!mask_is_secret_name(name))
		return;
	size_t at = end;
	if (at < t.size && (t.s[at] == '"' || t.s[at] == '\''))
		at++;
	at = skip_blanks(t, at);
	if (at < t.size && t.s[at] == '=')
		mask_conninfo_value(t, start, at + 1, is_yaml);
	else if (is_yaml && at < t.size && t.s[at] == ':')
		mask_yaml_value(t, start, at + 1);
}

static void mask_text(struct text t, bool is_yaml)
{
	struct word word = {0};
	for (size_t i = 0; i < t.size; i++) {
		if (i + 3 <= t.size && memcmp(t.s + i, "://", 3) == 0)
			mask_userinfo(t, i + 3, &word);
		if (!is_name_char(t.s[i]) || (i > 0 && is_name_char(t.s[i - 1])))
			continue;
		size_t end = i;
		while (end < t.size && is_name_char(t.s[end]))
			end++;
		mask_named(t, i, end, is_yaml);
	}
}

void mask_file(char *text, size_t size)
{
	mask_text((struct text){text, size}, true);
}

void mask_value(const char *text, struct buf *out)
{
	struct text t = {xstrdup(text), strlen(text)};
	mask_text(t, false);
	for (size_t i = 0; i < t.size; i++) {
		if (t.s[i] != MASK_BYTE || text[i] == MASK_BYTE)
			buf_add_byte(out, (uint8_t)t.s[i]);
		else if (i == 0 || t.s[i - 1] != MASK_BYTE)
			buf_add_str(out, MASK);
	}
	free(t.s);
}

/* SPDX-License-Identifier: MIT */
/* Reads no more of SQL than words, comments and quoted names. */
#include "handler/statement.h"

#include <ctype.h>
#include <strings.h>

static const char *skip_comment(const char *p)
{
	if (*p == '-')
		return p + strcspn(p, "\n");
	int depth = 0;
	do {
		if (p[0] == '/' && p[1] == '*')
			depth++;
		else if (p[0] == '*' && p[1] == '/')
			depth--;
		else if (*p == '\0')
			break;
		p += (p[0] == '/' && p[1] == '*') || (p[0] == '*' && p[1] == '/') ? 2 : 1;
	} while (depth > 0);
	return p;
}

static const char *skip_space(const char *p)
{
	for (;;) {
		if (isspace((unsigned char)*p) || *p == ';')
			p++;
		else if ((p[0] == '-' && p[1] == '-') || (p[0] == '/' && p[1] == '*'))
			p = skip_comment(p);
		else
			return p;
	}
}

static bool is_word_byte(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '$' || (unsigned char)c >= 0x80;
}

static bool take_word(const char **p, const char *word)
{
	const char *start = skip_space(*p);
	size_t n = strlen(word);
	if (strncasecmp(start, word, n) != 0 || is_word_byte(start[n]))
		return false;
	*p = start + n;
	return true;
}

static void take_name(const char **p, char name[SAVEPOINT_NAME_MAX])
{
	const char *q = skip_space(*p);
	size_t n = 0;
	bool is_quoted = *q == '"';
	for (q += is_quoted; *q != '\0' && (is_quoted || is_word_byte(*q)); q++) {
		if (*q == '"' && *++q != '"')
			break;
		if (n + 1 < SAVEPOINT_NAME_MAX)
			name[n++] = *q;
	}
	name[n] = '\0';
	for (size_t i = 0; !is_quoted && i < n; i++)
		if (name[i] >= 'A' && name[i] <= 'Z')
			name[i] = (char)(name[i] + ('a' - 'A'));
	*p = q;
}

struct statement statement_parse(const char *sql)
{
	struct statement s = {.kind = STATEMENT_OTHER};
	const char *p = sql;
	if (*skip_space(p) == '\0') {
		s.kind = STATEMENT_EMPTY;
	} else if (take_word(&p, "copy")) {
		s.kind = STATEMENT_COPY;
	} else if (take_word(&p, "savepoint")) {
		s.kind = STATEMENT_SAVEPOINT;
	} else if (take_word(&p, "release")) {
		s.kind = STATEMENT_RELEASE;
		(void)take_word(&p, "savepoint");
	} else if (take_word(&p, "rollback")) {
		if (!take_word(&p, "work"))
			(void)take_word(&p, "transaction");
		if (!take_word(&p, "to"))
			return s;
		s.kind = STATEMENT_ROLLBACK_TO;
		(void)take_word(&p, "savepoint");
	}
	if (s.kind > STATEMENT_COPY)
		take_name(&p, s.name);
	return s;
}

void savepoints_done(struct savepoints *s)
{
	buf_done(&s->names);
}

void savepoints_clear(struct savepoints *s)
{
	buf_clear(&s->names);
}

/* Where the newest of that name stands; a new one hides an older one of the same name. */
static bool find(const struct savepoints *s, const char *name, size_t *ret_at)
{
	for (size_t at = s->names.size; at != 0;) {
		at -= SAVEPOINT_NAME_MAX;
		if (strcmp((const char *)s->names.data + at, name) == 0) {
			*ret_at = at;
			return true;
		}
	}
	return false;
}

bool savepoints_allow(const struct savepoints *s, const struct statement *statement)
{
	size_t at;
	if (statement->kind != STATEMENT_RELEASE && statement->kind != STATEMENT_ROLLBACK_TO)
		return true;
	return find(s, statement->name, &at);
}

void savepoints_note(struct savepoints *s, const struct statement *statement)
{
	size_t at;
	if (statement->kind == STATEMENT_SAVEPOINT)
		buf_add(&s->names, statement->name, SAVEPOINT_NAME_MAX);
	else if (statement->kind == STATEMENT_RELEASE && find(s, statement->name, &at))
		s->names.size = at;
	else if (statement->kind == STATEMENT_ROLLBACK_TO && find(s, statement->name, &at))
		s->names.size = at + SAVEPOINT_NAME_MAX;
}

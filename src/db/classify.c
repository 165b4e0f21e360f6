/* SPDX-License-Identifier: MIT */
/* What a statement's first words and an error's SQLSTATE mean to us; pure. */
#include "db/db.h"

#include <ctype.h>
#include <strings.h>

static const char *skip_comment(const char *p)
{
	if (p[0] == '-' && p[1] == '-')
		return p + strcspn(p, "\n");
	int depth = 0;
	do {
		if (p[0] == '/' && p[1] == '*') {
			depth++;
			p += 2;
		} else if (p[0] == '*' && p[1] == '/') {
			depth--;
			p += 2;
		} else if (*p != '\0') {
			p++;
		}
	} while (depth > 0 && *p != '\0');
	return p;
}

/* To the next word, over blanks, comments, opening brackets and empty statements. */
static const char *skip_space(const char *p)
{
	for (;;) {
		if (isspace((unsigned char)*p) || *p == '(' || *p == ';')
			p++;
		else if ((p[0] == '-' && p[1] == '-') || (p[0] == '/' && p[1] == '*'))
			p = skip_comment(p);
		else
			return p;
	}
}

static bool next_word(const char **p, const char *word)
{
	const char *start = skip_space(*p);
	size_t n = strlen(word);
	if (strncasecmp(start, word, n) != 0 || isalnum((unsigned char)start[n]) || start[n] == '_')
		return false;
	*p = start + n;
	return true;
}

static bool contains(const char *text, const char *word)
{
	for (size_t n = strlen(word); *text != '\0'; text++)
		if (strncasecmp(text, word, n) == 0)
			return true;
	return false;
}

static enum db_verb verb_of_set(const char *p)
{
	const char *session = p;
	if (next_word(&p, "local"))
		return DB_VERB_PLAIN;
	if (next_word(&p, "transaction") ||
		(next_word(&session, "session") && next_word(&session, "characteristics")))
		return DB_VERB_CONTROL;
	return DB_VERB_STATE;
}

enum db_verb db_verb_of(const char *sql)
{
	static const char *const control[] = {"begin", "start", "commit", "end", "abort"};
	static const char *const state[] = {"reset", "discard", "listen", "unlisten", "prepare",
		"deallocate", "declare", "load", "do", "call"};
	/* A function may leave its traces behind in any statement; these are the known ones. */
	static const char *const traces[] = {"advisory", "set_config", "temp", "dblink_"};
	const char *p = sql;

	for (size_t i = 0; i < sizeof control / sizeof control[0]; i++)
		if (next_word(&p, control[i]))
			return DB_VERB_CONTROL;
	if (next_word(&p, "rollback")) {
		if (!next_word(&p, "work"))
			(void)next_word(&p, "transaction");
		return next_word(&p, "to") ? DB_VERB_PLAIN : DB_VERB_CONTROL;
	}
	if (next_word(&p, "set"))
		return verb_of_set(p);
	if (next_word(&p, "prepare"))
		return next_word(&p, "transaction") ? DB_VERB_CONTROL : DB_VERB_STATE;
	for (size_t i = 0; i < sizeof state / sizeof state[0]; i++)
		if (next_word(&p, state[i]))
			return DB_VERB_STATE;
	for (size_t i = 0; i < sizeof traces / sizeof traces[0]; i++)
		if (contains(p, traces[i]))
			return DB_VERB_STATE;
	return DB_VERB_PLAIN;
}

static bool starts_with_any(const char *state, const char *const *prefixes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strncmp(state, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	return false;
}

enum rc db_error_class(const char *state)
{
	/* The server or its surroundings, never the message: connection, resources, operator
	 * intervention (not a cancelled statement), read-only after a failover, I/O. */
	static const char *const away[] = {"08", "53", "57P", "25006", "58", "F0", "28", "3D"};
	/* The data itself; a missing foreign key may still arrive. */
	static const char *const data[] = {"22", "23"};

	if (starts_with_any(state, away, sizeof away / sizeof away[0]))
		return RC_UNAVAILABLE;
	if (strcmp(state, "23503") == 0)
		return RC_RETRY;
	if (starts_with_any(state, data, sizeof data / sizeof data[0]))
		return RC_REJECT;
	return RC_RETRY;
}

bool db_error_is_serialization(const char *state)
{
	static const char *const again[] = {"40001", "40P01", "40003"};
	return starts_with_any(state, again, sizeof again / sizeof again[0]);
}

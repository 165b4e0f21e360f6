/* SPDX-License-Identifier: MIT */
/* What a statement's first words and an error's SQLSTATE mean to us; pure. */
#include "db/db.h"

#include <ctype.h>
#include <strings.h>

static const char *skip_comment(const char *p)
{
	if (p[0] == '-' && p[1] == '-')
		return p + strcspn(p, "\r\n");
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

static bool is_of_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

static bool next_word(const char **p, const char *word)
{
	const char *start = skip_space(*p);
	size_t n = strlen(word);
	if (strncasecmp(start, word, n) != 0 || is_of_word(start[n]))
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

static bool contains_word(const char *text, const char *word)
{
	size_t n = strlen(word);
	for (const char *p = text; *p != '\0'; p++)
		if (strncasecmp(p, word, n) == 0 && !is_of_word(p[n]) &&
			(p == text || !is_of_word(p[-1])))
			return true;
	return false;
}

/* What the transaction itself is: read-only, say, and our own statements behind it would fail. */
static bool is_of_transaction(const char *p)
{
	static const char *const names[] = {"transaction", "transaction_isolation",
		"transaction_read_only", "transaction_deferrable", "characteristics"};
	p = skip_space(p);
	p += *p == '"';
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (next_word(&p, names[i]))
			return true;
	return false;
}

static enum db_verb verb_of_set(const char *p)
{
	bool is_local = next_word(&p, "local");
	(void)next_word(&p, "session");
	if (is_of_transaction(p))
		return DB_VERB_CONTROL;
	if (next_word(&p, "constraints"))
		return DB_VERB_PLAIN; /* of this transaction */
	return is_local ? DB_VERB_PLAIN : DB_VERB_STATE;
}

enum db_verb db_verb_of(const char *sql)
{
	static const char *const control[] = {"begin", "start", "commit", "end", "abort"};
	static const char *const state[] = {"reset", "discard", "listen", "unlisten", "prepare",
		"deallocate", "declare", "load", "do", "call"};
	/* A function may leave its traces behind in any statement; these are the known ones. */
	static const char *const traces[] = {"advisory", "set_config", "pg_temp", "dblink_"};
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
	/* Whole words: an attempt or a template is no temporary table. */
	return contains_word(p, "temp") || contains_word(p, "temporary") ? DB_VERB_STATE
									 : DB_VERB_PLAIN;
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
	/* The data itself. */
	static const char *const data[] = {"22", "23"};

	/* A missing foreign key may still arrive; a limit that one statement ran into
	 * (temp_file_limit) stops no other. */
	if (strcmp(state, "23503") == 0 || strcmp(state, "53400") == 0)
		return RC_RETRY;
	if (starts_with_any(state, away, sizeof away / sizeof away[0]))
		return RC_UNAVAILABLE;
	if (starts_with_any(state, data, sizeof data / sizeof data[0]))
		return RC_REJECT;
	return RC_RETRY;
}

enum rc db_error_class_of_statement(const char *state, const char *source)
{
	/* Logging in and connecting are behind this session: it was dblink, postgres_fdw or their like. */
	static const char *const elsewhere[] = {"08", "28", "3D", "F0"};
	enum rc rc = db_error_class(state);
	/* PL/pgSQL's RAISE, and what postgres_fdw and dblink pass on from other servers. */
	static const char *const not_ours[] = {
		"exec_stmt_raise", "pgfdw_report_error", "dblink_res_error"};
	bool is_raised = false;
	for (size_t i = 0; source != NULL && i < sizeof not_ours / sizeof not_ours[0]; i++)
		is_raised = is_raised || strcmp(source, not_ours[i]) == 0;
	if (rc == RC_UNAVAILABLE &&
		(is_raised || starts_with_any(state, elsewhere, sizeof elsewhere / sizeof elsewhere[0])))
		return RC_RETRY;
	return rc;
}

enum rc db_error_class_of(
	const struct config_consumer *consumer, const char *state, enum rc otherwise)
{
	const struct config_sqlstate *best = NULL;
	for (size_t i = 0; i < consumer->n_sqlstates; i++) {
		const struct config_sqlstate *s = &consumer->sqlstates[i];
		size_t n = strlen(s->state);
		if (strncmp(state, s->state, n) == 0 && (best == NULL || n > strlen(best->state)))
			best = s;
	}
	if (best == NULL)
		return otherwise;
	return best->is_reject ? RC_REJECT : RC_RETRY;
}

bool db_error_is_serialization(const char *state)
{
	static const char *const again[] = {"40001", "40P01", "40003"};
	return starts_with_any(state, again, sizeof again / sizeof again[0]);
}

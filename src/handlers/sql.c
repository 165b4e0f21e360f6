/* SPDX-License-Identifier: MIT */
/* The handler that needs no C: one statement, or several, for each message.
 *
 *     options:
 *       statement: "INSERT INTO orders VALUES ($1, $2)"
 *       parameters: [json:/id, json:/total]       # sources of $1, $2, …; default [body]
 *       on_no_rows: done                          # done | retry | reject
 *
 * or, in one transaction and in this order,
 *
 *       statements:
 *         - statement: "INSERT INTO orders VALUES ($1)"
 *           parameters: [json:/id]
 *         - "UPDATE stock SET left = left - 1 WHERE item = $1"     # `parameters` of the options
 *
 * A statement's own parameters must be as many as it takes.  Those of the options may be more
 * where several statements share them: each takes the first ones.  What is absent, and JSON null,
 * is NULL. on_no_rows says what it means that a statement touched no row; each may have its own.
 *
 * For a batch a plain INSERT becomes one statement for all its messages where that changes nothing
 * else ("in one statement" below).
 */
#include <inboxd/handler.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

enum { MOST_PARAMETERS = 1024, OID_BYTEA = 17 };
/* So much of arrays travels in one statement; a message of more goes by itself. */
enum { MOST_IN_SET = 1 << 20 };

enum on_no_rows { ON_NO_ROWS_DONE, ON_NO_ROWS_RETRY, ON_NO_ROWS_REJECT };

struct statement {
	char *text;
	char path[64]; /* of its text in the options */
	char **sources;
	uint32_t n; /* sources; once prepared: parameters that it takes */
	int has_own_sources;
	unsigned char *is_bytea; /* for each parameter */
	enum on_no_rows on_no_rows;
};

struct text {
	char *data; /* with a NUL behind it */
	size_t size, room;
};

/* The only statement, for many messages at once. */
struct set {
	char *text; /* NULL: only one by one */
	char *table;
	char oid[16];        /* the table's */
	int is_doubtful;     /* look at the table before the next use */
	struct text *arrays; /* for each parameter, of the messages not yet queued */
	struct inboxd_value *args;
	size_t size; /* of all arrays */
	uint32_t n;  /* messages in them */
};

struct sql {
	struct statement *statements;
	uint32_t n;
	uint32_t parameters; /* of all statements together */
	int can_queue;       /* nobody needs to know how many rows a statement touched */
	struct inboxd_value *args;
	struct set set;
};

/* Where an option stands and how to ask for it. */
struct scope {
	const struct inboxd_host *host;
	struct inboxd_call *call;
	char path[40]; /* "" or "statements/3/" */
	int has_failed;
};

static void *allocate(size_t n, size_t size)
{
	void *p = calloc(n != 0 ? n : 1, size);
	if (p == NULL)
		abort();
	return p;
}

static char *copy_text(struct inboxd_value v)
{
	char *s = allocate(v.size + 1, 1);
	memcpy(s, v.data, v.size);
	return s;
}

static void add(struct text *t, const char *data, size_t size)
{
	if (t->size + size >= t->room) {
		t->room = 2 * (t->size + size) + 64;
		t->data = realloc(t->data, t->room);
		if (t->data == NULL)
			abort();
	}
	memcpy(t->data + t->size, data, size);
	t->size += size;
	t->data[t->size] = '\0';
}

static void add_text(struct text *t, const char *text)
{
	add(t, text, strlen(text));
}

static void add_number(struct text *t, const char *before, uint32_t number)
{
	char text[40];
	(void)snprintf(text, sizeof text, "%s%u", before, (unsigned)number);
	add_text(t, text);
}

static void free_set(struct set *set, uint32_t n_arrays)
{
	for (uint32_t i = 0; set->arrays != NULL && i < n_arrays; i++)
		free(set->arrays[i].data);
	free(set->arrays);
	free(set->args);
	free(set->text);
	free(set->table);
}

static void free_sql(struct sql *s)
{
	if (s == NULL)
		return;
	free_set(&s->set, s->parameters);
	for (uint32_t i = 0; i < s->n; i++) {
		struct statement *st = &s->statements[i];
		for (uint32_t k = 0; st->sources != NULL && st->sources[k] != NULL; k++)
			free(st->sources[k]);
		free(st->sources);
		free(st->is_bytea);
		free(st->text);
	}
	free(s->statements);
	free(s->args);
	free(s);
}

/* ---- options ------------------------------------------------------------------------- */

static void complain(struct scope *at, const char *path, const char *text)
{
	(void)at->host->bad_option(at->call, path, text);
	at->has_failed = 1;
}

static const char *path_in(const struct scope *at, const char *name, char path[64])
{
	(void)snprintf(path, 64, "%s%s", at->path, name);
	return path;
}

/* Whether the option is there at all: an empty list counts as nothing otherwise. */
static int has_option(const struct scope *at, const char *name)
{
	char map[64];
	struct inboxd_value v;
	(void)snprintf(
		map, sizeof map, "%.*s", (int)(strlen(at->path) - (at->path[0] != '\0')), at->path);
	for (uint32_t i = 0; (v = at->host->option_name(at->call, map, i)).data != NULL; i++)
		if (inboxd_is(v, name))
			return 1;
	return 0;
}

static void read_source(struct scope *at, const char *path, struct statement *st)
{
	struct inboxd_value v = at->host->option(at->call, path);
	if (v.data == NULL) {
		complain(at, path, "a parameter is a source, such as json:/id or header:tenant");
		return;
	}
	const char *wrong = at->host->source_error(at->call, v.data);
	if (wrong == NULL && inboxd_is(v, "cloudevents"))
		wrong = "cloudevents is two values; take them one by one, by json: or header:";
	if (wrong != NULL)
		complain(at, path, wrong);
	st->sources[st->n++] = copy_text(v);
}

/* parameters: [SOURCE…], or one SOURCE. */
static void read_sources(struct scope *at, struct statement *st)
{
	char path[64], item[80];
	uint32_t n = at->host->option_count(at->call, path_in(at, "parameters", path));
	if (n > MOST_PARAMETERS) {
		complain(at, path, "a statement has at most 1024 parameters");
		n = 0;
	}
	st->sources = allocate(n + 2, sizeof *st->sources);
	if (!has_option(at, "parameters")) {
		st->sources[st->n++] = copy_text(inboxd_text("body"));
		return;
	}
	st->has_own_sources = 1;
	if (at->host->option(at->call, path).data != NULL) {
		read_source(at, path, st);
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		(void)snprintf(item, sizeof item, "%s/%u", path, (unsigned)i);
		read_source(at, item, st);
	}
}

static enum on_no_rows read_on_no_rows(struct scope *at, enum on_no_rows otherwise)
{
	static const char *const words[] = {"done", "retry", "reject"};
	char path[64];
	struct inboxd_value v = at->host->option(at->call, path_in(at, "on_no_rows", path));
	if (!has_option(at, "on_no_rows"))
		return otherwise;
	for (int i = 0; i < 3; i++)
		if (inboxd_is(v, words[i]))
			return (enum on_no_rows)i;
	complain(at, path, "on_no_rows is done, retry or reject");
	return otherwise;
}

static void read_text(struct scope *at, const char *path, struct statement *st)
{
	struct inboxd_value v = at->host->option(at->call, path);
	if (v.data == NULL) {
		complain(at, path,
			"a statement is a text, such as \"INSERT INTO orders VALUES ($1)\"");
		return;
	}
	const char *wrong = at->host->statement_error(at->call, v.data);
	if (wrong != NULL)
		complain(at, path, wrong);
	st->text = copy_text(v);
	(void)snprintf(st->path, sizeof st->path, "%s", path);
}

/* The i-th of `statements`: a text, or a map with options of its own. */
static void read_entry(
	struct scope *at, uint32_t i, struct statement *st, enum on_no_rows otherwise)
{
	static const char *const known[] = {"statement", "parameters", "on_no_rows"};
	struct scope root = {.host = at->host, .call = at->call};
	struct scope own = root;
	char path[64];
	(void)snprintf(path, sizeof path, "statements/%u", (unsigned)i);
	st->on_no_rows = otherwise;
	if (at->host->option_name(at->call, path, 0).data == NULL) {
		read_text(at, path, st);
		read_sources(&root, st);
		st->has_own_sources = 0;
		return;
	}
	(void)snprintf(own.path, sizeof own.path, "statements/%u/", (unsigned)i);
	own.has_failed = at->host->only_options(at->call, path, 3, known) != INBOXD_DONE;
	read_text(&own, path_in(&own, "statement", path), st);
	int is_shared = !has_option(&own, "parameters");
	read_sources(is_shared ? &root : &own, st);
	if (is_shared)
		st->has_own_sources = 0;
	st->on_no_rows = read_on_no_rows(&own, otherwise);
	at->has_failed |= own.has_failed;
}

static void read_statements(struct scope *at, struct sql *s)
{
	enum on_no_rows otherwise = read_on_no_rows(at, ON_NO_ROWS_DONE);
	int has_one = has_option(at, "statement"), has_list = has_option(at, "statements");
	if (has_one == has_list)
		complain(at, "",
			has_one ? "statement and statements exclude each other"
				: "the sql handler needs a statement, or a list of statements");
	int is_list = at->host->option(at->call, "statements").data == NULL &&
		at->host->option_name(at->call, "statements", 0).data == NULL;
	s->n = has_one ? 1 : at->host->option_count(at->call, "statements");
	if (has_list && (s->n == 0 || !is_list)) {
		complain(
			at, "statements", "statements is a list; for a single one write statement");
		s->n = has_one;
	}
	s->statements = allocate(s->n, sizeof *s->statements);
	if (has_one) {
		read_text(at, "statement", &s->statements[0]);
		read_sources(at, &s->statements[0]);
		s->statements[0].on_no_rows = otherwise;
		return;
	}
	for (uint32_t i = 0; i < s->n; i++)
		read_entry(at, i, &s->statements[i], otherwise);
}

/* NULL, with all errors reported, if the options are wrong. */
static struct sql *read_options(const struct inboxd_host *host, struct inboxd_call *call)
{
	static const char *const known[] = {"statement", "statements", "parameters", "on_no_rows"};
	struct scope at = {.host = host, .call = call};
	struct sql *s = allocate(1, sizeof *s);
	at.has_failed = host->only_options(call, "", 4, known) != INBOXD_DONE;
	read_statements(&at, s);
	if (!at.has_failed)
		return s;
	free_sql(s);
	return NULL;
}

static int32_t check(const struct inboxd_host *host, struct inboxd_call *call)
{
	struct sql *s = read_options(host, call);
	free_sql(s);
	return s != NULL ? INBOXD_DONE : INBOXD_REJECT;
}

/* ---- on a connection ----------------------------------------------------------------- */

/* Sources and parameters must agree; a statement that takes none needs no `parameters: []`. */
static int32_t match_parameters(const struct inboxd_host *host, struct inboxd_call *call,
	struct statement *st, uint32_t taken)
{
	char text[200];
	if (taken == st->n || (taken < st->n && !st->has_own_sources)) {
		st->n = taken;
		return INBOXD_DONE;
	}
	if (!st->has_own_sources && st->n == 1 && taken > 1)
		(void)snprintf(text, sizeof text,
			"the statement takes %u parameters: name their sources, as in parameters: "
			"[json:/id, "
			"json:/total]",
			(unsigned)taken);
	else
		(void)snprintf(text, sizeof text,
			"the statement takes %u parameters, %u sources are given", (unsigned)taken,
			(unsigned)st->n);
	return host->bad_option(call, st->path, text);
}

static int32_t prepare(const struct inboxd_host *host, struct inboxd_call *call,
	struct statement *st, uint32_t types[MOST_PARAMETERS])
{
	uint32_t taken = MOST_PARAMETERS;
	int32_t result = host->prepare(call, st->text, st->path, types, &taken);
	if (result != INBOXD_DONE)
		return result;
	result = match_parameters(host, call, st, taken);
	st->is_bytea = allocate(st->n, 1);
	for (uint32_t i = 0; result == INBOXD_DONE && i < st->n; i++)
		st->is_bytea[i] = types[i] == OID_BYTEA;
	return result;
}

/* ---- in one statement ----------------------------------------------------------------
 *
 *     INSERT INTO t (a, b) VALUES ($1, $2) ON CONFLICT DO NOTHING
 *
 * is for a batch
 *
 *     INSERT INTO t (a, b) SELECT u.p1, u.p2
 *     FROM ROWS FROM (unnest($1::T1[]), unnest($2::T2[])) AS u (p1, p2)
 *     ON CONFLICT DO NOTHING
 *
 * where nobody can tell the one from n of the other.  The rows are the same, in the messages'
 * order: a function's rows are read as it returns them, and defaults, identities and generated
 * columns are computed for each as it is inserted.  The values are: a bare parameter has its
 * column's type, an array's elements go through the same input function, without a length (-1: what
 * is called "character" alone would be cut to one), and the column's length is applied behind it as
 * before.  What a statement as a whole shows is what can differ:
 *   - Triggers fire once, or see at once what came row by row.  Only those behind foreign keys are
 *     let pass, and no foreign key of a table to itself: it would find what comes later.
 *   - Rules, views, foreign and partitioned tables, partitions, row security: code of others, too.
 *   - Functions and operators that are not PostgreSQL's own, in defaults, generated columns, CHECK
 *     and EXCLUDE constraints, indexes and domains may read the table, which shows the statement
 *     none of its own rows.  (query_to_xml and its kin are PostgreSQL's own, and could as well;
 *     in a default nobody has them.)
 *   - Arrays have no array type, and box has its own delimiter; composite types may hide a domain.
 *   - DO UPDATE cannot touch a row twice; it is not of this form.  DO NOTHING can meet the same key
 *     again.
 *   - statement_timestamp() in a default gives all of them one time, not n close together.
 * All this is asked for when the session is opened.  A trigger, a rule, or row security that comes
 * later, and another table under the name, are met by a condition in the statement itself: it fails
 * then.  A batch that failed is run again by handle, and after handle the table is looked at anew.
 */

static int is_name_byte(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '$' || (unsigned char)c >= 0x80;
}

static const char *skip_space(const char *p)
{
	while (*p == ' ' || (*p >= '\t' && *p <= '\r'))
		p++;
	return p;
}

/* All take_... leave *p where it is, and return 0, if there is something else. */
static int take_byte(const char **p, char c)
{
	const char *q = skip_space(*p);
	if (*q != c)
		return 0;
	*p = q + 1;
	return 1;
}

static int take_word(const char **p, const char *word)
{
	const char *q = skip_space(*p);
	size_t n = strlen(word);
	if (strncasecmp(q, word, n) != 0 || is_name_byte(q[n]))
		return 0;
	*p = q + n;
	return 1;
}

static int take_name(const char **p)
{
	const char *start = skip_space(*p);
	const char *q = start;
	if (*q == '"') {
		do {
			q += 1 + strcspn(q + 1, "\"");
			if (*q == '\0')
				return 0;
			q++;
		} while (*q == '"');
	} else if (!isdigit((unsigned char)*q) && *q != '$') {
		while (is_name_byte(*q))
			q++;
	}
	if (q == start)
		return 0;
	*p = q;
	return 1;
}

static int take_names(const char **p)
{
	const char *q = *p;
	if (!take_byte(&q, '('))
		return 0;
	do {
		if (!take_name(&q))
			return 0;
	} while (take_byte(&q, ','));
	if (!take_byte(&q, ')'))
		return 0;
	*p = q;
	return 1;
}

/* ($2, $1): n parameters, each once; order gets their numbers, from 0. */
static int take_parameters(const char **p, uint32_t n, uint32_t *order)
{
	unsigned char is_used[MOST_PARAMETERS] = {0};
	uint32_t i = 0;
	if (!take_byte(p, '('))
		return 0;
	do {
		char *end;
		if (i == n || !take_byte(p, '$') || !isdigit((unsigned char)**p))
			return 0;
		unsigned long number = strtoul(*p, &end, 10);
		if (number == 0 || number > n || is_used[number - 1])
			return 0;
		is_used[number - 1] = 1;
		order[i++] = (uint32_t)number - 1;
		*p = end;
	} while (take_byte(p, ','));
	return i == n && take_byte(p, ')');
}

static int take_on_conflict(const char **p)
{
	if (!take_word(p, "conflict"))
		return 0;
	if (take_word(p, "on")) {
		if (!take_word(p, "constraint") || !take_name(p))
			return 0;
	} else {
		(void)take_names(p);
	}
	return take_word(p, "do") && take_word(p, "nothing");
}

/* Where the parts of such an INSERT stand in its text. */
struct insert {
	const char *table, *table_end;
	const char *head_end; /* before VALUES */
	const char *tail, *tail_end;
};

static int parse_insert(
	const char *sql, uint32_t n, struct insert *ret, uint32_t order[MOST_PARAMETERS])
{
	const char *p = sql;
	if (!take_word(&p, "insert") || !take_word(&p, "into"))
		return 0;
	ret->table = p;
	if (!take_name(&p) || (take_byte(&p, '.') && !take_name(&p)))
		return 0;
	ret->table_end = p;
	(void)take_names(&p);
	ret->head_end = p;
	if (!take_word(&p, "values") || !take_parameters(&p, n, order))
		return 0;
	ret->tail = p;
	if (take_word(&p, "on") && !take_on_conflict(&p))
		return 0;
	ret->tail_end = p;
	(void)take_byte(&p, ';');
	return *skip_space(p) == '\0';
}

/* What can change under a session's hands. */
#define STILL_SAFE                                                                  \
	"c.relkind = 'r' AND NOT c.relispartition AND NOT c.relhasrules AND "       \
	"NOT c.relrowsecurity AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger t " \
	"WHERE t.tgrelid = c.oid AND NOT t.tgisinternal)"

/* The table $1, if it is safe.  PostgreSQL keeps no record of what depends on its own functions, so
 * whatever depends on a function depends on somebody else's.  A domain over a domain may hide some.
 */
static const char look_at_table[] =
	"WITH safe AS (SELECT c.oid FROM pg_catalog.pg_class c "
	"WHERE c.oid = pg_catalog.to_regclass($1) AND " STILL_SAFE
	"), domains AS (SELECT y.oid, y.typbasetype FROM pg_catalog.pg_attribute a "
	"JOIN pg_catalog.pg_type y ON y.oid = a.atttypid, safe "
	"WHERE a.attrelid = safe.oid AND NOT a.attisdropped AND y.typtype = 'd'), "
	"parts AS (SELECT 'pg_catalog.pg_class'::pg_catalog.regclass AS class, oid FROM safe "
	"UNION ALL SELECT 'pg_catalog.pg_class'::pg_catalog.regclass, i.indexrelid "
	"FROM pg_catalog.pg_index i, safe WHERE i.indrelid = safe.oid "
	"UNION ALL SELECT 'pg_catalog.pg_attrdef'::pg_catalog.regclass, d.oid "
	"FROM pg_catalog.pg_attrdef d, safe WHERE d.adrelid = safe.oid "
	"UNION ALL SELECT 'pg_catalog.pg_type'::pg_catalog.regclass, oid FROM domains "
	"UNION ALL SELECT 'pg_catalog.pg_constraint'::pg_catalog.regclass, k.oid "
	"FROM pg_catalog.pg_constraint k, safe WHERE k.conrelid = safe.oid "
	"AND k.contype IN ('c', 'x') "
	"UNION ALL SELECT 'pg_catalog.pg_constraint'::pg_catalog.regclass, k.oid "
	"FROM pg_catalog.pg_constraint k JOIN domains ON k.contypid = domains.oid) "
	"SELECT safe.oid FROM safe "
	"WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_constraint k "
	"WHERE k.conrelid = safe.oid AND k.confrelid = safe.oid) "
	"AND NOT EXISTS (SELECT FROM parts JOIN pg_catalog.pg_depend d "
	"ON d.classid = parts.class AND d.objid = parts.oid "
	"WHERE d.refclassid IN ('pg_catalog.pg_proc'::pg_catalog.regclass, "
	"'pg_catalog.pg_operator'::pg_catalog.regclass)) "
	"AND NOT EXISTS (SELECT FROM domains JOIN pg_catalog.pg_type b "
	"ON b.oid = domains.typbasetype WHERE b.typtype NOT IN ('b', 'e') OR b.typarray = 0)";

/* Of the types $1, in their order: the names of their arrays, as far as those can be used. */
static const char look_at_types[] =
	"SELECT pg_catalog.format_type(y.typarray, -1) "
	"FROM pg_catalog.unnest($1::pg_catalog.oid[]) WITH ORDINALITY AS u (oid, i) "
	"JOIN pg_catalog.pg_type y ON y.oid = u.oid "
	"WHERE y.typarray <> 0 AND y.typdelim = ',' "
	"AND (y.typtype IN ('b', 'e', 'd') "
	"OR (y.typtype = 'r' AND y.typnamespace = 'pg_catalog'::pg_catalog.regnamespace)) "
	"AND pg_catalog.has_schema_privilege(y.typnamespace, 'USAGE') ORDER BY u.i";

/* Sets oid to the table's, "" if it is not safe. */
static int32_t look(const struct inboxd_host *host, struct inboxd_call *call, const struct set *set,
	char oid[sizeof set->oid])
{
	struct inboxd_rows *rows;
	const struct inboxd_value name = inboxd_text(set->table);
	oid[0] = '\0';
	int32_t result = host->exec(call, look_at_table, 1, &name, &rows);
	if (result == INBOXD_DONE && host->rows_count(rows) == 1)
		(void)snprintf(oid, sizeof set->oid, "%s", host->rows_value(rows, 0, 0).data);
	return result;
}

static int32_t look_up_arrays(const struct inboxd_host *host, struct inboxd_call *call,
	const uint32_t *types, uint32_t n, struct inboxd_rows **ret)
{
	struct text oids = {0};
	for (uint32_t i = 0; i < n; i++)
		add_number(&oids, i == 0 ? "{" : ",", types[i]);
	add_text(&oids, "}");
	const struct inboxd_value arg = inboxd_text(oids.data);
	int32_t result = host->exec(call, look_at_types, 1, &arg, ret);
	free(oids.data);
	return result;
}

static char *write_set(const struct inboxd_host *host, const struct insert *insert, const char *sql,
	const char *oid, uint32_t n, const uint32_t *order, const struct inboxd_rows *types)
{
	struct text t = {0};
	add(&t, sql, (size_t)(insert->head_end - sql));
	for (uint32_t i = 0; i < n; i++)
		add_number(&t, i == 0 ? " SELECT u.p" : ", u.p", order[i] + 1);
	add_text(&t, " FROM ROWS FROM (");
	for (uint32_t i = 0; i < n; i++) {
		add_number(&t, i == 0 ? "pg_catalog.unnest($" : ", pg_catalog.unnest($", i + 1);
		add_text(&t, "::");
		add_text(&t, host->rows_value(types, i, 0).data);
		add_text(&t, ")");
	}
	for (uint32_t i = 0; i < n; i++)
		add_number(&t, i == 0 ? ") AS u (p" : ", p", i + 1);
	/* Division by zero if the table is no longer what it was. */
	add_text(&t, ") WHERE (SELECT 1 / count(*) FROM pg_catalog.pg_class c WHERE c.oid = ");
	add_text(&t, oid);
	add_text(&t, " AND " STILL_SAFE ") = 1");
	add(&t, insert->tail, (size_t)(insert->tail_end - insert->tail));
	return t.data;
}

/* Leaves set->text NULL where the statement or its table is not of the kind. */
static int32_t open_set(const struct inboxd_host *host, struct inboxd_call *call, struct sql *s,
	const uint32_t *types)
{
	const struct statement *st = &s->statements[0];
	struct set *set = &s->set;
	struct inboxd_rows *arrays;
	struct insert insert;
	uint32_t order[MOST_PARAMETERS];
	if (!parse_insert(st->text, st->n, &insert, order))
		return INBOXD_DONE;
	set->table = copy_text(
		(struct inboxd_value){insert.table, (size_t)(insert.table_end - insert.table)});
	int32_t result = look(host, call, set, set->oid);
	if (result != INBOXD_DONE || set->oid[0] == '\0')
		return result;
	result = look_up_arrays(host, call, types, st->n, &arrays);
	if (result != INBOXD_DONE || host->rows_count(arrays) != st->n)
		return result;
	set->arrays = allocate(st->n, sizeof *set->arrays);
	set->args = allocate(st->n, sizeof *set->args);
	set->text = write_set(host, &insert, st->text, set->oid, st->n, order, arrays);
	return INBOXD_DONE;
}

static int32_t open_session(const struct inboxd_host *host, struct inboxd_call *call)
{
	uint32_t types[MOST_PARAMETERS];
	int32_t result = INBOXD_DONE;
	struct sql *s = read_options(host, call);
	if (s == NULL)
		return INBOXD_REJECT;
	host->set_state(call, s);
	s->can_queue = 1;
	for (uint32_t i = 0; i < s->n; i++) {
		struct statement *st = &s->statements[i];
		int32_t this_result = prepare(host, call, st, types);
		if (this_result != INBOXD_DONE)
			result = this_result;
		s->parameters += st->n;
		s->can_queue = s->can_queue && st->on_no_rows == ON_NO_ROWS_DONE;
	}
	s->args = allocate(s->parameters, sizeof *s->args);
	if (result == INBOXD_DONE && s->n == 1 && s->can_queue)
		result = open_set(host, call, s, types);
	return result;
}

static void close_session(const struct inboxd_host *host, struct inboxd_call *call)
{
	free_sql(host->state(call));
}

/* ---- messages ------------------------------------------------------------------------ */

/* The values of all statements' parameters, one behind the other. */
static void take_values(
	const struct inboxd_host *host, struct inboxd_call *call, const struct sql *s)
{
	struct inboxd_value *arg = s->args;
	for (uint32_t i = 0; i < s->n; i++) {
		const struct statement *st = &s->statements[i];
		for (uint32_t k = 0; k < st->n; k++) {
			struct inboxd_value v = host->get(call, st->sources[k]);
			*arg++ = st->is_bytea[k] ? host->bytea(call, v) : v;
		}
	}
}

static int32_t no_rows(
	const struct inboxd_host *host, struct inboxd_call *call, const struct statement *st)
{
	char reason[128];
	(void)snprintf(reason, sizeof reason, "%s touched no row", st->path);
	switch (st->on_no_rows) {
	case ON_NO_ROWS_RETRY:
		return host->retry(call, reason, 0);
	case ON_NO_ROWS_REJECT:
		return host->reject(call, reason);
	case ON_NO_ROWS_DONE:
		break;
	}
	return INBOXD_DONE;
}

static int32_t run(const struct inboxd_host *host, struct inboxd_call *call,
	const struct statement *st, const struct inboxd_value *args)
{
	struct inboxd_rows *rows;
	if (st->on_no_rows == ON_NO_ROWS_DONE)
		return host->queue(call, st->text, st->n, args);
	int32_t result = host->exec(call, st->text, st->n, args, &rows);
	if (result == INBOXD_DONE && host->rows_affected(rows) == 0)
		return no_rows(host, call, st);
	return result;
}

static int32_t handle_one(
	const struct inboxd_host *host, struct inboxd_call *call, const struct sql *s)
{
	const struct inboxd_value *args = s->args;
	take_values(host, call, s);
	/* Garbage that get refused: nothing is written for it, so that a batch can go on without
	 * it. */
	if (host->is_failed(call))
		return host->reject(call, NULL);
	for (uint32_t i = 0; i < s->n; i++) {
		int32_t result = run(host, call, &s->statements[i], args);
		if (result != INBOXD_DONE)
			return result;
		args += s->statements[i].n;
	}
	return INBOXD_DONE;
}

static int32_t handle(const struct inboxd_host *host, struct inboxd_call *call)
{
	struct sql *s = host->state(call);
	s->set.is_doubtful = 1;
	return handle_one(host, call, s);
}

static int32_t handle_each(
	const struct inboxd_host *host, struct inboxd_call *call, const struct sql *s)
{
	for (uint32_t i = 0; i < host->batch_size(call); i++) {
		struct inboxd_call *item = host->batch_item(call, i);
		int32_t result = handle_one(host, item, s);
		/* Where everything is queued, only garbage ends one message: the others go on. */
		if (result != INBOXD_DONE &&
			!(s->can_queue && result == INBOXD_REJECT && host->is_failed(item)))
			return result;
	}
	return INBOXD_DONE;
}

/* An element in quotes may hold everything but a NUL. */
static void add_element(struct text *t, struct inboxd_value v)
{
	const char *p = v.data;
	add_text(t, t->size == 0 ? "{" : ",");
	if (p == NULL) {
		add_text(t, "NULL");
		return;
	}
	const char *end = p + v.size;
	add_text(t, "\"");
	for (const char *from = p; p < end; from = p) {
		while (p < end && *p != '"' && *p != '\\')
			p++;
		add(t, from, (size_t)(p - from));
		if (p < end) {
			const char escaped[] = {'\\', *p++};
			add(t, escaped, sizeof escaped);
		}
	}
	add_text(t, "\"");
}

static int32_t queue_set(const struct inboxd_host *host, struct inboxd_call *call, struct sql *s)
{
	struct set *set = &s->set;
	if (set->n == 0)
		return INBOXD_DONE;
	for (uint32_t i = 0; i < s->parameters; i++) {
		struct text *t = &set->arrays[i];
		add_text(t, "}");
		set->args[i] = (struct inboxd_value){t->data, t->size};
		t->size = 0;
	}
	set->n = 0;
	set->size = 0;
	return host->queue(call, set->text, s->parameters, set->args);
}

/* What is too large, or will be refused, travels by itself: that is known to be its own failure. */
static int fits_in_set(const struct sql *s)
{
	size_t size = 0;
	for (uint32_t i = 0; i < s->parameters; i++) {
		const struct inboxd_value *v = &s->args[i];
		size += v->size;
		if (v->size != 0 && memchr(v->data, '\0', v->size) != NULL)
			return 0;
	}
	return size <= MOST_IN_SET;
}

static int32_t add_to_set(const struct inboxd_host *host, struct inboxd_call *call,
	struct inboxd_call *item, struct sql *s)
{
	struct set *set = &s->set;
	take_values(host, item, s);
	if (host->is_failed(item)) {
		(void)host->reject(item, NULL);
		return INBOXD_DONE;
	}
	if (!fits_in_set(s)) {
		int32_t result = queue_set(host, call, s);
		return result != INBOXD_DONE ? result : run(host, item, &s->statements[0], s->args);
	}
	for (uint32_t i = 0; i < s->parameters; i++) {
		set->size -= set->arrays[i].size;
		add_element(&set->arrays[i], s->args[i]);
		set->size += set->arrays[i].size;
	}
	set->n++;
	return set->size < MOST_IN_SET ? INBOXD_DONE : queue_set(host, call, s);
}

/* After handle, which is what runs after a failure: perhaps the table is another by now. */
static int32_t look_again(const struct inboxd_host *host, struct inboxd_call *call, struct set *set)
{
	char oid[sizeof set->oid];
	int32_t result = look(host, call, set, oid);
	if (result != INBOXD_DONE)
		return result;
	set->is_doubtful = 0;
	if (strcmp(oid, set->oid) != 0) {
		free(set->text);
		set->text = NULL;
	}
	return INBOXD_DONE;
}

static int32_t handle_set(const struct inboxd_host *host, struct inboxd_call *call, struct sql *s)
{
	/* An entry that an error has ended leaves something in them. */
	for (uint32_t i = 0; i < s->parameters; i++)
		s->set.arrays[i].size = 0;
	s->set.size = 0;
	s->set.n = 0;
	for (uint32_t i = 0; i < host->batch_size(call); i++) {
		int32_t result = add_to_set(host, call, host->batch_item(call, i), s);
		if (result != INBOXD_DONE)
			return result;
	}
	return queue_set(host, call, s);
}

static int32_t handle_batch(const struct inboxd_host *host, struct inboxd_call *call)
{
	struct sql *s = host->state(call);
	if (s->set.text != NULL && s->set.is_doubtful) {
		int32_t result = look_again(host, call, &s->set);
		if (result != INBOXD_DONE)
			return result;
	}
	return s->set.text != NULL ? handle_set(host, call, s) : handle_each(host, call, s);
}

INBOXD_HANDLER(.version = "1", .check = check, .open = open_session, .handle = handle,
	.handle_batch = handle_batch, .close = close_session)

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
 */
#include <inboxd/handler.h>

#include <stdio.h>
#include <stdlib.h>

enum { MOST_PARAMETERS = 1024, OID_BYTEA = 17 };

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

struct sql {
	struct statement *statements;
	uint32_t n;
	uint32_t parameters; /* of all statements together */
	int can_queue;       /* nobody needs to know how many rows a statement touched */
	struct inboxd_value *args;
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

static void free_sql(struct sql *s)
{
	if (s == NULL)
		return;
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

static int32_t prepare(
	const struct inboxd_host *host, struct inboxd_call *call, struct statement *st)
{
	uint32_t types[MOST_PARAMETERS];
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

static int32_t open_session(const struct inboxd_host *host, struct inboxd_call *call)
{
	int32_t result = INBOXD_DONE;
	struct sql *s = read_options(host, call);
	if (s == NULL)
		return INBOXD_REJECT;
	host->set_state(call, s);
	s->can_queue = 1;
	for (uint32_t i = 0; i < s->n; i++) {
		struct statement *st = &s->statements[i];
		int32_t this_result = prepare(host, call, st);
		if (this_result != INBOXD_DONE)
			result = this_result;
		s->parameters += st->n;
		s->can_queue = s->can_queue && st->on_no_rows == ON_NO_ROWS_DONE;
	}
	s->args = allocate(s->parameters, sizeof *s->args);
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

static int32_t handle(const struct inboxd_host *host, struct inboxd_call *call)
{
	const struct sql *s = host->state(call);
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

static int32_t handle_batch(const struct inboxd_host *host, struct inboxd_call *call)
{
	const struct sql *s = host->state(call);
	for (uint32_t i = 0; i < host->batch_size(call); i++) {
		struct inboxd_call *item = host->batch_item(call, i);
		int32_t result = handle(host, item);
		/* Where everything is queued, only garbage ends one message: the others go on. */
		if (result != INBOXD_DONE &&
			!(s->can_queue && result == INBOXD_REJECT && host->is_failed(item)))
			return result;
	}
	return INBOXD_DONE;
}

INBOXD_HANDLER(.version = "1", .check = check, .open = open_session, .handle = handle,
	.handle_batch = handle_batch, .close = close_session)

/* SPDX-License-Identifier: MIT */
/* Statements that travel together, and their results in order. */
#include "db/session.h"

#include "base/fd.h"

#include <assert.h>
#include <stdio.h>

/* Beyond so many texts a handler is making them up; further ones are parsed each time. */
enum { MOST_STATEMENTS = 256, MOST_PARAMETERS = 1024 };
/* Nobody reads answers while statements are queued: so much may pile up on our side. */
enum { MOST_UNSENT = 1 << 20 };

struct db_result {
	PGresult *pg;
};

static void await(struct db_conn *c, enum db_awaited kind, struct db_statement *statement)
{
	if (c->pending_n == c->pending_cap) {
		size_t cap = c->pending_cap != 0 ? 2 * c->pending_cap : 64;
		struct db_pending *ring = xcalloc(cap, sizeof *ring);
		for (size_t i = 0; i < c->pending_n; i++)
			ring[i] = c->pending[(c->pending_first + i) & (c->pending_cap - 1)];
		free(c->pending);
		c->pending = ring;
		c->pending_cap = cap;
		c->pending_first = 0;
	}
	c->pending[(c->pending_first + c->pending_n++) & (c->pending_cap - 1)] =
		(struct db_pending){.kind = kind, .statement = statement};
	c->queries_pending += kind == AWAIT_QUERY;
}

static const struct db_pending *oldest(const struct db_conn *c)
{
	return c->pending_n != 0 ? &c->pending[c->pending_first] : NULL;
}

static struct db_pending pop(struct db_conn *c)
{
	assert(c->pending != NULL && c->pending_n != 0);
	struct db_pending p = c->pending[c->pending_first];
	c->pending_first = (c->pending_first + 1) & (c->pending_cap - 1);
	c->pending_n--;
	c->queries_pending -= p.kind == AWAIT_QUERY;
	return p;
}

size_t db_queued(const struct db_conn *c)
{
	return c->queries_pending;
}

/* The statement under its name, sent to be parsed if it is new; NULL: use it without a name. */
static enum rc find_statement(
	struct db_conn *c, const char *sql, struct db_statement **ret, struct err *err)
{
	struct db_statement *s = NULL;
	*ret = NULL;
	if (!c->keep_statements)
		return RC_OK;
	if (c->last_statement != NULL && strcmp(c->last_statement->text, sql) == 0) {
		*ret = c->last_statement;
		return RC_OK;
	}
	HASH_FIND_STR(c->statements, sql, s);
	if (s == NULL && HASH_COUNT(c->statements) < MOST_STATEMENTS) {
		s = xcalloc(1, sizeof *s);
		s->text = xstrdup(sql);
		(void)snprintf(s->name, sizeof s->name, "inboxd_%u", c->names_used++);
		HASH_ADD_KEYPTR(hh, c->statements, s->text, strlen(s->text), s);
		if (PQsendPrepare(c->pg, s->name, sql, 0, NULL) != 1)
			return db_lost(c, err);
		await(c, AWAIT_PREPARE, s);
	}
	*ret = c->last_statement = s;
	return RC_OK;
}

enum rc db_queue(struct db_conn *c, const char *sql, size_t n, const struct db_value *args,
	bool binary_result, struct err *err)
{
	const char *values[MOST_PARAMETERS];
	int lengths[MOST_PARAMETERS];
	int formats[MOST_PARAMETERS];
	struct db_statement *s;

	if (n > MOST_PARAMETERS)
		return err_set(err, RC_REJECT, "more than %d parameters", MOST_PARAMETERS);
	for (size_t i = 0; i < n; i++) {
		values[i] = args[i].data;
		lengths[i] = (int)args[i].size;
		formats[i] = args[i].binary;
	}
	if (c->lost)
		return db_lost(c, err);
	if (db_refresh_statements(c, err) != RC_OK || find_statement(c, sql, &s, err) != RC_OK)
		return err->rc;
	int sent = s != NULL ? PQsendQueryPrepared(
				       c->pg, s->name, (int)n, values, lengths, formats, binary_result)
			     : PQsendQueryParams(c->pg, sql, (int)n, NULL, values, lengths, formats,
				       binary_result);
	if (sent != 1)
		return db_lost(c, err);
	await(c, AWAIT_QUERY, NULL);
	for (size_t i = 0; i < n; i++)
		c->unsent += args[i].size;
	if (c->unsent < MOST_UNSENT)
		return RC_OK;
	c->unsent = 0;
	return db_wait_sent(c) ? RC_OK : db_lost(c, err);
}

enum rc db_sync(struct db_conn *c, struct err *err)
{
	if (c->lost || PQpipelineSync(c->pg) != 1)
		return db_lost(c, err);
	await(c, AWAIT_SYNC, NULL);
	c->unsent = 0;
	return RC_OK;
}

/* One statement's result; in pipeline mode a NULL ends it. */
static PGresult *fetch(struct db_conn *c)
{
	PGresult *res = db_answer(c);
	PGresult *more;
	if (res == NULL || PQresultStatus(res) == PGRES_PIPELINE_SYNC)
		return res;
	while ((more = db_answer(c)) != NULL) {
		PQclear(more);
		if (PQstatus(c->pg) != CONNECTION_OK)
			break;
	}
	return res;
}

static enum rc judge(struct db_conn *c, const PGresult *res, struct err *err)
{
	switch ((int)PQresultStatus(res)) { /* an int: newer libpq know more of them */
	case PGRES_COMMAND_OK:
	case PGRES_TUPLES_OK:
	case PGRES_EMPTY_QUERY:
		return RC_OK;
	case PGRES_PIPELINE_ABORTED:
		return err_set(err, RC_RETRY, "skipped after an earlier error");
	case PGRES_COPY_IN:
	case PGRES_COPY_OUT:
	case PGRES_COPY_BOTH:
		c->lost = true; /* libpq cannot leave COPY inside a pipeline */
		return err_set(err, RC_REJECT, "COPY needs copy_begin, not exec or queue");
	default:
		return db_failure(c, res, err);
	}
}

/* Takes the answers to PREPAREs that stand in front; a failed one is forgotten, so that it is parsed
 * again the next time, and its error is that of the query behind it. */
static enum rc take_prepares(struct db_conn *c, struct err *err)
{
	enum rc rc = RC_OK;
	while (oldest(c) != NULL && oldest(c)->kind == AWAIT_PREPARE) {
		struct db_pending p = pop(c);
		PGresult *res = fetch(c);
		struct err ignored;
		enum rc this_rc = judge(c, res, rc == RC_OK ? err : &ignored);
		PQclear(res);
		if (this_rc != RC_OK)
			db_forget_statement(c, p.statement);
		if (rc == RC_OK)
			rc = this_rc;
		if (c->lost)
			break;
	}
	return rc;
}

/* "cached plan must not change result type", "prepared statement does not exist". */
static void note_stale(struct db_conn *c, const PGresult *res)
{
	const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);
	if (c->keep_statements && state != NULL &&
		(strcmp(state, "0A000") == 0 || strcmp(state, "26000") == 0))
		c->stale = true;
}

enum rc db_next(struct db_conn *c, struct db_result **ret, struct err *err)
{
	if (ret != NULL)
		*ret = NULL;
	if (c->lost)
		return db_lost(c, err);
	enum rc prepared = take_prepares(c, err);
	if (c->lost)
		return prepared;
	assert(oldest(c) != NULL && oldest(c)->kind == AWAIT_QUERY);
	(void)pop(c);
	PGresult *res = fetch(c);
	struct err ignored;
	enum rc rc = judge(c, res, prepared == RC_OK ? err : &ignored);
	note_stale(c, res);
	if (prepared != RC_OK)
		rc = prepared;
	if (rc == RC_OK && ret != NULL) {
		*ret = xcalloc(1, sizeof **ret);
		(*ret)->pg = res;
		return RC_OK;
	}
	PQclear(res);
	return rc;
}

enum rc db_sync_end(struct db_conn *c, struct err *err)
{
	struct err ignored;
	enum rc first = RC_OK;
	while (!c->lost && oldest(c) != NULL && oldest(c)->kind != AWAIT_SYNC) {
		struct err *into = first == RC_OK ? err : &ignored;
		enum rc rc = oldest(c)->kind == AWAIT_QUERY ? db_next(c, NULL, into)
							    : take_prepares(c, into);
		if (first == RC_OK)
			first = rc;
	}
	if (c->lost)
		return first != RC_OK ? first : db_lost(c, err);
	(void)pop(c);
	PGresult *res = db_answer(c);
	bool is_sync = PQresultStatus(res) == PGRES_PIPELINE_SYNC;
	PQclear(res);
	if (!is_sync)
		return db_lost(c, first == RC_OK ? err : &ignored);
	return first;
}

enum rc db_exec(struct db_conn *c, const char *sql, size_t n, const struct db_value *args,
	bool binary_result, struct db_result **ret, struct err *err)
{
	struct db_result *result = NULL;
	struct err later;
	if (db_queue(c, sql, n, args, binary_result, err) != RC_OK || db_sync(c, err) != RC_OK)
		return err->rc;
	enum rc rc = db_next(c, ret != NULL ? &result : NULL, err);
	enum rc end = db_sync_end(c, rc == RC_OK ? err : &later);
	if (rc == RC_OK)
		rc = end;
	if (rc != RC_OK)
		db_result_free(result);
	else if (ret != NULL)
		*ret = result;
	return rc;
}

/* Without a name, and inside a transaction unless there is one: a pooler sends both parts to one server. */
static enum rc describe(struct db_conn *c, const char *sql, PGresult **ret, struct err *err)
{
	if (PQsendPrepare(c->pg, "", sql, 0, NULL) != 1)
		return db_lost(c, err);
	PGresult *res = db_last_answer(c);
	enum rc rc = judge(c, res, err);
	PQclear(res);
	if (rc != RC_OK)
		return rc;
	if (PQsendDescribePrepared(c->pg, "") != 1)
		return db_lost(c, err);
	*ret = db_last_answer(c);
	return judge(c, *ret, err);
}

enum rc db_prepare(struct db_conn *c, const char *sql, uint32_t *ret_types, size_t max,
	size_t *ret_parameters, struct err *err)
{
	PGresult *res = NULL;
	struct err ignored;
	assert(c->pending_n == 0);
	if (c->lost || PQexitPipelineMode(c->pg) != 1)
		return db_lost(c, err);
	bool is_outside = PQtransactionStatus(c->pg) == PQTRANS_IDLE;
	if (is_outside)
		(void)!db_simple(c, "BEGIN", &ignored);
	enum rc rc = describe(c, sql, &res, err);
	if (rc == RC_OK)
		*ret_parameters = (size_t)PQnparams(res);
	for (size_t i = 0; rc == RC_OK && i < max && i < *ret_parameters; i++)
		ret_types[i] = PQparamtype(res, (int)i);
	PQclear(res);
	if (is_outside && !c->lost)
		(void)!db_simple(c, "ROLLBACK", &ignored);
	if (!c->lost && PQenterPipelineMode(c->pg) != 1)
		return db_lost(c, err);
	return rc;
}

/* ---- results ------------------------------------------------------------------------------- */

void db_result_free(struct db_result *r)
{
	if (r != NULL) {
		PQclear(r->pg);
		free(r);
	}
}

size_t db_result_rows(const struct db_result *r)
{
	return (size_t)PQntuples(r->pg);
}

size_t db_result_columns(const struct db_result *r)
{
	return (size_t)PQnfields(r->pg);
}

uint64_t db_result_affected(const struct db_result *r)
{
	return strtoull(PQcmdTuples(r->pg), NULL, 10);
}

const char *db_result_tag(const struct db_result *r)
{
	return PQcmdStatus(r->pg);
}

struct bytes db_result_value(const struct db_result *r, size_t row, size_t column)
{
	int i = (int)row, j = (int)column;
	if (i >= PQntuples(r->pg) || j >= PQnfields(r->pg) || PQgetisnull(r->pg, i, j))
		return bytes_of(NULL, 0);
	return bytes_of(PQgetvalue(r->pg, i, j), (size_t)PQgetlength(r->pg, i, j));
}

int64_t db_result_int(const struct db_result *r, size_t row, size_t column)
{
	struct bytes v = db_result_value(r, row, column);
	struct reader reader = reader_of(v);
	switch (v.size) {
	case 1:
		return reader_u8(&reader);
	case 2:
		return (int16_t)reader_u16(&reader);
	case 4:
		return (int32_t)reader_u32(&reader);
	case 8:
		return (int64_t)reader_u64(&reader);
	default:
		return 0;
	}
}

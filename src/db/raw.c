/* SPDX-License-Identifier: MIT */
/* What cannot run inside a pipeline: COPY, and the raw connection lent to a handler. */
#include "db/session.h"

#include <assert.h>

enum { MOST_LEFT_OVER = 100000 }; /* statements that a handler leaves unfetched in a pipeline */

/* Takes everything that is still to come, whatever state the connection was left in. */
static void drain(struct db_conn *c)
{
	/* In a pipeline that the handler has begun, NULL ends one statement only; ours is the last Sync. */
	int left = PQpipelineStatus(c->pg) != PQ_PIPELINE_OFF ? MOST_LEFT_OVER : 0;
	while (PQstatus(c->pg) == CONNECTION_OK) {
		PGresult *res = PQgetResult(c->pg);
		ExecStatusType status = PQresultStatus(res);
		if (res == NULL && left-- <= 0)
			break;
		if (res == NULL)
			continue;
		PQclear(res);
		if (left > 0 && PQexitPipelineMode(c->pg) == 1)
			left = 0;
		if (status == PGRES_COPY_IN || status == PGRES_COPY_BOTH)
			(void)PQputCopyEnd(c->pg, "left open by the handler");
		if (status == PGRES_COPY_OUT || status == PGRES_COPY_BOTH) {
			char *row;
			while (PQgetCopyData(c->pg, &row, 0) > 0)
				PQfreemem(row);
		}
	}
}

static bool back_to_pipeline(struct db_conn *c)
{
	return PQsetnonblocking(c->pg, 1) == 0 && PQenterPipelineMode(c->pg) == 1;
}

enum rc db_copy_begin(struct db_conn *c, const char *sql, struct err *err)
{
	assert(c->pending_n == 0);
	if (c->lost || PQexitPipelineMode(c->pg) != 1)
		return db_lost(c, err);
	(void)PQsetnonblocking(c->pg, 0);
	/* By the extended protocol, which takes one statement only: no COMMIT can hide behind the COPY. */
	PGresult *res = PQexecParams(c->pg, sql, 0, NULL, NULL, NULL, NULL, 0);
	enum rc rc = RC_OK;
	if (PQresultStatus(res) == PGRES_FATAL_ERROR)
		rc = db_failure(c, res, err);
	else if (PQresultStatus(res) != PGRES_COPY_IN)
		rc = err_set(err, RC_REJECT, "not a COPY … FROM STDIN");
	PQclear(res);
	if (rc != RC_OK) {
		drain(c);
		if (!c->lost && !back_to_pipeline(c))
			return db_lost(c, err);
	}
	return rc;
}

enum rc db_copy_data(struct db_conn *c, struct bytes data, struct err *err)
{
	const char *p = (const char *)data.data;
	size_t left = data.size;
	while (left > 0) {
		int n = left < (1 << 20) ? (int)left : 1 << 20;
		if (PQputCopyData(c->pg, p, n) != 1)
			return db_lost(c, err);
		p += n;
		left -= (size_t)n;
	}
	return RC_OK;
}

enum rc db_copy_end(struct db_conn *c, struct err *err)
{
	if (PQputCopyEnd(c->pg, NULL) != 1)
		return db_lost(c, err);
	PGresult *res = PQgetResult(c->pg);
	enum rc rc = PQresultStatus(res) == PGRES_COMMAND_OK ? RC_OK : db_failure(c, res, err);
	PQclear(res);
	drain(c);
	if (!c->lost && !back_to_pipeline(c))
		return db_lost(c, err);
	return rc;
}

struct pg_conn *db_raw_begin(struct db_conn *c)
{
	assert(c->pending_n == 0);
	if (c->lost || PQexitPipelineMode(c->pg) != 1)
		return NULL;
	(void)PQsetnonblocking(c->pg, 0);
	return c->pg;
}

enum rc db_raw_end(struct db_conn *c, struct err *err)
{
	if (PQpipelineStatus(c->pg) != PQ_PIPELINE_OFF)
		(void)PQpipelineSync(c->pg);
	(void)PQsetnonblocking(c->pg, 0);
	drain(c);
	if (PQstatus(c->pg) != CONNECTION_OK)
		return db_lost(c, err);
	bool is_inside = PQtransactionStatus(c->pg) == PQTRANS_INTRANS ||
			 PQtransactionStatus(c->pg) == PQTRANS_INERROR;
	if (PQpipelineStatus(c->pg) == PQ_PIPELINE_OFF && !back_to_pipeline(c))
		return db_lost(c, err);
	if (!is_inside)
		return err_set(err, RC_REJECT, "the handler ended the transaction");
	return RC_OK;
}

/* SPDX-License-Identifier: MIT */
/* Opening, preparing, resetting and closing a session. */
#include "db/session.h"

#include "base/fd.h"

#include <stdio.h>

/* Ours stand in front of the configured conninfo, which may override them, or behind it. */
enum { MOST_PARAMETERS = 24 };

struct parameters {
	const char *names[MOST_PARAMETERS];
	const char *values[MOST_PARAMETERS];
	size_t n;
};

static void add(struct parameters *p, const char *name, const char *value)
{
	p->names[p->n] = name;
	p->values[p->n++] = value;
}

enum rc db_check_conninfo(const struct config_database *database, struct err *err)
{
	char *text = NULL;
	PQconninfoOption *options = PQconninfoParse(database->conninfo, &text);
	/* libpq's text quotes pieces of the string, and a piece may be a password. */
	PQfreemem(text);
	if (options == NULL)
		return err_set(err, RC_FATAL,
			"conninfo of database \"%s\" is neither key=value pairs nor a "
			"postgresql:// URI that libpq can read",
			database->name);
	PQconninfoFree(options);
	return RC_OK;
}

/* libpq ends its messages with newlines and puts one line per address it tried. */
static enum rc fail_with_text(struct err *err, enum rc rc, const char *text)
{
	char flat[900];
	size_t n = 0;
	for (const char *p = text; *p != '\0' && n + 3 < sizeof flat; p++) {
		if (*p != '\n')
			flat[n++] = *p == '\t' ? ' ' : *p;
		else if (p[1] != '\0') {
			flat[n++] = ';';
			flat[n++] = ' ';
		}
	}
	flat[n] = '\0';
	return err_set(err, rc, "%s", flat);
}

enum rc db_connect(const struct config_database *database, const char *application_name,
	PGconn **ret, struct err *err)
{
	AUTO(buf) struct buf password = {0};
	struct parameters p = {.n = 0};
	char timeout[16];

	if (db_check_conninfo(database, err) != RC_OK)
		return err->rc;
	(void)snprintf(
		timeout, sizeof timeout, "%u", (database->connect_timeout_ms + 999) / 1000);
	add(&p, "connect_timeout", timeout);
	add(&p, "keepalives_idle", "10");
	add(&p, "keepalives_interval", "5");
	add(&p, "keepalives_count", "3");
	add(&p, "tcp_user_timeout", "20000");
	/* Of several hosts the one that takes writes, wherever it is after a failover. */
	add(&p, "target_session_attrs", "primary");
	add(&p, "application_name", application_name);
	add(&p, "dbname", database->conninfo);
	add(&p, "client_encoding", "UTF8");
	if (database->password_file != NULL) {
		/* A missing secret may be there at the next try: rotation is not atomic everywhere. */
		if (config_read_secret(database->password_file, &password, err) != RC_OK)
			return err->rc = RC_UNAVAILABLE;
		add(&p, "password", buf_str(&password));
	}
	add(&p, NULL, NULL);

	PGconn *pg = PQconnectdbParams(p.names, p.values, 1);
	if (password.data != NULL)
		explicit_bzero(password.data, password.cap);
	if (pg == NULL)
		return err_set(err, RC_UNAVAILABLE, "out of memory");
	if (PQstatus(pg) != CONNECTION_OK) {
		(void)fail_with_text(err, RC_UNAVAILABLE, PQerrorMessage(pg));
		PQfinish(pg);
		return RC_UNAVAILABLE;
	}
	*ret = pg;
	return RC_OK;
}

static void receive_notice(void *arg, const PGresult *res)
{
	struct db_conn *c = arg;
	const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);
	const char *function = PQresultErrorField(res, PG_DIAG_SOURCE_FUNCTION);
	/* 01000 is what a commit says that gave up waiting for its standbys.  Its text is translated, so
	 * the code must do; the caller looks only at those that came with a COMMIT.  RAISE WARNING in a
	 * deferred trigger has the same code, but tells where it comes from. */
	bool is_raised = function != NULL && strcmp(function, "exec_stmt_raise") == 0;
	if (state != NULL && strcmp(state, "01000") == 0 && !is_raised)
		c->warned = true;
	/* The last word of a session that ends with all others: another one crashed, or the server is
	 * stopped at once.  One that is ended by itself is told so by an error. */
	if (state != NULL && strncmp(state, "57P", 3) == 0 && !is_raised)
		c->is_dismissed = true;
}

/* What every session of ours is: nothing outside our transactions can write, a vanished client is
 * noticed, values read the same everywhere. */
static enum rc prepare_session(struct db_conn *c, struct err *err)
{
	char sql[512];
	if (!c->keep_statements)
		return RC_OK; /* a pooler hands the next transaction to another session: see db_queue_begin */
	(void)snprintf(sql, sizeof sql,
		"SET default_transaction_read_only = on;"
		"SET client_min_messages = warning;"
		"SET datestyle = 'ISO, YMD'; SET intervalstyle = 'postgres'; SET bytea_output = 'hex';"
		"SET standard_conforming_strings = on; SET extra_float_digits = 1;"
		"SET idle_in_transaction_session_timeout = %u; SET statement_timeout = %u;"
		"%s",
		c->idle_ms, c->statement_ms, PQserverVersion(c->pg) >= 140000
			? "SET client_connection_check_interval = '5s'"
			: "");
	return db_simple(c, sql, err);
}

enum rc db_queue_begin(struct db_conn *c, struct err *err)
{
	static const char begin[] = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
	static const char settings[] =
		"SELECT set_config('statement_timeout', $1, true), "
		"set_config('idle_in_transaction_session_timeout', $2, true), "
		"set_config('client_min_messages', 'warning', true), "
		"set_config('datestyle', 'ISO, YMD', true), set_config('intervalstyle', 'postgres', true), "
		"set_config('bytea_output', 'hex', true), set_config('extra_float_digits', '1', true), "
		"set_config('standard_conforming_strings', 'on', true), "
		"CASE WHEN current_setting('client_connection_check_interval', true) IS NOT NULL "
		"THEN set_config('client_connection_check_interval', '5s', true) END";
	char statement_ms[16], idle_ms[16];

	enum rc rc = db_queue(c, begin, 0, NULL, false, err);
	if (rc != RC_OK || c->keep_statements)
		return rc;
	(void)snprintf(statement_ms, sizeof statement_ms, "%u", c->statement_ms);
	(void)snprintf(idle_ms, sizeof idle_ms, "%u", c->idle_ms);
	const struct db_value args[] = {{.data = statement_ms, .size = strlen(statement_ms)},
		{.data = idle_ms, .size = strlen(idle_ms)}};
	return db_queue(c, settings, 2, args, false, err);
}

enum rc db_take_begin(struct db_conn *c, struct err *err)
{
	enum rc rc = db_next(c, NULL, err);
	return rc == RC_OK && !c->keep_statements ? db_next(c, NULL, err) : rc;
}

/* Where a character of ours cannot be stored, an error's text could never be parked. */
static enum rc check_encoding(PGconn *pg, struct err *err)
{
	const char *encoding = PQparameterStatus(pg, "server_encoding");
	if (encoding == NULL || strcmp(encoding, "UTF8") == 0 || strcmp(encoding, "SQL_ASCII") == 0)
		return RC_OK;
	return err_set(err, RC_FATAL,
		"its encoding is %s, which cannot hold every text: create it with ENCODING 'UTF8' "
		"(SQL_ASCII will do too)",
		encoding);
}

enum rc db_conn_open(const struct config_database *database, const char *application_name,
	struct db_conn **ret, struct err *err)
{
	PGconn *pg = NULL;
	if (db_connect(database, application_name, &pg, err) != RC_OK)
		return err_ctx(err, "database \"%s\"", database->name);
	if (check_encoding(pg, err) != RC_OK) {
		PQfinish(pg);
		return err_ctx(err, "database \"%s\"", database->name);
	}

	struct db_conn *c = xcalloc(1, sizeof *c);
	c->pg = pg;
	c->keep_statements = database->prepared_statements;
	c->idle_ms = 0;
	char *quoted = PQescapeIdentifier(pg, database->schema, strlen(database->schema));
	c->schema = xstrdup(quoted != NULL ? quoted : "inboxd");
	PQfreemem(quoted);
	(void)PQsetNoticeReceiver(pg, receive_notice, c);
	c->patience_ms = database->connect_timeout_ms;
	if (PQsetnonblocking(pg, 1) != 0 || prepare_session(c, err) != RC_OK ||
		PQenterPipelineMode(pg) != 1) {
		db_conn_close(c);
		return err_ctx(err, "database \"%s\": preparing the session", database->name);
	}
	c->patience_ms = 0;
	*ret = c;
	return RC_OK;
}

void db_forget_statement(struct db_conn *c, struct db_statement *statement)
{
	c->last_statement = NULL;
	HASH_DEL(c->statements, statement); /* NOLINT(clang-analyzer-unix.Malloc): not freed before */
	free(statement->text);
	free(statement);
}

static void forget_statements(struct db_conn *c)
{
	struct db_statement *s, *next;
	HASH_ITER(hh, c->statements, s, next)
	{
		db_forget_statement(c, s);
	}
	c->stale = false;
}

void db_conn_close(struct db_conn *c)
{
	if (c == NULL)
		return;
	forget_statements(c);
	PQfinish(c->pg);
	free(c->schema);
	free(c->pending);
	free(c);
}

static enum rc out_of_pipeline(
	struct db_conn *c, enum rc (*run)(struct db_conn *, struct err *), struct err *err)
{
	if (PQexitPipelineMode(c->pg) != 1)
		return db_lost(c, err);
	enum rc rc = run(c, err);
	if (PQenterPipelineMode(c->pg) != 1 && rc == RC_OK)
		return db_lost(c, err);
	return rc;
}

static enum rc deallocate(struct db_conn *c, struct err *err)
{
	enum rc rc = db_simple(c, "DEALLOCATE ALL", err);
	forget_statements(c);
	return rc;
}

enum rc db_refresh_statements(struct db_conn *c, struct err *err)
{
	if (!c->stale || c->pending_n != 0 || PQtransactionStatus(c->pg) != PQTRANS_IDLE)
		return RC_OK;
	return out_of_pipeline(c, deallocate, err);
}

enum rc db_conn_limit(
	struct db_conn *c, uint32_t statement_ms, uint32_t idle_ms, struct err *err)
{
	c->statement_ms = statement_ms;
	c->idle_ms = idle_ms;
	c->patience_ms = db_patience_for(statement_ms);
	return out_of_pipeline(c, prepare_session, err);
}

static enum rc reset_session(struct db_conn *c, struct err *err)
{
	enum rc rc = db_simple(c, "DISCARD ALL", err);
	if (rc != RC_OK)
		return rc;
	forget_statements(c);
	return prepare_session(c, err);
}

enum rc db_conn_reset(struct db_conn *c, struct err *err)
{
	return out_of_pipeline(c, reset_session, err);
}

int db_conn_fd(const struct db_conn *c)
{
	return PQsocket(c->pg);
}

bool db_conn_is_alive(struct db_conn *c, bool is_readable)
{
	if (!c->lost && is_readable && PQconsumeInput(c->pg) != 1)
		c->lost = true;
	/* A FATAL that the server sent while nothing ran is not an error of libpq's until it is read. */
	return !c->lost && PQstatus(c->pg) == CONNECTION_OK && PQsocket(c->pg) >= 0;
}

const char *db_conn_schema(const struct db_conn *c)
{
	return c->schema;
}

int db_conn_version(const struct db_conn *c)
{
	return PQserverVersion(c->pg);
}

bool db_was_dismissed(const struct db_conn *c)
{
	return c->is_dismissed;
}

bool db_warned(const struct db_conn *c)
{
	return c->warned;
}

void db_warning_clear(struct db_conn *c)
{
	c->warned = false;
}

enum db_tx_state db_tx_state(const struct db_conn *c)
{
	if (c->lost)
		return DB_TX_LOST;
	switch (PQtransactionStatus(c->pg)) {
	case PQTRANS_IDLE:
		return DB_TX_NONE;
	case PQTRANS_INERROR:
		return DB_TX_FAILED;
	case PQTRANS_ACTIVE:
	case PQTRANS_INTRANS:
		return DB_TX_OPEN;
	case PQTRANS_UNKNOWN:
		break;
	}
	return DB_TX_LOST;
}

enum rc db_lost(struct db_conn *c, struct err *err)
{
	c->lost = true;
	if (c->is_given_up)
		return err_set(err, RC_UNAVAILABLE, "no answer for %u ms: the session is given up", c->patience_ms);
	return fail_with_text(err, RC_UNAVAILABLE,
		*PQerrorMessage(c->pg) != '\0' ? PQerrorMessage(c->pg) : "connection lost");
}

/* The session ends with it, though its end may not have been read yet.  A pooler does not send the
 * severity that is not translated. */
static bool is_fatal(const PGresult *res)
{
	const char *severity = PQresultErrorField(res, PG_DIAG_SEVERITY_NONLOCALIZED);
	if (severity == NULL)
		severity = PQresultErrorField(res, PG_DIAG_SEVERITY);
	return severity != NULL &&
	       (strcmp(severity, "FATAL") == 0 || strcmp(severity, "PANIC") == 0);
}

enum rc db_failure(struct db_conn *c, const PGresult *res, struct err *err)
{
	const char *state = res != NULL ? PQresultErrorField(res, PG_DIAG_SQLSTATE) : NULL;
	const char *text = res != NULL ? PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY) : NULL;
	if (state == NULL || text == NULL)
		return db_lost(c, err);
	/* The status first: a session that is gone has no SQLSTATE worth the name. */
	bool is_lost = PQstatus(c->pg) != CONNECTION_OK || is_fatal(res);
	c->lost = c->lost || is_lost;
	const char *detail = PQresultErrorField(res, PG_DIAG_MESSAGE_DETAIL);
	enum rc rc = is_lost ? RC_UNAVAILABLE
			     : db_error_class_of_statement(
				       state, PQresultErrorField(res, PG_DIAG_SOURCE_FUNCTION));
	(void)err_set(err, rc, "%s (SQLSTATE %s)%s%s", text, state, detail != NULL ? ": " : "",
		detail != NULL ? detail : "");
	if (err != NULL)
		(void)snprintf(err->sqlstate, sizeof err->sqlstate, "%s", state);
	return rc;
}

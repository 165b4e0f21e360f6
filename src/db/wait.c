/* SPDX-License-Identifier: MIT */
/* Waiting for the server's answers, and not for ever: its kernel may go on acknowledging what the
 * process will never read. */
#include "db/session.h"

#include "base/clock.h"

#include <openssl/ssl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>

enum {
	MARGIN_MS = 3000, /* for the server's own limit to come first, and its word to arrive */
	GSS_POLL_MS = 50,
};

uint32_t db_patience_for(uint32_t statement_ms)
{
	return statement_ms != 0 ? statement_ms + MARGIN_MS : 0;
}

void db_conn_patience(struct db_conn *c, uint32_t ms)
{
	c->patience_ms = ms;
}

void db_conn_on_silence(struct db_conn *c, bool (*on_silence)(void *arg), void *arg)
{
	c->on_silence = on_silence;
	c->on_silence_arg = arg;
}

/* Decrypted bytes that libpq has not taken yet make no socket readable. */
static bool has_buffered(const struct db_conn *c)
{
	SSL *ssl = PQsslStruct(c->pg, "OpenSSL");
	return ssl != NULL && SSL_pending(ssl) > 0;
}

static int time_left_ms(const struct db_conn *c, uint64_t until_ms)
{
	uint64_t now = clock_ms();
	if (PQgssEncInUse(c->pg)) /* it has such bytes too, and does not tell */
		return GSS_POLL_MS;
	if (c->patience_ms == 0)
		return -1;
	return until_ms > now ? (int)(until_ms - now) : 0;
}

/* From here on nothing of libpq can wait on this socket. */
static void give_up(struct db_conn *c)
{
	c->lost = true;
	c->is_given_up = true;
	(void)shutdown(PQsocket(c->pg), SHUT_RDWR);
}

/* Until the server says something or takes something.  False: given up. */
static bool wait_for_more(struct db_conn *c, bool has_unsent, uint64_t *until_ms)
{
	struct pollfd fd = {
		.fd = PQsocket(c->pg), .events = (short)(POLLIN | (has_unsent ? POLLOUT : 0))};
	if (has_buffered(c) || poll(&fd, 1, time_left_ms(c, *until_ms)) != 0)
		return true;
	if (c->patience_ms == 0 || clock_ms() < *until_ms)
		return true;
	if (c->on_silence == NULL || !c->on_silence(c->on_silence_arg)) {
		give_up(c);
		return false;
	}
	*until_ms = clock_ms() + c->patience_ms;
	return true;
}

/* Errors on the way are libpq's to tell, with the next result. */
static bool is_ready(struct db_conn *c, int unsent, bool just_send)
{
	return unsent < 0 || (just_send ? unsent == 0 : PQisBusy(c->pg) == 0);
}

static bool wait_until(struct db_conn *c, bool just_send)
{
	uint64_t until_ms = clock_ms() + c->patience_ms;
	for (;;) {
		int unsent = PQflush(c->pg);
		if (is_ready(c, unsent, just_send))
			return true;
		if (!wait_for_more(c, unsent > 0, &until_ms))
			return false;
		if (PQconsumeInput(c->pg) != 1)
			return !just_send;
	}
}

bool db_wait_sent(struct db_conn *c)
{
	return wait_until(c, true);
}

PGresult *db_answer(struct db_conn *c)
{
	return !c->is_given_up && wait_until(c, false) ? PQgetResult(c->pg) : NULL;
}

PGresult *db_last_answer(struct db_conn *c)
{
	PGresult *last = NULL;
	PGresult *res;
	while ((res = db_answer(c)) != NULL) {
		/* Of several statements the one that failed ends them all. */
		PQclear(last);
		last = res;
		if (PQstatus(c->pg) != CONNECTION_OK)
			break;
	}
	return last;
}

enum rc db_simple(struct db_conn *c, const char *sql, struct err *err)
{
	if (c->lost || PQsendQuery(c->pg, sql) != 1)
		return db_lost(c, err);
	PGresult *res = db_last_answer(c);
	enum rc rc = PQresultStatus(res) == PGRES_COMMAND_OK ? RC_OK : db_failure(c, res, err);
	PQclear(res);
	return rc;
}

enum db_seen db_look_at(const struct config_database *database, const struct db_conn *c)
{
	static const char sql[] = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND "
				  "usename = current_user "
				  "AND ($1::integer = 0 OR pid = $1::integer) LIMIT 1";
	struct db_conn *other = NULL;
	struct db_result *rows = NULL;
	struct err ignored;
	char pid[16];
	enum db_seen seen = DB_SEEN_NOTHING;

	(void)snprintf(pid, sizeof pid, "%d", c->keep_statements ? PQbackendPID(c->pg) : 0);
	const struct db_value arg = {.data = pid, .size = strlen(pid)};
	if (db_conn_open(database, "inboxd", &other, &ignored) != RC_OK)
		return seen;
	db_conn_patience(other, database->connect_timeout_ms);
	if (db_exec(other, sql, 1, &arg, false, &rows, &ignored) == RC_OK)
		seen = db_result_rows(rows) != 0 ? DB_SEEN_STANDBY : DB_SEEN_OTHER;
	db_result_free(rows);
	db_conn_close(other);
	return seen;
}

/* SPDX-License-Identifier: MIT */
/* Sweeps: all that is old, in small transactions with pauses between them; then nothing for a
 * while. */
#include "janitor/janitor.h"

#include "base/backoff.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "db/db.h"
#include "db/migrate.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

enum {
	SWEEP_EVERY_MS = 60000,
	SHORTEST_PAUSE_MS = 20, /* between two steps; otherwise as long as the step took */
	STEP_LIMIT_MS = 10000,  /* of one statement, kept by the server */
	AGAIN_FIRST_MS = 1000,
	AGAIN_CAP_MS = SWEEP_EVERY_MS,
	TICK_MS = 5000, /* the supervisor ends who makes no progress */
};

/* One database, connected to for a sweep only. */
struct place {
	const struct config_database *database;
	uint64_t next_ms; /* when to sweep it */
	bool is_failing;  /* and that has been told */
	struct backoff backoff;
};

struct janitor {
	const struct config *config;
	struct stats *stats;
	struct stats_slot *slot;
	struct place *places;
	size_t n_places;
};

/* ---- time ---------------------------------------------------------------------------------- */

static void rest(const struct janitor *j, uint64_t ms)
{
	const uint64_t until_ms = clock_ms() + ms;
	for (uint64_t now = clock_ms(); now < until_ms; now = clock_ms()) {
		stats_add(j->slot, STATS_progress, 1);
		(void)poll(NULL, 0, until_ms - now < TICK_MS ? (int)(until_ms - now) : TICK_MS);
	}
	stats_add(j->slot, STATS_progress, 1);
}

/* ---- one consumer -------------------------------------------------------------------------- */

static struct db_value text_value(const char *text)
{
	return (struct db_value){.data = text, .size = strlen(text)};
}

/* A transaction of its own, in one round trip, so that it never stands idle.  *from goes on; empty
 * when nothing old is left.  After a failure the session is of no use. */
static enum rc step(struct db_conn *db, const struct config_consumer *c, char from[64],
	uint64_t *forgotten, struct err *err)
{
	AUTO(free) char *sql = xasprintf("SELECT f.forgotten, f.next_from FROM "
					 "%s.forget_old($1, $2::interval, $3::timestamptz) f",
		db_conn_schema(db));
	AUTO(result) struct db_result *res = NULL;
	char keep[32];
	struct err later;
	(void)snprintf(keep, sizeof keep, "%" PRIu32 " seconds", c->keep_s);
	const struct db_value args[] = {
		text_value(c->identity), text_value(keep), text_value(from)};

	if (db_queue_begin(db, err) != RC_OK || db_queue(db, sql, 3, args, false, err) != RC_OK ||
		db_queue(db, "COMMIT", 0, NULL, false, err) != RC_OK || db_sync(db, err) != RC_OK)
		return err->rc;
	enum rc rc = db_take_begin(db, err);
	if (rc == RC_OK)
		rc = db_next(db, &res, err);
	enum rc end = db_sync_end(db, rc == RC_OK ? err : &later);
	if (rc != RC_OK || end != RC_OK)
		return rc != RC_OK ? rc : end;
	const struct bytes n = db_result_value(res, 0, 0), next = db_result_value(res, 0, 1);
	if (n.data != NULL)
		*forgotten += strtoull((const char *)n.data, NULL, 10);
	(void)snprintf(
		from, 64, "%.*s", (int)next.size, next.data != NULL ? (const char *)next.data : "");
	return RC_OK;
}

static void count(const struct janitor *j, const struct config_consumer *c, uint64_t n)
{
	struct stats_slot *slot = stats_slot_find(j->stats, STATS_CONSUMER, c->name, 0);
	if (slot != NULL)
		stats_add(slot, STATS_forgotten, n);
}

/* Another janitor at work in the schema is left to it: a step that finds one is the last of its
 * sweep. */
static enum rc sweep_consumer(const struct janitor *j, struct db_conn *db,
	const struct config_consumer *c, struct err *err)
{
	const uint64_t begun_ms = clock_ms();
	uint64_t total = 0;
	char from[64] = "-infinity";
	enum rc rc = RC_OK;
	while (rc == RC_OK && from[0] != '\0') {
		const uint64_t step_ms = clock_ms();
		uint64_t forgotten = 0;
		rc = step(db, c, from, &forgotten, err);
		total += forgotten;
		count(j, c, forgotten);
		const uint64_t took_ms = clock_ms() - step_ms;
		if (rc == RC_OK && from[0] != '\0')
			rest(j, took_ms > SHORTEST_PAUSE_MS ? took_ms : SHORTEST_PAUSE_MS);
	}
	if (total != 0)
		log_event(L_INFO, "keys_forgotten", LS("consumer", c->name), LU("keys", total),
			LU("took_ms", clock_ms() - begun_ms));
	return rc;
}

/* ---- one database -------------------------------------------------------------------------- */

static bool is_swept(const struct config_consumer *c, const struct config_database *database)
{
	return c->keep_s != 0 && c->database == database;
}

/* Consumers that share an identity share its keys: the first of them stands for all. */
static bool is_first_of_identity(const struct config *config, size_t i)
{
	const struct config_consumer *c = config->consumers[i];
	for (size_t k = 0; k < i; k++)
		if (config->consumers[k]->database == c->database &&
			strcmp(config->consumers[k]->identity, c->identity) == 0)
			return false;
	return true;
}

static enum rc sweep_all(const struct janitor *j, const struct place *p, struct err *err)
{
	struct db_conn *db = NULL;
	enum rc rc = db_conn_open(p->database, "inboxd janitor", &db, err);
	if (rc == RC_OK)
		rc = db_conn_limit(db, STEP_LIMIT_MS, STEP_LIMIT_MS, err);
	if (rc == RC_OK)
		rc = migrate_check(db, err);
	for (size_t i = 0; rc == RC_OK && i < j->config->n_consumers; i++)
		if (is_swept(j->config->consumers[i], p->database) &&
			is_first_of_identity(j->config, i))
			rc = sweep_consumer(j, db, j->config->consumers[i], err);
	db_conn_close(db);
	return rc;
}

static void sweep(const struct janitor *j, struct place *p)
{
	struct err err;
	if (sweep_all(j, p, &err) == RC_OK) {
		if (p->is_failing)
			log_event(L_INFO, "retention_resumed", LS("database", p->database->name));
		p->is_failing = false;
		backoff_reset(&p->backoff);
		p->next_ms = clock_ms() + jitter(SWEEP_EVERY_MS, 10, random_u32());
		return;
	}
	if (!p->is_failing)
		log_event(L_WARNING, "retention_failed", LS("database", p->database->name),
			LS("error", err.text),
			LS("next", "old keys stay until a later try succeeds"));
	p->is_failing = true;
	p->next_ms = clock_ms() + backoff_next_ms(&p->backoff, random_u32());
}

/* ---- the whole ----------------------------------------------------------------------------- */

static void find_places(struct janitor *j)
{
	const struct config *config = j->config;
	j->places = xcalloc(config->n_databases, sizeof *j->places);
	for (size_t d = 0; d < config->n_databases; d++) {
		bool is_used = false;
		for (size_t i = 0; i < config->n_consumers; i++)
			is_used = is_used || is_swept(config->consumers[i], config->databases[d]);
		if (is_used)
			j->places[j->n_places++] = (struct place){.database = config->databases[d],
				.backoff = {.first_ms = AGAIN_FIRST_MS,
					.cap_ms = AGAIN_CAP_MS,
					.jitter_percent = 20}};
	}
}

/* Whatever is under way is rolled back, or was committed: neither needs us. */
static void leave(int signal_number)
{
	(void)signal_number;
	_exit(EX_OK);
}

bool janitor_is_wanted(const struct config *config)
{
	for (size_t i = 0; i < config->n_consumers; i++)
		if (config->consumers[i]->keep_s != 0)
			return true;
	return false;
}

_Noreturn void janitor_main(
	const struct config *config, struct stats *stats, struct stats_slot *slot)
{
	struct janitor j = {.config = config, .stats = stats, .slot = slot};
	(void)signal(SIGTERM, leave);
	find_places(&j);
	for (;;) {
		uint64_t next_ms = clock_ms() + SWEEP_EVERY_MS;
		for (size_t i = 0; i < j.n_places; i++) {
			struct place *p = &j.places[i];
			if (clock_ms() >= p->next_ms)
				sweep(&j, p);
			next_ms = p->next_ms < next_ms ? p->next_ms : next_ms;
		}
		const uint64_t now = clock_ms();
		rest(&j, next_ms > now ? next_ms - now : 0);
	}
}

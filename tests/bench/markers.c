/* SPDX-License-Identifier: MIT */
/* What a marker costs: claims of random UUIDs on one connection in batches of 100, nothing else in them, by
 * the inbox itself beside two plain tables, on tables that hold some rows already.
 *
 *   markers CONNINFO SECONDS ROWS...
 *
 * For each number of rows and each table a line: claims a second, the CPU time of the server's process and
 * the WAL for each, and what one row takes.  The plain tables are claimed by one INSERT with ON CONFLICT DO NOTHING and no lock, no look at parked messages, no
 * time, no fingerprint: `text` has consumer and key as text, `narrow` a smallint and 16 bytes. */
#include "base/backoff.h"
#include "base/clock.h"
#include "base/fd.h"
#include "db/migrate.h"
#include "inbox/array.h"
#include "inbox/inbox.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BATCH = 100, UUID_SIZE = 16, KEY_SIZE = 1 + UUID_SIZE, TEXT_SIZE = 36 };

#define SCHEMA "bench_markers"

struct bench {
	struct config *config;
	struct db_conn *db;
	struct inbox x;
	uint8_t keys[BATCH][KEY_SIZE];
};

static _Noreturn void give_up(const struct err *err)
{
	(void)fprintf(stderr, "markers: %s\n", err->text);
	exit(1);
}

#define MUST(call)                                                                                   \
	do {                                                                                         \
		struct err err;                                                                      \
		if ((call) != RC_OK)                                                                 \
			give_up(&err);                                                               \
	} while (0)

/* A statement by itself; the number that it says, if any. */
static int64_t ask(struct bench *b, const char *sql)
{
	AUTO(result) struct db_result *res = NULL;
	MUST(db_exec(b->db, sql, 0, NULL, true, &res, &err));
	return db_result_rows(res) != 0 ? db_result_int(res, 0, 0) : 0;
}

/* CPU time of the server's process, where it can be seen. */
static double server_us(int pid)
{
	AUTO(free) char *path = xasprintf("/proc/%d/stat", pid);
	unsigned long user = 0, system = 0;
	FILE *f = fopen(path, "re");
	if (f == NULL)
		return 0;
	/* The name in brackets has no blank, as "postgres" has none. */
	if (fscanf(f, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
		user = system = 0;
	(void)fclose(f);
	return (double)(user + system) * 1e6 / (double)sysconf(_SC_CLK_TCK);
}

static int by_bytes(const void *a, const void *b)
{
	return memcmp(a, b, KEY_SIZE);
}

static void new_keys(struct bench *b)
{
	for (int i = 0; i < BATCH; i++) {
		uint64_t high = random_u64(), low = random_u64();
		b->keys[i][0] = KEY_UUID;
		memcpy(b->keys[i] + 1, &high, sizeof high);
		memcpy(b->keys[i] + 9, &low, sizeof low);
	}
	qsort(b->keys, BATCH, KEY_SIZE, by_bytes);
}

/* ---- the contestants -------------------------------------------------------------------------- */

static void claim_inboxd(struct bench *b)
{
	static const uint8_t fingerprint[1 + FINGERPRINT_HASH_SIZE] = {FINGERPRINT_BODY};
	struct claim claims[BATCH];
	bool gate_failed;
	for (int i = 0; i < BATCH; i++)
		claims[i] = (struct claim){.key = bytes_of(b->keys[i], KEY_SIZE),
			.fingerprint = bytes_of(fingerprint, sizeof fingerprint)};
	MUST(inbox_begin(&b->x, claims, BATCH, &err));
	for (int i = 0; i < BATCH; i++)
		claims[i].is_handled = claims[i].state == CLAIM_NEW;
	MUST(inbox_commit(&b->x, claims, BATCH, NULL, NULL, &gate_failed, &err));
}

static void claim_plain(struct bench *b, const char *sql, const struct buf *keys)
{
	const struct db_value arg = {.data = keys->data, .size = keys->size, .binary = true};
	MUST(db_queue_begin(b->db, &err));
	MUST(db_queue(b->db, sql, 1, &arg, true, &err));
	MUST(db_queue(b->db, "COMMIT", 0, NULL, true, &err));
	MUST(db_sync(b->db, &err));
	MUST(db_take_begin(b->db, &err));
	MUST(db_next(b->db, NULL, &err));
	MUST(db_next(b->db, NULL, &err));
	MUST(db_sync_end(b->db, &err));
}

static void claim_narrow(struct bench *b)
{
	AUTO(buf) struct buf keys = {0};
	array_begin_bytea(&keys, BATCH);
	for (int i = 0; i < BATCH; i++)
		array_add_bytea(&keys, bytes_of(b->keys[i] + 1, UUID_SIZE));
	claim_plain(b,
		"INSERT INTO " SCHEMA ".narrow SELECT 1, k FROM unnest($1::bytea[]) k ON CONFLICT DO "
		"NOTHING RETURNING key",
		&keys);
}

static void claim_text(struct bench *b)
{
	AUTO(buf) struct buf keys = {0};
	array_begin_bytea(&keys, BATCH);
	for (int i = 0; i < BATCH; i++) {
		const uint8_t *k = b->keys[i] + 1;
		char text[TEXT_SIZE + 1];
		(void)snprintf(text, sizeof text,
			"%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
			k[0], k[1], k[2], k[3], k[4], k[5], k[6], k[7], k[8], k[9], k[10], k[11],
			k[12], k[13], k[14], k[15]);
		array_add_bytea(&keys, bytes_of(text, TEXT_SIZE));
	}
	/* Bytes that are text have the same form on the wire. */
	claim_plain(b,
		"INSERT INTO " SCHEMA ".text SELECT 'orders', convert_from(k, 'UTF8') FROM "
		"unnest($1::bytea[]) k ON CONFLICT DO NOTHING RETURNING key",
		&keys);
}

static const struct contestant {
	const char *name, *table;
	void (*claim)(struct bench *b);
	const char *create, *fill;
} contestants[] = {
	{"text", SCHEMA ".text", claim_text,
		"CREATE TABLE " SCHEMA ".text (consumer text, key text, PRIMARY KEY (consumer, key))",
		"INSERT INTO " SCHEMA ".text SELECT 'orders', gen_random_uuid()::text FROM "
		"generate_series(1, %" PRId64 ")"},
	{"narrow", SCHEMA ".narrow", claim_narrow,
		"CREATE TABLE " SCHEMA ".narrow (consumer smallint, key bytea, PRIMARY KEY (consumer, "
		"key))",
		"INSERT INTO " SCHEMA ".narrow SELECT 1, uuid_send(gen_random_uuid()) FROM "
		"generate_series(1, %" PRId64 ")"},
	{"inboxd", SCHEMA ".inbox", claim_inboxd, NULL,
		"INSERT INTO " SCHEMA ".inbox (consumer, key, fingerprint) SELECT 1, '\\x02'::bytea || "
		"uuid_send(gen_random_uuid()), '\\x01'::bytea || uuid_send(gen_random_uuid()) FROM "
		"generate_series(1, %" PRId64 ")"},
};

/* ---- measuring ------------------------------------------------------------------------------ */

static void measure(struct bench *b, const struct contestant *c, int64_t rows, uint64_t seconds)
{
	char sql[200];
	(void)ask(b, "CHECKPOINT");
	for (int i = 0; i < 20; i++) { /* plans are made, pages are read */
		new_keys(b);
		c->claim(b);
	}
	int64_t wal = ask(b, "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint");
	int pid = (int)ask(b, "SELECT pg_backend_pid()");
	double cpu_us = server_us(pid);
	uint64_t begin = clock_us(), until = begin + seconds * 1000000, n = 0;
	while (clock_us() < until) {
		new_keys(b);
		c->claim(b);
		n += BATCH;
	}
	uint64_t took = clock_us() - begin;
	cpu_us = server_us(pid) - cpu_us;
	wal = ask(b, "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint") - wal;
	(void)snprintf(sql, sizeof sql, "SELECT pg_relation_size('%s') / (SELECT count(*) FROM %s)",
		c->table, c->table);
	int64_t row = ask(b, sql);
	(void)snprintf(sql, sizeof sql, "SELECT pg_indexes_size('%s') / (SELECT count(*) FROM %s)",
		c->table, c->table);
	(void)printf("%-8s %9" PRId64 " rows %8.0f/s  %5.1f us  WAL %4.0f  row %3" PRId64 "  indexes %3" PRId64
		     " bytes\n",
		c->name, rows, (double)n * 1e6 / (double)took, cpu_us / (double)n, (double)wal / (double)n, row,
		ask(b, sql));
	(void)fflush(stdout);
}

static void fill(struct bench *b, const struct contestant *c, int64_t more)
{
	char sql[400];
	if (more <= 0)
		return;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	(void)snprintf(sql, sizeof sql, c->fill, more);
#pragma GCC diagnostic pop
	(void)ask(b, sql);
	(void)snprintf(sql, sizeof sql, "VACUUM ANALYZE %s", c->table);
	(void)ask(b, sql);
}

static void begin(struct bench *b, const char *conninfo)
{
	AUTO(buf) struct buf text = {0};
	AUTO(buf) struct buf errors = {0};
	size_t applied;
	const struct migrate_order order = {.schema = SCHEMA};
	buf_addf(&text,
		"database: {conninfo: \"%s options=-cdefault_transaction_read_only=off\", schema: " SCHEMA
		"}\nbroker: {uri: amqp://localhost}\nconsumers: {bench: {queue: q, handler: sql, "
		"options: {statement: SELECT 1}}}\n",
		conninfo);
	b->config = config_parse("bench", buf_bytes(&text), &errors);
	if (b->config == NULL) {
		(void)fprintf(stderr, "%s", buf_str(&errors));
		exit(1);
	}
	const struct config_consumer *consumer = b->config->consumers[0];
	MUST(db_conn_open(consumer->database, "bench", &b->db, &err));
	MUST(migrate_run(b->db, &order, &applied, &err));
	(void)ask(b, "SET default_transaction_read_only = off");
	for (size_t i = 0; i < sizeof contestants / sizeof contestants[0]; i++)
		if (contestants[i].create != NULL)
			(void)ask(b, contestants[i].create);
	inbox_init(&b->x, b->db, consumer);
	MUST(inbox_register(&b->x, "/", &err));
}

int main(int argc, char **argv)
{
	static struct bench b;
	if (argc < 4) {
		(void)fprintf(stderr, "usage: markers CONNINFO SECONDS ROWS...\n");
		return 64;
	}
	begin(&b, argv[1]);
	int64_t rows = 0;
	for (int i = 3; i < argc; i++) {
		int64_t wanted = strtoll(argv[i], NULL, 10);
		for (size_t k = 0; k < sizeof contestants / sizeof contestants[0]; k++) {
			fill(&b, &contestants[k], wanted - rows);
			measure(&b, &contestants[k], wanted, strtoull(argv[2], NULL, 10));
		}
		rows = wanted;
	}
	(void)ask(&b, "SET client_min_messages = warning");
	(void)ask(&b, "DROP SCHEMA " SCHEMA " CASCADE");
	inbox_done(&b.x);
	db_conn_close(b.db);
	config_free(b.config);
	return 0;
}

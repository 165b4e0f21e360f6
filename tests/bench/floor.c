/* SPDX-License-Identifier: MIT */
/* The floor of `make bench`: the least that a program must do to have each effect once, in one process, with
 * nothing that makes it safe to live with - no isolation of the handler, no look at keys and contents, no
 * failures, no statistics.  It ends the program when anything goes wrong.
 *
 *   floor URI QUEUE CONNINFO MODE BATCH COUNT
 *
 * MODE is `ack` (nothing but basic.ack, of every BATCH), `queue` (marker and row in one transaction for up to
 * BATCH messages, rows pipelined) or `wait` (the same, but it waits for each row's statement).  It takes
 * what is there, waits for no more, and ends when COUNT messages are done by all its copies, which it tells
 * from the queue being empty for half a second. */
#include "amqp.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1000, KEY_SIZE = 64, FIELD_SIZE = 64, IDLE_US = 500000 };

struct order {
	uint64_t tag;
	char key[KEY_SIZE];
	char account[FIELD_SIZE], amount[FIELD_SIZE], sent_us[FIELD_SIZE];
};

struct bench_floor {
	amqp_connection_state_t c;
	PGconn *pg;
	bool is_waiting; /* for each statement */
	int batch, n;
	struct order order[MOST];
	const struct order *sorted[MOST];
};

/* ---- messages ------------------------------------------------------------------------- */

/* The bodies are our own: what stands between the quotes behind the name. */
static void field_of(const char *body, size_t size, const char *name, char to[FIELD_SIZE])
{
	const char *at = memmem(body, size, name, strlen(name));
	if (at == NULL)
		give_up("message", "has not the shape that load gives it");
	at += strlen(name) + 3;
	const char *end = memchr(at, '"', size - (size_t)(at - body));
	(void)snprintf(to, FIELD_SIZE, "%.*s", (int)(end - at), at);
}

static void take(struct bench_floor *f, const amqp_envelope_t *e)
{
	struct order *o = &f->order[f->n++];
	const char *body = e->message.body.bytes;
	size_t size = e->message.body.len;
	o->tag = e->delivery_tag;
	(void)snprintf(o->key, KEY_SIZE, "%.*s", (int)e->message.properties.message_id.len,
		(const char *)e->message.properties.message_id.bytes);
	field_of(body, size, "account", o->account);
	field_of(body, size, "amount", o->amount);
	field_of(body, size, "sent_us", o->sent_us);
}

/* Up to a batch of what is there; false if nothing comes for so long. */
static bool fill(struct bench_floor *f, int64_t wait_us)
{
	struct timeval t = {.tv_sec = wait_us / 1000000, .tv_usec = wait_us % 1000000};
	f->n = 0;
	while (f->n < f->batch) {
		amqp_envelope_t e;
		amqp_maybe_release_buffers(f->c);
		amqp_rpc_reply_t reply = amqp_consume_message(f->c, &e, &t, 0);
		if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION &&
			reply.library_error == AMQP_STATUS_TIMEOUT)
			break;
		if (reply.reply_type != AMQP_RESPONSE_NORMAL)
			give_up("consume", amqp_error_string2(reply.library_error));
		take(f, &e);
		amqp_destroy_envelope(&e);
		t = (struct timeval){0};
	}
	return f->n != 0;
}

/* ---- the transaction ------------------------------------------------------------------ */

static PGresult *answer(struct bench_floor *f)
{
	PGresult *res = PQgetResult(f->pg);
	ExecStatusType status = PQresultStatus(res);
	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK && status != PGRES_PIPELINE_SYNC)
		give_up("statement", PQerrorMessage(f->pg));
	if (status != PGRES_PIPELINE_SYNC && PQgetResult(f->pg) != NULL)
		give_up("statement", "has two results");
	return res;
}

static void skip(struct bench_floor *f)
{
	PQclear(answer(f));
}

static void send(struct bench_floor *f, const char *name, int n, const char *const *values)
{
	if (PQsendQueryPrepared(f->pg, name, n, values, NULL, NULL, 0) != 1)
		give_up(name, PQerrorMessage(f->pg));
}

static void sync_now(struct bench_floor *f)
{
	if (PQpipelineSync(f->pg) != 1)
		give_up("sync", PQerrorMessage(f->pg));
}

static int by_key(const void *a, const void *b)
{
	return strcmp((*(const struct order *const *)a)->key, (*(const struct order *const *)b)->key);
}

static size_t write_keys(const struct bench_floor *f, char *to)
{
	char *p = to;
	*p++ = '{';
	for (int i = 0; i < f->n; i++) {
		p = stpcpy(p, f->sorted[i]->key);
		*p++ = i + 1 < f->n ? ',' : '}';
	}
	*p = '\0';
	return (size_t)(p - to);
}

/* Sends BEGIN and the claim, and reads which keys are new, in the order they were sent in. */
static PGresult *claim(struct bench_floor *f)
{
	static char keys[MOST * (KEY_SIZE + 1) + 2];
	for (int i = 0; i < f->n; i++)
		f->sorted[i] = &f->order[i];
	qsort(f->sorted, (size_t)f->n, sizeof f->sorted[0], by_key);
	const char *value = f->n == 1 ? f->order[0].key : keys;
	if (f->n != 1)
		(void)write_keys(f, keys);
	send(f, "begin", 0, NULL);
	send(f, f->n == 1 ? "claim_one" : "claim", 1, &value);
	sync_now(f);
	skip(f);
	PGresult *res = answer(f);
	skip(f);
	return res;
}

static void insert_rows(struct bench_floor *f, const PGresult *claimed)
{
	int n = PQntuples(claimed), at = 0, queued = 0;
	for (int i = 0; i < f->n && at < n; i++) {
		const struct order *o = f->sorted[i];
		if (strcmp(PQgetvalue(claimed, at, 0), o->key) != 0)
			continue;
		const char *values[] = {o->key, o->account, o->amount, o->sent_us};
		send(f, "row", 4, values);
		at++;
		queued++;
		if (f->is_waiting) {
			sync_now(f);
			skip(f);
			skip(f);
			queued = 0;
		}
	}
	if (at != n)
		give_up("claim", "the keys came back in another order");
	send(f, "commit", 0, NULL);
	sync_now(f);
	for (int i = 0; i < queued + 2; i++)
		skip(f);
}

static void work(struct bench_floor *f)
{
	PGresult *claimed = claim(f);
	insert_rows(f, claimed);
	PQclear(claimed);
}

static void connect_database(struct bench_floor *f, const char *conninfo)
{
	static const char *const statements[][2] = {
		{"begin", "BEGIN"},
		{"commit", "COMMIT"},
		{"claim_one", "INSERT INTO bench_marker VALUES (1, $1) ON CONFLICT DO NOTHING RETURNING key"},
		{"claim", "INSERT INTO bench_marker SELECT 1, k FROM unnest($1::text[]) k ON CONFLICT DO "
			  "NOTHING RETURNING key"},
		{"row", "INSERT INTO bench_row (id, account, amount, sent_us) VALUES ($1, $2, $3, $4)"},
	};
	f->pg = PQconnectdb(conninfo);
	if (PQstatus(f->pg) != CONNECTION_OK)
		give_up("database", PQerrorMessage(f->pg));
	for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++)
		PQclear(PQprepare(f->pg, statements[i][0], statements[i][1], 0, NULL));
	if (PQenterPipelineMode(f->pg) != 1)
		give_up("database", "no pipeline mode");
}

/* ---- all of it ------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
	static struct bench_floor f;
	if (argc != 7)
		give_up("usage", "floor URI QUEUE CONNINFO ack|queue|wait BATCH COUNT");
	bool only_acks = strcmp(argv[4], "ack") == 0;
	uint64_t count = strtoull(argv[6], NULL, 10), done = 0;
	f.batch = atoi(argv[5]);
	f.is_waiting = strcmp(argv[4], "wait") == 0;
	if (f.batch < 1 || f.batch > MOST)
		give_up("BATCH", "is from 1 to 1000");
	f.c = bench_connect(argv[1]);
	if (!only_acks)
		connect_database(&f, argv[3]);
	(void)amqp_basic_qos(f.c, 1, 0, 1000, 0);
	bench_expect(f.c, "basic.qos");
	(void)amqp_basic_consume(f.c, 1, amqp_cstring_bytes(argv[2]), amqp_empty_bytes, 0, 0, 0,
		amqp_empty_table);
	bench_expect(f.c, "basic.consume");
	while (done < count && fill(&f, done == 0 ? 20 * IDLE_US : IDLE_US)) {
		if (!only_acks)
			work(&f);
		if (amqp_basic_ack(f.c, 1, f.order[f.n - 1].tag, 1) != AMQP_STATUS_OK)
			give_up("ack", "the connection is lost");
		done += (uint64_t)f.n;
	}
	(void)amqp_connection_close(f.c, AMQP_REPLY_SUCCESS);
	(void)amqp_destroy_connection(f.c);
	PQfinish(f.pg);
	return 0;
}

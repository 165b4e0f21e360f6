/* SPDX-License-Identifier: MIT */
/* Large messages: those within the limit pass, larger ones are parked whole without ever being in
 * memory. */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1024 * 1024)

/* size bytes that no compression makes small and that differ everywhere. */
static char *noise(size_t size)
{
	char *p = malloc(size);
	ck_assert_ptr_nonnull(p);
	uint64_t x = 88172645463325252ULL;
	for (size_t i = 0; i < size; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		p[i] = (char)x;
	}
	return p;
}

static int at_least(int least, int n)
{
	return n > least ? n : least;
}

static void publish_large(struct world *w, const char *id, const char *data, size_t size)
{
	publish(w, w->queue, &(struct msg){.id = id, .body = data, .size = size});
	publish_confirm(w);
}

START_TEST(a_body_of_16_mib_is_handled)
{
	struct world w;
	struct daemon d;
	char *data = noise(16 * MIB);
	world_begin(&w, "large");
	daemon_start_main(&w, &d);
	publish_large(&w, "large", data, 16 * MIB);
	publish_large(&w, "large", data, 16 * MIB);
	publish(&w, w.queue, &(struct msg){.id = "small"});
	publish_confirm(&w);
	WAIT_FOR(effects(&w) == 2 && is_settled(w.queue), 60);
	ck_assert_int_eq(sql_int(&w, "SELECT size FROM effect WHERE key = 'large'"), 16 * MIB);
	ck_assert_int_eq(parked(&w, NULL), 0);
	free(data);
	world_end(&w);
}
END_TEST

START_TEST(a_body_over_the_limit_is_parked_whole_and_never_all_in_memory)
{
	enum { SIZE_MIB = 40, ROOM_KIB = 16 * 1024 };
	struct world w;
	struct daemon d;
	char *data = noise(SIZE_MIB * MIB);
	world_begin(&w, "oversize");
	config_main(&w, "%s", "    max_message_bytes: 1MiB\n");
	daemon_start_main(&w, &d);
	publish(&w, w.queue, &(struct msg){.id = "before"});
	publish_confirm(&w);
	WAIT_FOR(effects(&w) == 1 && is_settled(w.queue), 20);
	pid_t consumer = role_pid(&d, "inboxd: consumer main");
	pid_t worker = role_pid(&d, "inboxd: worker main/1");
	int64_t consumer_before = memory_kib(consumer, true);
	int64_t worker_before = memory_kib(worker, true);

	publish_large(&w, "huge", data, SIZE_MIB * MIB);
	publish(&w, w.queue, &(struct msg){.id = "after"});
	publish_confirm(&w);
	WAIT_FOR(effects(&w) == 2 && is_settled(w.queue), 90);
	ck_assert_int_eq(parked(&w, "too_large"), 1);
	ck_assert_int_eq(parked(&w, NULL), 1);
	ck_assert_int_eq(sql_int(&w, "SELECT body_size FROM parked"), SIZE_MIB * MIB);

	/* Byte for byte the same. */
	const char *stored = sql_text(&w, "SELECT md5(parked_body(id)) FROM parked");
	PGresult *r =
		PQexecParams(w.db, "SELECT md5($1::bytea)", 1, NULL, (const char *const[]){data},
			(const int[]){(int)(SIZE_MIB * MIB)}, (const int[]){1}, 0);
	ck_assert_int_eq(PQresultStatus(r), PGRES_TUPLES_OK);
	ck_assert_str_eq(stored, PQgetvalue(r, 0, 0));
	PQclear(r);

	ck_assert_int_eq(role_pid(&d, "inboxd: consumer main"), consumer);
	ck_assert_int_eq(role_pid(&d, "inboxd: worker main/1"), worker);
	ck_assert_int_lt(memory_kib(consumer, true) - consumer_before, ROOM_KIB);
	ck_assert_int_lt(memory_kib(worker, true) - worker_before, ROOM_KIB);
	free(data);
	world_end(&w);
}
END_TEST

/* Twenty times what is read ahead; the handler waits while this session has the lock. */
START_TEST(a_queue_far_larger_than_prefetch_is_worked_off_within_prefetch_and_memory)
{
	enum { N = 4000, SIZE = 20000, PREFETCH = 400, ROOM_KIB = 16 * 1024, LOCK = 17 };
	struct world w;
	struct daemon d;
	char *data = noise(SIZE);
	world_begin(&w, "backlog");
	config_write(&w, "inboxd", "",
		"  main:\n    queue: %s\n    handler: sql\n    options: {statement: \"INSERT INTO "
		"%s.effect (key, size) SELECT $1::text, octet_length($2::bytea) FROM "
		"pg_advisory_xact_lock_shared(%d)\", parameters: [message_id, body]}\n",
		w.queue, w.name, LOCK);
	daemon_start_main(&w, &d);
	publish_large(&w, "first", data, SIZE);
	all_once(&w, 1);
	int64_t consumer = memory_kib(role_pid(&d, "inboxd: consumer main"), true);
	int64_t worker = memory_kib(role_pid(&d, "inboxd: worker main/1"), true);
	ck_assert_int_eq(daemon_stop(&d), 0);
	for (int i = 0; i < N; i++) {
		char id[16];
		(void)snprintf(id, sizeof id, "m%d", i);
		publish(&w, w.queue, &(struct msg){.id = id, .body = data, .size = SIZE});
	}
	publish_confirm(&w);

	sql(&w, "SELECT pg_advisory_lock(%d)", LOCK);
	daemon_start(&w, "inboxd", &d);
	WAIT_FOR(queue_state(w.queue).unacked == PREFETCH, 20);
	WAIT_FOR(sql_int(&w,
			 "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'inboxd "
			 "main' AND wait_event_type = 'Lock'") == 1,
		20);
	ck_assert_int_eq(queue_state(w.queue).ready, N - PREFETCH);
	sql(&w, "SELECT pg_advisory_unlock(%d)", LOCK);
	int most = 0;
	WAIT_FOR((most = at_least(most, queue_state(w.queue).unacked), effects(&w) == N + 1), 60);
	all_once(&w, N + 1);
	ck_assert_int_gt(most, PREFETCH / 4);
	ck_assert_int_le(most, PREFETCH);
	ck_assert_int_eq(sql_int(&w, "SELECT count(*) FROM effect WHERE size <> %d", SIZE), 0);
	ck_assert_int_lt(
		memory_kib(role_pid(&d, "inboxd: consumer main"), true) - consumer, ROOM_KIB);
	ck_assert_int_lt(
		memory_kib(role_pid(&d, "inboxd: worker main/1"), true) - worker, ROOM_KIB);
	free(data);
	world_end(&w);
}
END_TEST

UNIT_SUITE_TIMEOUT(180, "integration/size", a_body_of_16_mib_is_handled,
	a_queue_far_larger_than_prefetch_is_worked_off_within_prefetch_and_memory,
	a_body_over_the_limit_is_parked_whole_and_never_all_in_memory)

/* SPDX-License-Identifier: MIT */
/* Whether the oracle sees: where PostgreSQL may lose what it has committed, as it may with
 * synchronous_commit = off, a server that is killed under load must make it say so.  The same kill
 * with synchronous_commit = on loses nothing.  Only a build with fault points accepts "off". */
#include "field.h"

#include <stdio.h>
#include <string.h>

enum { MESSAGES = 4000, LEFT = 2500 };

static void configure(struct field *f, const char *synchronous_commit)
{
	char databases[640];
	(void)snprintf(databases, sizeof databases,
		"databases: {test: {conninfo: \"%s\", schema: %s, synchronous_commit: \"%s\"}}\n",
		environment("INBOXD_TEST_CONNINFO"), f->w.name, synchronous_commit);
	config_write(&f->w, "inboxd", databases,
		"  main:\n    queue: %s\n    handler: effect\n    options: {table: %s.effect}\n"
		"    workers: 2\n",
		f->w.queue, f->w.name);
}

static int left(struct field *f)
{
	struct queue_state s = queue_state(f->w.queue);
	return s.ready + s.unacked;
}

/* Kills the database when so much is acknowledged, and lets the rest be done. */
static struct judgement kill_database_under_load(const char *name, const char *synchronous_commit)
{
	struct field f;
	memset(&f, 0, sizeof f);
	world_begin(&f.w, name);
	configure(&f, synchronous_commit);
	/* What is not waited for stays in memory longer. */
	postgres_set("wal_writer_delay", "10s");
	for (int i = 0; i < MESSAGES; i++) {
		char id[32];
		(void)snprintf(id, sizeof id, "c%d", i);
		field_publish(&f, id, id, NULL, ORACLE_EFFECT);
	}
	publish_confirm(&f.w);
	daemon_start(&f.w, "inboxd", &f.d[0]);
	WAIT_FOR(left(&f) < LEFT, 60);
	ck_assert_int_gt(left(&f), 0);
	postgres_stop(&f.w, "kill");
	postgres_start(&f.w);
	WAIT_FOR(oracle_is_quiet(&f.w), 60);
	struct judgement j = oracle_judge(&f.oracle, &f.w);
	(void)printf("faults: database killed, synchronous_commit %-3s: published %zu, effects "
		     "%zu, lost "
		     "%zu, doubled %zu\n",
		synchronous_commit, j.published, j.effects, j.lost, j.doubled);
	(void)fflush(stdout);
	world_end(&f.w);
	oracle_done(&f.oracle);
	return j;
}

START_TEST(a_database_that_loses_commits_is_seen_to_lose_messages)
{
	struct judgement j = kill_database_under_load("control", "off");
	ck_assert_uint_gt(j.lost, 0);
	ck_assert_ptr_nonnull(strstr(j.text, "lost: key c"));
}
END_TEST

START_TEST(a_database_that_keeps_commits_is_killed_and_nothing_is_lost)
{
	struct judgement j = kill_database_under_load("kept", "on");
	ck_assert_uint_eq(j.lost, 0);
	ck_assert_uint_eq(j.doubled, 0);
	ck_assert_uint_eq(j.effects, MESSAGES);
}
END_TEST

/* And what else it must see, told of things that never happened. */
START_TEST(the_oracle_sees_what_is_doubled_misplaced_or_never_published)
{
	struct field f;
	memset(&f, 0, sizeof f);
	world_begin(&f.w, "oracle");
	oracle_tell(&f.oracle, "one", "one", ORACLE_EFFECT);
	oracle_tell(&f.oracle, "two", "two", ORACLE_REJECTED);
	oracle_tell(&f.oracle, "pair", "left", ORACLE_EITHER);
	oracle_tell(&f.oracle, "pair", "right", ORACLE_EITHER);
	sql(&f.w,
		"INSERT INTO effect (key, body) VALUES ('one', 'one'), ('one', 'one'), ('two', "
		"'two'), ('pair', 'left'), ('pair', 'right'), ('who', 'who')");
	struct judgement j = oracle_judge(&f.oracle, &f.w);
	ck_assert_uint_eq(j.lost, 0);
	ck_assert_uint_eq(j.doubled, 2);
	ck_assert_uint_eq(j.misplaced, 2);
	publish(&f.w, f.w.queue, &(struct msg){.id = "one", .body = "one"});
	publish_confirm(&f.w);
	ck_assert_str_eq(oracle_look(&f.oracle, &f.w), "");
	sql(&f.w, "DELETE FROM effect");
	ck_assert_str_ne(oracle_look(&f.oracle, &f.w), "");
	world_end(&f.w);
	oracle_done(&f.oracle);
}
END_TEST

UNIT_SUITE_TIMEOUT(300, "faults/control",
	the_oracle_sees_what_is_doubled_misplaced_or_never_published,
	a_database_that_keeps_commits_is_killed_and_nothing_is_lost,
	a_database_that_loses_commits_is_seen_to_lose_messages)

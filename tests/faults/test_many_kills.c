/* SPDX-License-Identifier: MIT */
/* Marker and effect are one transaction: 300 messages, each sent twice, and 200 times a process of
 * the daemon is killed while something is in hand (INBOXD_FAULT_KILLS). */
#include "chance.h"
#include "field.h"

#include <stdio.h>

enum { KILLS = 200, KEYS_TO_KILLS_PERCENT = 150, COPIES = 10 };

static enum fault_action some_victim(struct chance *c)
{
	unsigned n = chance_below(c, 10);
	return n < 6 ? KILL_WORKER : n < 8 ? KILL_CONSUMER : KILL_SUPERVISOR;
}

/* The share of the copies whose time has come: first each once, then each again. */
static void publish_up_to(struct field *f, int keys, int *sent, int wanted)
{
	for (; *sent < wanted && *sent < 2 * keys; ++*sent) {
		char id[32];
		(void)snprintf(id, sizeof id, "k%d", *sent % keys);
		field_publish(f, id, id, NULL, ORACLE_EFFECT);
	}
	publish_confirm(&f->w);
}

/* Only what was in hand when its process died comes again.  With nothing left, copies of what was sent;
 * as many as are seldom all done before we look. */
static bool is_in_flight(struct field *f)
{
	field_revive(f);
	struct queue_state q = queue_state(f->w.queue);
	if (q.ready == 0 && q.unacked == 0) {
		for (int i = 0; i < COPIES; i++)
			field_publish(f, "k0", "k0", NULL, ORACLE_EFFECT);
		publish_confirm(&f->w);
	}
	return queue_state(f->w.queue).unacked > 0;
}

START_TEST(hundreds_of_kills_leave_one_effect_and_one_marker_of_each_message_sent_twice)
{
	struct field f;
	struct chance c = chance_begin();
	int kills = chance_setting("INBOXD_FAULT_KILLS", KILLS), sent = 0, done = 0, tried = 0;
	int keys = kills * KEYS_TO_KILLS_PERCENT / 100;
	field_begin(&f, "kills", 1, "    workers: 2\n    batch: {max: 5}\n");
	while (done < kills) {
		publish_up_to(&f, keys, &sent, 2 * keys * (done + 1) / kills);
		WAIT_FOR(is_in_flight(&f), 60);
		sleep_ms((int)chance_below(&c, 50));
		done += field_act(&f, &f.d[0], some_victim(&c)) > 0;
		tried++;
		field_revive(&f);
	}
	WAIT_FOR(oracle_is_quiet(&f.w), 120);
	(void)printf("faults: %d kills (%d came too late), seed %llu: %d keys sent twice, %lld "
		     "effects, %lld "
		     "markers\n",
		done, tried - done, (unsigned long long)c.seed, keys, (long long)effects(&f.w),
		(long long)markers(&f.w));
	(void)fflush(stdout);
	ck_assert_int_eq(markers(&f.w), keys);
	ck_assert_int_eq(effects(&f.w), keys);
	oracle_expect_clean(&f.oracle, &f.w);
	field_end(&f);
}
END_TEST

UNIT_SUITE_TIMEOUT(1800, "faults/kills",
	hundreds_of_kills_leave_one_effect_and_one_marker_of_each_message_sent_twice)

/* SPDX-License-Identifier: MIT */
/* A server that is away for half a minute (INBOXD_FAULT_AWAY_SECONDS) while 500 messages come every
 * second: nobody is blamed, and work goes on soon after it is back. */
#include "chance.h"
#include "field.h"

#include <stdio.h>

enum { AWAY_S = 30, PER_SECOND = 500, PACE_MS = 20, RESUMED_S = 10 };

/* Publishes at that rate for a while; n counts. */
static void publish_for(struct world *w, int seconds, int *n)
{
	int64_t begun = now_ms();
	for (int64_t passed = 0; passed < seconds * 1000; passed = now_ms() - begun) {
		for (int sent = 0; sent < PER_SECOND * PACE_MS / 1000; sent++) {
			char id[32];
			(void)snprintf(id, sizeof id, "a%d", ++*n);
			publish(w, w->queue, &(struct msg){.id = id, .body = id});
		}
		publish_confirm(w);
		sleep_ms(PACE_MS - 5);
	}
}

static void expect_all_done(struct field *f, int n, const char *what, int64_t resumed_ms)
{
	WAIT_FOR(effect_keys(&f->w) == n && oracle_is_quiet(&f->w), 240);
	ck_assert_int_eq(effects(&f->w), n);
	ck_assert_int_eq(markers(&f->w), n);
	ck_assert_int_eq(parked(&f->w, NULL), 0);
	/* Nor in between: what is only kept as the broker gave it out again is no such line. */
	ck_assert_int_eq(log_lines(&f->d[0], "event=parked"), 0);
	(void)printf(
		"faults: %s away, %d messages: each one effect, nothing parked, no attempt used, "
		"resumed after %lld ms\n",
		what, n, (long long)resumed_ms);
	(void)fflush(stdout);
}

START_TEST(a_database_that_is_away_costs_no_attempt_and_parks_nothing)
{
	struct field f;
	int n = 0;
	field_begin(&f, "dbaway", 1, "    workers: 2\n");
	publish_for(&f.w, 2, &n);
	postgres_stop(&f.w, "fast");
	publish_for(&f.w, chance_setting("INBOXD_FAULT_AWAY_SECONDS", AWAY_S), &n);
	postgres_start(&f.w);
	int64_t back = now_ms(), done = effects(&f.w);
	WAIT_FOR(effects(&f.w) > done, RESUMED_S);
	expect_all_done(&f, n, "PostgreSQL", now_ms() - back);
	field_end(&f);
}
END_TEST

START_TEST(a_broker_that_is_away_costs_no_attempt_and_parks_nothing)
{
	struct field f;
	int n = 0;
	field_begin(&f, "mqaway", 1, "    workers: 2\n");
	publish_for(&f.w, 3, &n);
	broker_stop(&f.w, false);
	sleep_ms(1000 * chance_setting("INBOXD_FAULT_AWAY_SECONDS", AWAY_S));
	broker_start(&f.w);
	int64_t back = now_ms();
	WAIT_FOR(queue_state(f.w.queue).consumers == 1, RESUMED_S);
	int64_t resumed = now_ms() - back;
	publish_for(&f.w, 3, &n);
	expect_all_done(&f, n, "RabbitMQ", resumed);
	field_end(&f);
}
END_TEST

UNIT_SUITE_TIMEOUT(900, "faults/away", a_database_that_is_away_costs_no_attempt_and_parks_nothing,
	a_broker_that_is_away_costs_no_attempt_and_parks_nothing)

/* SPDX-License-Identifier: MIT */
/* Two daemons on one queue, a publisher that repeats itself, and everything that can go wrong, in
 * an order that a seed decides: INBOXD_FAULT_SEED, INBOXD_FAULT_SECONDS. */
#include "chance.h"
#include "field.h"
#include "points.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { SECONDS = 180, OUTAGE_EVERY_MS = 15000, CALM_S = 120, REPEATED = 200 };

struct storm {
	struct field f;
	struct chance c;
	int64_t outage_at_ms; /* not before */
	int faults, stood, outages, copies;
	unsigned sent;
};

static struct daemon *some_daemon(struct storm *s)
{
	return &s->f.d[chance_below(&s->c, FIELD_DAEMONS)];
}

static struct proxy *some_proxy(struct storm *s)
{
	return chance_percent(&s->c, 50) ? s->f.broker : s->f.database;
}

static enum fault_action some_action(struct storm *s)
{
	return (enum fault_action)chance_below(&s->c, FAULT_ACTIONS);
}

/* ---- what goes wrong ------------------------------------------------------------- */

static void anywhere(struct storm *s)
{
	(void)field_act(&s->f, some_daemon(s), some_action(s));
}

static void at_a_point(struct storm *s)
{
	struct standing *standing = &s->f.standing;
	standing_arm(standing, fault_points[chance_below(&s->c, (unsigned)n_fault_points)].point);
	field_publish_mix(&s->f);
	if (standing_wait(standing, 0.7)) {
		s->stood++;
		(void)field_act(&s->f, field_daemon_of(&s->f, standing->pid), some_action(s));
	}
	standing_release(standing);
}

static void freeze(struct storm *s)
{
	struct proxy *p = some_proxy(s);
	proxy_freeze(p, (enum proxy_way)chance_below(&s->c, 3), chance_below(&s->c, 3000));
	sleep_ms((int)chance_below(&s->c, 1500));
	if (chance_percent(&s->c, 50))
		(void)proxy_reset(p);
	proxy_thaw(p);
}

static void delay(struct storm *s)
{
	struct proxy *p = some_proxy(s);
	proxy_delay(p, PROXY_BOTH, (int)chance_below(&s->c, 100));
	sleep_ms((int)chance_below(&s->c, 1000));
	proxy_delay(p, PROXY_BOTH, 0);
}

static void lose_commits(struct storm *s)
{
	proxy_drop_commits(s->f.database, 1 + (int)chance_below(&s->c, 3));
}

/* The broker holds them until the connection goes. */
static void lose_acks(struct storm *s)
{
	proxy_drop_method(s->f.broker, 60, 80, 1 + (int)chance_below(&s->c, 5));
	sleep_ms((int)chance_below(&s->c, 500));
	(void)proxy_cut(s->f.broker);
}

static void suspend(struct storm *s)
{
	static const char *const roles[] = {"inboxd: worker main/1", "inboxd: consumer main"};
	pid_t pid = role_pid(some_daemon(s), roles[chance_below(&s->c, 2)]);
	if (pid <= 0 || kill(pid, SIGSTOP) != 0)
		return;
	sleep_ms((int)chance_below(&s->c, 1000));
	(void)kill(pid, SIGCONT);
}

static void terminate(struct storm *s)
{
	struct daemon *d = some_daemon(s);
	if (!daemon_has_ended(d) && kill(d->pid, SIGTERM) == 0)
		(void)daemon_wait(d, 30);
}

static void restart_database(struct storm *s)
{
	static const char *const ways[] = {"fast", "immediate", "kill"};
	postgres_stop(&s->f.w, ways[chance_below(&s->c, 3)]);
	sleep_ms((int)chance_below(&s->c, 2000));
	postgres_start(&s->f.w);
}

static void restart_broker(struct storm *s)
{
	broker_stop(&s->f.w, chance_percent(&s->c, 50));
	sleep_ms((int)chance_below(&s->c, 2000));
	broker_start(&s->f.w);
}

static void outage(struct storm *s)
{
	if (now_ms() < s->outage_at_ms)
		return;
	s->outage_at_ms = now_ms() + OUTAGE_EVERY_MS;
	s->outages++;
	if (chance_percent(&s->c, 60))
		restart_database(s);
	else
		restart_broker(s);
}

static void (*const faults[])(struct storm *) = {anywhere, anywhere, anywhere, at_a_point,
	at_a_point, at_a_point, freeze, delay, lose_commits, lose_acks, suspend, terminate, outage,
	outage};

/* ---- the publisher --------------------------------------------------------------- */

static void publish_some(struct storm *s)
{
	unsigned n = chance_below(&s->c, 30);
	for (unsigned i = 0; i < n; i++) {
		char id[32];
		bool again = s->sent > 0 && chance_percent(&s->c, 25);
		unsigned back =
			1 + chance_below(&s->c, s->sent < REPEATED ? s->sent + 1 : REPEATED);
		unsigned number = again && back <= s->sent ? s->sent - back : s->sent++;
		s->copies += again;
		(void)snprintf(id, sizeof id, "r%u", number);
		field_publish(&s->f, id, id, NULL, ORACLE_EFFECT);
	}
	if (chance_percent(&s->c, 30))
		field_publish_mix(&s->f);
	publish_confirm(&s->f.w);
}

/* ---- the run --------------------------------------------------------------------- */

static void calm_down(struct storm *s)
{
	struct field *f = &s->f;
	proxy_drop_commits(f->database, 0);
	proxy_drop_method(f->broker, 60, 80, 0);
	(void)proxy_cut(f->broker);
	field_revive(f);
	int64_t begun = now_ms();
	while (!oracle_is_quiet(&f->w)) {
		ck_assert_msg(now_ms() - begun < (int64_t)(CALM_S * 1000 * wait_factor()),
			"seed %llu: %d ready, %d unacked, %lld waiting",
			(unsigned long long)s->c.seed, queue_state(f->w.queue).ready,
			queue_state(f->w.queue).unacked,
			(long long)sql_int(
				&f->w, "SELECT count(*) FROM parked WHERE state = 'waiting'"));
		if (now_ms() - begun > 5000)
			field_let_time_pass(f);
		sleep_ms(50);
	}
}

START_TEST(two_daemons_in_a_storm_of_every_fault_lose_nothing_and_double_nothing)
{
	struct storm s = {.c = chance_begin()};
	int seconds = chance_setting("INBOXD_FAULT_SECONDS", SECONDS);
	(void)printf("random run of %d s, INBOXD_FAULT_SEED=%llu\n", seconds,
		(unsigned long long)s.c.seed);
	(void)fflush(stdout);
	field_begin(&s.f, "storm", 2, "    workers: 2\n    batch: {max: 20}\n");
	s.f.oracle.keyless_may_repeat = true;
	int64_t until = now_ms() + seconds * 1000;
	while (now_ms() < until) {
		publish_some(&s);
		faults[chance_below(&s.c, sizeof faults / sizeof faults[0])](&s);
		s.faults++;
		field_revive(&s.f);
		sleep_ms((int)chance_below(&s.c, 200));
	}
	calm_down(&s);
	oracle_fetch_dead(&s.f.oracle, &s.f.w, s.f.dead);
	struct judgement j = oracle_judge(&s.f.oracle, &s.f.w);
	(void)printf(
		"faults: random, seed %llu: %d faults (%d at points, %d restarts of servers); "
		"published %zu (+%zu copies), effects %zu, parked %zu, lost %zu, doubled %zu\n",
		(unsigned long long)s.c.seed, s.faults, s.stood, s.outages, j.published,
		j.duplicates, j.effects, j.parked, j.lost, j.doubled);
	(void)fflush(stdout);
	ck_assert_int_gt(s.stood, 0);
	oracle_expect_clean(&s.f.oracle, &s.f.w);
	field_end(&s.f);
}
END_TEST

UNIT_SUITE_TIMEOUT(1800, "faults/random",
	two_daemons_in_a_storm_of_every_fault_lose_nothing_and_double_nothing)

/* SPDX-License-Identifier: MIT */
/* The grid: a process stands at each point of a message's way, and then it, or another, or what it
 * talks to goes away.  In the end each message is where it belongs, once. */
#include "field.h"
#include "points.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HIT_S = 20, ACT_S = 5, QUIET_S = 60, PATIENCE_MS = 1000 };

/* Somebody stands at the point; the ways to it are gone. */
static struct daemon *come_to(struct field *f, const struct fault_at *at)
{
	struct standing *s = &f->standing;
	standing_arm(s, at->via != NULL ? at->via : at->point);
	field_publish_mix(f);
	ck_assert_msg(standing_wait(s, HIT_S), "nobody comes to %s",
		at->via != NULL ? at->via : at->point);
	struct daemon *d = field_daemon_of(f, s->pid);
	if (at->via == NULL)
		return d;
	standing_arm(s, at->point);
	ck_assert_int_ge(field_act(f, d, at->by), 1);
	standing_let_go(s);
	ck_assert_msg(standing_wait(s, HIT_S), "nobody comes to %s by %s at %s", at->point,
		fault_action_names[at->by], at->via);
	return field_daemon_of(f, s->pid);
}

static void wait_until_quiet(struct field *f, const char *point, enum fault_action action)
{
	int64_t begun = now_ms();
	while (!oracle_is_quiet(&f->w)) {
		int64_t waited = now_ms() - begun;
		ck_assert_msg(waited < (int64_t)(QUIET_S * 1000 * wait_factor()),
			"%s at %s: %d ready, %d unacked", fault_action_names[action], point,
			queue_state(f->w.queue).ready, queue_state(f->w.queue).unacked);
		if (waited > PATIENCE_MS)
			field_let_time_pass(f);
		sleep_ms(20);
	}
}

/* There may be no connection at this moment: another process is about to make one.  Unless it is the supervisor
 * that stands, without whom nobody might, or a consumer that has said goodbye to the broker. */
static bool act(
	struct field *f, struct daemon *d, const struct fault_at *at, enum fault_action action)
{
	int64_t until = now_ms() + (int64_t)(ACT_S * 1000 * wait_factor());
	while (field_act(f, d, action) < 1) {
		if (now_ms() > until)
			return strchr(f->standing.process, ':') == NULL /* its path */ ||
				strcmp(at->point, "given-back") == 0;
		sleep_ms(20);
	}
	return true;
}

static void run_cell(struct field *f, const struct fault_at *at, enum fault_action action)
{
	struct standing *s = &f->standing;
	struct daemon *d = come_to(f, at);
	/* Not only in the end: also now nothing has left the broker that is not committed. */
	const char *missing = oracle_look(&f->oracle, &f->w);
	ck_assert_msg(missing[0] == '\0', "%s at %s: %s", s->process, at->point, missing);
	ck_assert_msg(act(f, d, at, action), "nothing to %s while %s stands at %s",
		fault_action_names[action], s->process, at->point);
	standing_release(s);
	if (at->by == TERMINATE)
		(void)daemon_wait(d, 30);
	field_revive(f);
	wait_until_quiet(f, at->point, action);
	struct judgement j = oracle_judge(&f->oracle, &f->w);
	ck_assert_msg(j.lost == 0 && j.doubled == 0 && j.misplaced == 0,
		"%s at %s: %zu lost, %zu doubled, %zu misplaced%s", fault_action_names[action],
		at->point, j.lost, j.doubled, j.misplaced, j.text);
	/* A process that dies often is started again ever later, which is not what is tested here.
	 */
	if (action == KILL_CONSUMER)
		field_renew(f, d);
}

/* One point in so many, for a short run. */
static size_t stride(void)
{
	const char *v = getenv("INBOXD_FAULT_STRIDE");
	int n = v != NULL ? atoi(v) : 1;
	return n > 1 ? (size_t)n : 1;
}

static void run_row(enum fault_action action)
{
	struct field f;
	char name[32];
	size_t cells = 0;
	(void)snprintf(name, sizeof name, "grid%d", (int)action);
	field_begin(&f, name, 1, "    workers: 2\n    batch: {max: 3}\n");
	const char *only = getenv("INBOXD_FAULT_POINT");
	for (size_t i = (size_t)action % stride(); i < n_fault_points; i += stride()) {
		int64_t begun = now_ms();
		if (only != NULL && strstr(fault_points[i].point, only) == NULL)
			continue;
		cells++;
		run_cell(&f, &fault_points[i], action);
		if (getenv("INBOXD_FAULT_TIMES") != NULL)
			(void)fprintf(stderr, "%5lld ms  %s at %s\n", (long long)(now_ms() - begun),
				fault_action_names[action], fault_points[i].point);
	}
	oracle_fetch_dead(&f.oracle, &f.w, f.dead);
	oracle_expect_clean(&f.oracle, &f.w);
	struct judgement j = oracle_judge(&f.oracle, &f.w);
	(void)printf("faults: %-16s %3zu points, all green; published %zu (+%zu copies), effects "
		     "%zu, parked %zu, lost %zu, doubled %zu\n",
		fault_action_names[action], cells, j.published, j.duplicates, j.effects, j.parked,
		j.lost, j.doubled);
	(void)fflush(stdout);
	field_end(&f);
}

#define ROW(name_, action_)         \
	START_TEST(name_)           \
	{                           \
		run_row((action_)); \
	}                           \
	END_TEST

ROW(a_worker_killed_at_any_point_loses_nothing_and_doubles_nothing, KILL_WORKER)
ROW(a_consumer_killed_at_any_point_loses_nothing_and_doubles_nothing, KILL_CONSUMER)
ROW(a_supervisor_killed_at_any_point_loses_nothing_and_doubles_nothing, KILL_SUPERVISOR)
ROW(a_database_cut_off_at_any_point_loses_nothing_and_doubles_nothing, CUT_DATABASE)
ROW(a_database_reset_at_any_point_loses_nothing_and_doubles_nothing, RESET_DATABASE)
ROW(a_broker_cut_off_at_any_point_loses_nothing_and_doubles_nothing, CUT_BROKER)
ROW(a_broker_reset_at_any_point_loses_nothing_and_doubles_nothing, RESET_BROKER)

/* Two suites, so that they can run side by side. */
__attribute__((constructor)) static void register_suites(void)
{
	const TTest *const kills[] = {
		a_worker_killed_at_any_point_loses_nothing_and_doubles_nothing,
		a_consumer_killed_at_any_point_loses_nothing_and_doubles_nothing,
		a_supervisor_killed_at_any_point_loses_nothing_and_doubles_nothing};
	const TTest *const cuts[] = {
		a_database_cut_off_at_any_point_loses_nothing_and_doubles_nothing,
		a_database_reset_at_any_point_loses_nothing_and_doubles_nothing,
		a_broker_cut_off_at_any_point_loses_nothing_and_doubles_nothing,
		a_broker_reset_at_any_point_loses_nothing_and_doubles_nothing};
	unit_register("faults/grid/kill", kills, sizeof kills / sizeof kills[0], 900);
	unit_register("faults/grid/cut", cuts, sizeof cuts / sizeof cuts[0], 900);
}

/* SPDX-License-Identifier: MIT */
#include "field.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LARGE = 40000 };

const char *const fault_action_names[] = {
	[KILL_WORKER] = "kill worker",
	[KILL_CONSUMER] = "kill consumer",
	[KILL_SUPERVISOR] = "kill supervisor",
	[CUT_DATABASE] = "cut database",
	[RESET_DATABASE] = "reset database",
	[CUT_BROKER] = "cut broker",
	[RESET_BROKER] = "reset broker",
	[KILL_STANDING] = "kill who stands",
	[TERMINATE] = "terminate",
};

static uint16_t port_of(const char *variable)
{
	return (uint16_t)atoi(environment(variable));
}

static const char *file_of(const struct field *f, const struct daemon *d)
{
	return d == &f->d[0] ? "inboxd" : "second";
}

/* With retries that are due at once: what is proven here is that none is lost, not when it comes.
 */
static void write_configuration(struct field *f, const char *file, const char *more)
{
	config_write(&f->w, file, "stop_timeout: 5s\n",
		"  main:\n"
		"    queue: %s\n"
		"    handler: effect\n"
		"    options: {table: %s.effect}\n"
		"    dead_letter: {exchange: \"\", routing_key: %s}\n"
		"    max_message_bytes: 16KiB\n"
		"    crash_limit: 1000\n"
		"    retry: {immediate: 100}\n"
		"    breaker: {failures: 1000000}\n"
		"%s",
		f->w.queue, f->w.name, f->dead, more);
}

void field_begin(struct field *f, const char *name, int n_daemons, const char *more)
{
	memset(f, 0, sizeof *f);
	world_begin(&f->w, name);
	(void)snprintf(f->dead, sizeof f->dead, "%s-dead", f->w.name);
	queue_declare(&f->w, f->dead, NULL);
	standing_begin(&f->standing, f->w.dir);
	f->broker = proxy_new(PROXY_AMQP, port_of("INBOXD_TEST_AMQP_PORT"));
	f->database = proxy_new(PROXY_POSTGRES, port_of("INBOXD_TEST_PGPORT"));
	f->w.broker_port = proxy_port(f->broker);
	f->w.database_port = proxy_port(f->database);
	f->n_daemons = n_daemons;
	for (int i = 0; i < n_daemons; i++) {
		write_configuration(f, file_of(f, &f->d[i]), more);
		daemon_start(&f->w, file_of(f, &f->d[i]), &f->d[i]);
	}
	WAIT_FOR(queue_state(f->w.queue).consumers == n_daemons, 30);
}

void field_end(struct field *f)
{
	standing_release(&f->standing);
	world_end(&f->w);
	proxy_free(f->broker);
	proxy_free(f->database);
	standing_end(&f->standing);
	oracle_done(&f->oracle);
}

/* ---- what is done to it ---------------------------------------------------------- */

/* Whoever has the name now: they come again as fast as they go. */
static int kill_role(const struct daemon *d, const char *role)
{
	pid_t pid = role_pid(d, role);
	if (pid <= 0)
		return 0;
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	WAIT_FOR(role_pid(d, role) != pid, 10);
	return 1;
}

static int kill_supervisor(struct daemon *d)
{
	if (daemon_has_ended(d))
		return 0;
	ck_assert_int_eq(kill(d->pid, SIGKILL), 0);
	(void)daemon_wait(d, 10);
	WAIT_FOR(session_size(d) == 0, 10);
	return 1;
}

static int kill_standing(struct field *f)
{
	pid_t pid = f->standing.pid;
	struct daemon *d = field_daemon_of(f, pid);
	ck_assert_int_ne(pid, d->pid);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	return 1;
}

int field_act(struct field *f, struct daemon *d, enum fault_action action)
{
	switch (action) {
	case KILL_WORKER:
		return kill_role(d, "inboxd: worker main/1") +
			kill_role(d, "inboxd: worker main/2");
	case KILL_CONSUMER:
		return kill_role(d, "inboxd: consumer main");
	case KILL_SUPERVISOR:
		return kill_supervisor(d);
	case CUT_DATABASE:
		return proxy_cut(f->database);
	case RESET_DATABASE:
		return proxy_reset(f->database);
	case CUT_BROKER:
		return proxy_cut(f->broker);
	case RESET_BROKER:
		return proxy_reset(f->broker);
	case KILL_STANDING:
		return kill_standing(f);
	case TERMINATE:
		return kill(d->pid, SIGTERM) == 0;
	}
	return 0;
}

struct daemon *field_daemon_of(struct field *f, pid_t pid)
{
	pid_t session = getsid(pid);
	for (int i = 0; i < f->n_daemons; i++)
		if (f->d[i].pid == session)
			return &f->d[i];
	ck_abort_msg("process %d is of no daemon", (int)pid);
}

static void start(struct field *f, struct daemon *d)
{
	WAIT_FOR(session_size(d) == 0, 10);
	daemon_start(&f->w, file_of(f, d), d);
	/* Before, it would not know a signal. */
	WAIT_FOR(role_pid(d, "inboxd: consumer main") > 0, 20);
}

void field_revive(struct field *f)
{
	for (int i = 0; i < f->n_daemons; i++)
		if (daemon_has_ended(&f->d[i]))
			start(f, &f->d[i]);
}

void field_renew(struct field *f, struct daemon *d)
{
	(void)kill_supervisor(d);
	start(f, d);
}

void field_let_time_pass(struct field *f)
{
	sql(&f->w,
		"UPDATE parked SET next_at = clock_timestamp() WHERE state = 'waiting' AND "
		"next_at > clock_timestamp() + interval '10 s'");
	sql(&f->w,
		"UPDATE outgoing SET next_at = clock_timestamp() WHERE "
		"next_at > clock_timestamp() + interval '10 s'");
}

/* ---- messages -------------------------------------------------------------------- */

void field_publish(
	struct field *f, const char *id, const char *body, const char *act, enum oracle_fate fate)
{
	char key[64];
	(void)snprintf(key, sizeof key, "%s", id != NULL ? id : body);
	publish(&f->w, f->w.queue, &(struct msg){.id = id, .body = body, .act = act});
	oracle_tell(&f->oracle, key, body, fate);
}

static void publish_large(struct field *f, const char *name)
{
	static char body[LARGE];
	int n = snprintf(body, sizeof body, "%s.", name);
	memset(body + n, 'x', sizeof body - (size_t)n);
	publish(&f->w, f->w.queue, &(struct msg){.id = name, .body = body, .size = sizeof body});
	oracle_tell(&f->oracle, name, name, ORACLE_LARGE);
}

void field_publish_mix(struct field *f)
{
	char id[16][32];
	for (int i = 0; i < 16; i++)
		(void)snprintf(id[i], sizeof id[i], "m%u-%d", f->serial, i);
	f->serial++;
	for (int i = 0; i < 3; i++)
		field_publish(f, id[i], id[i], NULL, ORACLE_EFFECT);
	field_publish(f, id[0], id[0], NULL, ORACLE_EFFECT);
	field_publish(f, id[3], id[3], "retry:1", ORACLE_EFFECT);
	field_publish(f, id[4], id[4], "reject", ORACLE_REJECTED);
	field_publish(f, id[5], id[5], NULL, ORACLE_EITHER);
	field_publish(f, id[5], id[6], NULL, ORACLE_EITHER);
	field_publish(f, NULL, id[7], NULL, ORACLE_KEYLESS);
	publish_large(f, id[8]);
	publish_confirm(&f->w);
}

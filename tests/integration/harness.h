/* SPDX-License-Identifier: MIT */
/* What an integration test needs: a world of its own (directory, schema, queue names), the private
 * servers that tests/integration/run.sh has started, a running inboxd, and waiting for conditions
 * with a deadline. Anything unexpected fails the test, which ends its process at once: the daemons
 * die with it, the directory stays, and run.sh prints the ends of its logs. */
#ifndef INBOXD_TESTS_INTEGRATION_HARNESS_H
#define INBOXD_TESTS_INTEGRATION_HARNESS_H

#include "unit.h"

#include <libpq-fe.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "mq/rabbitmq.h"

#define PRINTF(a, b) __attribute__((format(printf, a, b)))

/* ---- world ----------------------------------------------------------------------------------- */

struct world {
	char name[64];  /* unique; schema of the test's tables and beginning of its queues' names */
	char dir[256];  /* absolute; removed by world_end */
	char queue[80]; /* durable and classic; deleted by world_end */
	PGconn *db;     /* as the superuser; search_path is the schema */
	amqp_connection_state_t broker; /* channel 1 with confirms; channel 2 without */
	uint64_t published;             /* on channel 1, to be confirmed */
	/* What the configurations written from here on connect to instead of the servers' own
	 * ports: those of proxies (proxy.h).  0: the servers. */
	uint16_t broker_port, database_port;
	/* The directory of handlers beside the shipped ones; "": that of the tests. */
	char handlers[300];
};

/* A fresh schema NAME, a migrated inbox in it, its table
 * effect(key text, size bigint, body bytea, pid integer, seq bigserial, at timestamptz) without any
 * unique constraint (see tests/handlers/effect.c), and an empty queue. */
void world_begin(struct world *w, const char *name);
/* Must be the last line of a test: stops the daemons, checks that nothing of theirs is left,
 * removes all. */
void world_end(struct world *w);

/* ---- waiting --------------------------------------------------------------------------------- */

int64_t now_ms(void);
void sleep_ms(int ms);

/* Waits until condition holds; after seconds_ it fails the test and names it. */
#define WAIT_FOR(condition, seconds_)                                                          \
	do {                                                                                   \
		int64_t wait_until_ = now_ms() + (int64_t)((seconds_)*1000.0 * wait_factor()); \
		while (!(condition)) {                                                         \
			if (now_ms() > wait_until_) {                                          \
				ck_abort_msg("after %g s still not: %s", (double)(seconds_),   \
					#condition);                                           \
			}                                                                      \
			sleep_ms(20);                                                          \
		}                                                                              \
	} while (0)
/* Deadlines grow with CK_TIMEOUT_MULTIPLIER, for sanitizers and slow machines. */
double wait_factor(void);

/* How many messages a test of many takes: as many as INBOXD_TEST_MESSAGES says. */
int how_many(int usually);

/* Ends a test that cannot be done here, and says so in the output. */
#define SKIP_UNLESS(can_be_done, without_)                           \
	do {                                                         \
		if (is_skipped(__func__, (can_be_done), (without_))) \
			return;                                      \
	} while (0)
bool is_skipped(const char *test, bool can_be_done, const char *without);

/* ---- database -------------------------------------------------------------------------------- */

/* Runs a statement; its first value as text (static, "" if there is none) or number. */
const char *sql_text(struct world *w, const char *fmt, ...) PRINTF(2, 3);
int64_t sql_int(struct world *w, const char *fmt, ...) PRINTF(2, 3);
void sql(struct world *w, const char *fmt, ...) PRINTF(2, 3);

int64_t effects(struct world *w);                    /* rows of effect */
int64_t effect_keys(struct world *w);                /* distinct keys in it */
int64_t markers(struct world *w);                    /* rows of inbox */
int64_t parked(struct world *w, const char *reason); /* rows of parked; NULL: of any reason */

/* Waits until nothing is left to do and n keys have an effect: then each has one effect and one
 * marker, and nothing is parked. */
void all_once(struct world *w, int n);

/* ---- broker ---------------------------------------------------------------------------------- */

struct msg {
	const char *id;   /* message id; NULL: none */
	const char *body; /* NULL: "x" */
	size_t size;      /* of body; 0: its strlen */
	const char *act;  /* header "act": what the handler effect does with it; NULL: none */
	const amqp_basic_properties_t *properties; /* instead of id and act */
};

/* Declares a durable queue with a type (NULL: classic); deletes one. */
void queue_declare(struct world *w, const char *queue, const char *type);
/* The same with an x-delivery-limit. */
void queue_declare_limited(struct world *w, const char *queue, const char *type, int32_t limit);
/* The same with any arguments. */
void queue_declare_with(
	struct world *w, const char *queue, int n_arguments, amqp_table_entry_t *arguments);
amqp_table_entry_t entry_text(const char *name, const char *text);
amqp_table_entry_t entry_int(const char *name, int64_t value);
void queue_delete(struct world *w, const char *queue);
void queue_bind(struct world *w, const char *queue, const char *exchange, const char *routing_key);

/* Publishes to a queue by its name; publish_confirm waits until the broker has taken all. */
void publish(struct world *w, const char *queue, const struct msg *m);
void publish_confirm(struct world *w);
/* n messages with ids PREFIX0… and their number as body, confirmed. */
void publish_many(struct world *w, const char *queue, const char *prefix, int n);
/* Gets everything that is in a queue and gives it back: the next delivery is a redelivery. */
int requeue_messages(struct world *w, const char *queue);
/* Moves what is in one queue to another, every property and byte as it is; not what comes meanwhile. */
int move_messages(struct world *w, const char *from, const char *to);
/* A message whose headers nest 17000 deep, from inside the broker: no client would encode it. */
void publish_nested(const char *queue);

/* The oldest message of a queue, waited for and taken; freed by amqp_destroy_message. */
amqp_message_t message_get(struct world *w, const char *queue);
/* NULL: it has no such header. */
const amqp_field_value_t *message_header(const amqp_message_t *m, const char *name);
/* Fails unless the bytes are this text. */
void is_text(amqp_bytes_t b, const char *text);

struct queue_state {
	int ready, unacked, consumers; /* -1: no such queue */
};
struct queue_state queue_state(const char *queue);

/* Nothing ready and nothing unacknowledged, three looks in a row. */
bool is_settled(const char *queue);

/* The connection of whoever consumes from the queue, as the broker names it; closes it. */
const char *consuming_connection(const char *queue);
void close_consuming_connection(const char *queue);

/* Runs an Erlang expression inside the broker; its value as text (static). */
const char *broker_eval(const char *fmt, ...) PRINTF(1, 2);

/* As if the broker's memory were used up. */
void broker_alarm(bool on);

/* A user of the broker, who may write to exchanges and read queues whose whole names match these
 * patterns, and nothing else; each call replaces what was permitted before. */
void user_make(const char *user, const char *password);
void user_permit(const char *user, const char *write, const char *read);

/* ---- the servers come and go ----------------------------------------------------- */

/* Before each test, of whatever kind, the servers are as they were before the first: what was
 * stopped runs, settings made by postgres_set or for the role inboxd are gone, and so are the
 * broker's alarm, its further users and virtual hosts, and the settings that tests make there
 * (broker_restore).  A test need not put back what only the next one would mind. */

/* "fast" and "immediate" as pg_ctl has them, or "kill": SIGKILL for postmaster and all. */
void postgres_stop(struct world *w, const char *how);
/* Same address, same data; w->db is a new session, with what was SET in it gone. */
void postgres_start(struct world *w);
/* The session of w->db anew: after something has closed it. */
void postgres_reconnect(struct world *w);
/* Changes a setting of the whole server (NULL: back to what it was) and waits until it holds. */
void postgres_set(const char *name, const char *value);
/* Lines of the server's log that hold the text; of everything since the run began. */
int postgres_log_lines(const char *text);

/* A streaming standby of the server, with everything that is committed now; its port. */
int standby_start(void);
/* Makes it a primary: w->db is a session with it from here on. */
void standby_promote(struct world *w);
/* Ends it; w->db is a session with the first server again, which must run. */
void standby_end(struct world *w);

/* Orderly, or by SIGKILL.  Everything published must be confirmed. */
void broker_stop(struct world *w, bool by_kill);
/* Same address; durable queues and persistent messages are there again. */
void broker_start(struct world *w);
/* The connection of w->broker anew. */
void broker_reconnect(struct world *w);

/* ---- inboxd ---------------------------------------------------------------------------------- */

/* Writes DIR/FILE.yaml: broker and database of this world (unless `more` has brokers or databases
 * of its own), handlers' directories and a runtime directory, `more` (top-level lines, may be ""),
 * then `consumers:` with the given text, indented as it stands. */
void config_write(struct world *w, const char *file, const char *more, const char *consumers_fmt,
	...) PRINTF(4, 5);

/* DIR/inboxd.yaml with one consumer, "main": the world's queue, the handler effect; `more` are
 * further lines of the consumer, indented by four. */
void config_main(struct world *w, const char *more_fmt, ...) PRINTF(2, 3);

/* The same with any handler, whose session finds the tables of the world by their names; heartbeats
 * every 2 s. */
void config_handler(struct world *w, const char *handler, const char *more);

struct daemon {
	pid_t pid; /* leader of a session of its own: whoever is in it belongs to it */
	int status;
	char log[320];
	char config[320];
};

/* Starts inboxd -c DIR/FILE.yaml; its log is DIR/FILE.log, appended to. */
void daemon_start(struct world *w, const char *file, struct daemon *ret);
/* The same with another log: one that is no file reads as empty. */
void daemon_start_logging(struct world *w, const char *file, const char *log, struct daemon *ret);
/* The same with DIR/inboxd.yaml, and waits until it consumes. */
void daemon_start_main(struct world *w, struct daemon *ret);
/* Waits for its end and returns the exit code, or 128 + signal. */
int daemon_wait(struct daemon *d, double seconds);
bool daemon_has_ended(struct daemon *d);
/* SIGTERM, then daemon_wait. */
int daemon_stop(struct daemon *d);
/* Number of lines of the log that hold the text. */
int log_lines(const struct daemon *d, const char *text);
/* Nothing is parked, and nothing was. */
void nobody_was_blamed(struct world *w, const struct daemon *d);

/* First process of the daemon whose name begins so ("inboxd: worker orders/1"); 0: none. */
pid_t role_pid(const struct daemon *d, const char *role);
/* Kills it (SIGKILL) and waits until it is gone. */
void role_kill(const struct daemon *d, const char *role);
/* Processes in the daemon's session, whoever their parent is now. */
int session_size(const struct daemon *d);
/* Resident memory in KiB, most it ever had (is_peak) or now; 0 of a process that is ending. */
int64_t memory_kib(pid_t pid, bool is_peak);
int open_files(pid_t pid);
/* CPU time of all its processes, those that have ended included. */
int64_t cpu_ms(const struct daemon *d);
/* Looks at the daemon for so long and fails the test unless it is quiet: below 10 % of a core, and
 * at a rate of fewer than 15 log lines a minute (of which it may have logged 10 at once). */
void stays_calm(const struct daemon *d, int seconds);

/* Runs a program to its end, output to DIR/FILE; fails the test unless it exits with 0. */
void run_program(struct world *w, const char *file, const char *const argv[]);
/* A script for sh, ended by its first failure, with one argument. */
void run_shell(struct world *w, const char *script, const char *argument);
/* The same for inboxctl -c DIR/CONFIG.yaml …; returns the exit code. */
int inboxctl(struct world *w, const char *config, const char *const arguments[]);
#define ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})
extern char said[65536]; /* by the last call of inboxctl */

/* A whole file as text, as far as there is room. */
void file_read(const char *path, char *ret, size_t size);

/* Makes an empty file. */
void touch(const char *path);

/* Address of something beside the build: "handlers", "tests/handlers", "inboxd". */
const char *built(const char *name);
const char *environment(const char *name); /* must be set */

#endif

/* SPDX-License-Identifier: MIT */
/* The configuration: read once, checked whole, then frozen.  See the table in schema.c for every
 * option's type, range, default, unit, and whether it is a secret. */
#ifndef INBOXD_CONFIG_CONFIG_H
#define INBOXD_CONFIG_CONFIG_H

#include "base/err.h"
#include "base/log.h"
#include "config/options.h"
#include "message/key.h"

#define CONFIG_NAME_MAX 63 /* of consumers, brokers, databases: [A-Za-z0-9_.-]+ */

struct string_list {
	char **items; /* owned */
	size_t n;
};

enum broker_auth { BROKER_AUTH_PLAIN, BROKER_AUTH_EXTERNAL };
enum tls_verify { TLS_VERIFY_FULL, TLS_VERIFY_PEER, TLS_VERIFY_NONE };

/* Where a broker, database or consumer stands in the files; for config_error. */
struct config_origin;

struct config_broker {
	struct config_origin *origin;
	char *name;              /* "default" for the single `broker:` */
	struct string_list uris; /* as written, secrets included; tried in turn */
	enum broker_auth auth;
	char *user;          /* overrides the URI's; NULL: the URI's */
	char *password;      /* secret; NULL: the URI's */
	char *password_file; /* absolute path; read at each connect; NULL: none */
	char *vhost;         /* overrides the URI's; NULL: the URI's */
	uint32_t heartbeat_s;
	uint32_t consumer_timeout_ms; /* the broker's own setting */
	uint32_t connect_timeout_ms;
	struct {
		char *ca; /* absolute paths; NULL: the system's */
		char *cert;
		char *key;
		enum tls_verify verify;
	} tls;
};

struct config_database {
	struct config_origin *origin;
	char *name;
	char *conninfo;           /* secret as far as it holds a password */
	char *password_file;      /* absolute path; read at each connect; NULL: none */
	char *schema;             /* "inboxd" */
	char *synchronous_commit; /* on, remote_apply, remote_write, local */
	bool prepared_statements; /* false behind a pooler in transaction mode */
	uint32_t connect_timeout_ms;
};

struct config_binding {
	char *exchange;
	char *routing_key;
};

struct config_topology {
	bool declare;            /* false: nothing is declared (no `topology:` at all) */
	char *type;              /* classic, quorum */
	bool durable;            /* true */
	struct config_argument { /* x-… arguments; value is text, integer or boolean by its YAML
				    form */
		char *name;
		enum { ARGUMENT_STRING, ARGUMENT_INTEGER, ARGUMENT_BOOL } kind;
		char *string;
		int64_t integer; /* ARGUMENT_BOOL: 0 or 1 */
	} * arguments;
	size_t n_arguments;
	struct config_binding *bindings;
	size_t n_bindings;
};

struct config_consumer {
	struct config_origin *origin;
	char *name;
	char *identity; /* the name that stands in the inbox; default: name */
	char *queue;
	char *handler;                     /* bare name, without .so */
	char *broker_name, *database_name; /* NULL where broker and database are */
	struct config_broker *broker;      /* borrowed; NULL in a worker's own copy */
	struct config_database *database;  /* borrowed; NULL in a consumer process's own copy */
	struct string_list key_sources;    /* what key and fingerprint were made from */
	struct string_list fingerprint_sources;
	struct key_rule key;
	struct fingerprint_rule fingerprint;
	uint32_t workers;
	uint32_t prefetch; /* messages; never 0; default 4 × workers × batch_max, at most 65535 */
	uint64_t prefetch_bytes; /* of bodies held; reading pauses above it */
	uint32_t batch_max;
	uint64_t batch_bytes;
	uint32_t batch_time_ms;
	uint64_t max_message_bytes;
	uint32_t handler_timeout_ms;
	uint32_t retry_immediate;  /* tries without delay before delays[] */
	uint64_t *retry_delays_ms; /* owned */
	size_t n_retry_delays;
	uint32_t retry_jitter_percent;
	struct config_sqlstate {
		char state[6]; /* five characters, or a class of two */
		bool is_reject;
	} * sqlstates; /* owned; what differs from db_error_class */
	size_t n_sqlstates;
	uint32_t crash_limit;
	uint32_t delivery_limit;   /* of the queue */
	uint32_t breaker_failures; /* parked in a row */
	uint32_t breaker_pause_ms;
	uint32_t parked_max;
	uint32_t keep_s; /* how long a key is known at least; 0: for ever */
	struct {
		char *exchange;    /* NULL: nothing is sent */
		char *routing_key; /* NULL: the message's own */
	} dead_letter;
	uint64_t memory_max;    /* of a worker, in bytes */
	uint32_t recycle_after; /* messages; 0: never */
	struct config_topology topology;
	struct options *options; /* the handler's own; never NULL; empty in the copies of all but workers */
	/* Canonical text of everything that the processes of this consumer run by - its own
	 * options, its broker and database, handler directories, log, stop_timeout: a reload
	 * touches the consumer iff these differ.  Holds secrets.  NULL in the copies of the roles.
	 */
	char *print;
};

struct config {
	char *path; /* main file, absolute; for messages */
	struct string_list handler_directories;
	char *runtime_directory; /* /run/inboxd or $RUNTIME_DIRECTORY */
	enum log_level log_level;
	enum log_format log_format;
	uint32_t stop_timeout_ms;
	struct config_broker **brokers;
	size_t n_brokers;
	struct config_database **databases;
	size_t n_databases;
	struct config_consumer **consumers; /* sorted by name */
	size_t n_consumers;
	struct string_list env_used; /* names of environment variables that were put in, sorted */
	struct yaml_pool *source;    /* the files as read, for the places of errors */
};

/* Reads path and, if a conf.d stands beside it, its *.yaml files in order of name (maps
 * merge, a scalar set twice is an error).  Never returns half: NULL if there is any error, all of
 * which are in *errors, each as `file:line:col: text`, the line, a caret and a hint. */
struct config *config_load(const char *path, struct buf *errors);

/* The same from a text as config_print(…, secrets shown) wrote it; for the roles. */
struct config *config_parse(const char *name, struct bytes text, struct buf *errors);

void config_free(struct config *c);

/* What to put into a printed configuration. */
enum config_part {
	CONFIG_FOR_PEOPLE,   /* everything, secrets masked as ******** */
	CONFIG_FOR_CONSUMER, /* one consumer with its broker, no database; secrets shown */
	CONFIG_FOR_WORKER,   /* one consumer with its database, no broker; secrets shown */
	CONFIG_FOR_JANITOR,  /* all, but no broker and no handler's options; secrets shown */
	CONFIG_COMPLETE, /* all of it (or one consumer with all that is its own); secrets shown */
};
/* Writes YAML that config_parse reads back.  consumer is NULL for all of them, as for
 * CONFIG_FOR_PEOPLE. Only workers get the handlers' options: they are nobody else's business and may
 * hold secrets. */
void config_print(
	const struct config *c, enum config_part part, const char *consumer, struct buf *out);

const struct config_consumer *config_find_consumer(const struct config *c, const char *name);

/* Reads a secret from a file into *ret (replaced): one trailing newline (LF or CR LF) is dropped.
 * RC_UNAVAILABLE, as the file may be about to be written, if it cannot be read, is empty, holds a
 * NUL or another newline, or is longer than CONFIG_SECRET_MAX. */
#define CONFIG_SECRET_MAX 4096
enum rc config_read_secret(const char *path, struct buf *ret, struct err *err) MUST_CHECK;

/* Adds to errors, in the form of config_load, an error at an option of a consumer's `options:`
 * (path as in options_get; "" is the options themselves). */
void config_option_error(
	const struct config_consumer *c, const char *path, const char *text, struct buf *errors);

/* The same at an option of a broker, database or consumer itself; item: of a list, from 0.  For
 * what only others can tell: config_error(b->origin, "uri", 1, err.text, errors). */
void config_error(const struct config_origin *origin, const char *option, size_t item,
	const char *text, struct buf *errors);

#endif

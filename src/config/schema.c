/* SPDX-License-Identifier: MIT */
/* The table of options, and what can be said from it. */
#include "config/schema.h"

#include "base/fd.h"
#include "base/nearest.h"
#include "config/config.h"
#include "config/scalar.h"

#include <inttypes.h>
#include <strings.h>

#define COUNT_OF(array_) (sizeof(array_) / sizeof((array_)[0]))
#define IN(struct_, field_) .offset = offsetof(struct struct_, field_)
#define IN_N(struct_, field_) .offset_n = offsetof(struct struct_, field_)
#define KIB UINT64_C(1024)
#define MIB (KIB * 1024)
#define GIB (MIB * 1024)
#define SECOND UINT64_C(1000)
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)

static const char *const log_levels[] = {"error", "warning", "info", "debug", NULL};
static const char *const log_formats[] = {"logfmt", "json", "journal", NULL};
static const char *const auths[] = {"plain", "external", NULL};
static const char *const verifies[] = {"full", "peer", "none", NULL};
#ifndef INBOXD_FAULTS
static const char *const commits[] = {"on", "remote_apply", "remote_write", "local", NULL};
#define REFUSED_COMMIT "off"
#else /* what loses messages must be shown to be seen */
static const char *const commits[] = {"on", "remote_apply", "remote_write", "local", "off", NULL};
#define REFUSED_COMMIT NULL
#endif
static const char *const missing[] = {"park", "body", "process", NULL};
static const char *const queue_types[] = {"classic", "quorum", NULL};

enum { NAMES_MAX = 32 }; /* options of one section */

/* Words stand in the order of their enums. */
_Static_assert(L_ERROR == 0 && L_DEBUG == 3, "log_levels");
_Static_assert(LOG_LOGFMT == 0 && LOG_JOURNAL == 2, "log_formats");
_Static_assert(BROKER_AUTH_PLAIN == 0 && BROKER_AUTH_EXTERNAL == 1, "auths");
_Static_assert(TLS_VERIFY_FULL == 0 && TLS_VERIFY_NONE == 2, "verifies");
_Static_assert(ON_MISSING_KEY_PARK == 0 && ON_MISSING_KEY_PROCESS == 2, "missing");

static const struct option top[] = {
	{.name = "broker",
		.type = OPTION_ONE,
		.child = SECTION_BROKER,
		.reload = RELOAD_CONSUMER,
		.help = "the RabbitMQ to take messages from"},
	{.name = "brokers",
		.type = OPTION_MANY,
		.child = SECTION_BROKER,
		.reload = RELOAD_CONSUMER,
		.help = "several, by name"},
	{.name = "database",
		.type = OPTION_ONE,
		.child = SECTION_DATABASE,
		.reload = RELOAD_CONSUMER,
		.help = "the PostgreSQL to work in"},
	{.name = "databases",
		.type = OPTION_MANY,
		.child = SECTION_DATABASE,
		.reload = RELOAD_CONSUMER,
		.help = "several, by name"},
	{.name = "handlers",
		.type = OPTION_SECTION,
		.child = SECTION_HANDLERS,
		.help = "where handlers are found"},
	{.name = "runtime_directory",
		.type = OPTION_DIRECTORY,
		IN(config, runtime_directory),
		.computed = "$RUNTIME_DIRECTORY, else /run/inboxd",
		.reload = RELOAD_RESTART,
		.help = "the only directory that is written"},
	{.name = "log", .type = OPTION_SECTION, .child = SECTION_LOG, .help = "what is logged"},
	{.name = "stop_timeout",
		.type = OPTION_DURATION,
		IN(config, stop_timeout_ms),
		.min = 100,
		.max = HOUR,
		.def = "25s",
		.reload = RELOAD_ALL,
		.help = "how long work in hand may take when the service stops"},
	{.name = "defaults",
		.type = OPTION_ONE,
		.child = SECTION_CONSUMER,
		.reload = RELOAD_CONSUMER,
		.help = "what every consumer has unless it says otherwise"},
	{.name = "consumers",
		.type = OPTION_MANY,
		.child = SECTION_CONSUMER,
		.flags = OPTION_REQUIRED,
		.reload = RELOAD_CONSUMER,
		.help = "the consumers, by name; at least one"},
};

static const struct option handlers[] = {
	{.name = "directory",
		.type = OPTION_PATHS,
		IN(config, handler_directories),
		.min = 1,
		.max = 100,
		.def = INBOXD_HANDLERDIR,
		.reload = RELOAD_ALL,
		.help = "directories that hold handlers, NAME.so"},
};

static const struct option logs[] = {
	{.name = "level",
		.type = OPTION_WORD,
		IN(config, log_level),
		.words = log_levels,
		.def = "info",
		.reload = RELOAD_ALL,
		.help = "the least important lines to write"},
	{.name = "format",
		.type = OPTION_WORD,
		IN(config, log_format),
		.words = log_formats,
		.def = "logfmt",
		.reload = RELOAD_ALL,
		.help = "how lines are written"},
};

static const struct option broker[] = {
	{.name = "uri",
		.type = OPTION_URIS,
		IN(config_broker, uris),
		.min = 1,
		.max = 100,
		.def = "amqp://localhost",
		.help = "where it is; several are tried in turn"},
	{.name = "auth",
		.type = OPTION_WORD,
		IN(config_broker, auth),
		.words = auths,
		.def = "plain",
		.help = "by password, or by the client certificate"},
	{.name = "user",
		.type = OPTION_TEXT,
		IN(config_broker, user),
		.min = 1,
		.max = 255,
		.computed = "the URI's",
		.help = "who we are"},
	{.name = "password",
		.type = OPTION_TEXT,
		IN(config_broker, password),
		.max = 1023,
		.flags = OPTION_SECRET,
		.computed = "the URI's",
		.help = "the password; a password_file is better"},
	{.name = "password_file",
		.type = OPTION_PATH,
		IN(config_broker, password_file),
		.computed = "none",
		.help = "a file with the password; read at each connect"},
	{.name = "vhost",
		.type = OPTION_TEXT,
		IN(config_broker, vhost),
		.max = 255,
		.computed = "the URI's",
		.help = "the virtual host"},
	{.name = "heartbeat",
		.type = OPTION_SECONDS,
		IN(config_broker, heartbeat_s),
		.min = SECOND,
		.max = HOUR,
		.def = "15s",
		.refused = "0",
		.why = "without heartbeats a dead connection is never noticed; write 15s, or 5m "
		       "where "
		       "they disturb",
		.help = "a connection silent for twice as long is given up"},
	{.name = "consumer_timeout",
		.type = OPTION_DURATION,
		IN(config_broker, consumer_timeout_ms),
		.min = MINUTE / 60,
		.max = 30 * DAY,
		.def = "30m",
		.help = "how long the broker waits for an acknowledgement: its own setting"},
	{.name = "connect_timeout",
		.type = OPTION_DURATION,
		IN(config_broker, connect_timeout_ms),
		.min = 100,
		.max = 10 * MINUTE,
		.def = "10s",
		.help = "how long connecting may take"},
	{.name = "tls", .type = OPTION_SECTION, .child = SECTION_TLS, .help = "for amqps:// URIs"},
};

static const struct option tls[] = {
	{.name = "ca",
		.type = OPTION_PATH,
		IN(config_broker, tls.ca),
		.computed = "the system's",
		.help = "authorities to trust, PEM"},
	{.name = "cert",
		.type = OPTION_PATH,
		IN(config_broker, tls.cert),
		.computed = "none",
		.help = "our certificate, PEM"},
	{.name = "key",
		.type = OPTION_PATH,
		IN(config_broker, tls.key),
		.computed = "none",
		.help = "its private key, PEM"},
	{.name = "verify",
		.type = OPTION_WORD,
		IN(config_broker, tls.verify),
		.words = verifies,
		.def = "full",
		.help = "check certificate and host name, the certificate, nothing"},
};

static const struct option database[] = {
	{.name = "conninfo",
		.type = OPTION_CONNINFO,
		IN(config_database, conninfo),
		.def = "\"\"",
		.help = "connection string of libpq; what it leaves out comes from libpq's "
			"defaults"},
	{.name = "password_file",
		.type = OPTION_PATH,
		IN(config_database, password_file),
		.computed = "none",
		.help = "a file with the password; read at each connect"},
	{.name = "schema",
		.type = OPTION_IDENTIFIER,
		IN(config_database, schema),
		.min = 1,
		.max = 63,
		.def = "inboxd",
		.help = "the schema that holds inboxd's tables"},
	{.name = "synchronous_commit",
		.type = OPTION_WORD_TEXT,
		IN(config_database, synchronous_commit),
		.words = commits,
		.def = "on",
		.refused = REFUSED_COMMIT,
		.why = "a message is acknowledged after its commit, and one that PostgreSQL can "
		       "still "
		       "lose would take the message with it",
		.help = "when a commit counts"},
	{.name = "prepared_statements",
		.type = OPTION_BOOL,
		IN(config_database, prepared_statements),
		.def = "true",
		.help = "false behind a pooler in transaction mode"},
	{.name = "connect_timeout",
		.type = OPTION_DURATION,
		IN(config_database, connect_timeout_ms),
		.min = 100,
		.max = 10 * MINUTE,
		.def = "10s",
		.help = "how long connecting may take"},
};

static const struct option consumer[] = {
	{.name = "queue",
		.type = OPTION_TEXT,
		IN(config_consumer, queue),
		.min = 1,
		.max = 255,
		.flags = OPTION_REQUIRED | OPTION_OWN,
		.help = "the queue to take messages from"},
	{.name = "handler",
		.type = OPTION_HANDLER,
		IN(config_consumer, handler),
		.flags = OPTION_REQUIRED,
		.help = "who does the work: a name, sql or orders"},
	{.name = "identity",
		.type = OPTION_NAME,
		IN(config_consumer, identity),
		.flags = OPTION_OWN,
		.computed = "the consumer's name",
		.help = "the name its keys have in the inbox"},
	{.name = "broker",
		.type = OPTION_NAME,
		IN(config_consumer, broker_name),
		.flags = OPTION_OF_BROKER,
		.computed = "the only one, or default",
		.help = "one of brokers"},
	{.name = "database",
		.type = OPTION_NAME,
		IN(config_consumer, database_name),
		.flags = OPTION_OF_DATABASE,
		.computed = "the only one, or default",
		.help = "one of databases"},
	{.name = "key",
		.type = OPTION_SOURCES,
		IN(config_consumer, key_sources),
		.min = 1,
		.max = KEY_SOURCES_MAX,
		.def = "message_id",
		.help = "what makes two deliveries the same message"},
	{.name = "on_missing_key",
		.type = OPTION_WORD,
		IN(config_consumer, key.on_missing),
		.words = missing,
		.def = "park",
		.help = "what to do with a message without key"},
	{.name = "fingerprint",
		.type = OPTION_SOURCES,
		IN(config_consumer, fingerprint_sources),
		.min = 1,
		.max = KEY_SOURCES_MAX,
		.def = "body",
		.help = "what may never change between deliveries of one key"},
	{.name = "workers",
		.type = OPTION_COUNT,
		IN(config_consumer, workers),
		.min = 1,
		.max = 64,
		.def = "1",
		.help = "processes, each with a connection; more than one loses order"},
	{.name = "prefetch",
		.type = OPTION_COUNT,
		IN(config_consumer, prefetch),
		.min = 1,
		.max = 65535,
		.computed = "4 × workers × batch.max",
		.refused = "0",
		.why = "0 would ask the broker for the whole queue at once",
		.help = "messages held at a time"},
	{.name = "prefetch_bytes",
		.type = OPTION_SIZE,
		IN(config_consumer, prefetch_bytes),
		.min = KIB,
		.max = 64 * GIB,
		.def = "256MiB",
		.help = "bytes of messages held at a time; reading pauses above"},
	{.name = "batch",
		.type = OPTION_SECTION,
		.child = SECTION_BATCH,
		.help = "messages that share a transaction"},
	{.name = "max_message_bytes",
		.type = OPTION_SIZE,
		IN(config_consumer, max_message_bytes),
		.min = KIB,
		.max = 512 * MIB,
		.def = "16MiB",
		.help = "a larger message is parked, not handled"},
	{.name = "handler_timeout",
		.type = OPTION_DURATION,
		IN(config_consumer, handler_timeout_ms),
		.min = 10,
		.max = DAY,
		.def = "30s",
		.help = "how long one message may take"},
	{.name = "retry",
		.type = OPTION_SECTION,
		.child = SECTION_RETRY,
		.help = "what happens after a failure that may pass"},
	{.name = "crash_limit",
		.type = OPTION_COUNT,
		IN(config_consumer, crash_limit),
		.min = 1,
		.max = 1000,
		.def = "3",
		.help = "runs that may end with their worker"},
	{.name = "delivery_limit",
		.type = OPTION_COUNT,
		IN(config_consumer, delivery_limit),
		.min = 1,
		.max = DELIVERY_LIMIT_MAX,
		.computed = "topology's x-delivery-limit, or 20",
		.help = "how often the broker gives a message out before it drops it"},
	{.name = "breaker",
		.type = OPTION_SECTION,
		.child = SECTION_BREAKER,
		.help = "when to stop a consumer whose messages all end up parked"},
	{.name = "parked",
		.type = OPTION_SECTION,
		.child = SECTION_PARKED,
		.help = "how much may be parked"},
	{.name = "retention",
		.type = OPTION_SECTION,
		.child = SECTION_RETENTION,
		.help = "how long keys are known"},
	{.name = "dead_letter",
		.type = OPTION_SECTION,
		.child = SECTION_DEAD_LETTER,
		.flags = OPTION_WHOLE,
		.help = "where a message is sent that has failed for good"},
	{.name = "worker",
		.type = OPTION_SECTION,
		.child = SECTION_WORKER,
		.help = "what a worker may take before it is started anew"},
	{.name = "topology",
		.type = OPTION_SECTION,
		.child = SECTION_TOPOLOGY,
		.flags = OPTION_OWN,
		.help = "declare the queue; without it nothing is declared"},
	{.name = "options",
		.type = OPTION_FREE,
		IN(config_consumer, options),
		.flags = OPTION_OF_HANDLER,
		.help = "the handler's own options"},
};

_Static_assert(COUNT_OF(consumer) <= NAMES_MAX, "the largest section");

static const struct option batch[] = {
	{.name = "max",
		.type = OPTION_COUNT,
		IN(config_consumer, batch_max),
		.min = 1,
		.max = 1000,
		.def = "100",
		.help = "messages in one transaction"},
	{.name = "bytes",
		.type = OPTION_SIZE,
		IN(config_consumer, batch_bytes),
		.min = KIB,
		.max = 512 * MIB,
		.def = "4MiB",
		.help = "bytes in one transaction"},
	{.name = "time",
		.type = OPTION_DURATION,
		IN(config_consumer, batch_time_ms),
		.min = 1,
		.max = 10 * MINUTE,
		.def = "100ms",
		.help = "how long a transaction should take"},
};

static const struct option retry[] = {
	{.name = "immediate",
		.type = OPTION_COUNT,
		IN(config_consumer, retry_immediate),
		.max = 100,
		.def = "2",
		.help = "tries without delay"},
	{.name = "delays",
		.type = OPTION_DURATIONS,
		IN(config_consumer, retry_delays_ms),
		IN_N(config_consumer, n_retry_delays),
		.min = 1,
		.max = 30 * DAY,
		.def = "[10s, 1m, 10m]",
		.help = "then one try after each of these"},
	{.name = "jitter",
		.type = OPTION_PERCENT,
		IN(config_consumer, retry_jitter_percent),
		.max = 100,
		.def = "20%",
		.help = "delays are spread by this share"},
	{.name = "sqlstates",
		.type = OPTION_SQLSTATES,
		IN(config_consumer, sqlstates),
		IN_N(config_consumer, n_sqlstates),
		.computed = "none",
		.help = "errors of statements, or classes of them: retry or reject"},
};

static const struct option worker[] = {
	{.name = "memory_max",
		.type = OPTION_SIZE,
		IN(config_consumer, memory_max),
		.min = 32 * MIB,
		.max = 1024 * GIB,
		.def = "512MiB",
		.help = "memory of a worker, beside what messages need"},
	{.name = "recycle_after",
		.type = OPTION_COUNT,
		IN(config_consumer, recycle_after),
		.max = UINT32_MAX,
		.def = "0",
		.help = "messages after which a worker is started anew; 0: never"},
};

static const struct option breaker[] = {
	{.name = "failures",
		.type = OPTION_COUNT,
		IN(config_consumer, breaker_failures),
		.min = 1,
		.max = 1000000,
		.def = "10",
		.help = "messages parked in a row, none done between them"},
	{.name = "pause",
		.type = OPTION_DURATION,
		IN(config_consumer, breaker_pause_ms),
		.min = 100,
		.max = HOUR,
		.def = "30s",
		.help = "then one message is tried each time this has passed"},
};

static const struct option parked[] = {
	{.name = "max",
		.type = OPTION_COUNT,
		IN(config_consumer, parked_max),
		.min = 1,
		.max = 100000000,
		.def = "10000",
		.help = "messages parked, discarded ones apart; then the consumer pauses"},
};

static const struct option retention[] = {
	{.name = "keep",
		.type = OPTION_SECONDS,
		IN(config_consumer, keep_s),
		.min = MINUTE,
		.max = 36500 * DAY,
		.zero = "forever",
		.def = "7d",
		.help = "how long a key is known, at least"},
};

static const struct option dead_letter[] = {
	{.name = "exchange",
		.type = OPTION_TEXT,
		IN(config_consumer, dead_letter.exchange),
		.max = 255,
		.computed = "none, and nothing is sent",
		.help = "the exchange; \"\" is the default exchange, which needs a routing_key"},
	{.name = "routing_key",
		.type = OPTION_TEXT,
		IN(config_consumer, dead_letter.routing_key),
		.max = 255,
		.computed = "the message's own",
		.help = "the routing key"},
};

static const struct option topology[] = {
	{.name = "type",
		.type = OPTION_WORD_TEXT,
		IN(config_consumer, topology.type),
		.words = queue_types,
		.def = "classic",
		.help = "the queue's type"},
	{.name = "durable",
		.type = OPTION_BOOL,
		IN(config_consumer, topology.durable),
		.def = "true",
		.help = "whether it outlives the broker"},
	{.name = "arguments",
		.type = OPTION_ARGUMENTS,
		IN(config_consumer, topology.arguments),
		IN_N(config_consumer, topology.n_arguments),
		.computed = "none",
		.help = "further arguments, x-…: text, integer, true or false by their form"},
	{.name = "bindings",
		.type = OPTION_BINDINGS,
		.child = SECTION_BINDING,
		IN(config_consumer, topology.bindings),
		IN_N(config_consumer, topology.n_bindings),
		.computed = "none",
		.help = "exchanges whose messages the queue gets"},
};

static const struct option binding[] = {
	{.name = "exchange",
		.type = OPTION_TEXT,
		IN(config_binding, exchange),
		.min = 1,
		.max = 255,
		.flags = OPTION_REQUIRED,
		.help = "an exchange that exists"},
	{.name = "routing_key",
		.type = OPTION_TEXT,
		IN(config_binding, routing_key),
		.max = 255,
		.def = "\"\"",
		.help = "the binding's key or pattern"},
};

static const struct section sections[SECTION_COUNT] = {
	[SECTION_TOP] = {"the top level", top, COUNT_OF(top)},
	[SECTION_HANDLERS] = {"handlers", handlers, COUNT_OF(handlers)},
	[SECTION_LOG] = {"log", logs, COUNT_OF(logs)},
	[SECTION_BROKER] = {"broker", broker, COUNT_OF(broker)},
	[SECTION_TLS] = {"tls", tls, COUNT_OF(tls)},
	[SECTION_DATABASE] = {"database", database, COUNT_OF(database)},
	[SECTION_CONSUMER] = {"a consumer", consumer, COUNT_OF(consumer)},
	[SECTION_BATCH] = {"batch", batch, COUNT_OF(batch)},
	[SECTION_RETRY] = {"retry", retry, COUNT_OF(retry)},
	[SECTION_BREAKER] = {"breaker", breaker, COUNT_OF(breaker)},
	[SECTION_PARKED] = {"parked", parked, COUNT_OF(parked)},
	[SECTION_RETENTION] = {"retention", retention, COUNT_OF(retention)},
	[SECTION_DEAD_LETTER] = {"dead_letter", dead_letter, COUNT_OF(dead_letter)},
	[SECTION_WORKER] = {"worker", worker, COUNT_OF(worker)},
	[SECTION_TOPOLOGY] = {"topology", topology, COUNT_OF(topology)},
	[SECTION_BINDING] = {"a binding", binding, COUNT_OF(binding)},
};

const struct section *schema_section(enum section_id id)
{
	return &sections[id];
}

const struct option *schema_find(enum section_id id, const char *name)
{
	for (size_t i = 0; i < sections[id].n; i++)
		if (strcmp(sections[id].options[i].name, name) == 0)
			return &sections[id].options[i];
	return NULL;
}

static void add_words(struct buf *out, const char *const *words)
{
	for (; *words != NULL; words++)
		buf_addf(out, "%s%s", *words,
			words[1] == NULL           ? ""
				: words[2] == NULL ? " or "
						   : ", ");
}

static void add_range(struct buf *out, const struct option *o,
	void (*add)(struct buf *out, uint64_t value), const char *what)
{
	buf_addf(out, "%s from ", what);
	add(out, o->min);
	buf_add_str(out, " to ");
	add(out, o->max);
}

static void add_number(struct buf *out, uint64_t value)
{
	buf_addf(out, "%" PRIu64, value);
}

static void add_percent(struct buf *out, uint64_t value)
{
	buf_addf(out, "%" PRIu64 "%%", value);
}

static void describe_range(const struct option *o, struct buf *out)
{
	if (o->type == OPTION_COUNT)
		add_range(out, o, add_number, "a whole number");
	else if (o->type == OPTION_TEXT)
		buf_addf(out, "a text of %" PRIu64 " to %" PRIu64 " bytes", o->min, o->max);
	else if (o->type == OPTION_PERCENT)
		add_range(out, o, add_percent, "a percentage");
	else if (o->type == OPTION_SIZE)
		add_range(out, o, scalar_add_size, "a size");
	else
		add_range(out, o, scalar_add_duration,
			o->type == OPTION_DURATIONS ? "a list of durations, each" : "a duration");
}

void schema_describe(const struct option *o, struct buf *out)
{
	static const char *const plain[OPTION_TYPE_COUNT] = {
		[OPTION_NAME] = "a name: letters, digits, \"_\", \".\" and \"-\", at most 63",
		[OPTION_HANDLER] = "the bare name of a handler",
		[OPTION_IDENTIFIER] = "an SQL identifier: letters, digits and \"_\", at most 63",
		[OPTION_PATH] = "a path",
		[OPTION_DIRECTORY] = "a path",
		[OPTION_PATHS] = "a path or a list of paths",
		[OPTION_BOOL] = "true or false",
		[OPTION_URIS] = "a URI or a list of URIs",
		[OPTION_CONNINFO] = "a connection string",
		[OPTION_SOURCES] = "a source or a list of sources",
		[OPTION_ARGUMENTS] = "a map of arguments",
		[OPTION_SQLSTATES] = "a map of SQLSTATEs or their classes to retry or reject",
		[OPTION_BINDINGS] = "a list of {exchange, routing_key}",
		[OPTION_FREE] = "a map",
		[OPTION_SECTION] = "a map",
		[OPTION_ONE] = "a map",
		[OPTION_MANY] = "a map of names to maps",
	};
	if (o->words != NULL)
		add_words(out, o->words);
	else if (plain[o->type] != NULL)
		buf_add_str(out, plain[o->type]);
	else
		describe_range(o, out);
	if (o->zero != NULL)
		buf_addf(out, ", or %s", o->zero);
}

const char *schema_nearest(const char *name, const char *const *names, size_t n)
{
	for (size_t i = 0; strlen(name) >= 3 && i < n; i++)
		if (strncasecmp(name, names[i], strlen(name)) == 0)
			return names[i]; /* the beginning of a longer one: "warn" */
	/* With less than three letters everything is near. */
	return strlen(name) >= 3 ? nearest_name(bytes_str(name), names, n) : NULL;
}

/* Where an option of that very name belongs; NULL: nowhere. */
static const char *home_of(const char *name)
{
	for (int id = 0; id < SECTION_COUNT; id++)
		if (schema_find((enum section_id)id, name) != NULL)
			return sections[id].name;
	return NULL;
}

void schema_hint_unknown(enum section_id id, const char *name, struct buf *out)
{
	const struct section *s = &sections[id];
	const size_t n = s->n;
	const char *names[NAMES_MAX] = {0};
	for (size_t i = 0; i < n; i++)
		names[i] = s->options[i].name;
	const char *home = home_of(name), *near = schema_nearest(name, names, n);
	if (strcmp(name, "<<") == 0) {
		buf_add_str(out,
			"maps are not merged by \"<<\"; what consumers share can stand in "
			"\"defaults\"");
	} else if (home != NULL) {
		buf_addf(out, "it belongs to %s", home);
	} else if (near != NULL) {
		buf_addf(out, "did you mean \"%s\"?", near);
	} else {
		buf_addf(out, "known in %s: ", s->name);
		for (size_t i = 0; i < n; i++)
			buf_addf(out, "%s%s", i != 0 ? ", " : "", names[i]);
	}
}

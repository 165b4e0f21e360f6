/* SPDX-License-Identifier: MIT */
/*
 * inboxd/handler.h - what a message handler for inboxd is, and what inboxd lends it.
 *
 * A handler is a shared object, NAME.so, in one of the directories of `handlers.directory`.  It
 * exports one constant, `inboxd_handler`, and links against nothing of inboxd: everything it may
 * call comes as a table of functions.  So it can be tested without servers (inboxd/testkit.h).
 * This is a whole handler:
 *
 *     #include <inboxd/handler.h>
 *
 *     static int32_t handle(const struct inboxd_host *host, struct inboxd_call *call)
 *     {
 *             const struct inboxd_value args[] = {
 *                     host->get(call, "json:/id"), host->get(call, "json:/total")};
 *             return host->exec(call, "INSERT INTO orders VALUES ($1, $2)", 2, args, NULL);
 *     }
 *     INBOXD_HANDLER(.handle = handle)
 *
 *     cc -shared -fPIC -o orders.so orders.c $(pkg-config --cflags inboxd)
 *
 * Who calls what, and when
 *   A handler lives in a worker process: one thread, one open PostgreSQL session, one message (or
 *   batch) at a time.  Several workers are several processes; they share nothing.
 *
 *     check          when a configuration is read (start, reload, `inboxd --check`): are the
 *                    options right?  No database.  Perhaps in another process than what follows.
 *     open           after each connect to the database, outside any transaction
 *     handle         for each new message, inside the transaction that also holds its key
 *     handle_batch   instead of handle where more than one message is at hand, if there is one
 *     close          when the session is given up, after every open, also one that failed; not if
 *                    the process dies first
 *
 * What may repeat
 *   handle may run several times for one message: each time but the last, its transaction was
 *   rolled back.  What it does through exec, queue, copy_... and conn happens once, because it
 *   commits together with the key.  What it does elsewhere - a mail, an HTTP call, a file - may
 *   repeat; give the other side idempotency_key, so that it can tell.
 *
 * What lives how long
 *   Every pointer that inboxd returns lives until the entry returns in which it was returned
 *   (values, rows, options, texts).  What the handler passes in is copied or used up before the
 *   called function returns.  `call` is good in that entry only, and on its thread only.
 *
 * What a result means
 *   DONE commits, RETRY and REJECT roll everything back that handle did; then the message is tried
 *   again later, or put aside for a person.  A crash, an exit, or a run beyond `handler_timeout`
 *   costs the worker process and rolls back as well.  An entry may simply return what exec
 *   returned.  If a statement failed, or was refused, the transaction cannot commit any more: a
 *   handler that returns DONE all the same is taken as if it had returned the statement's own
 *   result.  (One that means to go on after an error sets a SAVEPOINT first and rolls back to it.)
 *
 * The transaction
 *   belongs to inboxd.  exec and queue refuse BEGIN, COMMIT, ROLLBACK and their kin; SAVEPOINT,
 *   RELEASE and ROLLBACK TO are allowed, for savepoints of the same message.  A transaction that
 *   was ended all the same is never committed by inboxd, and its message is put aside at once.
 *   Isolation is READ COMMITTED.  What a handler leaves in the session (SET, temporary tables,
 *   advisory locks) does not reach the next message.
 *
 * Speed
 *   What costs is waiting.  exec waits for its statement: a round trip, in which nothing else of the
 *   batch moves.  queue does not, and its statement shares its trip with all others of the batch.
 *   handle_batch lets many messages share one statement, or one COPY.  Use exec only for what the
 *   handler has to know before it goes on.  `make bench` measures the first two side by side.
 *
 * Text and bytes
 *   A value is bytes; those that inboxd returns are followed by a NUL that is not counted, those
 *   passed in need none.  Parameters of statements travel as text: valid UTF-8 without NUL, in the
 *   form that the type's input takes; bytes for a `bytea` go through the function bytea.  Reasons
 *   and log lines are UTF-8; what is not is replaced.
 *
 * Other languages
 *   Plain C ABI: no variadic functions, no bit fields, integers of fixed width for results and
 *   kinds, structs passed by value are two machine words.  In C++ catch every exception before it
 *   leaves an entry; INBOXD_HANDLER needs C++20 (or fill the struct in the order of its fields).
 *
 * Growth
 *   Both tables begin with ABI major, minor, and their own size.  The major number must match, or
 *   the handler is not loaded.  A minor number only appends, so handlers built against an older
 *   header go on working; one that is to work with an older inboxd asks INBOXD_HAS(host, field)
 *   before it calls what a later minor number brought.
 *
 * ABI
 *   1.0  first version
 */
#ifndef INBOXD_HANDLER_H
#define INBOXD_HANDLER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define INBOXD_ABI_MAJOR 1
#define INBOXD_ABI_MINOR 0

struct inboxd_call; /* one entry's run: a message, or a batch of them */
struct inboxd_rows; /* what a statement returned */
struct pg_conn;     /* PGconn of libpq-fe.h */

/* Bytes.  data == NULL: absent; as a parameter SQL NULL. */
struct inboxd_value {
	const char *data;
	size_t size;
};

/* What an entry returns, and what exec, queue and copy_... return.  An entry that returns anything
 * else is broken: its message is put aside at once. */
enum {
	INBOXD_DONE = 0,   /* commit and acknowledge */
	INBOXD_RETRY = 1,  /* roll back, try again later: the fault lies in the surroundings */
	INBOXD_REJECT = 2, /* roll back, put aside: this message can never succeed */
};

/* Levels of log. */
enum {
	INBOXD_LOG_ERROR = 0,
	INBOXD_LOG_WARNING = 1,
	INBOXD_LOG_INFO = 2,
	INBOXD_LOG_DEBUG = 3,
};

/* Kinds of a header's value (header_kind), by AMQP 0-9-1's field types. */
enum {
	INBOXD_KIND_ABSENT = 0,
	INBOXD_KIND_VOID = 1,
	INBOXD_KIND_BOOL = 2,
	INBOXD_KIND_INTEGER = 3, /* any width, signed or not */
	INBOXD_KIND_FLOAT = 4,   /* float and double */
	INBOXD_KIND_DECIMAL = 5,
	INBOXD_KIND_TIMESTAMP = 6, /* seconds since 1970 */
	INBOXD_KIND_STRING = 7,
	INBOXD_KIND_BYTES = 8,
	INBOXD_KIND_ARRAY = 9,
	INBOXD_KIND_TABLE = 10,
};

/*
 * What inboxd lends.  `call` is the one the entry was given, or one of its batch_item.
 *
 * In check and close only log, the options and the state can be used, in open also exec (to read)
 * and prepare; the rest answers there as if absent, or with INBOXD_REJECT.
 */
struct inboxd_host {
	uint32_t abi_major; /* of the running inboxd */
	uint32_t abi_minor;
	size_t size;

	/* ---- the message ------------------------------------------------------------- */

	/* One scalar by its source, named as in the configuration:
	 *     message_id  header:NAME  json:/pointer  property:NAME  routing_key  body  cloudevents
	 * Text and bytes come as they are, numbers as the literal that was sent (in JSON too),
	 * booleans as true or false, JSON objects and arrays as their JSON text, cloudevents as
	 * source, a NUL, id.  What is missing, and JSON null, is data == NULL.
	 *
	 * What cannot be answered - json: of a body that is not JSON, a header that is a table, a
	 * text that is no source - is data == NULL too, and makes the message fail as by reject,
	 * whatever the entry returns: garbage never becomes NULL in a table by mistake.  is_failed
	 * tells. */
	struct inboxd_value (*get)(struct inboxd_call *call, const char *source);

	/* The whole body, byte for byte; empty if it is empty, never NULL. */
	struct inboxd_value (*body)(struct inboxd_call *call);

	/* Kind of a header (INBOXD_KIND_...). */
	int32_t (*header_kind)(struct inboxd_call *call, const char *name);

	/* Header as an integer: returns 1 and sets *ret if it is an integer that fits, a bool (0
	 * or 1) or a timestamp; else 0. */
	int32_t (*header_int)(struct inboxd_call *call, const char *name, int64_t *ret);

	/* Header as a double: returns 1 and sets *ret if it is an integer, a float or a decimal;
	 * else 0. */
	int32_t (*header_float)(struct inboxd_call *call, const char *name, double *ret);

	/* Name of the i-th header, from 0; data == NULL behind the last. */
	struct inboxd_value (*header_name)(struct inboxd_call *call, uint32_t i);

	/* Numeric properties: "priority", "delivery_mode", "timestamp" (seconds since 1970 by the
	 * publisher's clock).  Returns 1 and sets *ret, or 0 if the message has none. */
	int32_t (*property_int)(struct inboxd_call *call, const char *name, uint64_t *ret);

	/* How often this message was started before: 0 the first time.  A hint: copies that are
	 * sent again start from 0. */
	uint32_t (*attempt)(struct inboxd_call *call);

	/* 1 if the broker says that it gave the message out before.  A hint, too. */
	int32_t (*redelivered)(struct inboxd_call *call);

	/* A key to hand on to other systems (an HTTP header Idempotency-Key, say): printable
	 * ASCII, at most 64 characters, the same in every run for this message, another for each
	 * consumer, message and step.  step may be NULL.  data == NULL if the message has no
	 * key. */
	struct inboxd_value (*idempotency_key)(struct inboxd_call *call, const char *step);

	/* In handle_batch: the number of messages, and the i-th one's own call (NULL behind the
	 * last): what stands above and the verdicts below take that one, and exec and queue
	 * should, so that a failure is laid at the right message's door.  In handle: 1, and the
	 * call itself. */
	uint32_t (*batch_size)(struct inboxd_call *call);
	struct inboxd_call *(*batch_item)(struct inboxd_call *call, uint32_t i);

	/* ---- the database, inside the transaction ------------------------------------ */

	/* Runs one statement with parameters $1...$n, whose types the server infers, and waits for
	 * it.  Returns INBOXD_DONE and, if rows is not NULL, what it returned.  Otherwise the
	 * reason is noted and it returns INBOXD_REJECT where the data is at fault (SQLSTATE
	 * classes 22 and 23 but foreign keys; a NUL in a parameter) and INBOXD_RETRY for all else:
	 * an entry may return just that.  The server parses each text once per session: keep texts
	 * constant and put values in parameters, which is also what makes them safe.  At most 1024
	 * parameters. */
	int32_t (*exec)(struct inboxd_call *call, const char *sql, uint32_t n,
		const struct inboxd_value *args, struct inboxd_rows **rows);

	/* The same without waiting and without a result: the statement travels together with those
	 * that follow and with the COMMIT, which saves it a round trip.  Its error shows later and
	 * fails this message all the same. */
	int32_t (*queue)(struct inboxd_call *call, const char *sql, uint32_t n,
		const struct inboxd_value *args);

	/* Rows that came back, their columns, rows touched (3 for "INSERT 0 3" and for "SELECT 3",
	 * 0 where the server counts none), and the value at row and column, from 0: text, NULL as
	 * data == NULL. */
	uint32_t (*rows_count)(const struct inboxd_rows *rows);
	uint32_t (*rows_columns)(const struct inboxd_rows *rows);
	uint64_t (*rows_affected)(const struct inboxd_rows *rows);
	struct inboxd_value (*rows_value)(
		const struct inboxd_rows *rows, uint32_t row, uint32_t column);

	/* Bytes as a parameter of type bytea: their hexadecimal form (absent stays absent). */
	struct inboxd_value (*bytea)(struct inboxd_call *call, struct inboxd_value bytes);

	/* COPY ... FROM STDIN: copy_begin starts the statement, copy_data sends a piece in the
	 * format that the statement names (pieces need not end where lines do), copy_end ends it.
	 * They return as exec does.  Nothing else runs in between; an entry that returns before
	 * copy_end has failed. */
	int32_t (*copy_begin)(struct inboxd_call *call, const char *sql);
	int32_t (*copy_data)(struct inboxd_call *call, const char *data, size_t size);
	int32_t (*copy_end)(struct inboxd_call *call);

	/* The raw libpq connection, blocking, inside the transaction.  Only for handlers with the
	 * flag INBOXD_USES_CONN, whose messages then run one at a time; NULL for others.  Fetch
	 * every result, do not close it or leave its pipeline mode on, and ask for it again after
	 * each exec. */
	struct pg_conn *(*conn)(struct inboxd_call *call);

	/* ---- verdicts ---------------------------------------------------------------- */

	/* `return host->retry(call, "why", 0);`  Notes reason and delay (milliseconds; 0: as
	 * configured) and returns INBOXD_RETRY.  A delay takes the place of the configured one; the
	 * number of runs stays, so short delays use them up in short time.  The message is not committed any more, whatever
	 * the entry returns.  In handle_batch, on an item: that message alone is tried again, the
	 * others commit; nothing may have been written for it. */
	int32_t (*retry)(struct inboxd_call *call, const char *reason, uint64_t delay_ms);

	/* `return host->reject(call, "why");`  The same with INBOXD_REJECT.  A reason of NULL keeps
	 * the one that was noted before (by get or exec). */
	int32_t (*reject)(struct inboxd_call *call, const char *reason);

	/* 1 if the message has failed already, by get, retry, reject or a statement; else 0.  In
	 * handle_batch, an item that get failed must be passed over with reject(item, NULL), or
	 * the whole batch is rolled back and run again through handle. */
	int32_t (*is_failed)(struct inboxd_call *call);

	/* Stores a result with the key, in the same transaction; a second call replaces it.
	 * content_type may be NULL.  INBOXD_DONE, or INBOXD_REJECT if the content type is longer
	 * than 127 bytes. */
	int32_t (*set_result)(
		struct inboxd_call *call, const char *data, size_t size, const char *content_type);

	/* ---- everything else --------------------------------------------------------- */

	/* One log line; consumer and key are added.  Keep what is secret or personal out of it. */
	void (*log)(struct inboxd_call *call, int32_t level, const char *text);

	/* A scalar of the consumer's `options:` by its path: "statement", "parameters/0",
	 * "limits/daily".  data == NULL if there is none, or YAML's null. */
	struct inboxd_value (*option)(struct inboxd_call *call, const char *path);

	/* Entries of a list or map in the options ("" is the options themselves); 1 for a scalar,
	 * 0 if there is nothing. */
	uint32_t (*option_count)(struct inboxd_call *call, const char *path);

	/* Name of the i-th entry of a map; data == NULL behind the last one or if path is no
	 * map. */
	struct inboxd_value (*option_name)(struct inboxd_call *call, const char *path, uint32_t i);

	/* In check and open: reports that an option is wrong, with its place in the file ("" for
	 * the options as a whole), and returns INBOXD_REJECT.  Call it for each error, then return
	 * that. */
	int32_t (*bad_option)(struct inboxd_call *call, const char *path, const char *text);

	/* In check and open: reports every option in the map at path that is none of names, with
	 * the name that was probably meant.  INBOXD_DONE or INBOXD_REJECT. */
	int32_t (*only_options)(
		struct inboxd_call *call, const char *path, uint32_t n, const char *const *names);

	/* In open: has the server parse a statement.  *n is the room in types (PostgreSQL's type
	 * OIDs, 17 is bytea; may be NULL if *n is 0) and becomes the number of parameters that it
	 * takes.  What is wrong with it is reported as by bad_option, and found by `inboxd --check
	 * --connect`. */
	int32_t (*prepare)(struct inboxd_call *call, const char *sql, const char *option_path,
		uint32_t *types, uint32_t *n);

	/* What is wrong with a text as a source (see get), or as a statement as far as that can be
	 * told without a server (empty, COPY, BEGIN and its kin); NULL if nothing is. */
	const char *(*source_error)(struct inboxd_call *call, const char *source);
	const char *(*statement_error)(struct inboxd_call *call, const char *sql);

	/* What the handler keeps from open to close: set in open, read anywhere, freed in close. */
	void (*set_state)(struct inboxd_call *call, void *state);
	void *(*state)(struct inboxd_call *call);
};

/* Whether the running inboxd has a function of struct inboxd_host. */
#define INBOXD_HAS(host, field) \
	((host)->size >= offsetof(struct inboxd_host, field) + sizeof((host)->field))

/* flags: the handler wants the raw connection; its messages then run one at a time. */
#define INBOXD_USES_CONN UINT64_C(1)

/*
 * What a handler is.  Only `handle` is required.  check and open return INBOXD_DONE, or
 * INBOXD_REJECT if only an edit of the configuration can help, or INBOXD_RETRY (open: try again
 * later).
 */
struct inboxd_handler {
	uint32_t abi_major;  /* INBOXD_ABI_MAJOR */
	uint32_t abi_minor;  /* INBOXD_ABI_MINOR */
	size_t size;         /* sizeof(struct inboxd_handler) */
	const char *version; /* its own, for the log; may be NULL */
	uint64_t flags;      /* INBOXD_USES_..., 0 for most */

	int32_t (*check)(const struct inboxd_host *host, struct inboxd_call *call);
	int32_t (*open)(const struct inboxd_host *host, struct inboxd_call *call);
	int32_t (*handle)(const struct inboxd_host *host, struct inboxd_call *call);

	/* All of a batch in one go.  INBOXD_DONE commits all but those marked by retry or reject.
	 * Any other result, and any failure, rolls all back, and all are run again through handle;
	 * those that fail then are run once more, each by itself. */
	int32_t (*handle_batch)(const struct inboxd_host *host, struct inboxd_call *call);

	void (*close)(const struct inboxd_host *host, struct inboxd_call *call);
};

#if defined(__GNUC__)
#define INBOXD_EXPORT __attribute__((visibility("default")))
#else
#define INBOXD_EXPORT
#endif

#ifdef __cplusplus
#define INBOXD_EXTERN extern "C"
#else
#define INBOXD_EXTERN extern
#endif

/* g++ takes fields that designated initialisers leave out for forgotten ones. */
#if defined(__cplusplus) && defined(__GNUC__)
#define INBOXD_QUIETLY                 \
	_Pragma("GCC diagnostic push") \
		_Pragma("GCC diagnostic ignored \"-Wmissing-field-initializers\"")
#define INBOXD_ALOUD _Pragma("GCC diagnostic pop")
#else
#define INBOXD_QUIETLY
#define INBOXD_ALOUD
#endif

/* A test program that holds several handlers gives each another name before it includes them. */
#ifndef INBOXD_HANDLER_NAME
#define INBOXD_HANDLER_NAME inboxd_handler
#endif

/* Defines the exported constant; the arguments are designated initialisers, in the order of the
 * fields. */
#define INBOXD_HANDLER(...)                                                               \
	INBOXD_QUIETLY                                                                    \
	INBOXD_EXTERN INBOXD_EXPORT const struct inboxd_handler INBOXD_HANDLER_NAME;      \
	const struct inboxd_handler INBOXD_HANDLER_NAME = {.abi_major = INBOXD_ABI_MAJOR, \
		.abi_minor = INBOXD_ABI_MINOR,                                            \
		.size = sizeof(struct inboxd_handler),                                    \
		__VA_ARGS__};                                                             \
	INBOXD_ALOUD

/* A C string as a value; NULL stays absent. */
static inline struct inboxd_value inboxd_text(const char *text)
{
	struct inboxd_value v = {text, text != NULL ? strlen(text) : 0};
	return v;
}

/* SQL NULL. */
static inline struct inboxd_value inboxd_null(void)
{
	struct inboxd_value v = {NULL, 0};
	return v;
}

/* Whether a value is there and equals a C string. */
static inline int inboxd_is(struct inboxd_value v, const char *text)
{
	return v.data != NULL && v.size == strlen(text) && memcmp(v.data, text, v.size) == 0;
}

#ifdef __cplusplus
}
#endif

#endif

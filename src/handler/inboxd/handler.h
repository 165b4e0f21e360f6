/* SPDX-License-Identifier: MIT */
/*
 * inboxd/handler.h - what a message handler for inboxd is and what inboxd lends it.
 *
 * A handler is a shared object in one of the directories of `handlers.directory`.  It exports one
 * constant, `inboxd_handler`.  It links against nothing of inboxd: everything it may call comes as
 * a table of functions, so it can be tested with a table of your own (inboxd/testkit.h has one).
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
 * Who calls what, and when
 *   A handler runs in a worker process: one thread, one message (or batch) at a time, one open
 *   PostgreSQL connection.  Entries are called in this order:
 *
 *     check          once per start and by `inboxd --check`, without a connection
 *     open           after each connect to the database
 *     handle         for each new message, inside the transaction that also holds its key
 *     handle_batch   instead of handle, if present, when more than one message is at hand
 *     close          before the connection is given up, unless the process dies first
 *
 * What may repeat
 *   handle may run several times for one message: each time but the last its transaction was
 *   rolled back.  What it does through exec, queue, copy and conn happens once, because it commits
 *   together with the key.  What it does elsewhere - a mail, an HTTP call, a file - may repeat.
 *
 * What lives how long
 *   Every pointer that the host returns lives until the entry it was returned in returns.  What
 *   the handler passes in is copied or used up before the called function returns.  `call` itself
 *   is valid in that entry only.
 *
 * Transactions
 *   The host begins and ends the transaction.  exec and queue refuse BEGIN, COMMIT, ROLLBACK and
 *   their kin (SAVEPOINT, RELEASE and ROLLBACK TO are allowed).  If a statement failed and the
 *   handler did not roll back to a savepoint, the transaction cannot commit: returning
 *   INBOXD_DONE then counts as a failure, whatever the handler meant.
 *
 * Text
 *   Strings are UTF-8 where they go to the log or into reasons; other bytes are escaped there.
 *   Values (struct inboxd_value) are bytes; they are always followed by a NUL that is not counted.
 *
 * Other languages
 *   Plain C ABI: no variadic functions, no bit fields, fixed-width integers for results and kinds,
 *   structs by value of at most two machine words.  The macro INBOXD_HANDLER is optional.
 *
 * Growth
 *   The major ABI number must match.  Fields are only ever appended, to struct inboxd_handler and
 *   to struct inboxd_host alike; each begins with its own size, so both sides know what the other
 *   has: use INBOXD_HAS(host, field) before you call what a later minor number brought.
 *
 * ABI
 *   1.0  first version
 */
#ifndef INBOXD_HANDLER_H
#define INBOXD_HANDLER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define INBOXD_ABI_MAJOR 1
#define INBOXD_ABI_MINOR 0

struct inboxd_call; /* one entry's run: a message (or batch) and its transaction */
struct inboxd_rows; /* what a statement returned */
struct pg_conn;     /* PGconn of libpq-fe.h */

/* Bytes.  data == NULL: absent, or SQL NULL.  Otherwise data[size] is a NUL. */
struct inboxd_value {
	const char *data;
	size_t size;
};

/* What an entry returns, and what exec, queue and copy return.  Anything else counts as broken and
 * is treated like INBOXD_REJECT. */
enum {
	INBOXD_DONE = 0,   /* commit and acknowledge */
	INBOXD_RETRY = 1,  /* roll back, try again later (see retry) */
	INBOXD_REJECT = 2, /* roll back, park as failed: this message can never succeed (see reject) */
};

/* Levels of log. */
enum {
	INBOXD_LOG_ERROR = 0,
	INBOXD_LOG_WARNING = 1,
	INBOXD_LOG_INFO = 2,
	INBOXD_LOG_DEBUG = 3,
};

/* Kinds of a header's value (header_kind); they name AMQP 0-9-1 field types. */
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
 * What inboxd lends.  Only appended to.  `call` is the one the entry was given.
 */
struct inboxd_host {
	size_t size; /* sizeof(struct inboxd_host) of the running inboxd */
	uint32_t abi_major;
	uint32_t abi_minor;

	/* ---- the message ------------------------------------------------------------------ */

	/* One scalar by its source, as in the configuration: `message_id`, `header:NAME`,
	 * `json:/pointer`, `property:type`, `routing_key`, `body`.  Numbers come as their literal
	 * text, booleans as true or false, JSON null and what is missing as data == NULL.  JSON
	 * objects and arrays come as their JSON text.  A source that is malformed, or a body that is
	 * not JSON where `json:` asks for it, gives NULL and makes the entry's result count as
	 * INBOXD_REJECT, with the reason. */
	struct inboxd_value (*get)(struct inboxd_call *call, const char *source);

	/* The whole body, byte for byte. */
	struct inboxd_value (*body)(struct inboxd_call *call);

	/* Kind of a header (INBOXD_KIND_…); its value as text comes from get("header:NAME"). */
	int32_t (*header_kind)(struct inboxd_call *call, const char *name);

	/* Header as an integer: returns 1 and sets *ret if it is an integer, bool or timestamp that
	 * fits, else 0. */
	int32_t (*header_int)(struct inboxd_call *call, const char *name, int64_t *ret);

	/* Header as a double: returns 1 and sets *ret if it is a number of any kind, else 0. */
	int32_t (*header_float)(struct inboxd_call *call, const char *name, double *ret);

	/* Name of the i-th header, from 0; data == NULL behind the last. */
	struct inboxd_value (*header_name)(struct inboxd_call *call, uint32_t i);

	/* Numeric properties: "priority", "delivery_mode", "timestamp" (seconds since 1970, the
	 * publisher's clock).  Returns 1 and sets *ret, or 0 if the message has none. */
	int32_t (*property_int)(struct inboxd_call *call, const char *name, uint64_t *ret);

	/* How often this message was started before, 0 at first; and whether the broker said that it
	 * had delivered it before (a hint, no more). */
	uint32_t (*attempt)(struct inboxd_call *call);
	int32_t (*redelivered)(struct inboxd_call *call);

	/* A key for calls to other systems (HTTP header Idempotency-Key and the like): printable
	 * ASCII, at most 64 characters, the same at every run for this message, different for each
	 * consumer, message and step.  step may be NULL. */
	struct inboxd_value (*idempotency_key)(struct inboxd_call *call, const char *step);

	/* In handle_batch: the number of messages, and the i-th one's own call, to be used with the
	 * functions above and with retry, reject, set_result.  In handle: 1, and the call itself. */
	uint32_t (*batch_size)(struct inboxd_call *call);
	struct inboxd_call *(*batch_item)(struct inboxd_call *call, uint32_t i);

	/* ---- the database, inside the transaction ------------------------------------------- */

	/* Runs one statement with parameters $1…$n, sent as text with types as the server infers
	 * them, and waits for it.  Returns INBOXD_DONE and, if rows is not NULL, the result; or, with
	 * the reason noted, INBOXD_REJECT for errors in the data (SQLSTATE classes 22 and 23, without
	 * foreign keys) and INBOXD_RETRY for all others: the handler may simply return it. */
	int32_t (*exec)(struct inboxd_call *call, const char *sql, uint32_t n,
		const struct inboxd_value *args, struct inboxd_rows **rows);

	/* The same without waiting and without a result: the statement travels together with the next
	 * ones and with the commit, which saves a round trip each.  Returns INBOXD_DONE; an error of
	 * the statement shows later and fails this message all the same. */
	int32_t (*queue)(struct inboxd_call *call, const char *sql, uint32_t n,
		const struct inboxd_value *args);

	/* Rows of a result: count, columns, rows affected (as in "INSERT 0 3"), and the value at row
	 * and column, both from 0, as text; SQL NULL is data == NULL. */
	uint32_t (*rows_count)(const struct inboxd_rows *rows);
	uint32_t (*rows_columns)(const struct inboxd_rows *rows);
	uint64_t (*rows_affected)(const struct inboxd_rows *rows);
	struct inboxd_value (*rows_value)(
		const struct inboxd_rows *rows, uint32_t row, uint32_t column);

	/* COPY … FROM STDIN.  copy_begin runs the COPY statement, copy_data sends bytes in the
	 * statement's own format, copy_end finishes and returns as exec does.  Nothing else may be
	 * executed in between. */
	int32_t (*copy_begin)(struct inboxd_call *call, const char *sql);
	int32_t (*copy_data)(struct inboxd_call *call, const char *data, size_t size);
	int32_t (*copy_end)(struct inboxd_call *call);

	/* The raw libpq connection, in blocking mode and inside the transaction.  Fetch every result;
	 * do not end the transaction, change its mode or close it: a COMMIT of your own is refused by
	 * the server.  A handler that says uses_conn (below) gets it; others get NULL. */
	struct pg_conn *(*conn)(struct inboxd_call *call);

	/* ---- verdicts ------------------------------------------------------------------------ */

	/* `return host->retry(call, "why", delay_ms);`  Notes reason and delay (0: as configured) and
	 * returns INBOXD_RETRY.  In handle_batch, on an item: that message alone is retried. */
	int32_t (*retry)(struct inboxd_call *call, const char *reason, uint64_t delay_ms);

	/* `return host->reject(call, "why");`  Notes the reason and returns INBOXD_REJECT. */
	int32_t (*reject)(struct inboxd_call *call, const char *reason);

	/* Stores a result with the key, in the same transaction; a second call replaces it. */
	int32_t (*set_result)(struct inboxd_call *call, const char *data, size_t size,
		const char *content_type);

	/* ---- everything else ------------------------------------------------------------------ */

	/* One log line; consumer and key are added. */
	void (*log)(struct inboxd_call *call, int32_t level, const char *text);

	/* The handler's own options from the configuration: `options:` of the consumer.  path names a
	 * scalar: "statement", "parameters/0", "limits/daily".  data == NULL if there is none. */
	struct inboxd_value (*option)(struct inboxd_call *call, const char *path);

	/* Number of entries of a list or map in the options; 1 for a scalar, 0 if absent. */
	uint32_t (*option_count)(struct inboxd_call *call, const char *path);

	/* Name of the i-th entry of a map ("" is the options themselves); data == NULL behind the last
	 * one or if path is no map. */
	struct inboxd_value (*option_name)(struct inboxd_call *call, const char *path, uint32_t i);

	/* In check and open: reports that an option is wrong, with its place in the file ("" for the
	 * options as a whole), and returns INBOXD_REJECT.  Call it for each error, then return it. */
	int32_t (*bad_option)(struct inboxd_call *call, const char *path, const char *text);

	/* In open: has the server parse a statement, and says how many parameters it takes.  A wrong
	 * one is reported under the option's path and found by `inboxd --check --connect`. */
	int32_t (*prepare)(struct inboxd_call *call, const char *sql, const char *option_path,
		uint32_t *ret_parameters);

	/* Whether a text is a valid source: returns NULL, or what is wrong with it. */
	const char *(*source_error)(struct inboxd_call *call, const char *source);

	/* What the handler keeps between entries: set in check or open, read anywhere. */
	void (*set_state)(struct inboxd_call *call, void *state);
	void *(*state)(struct inboxd_call *call);
};

/*
 * What a handler is.  Only `handle` is required.  Only appended to.
 */
struct inboxd_handler {
	uint32_t abi_major; /* INBOXD_ABI_MAJOR */
	uint32_t abi_minor; /* INBOXD_ABI_MINOR */
	size_t size;        /* sizeof(struct inboxd_handler) */
	const char *version; /* for the log; may be NULL */

	/* Flags INBOXD_USES_…, 0 for most. */
	uint64_t flags;

	int32_t (*check)(const struct inboxd_host *host, struct inboxd_call *call);
	int32_t (*open)(const struct inboxd_host *host, struct inboxd_call *call);
	int32_t (*handle)(const struct inboxd_host *host, struct inboxd_call *call);

	/* All of a batch in one go; INBOXD_DONE means all but those marked by retry or reject.  Any
	 * other result, and any failure, rolls all back; they are then run again one at a time. */
	int32_t (*handle_batch)(const struct inboxd_host *host, struct inboxd_call *call);

	void (*close)(const struct inboxd_host *host, struct inboxd_call *call);
};

/* flags: the handler wants the raw connection; its messages then run one at a time. */
#define INBOXD_USES_CONN UINT64_C(1)

#define INBOXD_HAS(table, field) \
	((table)->size >= offsetof(struct inboxd_host, field) + sizeof((table)->field))

#if defined(__GNUC__)
#define INBOXD_EXPORT __attribute__((visibility("default")))
#else
#define INBOXD_EXPORT
#endif

/* Defines the exported constant; the arguments are designated initialisers (C and C++20). */
#define INBOXD_HANDLER(...) \
	INBOXD_EXPORT extern const struct inboxd_handler inboxd_handler; \
	const struct inboxd_handler inboxd_handler = {.abi_major = INBOXD_ABI_MAJOR, \
		.abi_minor = INBOXD_ABI_MINOR, \
		.size = sizeof(struct inboxd_handler), \
		__VA_ARGS__};

#ifdef __cplusplus
}
#endif

#endif

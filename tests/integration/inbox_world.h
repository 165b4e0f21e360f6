/* SPDX-License-Identifier: MIT */
/* For the tests of the inbox: a schema of its own in a real PostgreSQL, sessions as a worker has
 * them, and short words for what a worker does.  Needs INBOXD_TEST_CONNINFO and
 * INBOXD_TEST_ADMIN_CONNINFO. */
#ifndef INBOXD_TESTS_INTEGRATION_INBOX_WORLD_H
#define INBOXD_TESTS_INTEGRATION_INBOX_WORLD_H

#include "inbox/inbox.h"
#include "unit.h"

#include <libpq-fe.h>

/* A worker's session. */
struct session {
	struct db_conn *db;
	struct inbox x;
	const struct config_consumer *consumer;
};

struct inbox_world {
	char schema[64];
	PGconn *admin; /* search_path is the schema */
	struct config *config;
	struct session a, b; /* both of consumer "main"; b is open once session_open was called */
	struct err err;      /* of the last call that failed */
	int64_t parked;      /* id of the last row parked */
};
extern struct inbox_world world;

/* A migrated schema with a table effect(key bytea), and session a open; `more` are further lines of
 * the consumer "main", not indented; "" for none.  Its handler is sql unless they name another;
 * handlers are looked for in INBOXD_TEST_BUILD. */
void inbox_world_begin(const char *more);
void inbox_world_end(void);

void session_open(struct session *s, const char *consumer);
void session_close(struct session *s);
int session_pid(struct session *s);
/* Ends the server's side of it and waits until it is gone. */
void session_terminate(struct session *s);
/* A further configuration for sessions of other consumers; freed by inbox_world_end. */
const struct config_consumer *other_config(const char *consumers);

/* A statement as the superuser; its first value as text (static). */
const char *admin(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int admin_int(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int world_markers(void);
int world_effects(void);

/* ---- claims ---------------------------------------------------------------------------------- */

/* A claim of a key given as text, with a fingerprint of a body that is told by one letter; '\0':
 * none. */
struct claim claim_of(const char *key, char content);
struct bytes fingerprint_of(char content);

enum rc begin(struct session *s, struct claim *claims, size_t n);
/* Queues the work of a claim, and says that it is handled. */
void work(struct session *s, struct claim *claim);
/* inbox_commit behind so many statements of handlers. */
enum rc commit(struct session *s, struct claim *claims, size_t n, size_t statements,
	bool *ret_gate_failed);
void roll_back(struct session *s);

/* All of it for one message, which must go well; returns what its claim ended with. */
enum claim_state run_one(struct session *s, const char *key, char content);

/* What must go well. */
#define MUST_OK(call)                                                                          \
	do {                                                                                   \
		world.err.text[0] = '\0';                                                      \
		enum rc rc_ = (call);                                                          \
		ck_assert_msg(rc_ == RC_OK, "%s: %s %s", #call, rc_name(rc_), world.err.text); \
	} while (0)

/* ---- parking --------------------------------------------------------------------------------- */

struct message message_of(const char *body);
/* Parks, which must go well. */
enum park_outcome park(struct session *s, const struct park *p);
/* A parking of a message with that key and content (key NULL: none), to `state` (NULL: only look).
 */
struct park park_of(const struct message *m, const char *key, char content, const char *state);

#endif

/* SPDX-License-Identifier: MIT */
/* Claim, work, gate, commit: what is committed once, what never is, and what a lost session leaves.
 */
#include "inbox_world.h"

#include "harness.h"

#include "base/fd.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static void exec(struct session *s, const char *sql)
{
	MUST_OK(db_exec(s->db, sql, 0, NULL, false, NULL, &world.err));
}

static void queue(struct session *s, const char *sql)
{
	MUST_OK(db_queue(s->db, sql, 0, NULL, false, &world.err));
}

/* ---- one key --------------------------------------------------------------------------------- */

START_TEST(a_new_key_commits_with_its_work)
{
	inbox_world_begin("");
	ck_assert_int_eq(run_one(&world.a, "\001k", 'x'), CLAIM_NEW);
	ck_assert_int_eq(world_markers(), 1);
	ck_assert_int_eq(world_effects(), 1);
	ck_assert_str_eq(admin("SELECT key::text || fingerprint::text FROM inbox"),
		"\\x016b\\x0178787878787878787878787878787878");
	ck_assert_int_eq(db_tx_state(world.a.db), DB_TX_NONE);
	inbox_world_end();
}
END_TEST

START_TEST(the_same_content_again_is_a_duplicate)
{
	inbox_world_begin("");
	(void)run_one(&world.a, "\001k", 'x');
	session_open(&world.b, NULL);
	ck_assert_int_eq(run_one(&world.a, "\001k", 'x'), CLAIM_DUPLICATE);
	ck_assert_int_eq(run_one(&world.b, "\001k", 'x'), CLAIM_DUPLICATE);
	ck_assert_int_eq(world_markers(), 1);
	ck_assert_int_eq(world_effects(), 1);
	inbox_world_end();
}
END_TEST

START_TEST(other_content_is_looked_at_and_what_cannot_be_compared_is_a_duplicate)
{
	inbox_world_begin("");
	(void)run_one(&world.a, "\001k", 'x');
	ck_assert_int_eq(run_one(&world.a, "\001k", 'y'), CLAIM_LOOK);
	ck_assert_int_eq(run_one(&world.a, "\001k", '\0'), CLAIM_DUPLICATE);
	(void)run_one(&world.a, "\001none", '\0');
	ck_assert_int_eq(run_one(&world.a, "\001none", 'x'), CLAIM_DUPLICATE);
	ck_assert_int_eq(world_markers(), 2);
	ck_assert_int_eq(world_effects(), 2);
	inbox_world_end();
}
END_TEST

START_TEST(keys_are_bytes_to_their_last_one)
{
	static const struct {
		const char *bytes;
		size_t size;
	} keys[] = {{"\001a", 2}, {"\001a\0", 3}, {"\001a\0\0", 4}, {"\001A", 2}, {"\002a", 2},
		{"\001\xff\xfe", 3}, {"\001\\x61", 5}, {"\001", 1}};
	char longest[2][KEY_SIZE_MAX];
	inbox_world_begin("");
	for (size_t i = 0; i < 2; i++) {
		memset(longest[i], 'k', sizeof longest[i]);
		longest[i][sizeof longest[i] - 1] = (char)i;
	}
	for (size_t i = 0; i < 10; i++) {
		struct claim c = claim_of("", 'x');
		c.key = i < 8 ? bytes_of(keys[i].bytes, keys[i].size)
			      : bytes_of(longest[i - 8], sizeof longest[0]);
		MUST_OK(begin(&world.a, &c, 1));
		ck_assert_int_eq(c.state, CLAIM_NEW);
		work(&world.a, &c);
		MUST_OK(commit(&world.a, &c, 1, 1, NULL));
	}
	ck_assert_int_eq(world_markers(), 10);
	ck_assert_int_eq(admin_int("SELECT count(*) FROM inbox JOIN effect USING (key)"), 10);
	inbox_world_end();
}
END_TEST

START_TEST(a_rollback_leaves_nothing)
{
	inbox_world_begin("");
	struct claim c = claim_of("\001k", 'x');
	MUST_OK(begin(&world.a, &c, 1));
	exec(&world.a, "INSERT INTO effect VALUES ('x')");
	roll_back(&world.a);
	ck_assert_int_eq(world_markers() + world_effects(), 0);
	ck_assert_int_eq(run_one(&world.a, "\001k", 'x'), CLAIM_NEW);
	inbox_world_end();
}
END_TEST

START_TEST(identities_do_not_share_keys)
{
	inbox_world_begin("");
	world.b.consumer = other_config("  other:\n    queue: q\n    handler: sql\n");
	session_open(&world.b, NULL);
	ck_assert_int_ne(world.a.x.id, world.b.x.id);
	ck_assert_int_eq(run_one(&world.a, "\001k", 'x'), CLAIM_NEW);
	ck_assert_int_eq(run_one(&world.b, "\001k", 'y'), CLAIM_NEW);
	inbox_world_end();
}
END_TEST

/* ---- busy ------------------------------------------------------------------------------------ */

START_TEST(a_key_in_hand_elsewhere_is_busy_and_holds_nobody_up)
{
	inbox_world_begin("");
	session_open(&world.b, NULL);
	struct claim held = claim_of("\001b", 'x');
	MUST_OK(begin(&world.b, &held, 1));
	struct claim claims[] = {
		claim_of("\001a", 'x'), claim_of("\001b", 'x'), claim_of("\001c", 'x')};
	exec(&world.b, "INSERT INTO effect VALUES ('of b')");
	MUST_OK(begin(&world.a, claims, 3));
	ck_assert_int_eq(claims[0].state, CLAIM_NEW);
	ck_assert_int_eq(claims[1].state, CLAIM_BUSY);
	ck_assert_int_eq(claims[2].state, CLAIM_NEW);
	work(&world.a, &claims[0]);
	work(&world.a, &claims[2]);
	MUST_OK(commit(&world.a, claims, 3, 2, NULL));
	ck_assert_int_eq(claims[1].state, CLAIM_BUSY);
	ck_assert_int_eq(world_markers(), 2);
	held.is_handled = true;
	MUST_OK(commit(&world.b, &held, 1, 0, NULL));
	ck_assert_int_eq(run_one(&world.a, "\001b", 'x'), CLAIM_DUPLICATE);
	inbox_world_end();
}
END_TEST

START_TEST(a_busy_key_alone_is_busy_and_free_after_a_rollback)
{
	inbox_world_begin("");
	session_open(&world.b, NULL);
	struct claim held = claim_of("\001b", 'x'), wanted = held;
	MUST_OK(begin(&world.b, &held, 1));
	MUST_OK(begin(&world.a, &wanted, 1));
	ck_assert_int_eq(wanted.state, CLAIM_BUSY);
	MUST_OK(commit(&world.a, &wanted, 1, 0, NULL));
	ck_assert_int_eq(wanted.state, CLAIM_BUSY);
	roll_back(&world.b);
	ck_assert_int_eq(run_one(&world.a, "\001b", 'x'), CLAIM_NEW);
	inbox_world_end();
}
END_TEST

/* Both ends of the lists, so that ordinals cannot be off by one. */
START_TEST(every_one_of_a_batch_may_be_the_busy_one)
{
	static const char *const keys[] = {"\001a", "\001b", "\001c", "\001d"};
	inbox_world_begin("");
	session_open(&world.b, NULL);
	for (unsigned busy = 0; busy < 16; busy++) {
		struct claim held[4], claims[4];
		size_t n = 0;
		for (size_t i = 0; i < 4; i++)
			if ((busy & (1u << i)) != 0)
				held[n++] = claim_of(keys[i], 'x');
		if (n != 0)
			MUST_OK(begin(&world.b, held, n));
		for (size_t i = 0; i < 4; i++)
			claims[i] = claim_of(keys[i], 'x');
		MUST_OK(begin(&world.a, claims, 4));
		for (size_t i = 0; i < 4; i++)
			ck_assert_int_eq(
				claims[i].state, (busy & (1u << i)) != 0 ? CLAIM_BUSY : CLAIM_NEW);
		roll_back(&world.a);
		if (n != 0)
			roll_back(&world.b);
	}
	inbox_world_end();
}
END_TEST

/* ---- batches --------------------------------------------------------------------------------- */

START_TEST(a_claim_that_was_not_handled_is_forgotten_with_the_commit)
{
	inbox_world_begin("");
	struct claim claims[] = {
		claim_of("\001a", 'x'), claim_of("\001b", 'x'), claim_of("\001c", 'x')};
	MUST_OK(begin(&world.a, claims, 3));
	work(&world.a, &claims[0]);
	work(&world.a, &claims[2]);
	MUST_OK(commit(&world.a, claims, 3, 2, NULL));
	ck_assert_str_eq(
		admin("SELECT string_agg(encode(key, 'escape'), '' ORDER BY key) FROM inbox"),
		"\001a\001c");
	ck_assert_int_eq(run_one(&world.a, "\001b", 'x'), CLAIM_NEW);
	inbox_world_end();
}
END_TEST

START_TEST(messages_without_key_leave_no_marker_alone_or_among_others)
{
	inbox_world_begin("");
	for (int i = 0; i < 2; i++) {
		struct claim c = claim_of("", '\0');
		MUST_OK(begin(&world.a, &c, 1));
		ck_assert_int_eq(c.state, CLAIM_UNKEYED);
		work(&world.a, &c);
		MUST_OK(commit(&world.a, &c, 1, 1, NULL));
		ck_assert_int_eq(c.state, CLAIM_UNKEYED);
	}
	ck_assert_int_eq(world_markers(), 0);
	struct claim none[] = {claim_of("", '\0'), claim_of("", '\0')};
	MUST_OK(begin(&world.a, none, 2));
	MUST_OK(commit(&world.a, none, 2, 0, NULL));
	struct claim mixed[] = {claim_of("", '\0'), claim_of("", '\0'), claim_of("\001a", 'x'),
		claim_of("\001b", 'x')};
	for (size_t n = 3; n <= 4; n++) { /* one keyed, then two */
		MUST_OK(begin(&world.a, mixed, n));
		ck_assert_int_eq(mixed[0].state, CLAIM_UNKEYED);
		ck_assert_int_eq(mixed[1].state, CLAIM_UNKEYED);
		ck_assert_int_eq(mixed[2].state, n == 3 ? CLAIM_NEW : CLAIM_LOOK);
		mixed[2].is_handled = true;
		if (n == 4)
			work(&world.a, &mixed[3]);
		MUST_OK(commit(&world.a, mixed, n, n == 4, NULL));
	}
	ck_assert_int_eq(mixed[2].state, CLAIM_DUPLICATE);
	ck_assert_int_eq(mixed[3].state, CLAIM_NEW);
	ck_assert_int_eq(world_markers(), 2);
	inbox_world_end();
}
END_TEST

enum { BATCH = 1000 };
static char names[BATCH][16];

static void claims_of_batch(struct claim *claims)
{
	for (int i = 0; i < BATCH; i++) {
		(void)snprintf(names[i], sizeof names[i], "\001%06d", i);
		claims[i] = claim_of(names[i], 'x');
	}
}

START_TEST(a_batch_of_a_thousand_finds_each_key_as_it_is)
{
	static struct claim claims[BATCH], held[BATCH];
	size_t n_held = 0, handled = 0;
	inbox_world_begin("batch: {max: 1000}");
	session_open(&world.b, NULL);
	claims_of_batch(claims);
	(void)admin("INSERT INTO inbox (consumer, key, fingerprint) SELECT %d, "
		    "('\\x01' || convert_to(lpad(i::text, 6, '0'), 'UTF8'))::bytea, "
		    "decode(CASE WHEN i %% 10 = 3 THEN '0178787878787878787878787878787878' "
		    "ELSE '0179797979797979797979797979797979' END, 'hex') "
		    "FROM generate_series(0, 999) i WHERE i %% 10 IN (3, 4)",
		(int)world.a.x.id);
	for (size_t i = 5; i < BATCH; i += 10)
		held[n_held++] = claim_of(names[i], 'x');
	MUST_OK(begin(&world.b, held, n_held));
	MUST_OK(begin(&world.a, claims, BATCH));
	for (size_t i = 0; i < BATCH; i++) {
		size_t kind = i % 10;
		ck_assert_int_eq(claims[i].state,
			kind == 5                        ? CLAIM_BUSY
				: kind == 3 || kind == 4 ? CLAIM_LOOK
							 : CLAIM_NEW);
		if (claims[i].state == CLAIM_NEW && kind != 7) {
			work(&world.a, &claims[i]);
			handled++;
		}
	}
	MUST_OK(commit(&world.a, claims, BATCH, handled, NULL));
	for (size_t i = 0; i < BATCH; i++) {
		if (i % 10 == 3)
			ck_assert_int_eq(claims[i].state, CLAIM_DUPLICATE);
		if (i % 10 == 4)
			ck_assert_int_eq(claims[i].state, CLAIM_LOOK);
	}
	ck_assert_uint_eq(handled, 600);
	ck_assert_int_eq(world_effects(), 600);
	ck_assert_int_eq(world_markers(), 800);
	inbox_world_end();
}
END_TEST

START_TEST(two_sessions_that_want_the_same_thousand_never_wait_for_each_other)
{
	static struct claim mine[BATCH], theirs[BATCH];
	inbox_world_begin("batch: {max: 1000}");
	session_open(&world.b, NULL);
	exec(&world.a, "SET statement_timeout = '20s'");
	claims_of_batch(mine);
	claims_of_batch(theirs);
	MUST_OK(begin(&world.a, mine, BATCH / 2));
	MUST_OK(begin(&world.b, theirs, BATCH));
	for (size_t i = 0; i < BATCH; i++) {
		ck_assert_int_eq(theirs[i].state, i < BATCH / 2 ? CLAIM_BUSY : CLAIM_NEW);
		theirs[i].is_handled = true;
	}
	MUST_OK(commit(&world.b, theirs, BATCH, 0, NULL));
	for (size_t i = 0; i < BATCH / 2; i++)
		mine[i].is_handled = true;
	MUST_OK(commit(&world.a, mine, BATCH / 2, 0, NULL));
	ck_assert_int_eq(world_markers(), BATCH);
	inbox_world_end();
}
END_TEST

/* ---- parked keys, results -------------------------------------------------------------------- */

START_TEST(a_delivery_does_not_claim_what_is_parked)
{
	inbox_world_begin("");
	const struct message m = message_of("body");
	const struct park p = park_of(&m, "\001k", 'x', "waiting");
	ck_assert_int_eq(park(&world.a, &p), PARK_PARKED);
	ck_assert_int_eq(run_one(&world.a, "\001k", 'x'), CLAIM_LOOK);
	ck_assert_int_eq(run_one(&world.a, "\001k", 'y'), CLAIM_LOOK);
	struct claim claims[] = {claim_of("\001j", 'x'), claim_of("\001k", 'x')};
	MUST_OK(begin(&world.a, claims, 2));
	ck_assert_int_eq(claims[0].state, CLAIM_NEW);
	ck_assert_int_eq(claims[1].state, CLAIM_LOOK);
	roll_back(&world.a);
	(void)admin("UPDATE parked SET state = 'discarded', next_at = NULL");
	ck_assert_int_eq(run_one(&world.a, "\001k", 'x'), CLAIM_LOOK);
	MUST_OK(begin(&world.a, claims, 2));
	ck_assert_int_eq(claims[1].state, CLAIM_LOOK);
	roll_back(&world.a);
	/* A discarded message does not keep its key from another one. */
	claims[1] = claim_of("\001k", 'y');
	MUST_OK(begin(&world.a, claims, 2));
	ck_assert_int_eq(claims[1].state, CLAIM_NEW);
	roll_back(&world.a);
	ck_assert_int_eq(run_one(&world.a, "\001k", 'y'), CLAIM_NEW);
	inbox_world_end();
}
END_TEST

START_TEST(a_result_is_kept_with_its_marker)
{
	inbox_world_begin("");
	struct claim c = claim_of("\001k", 'x');
	MUST_OK(begin(&world.a, &c, 1));
	MUST_OK(inbox_queue_result(
		&world.a.x, c.key, bytes_of("a\0b", 3), "text/plain", &world.err));
	c.is_handled = true;
	MUST_OK(commit(&world.a, &c, 1, 1, NULL));
	ck_assert_str_eq(
		admin("SELECT content_type || data::text FROM result"), "text/plain\\x610062");
	c = claim_of("\001l", 'x');
	MUST_OK(begin(&world.a, &c, 1));
	MUST_OK(inbox_queue_result(&world.a.x, c.key, bytes_of(NULL, 0), "", &world.err));
	c.is_handled = true;
	MUST_OK(commit(&world.a, &c, 1, 1, NULL));
	(void)admin("DELETE FROM inbox");
	ck_assert_int_eq(admin_int("SELECT count(*) FROM result"), 0);
	inbox_world_end();
}
END_TEST

/* ---- the gate -------------------------------------------------------------------------------- */

/* What a handler may do to our transaction when it holds the raw connection. */
static void raw(struct session *s, const char *const *statements, size_t n)
{
	PGconn *pg = db_raw_begin(s->db);
	struct err err;
	ck_assert_ptr_nonnull(pg);
	for (size_t i = 0; i < n; i++)
		PQclear(PQexec(pg, statements[i]));
	(void)!db_raw_end(s->db, &err);
}

static void queue_guard(struct session *s)
{
	MUST_OK(inbox_guard(&s->x, &world.err));
	MUST_OK(db_sync(s->db, &world.err));
	MUST_OK(db_next(s->db, NULL, &world.err));
	MUST_OK(db_sync_end(s->db, &world.err));
}

static void gate_refuses(bool guarded, size_t n, const char *const *statements)
{
	struct claim c = claim_of("\001k", 'x');
	bool gate_failed = false;
	MUST_OK(begin(&world.a, &c, 1));
	if (guarded)
		queue_guard(&world.a);
	raw(&world.a, statements, n);
	c.is_handled = true;
	enum rc rc = commit(&world.a, &c, 1, 0, &gate_failed);
	ck_assert_msg(rc == RC_RETRY, "after \"%s\": %s %s", statements[n - 1], rc_name(rc),
		world.err.text);
	ck_assert_msg(gate_failed, "after \"%s\" the gate was open", statements[n - 1]);
	ck_assert_int_eq(db_tx_state(world.a.db), DB_TX_NONE);
	/* Whatever it did, the session goes on. */
	ck_assert_int_eq(run_one(&world.a, "\001next", 'x'), CLAIM_NEW);
	(void)admin("DELETE FROM inbox");
	(void)admin("DELETE FROM effect");
}
#define GATE_REFUSES(guarded, ...)                                                              \
	do {                                                                                    \
		static const char *const statements_[] = {__VA_ARGS__};                         \
		gate_refuses(guarded, sizeof statements_ / sizeof statements_[0], statements_); \
	} while (0)

START_TEST(the_gate_is_shut_for_any_transaction_but_the_one_that_claimed)
{
	inbox_world_begin("");
	for (int guarded = 0; guarded < 2; guarded++) {
		GATE_REFUSES(guarded, "ROLLBACK");
		GATE_REFUSES(guarded, "ROLLBACK AND CHAIN");
		GATE_REFUSES(guarded, "ROLLBACK", "BEGIN");
		GATE_REFUSES(guarded, "ROLLBACK", "BEGIN READ ONLY");
		GATE_REFUSES(guarded, "ROLLBACK", "BEGIN READ WRITE");
		GATE_REFUSES(guarded, "COMMIT");
		GATE_REFUSES(guarded, "COMMIT AND CHAIN");
		GATE_REFUSES(guarded, "COMMIT", "BEGIN");
		GATE_REFUSES(guarded, "COMMIT", "BEGIN READ WRITE");
	}
	inbox_world_end();
}
END_TEST

START_TEST(the_gate_is_shut_also_when_claims_are_to_be_forgotten_or_looked_up)
{
	inbox_world_begin("");
	(void)run_one(&world.a, "\001b", 'x');
	static const char *const breaks[][2] = {{"ROLLBACK", "BEGIN"}, {"COMMIT", "BEGIN"}};
	for (size_t i = 0; i < 2; i++) {
		struct claim claims[] = {
			claim_of("\001a", 'x'), claim_of("\001b", 'x'), claim_of("\001c", 'x')};
		bool gate_failed;
		MUST_OK(begin(&world.a, claims, 3));
		claims[0].is_handled = true;
		raw(&world.a, breaks[i], 2);
		ck_assert_int_eq(commit(&world.a, claims, 3, 0, &gate_failed), RC_RETRY);
		ck_assert(gate_failed);
	}
	inbox_world_end();
}
END_TEST

START_TEST(with_the_guard_a_handlers_commit_takes_everything_back)
{
	static const char *const statements[] = {"INSERT INTO effect VALUES ('x')", "COMMIT"};
	inbox_world_begin("");
	struct claim c = claim_of("\001k", 'x');
	bool gate_failed;
	MUST_OK(begin(&world.a, &c, 1));
	queue_guard(&world.a);
	raw(&world.a, statements, 2);
	c.is_handled = true;
	ck_assert_int_eq(commit(&world.a, &c, 1, 0, &gate_failed), RC_RETRY);
	ck_assert(gate_failed);
	ck_assert_int_eq(world_markers() + world_effects(), 0);
	ck_assert_int_eq(admin_int("SELECT count(*) FROM guard"), 0);
	inbox_world_end();
}
END_TEST

START_TEST(the_guard_lets_our_own_commit_through_and_is_gone)
{
	inbox_world_begin("");
	for (int i = 0; i < 3; i++) {
		struct claim c = claim_of(i == 0 ? "\001a" : i == 1 ? "\001b" : "\001c", 'x');
		MUST_OK(begin(&world.a, &c, 1));
		if (i < 2)
			queue_guard(&world.a);
		work(&world.a, &c);
		MUST_OK(commit(&world.a, &c, 1, 1, NULL));
	}
	ck_assert_int_eq(world_effects(), 3);
	ck_assert_int_eq(admin_int("SELECT count(*) FROM guard"), 0);
	inbox_world_end();
}
END_TEST

START_TEST(an_error_of_the_work_takes_the_claims_with_it)
{
	inbox_world_begin("");
	struct claim claims[] = {claim_of("\001a", 'x'), claim_of("\001b", 'x')};
	MUST_OK(begin(&world.a, claims, 2));
	work(&world.a, &claims[0]);
	queue(&world.a, "SELECT 1 / 0");
	work(&world.a, &claims[1]);
	bool gate_failed;
	ck_assert_int_eq(commit(&world.a, claims, 2, 3, &gate_failed), RC_REJECT);
	ck_assert_str_eq(world.err.sqlstate, "22012");
	ck_assert(!gate_failed); /* the handler's own division, not the gate's */
	ck_assert_int_eq(world_markers() + world_effects(), 0);
	ck_assert_int_eq(run_one(&world.a, "\001a", 'x'), CLAIM_NEW);
	inbox_world_end();
}
END_TEST

START_TEST(a_constraint_that_fails_at_commit_takes_everything_back)
{
	inbox_world_begin("");
	(void)admin("ALTER TABLE effect ADD CONSTRAINT once UNIQUE (key) DEFERRABLE INITIALLY "
		    "DEFERRED");
	struct claim c = claim_of("\001k", 'x');
	MUST_OK(begin(&world.a, &c, 1));
	work(&world.a, &c);
	work(&world.a, &c);
	ck_assert_int_eq(commit(&world.a, &c, 1, 2, NULL), RC_REJECT);
	ck_assert_str_eq(world.err.sqlstate, "23505");
	ck_assert_int_eq(world_markers() + world_effects(), 0);
	ck_assert_int_eq(run_one(&world.a, "\001k", 'x'), CLAIM_NEW);
	inbox_world_end();
}
END_TEST

/* ---- durability ------------------------------------------------------------------------------ */

static void note_settings_at_commit(void)
{
	(void)admin("CREATE TABLE seen (level text, timeout text, serial serial)");
	(void)admin("GRANT ALL ON seen, seen_serial_seq TO inboxd");
	(void)admin("CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
		    "INSERT INTO seen VALUES (current_setting('synchronous_commit'), "
		    "current_setting('statement_timeout')); RETURN NULL; END $$");
	(void)admin("CREATE CONSTRAINT TRIGGER see AFTER INSERT ON effect DEFERRABLE INITIALLY "
		    "DEFERRED "
		    "FOR EACH ROW EXECUTE FUNCTION see()");
}

static const char *seen(const char *what)
{
	return admin("SELECT %s FROM seen ORDER BY serial DESC LIMIT 1", what);
}

static void commit_with(const char *setting, const char *expected)
{
	static int n;
	char key[16];
	(void)snprintf(key, sizeof key, "\001%d", n++);
	struct claim c = claim_of(key, 'x');
	MUST_OK(begin(&world.a, &c, 1));
	exec(&world.a, setting);
	work(&world.a, &c);
	MUST_OK(commit(&world.a, &c, 1, 1, NULL));
	ck_assert_str_eq(seen("level"), expected);
}

START_TEST(a_commit_is_synchronous_whatever_the_handler_has_set)
{
	inbox_world_begin("");
	note_settings_at_commit();
	MUST_OK(db_conn_limit(world.a.db, 30000, 60000, &world.err));
	commit_with("SET LOCAL synchronous_commit = off", "on");
	ck_assert_str_eq(seen("timeout"), "0"); /* nor is a COMMIT cut short */
	commit_with("SET synchronous_commit = off", "on");
	commit_with("SELECT 1", "on");
	struct message m = message_of("body");
	const struct park p = park_of(&m, "\001p", 'x', "failed");
	(void)admin("CREATE CONSTRAINT TRIGGER see AFTER INSERT ON parked DEFERRABLE INITIALLY "
		    "DEFERRED "
		    "FOR EACH ROW EXECUTE FUNCTION see()");
	exec(&world.a, "SET synchronous_commit = off");
	ck_assert_int_eq(park(&world.a, &p), PARK_PARKED);
	ck_assert_str_eq(seen("level"), "on");
	inbox_world_end();
}
END_TEST

START_TEST(a_commit_is_as_synchronous_as_it_is_configured)
{
	inbox_world_begin("");
	note_settings_at_commit();
	world.config->databases[0]->synchronous_commit[0] = '\0';
	free(world.config->databases[0]->synchronous_commit);
	world.config->databases[0]->synchronous_commit = xstrdup("remote_apply");
	commit_with("SET LOCAL synchronous_commit = off", "remote_apply");
	inbox_world_end();
}
END_TEST

START_TEST(a_warning_of_the_handlers_casts_no_doubt_on_the_commit)
{
	inbox_world_begin("");
	(void)admin("CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
		    "RAISE WARNING 'of the handler'; RETURN NULL; END $$");
	(void)admin(
		"CREATE TRIGGER warn AFTER INSERT ON effect FOR EACH ROW EXECUTE FUNCTION warn()");
	ck_assert_int_eq(run_one(&world.a, "\001k", 'x'), CLAIM_NEW);
	(void)admin("CREATE CONSTRAINT TRIGGER late AFTER INSERT ON effect DEFERRABLE INITIALLY "
		    "DEFERRED "
		    "FOR EACH ROW EXECUTE FUNCTION warn()");
	ck_assert_int_eq(run_one(&world.a, "\001l", 'x'), CLAIM_NEW);
	ck_assert_int_eq(world_effects(), 2);
	inbox_world_end();
}
END_TEST

/* Cancels whoever waits for a standby, once there is one. */
static pid_t canceller(void)
{
	pid_t pid = fork();
	if (pid != 0)
		return pid;
	PGconn *pg = PQconnectdb(getenv("INBOXD_TEST_ADMIN_CONNINFO"));
	char sql[256];
	bool done = false;
	(void)snprintf(sql, sizeof sql,
		"SELECT pg_cancel_backend(pid) FROM pg_stat_activity "
		"WHERE wait_event = 'SyncRep' AND application_name = '%s'",
		world.schema);
	for (int i = 0; i < 2000 && !done; i++) {
		PGresult *res = PQexec(pg, sql);
		done = PQntuples(res) > 0;
		PQclear(res);
		(void)usleep(10000);
	}
	PQfinish(pg);
	_exit(done ? 0 : 1);
}

START_TEST(a_commit_that_gave_up_its_standby_is_not_believed)
{
	inbox_world_begin("");
	int status;
	(void)admin("SET synchronous_commit = local");
	postgres_set("synchronous_standby_names", "nobody");
	exec(&world.a, "SELECT pg_sleep(0.2)"); /* it reads the new setting between statements */
	pid_t child = canceller();
	struct claim c = claim_of("\001k", 'x');
	MUST_OK(begin(&world.a, &c, 1));
	work(&world.a, &c);
	enum rc rc = commit(&world.a, &c, 1, 1, NULL);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(status == 0, "nothing ever waited for a standby");
	ck_assert_msg(rc == RC_UNKNOWN, "%s %s", rc_name(rc), world.err.text);
	child = canceller();
	const struct message m = message_of("body");
	const struct park p = park_of(&m, "\001p", 'x', "failed");
	enum park_outcome outcome;
	rc = inbox_park(&world.a.x, &p, &outcome, NULL, &world.err);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_msg(rc == RC_UNKNOWN, "%s %s", rc_name(rc), world.err.text);
	inbox_world_end();
}
END_TEST

/* ---- sessions that are lost ------------------------------------------------------------------ */

static void never_ok(enum rc rc, const char *step)
{
	ck_assert_msg(rc == RC_UNAVAILABLE || rc == RC_UNKNOWN, "%s: %s %s", step, rc_name(rc),
		world.err.text);
	ck_assert_int_eq(db_tx_state(world.a.db), DB_TX_LOST);
	session_close(&world.a);
	session_open(&world.a, NULL);
}

/* Ends session a once it runs a statement that contains a word. */
static pid_t terminate_in(const char *word)
{
	int victim = session_pid(&world.a);
	pid_t pid = fork();
	if (pid != 0)
		return pid;
	PGconn *pg = PQconnectdb(getenv("INBOXD_TEST_ADMIN_CONNINFO"));
	PQclear(PQexec(pg, "SET client_min_messages = error"));
	char sql[300];
	bool done = false;
	(void)snprintf(sql, sizeof sql,
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %d AND state = "
		"'active' "
		"AND query LIKE '%s%%' AND wait_event = 'PgSleep'",
		victim, word);
	for (int i = 0; i < 2000 && !done; i++) {
		PGresult *res = PQexec(pg, sql);
		done = PQntuples(res) > 0;
		PQclear(res);
		(void)usleep(5000);
	}
	PQfinish(pg);
	_exit(done ? 0 : 1);
}

static void did_terminate(pid_t child)
{
	int status;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(status == 0, "the session was never where it was to be ended");
}

START_TEST(a_session_lost_before_or_inside_the_transaction_commits_nothing)
{
	inbox_world_begin("");
	struct claim c = claim_of("\001k", 'x');
	session_terminate(&world.a);
	never_ok(begin(&world.a, &c, 1), "begin");

	MUST_OK(begin(&world.a, &c, 1));
	session_terminate(&world.a);
	c.is_handled = true;
	never_ok(commit(&world.a, &c, 1, 0, NULL), "commit of a session already lost");

	MUST_OK(begin(&world.a, &c, 1));
	session_terminate(&world.a);
	never_ok(inbox_rollback(&world.a.x, &world.err), "rollback");

	pid_t child = terminate_in("SELECT pg_sleep");
	MUST_OK(begin(&world.a, &c, 1));
	work(&world.a, &c);
	queue(&world.a, "SELECT pg_sleep(30)");
	enum rc rc = commit(&world.a, &c, 1, 2, NULL);
	did_terminate(child);
	never_ok(rc, "a statement of the work");
	ck_assert_int_eq(world_markers() + world_effects(), 0);
	ck_assert_int_eq(run_one(&world.a, "\001k", 'x'), CLAIM_NEW);
	inbox_world_end();
}
END_TEST

START_TEST(a_session_lost_in_commit_leaves_the_outcome_to_the_next_claim)
{
	inbox_world_begin("");
	(void)admin("CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
		    "PERFORM pg_sleep(30); RETURN NULL; END $$");
	(void)admin("CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON effect DEFERRABLE INITIALLY "
		    "DEFERRED "
		    "FOR EACH ROW EXECUTE FUNCTION wait()");
	struct claim c = claim_of("\001k", 'x');
	pid_t child = terminate_in("COMMIT");
	MUST_OK(begin(&world.a, &c, 1));
	work(&world.a, &c);
	enum rc rc = commit(&world.a, &c, 1, 1, NULL);
	did_terminate(child);
	ck_assert_int_eq(rc, RC_UNKNOWN);
	session_close(&world.a);
	session_open(&world.a, NULL);
	(void)admin("DROP TRIGGER wait ON effect");
	ck_assert_int_eq(run_one(&world.a, "\001k", 'x'), CLAIM_NEW);
	ck_assert_int_eq(world_effects(), 1);
	inbox_world_end();
}
END_TEST

START_TEST(a_session_lost_while_parking_or_retrying_is_never_taken_for_success)
{
	inbox_world_begin("");
	const struct message m = message_of("body");
	const struct park p = park_of(&m, "\001k", 'x', "waiting");
	enum park_outcome outcome;
	struct park_stream stream = {0};
	struct due due;
	bool found;
	struct outlook o;

	session_terminate(&world.a);
	never_ok(inbox_park(&world.a.x, &p, &outcome, NULL, &world.err), "park");
	session_terminate(&world.a);
	never_ok(inbox_park_begin(&world.a.x, &p, &stream, &world.err), "park_begin");
	MUST_OK(inbox_park_begin(&world.a.x, &p, &stream, &world.err));
	session_terminate(&world.a);
	never_ok(inbox_park_piece(&world.a.x, &stream, bytes_str("piece"), &world.err),
		"park_piece");
	park_stream_done(&stream);
	MUST_OK(inbox_park_begin(&world.a.x, &p, &stream, &world.err));
	MUST_OK(inbox_park_piece(&world.a.x, &stream, bytes_str("piece"), &world.err));
	session_terminate(&world.a);
	never_ok(inbox_park_end(&world.a.x, &stream, &outcome, &world.err), "park_end");
	park_stream_done(&stream);
	ck_assert_int_eq(admin_int("SELECT count(*) FROM parked"), 0);

	ck_assert_int_eq(park(&world.a, &p), PARK_PARKED);
	session_terminate(&world.a);
	never_ok(
		inbox_take_due(&world.a.x, 1000, NULL, NULL, &found, &due, &world.err), "take_due");
	session_terminate(&world.a);
	never_ok(inbox_give_back(&world.a.x, 1, 1, 0, false, &world.err), "give_back");
	session_terminate(&world.a);
	never_ok(inbox_count_crash(&world.a.x, 1, 1, "crashed", "", &outcome, &world.err),
		"count_crash");
	session_terminate(&world.a);
	never_ok(inbox_look_out(&world.a.x, &o, &world.err), "look_out");
	session_terminate(&world.a);
	never_ok(inbox_register(&world.a.x, "/", &world.err), "register");
	session_terminate(&world.a);
	never_ok(inbox_check_schema(&world.a.x, &world.err), "check_schema");
	inbox_world_end();
}
END_TEST

/* ---- sessions that are lost at any moment ---------------------------------------------------- */

enum { LOSSES = 20, KEYS_AT_ONCE = 4 };

struct order {
	int pid;
	unsigned delay_us;
};

/* Ends the sessions it is told to, each after its delay, until the pipe is closed. */
static int start_killer(void)
{
	int ends[2];
	struct order o;
	ck_assert_int_eq(pipe(ends), 0);
	if (fork() != 0) {
		(void)close(ends[0]);
		return ends[1];
	}
	(void)close(ends[1]);
	PGconn *pg = PQconnectdb(getenv("INBOXD_TEST_ADMIN_CONNINFO"));
	PQclear(PQexec(pg, "SET client_min_messages = error"));
	while (read(ends[0], &o, sizeof o) == (ssize_t)sizeof o) {
		char sql[100];
		(void)snprintf(sql, sizeof sql, "SELECT pg_terminate_backend(%d)", o.pid);
		(void)usleep(o.delay_us);
		PQclear(PQexec(pg, sql));
	}
	PQfinish(pg);
	_exit(0);
}

/* A batch, all of it; RC_OK only if it is committed, by this call or before. */
static enum rc try_batch(struct session *s, struct claim *claims)
{
	size_t statements = 0;
	bool gate_failed;
	enum rc rc = begin(s, claims, KEYS_AT_ONCE);
	for (size_t i = 0; i < KEYS_AT_ONCE && rc == RC_OK; i++) {
		const struct db_value key = {
			.data = claims[i].key.data, .size = claims[i].key.size, .binary = true};
		if (claims[i].state != CLAIM_NEW)
			continue;
		rc = db_queue(s->db, "INSERT INTO effect VALUES ($1)", 1, &key, false, &world.err);
		claims[i].is_handled = true;
		statements++;
	}
	return rc == RC_OK ? commit(s, claims, KEYS_AT_ONCE, statements, &gate_failed) : rc;
}

static void reopen(struct session *s)
{
	int32_t id = s->x.id;
	session_close(s);
	MUST_OK(db_conn_open(s->consumer->database, world.schema, &s->db, &world.err));
	inbox_init(&s->x, s->db, s->consumer);
	s->x.id = id;
}

/* Tries until it is committed; returns how often the session was lost on the way.  The delay of a
 * kill is anywhere below a limit that follows the machine: about every second one comes in time. */
static int batch_under_fire(struct claim *claims, int killer)
{
	static unsigned dice = 12345, limit_us = 8000;
	int lost = 0;
	for (;;) {
		dice = dice * 1103515245 + 12345;
		const struct order o = {session_pid(&world.a), (dice >> 8) % limit_us};
		ck_assert_int_eq(write(killer, &o, sizeof o), sizeof o);
		enum rc rc = try_batch(&world.a, claims);
		bool is_lost = rc != RC_OK;
		limit_us = is_lost ? limit_us + limit_us / 4 + 1 : limit_us - limit_us / 4;
		/* The kill may still be on its way: whatever comes next has a session of its own.
		 */
		reopen(&world.a);
		if (!is_lost &&
			claims[0].state != CLAIM_BUSY) /* by a server that has not noticed yet */
			return lost;
		ck_assert(rc == RC_OK || rc == RC_UNKNOWN || rc == RC_UNAVAILABLE);
		lost += is_lost;
	}
}

/* Makes the work and the commit take a few milliseconds each, so that a kill finds them. */
static void slow_down(void)
{
	(void)admin("CREATE FUNCTION doze() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
		    "PERFORM pg_sleep(0.001); RETURN NULL; END $$");
	(void)admin(
		"CREATE TRIGGER doze AFTER INSERT ON effect FOR EACH ROW EXECUTE FUNCTION doze()");
	(void)admin("CREATE CONSTRAINT TRIGGER later AFTER INSERT ON effect DEFERRABLE INITIALLY "
		    "DEFERRED "
		    "FOR EACH ROW EXECUTE FUNCTION doze()");
}

START_TEST(sessions_lost_at_any_moment_lose_nothing_and_repeat_nothing)
{
	int lost = 0, keys = 0;
	inbox_world_begin("");
	slow_down();
	int killer = start_killer();
	while (lost < LOSSES && keys < 1000) {
		char name[KEYS_AT_ONCE][16];
		struct claim claims[KEYS_AT_ONCE];
		for (size_t i = 0; i < KEYS_AT_ONCE; i++) {
			(void)snprintf(name[i], sizeof name[i], "\001%06d", keys++);
			claims[i] = claim_of(name[i], 'x');
		}
		lost += batch_under_fire(claims, killer);
		for (size_t i = 0; i < KEYS_AT_ONCE; i++)
			ck_assert(
				claims[i].state == CLAIM_NEW || claims[i].state == CLAIM_DUPLICATE);
	}
	(void)close(killer);
	ck_assert_int_ge(lost, LOSSES);
	ck_assert_int_eq(world_effects(), keys);
	ck_assert_int_eq(world_markers(), keys);
	ck_assert_int_eq(admin_int("SELECT count(DISTINCT key) FROM effect"), keys);
	inbox_world_end();
}
END_TEST

UNIT_SUITE_TIMEOUT(120, "inbox/claim", a_new_key_commits_with_its_work,
	the_same_content_again_is_a_duplicate,
	other_content_is_looked_at_and_what_cannot_be_compared_is_a_duplicate,
	keys_are_bytes_to_their_last_one, a_rollback_leaves_nothing, identities_do_not_share_keys,
	a_key_in_hand_elsewhere_is_busy_and_holds_nobody_up,
	a_busy_key_alone_is_busy_and_free_after_a_rollback,
	every_one_of_a_batch_may_be_the_busy_one,
	a_claim_that_was_not_handled_is_forgotten_with_the_commit,
	messages_without_key_leave_no_marker_alone_or_among_others,
	a_batch_of_a_thousand_finds_each_key_as_it_is,
	two_sessions_that_want_the_same_thousand_never_wait_for_each_other,
	a_delivery_does_not_claim_what_is_parked, a_result_is_kept_with_its_marker,
	the_gate_is_shut_for_any_transaction_but_the_one_that_claimed,
	the_gate_is_shut_also_when_claims_are_to_be_forgotten_or_looked_up,
	with_the_guard_a_handlers_commit_takes_everything_back,
	the_guard_lets_our_own_commit_through_and_is_gone,
	an_error_of_the_work_takes_the_claims_with_it,
	a_constraint_that_fails_at_commit_takes_everything_back,
	a_commit_is_synchronous_whatever_the_handler_has_set,
	a_commit_is_as_synchronous_as_it_is_configured,
	a_warning_of_the_handlers_casts_no_doubt_on_the_commit,
	a_commit_that_gave_up_its_standby_is_not_believed,
	a_session_lost_before_or_inside_the_transaction_commits_nothing,
	a_session_lost_in_commit_leaves_the_outcome_to_the_next_claim,
	a_session_lost_while_parking_or_retrying_is_never_taken_for_success,
	sessions_lost_at_any_moment_lose_nothing_and_repeat_nothing)

/* SPDX-License-Identifier: MIT */
/* Parking, every outcome of it; retries from their row to their end. */
#include "inbox_world.h"

#include "base/fd.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

static int rows(const char *where)
{
	return admin_int("SELECT count(*) FROM parked WHERE %s", where);
}

static const char *row(const char *what)
{
	return admin("SELECT %s FROM parked WHERE id = %ld", what, (long)world.parked);
}

static const char body[] = "the body";

/* Parks one, in a state, with a key and content. */
static enum park_outcome park_one(const char *key, char content, const char *state)
{
	const struct message m = message_of(body);
	const struct park p = park_of(&m, key, content, state);
	return park(&world.a, &p);
}

static enum park_outcome park_redelivered(const char *key, char content, const char *state)
{
	struct message m = message_of(body);
	m.redelivered = true;
	const struct park p = park_of(&m, key, content, state);
	return park(&world.a, &p);
}

static void hold(const char *key)
{
	struct claim c = claim_of(key, 'x');
	if (world.b.db == NULL)
		session_open(&world.b, NULL);
	MUST_OK(begin(&world.b, &c, 1));
	ck_assert_int_ne(c.state, CLAIM_BUSY);
}

/* ---- outcomes of a delivery ------------------------------------------------------------------ */

START_TEST(a_message_is_parked_whole)
{
	static const char bytes[] = "\0\1\xff binary";
	inbox_world_begin("");
	struct message m = message_of("");
	m.body = bytes_of(bytes, sizeof bytes);
	m.body_size = sizeof bytes;
	m.redelivered = true;
	struct park p = park_of(&m, "\001k", 'x', "failed");
	p.sqlstate = "23505";
	p.attempts = 3;
	p.crashes = 2;
	ck_assert_int_eq(park(&world.a, &p), PARK_PARKED);
	ck_assert_str_eq(
		row("concat_ws('|', consumer, entry, state, reason, detail, sqlstate, attempts, "
		    "crashes, next_at IS NULL, key, queue, redelivered)"),
		admin("SELECT concat_ws('|', %d, 'main', 'failed', 'retry', 'why', '23505', 3, 2, "
		      "true, "
		      "'\\x016b'::bytea, 'q', true)",
			(int)world.a.x.id));
	ck_assert_str_eq(row("exchange::text || routing_key || properties"),
		"\\x6578\\x72006b\\x80000474657874");
	ck_assert_str_eq(row("body"), "\\x0001ff2062696e61727900");
	ck_assert_str_eq(row("body_size"), "11");
	ck_assert_str_eq(row("fingerprint"), "\\x0178787878787878787878787878787878");
	ck_assert_int_eq(world_markers(), 0); /* claimed on the way, and taken back */
	inbox_world_end();
}
END_TEST

START_TEST(a_waiting_message_is_due_after_its_delay)
{
	struct outlook o;
	inbox_world_begin("");
	MUST_OK(inbox_look_out(&world.a.x, &o, &world.err));
	ck_assert_uint_eq(o.next_due_ms, UINT64_MAX);
	const struct message m = message_of(body);
	struct park p = park_of(&m, "\001k", 'x', "waiting");
	p.delay_ms = 3600000;
	ck_assert_int_eq(park(&world.a, &p), PARK_PARKED);
	MUST_OK(inbox_look_out(&world.a.x, &o, &world.err));
	ck_assert_uint_le(o.next_due_ms, 3600000);
	ck_assert_uint_ge(o.next_due_ms, 3500000);
	p = park_of(&m, "\001l", 'x', "waiting");
	ck_assert_int_eq(park(&world.a, &p), PARK_PARKED);
	MUST_OK(inbox_look_out(&world.a.x, &o, &world.err));
	ck_assert_uint_eq(o.next_due_ms, 0);
	ck_assert_uint_eq(o.parked, 2);
	inbox_world_end();
}
END_TEST

START_TEST(a_delay_of_a_year_is_a_delay_of_a_year)
{
	inbox_world_begin("");
	const struct message m = message_of(body);
	struct park p = park_of(&m, "\001k", 'x', "waiting");
	p.delay_ms = UINT64_C(366) * 24 * 3600 * 1000;
	ck_assert_int_eq(park(&world.a, &p), PARK_PARKED);
	ck_assert_str_eq(row("round(extract(epoch FROM next_at - parked_at) / 86400)"), "366");
	inbox_world_end();
}
END_TEST

START_TEST(other_content_is_a_mismatch_with_work_committed_and_with_work_parked)
{
	inbox_world_begin("");
	(void)run_one(&world.a, "\001k", 'x');
	ck_assert_int_eq(park_one("\001k", 'y', "failed"), PARK_MISMATCH);
	ck_assert_str_eq(row("state || ' ' || reason || ': ' || detail"),
		"mismatch mismatch: the key is known with other content");
	ck_assert_int_eq(park_one("\001k", 'z', NULL), PARK_MISMATCH);
	ck_assert_int_eq(park_one("\001l", 'x', "waiting"), PARK_PARKED);
	ck_assert_int_eq(park_one("\001l", 'y', NULL), PARK_MISMATCH);
	ck_assert_str_eq(row("(next_at IS NULL)::text"), "true");
	ck_assert_int_eq(park_one("\001l", 'z', "waiting"), PARK_MISMATCH);
	ck_assert_int_eq(rows("state = 'mismatch'"), 4);
	inbox_world_end();
}
END_TEST

START_TEST(a_known_mismatch_is_there_already)
{
	inbox_world_begin("");
	(void)run_one(&world.a, "\001k", 'x');
	ck_assert_int_eq(park_one("\001k", 'y', NULL), PARK_MISMATCH);
	ck_assert_int_eq(park_one("\001k", 'y', NULL), PARK_PRESENT);
	ck_assert_int_eq(park_redelivered("\001k", 'y', "failed"), PARK_PRESENT);
	ck_assert_int_eq(rows("true"), 1);
	inbox_world_end();
}
END_TEST

START_TEST(a_discarded_message_does_not_keep_its_key_from_other_content)
{
	inbox_world_begin("");
	ck_assert_int_eq(park_one("\001k", 'x', "failed"), PARK_PARKED);
	(void)admin("UPDATE parked SET state = 'discarded'");
	ck_assert_int_eq(park_one("\001k", 'y', NULL), PARK_AGAIN);
	ck_assert_int_eq(park_one("\001k", 'y', "failed"), PARK_PARKED);
	inbox_world_end();
}
END_TEST

START_TEST(committed_work_makes_it_a_duplicate_whatever_is_to_be_parked)
{
	inbox_world_begin("");
	(void)run_one(&world.a, "\001k", 'x');
	(void)run_one(&world.a, "\001n", '\0');
	ck_assert_int_eq(park_one("\001k", 'x', "failed"), PARK_DUPLICATE);
	ck_assert_int_eq(park_one("\001k", 'x', "waiting"), PARK_DUPLICATE);
	ck_assert_int_eq(park_one("\001k", 'x', NULL), PARK_DUPLICATE);
	ck_assert_int_eq(park_one("\001k", '\0', "failed"), PARK_DUPLICATE);
	ck_assert_int_eq(park_one("\001n", 'x', "failed"), PARK_DUPLICATE);
	ck_assert_int_eq(rows("true"), 0);
	ck_assert_int_eq(world_markers(), 2);
	inbox_world_end();
}
END_TEST

START_TEST(a_copy_of_what_is_parked_finds_it_present)
{
	static const char *const states[] = {"waiting", "unresolved", "failed", "discarded"};
	inbox_world_begin("");
	ck_assert_int_eq(park_one("\001k", 'x', "waiting"), PARK_PARKED);
	int64_t id = world.parked;
	for (size_t i = 0; i < 4; i++) {
		(void)admin("UPDATE parked SET state = '%s', next_at = %s", states[i],
			i == 0 ? "now() + interval '1 hour'" : "NULL");
		world.parked = 0;
		ck_assert_int_eq(park_redelivered("\001k", 'x', NULL), PARK_PRESENT);
		ck_assert_int_eq(world.parked, id);
		ck_assert_int_eq(park_one("\001k", 'x', "failed"), PARK_PRESENT);
		ck_assert_str_eq(row("state"), states[i]);
		if (i < 2) {
			ck_assert_int_eq(park_one("\001k", 'x', NULL), PARK_PRESENT);
			ck_assert_str_eq(row("state"), states[i]);
		}
	}
	ck_assert_int_eq(rows("true"), 1);
	inbox_world_end();
}
END_TEST

START_TEST(what_somebody_sends_again_gets_a_fresh_budget)
{
	static const char *const states[] = {"failed", "discarded"};
	inbox_world_begin("");
	ck_assert_int_eq(park_one("\001k", 'x', "failed"), PARK_PARKED);
	for (size_t i = 0; i < 2; i++) {
		(void)admin(
			"UPDATE parked SET state = '%s', next_at = NULL, attempts = 6, crashes = 3",
			states[i]);
		const char *token = row("token");
		ck_assert_int_eq(park_one("\001k", 'x', NULL), PARK_REVIVED);
		ck_assert_str_eq(row("concat_ws('|', state, attempts, crashes, next_at <= "
				     "clock_timestamp())"),
			"waiting|0|0|t");
		ck_assert_str_ne(row("token"), token);
	}
	(void)run_one(&world.a, "\001other", 'x');
	inbox_world_end();
}
END_TEST

/* Either by a row that is not discarded or by committed work. */
START_TEST(a_discarded_mismatch_stays_one_whoever_wants_it_back_while_its_key_is_taken)
{
	static const char of_x[] = "concat_ws('|', state, reason, attempts)";
	for (int is_committed = 0; is_committed < 2; is_committed++) {
		inbox_world_begin("");
		if (is_committed)
			(void)run_one(&world.a, "\001k", 'x');
		else
			ck_assert_int_eq(park_one("\001k", 'x', "failed"), PARK_PARKED);
		ck_assert_int_eq(park_one("\001k", 'y', "failed"), PARK_MISMATCH);
		int64_t id = world.parked;
		(void)admin("UPDATE parked SET state = 'discarded', reason = 'why' WHERE id = %ld",
			(long)id);
		ck_assert_int_eq(park_one("\001k", 'y', NULL), PARK_MISMATCH);
		ck_assert_int_eq(world.parked, id);
		ck_assert_str_eq(row(of_x), "mismatch|mismatch|1");
		ck_assert_int_eq(park_one("\001k", 'y', NULL), PARK_PRESENT);
		(void)admin("UPDATE parked SET state = 'discarded', reason = 'why' WHERE id = %ld",
			(long)id);
		ck_assert_str_eq(admin("SELECT parked_restore(%ld) IS NULL", (long)id), "t");
		ck_assert_str_eq(row(of_x), "mismatch|mismatch|1");
		/* With its key free it is as any other. */
		(void)admin("UPDATE parked SET state = 'discarded'");
		(void)admin("DELETE FROM inbox");
		ck_assert_str_eq(admin("SELECT parked_restore(%ld) IS NULL", (long)id), "t");
		ck_assert_str_eq(row("state"), "failed");
		(void)admin("UPDATE parked SET state = 'discarded'");
		ck_assert_int_eq(park_one("\001k", 'y', NULL), PARK_REVIVED);
		inbox_world_end();
	}
}
END_TEST

START_TEST(a_key_in_hand_elsewhere_is_busy_for_parking_too)
{
	inbox_world_begin("");
	hold("\001k");
	ck_assert_int_eq(park_one("\001k", 'x', "failed"), PARK_BUSY);
	ck_assert_int_eq(park_one("\001k", 'y', NULL), PARK_BUSY);
	ck_assert_int_eq(park_one("\001l", 'x', "failed"), PARK_PARKED);
	roll_back(&world.b);
	ck_assert_int_eq(park_one("\001k", 'x', "failed"), PARK_PARKED);
	inbox_world_end();
}
END_TEST

START_TEST(nothing_known_means_claim_it_again)
{
	inbox_world_begin("");
	ck_assert_int_eq(park_one("\001k", 'x', NULL), PARK_AGAIN);
	ck_assert_int_eq(rows("true") + world_markers(), 0);
	ck_assert_int_eq(run_one(&world.a, "\001k", 'x'), CLAIM_NEW);
	inbox_world_end();
}
END_TEST

START_TEST(without_a_key_a_redelivered_copy_is_known_by_all_of_it)
{
	inbox_world_begin("");
	struct message m = message_of(body);
	struct park p = park_of(&m, NULL, '\0', "failed");
	ck_assert_int_eq(park(&world.a, &p), PARK_PARKED);
	ck_assert_str_eq(row("key IS NULL"), "t");
	ck_assert_str_eq(row("length(fingerprint)"), "32");
	/* Sent twice is two; delivered twice is one. */
	ck_assert_int_eq(park(&world.a, &p), PARK_PARKED);
	m.redelivered = true;
	ck_assert_int_eq(park(&world.a, &p), PARK_PRESENT);
	m.body = bytes_str("The body");
	ck_assert_int_eq(park(&world.a, &p), PARK_PARKED);
	m.body = bytes_str(body);
	m.properties = bytes_of("\x80\0\4Text", 7);
	ck_assert_int_eq(park(&world.a, &p), PARK_PARKED);
	ck_assert_int_eq(rows("true"), 4);
	inbox_world_end();
}
END_TEST

START_TEST(without_a_key_messages_to_different_places_are_two_and_counts_of_a_broker_are_nothing)
{
	/* Headers {b: true, a: true}, and the same as a broker gives it out again. */
	static const char first[] = "\x20\0\0\0\0\10\1bt\1\1at\1",
			  later[] = "\x20\0\0\0\0\42\1at\1\1bt\1"
				    "\20x-delivery-countl\0\0\0\0\0\0\0\1";
	inbox_world_begin("");
	struct message m = message_of(body);
	struct park p = park_of(&m, NULL, '\0', "failed");
	m.redelivered = true;
	m.properties = bytes_of(first, sizeof first - 1);
	ck_assert_int_eq(park(&world.a, &p), PARK_PARKED);
	m.routing_key = bytes_str("elsewhere");
	ck_assert_int_eq(park(&world.a, &p), PARK_PARKED);
	m.exchange = bytes_str("another");
	ck_assert_int_eq(park(&world.a, &p), PARK_PARKED);
	m.properties = bytes_of(later, sizeof later - 1);
	ck_assert_int_eq(park(&world.a, &p), PARK_PRESENT);
	ck_assert_int_eq(rows("true"), 3);
	inbox_world_end();
}
END_TEST

START_TEST(what_cannot_be_decoded_is_never_taken_for_another)
{
	inbox_world_begin("");
	struct message m = message_of("");
	m.redelivered = true;
	struct park p = park_of(&m, NULL, '\0', "failed");
	p.reason = "undecodable";
	ck_assert_int_eq(park(&world.a, &p), PARK_PARKED);
	ck_assert_int_eq(park(&world.a, &p), PARK_PARKED);
	ck_assert_int_eq(rows("true"), 2);
	inbox_world_end();
}
END_TEST

START_TEST(empty_and_absent_parts_are_parked_as_empty)
{
	inbox_world_begin("");
	const struct message m = {.body_size = 0};
	const struct park p = {
		.message = &m, .key = bytes_str("\001k"), .state = "failed", .reason = "rejected"};
	ck_assert_int_eq(park(&world.a, &p), PARK_PARKED);
	ck_assert_str_eq(
		row("concat_ws('|', exchange, routing_key, properties, body, fingerprint, detail)"),
		"\\x|\\x|\\x|\\x|\\x|");
	inbox_world_end();
}
END_TEST

START_TEST(an_unknown_state_is_refused_and_leaves_the_session_fit_for_work)
{
	inbox_world_begin("");
	const struct message m = message_of(body);
	const struct park p = park_of(&m, "\001k", 'x', "nonsense");
	enum park_outcome outcome;
	enum rc rc = inbox_park(&world.a.x, &p, &outcome, NULL, &world.err);
	ck_assert(rc != RC_OK && rc != RC_UNKNOWN && rc != RC_UNAVAILABLE);
	ck_assert_int_eq(rows("true"), 0);
	ck_assert_int_eq(park_one("\001k", 'x', "failed"), PARK_PARKED);
	inbox_world_end();
}
END_TEST

/* ---- bodies in pieces ------------------------------------------------------------------------ */

static enum park_outcome stream(const struct message *m, const char *const *pieces, size_t n)
{
	const struct park p = park_of(m, NULL, '\0', "failed");
	struct park_stream s = {0};
	enum park_outcome outcome;
	MUST_OK(inbox_park_begin(&world.a.x, &p, &s, &world.err));
	for (size_t i = 0; i < n; i++)
		MUST_OK(inbox_park_piece(&world.a.x, &s, bytes_str(pieces[i]), &world.err));
	MUST_OK(inbox_park_end(&world.a.x, &s, &outcome, &world.err));
	world.parked = s.id;
	park_stream_done(&s);
	ck_assert_int_eq(db_tx_state(world.a.db), DB_TX_NONE);
	return outcome;
}

START_TEST(a_body_in_pieces_is_the_same_message_as_in_one)
{
	static const char *const pieces[] = {"the ", "bo", "dy"},
				 *const others[] = {"th", "e body"};
	inbox_world_begin("");
	struct message m = message_of(body);
	m.body = bytes_of(NULL, 0);
	ck_assert_int_eq(stream(&m, pieces, 3), PARK_PARKED);
	ck_assert_str_eq(row("parked_body(id)"), admin("SELECT 'the body'::bytea"));
	ck_assert_str_eq(row("concat_ws('|', state, body IS NULL, body_size)"), "failed|t|8");
	m.redelivered = true;
	ck_assert_int_eq(stream(&m, others, 2), PARK_PRESENT);
	ck_assert_int_eq(park_redelivered(NULL, '\0', "failed"), PARK_PRESENT);
	ck_assert_int_eq(stream(&m, others, 1), PARK_PARKED);
	ck_assert_int_eq(rows("true"), 2);
	ck_assert_int_eq(admin_int("SELECT count(*) FROM parked_chunk"), 4);
	inbox_world_end();
}
END_TEST

START_TEST(a_body_that_does_not_end_leaves_nothing)
{
	inbox_world_begin("");
	const struct message m = message_of(body);
	const struct park p = park_of(&m, NULL, '\0', "failed");
	struct park_stream s = {0};
	MUST_OK(inbox_park_begin(&world.a.x, &p, &s, &world.err));
	MUST_OK(inbox_park_piece(&world.a.x, &s, bytes_str("x"), &world.err));
	MUST_OK(inbox_park_abort(&world.a.x, &world.err));
	park_stream_done(&s);
	ck_assert_int_eq(rows("true") + admin_int("SELECT count(*) FROM parked_chunk"), 0);
	ck_assert_int_eq(park_one("\001k", 'x', "failed"), PARK_PARKED);
	inbox_world_end();
}
END_TEST

/* ---- taking a retry -------------------------------------------------------------------------- */

enum { LEASE_MS = 60000 };

/* Takes one that is due; false if there is none. */
/* What was ended on the way: key, state, reason. */
static char ended[256];

static void note_ended(void *arg, const struct due *d)
{
	size_t n = strlen(ended);
	(void)arg;
	(void)snprintf(ended + n, sizeof ended - n, "%.*s %.*s %.*s;", (int)d->key.size - 1,
		(const char *)d->key.data + 1, (int)d->state.size, (const char *)d->state.data,
		(int)d->reason.size, (const char *)d->reason.data);
}

static bool take(struct due *d)
{
	bool found;
	MUST_OK(inbox_take_due(&world.a.x, LEASE_MS, note_ended, NULL, &found, d, &world.err));
	return found;
}

static void take_none(void)
{
	struct due d;
	ck_assert(!take(&d));
}

START_TEST(a_due_message_is_taken_whole_and_only_once)
{
	struct due d;
	inbox_world_begin("");
	take_none();
	ck_assert_int_eq(park_one("\001k", 'x', "waiting"), PARK_PARKED);
	const char *before = row("token");
	ck_assert(take(&d));
	ck_assert_int_eq(d.parked, world.parked);
	ck_assert_str_eq(row("token"), admin("SELECT %ld", (long)d.token));
	ck_assert_str_ne(row("token"), before);
	ck_assert_uint_eq(d.attempts, 2);
	ck_assert_uint_eq(d.crashes, 0);
	ck_assert(bytes_equal(d.key, bytes_str("\001k")));
	ck_assert(bytes_equal(d.fingerprint, fingerprint_of('x')));
	ck_assert(bytes_equal(d.message.exchange, bytes_str("ex")));
	ck_assert(bytes_equal(d.message.routing_key, bytes_of("r\0k", 3)));
	ck_assert(bytes_equal(d.message.properties, bytes_of("\x80\0\4text", 7)));
	ck_assert(bytes_equal(d.message.body, bytes_str(body)));
	ck_assert_uint_eq(d.message.body_size, 8);
	ck_assert(!d.message.redelivered);
	ck_assert_str_eq(row("concat_ws('|', state, attempts, "
			     "round(extract(epoch FROM next_at - changed_at)))"),
		"waiting|2|60");
	due_done(&d);
	take_none();
	inbox_world_end();
}
END_TEST

START_TEST(a_message_is_not_taken_before_its_time_nor_by_another_identity)
{
	struct due d;
	bool found;
	inbox_world_begin("");
	const struct message m = message_of(body);
	struct park p = park_of(&m, "\001k", 'x', "waiting");
	p.delay_ms = 3600000;
	(void)park(&world.a, &p);
	take_none();
	(void)admin("UPDATE parked SET next_at = now()");
	world.b.consumer = other_config("  other:\n    queue: q\n    handler: sql\n");
	session_open(&world.b, NULL);
	MUST_OK(inbox_take_due(&world.b.x, LEASE_MS, note_ended, NULL, &found, &d, &world.err));
	ck_assert(!found);
	ck_assert(take(&d));
	due_done(&d);
	inbox_world_end();
}
END_TEST

START_TEST(the_one_due_longest_is_taken_first)
{
	struct due d;
	inbox_world_begin("");
	(void)park_one("\001a", 'x', "waiting");
	(void)park_one("\001b", 'x', "waiting");
	(void)admin(
		"UPDATE parked SET next_at = now() - interval '1 minute' WHERE key = '\\x0162'");
	ck_assert(take(&d));
	ck_assert(bytes_equal(d.key, bytes_str("\001b")));
	due_done(&d);
	ck_assert(take(&d));
	ck_assert(bytes_equal(d.key, bytes_str("\001a")));
	due_done(&d);
	inbox_world_end();
}
END_TEST

START_TEST(a_busy_key_is_passed_over)
{
	struct due d;
	inbox_world_begin("");
	(void)park_one("\001a", 'x', "waiting");
	(void)park_one("\001b", 'x', "waiting");
	hold("\001a");
	ck_assert(take(&d));
	ck_assert(bytes_equal(d.key, bytes_str("\001b")));
	due_done(&d);
	take_none();
	roll_back(&world.b);
	ck_assert(take(&d));
	ck_assert(bytes_equal(d.key, bytes_str("\001a")));
	due_done(&d);
	inbox_world_end();
}
END_TEST

START_TEST(what_needs_no_run_is_ended_on_the_way)
{
	struct due d;
	inbox_world_begin("retry: {immediate: 1, delays: [1s]}\ncrash_limit: 3");
	(void)park_one("\001done", 'x', "waiting");
	(void)park_one("\001other", 'x', "waiting");
	(void)park_one("\001used", 'x', "waiting");
	(void)park_one("\001died", 'x', "waiting");
	(void)admin("UPDATE parked SET attempts = 3, run_token = token WHERE key = '\\x01' || 'used'::bytea");
	(void)admin("UPDATE parked SET crashes = 3 WHERE key = '\\x01' || 'died'::bytea");
	(void)admin("INSERT INTO inbox (consumer, key, fingerprint) "
		    "SELECT consumer, key, CASE WHEN key = '\\x01' || 'done'::bytea THEN "
		    "fingerprint ELSE "
		    "'\\x0179797979797979797979797979797979' END FROM parked "
		    "WHERE key IN ('\\x01' || 'done'::bytea, '\\x01' || 'other'::bytea)");
	(void)park_one("\001last", 'x', "waiting");
	ck_assert(take(&d));
	ck_assert(bytes_equal(d.key, bytes_str("\001last")));
	due_done(&d);
	ck_assert_str_eq(
		admin("SELECT string_agg(key_text(key) || ' ' || state || ' ' || attempts, "
		      "', ' ORDER BY key) FROM parked"),
		"died failed 1, last waiting 2, other mismatch 1, used failed 3");
	/* None of them without a word. */
	ck_assert_str_eq(ended, "other mismatch mismatch;used failed crashed;died failed retry;");
	take_none();
	inbox_world_end();
}
END_TEST

/* A shorter schedule ends what waits; nothing has crashed. */
START_TEST(a_crash_is_the_reason_only_where_a_run_was_not_answered)
{
	struct due d;
	inbox_world_begin("retry: {immediate: 1, delays: [1s]}");
	(void)park_one("\001k", 'x', "waiting");
	ck_assert(take(&d));
	MUST_OK(inbox_give_back(&world.a.x, d.parked, d.token, 0, false, &world.err));
	due_done(&d);
	(void)admin("UPDATE parked SET attempts = 4");
	take_none();
	ck_assert_str_eq(row("concat_ws('|', state, reason, detail)"),
		"failed|retry|it has no runs left (runs 4 of 3, crashes 0 of 3); before: why");
	(void)admin("UPDATE parked SET state = 'waiting', attempts = 2, next_at = now()");
	ck_assert(take(&d));
	due_done(&d);
	(void)admin("UPDATE parked SET next_at = now()");
	take_none();
	ck_assert_str_eq(row("concat_ws('|', state, reason, attempts)"), "failed|crashed|3");
	ck_assert_ptr_nonnull(strstr(row("detail"), "without a word"));
	inbox_world_end();
}
END_TEST

START_TEST(a_body_kept_in_pieces_is_taken_whole)
{
	static const char *const pieces[] = {"the ", "bo", "dy"};
	struct due d;
	inbox_world_begin("");
	const struct message m = message_of(body);
	ck_assert_int_eq(stream(&m, pieces, 3), PARK_PARKED);
	(void)admin("UPDATE parked SET state = 'waiting', next_at = now()");
	ck_assert(take(&d));
	ck_assert(bytes_equal(d.message.body, bytes_str(body)));
	ck_assert_uint_eq(d.key.size, 0);
	due_done(&d);
	inbox_world_end();
}
END_TEST

/* ---- running it ------------------------------------------------------------------------------ */

static struct claim claim_of_due(const struct due *d)
{
	return (struct claim){.key = d->key,
		.fingerprint = d->fingerprint,
		.parked = d->parked,
		.parked_token = d->token};
}

static void take_one(const char *key, struct due *d)
{
	ck_assert_int_eq(park_one(key, 'x', "waiting"), PARK_PARKED);
	ck_assert(take(d));
}

static void run_due(const char *key, bool right_token)
{
	struct due d;
	take_one(key, &d);
	struct claim c = claim_of_due(&d);
	c.parked_token += !right_token;
	MUST_OK(begin(&world.a, &c, 1));
	ck_assert_int_eq(c.state,
		!right_token          ? CLAIM_LOOK
			: key != NULL ? CLAIM_NEW
				      : CLAIM_UNKEYED);
	if (right_token) {
		work(&world.a, &c);
		MUST_OK(commit(&world.a, &c, 1, 1, NULL));
	} else {
		roll_back(&world.a);
	}
	ck_assert_int_eq(world_effects(), right_token);
	ck_assert_int_eq(rows("true"), !right_token);
	ck_assert_int_eq(world_markers(), right_token && key != NULL);
	due_done(&d);
	(void)admin("DELETE FROM parked");
	(void)admin("DELETE FROM inbox");
	(void)admin("DELETE FROM effect");
}

START_TEST(the_row_of_a_retry_goes_with_its_work_if_it_still_has_that_token)
{
	inbox_world_begin("");
	run_due("\001k", true);
	run_due("\001k", false);
	run_due(NULL, true);
	run_due(NULL, false);
	inbox_world_end();
}
END_TEST

START_TEST(a_retry_rolled_back_keeps_its_row)
{
	struct due d;
	inbox_world_begin("");
	take_one("\001k", &d);
	struct claim c = claim_of_due(&d);
	MUST_OK(begin(&world.a, &c, 1));
	ck_assert_int_eq(c.state, CLAIM_NEW);
	roll_back(&world.a);
	ck_assert_int_eq(rows("state = 'waiting' AND attempts = 2"), 1);
	due_done(&d);
	inbox_world_end();
}
END_TEST

START_TEST(a_retry_whose_key_was_committed_or_is_busy_is_not_run)
{
	struct due d;
	inbox_world_begin("");
	take_one("\001k", &d);
	struct claim c = claim_of_due(&d);
	session_open(&world.b, NULL);
	struct claim held = claim_of("\001k", 'x');
	MUST_OK(begin(&world.b, &held, 1));
	MUST_OK(begin(&world.a, &c, 1));
	ck_assert_int_eq(c.state, CLAIM_BUSY);
	roll_back(&world.a);
	roll_back(&world.b);
	(void)admin("INSERT INTO inbox (consumer, key, fingerprint) SELECT consumer, key, "
		    "fingerprint FROM parked");
	MUST_OK(begin(&world.a, &c, 1));
	ck_assert_int_eq(c.state, CLAIM_LOOK);
	roll_back(&world.a);
	ck_assert_int_eq(rows("true"), 1);
	due_done(&d);
	inbox_world_end();
}
END_TEST

/* ---- parking it again ------------------------------------------------------------------------ */

static struct park park_of_due(const struct due *d, const char *state)
{
	struct park p = {.message = &d->message,
		.key = d->key,
		.fingerprint = d->fingerprint,
		.state = state,
		.reason = "rejected",
		.detail = "no good",
		.sqlstate = "23514",
		.attempts = d->attempts,
		.crashes = d->crashes,
		.delay_ms = 5000,
		.parked = d->parked,
		.parked_token = d->token};
	return p;
}

START_TEST(a_retry_that_fails_again_changes_its_row)
{
	struct due d;
	inbox_world_begin("");
	take_one("\001k", &d);
	struct park p = park_of_due(&d, "waiting");
	ck_assert_int_eq(park(&world.a, &p), PARK_PARKED);
	ck_assert_int_eq(world.parked, d.parked);
	ck_assert_str_eq(row("concat_ws('|', state, reason, detail, sqlstate, attempts, "
			     "round(extract(epoch FROM next_at - changed_at)))"),
		"waiting|rejected|no good|23514|2|5");
	ck_assert_int_eq(park(&world.a, &p), PARK_DROPPED); /* that token is used up */
	due_done(&d);
	(void)admin("UPDATE parked SET next_at = now()");
	ck_assert(take(&d));
	p = park_of_due(&d, "failed");
	ck_assert_int_eq(park(&world.a, &p), PARK_PARKED);
	ck_assert_str_eq(row("concat_ws('|', state, next_at IS NULL)"), "failed|t");
	due_done(&d);
	inbox_world_end();
}
END_TEST

START_TEST(a_retry_whose_row_was_changed_by_somebody_else_is_dropped)
{
	static const char *const changes[] = {
		"UPDATE parked SET state = 'discarded', next_at = NULL",
		"UPDATE parked SET token = token + 1", "DELETE FROM parked"};
	inbox_world_begin("");
	for (size_t i = 0; i < 3; i++) {
		struct due d;
		take_one("\001k", &d);
		(void)admin("%s", changes[i]);
		const char *before = admin("SELECT string_agg(parked::text, '') FROM parked");
		struct park p = park_of_due(&d, "failed");
		ck_assert_int_eq(park(&world.a, &p), PARK_DROPPED);
		ck_assert_str_eq(admin("SELECT string_agg(parked::text, '') FROM parked"), before);
		due_done(&d);
		(void)admin("DELETE FROM parked");
	}
	inbox_world_end();
}
END_TEST

START_TEST(a_retry_that_turns_out_committed_or_mismatched_is_ended)
{
	struct due d;
	inbox_world_begin("");
	take_one("\001k", &d);
	(void)admin("INSERT INTO inbox (consumer, key, fingerprint) SELECT consumer, key, "
		    "fingerprint FROM parked");
	struct park p = park_of_due(&d, "failed");
	ck_assert_int_eq(park(&world.a, &p), PARK_DUPLICATE);
	ck_assert_int_eq(rows("true"), 0);
	due_done(&d);
	(void)admin("DELETE FROM inbox");
	take_one("\001k", &d);
	(void)admin("INSERT INTO inbox (consumer, key, fingerprint) "
		    "SELECT consumer, key, '\\x0179797979797979797979797979797979' FROM parked");
	p = park_of_due(&d, "waiting");
	ck_assert_int_eq(park(&world.a, &p), PARK_MISMATCH);
	ck_assert_int_eq(rows("state = 'mismatch' AND next_at IS NULL"), 1);
	due_done(&d);
	inbox_world_end();
}
END_TEST

START_TEST(a_retry_that_finds_its_key_taken_by_other_content_revives_no_discarded_copy)
{
	struct due d;
	enum park_outcome outcome;
	inbox_world_begin("");
	ck_assert_int_eq(park_one("\001k", 'x', "failed"), PARK_PARKED);
	ck_assert_int_eq(park_one("\001k", 'y', "failed"), PARK_MISMATCH);
	int64_t copy = world.parked;
	(void)admin("UPDATE parked SET state = 'discarded' WHERE id = %ld", (long)copy);
	for (int is_free = 0; is_free < 2; is_free++) {
		take_one(NULL, &d);
		MUST_OK(inbox_adopt_key(&world.a.x, &d, bytes_str("\001k"), fingerprint_of('y'),
			&outcome, &world.err));
		ck_assert_int_eq(outcome, is_free ? PARK_PRESENT : PARK_MISMATCH);
		ck_assert_int_eq(rows("key IS NULL"), 0);
		world.parked = copy;
		ck_assert_str_eq(row("state"), is_free ? "waiting" : "mismatch");
		due_done(&d);
		(void)admin("UPDATE parked SET state = 'discarded', next_at = NULL");
	}
	inbox_world_end();
}
END_TEST

START_TEST(a_retry_without_key_is_parked_again_as_well)
{
	struct due d;
	inbox_world_begin("");
	take_one(NULL, &d);
	struct park p = park_of_due(&d, "failed");
	ck_assert_int_eq(park(&world.a, &p), PARK_PARKED);
	ck_assert_int_eq(rows("state = 'failed' AND key IS NULL"), 1);
	due_done(&d);
	inbox_world_end();
}
END_TEST

/* As when another session parks it while the statement that takes is under way: that statement's own
 * snapshot does not have the row. */
START_TEST(the_body_of_a_row_younger_than_the_statement_is_found)
{
	inbox_world_begin("");
	ck_assert_str_eq(
		admin("SELECT p.outcome || ' ' || encode(parked_body(p.id), 'escape') FROM "
		      "park(%d, 'orders', '\\x016b', '', 1, 'waiting', 'retry', '', '', 1, 0, 0, NULL, NULL, "
		      "'q', '', '', false, '\\x0000', 'the body', 8) p",
			(int)world.a.x.id),
		"parked the body");
	inbox_world_end();
}
END_TEST

/* ---- attempts given back, crashes counted ---------------------------------------------------- */

START_TEST(an_attempt_is_given_back_once_and_only_with_its_token)
{
	struct due d;
	inbox_world_begin("");
	take_one("\001k", &d);
	MUST_OK(inbox_give_back(&world.a.x, d.parked, d.token + 1, 0, false, &world.err));
	ck_assert_str_eq(row("attempts"), "2");
	MUST_OK(inbox_give_back(&world.a.x, d.parked, d.token, 0, false, &world.err));
	ck_assert_str_eq(row("concat_ws('|', attempts, next_at <= clock_timestamp())"), "1|t");
	MUST_OK(inbox_give_back(&world.a.x, d.parked, d.token, 0, false, &world.err));
	ck_assert_str_eq(row("attempts"), "1");
	MUST_OK(inbox_give_back(&world.a.x, 999999, 1, 0, false, &world.err));
	due_done(&d);
	ck_assert(take(&d));
	ck_assert_uint_eq(d.attempts, 2);
	due_done(&d);
	inbox_world_end();
}
END_TEST

static enum park_outcome count_crash(int64_t parked, int64_t token)
{
	enum park_outcome outcome = PARK_AGAIN;
	MUST_OK(inbox_count_crash(
		&world.a.x, parked, token, "crashed", "signal 11", &outcome, &world.err));
	return outcome;
}

START_TEST(a_crash_is_counted_once_until_there_are_enough)
{
	struct due d;
	inbox_world_begin("retry: {immediate: 1, delays: [10s, 10s, 10s, 10s]}\ncrash_limit: 2");
	take_one("\001k", &d);
	ck_assert_int_eq(count_crash(d.parked, d.token + 1), PARK_DROPPED);
	ck_assert_int_eq(count_crash(d.parked, d.token), PARK_PARKED);
	ck_assert_str_eq(row("concat_ws('|', state, reason, detail, attempts, crashes)"),
		"waiting|crashed|signal 11|2|1");
	ck_assert_str_eq(row("(next_at - changed_at BETWEEN '7 s' AND '13 s')::text"), "true");
	ck_assert_int_eq(count_crash(d.parked, d.token), PARK_DROPPED);
	due_done(&d);
	(void)admin("UPDATE parked SET next_at = now()");
	ck_assert(take(&d));
	ck_assert_uint_eq(d.crashes, 1);
	ck_assert_int_eq(count_crash(d.parked, d.token), PARK_PARKED);
	ck_assert_str_eq(
		row("concat_ws('|', state, attempts, crashes, next_at IS NULL)"), "failed|3|2|t");
	due_done(&d);
	inbox_world_end();
}
END_TEST

START_TEST(a_crash_on_the_last_attempt_is_the_end)
{
	struct due d;
	inbox_world_begin("retry: {immediate: 1, delays: []}\ncrash_limit: 5");
	take_one("\001k", &d);
	ck_assert_int_eq(count_crash(d.parked, d.token), PARK_PARKED);
	ck_assert_str_eq(row("concat_ws('|', state, attempts, crashes)"), "failed|2|1");
	due_done(&d);
	inbox_world_end();
}
END_TEST

START_TEST(a_crash_is_not_counted_while_the_dead_session_holds_the_key)
{
	struct due d;
	inbox_world_begin("");
	take_one("\001k", &d);
	session_open(&world.b, NULL);
	struct claim c = claim_of_due(&d);
	MUST_OK(begin(&world.b, &c, 1));
	ck_assert_int_eq(count_crash(d.parked, d.token), PARK_BUSY);
	session_terminate(&world.b);
	ck_assert_int_eq(count_crash(d.parked, d.token), PARK_PARKED);
	ck_assert_int_eq(count_crash(999999, 1), PARK_DROPPED);
	due_done(&d);
	inbox_world_end();
}
END_TEST

START_TEST(a_crash_without_key_waits_for_no_row_that_the_dead_session_holds)
{
	struct due d;
	inbox_world_begin("");
	take_one(NULL, &d);
	session_open(&world.b, NULL);
	struct claim c = claim_of_due(&d);
	MUST_OK(begin(&world.b, &c, 1));
	MUST_OK(db_exec(world.a.db, "SET lock_timeout = '2s'", 0, NULL, false, NULL, &world.err));
	ck_assert_int_eq(count_crash(d.parked, d.token), PARK_BUSY);
	ck_assert_int_eq(count_crash(d.parked, d.token + 1), PARK_DROPPED);
	session_terminate(&world.b);
	ck_assert_int_eq(count_crash(d.parked, d.token), PARK_PARKED);
	due_done(&d);
	inbox_world_end();
}
END_TEST

/* Its row is gone with the commit: the crash came after it. */
START_TEST(a_crash_after_the_commit_counts_for_nothing)
{
	struct due d;
	inbox_world_begin("");
	take_one("\001k", &d);
	struct claim c = claim_of_due(&d);
	MUST_OK(begin(&world.a, &c, 1));
	work(&world.a, &c);
	MUST_OK(commit(&world.a, &c, 1, 1, NULL));
	ck_assert_int_eq(count_crash(d.parked, d.token), PARK_DROPPED);
	due_done(&d);
	inbox_world_end();
}
END_TEST

/* ---- letters --------------------------------------------------------------------------------- */

/* How many are taken; the first of them is given. */
static size_t take_letters(struct outgoing *ret)
{
	struct db_result *rows;
	struct letter letter;
	MUST_OK(inbox_take_outgoing(&world.a.x, 10, 1000, 60000, &rows, &world.err));
	size_t n = db_result_rows(rows);
	if (n != 0) {
		inbox_read_outgoing(&world.a.x, rows, 0, ret, &letter);
		ck_assert_int_eq(letter.is_without_body, ret->body.size == 0);
		ck_assert_uint_eq(letter.body_size, letter.is_without_body ? 2000 : 8);
	}
	db_result_free(rows);
	return n;
}

static uint64_t next_letter_ms(void)
{
	uint64_t ms;
	MUST_OK(inbox_next_outgoing(&world.a.x, &ms, &world.err));
	return ms;
}

START_TEST(letters_are_taken_as_they_are_looked_for_with_bodies_that_fit)
{
	static char large[2000];
	struct outgoing o;
	inbox_world_begin("dead_letter: {exchange: dlx}\nmax_message_bytes: 1KiB");
	struct message m = message_of("");
	m.body = bytes_of(large, sizeof large);
	m.body_size = sizeof large;
	struct park p = park_of(&m, "\001large", 'x', "failed");
	ck_assert_int_eq(park(&world.a, &p), PARK_PARKED);
	/* Another daemon of the entry has a file without dead_letter. */
	(void)admin("UPDATE consumer_entry SET dead_letter_exchange = NULL");
	ck_assert_uint_eq(take_letters(&o), 0);
	ck_assert_uint_eq(next_letter_ms(), UINT64_MAX);
	(void)admin("UPDATE consumer_entry SET dead_letter_exchange = 'dlx'");
	ck_assert_uint_eq(next_letter_ms(), 0);
	ck_assert_uint_eq(take_letters(&o), 1);
	ck_assert_uint_eq(o.body.size, 0);
	inbox_world_end();
}
END_TEST

START_TEST(what_another_entry_has_left_for_an_hour_is_told_by_one_that_publishes)
{
	struct outgoing o;
	inbox_world_begin("dead_letter: {exchange: dlx}");
	ck_assert_int_eq(park_one("\001k", 'x', "failed"), PARK_PARKED);
	(void)admin("INSERT INTO consumer_entry (consumer, entry, vhost, queue, dead_letter_exchange) "
		    "SELECT consumer, 'old', vhost, queue, 'old' FROM consumer_entry");
	(void)admin("UPDATE outgoing SET entry = 'old', next_at = next_at - interval '50 minutes'");
	ck_assert_uint_eq(take_letters(&o), 0);
	(void)admin("UPDATE outgoing SET next_at = next_at - interval '20 minutes'");
	(void)admin("UPDATE consumer_entry SET dead_letter_exchange = NULL WHERE entry = 'main'");
	ck_assert_uint_eq(take_letters(&o), 0);
	ck_assert_str_eq(admin("SELECT entry FROM outgoing"), "old");
	(void)admin("UPDATE consumer_entry SET dead_letter_exchange = 'dlx' WHERE entry = 'main'");
	ck_assert_uint_eq(take_letters(&o), 1);
	ck_assert_str_eq(admin("SELECT entry FROM outgoing"), "main");
	inbox_world_end();
}
END_TEST

UNIT_SUITE_TIMEOUT(60, "inbox/park", a_message_is_parked_whole,
	a_waiting_message_is_due_after_its_delay, a_delay_of_a_year_is_a_delay_of_a_year,
	other_content_is_a_mismatch_with_work_committed_and_with_work_parked,
	a_known_mismatch_is_there_already,
	a_discarded_message_does_not_keep_its_key_from_other_content,
	committed_work_makes_it_a_duplicate_whatever_is_to_be_parked,
	a_copy_of_what_is_parked_finds_it_present, what_somebody_sends_again_gets_a_fresh_budget,
	a_discarded_mismatch_stays_one_whoever_wants_it_back_while_its_key_is_taken,
	a_key_in_hand_elsewhere_is_busy_for_parking_too, nothing_known_means_claim_it_again,
	without_a_key_a_redelivered_copy_is_known_by_all_of_it,
	without_a_key_messages_to_different_places_are_two_and_counts_of_a_broker_are_nothing,
	what_cannot_be_decoded_is_never_taken_for_another,
	empty_and_absent_parts_are_parked_as_empty,
	an_unknown_state_is_refused_and_leaves_the_session_fit_for_work,
	a_body_in_pieces_is_the_same_message_as_in_one, a_body_that_does_not_end_leaves_nothing,
	a_due_message_is_taken_whole_and_only_once,
	a_message_is_not_taken_before_its_time_nor_by_another_identity,
	the_one_due_longest_is_taken_first, a_busy_key_is_passed_over,
	what_needs_no_run_is_ended_on_the_way, a_body_kept_in_pieces_is_taken_whole,
	a_crash_is_the_reason_only_where_a_run_was_not_answered,
	the_row_of_a_retry_goes_with_its_work_if_it_still_has_that_token,
	a_retry_rolled_back_keeps_its_row, a_retry_whose_key_was_committed_or_is_busy_is_not_run,
	a_retry_that_fails_again_changes_its_row,
	a_retry_whose_row_was_changed_by_somebody_else_is_dropped,
	a_retry_that_turns_out_committed_or_mismatched_is_ended,
	a_retry_that_finds_its_key_taken_by_other_content_revives_no_discarded_copy,
	a_retry_without_key_is_parked_again_as_well,
	the_body_of_a_row_younger_than_the_statement_is_found,
	an_attempt_is_given_back_once_and_only_with_its_token,
	a_crash_is_counted_once_until_there_are_enough, a_crash_on_the_last_attempt_is_the_end,
	a_crash_is_not_counted_while_the_dead_session_holds_the_key,
	a_crash_without_key_waits_for_no_row_that_the_dead_session_holds,
	letters_are_taken_as_they_are_looked_for_with_bodies_that_fit,
	what_another_entry_has_left_for_an_hour_is_told_by_one_that_publishes,
	a_crash_after_the_commit_counts_for_nothing)

/* SPDX-License-Identifier: MIT */
/* Claim, guard, gate and commit: the transaction of a batch. */
#include "inbox/array.h"
#include "inbox/inbox.h"
#include "inbox/sql.h"

#include "base/fault.h"
#include "base/fd.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

static void new_token(struct inbox *x)
{
	/* Unlike any other transaction's, of this session or another. */
	(void)snprintf(x->token, sizeof x->token, "%016" PRIx64 "-%" PRIx64, x->nonce,
		x->transactions++);
}

static int64_t lock_of(const struct inbox *x, const struct claim *c)
{
	return (int64_t)key_lock_id((uint32_t)x->id, c->key);
}

static size_t count_keyed(struct claim *claims, size_t n)
{
	size_t keyed = 0;
	for (size_t i = 0; i < n; i++) {
		claims[i].state = claims[i].key.size != 0 ? CLAIM_BUSY : CLAIM_UNKEYED;
		claims[i].is_handled = false;
		keyed += claims[i].key.size != 0;
	}
	return keyed;
}

static struct claim *only_keyed(struct claim *claims, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (claims[i].key.size != 0)
			return &claims[i];
	return NULL;
}

/* ---- begin ---------------------------------------------------------------------------------- */

/* A retry's row goes with its work. */
static enum rc queue_row(struct inbox *x, const struct claim *c, struct err *err)
{
	struct number_text parked, token;
	const struct db_value args[] = {
		value_int(&parked, c->parked), value_int(&token, c->parked_token)};
	return c->parked != 0 ? inbox_queue(x, SQL_TAKE_ROW, 2, args, false, err) : RC_OK;
}

static enum rc queue_none(struct inbox *x, const struct claim *c, struct err *err)
{
	const struct db_value args[] = {value_text(x->token), value_text(NULL)};
	if (inbox_queue(x, SQL_LOCK_ONE, 2, args, false, err) != RC_OK)
		return err->rc;
	return queue_row(x, c, err);
}

static enum rc queue_one(struct inbox *x, const struct claim *c, struct err *err)
{
	struct number_text id, lock;
	const struct db_value locks[] = {value_text(x->token), value_int(&lock, lock_of(x, c))};
	const struct db_value insert[] = {value_int(&id, x->id), value_bytea(c->key),
		value_bytea(c->fingerprint), value_text(c->parked != 0 ? "true" : "false")};

	if (inbox_queue(x, SQL_LOCK_ONE, 2, locks, false, err) != RC_OK ||
		inbox_queue(x, SQL_INSERT_ONE, 4, insert, false, err) != RC_OK)
		return err->rc;
	return queue_row(x, c, err);
}

static enum rc queue_many(
	struct inbox *x, const struct claim *claims, size_t n, size_t keyed, struct err *err)
{
	AUTO(buf) struct buf locks = {0};
	AUTO(buf) struct buf keys = {0};
	AUTO(buf) struct buf fingerprints = {0};
	struct number_text id;

	array_begin_int8(&locks, keyed);
	array_begin_bytea(&keys, keyed);
	array_begin_bytea(&fingerprints, keyed);
	for (size_t i = 0; i < n; i++) {
		if (claims[i].state == CLAIM_UNKEYED)
			continue;
		array_add_int8(&locks, lock_of(x, &claims[i]));
		array_add_bytea(&keys, claims[i].key);
		array_add_bytea(&fingerprints, claims[i].fingerprint);
	}
	const struct db_value lock_args[] = {value_text(x->token), value_buf(&locks)};
	const struct db_value insert_args[] = {
		value_int(&id, x->id), value_buf(&keys), value_buf(&fingerprints)};
	if (inbox_queue(x, SQL_LOCK_MANY, 2, lock_args, false, err) != RC_OK)
		return err->rc;
	return inbox_queue(x, SQL_INSERT_MANY, 3, insert_args, true, err);
}

struct held {
	struct claim *claims;
	size_t n;
};

/* Ordinals count keyed claims from 1. */
static void mark_held(void *arg, uint32_t ordinal)
{
	struct held *h = arg;
	uint32_t at = 0;
	for (size_t i = 0; i < h->n; i++) {
		at += h->claims[i].state != CLAIM_UNKEYED;
		if (at == ordinal && h->claims[i].state != CLAIM_UNKEYED) {
			h->claims[i].state = CLAIM_LOOK;
			return;
		}
	}
}

/* The fast way when nothing is busy, which is nearly always. */
static void mark_all_held(struct claim *claims, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (claims[i].state == CLAIM_BUSY)
			claims[i].state = CLAIM_LOOK;
}

/* Both lists are in order of the array that was sent. */
static void mark_new(struct claim *claims, size_t n, const struct db_result *inserted)
{
	size_t row = 0, rows = db_result_rows(inserted);
	for (size_t i = 0; i < n && row < rows; i++)
		if (claims[i].state == CLAIM_LOOK &&
			bytes_equal(claims[i].key, db_result_value(inserted, row, 0))) {
			claims[i].state = CLAIM_NEW;
			row++;
		}
	assert(row == rows);
}

static enum rc take_none(struct inbox *x, struct claim *c, struct err *err)
{
	AUTO(result) struct db_result *row = NULL;
	if (db_next(x->db, NULL, err) != RC_OK)
		return err->rc;
	if (c->parked != 0 && db_next(x->db, &row, err) != RC_OK)
		return err->rc;
	if (row != NULL && db_result_rows(row) != 1)
		c->state = CLAIM_LOOK;
	return RC_OK;
}

static enum rc take_one(struct inbox *x, struct claim *c, struct err *err)
{
	AUTO(result) struct db_result *held = NULL;
	AUTO(result) struct db_result *inserted = NULL;
	AUTO(result) struct db_result *row = NULL;

	if (db_next(x->db, &held, err) != RC_OK || db_next(x->db, &inserted, err) != RC_OK)
		return err->rc;
	if (c->parked != 0 && db_next(x->db, &row, err) != RC_OK)
		return err->rc;
	if (!bytes_equal(db_result_value(held, 0, 1), bytes_str("true")))
		c->state = CLAIM_BUSY;
	else if (db_result_rows(inserted) == 1 && (row == NULL || db_result_rows(row) == 1))
		c->state = CLAIM_NEW;
	else
		c->state = CLAIM_LOOK;
	return RC_OK;
}

static enum rc take_many(struct inbox *x, struct claim *claims, size_t n, struct err *err)
{
	AUTO(result) struct db_result *held = NULL;
	AUTO(result) struct db_result *inserted = NULL;
	struct held h = {.claims = claims, .n = n};

	if (db_next(x->db, &held, err) != RC_OK || db_next(x->db, &inserted, err) != RC_OK)
		return err->rc;
	struct bytes ordinals = db_result_value(held, 0, 1);
	if (bytes_equal(ordinals, bytes_str("*")))
		mark_all_held(claims, n);
	else
		array_each_number(ordinals, mark_held, &h);
	mark_new(claims, n, inserted);
	return RC_OK;
}

static bool has_handler_limit(const struct inbox *x)
{
	return x->consumer->handler_timeout_ms < inbox_statement_limit_ms(x->consumer);
}

static enum rc queue_handler_limit(struct inbox *x, struct err *err)
{
	struct number_text limit;
	const struct db_value arg = value_int(&limit, x->consumer->handler_timeout_ms);
	if (!has_handler_limit(x))
		return RC_OK;
	return inbox_queue(x, SQL_HANDLER_LIMIT, 1, &arg, false, err);
}

enum rc inbox_begin(struct inbox *x, struct claim *claims, size_t n, struct err *err)
{
	size_t keyed = count_keyed(claims, n);
	struct claim *one = only_keyed(claims, n);
	assert(n == 1 || claims[0].parked == 0);

	new_token(x);
	x->is_guarded = false;
	if (db_queue_begin(x->db, err) != RC_OK)
		return err->rc;
	enum rc rc = keyed == 0   ? queue_none(x, &claims[0], err)
		     : keyed == 1 ? queue_one(x, one, err)
				  : queue_many(x, claims, n, keyed, err);
	if (rc == RC_OK)
		rc = queue_handler_limit(x, err);
	FAULT("claim-queued");
	if (rc != RC_OK || db_sync(x->db, err) != RC_OK)
		return err->rc;
	FAULT("claim-sent");

	struct err later;
	rc = db_take_begin(x->db, err);
	if (rc == RC_OK)
		rc = keyed == 0   ? take_none(x, &claims[0], err)
		     : keyed == 1 ? take_one(x, one, err)
				  : take_many(x, claims, n, err);
	if (rc == RC_OK && has_handler_limit(x))
		rc = db_next(x->db, NULL, err);
	enum rc end = db_sync_end(x->db, rc == RC_OK ? err : &later);
	if (rc == RC_OK)
		rc = end;
	if (rc != RC_OK)
		inbox_abandon(x);
	else
		inbox_expect_handler(x);
	return rc;
}

/* ---- in between --------------------------------------------------------------------------------- */

enum rc inbox_guard(struct inbox *x, struct err *err)
{
	const struct db_value tx = value_text(x->token);
	x->is_guarded = true;
	return inbox_queue(x, SQL_GUARD, 1, &tx, false, err);
}

enum rc inbox_queue_result(struct inbox *x, struct bytes key, struct bytes data,
	const char *content_type, struct err *err)
{
	struct number_text id;
	const struct db_value args[] = {value_int(&id, x->id), value_bytea(key),
		value_bytea(data.data != NULL ? data : bytes_str("")), value_text(content_type)};
	return inbox_queue(x, SQL_RESULT, 4, args, false, err);
}

/* ---- commit ---------------------------------------------------------------------------------------- */

static bool is_unhandled(const struct claim *c)
{
	return c->state == CLAIM_NEW && !c->is_handled;
}

static bool is_looked_up(const struct claim *c)
{
	return c->state == CLAIM_LOOK && c->parked == 0;
}

static size_t count_if(const struct claim *claims, size_t n, bool (*is)(const struct claim *))
{
	size_t found = 0;
	for (size_t i = 0; i < n; i++)
		found += is(&claims[i]);
	return found;
}

/* A statement over the keys of some of the claims; nothing if there are none. */
static enum rc queue_keys(struct inbox *x, enum inbox_sql sql, const struct claim *claims, size_t n,
	bool (*is)(const struct claim *), struct err *err)
{
	AUTO(buf) struct buf keys = {0};
	struct number_text id;
	size_t found = count_if(claims, n, is);
	if (found == 0)
		return RC_OK;
	array_begin_bytea(&keys, found);
	for (size_t i = 0; i < n; i++)
		if (is(&claims[i]))
			array_add_bytea(&keys, claims[i].key);
	const struct db_value args[] = {value_int(&id, x->id), value_buf(&keys)};
	return inbox_queue(x, sql, 2, args, true, err);
}

static enum rc queue_catch_up(
	struct inbox *x, const struct claim *claims, size_t n, struct err *err)
{
	if (count_if(claims, n, is_looked_up) == 0)
		return RC_OK;
	return inbox_queue(x, SQL_CATCH_UP, 0, NULL, false, err);
}

static enum rc queue_end(struct inbox *x, const struct claim *claims, size_t n, struct err *err)
{
	const struct db_value gate[] = {
		value_text(x->token), value_text(x->consumer->database->synchronous_commit)};

	/* The gate in front of all else of ours: outside our transaction the rest would fail for reasons
	 * of its own, as if the server were read-only. */
	if (inbox_queue(x, SQL_GATE, 2, gate, false, err) != RC_OK ||
		queue_keys(x, SQL_FORGET, claims, n, is_unhandled, err) != RC_OK ||
		queue_keys(x, SQL_LOOK, claims, n, is_looked_up, err) != RC_OK ||
		queue_catch_up(x, claims, n, err) != RC_OK)
		return err->rc;
	if (x->is_guarded && inbox_queue(x, SQL_UNGUARD, 0, NULL, false, err) != RC_OK)
		return err->rc;
	if (inbox_queue(x, SQL_COMMIT, 0, NULL, false, err) != RC_OK)
		return err->rc;
	FAULT("gate-queued");
	return db_sync(x->db, err);
}

static enum rc take_gate(struct inbox *x, bool *ret_gate_failed, struct err *err)
{
	/* Handlers' own warnings are behind us; COMMIT's come after the gate's answer. */
	db_warning_clear(x->db);
	if (db_next(x->db, NULL, err) == RC_OK)
		return RC_OK;
	*ret_gate_failed = strcmp(err->sqlstate, "22012") == 0;
	return err->rc == RC_UNAVAILABLE ? RC_UNAVAILABLE : (err->rc = RC_RETRY);
}

static enum rc take_looks(struct inbox *x, struct claim *claims, size_t n, struct err *err)
{
	AUTO(result) struct db_result *looked = NULL;
	if (count_if(claims, n, is_looked_up) == 0)
		return RC_OK;
	if (db_next(x->db, &looked, err) != RC_OK)
		return err->rc;
	size_t row = 0;
	for (size_t i = 0; i < n; i++) {
		if (!is_looked_up(&claims[i]))
			continue;
		struct bytes known = db_result_value(looked, row++, 0);
		if (known.data != NULL && fingerprint_compare(known, claims[i].fingerprint) !=
						  FINGERPRINT_DIFFERENT)
			claims[i].state = CLAIM_DUPLICATE;
	}
	return db_next(x->db, NULL, err); /* of catching up */
}

static enum rc take_commit(struct inbox *x, struct err *err)
{
	AUTO(result) struct db_result *res = NULL;
	if (db_next(x->db, &res, err) != RC_OK)
		return err->rc;
	if (strcmp(db_result_tag(res), "COMMIT") != 0)
		return err_set(err, RC_RETRY, "the server rolled the transaction back");
	if (db_warned(x->db))
		return err_set(err, RC_UNKNOWN,
			"committed with a warning: a standby may not have it (synchronous replication)");
	return RC_OK;
}

enum rc inbox_commit(struct inbox *x, struct claim *claims, size_t n,
	enum rc (*before)(void *arg, struct err *err), void *arg, bool *ret_gate_failed,
	struct err *err)
{
	struct err later;
	*ret_gate_failed = false;
	/* From here on COMMIT may have reached the server: a lost session leaves the outcome open. */
	if (queue_end(x, claims, n, err) != RC_OK)
		return err->rc == RC_UNAVAILABLE ? (err->rc = RC_UNKNOWN) : err->rc;
	FAULT("commit-sent");
	enum rc rc = before != NULL ? before(arg, err) : RC_OK;
	if (rc == RC_OK)
		rc = take_gate(x, ret_gate_failed, err);
	if (rc == RC_OK && count_if(claims, n, is_unhandled) != 0)
		rc = db_next(x->db, NULL, err);
	if (rc == RC_OK)
		rc = take_looks(x, claims, n, err);
	if (rc == RC_OK && x->is_guarded)
		rc = db_next(x->db, NULL, err);
	if (rc == RC_OK)
		rc = take_commit(x, err);
	enum rc end = db_sync_end(x->db, rc == RC_OK ? err : &later);
	if (rc == RC_OK)
		rc = end;
	x->is_guarded = false;
	inbox_expect_own(x);
	if (rc == RC_UNAVAILABLE)
		return err->rc = RC_UNKNOWN;
	if (rc != RC_OK && rc != RC_UNKNOWN)
		inbox_abandon(x);
	return rc;
}

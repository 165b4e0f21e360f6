/* SPDX-License-Identifier: MIT */
/* Parking: one transaction that locks the key, decides and keeps the message whole. */
#include "inbox/array.h"
#include "inbox/inbox.h"
#include "inbox/sql.h"

#include "base/backoff.h"
#include "base/fault.h"
#include "base/fd.h"

static const char *const outcomes[] = {
	[PARK_PARKED] = "parked",
	[PARK_MISMATCH] = "mismatch",
	[PARK_DUPLICATE] = "duplicate",
	[PARK_PRESENT] = "present",
	[PARK_REVIVED] = "revived",
	[PARK_BUSY] = "busy",
	[PARK_DROPPED] = "dropped",
	[PARK_AGAIN] = "again",
};

static enum rc outcome_of(struct bytes text, enum park_outcome *ret, struct err *err)
{
	for (size_t i = 0; i < sizeof outcomes / sizeof outcomes[0]; i++)
		if (bytes_equal(text, bytes_str(outcomes[i]))) {
			*ret = (enum park_outcome)i;
			return RC_OK;
		}
	return err_set(err, RC_FATAL, "function park of the schema answers what we do not know");
}

/* A message without key is told from others by all of it that every delivery has in common. */
static void begin_hash(struct hash *h, const struct message *m)
{
	struct buf head = {0};
	message_identify(m, &head);
	hash_begin(h);
	hash_add(h, buf_bytes(&head));
	buf_done(&head);
}

static void fingerprint_of_all(const struct message *m, uint8_t ret[HASH_SIZE])
{
	struct hash h = {0};
	begin_hash(&h, m);
	hash_add(&h, m->body);
	hash_end(&h, ret);
	hash_done(&h);
}

static struct bytes present(struct bytes b)
{
	return b.data != NULL ? b : bytes_str("");
}

static enum rc queue_park(struct inbox *x, const struct park *p, struct err *err)
{
	const struct message *m = p->message;
	uint8_t all[HASH_SIZE];
	struct bytes fingerprint = present(p->fingerprint);
	if (p->key.size == 0 && !p->is_streamed) {
		fingerprint_of_all(m, all);
		fingerprint = bytes_of(all, sizeof all);
	}
	struct bytes lock_by = p->key.size != 0 ? p->key : fingerprint;
	struct number_text id, lock, attempts, crashes, delay, parked, token, size;
	const struct db_value none = {0};
	const struct db_value args[] = {
		value_int(&id, x->id),
		value_text(x->consumer->name),
		p->key.size != 0 ? value_bytea(p->key) : none,
		value_bytea(fingerprint),
		value_int(&lock, (int64_t)key_lock_id((uint32_t)x->id, lock_by)),
		value_text(p->state),
		value_text(p->reason),
		value_text(p->detail != NULL ? p->detail : ""),
		value_text(p->sqlstate != NULL ? p->sqlstate : ""),
		value_int(&attempts, p->attempts),
		value_int(&crashes, p->crashes),
		value_int(&delay, (int64_t)p->delay_ms),
		p->parked != 0 ? value_int(&parked, p->parked) : none,
		p->parked != 0 ? value_int(&token, p->parked_token) : none,
		value_text(x->consumer->queue),
		value_bytea(present(m->exchange)),
		value_bytea(present(m->routing_key)),
		value_text(m->redelivered ? "true" : "false"),
		value_bytea(present(m->properties)),
		p->is_streamed ? none : value_bytea(present(m->body)),
		value_int(&size, (int64_t)m->body_size),
	};
	return inbox_queue(x, SQL_PARK, sizeof args / sizeof args[0], args, false, err);
}

static enum rc take_park(
	struct inbox *x, enum park_outcome *ret, int64_t *ret_id, struct err *err)
{
	AUTO(result) struct db_result *res = NULL;
	if (db_take_begin(x->db, err) != RC_OK || db_next(x->db, &res, err) != RC_OK)
		return err->rc;
	struct bytes id = db_result_value(res, 0, 1);
	if (ret_id != NULL)
		*ret_id = id.data != NULL ? strtoll((const char *)id.data, NULL, 10) : 0;
	return outcome_of(db_result_value(res, 0, 0), ret, err);
}

enum rc inbox_park(struct inbox *x, const struct park *park, enum park_outcome *ret, int64_t *ret_id,
	struct err *err)
{
	struct err later;
	FAULT("before-park");
	if (db_queue_begin(x->db, err) != RC_OK || queue_park(x, park, err) != RC_OK ||
		inbox_queue_commit(x, err) != RC_OK)
		return err_ctx(err, "parking");
	FAULT("park-sent");
	enum rc rc = take_park(x, ret, ret_id, err);
	enum rc end = inbox_end_commit(x, rc == RC_OK ? err : &later);
	if (rc == RC_OK)
		rc = end;
	if (rc != RC_OK) {
		inbox_abandon(x);
		return err_ctx(err, "parking");
	}
	return RC_OK;
}

enum rc inbox_park_begin(
	struct inbox *x, const struct park *park, struct park_stream *ret, struct err *err)
{
	struct err later;
	struct park whole = *park;
	enum park_outcome outcome = PARK_BUSY;
	/* What it is cannot be known before its end: until then it is like no other. */
	const uint64_t unlike[] = {random_u64(), random_u64()};
	whole.key = bytes_of(NULL, 0);
	whole.fingerprint = bytes_of(unlike, sizeof unlike);
	whole.is_streamed = true;
	if (db_queue_begin(x->db, err) != RC_OK || queue_park(x, &whole, err) != RC_OK ||
		db_sync(x->db, err) != RC_OK)
		return err_ctx(err, "parking");
	enum rc rc = take_park(x, &outcome, &ret->id, err);
	enum rc end = db_sync_end(x->db, rc == RC_OK ? err : &later);
	if (rc == RC_OK)
		rc = end;
	if (rc == RC_OK && outcome != PARK_PARKED)
		rc = err_set(err, RC_RETRY, "function park refuses a body that comes in pieces");
	if (rc != RC_OK) {
		inbox_abandon(x);
		return err_ctx(err, "parking");
	}
	ret->seq = 0;
	ret->is_redelivered = park->message->redelivered;
	begin_hash(&ret->hash, park->message);
	return RC_OK;
}

enum rc inbox_park_piece(
	struct inbox *x, struct park_stream *stream, struct bytes piece, struct err *err)
{
	struct number_text parked, number;
	const struct db_value args[] = {value_int(&parked, stream->id),
		value_int(&number, stream->seq++), value_bytea(piece)};
	hash_add(&stream->hash, piece);
	if (db_exec(x->db, x->sql[SQL_CHUNK], 3, args, false, NULL, err) != RC_OK) {
		inbox_abandon(x);
		return err_ctx(err, "parking a piece of a large body");
	}
	return RC_OK;
}

/* The copy that came before may be committed here and nowhere else yet. */
static enum rc catch_up(struct inbox *x, struct err *err)
{
	struct err later;
	if (db_queue_begin(x->db, err) != RC_OK ||
		inbox_queue(x, SQL_CATCH_UP, 0, NULL, false, err) != RC_OK ||
		inbox_queue_commit(x, err) != RC_OK)
		return err->rc;
	enum rc rc = db_take_begin(x->db, err);
	if (rc == RC_OK)
		rc = db_next(x->db, NULL, err);
	enum rc end = inbox_end_commit(x, rc == RC_OK ? err : &later);
	if (rc != RC_OK || end != RC_OK)
		inbox_abandon(x);
	return rc != RC_OK ? rc : end;
}

enum rc inbox_park_end(
	struct inbox *x, struct park_stream *stream, enum park_outcome *ret, struct err *err)
{
	uint8_t all[HASH_SIZE];
	struct number_text parked;
	AUTO(result) struct db_result *named = NULL;
	hash_end(&stream->hash, all);
	const struct db_value args[] = {
		value_int(&parked, stream->id), value_bytea(bytes_of(all, sizeof all))};
	if (db_exec(x->db, x->sql[SQL_NAME_STREAM], 2, args, false, &named, err) != RC_OK) {
		inbox_abandon(x);
		return err_ctx(err, "parking a large body");
	}
	/* A copy that came before is left alone - which only one that is delivered again can be. */
	if (db_result_rows(named) != 1 &&
		(!stream->is_redelivered || db_tx_state(x->db) != DB_TX_OPEN)) {
		inbox_abandon(x);
		return err_set(err, RC_UNAVAILABLE, "the transaction of a large body is gone");
	}
	*ret = db_result_rows(named) == 1 ? PARK_PARKED : PARK_PRESENT;
	if (*ret == PARK_PRESENT)
		return inbox_rollback(x, err) == RC_OK ? catch_up(x, err) : err->rc;
	FAULT("before-stream-commit");
	if (inbox_queue_commit(x, err) != RC_OK || inbox_end_commit(x, err) != RC_OK) {
		inbox_abandon(x);
		return err_ctx(err, "parking a large body");
	}
	return RC_OK;
}

enum rc inbox_park_abort(struct inbox *x, struct err *err)
{
	return inbox_rollback(x, err);
}

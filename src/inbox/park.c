/* SPDX-License-Identifier: MIT */
/* Parking: one transaction that locks the key, decides and keeps the message whole. */
#include "inbox/array.h"
#include "inbox/inbox.h"
#include "inbox/sql.h"

#include "base/fd.h"
#include "base/hash.h"

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

/* A message without key is told from others by all of it. */
static void fingerprint_of_all(const struct message *m, uint8_t ret[32])
{
	AUTO(buf) struct buf all = {0};
	buf_add_u32(&all, (uint32_t)m->properties.size);
	buf_add(&all, m->properties.data, m->properties.size);
	buf_add_u64(&all, m->body_size);
	buf_add(&all, m->body.data, m->body.size);
	hash_sha256(buf_bytes(&all), ret);
}

static struct bytes present(struct bytes b)
{
	return b.data != NULL ? b : bytes_str("");
}

static enum rc queue_park(struct inbox *x, const struct park *p, struct err *err)
{
	const struct message *m = p->message;
	uint8_t all[32];
	struct bytes fingerprint = present(p->fingerprint);
	if (p->key.size == 0) {
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
	if (db_next(x->db, NULL, err) != RC_OK || db_next(x->db, &res, err) != RC_OK)
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
	if (inbox_queue_begin(x, err) != RC_OK || queue_park(x, park, err) != RC_OK ||
		inbox_queue_commit(x, err) != RC_OK)
		return err_ctx(err, "parking");
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

enum rc inbox_park_begin(struct inbox *x, const struct park *park, enum park_outcome *ret,
	int64_t *ret_id, struct err *err)
{
	struct err later;
	if (inbox_queue_begin(x, err) != RC_OK || queue_park(x, park, err) != RC_OK ||
		db_sync(x->db, err) != RC_OK)
		return err_ctx(err, "parking");
	enum rc rc = take_park(x, ret, ret_id, err);
	enum rc end = db_sync_end(x->db, rc == RC_OK ? err : &later);
	if (rc == RC_OK)
		rc = end;
	if (rc != RC_OK || *ret != PARK_PARKED)
		inbox_abandon(x);
	return rc == RC_OK ? RC_OK : err_ctx(err, "parking");
}

enum rc inbox_park_piece(
	struct inbox *x, int64_t id, uint32_t seq, struct bytes piece, struct err *err)
{
	struct number_text parked, number;
	const struct db_value args[] = {
		value_int(&parked, id), value_int(&number, seq), value_bytea(piece)};
	if (db_exec(x->db, x->sql[SQL_CHUNK], 3, args, false, NULL, err) != RC_OK) {
		inbox_abandon(x);
		return err_ctx(err, "parking a piece of a large body");
	}
	return RC_OK;
}

enum rc inbox_park_end(struct inbox *x, struct err *err)
{
	if (inbox_queue_commit(x, err) != RC_OK || inbox_end_commit(x, err) != RC_OK) {
		inbox_abandon(x);
		return err_ctx(err, "parking a large body");
	}
	return RC_OK;
}

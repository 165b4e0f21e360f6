/* SPDX-License-Identifier: MIT */
/* The inbox's statements; for the files of this room only. */
#ifndef INBOXD_INBOX_SQL_H
#define INBOXD_INBOX_SQL_H

#include "inbox/inbox.h"

enum inbox_sql {
	SQL_LOCK_ONE,
	SQL_LOCK_MANY,
	SQL_INSERT_ONE,
	SQL_INSERT_MANY,
	SQL_TAKE_ROW,
	SQL_FORGET,
	SQL_LOOK,
	SQL_GUARD,
	SQL_UNGUARD,
	SQL_GATE,
	SQL_HANDLER_LIMIT,
	SQL_CATCH_UP,
	SQL_COMMIT,
	SQL_ROLLBACK,
	SQL_RESULT,
	SQL_DURABLE,
	SQL_PARK,
	SQL_CHUNK,
	SQL_NAME_STREAM,
	SQL_TAKE_DUE,
	SQL_LOOK_OUT,
	SQL_ADOPT_KEY,
	SQL_GIVE_BACK,
	SQL_COUNT_CRASH,
	SQL_ROOM,
	SQL_TAKE_OUTGOING,
	SQL_NEXT_OUTGOING,
	SQL_OUTGOING_SENT,
	SQL_OUTGOING_POSTPONED,
	SQL_LIMITS,
	SQL_REGISTER,
	SQL_COUNT,
};

_Static_assert(SQL_COUNT <= sizeof((struct inbox *)0)->sql / sizeof(char *), "room for all texts");

enum rc inbox_queue(struct inbox *x, enum inbox_sql sql, size_t n, const struct db_value *args,
	bool binary_result, struct err *err) MUST_CHECK;

/* Queues the settings that make COMMIT durable, and COMMIT. */
enum rc inbox_queue_commit(struct inbox *x, struct err *err) MUST_CHECK;
/* Takes the results of both; RC_UNKNOWN when the answer is lost or not to be believed. */
enum rc inbox_end_commit(struct inbox *x, struct err *err) MUST_CHECK;
/* One statement in a transaction of its own, committed: its result in *ret (may be NULL). */
enum rc inbox_run(struct inbox *x, enum inbox_sql sql, size_t n, const struct db_value *args,
	struct db_result **ret, struct err *err) MUST_CHECK;
/* After a failure: ends whatever transaction is open; keeps err. */
void inbox_abandon(struct inbox *x);

#endif

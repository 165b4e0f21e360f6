/* SPDX-License-Identifier: MIT */
/* What a failing call tells: what to do (enum rc) and what happened (struct err). */
#ifndef INBOXD_BASE_ERR_H
#define INBOXD_BASE_ERR_H

#include <stddef.h>

/* What the caller should do, never what went wrong. */
enum rc {
	RC_OK = 0,
	RC_RETRY,       /* transient; the same work may succeed later */
	RC_REJECT,      /* permanent; the same input will always fail */
	RC_UNKNOWN,     /* COMMIT was sent and its answer lost: only a new claim can tell */
	RC_UNAVAILABLE, /* a server is away, read-only or full: pause, probe, use no attempt */
	RC_FATAL,       /* cannot go on as configured; a person is needed */
};

/* Fixed size, no allocation on the error path. */
struct err {
	enum rc rc;
	char sqlstate[6]; /* "" unless PostgreSQL named one */
	char text[1024];  /* UTF-8 whatever it quotes; cut to fit, between characters */
};

/* Sets *err (if not NULL) and returns rc, so that `return err_set(...)` reads well. */
enum rc err_set(struct err *err, enum rc rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Puts "context: " in front of the text; returns err->rc (RC_FATAL when err is NULL). */
enum rc err_ctx(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* "ok", "retry", … for log lines. */
const char *rc_name(enum rc rc);

#define MUST_CHECK __attribute__((warn_unused_result))

#endif

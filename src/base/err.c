/* SPDX-License-Identifier: MIT */
/* Error values of fixed size: set once where they happen, given context on the way up. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum rc err_set(struct err *err, enum rc rc, const char *fmt, ...)
{
	if (err == NULL)
		return rc;
	va_list ap;
	va_start(ap, fmt);
	err->rc = rc;
	err->sqlstate[0] = '\0';
	(void)vsnprintf(err->text, sizeof err->text, fmt, ap);
	va_end(ap);
	return rc;
}

enum rc err_ctx(struct err *err, const char *fmt, ...)
{
	if (err == NULL)
		return RC_FATAL;
	char old[sizeof err->text];
	memcpy(old, err->text, sizeof old);
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
	va_end(ap);
	if (n < 0)
		n = 0;
	size_t at = (size_t)n < sizeof err->text ? (size_t)n : sizeof err->text - 1;
	(void)snprintf(err->text + at, sizeof err->text - at, ": %s", old);
	return err->rc;
}

const char *rc_name(enum rc rc)
{
	static const char *const names[] = {
		[RC_OK] = "ok",
		[RC_RETRY] = "retry",
		[RC_REJECT] = "reject",
		[RC_UNKNOWN] = "unknown",
		[RC_UNAVAILABLE] = "unavailable",
		[RC_FATAL] = "fatal",
	};
	return (size_t)rc < sizeof names / sizeof names[0] ? names[rc] : "?";
}

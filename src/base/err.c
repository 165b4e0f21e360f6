/* SPDX-License-Identifier: MIT */
/* Error values of fixed size: set once where they happen, given context on the way up. */
#include "base/err.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>

enum { TEXT_SIZE = sizeof((struct err *)NULL)->text };

enum rc err_set(struct err *err, enum rc rc, const char *fmt, ...)
{
	char text[TEXT_SIZE + 4]; /* the old text may be among the arguments */
	if (err == NULL)
		return rc;
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	err->rc = rc;
	err->sqlstate[0] = '\0';
	utf8_clean(bytes_str(text), err->text, sizeof err->text);
	return rc;
}

enum rc err_ctx(struct err *err, const char *fmt, ...)
{
	char text[2 * TEXT_SIZE];
	if (err == NULL)
		return RC_FATAL;
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(text, TEXT_SIZE, fmt, ap);
	va_end(ap);
	size_t at = strlen(text);
	(void)snprintf(text + at, sizeof text - at, ": %s", err->text);
	utf8_clean(bytes_str(text), err->text, sizeof err->text);
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

/* SPDX-License-Identifier: MIT */
/* Texts of handlers on their way into reasons and log lines: any bytes in, UTF-8 without NUL
 * out. */
#ifndef INBOXD_HANDLER_REASON_H
#define INBOXD_HANDLER_REASON_H

#include "base/bytes.h"

/* Writes text into dst (size bytes, NUL included): what is not UTF-8, and control characters but
 * tab and newline, become U+FFFD; what is too long is cut at the end of a character, which shows
 * as "…".  A 300 kB text costs no more than dst. */
void reason_set(char *dst, size_t size, struct bytes text);

#endif

/* SPDX-License-Identifier: MIT */
/* Numbers, durations and sizes as they stand in the configuration.  Pure. */
#ifndef INBOXD_CONFIG_SCALAR_H
#define INBOXD_CONFIG_SCALAR_H

#include "base/buf.h"

enum scalar_fault {
	SCALAR_FINE,
	SCALAR_NO_NUMBER,
	SCALAR_NEGATIVE,
	SCALAR_ZERO_LED, /* 0123: octal to some, decimal to others */
	SCALAR_FRACTION,
	SCALAR_OTHER_FORM, /* 1e3, 0x10, 1_000, +5 */
	SCALAR_TOO_LARGE,  /* beyond 64 bits */
	SCALAR_NO_UNIT,
	SCALAR_BAD_UNIT,
};

/* Each reads the whole text; *ret is written only if it is fine. */
enum scalar_fault scalar_count(const char *text, uint64_t *ret);
enum scalar_fault scalar_percent(const char *text, uint64_t *ret);  /* "20%" */
enum scalar_fault scalar_duration(const char *text, uint64_t *ret); /* ms; units ms s m h d */
enum scalar_fault scalar_size(const char *text, uint64_t *ret); /* bytes; none or B KiB MiB GiB */

/* -?digits without leading zeros: what is an integer where a scalar's form decides. */
enum scalar_fault scalar_integer(const char *text, int64_t *ret);

/* Writes a value so that it is read back as the same: "90s", "16MiB". */
void scalar_add_duration(struct buf *out, uint64_t ms);
void scalar_add_size(struct buf *out, uint64_t bytes);

#endif

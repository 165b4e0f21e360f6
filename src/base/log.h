/* SPDX-License-Identifier: MIT */
/* One line per event: `level event key=value …`, as logfmt, JSON or to the journal. */
#ifndef INBOXD_BASE_LOG_H
#define INBOXD_BASE_LOG_H

#include "base/bytes.h"

#include <stdint.h>

enum log_level { L_ERROR, L_WARNING, L_INFO, L_DEBUG };
enum log_format { LOG_LOGFMT, LOG_JSON, LOG_JOURNAL };

enum log_kind { LOG_FIELD_STR, LOG_FIELD_BYTES, LOG_FIELD_INT, LOG_FIELD_UINT };

struct log_field {
	const char *name;
	enum log_kind kind;
	struct bytes value; /* LOG_FIELD_STR, LOG_FIELD_BYTES; absent fields are left out */
	int64_t i;
	uint64_t u;
};

/* Fields: LS text (NULL is left out), LB bytes (escaped), LI and LU numbers. */
#define LS(name_, s_) {.name = (name_), .kind = LOG_FIELD_STR, .value = bytes_str(s_)}
#define LB(name_, b_) {.name = (name_), .kind = LOG_FIELD_BYTES, .value = (b_)}
#define LI(name_, i_) {.name = (name_), .kind = LOG_FIELD_INT, .i = (int64_t)(i_)}
#define LU(name_, u_) {.name = (name_), .kind = LOG_FIELD_UINT, .u = (uint64_t)(u_)}

/* log_event(L_INFO, "consuming", LS("queue", q), LU("prefetch", n)); at least one field. */
#define log_event(level_, event_, ...) \
	log_write((level_), (event_), (const struct log_field[]){__VA_ARGS__}, \
		sizeof((const struct log_field[]){__VA_ARGS__}) / sizeof(struct log_field))

/* Sets level and format, and fields put on every line (role, consumer); strings are borrowed. */
void log_init(enum log_level level, enum log_format format);
void log_set_role(const char *role, const char *consumer);
bool log_enabled(enum log_level level);
/* Writes one line with one write(2) to standard error, if it takes it; any thread may.  Of one that
 * is full, closed or that nobody reads the work does not depend: a line waits for a second, those
 * behind it not at all, and when one is taken again `log_lines_lost` stands in front of it. */
void log_write(enum log_level level, const char *event, const struct log_field *fields, size_t n);

/* Whole lines made for people, as they are; where programs read, one event with all of them.  Nothing
 * for none. */
void log_text(enum log_level level, const char *event, struct bytes text);

const char *log_level_name(enum log_level level);

#endif

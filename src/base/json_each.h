/* SPDX-License-Identifier: MIT */
/* Goes through an array or object that json_find has checked and found.  Pure. */
#ifndef INBOXD_BASE_JSON_EACH_H
#define INBOXD_BASE_JSON_EACH_H

#include "base/json.h"

struct json_each {
	struct bytes raw;
	size_t at;
};

/* raw: the container's own text, from json_find or from json_each_next. */
struct json_each json_each_of(struct bytes raw);

/* The next child, false behind the last.  *ret_name is the name's raw token, with quotes and
 * escapes (absent in an array); kind and raw as from json_find.  A name that stands twice comes
 * twice. */
bool json_each_next(struct json_each *e, struct bytes *ret_name, enum json_kind *ret_kind,
	struct bytes *ret_raw);

#endif

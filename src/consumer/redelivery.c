/* SPDX-License-Identifier: MIT */
/* Counts of the broker. */
#include "consumer/redelivery.h"

static bool count_in(const struct props *p, const char *header, int64_t *ret)
{
	struct field f;
	if (!props_header(p, bytes_str(header), &f) || f.kind != FIELD_INTEGER)
		return false;
	*ret = f.is_unsigned ? INT64_MAX : f.integer;
	return *ret > 0; /* whoever counts begins with 1 */
}

bool redelivery_is_often(
	const struct props *p, bool redelivered, bool may_count, uint32_t delivery_limit)
{
	int64_t count = 0, acquired;
	uint32_t often = delivery_limit > 1 ? delivery_limit / 2 : 1;
	if (!redelivered)
		return false; /* whatever a publisher has written into its headers */
	if (!may_count)
		return true;
	if (count_in(p, "x-delivery-count", &count))
		return count >= (int64_t)often;
	/* Since RabbitMQ 4.3 what was only given back is counted apart, and has no limit. */
	return !count_in(p, "x-acquired-count", &acquired);
}

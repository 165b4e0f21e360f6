/* SPDX-License-Identifier: MIT */
/* Strict reading of numbers: what two readers could understand in two ways is refused. */
#include "config/scalar.h"

#include <ctype.h>
#include <inttypes.h>

struct unit {
	const char *name;
	uint64_t factor;
};

static const struct unit durations[] = {
	{"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};
static const struct unit sizes[] = {
	{"GiB", UINT64_C(1) << 30}, {"MiB", UINT64_C(1) << 20}, {"KiB", 1024}, {"B", 1}, {"", 1}};

#define COUNT_OF(array_) (sizeof(array_) / sizeof((array_)[0]))

/* Digits at the beginning; *ret_rest is what stands behind them. */
static enum scalar_fault read_digits(const char *text, uint64_t *ret, const char **ret_rest)
{
	const char *p = text;
	uint64_t value = 0;
	if (*p == '-' && isdigit((unsigned char)p[1]) != 0)
		return SCALAR_NEGATIVE;
	if (*p == '+' && isdigit((unsigned char)p[1]) != 0)
		return SCALAR_OTHER_FORM;
	if (isdigit((unsigned char)*p) == 0)
		return SCALAR_NO_NUMBER;
	if (*p == '0' && isdigit((unsigned char)p[1]) != 0)
		return SCALAR_ZERO_LED;
	for (; isdigit((unsigned char)*p) != 0; p++) {
		uint64_t digit = (uint64_t)(*p - '0');
		if (value > (UINT64_MAX - digit) / 10)
			return SCALAR_TOO_LARGE;
		value = 10 * value + digit;
	}
	if (*p == '.' && isdigit((unsigned char)p[1]) != 0)
		return SCALAR_FRACTION;
	if (*p == '_' ||
		((*p == 'e' || *p == 'E' || *p == 'x') && isxdigit((unsigned char)p[1]) != 0))
		return SCALAR_OTHER_FORM;
	*ret = value;
	*ret_rest = p;
	return SCALAR_FINE;
}

enum scalar_fault scalar_count(const char *text, uint64_t *ret)
{
	const char *rest;
	uint64_t value;
	enum scalar_fault fault = read_digits(text, &value, &rest);
	if (fault == SCALAR_FINE && *rest != '\0')
		return SCALAR_NO_NUMBER;
	if (fault == SCALAR_FINE)
		*ret = value;
	return fault;
}

enum scalar_fault scalar_percent(const char *text, uint64_t *ret)
{
	const char *rest;
	uint64_t value;
	enum scalar_fault fault = read_digits(text, &value, &rest);
	if (fault != SCALAR_FINE)
		return fault;
	if (strcmp(rest, "%") != 0)
		return *rest == '\0' ? SCALAR_NO_UNIT : SCALAR_BAD_UNIT;
	*ret = value;
	return SCALAR_FINE;
}

static enum scalar_fault read_with_unit(
	const char *text, const struct unit *units, size_t n, uint64_t *ret)
{
	const char *rest;
	uint64_t value;
	enum scalar_fault fault = read_digits(text, &value, &rest);
	if (fault != SCALAR_FINE)
		return fault;
	for (size_t i = 0; i < n; i++) {
		if (strcmp(rest, units[i].name) != 0)
			continue;
		if (value > UINT64_MAX / units[i].factor)
			return SCALAR_TOO_LARGE;
		*ret = value * units[i].factor;
		return SCALAR_FINE;
	}
	return *rest == '\0' ? SCALAR_NO_UNIT : SCALAR_BAD_UNIT;
}

enum scalar_fault scalar_duration(const char *text, uint64_t *ret)
{
	return read_with_unit(text, durations, COUNT_OF(durations), ret);
}

enum scalar_fault scalar_size(const char *text, uint64_t *ret)
{
	return read_with_unit(text, sizes, COUNT_OF(sizes), ret);
}

enum scalar_fault scalar_integer(const char *text, int64_t *ret)
{
	bool is_negative = *text == '-';
	const char *rest;
	uint64_t value;
	enum scalar_fault fault = read_digits(text + is_negative, &value, &rest);
	if (fault != SCALAR_FINE)
		return fault;
	if (*rest != '\0')
		return SCALAR_NO_NUMBER;
	if (value > (uint64_t)INT64_MAX + is_negative)
		return SCALAR_TOO_LARGE;
	*ret = is_negative ? (int64_t)(0 - value) : (int64_t)value;
	return SCALAR_FINE;
}

static void add_with_unit(struct buf *out, uint64_t value, const struct unit *units)
{
	while (value == 0 ? units->factor != 1 : value % units->factor != 0)
		units++;
	buf_addf(out, "%" PRIu64 "%s", value / units->factor, units->name);
}

void scalar_add_duration(struct buf *out, uint64_t ms)
{
	add_with_unit(out, ms, durations);
}

void scalar_add_size(struct buf *out, uint64_t bytes)
{
	add_with_unit(out, bytes, sizes);
}

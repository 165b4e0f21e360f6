/* SPDX-License-Identifier: MIT */
#include "config/scalar.h"

#include "unit.h"

struct sample {
	const char *text;
	enum scalar_fault fault;
	uint64_t value;
};

static void check_samples(const struct sample *samples, size_t n,
	enum scalar_fault (*read)(const char *text, uint64_t *ret))
{
	for (size_t i = 0; i < n; i++) {
		uint64_t value = 4711;
		enum scalar_fault fault = read(samples[i].text, &value);
		ck_assert_msg(fault == samples[i].fault, "\"%s\" gives %d", samples[i].text, fault);
		ck_assert_msg(value == (fault == SCALAR_FINE ? samples[i].value : 4711),
			"\"%s\" is %llu", samples[i].text, (unsigned long long)value);
	}
}

#define CHECK(read_, ...)                                                          \
	do {                                                                       \
		const struct sample samples[] = {__VA_ARGS__};                     \
		check_samples(samples, sizeof samples / sizeof samples[0], read_); \
	} while (0)

START_TEST(takes_counts_in_decimal_digits_and_nothing_else)
{
	CHECK(scalar_count, {"0", SCALAR_FINE, 0}, {"7", SCALAR_FINE, 7},
		{"18446744073709551615", SCALAR_FINE, UINT64_MAX},
		{"18446744073709551616", SCALAR_TOO_LARGE},
		{"99999999999999999999999", SCALAR_TOO_LARGE}, {"-1", SCALAR_NEGATIVE},
		{"-0", SCALAR_NEGATIVE}, {"+1", SCALAR_OTHER_FORM}, {"0123", SCALAR_ZERO_LED},
		{"00", SCALAR_ZERO_LED}, {"0x10", SCALAR_OTHER_FORM}, {"1e3", SCALAR_OTHER_FORM},
		{"1_000", SCALAR_OTHER_FORM}, {"1.5", SCALAR_FRACTION}, {"1,000", SCALAR_NO_NUMBER},
		{"", SCALAR_NO_NUMBER}, {"-", SCALAR_NO_NUMBER}, {" 1", SCALAR_NO_NUMBER},
		{"1 ", SCALAR_NO_NUMBER}, {"no", SCALAR_NO_NUMBER}, {"5s", SCALAR_NO_NUMBER});
}
END_TEST

START_TEST(takes_durations_with_exactly_one_unit)
{
	CHECK(scalar_duration, {"1ms", SCALAR_FINE, 1}, {"10s", SCALAR_FINE, 10000},
		{"2m", SCALAR_FINE, 120000}, {"1h", SCALAR_FINE, 3600000},
		{"7d", SCALAR_FINE, 604800000}, {"0s", SCALAR_FINE, 0}, {"10", SCALAR_NO_UNIT},
		{"10 s", SCALAR_BAD_UNIT}, {"10S", SCALAR_BAD_UNIT}, {"1m30s", SCALAR_BAD_UNIT},
		{"10sec", SCALAR_BAD_UNIT}, {"-1s", SCALAR_NEGATIVE}, {"1.5h", SCALAR_FRACTION},
		{"s", SCALAR_NO_NUMBER},
		{"213503982334d", SCALAR_FINE, UINT64_C(18446744073657600000)},
		{"213503982335d", SCALAR_TOO_LARGE}, {"18446744073709551615s", SCALAR_TOO_LARGE},
		{"010s", SCALAR_ZERO_LED});
}
END_TEST

START_TEST(takes_sizes_in_powers_of_1024_or_plain_bytes)
{
	CHECK(scalar_size, {"1000", SCALAR_FINE, 1000}, {"1000B", SCALAR_FINE, 1000},
		{"4KiB", SCALAR_FINE, 4096}, {"16MiB", SCALAR_FINE, 16777216},
		{"2GiB", SCALAR_FINE, UINT64_C(2147483648)}, {"4KB", SCALAR_BAD_UNIT},
		{"4k", SCALAR_BAD_UNIT}, {"4mib", SCALAR_BAD_UNIT},
		{"17179869184GiB", SCALAR_TOO_LARGE});
}
END_TEST

START_TEST(takes_percentages_with_their_sign)
{
	CHECK(scalar_percent, {"20%", SCALAR_FINE, 20}, {"0%", SCALAR_FINE, 0},
		{"20", SCALAR_NO_UNIT}, {"20 %", SCALAR_BAD_UNIT}, {"0.2", SCALAR_FRACTION});
}
END_TEST

START_TEST(tells_integers_from_texts_by_their_form)
{
	int64_t value = 4711;
	ck_assert_int_eq(scalar_integer("-9223372036854775808", &value), SCALAR_FINE);
	ck_assert_int_eq(value, INT64_MIN);
	ck_assert_int_eq(scalar_integer("9223372036854775807", &value), SCALAR_FINE);
	ck_assert_int_eq(value, INT64_MAX);
	ck_assert_int_eq(scalar_integer("0", &value), SCALAR_FINE);
	ck_assert_int_eq(value, 0);
	value = 4711;
	ck_assert_int_eq(scalar_integer("9223372036854775808", &value), SCALAR_TOO_LARGE);
	ck_assert_int_eq(scalar_integer("-9223372036854775809", &value), SCALAR_TOO_LARGE);
	ck_assert_int_eq(scalar_integer("--1", &value), SCALAR_NEGATIVE);
	ck_assert_int_eq(scalar_integer("007", &value), SCALAR_ZERO_LED);
	ck_assert_int_eq(scalar_integer("1a", &value), SCALAR_NO_NUMBER);
	ck_assert_int_eq(value, 4711);
}
END_TEST

START_TEST(writes_what_it_would_read)
{
	const uint64_t durations[] = {
		1, 100, 999, 1000, 1500, 60000, 90000, 3600000, 86400000, 5400000};
	for (size_t i = 0; i < sizeof durations / sizeof durations[0]; i++) {
		struct buf text = {0};
		uint64_t value;
		scalar_add_duration(&text, durations[i]);
		ck_assert_int_eq(scalar_duration(buf_str(&text), &value), SCALAR_FINE);
		ck_assert_uint_eq(value, durations[i]);
		buf_clear(&text);
		scalar_add_size(&text, durations[i] * 512);
		ck_assert_int_eq(scalar_size(buf_str(&text), &value), SCALAR_FINE);
		ck_assert_uint_eq(value, durations[i] * 512);
		buf_done(&text);
	}
	struct buf text = {0};
	scalar_add_duration(&text, 90000);
	scalar_add_size(&text, 4096);
	ck_assert_str_eq(buf_str(&text), "90s4KiB");
	buf_done(&text);
}
END_TEST

UNIT_SUITE("config/scalar", takes_counts_in_decimal_digits_and_nothing_else,
	takes_durations_with_exactly_one_unit, takes_sizes_in_powers_of_1024_or_plain_bytes,
	takes_percentages_with_their_sign, tells_integers_from_texts_by_their_form,
	writes_what_it_would_read)

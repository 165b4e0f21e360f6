/* SPDX-License-Identifier: MIT */
/* A borrowed run of bytes; data == NULL means absent, which is not the same as empty. */
#ifndef INBOXD_BASE_BYTES_H
#define INBOXD_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct bytes {
	const uint8_t *data;
	size_t size;
};

static inline struct bytes bytes_of(const void *data, size_t size)
{
	return (struct bytes){.data = data, .size = size};
}

static inline struct bytes bytes_str(const char *s)
{
	return (struct bytes){.data = (const uint8_t *)s, .size = s != NULL ? strlen(s) : 0};
}

static inline bool bytes_equal(struct bytes a, struct bytes b)
{
	return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static inline int bytes_compare(struct bytes a, struct bytes b)
{
	size_t n = a.size < b.size ? a.size : b.size;
	int c = n != 0 ? memcmp(a.data, b.data, n) : 0;
	return c != 0 ? c : (a.size > b.size) - (a.size < b.size);
}

#endif

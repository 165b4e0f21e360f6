/* SPDX-License-Identifier: MIT */
/* Growing buffers, memory that cannot run out quietly, and bounds-checked reading. */
#include "base/buf.h"

#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static void out_of_memory(size_t n)
{
	(void)fprintf(stderr, "level=error event=out_of_memory size_bytes=%zu\n", n);
	abort();
}

void memory_keep(void)
{
	enum { MAPPED = 1 << 20, KEPT = 4 << 20 };
	(void)mallopt(M_MMAP_THRESHOLD, MAPPED);
	(void)mallopt(M_TRIM_THRESHOLD, KEPT);
}

void *xmalloc(size_t n)
{
	void *p = malloc(n != 0 ? n : 1);
	if (p == NULL)
		out_of_memory(n);
	return p;
}

void *xcalloc(size_t n, size_t size)
{
	void *p = calloc(n != 0 ? n : 1, size != 0 ? size : 1);
	if (p == NULL)
		out_of_memory(n * size);
	return p;
}

void *xrealloc(void *p, size_t n)
{
	void *q = realloc(p, n != 0 ? n : 1);
	if (q == NULL)
		out_of_memory(n);
	return q;
}

char *xstrdup(const char *s)
{
	return xstrndup(s, strlen(s));
}

char *xstrndup(const char *s, size_t n)
{
	char *p = xmalloc(n + 1);
	memcpy(p, s, n);
	p[n] = '\0';
	return p;
}

char *xasprintf(const char *fmt, ...)
{
	va_list ap;
	char *s = NULL;
	va_start(ap, fmt);
	if (vasprintf(&s, fmt, ap) < 0 || s == NULL)
		out_of_memory(0);
	va_end(ap);
	return s;
}

void buf_done(struct buf *b)
{
	free(b->data);
	*b = (struct buf){0};
}

void buf_clear(struct buf *b)
{
	b->size = 0;
}

uint8_t *buf_reserve(struct buf *b, size_t n)
{
	if (b->data == NULL || b->cap - b->size < n) {
		size_t cap = b->cap != 0 ? b->cap : 256;
		if (n > SIZE_MAX / 2 - b->size)
			out_of_memory(n);
		while (cap - b->size < n)
			cap = cap + cap / 2;
		b->data = xrealloc(b->data, cap);
		b->cap = cap;
	}
	return b->data + b->size;
}

void buf_add(struct buf *b, const void *data, size_t n)
{
	if (n == 0)
		return;
	memcpy(buf_reserve(b, n), data, n);
	b->size += n;
}

void buf_add_str(struct buf *b, const char *s)
{
	buf_add(b, s, strlen(s));
}

void buf_add_byte(struct buf *b, uint8_t c)
{
	*buf_reserve(b, 1) = c;
	b->size++;
}

void buf_add_u16(struct buf *b, uint16_t v)
{
	const uint8_t raw[] = {(uint8_t)(v >> 8), (uint8_t)v};
	buf_add(b, raw, sizeof raw);
}

void buf_add_u32(struct buf *b, uint32_t v)
{
	const uint8_t raw[] = {
		(uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v};
	buf_add(b, raw, sizeof raw);
}

void buf_add_u64(struct buf *b, uint64_t v)
{
	buf_add_u32(b, (uint32_t)(v >> 32));
	buf_add_u32(b, (uint32_t)v);
}

void buf_addf(struct buf *b, const char *fmt, ...)
{
	va_list ap, again;
	va_start(ap, fmt);
	va_copy(again, ap);
	size_t room = b->cap - b->size;
	int n = vsnprintf(b->data != NULL ? (char *)b->data + b->size : NULL, room, fmt, ap);
	va_end(ap);
	if (n > 0 && (size_t)n >= room)
		(void)vsnprintf((char *)buf_reserve(b, (size_t)n + 1), (size_t)n + 1, fmt, again);
	va_end(again);
	if (n > 0)
		b->size += (size_t)n;
}

void buf_consume(struct buf *b, size_t n)
{
	if (n == 0)
		return;
	memmove(b->data, b->data + n, b->size - n);
	b->size -= n;
}

const char *buf_str(struct buf *b)
{
	*buf_reserve(b, 1) = '\0';
	return (const char *)b->data;
}

static const uint8_t *take(struct reader *r, size_t n)
{
	if (r->bad || reader_left(r) < n) {
		r->bad = true;
		return NULL;
	}
	const uint8_t *p = r->p;
	r->p += n;
	return p;
}

uint8_t reader_u8(struct reader *r)
{
	const uint8_t *p = take(r, 1);
	return p != NULL ? p[0] : 0;
}

uint16_t reader_u16(struct reader *r)
{
	const uint8_t *p = take(r, 2);
	return p != NULL ? (uint16_t)((uint32_t)p[0] << 8 | p[1]) : 0;
}

uint32_t reader_u32(struct reader *r)
{
	const uint8_t *p = take(r, 4);
	return p != NULL ? (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]
			 : 0;
}

uint64_t reader_u64(struct reader *r)
{
	uint64_t high = reader_u32(r);
	return high << 32 | reader_u32(r);
}

struct bytes reader_bytes(struct reader *r, size_t n)
{
	const uint8_t *p = take(r, n);
	return p != NULL ? bytes_of(p, n) : bytes_of(NULL, 0);
}

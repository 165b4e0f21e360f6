/* SPDX-License-Identifier: MIT */
/* A growing byte buffer.  Out of memory ends the process: every process here may die at any time. */
#ifndef INBOXD_BASE_BUF_H
#define INBOXD_BASE_BUF_H

#include "base/bytes.h"

#include <stdint.h>

struct buf {
	uint8_t *data;
	size_t size; /* bytes in use */
	size_t cap;
};

void buf_done(struct buf *b);                 /* frees; the buffer is empty and usable again */
void buf_clear(struct buf *b);                /* keeps the memory */
uint8_t *buf_reserve(struct buf *b, size_t n); /* room for n more bytes behind size; returns it */
void buf_add(struct buf *b, const void *data, size_t n);
void buf_add_str(struct buf *b, const char *s);
void buf_add_byte(struct buf *b, uint8_t c);
void buf_add_u16(struct buf *b, uint16_t v); /* integers are big-endian, as on the AMQP wire */
void buf_add_u32(struct buf *b, uint32_t v);
void buf_add_u64(struct buf *b, uint64_t v);
void buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_consume(struct buf *b, size_t n); /* drops the first n bytes */
const char *buf_str(struct buf *b);        /* NUL-terminates behind size; valid until the next change */

static inline struct bytes buf_bytes(const struct buf *b)
{
	return (struct bytes){.data = b->data, .size = b->size};
}

/* For processes that work through messages: what was freed is kept for the next one, up to some
 * megabytes, instead of being given back to the system and asked for again. */
void memory_keep(void);

/* malloc, calloc, strdup that cannot fail: they abort the process. */
void *xmalloc(size_t n) __attribute__((returns_nonnull, malloc));
void *xcalloc(size_t n, size_t size) __attribute__((returns_nonnull, malloc));
void *xrealloc(void *p, size_t n) __attribute__((returns_nonnull));
char *xstrdup(const char *s) __attribute__((returns_nonnull));
char *xstrndup(const char *s, size_t n) __attribute__((returns_nonnull));
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2), returns_nonnull));

/* Reads integers and byte runs out of a message; a read past the end sets bad and returns 0. */
struct reader {
	const uint8_t *p;
	const uint8_t *end;
	bool bad;
};

static inline struct reader reader_of(struct bytes b)
{
	return (struct reader){.p = b.data,
		.end = b.data != NULL ? b.data + b.size : NULL,
		.bad = false};
}

static inline size_t reader_left(const struct reader *r)
{
	return (size_t)(r->end - r->p);
}

uint8_t reader_u8(struct reader *r);
uint16_t reader_u16(struct reader *r);
uint32_t reader_u32(struct reader *r);
uint64_t reader_u64(struct reader *r);
struct bytes reader_bytes(struct reader *r, size_t n); /* borrowed from the message */

#endif

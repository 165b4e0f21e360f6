/* SPDX-License-Identifier: MIT */
/* Chunks, each twice the size of the one before: a pointer is found in a few steps. */
#include "handler/arena.h"

#include "base/buf.h"

#include <stdlib.h>

enum { FIRST_CHUNK = 16 << 10, KEPT_CHUNK = 1 << 20 };

struct arena_chunk {
	struct arena_chunk *before;
	size_t used, cap;
	max_align_t data[];
};

void *arena_alloc(struct arena *a, size_t n)
{
	struct arena_chunk *c = a->last;
	const size_t align = _Alignof(max_align_t);
	size_t need = (n + align - 1) / align * align;
	if (c == NULL || c->cap - c->used < need) {
		size_t cap = c != NULL ? 2 * c->cap : FIRST_CHUNK;
		if (cap < need)
			cap = need;
		c = xmalloc(sizeof *c + cap);
		c->before = a->last;
		c->used = 0;
		c->cap = cap;
		a->last = c;
	}
	void *p = (char *)c->data + c->used;
	c->used += need;
	return p;
}

struct bytes arena_copy(struct arena *a, struct bytes b)
{
	if (b.data == NULL)
		return b;
	uint8_t *p = arena_alloc(a, b.size + 1);
	memcpy(p, b.data, b.size);
	p[b.size] = '\0';
	return bytes_of(p, b.size);
}

bool arena_has(const struct arena *a, struct bytes b)
{
	uintptr_t p = (uintptr_t)b.data;
	for (const struct arena_chunk *c = a->last; c != NULL; c = c->before) {
		uintptr_t start = (uintptr_t)c->data;
		if (p >= start && p < start + c->used)
			return b.size < start + c->used - p && b.data[b.size] == '\0';
	}
	return false;
}

void arena_clear(struct arena *a)
{
	struct arena_chunk *c = a->last;
	while (c != NULL && (c->before != NULL || c->cap > KEPT_CHUNK)) {
		struct arena_chunk *before = c->before;
		free(c);
		c = before;
	}
	if (c != NULL)
		c->used = 0;
	a->last = c;
}

void arena_done(struct arena *a)
{
	arena_clear(a);
	free(a->last);
	a->last = NULL;
}

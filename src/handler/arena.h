/* SPDX-License-Identifier: MIT */
/* Memory for what lives until an entry of a handler returns.  It only grows, and is taken back
 * whole. */
#ifndef INBOXD_HANDLER_ARENA_H
#define INBOXD_HANDLER_ARENA_H

#include "base/bytes.h"

struct arena_chunk;
struct arena {
	struct arena_chunk *last; /* owned; the newest */
};

void *arena_alloc(struct arena *a, size_t n) __attribute__((returns_nonnull, malloc));

/* A copy with a NUL behind it that is not counted; absent stays absent. */
struct bytes arena_copy(struct arena *a, struct bytes b);

/* True if b lies in the arena and a NUL stands behind it. */
bool arena_has(const struct arena *a, struct bytes b);

/* Takes all back, but keeps a chunk of ordinary size for the next time. */
void arena_clear(struct arena *a);
void arena_done(struct arena *a);

#endif

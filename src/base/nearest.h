/* SPDX-License-Identifier: MIT */
/* The name somebody probably meant, for hints in error texts.  Pure. */
#ifndef INBOXD_BASE_NEAREST_H
#define INBOXD_BASE_NEAREST_H

#include "base/bytes.h"

/* The candidate with the fewest letters added, left out, changed or swapped with their neighbour,
 * or NULL if none is near: more than a third of the word's letters, rounded up, is too far.  Upper
 * and lower case and - and _ count as the same. */
const char *nearest_name(struct bytes word, const char *const *candidates, size_t n);

#endif

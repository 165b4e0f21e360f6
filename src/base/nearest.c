/* SPDX-License-Identifier: MIT */
/* Edit distance between short names. */
#include "base/nearest.h"

enum { LONGEST = 63 };

static size_t min(size_t a, size_t b)
{
	return a < b ? a : b;
}

static int folded(uint8_t c)
{
	if (c >= 'A' && c <= 'Z')
		return c + ('a' - 'A');
	return c == '-' ? '_' : c;
}

/* Row by row of the matrix of prefixes; a swap of neighbours looks back two rows. */
static size_t distance(struct bytes a, struct bytes b)
{
	size_t rows[3][LONGEST + 1];
	for (size_t j = 0; j <= b.size; j++)
		rows[0][j] = j;
	for (size_t i = 1; i <= a.size; i++) {
		size_t *row = rows[i % 3], *above = rows[(i - 1) % 3], *second = rows[(i + 1) % 3];
		row[0] = i;
		for (size_t j = 1; j <= b.size; j++) {
			int x = folded(a.data[i - 1]), y = folded(b.data[j - 1]);
			row[j] = min(above[j - 1] + (x != y), min(above[j], row[j - 1]) + 1);
			if (i > 1 && j > 1 && x == folded(b.data[j - 2]) &&
				y == folded(a.data[i - 2]))
				row[j] = min(row[j], second[j - 2] + 1);
		}
	}
	return rows[a.size % 3][b.size];
}

const char *nearest_name(struct bytes word, const char *const *candidates, size_t n)
{
	const char *nearest = NULL;
	size_t least = (word.size + 2) / 3;
	if (word.size == 0 || word.size > LONGEST)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		struct bytes candidate = bytes_str(candidates[i]);
		if (candidate.size > LONGEST)
			continue;
		size_t d = distance(word, candidate);
		if (d < least || (d == least && nearest == NULL)) {
			least = d;
			nearest = candidates[i];
		}
	}
	return nearest;
}

/* SPDX-License-Identifier: MIT */
/* Replaces, cuts, and shows that it cut. */
#include "handler/reason.h"

#include "base/utf8.h"

#define ELLIPSIS "\xe2\x80\xa6" /* U+2026 */

static bool is_allowed(uint32_t c)
{
	return (c >= 0x20 && c != 0x7f) || c == '\t' || c == '\n';
}

void reason_set(char *dst, size_t size, struct bytes text)
{
	const size_t room = size - 1;
	const size_t mark = sizeof ELLIPSIS - 1;
	size_t n = 0, n_with_mark = 0;
	for (size_t i = 0; i < text.size;) {
		uint32_t c = 0;
		size_t length = utf8_decode(text.data + i, text.size - i, &c);
		bool is_good = length != 0 && is_allowed(c);
		const void *piece = is_good ? (const void *)(text.data + i) : UTF8_REPLACEMENT;
		size_t piece_size = is_good ? length : sizeof UTF8_REPLACEMENT - 1;
		if (n + piece_size > room) {
			memcpy(dst + n_with_mark, ELLIPSIS, mark);
			n = n_with_mark + mark;
			break;
		}
		memcpy(dst + n, piece, piece_size);
		n += piece_size;
		if (n + mark <= room)
			n_with_mark = n;
		i += length != 0 ? length : 1;
	}
	dst[n] = '\0';
}

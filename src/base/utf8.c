/* SPDX-License-Identifier: MIT */
/* Reading and writing UTF-8. */
#include "base/utf8.h"

size_t utf8_decode(const uint8_t *p, size_t left, uint32_t *ret)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t n = p[0] < 0x80 ? 1 : p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
	uint32_t c = p[0];
	if (n > 1) {
		if (p[0] < 0xc2 || p[0] > 0xf4 || left < n)
			return 0;
		c = p[0] & (0xffu >> (n + 1));
	}
	for (size_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3fu);
	}
	if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return 0;
	if (ret != NULL)
		*ret = c;
	return n;
}

void utf8_add(struct buf *out, uint32_t c)
{
	uint8_t *p = buf_reserve(out, 4);
	size_t n = 0;
	if (c < 0x80) {
		p[n++] = (uint8_t)c;
	} else if (c < 0x800) {
		p[n++] = (uint8_t)(0xc0 | c >> 6);
	} else if (c < 0x10000) {
		p[n++] = (uint8_t)(0xe0 | c >> 12);
		p[n++] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
	} else {
		p[n++] = (uint8_t)(0xf0 | c >> 18);
		p[n++] = (uint8_t)(0x80 | (c >> 12 & 0x3f));
		p[n++] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
	}
	if (c >= 0x80)
		p[n++] = (uint8_t)(0x80 | (c & 0x3f));
	out->size += n;
}

size_t utf8_cut(struct bytes text, size_t max)
{
	if (text.size <= max)
		return text.size;
	for (size_t back = 0; back < 4 && back <= max; back++) {
		size_t at = max - back;
		if ((text.data[at] & 0xc0) != 0x80)
			return utf8_decode(text.data + at, text.size - at, NULL) != 0 ? at : max;
	}
	return max;
}

void utf8_clean(struct bytes text, char *out, size_t size)
{
	size_t used = 0;
	for (size_t i = 0; i < text.size;) {
		const uint8_t *p = text.data + i;
		size_t n = *p != 0 ? utf8_decode(p, text.size - i, NULL) : 0;
		const char *from = n != 0 ? (const char *)p : UTF8_REPLACEMENT;
		size_t wanted = n != 0 ? n : sizeof UTF8_REPLACEMENT - 1;
		if (used + wanted >= size)
			break;
		memcpy(out + used, from, wanted);
		used += wanted;
		i += n != 0 ? n : 1;
	}
	out[used] = '\0';
}

/* Unicode's Cc, Zl, Zp, Cf and Co, and the spaces and fillers that look like nothing. */
bool utf8_is_visible(uint32_t c)
{
	static const struct {
		uint32_t first, last;
	} hidden[] = {
		{0x00, 0x1f},
		{0x7f, 0xa0},
		{0xad, 0xad},
		{0x34f, 0x34f},
		{0x600, 0x605},
		{0x61c, 0x61c},
		{0x6dd, 0x6dd},
		{0x70f, 0x70f},
		{0x115f, 0x1160},
		{0x1680, 0x1680},
		{0x17b4, 0x17b5},
		{0x180b, 0x180f},
		{0x2000, 0x200f},
		{0x2028, 0x202f},
		{0x205f, 0x206f},
		{0x3000, 0x3000},
		{0x3164, 0x3164},
		{0xe000, 0xf8ff},
		{0xfdd0, 0xfdef},
		{0xfe00, 0xfe0f},
		{0xfeff, 0xfeff},
		{0xffa0, 0xffa0},
		{0xfff0, 0xfffb},
		{0xfffe, 0xffff},
		{0xe0000, 0x10ffff},
	};
	for (size_t i = 0; i < sizeof hidden / sizeof hidden[0] && hidden[i].first <= c; i++)
		if (c <= hidden[i].last)
			return false;
	return true;
}

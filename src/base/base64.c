/* SPDX-License-Identifier: MIT */
/* Base64: three bytes, four letters. */
#include "base/base64.h"

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(struct bytes data, struct buf *out)
{
	for (size_t i = 0; i < data.size; i += 3) {
		size_t n = data.size - i < 3 ? data.size - i : 3;
		uint32_t v = (uint32_t)data.data[i] << 16;
		if (n > 1)
			v |= (uint32_t)data.data[i + 1] << 8;
		if (n > 2)
			v |= data.data[i + 2];
		buf_add_byte(out, (uint8_t)letters[v >> 18]);
		buf_add_byte(out, (uint8_t)letters[v >> 12 & 63]);
		buf_add_byte(out, n > 1 ? (uint8_t)letters[v >> 6 & 63] : '=');
		buf_add_byte(out, n > 2 ? (uint8_t)letters[v & 63] : '=');
	}
}

static bool is_space(uint8_t c)
{
	return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* A whole group of four; pads of them stood for nothing.  Bits that stand for nothing must be 0, so
 * that each text has one meaning and each meaning one text. */
static bool add_group(struct buf *out, uint32_t v, unsigned pads)
{
	if (pads > 2 || (v & (pads == 2 ? 0xffffu : pads == 1 ? 0xffu : 0)) != 0)
		return false;
	buf_add_byte(out, (uint8_t)(v >> 16));
	if (pads < 2)
		buf_add_byte(out, (uint8_t)(v >> 8));
	if (pads < 1)
		buf_add_byte(out, (uint8_t)v);
	return true;
}

bool base64_decode(struct bytes text, struct buf *out)
{
	size_t before = out->size;
	uint32_t v = 0;
	unsigned n = 0, pads = 0;
	for (size_t i = 0; i < text.size; i++) {
		uint8_t c = text.data[i];
		if (is_space(c))
			continue;
		const char *at = c != '\0' ? strchr(letters, c) : NULL;
		bool is_good = c == '=' ? n >= 2 : at != NULL && pads == 0;
		if (!is_good)
			goto bad;
		pads += c == '=';
		v = v << 6 | (at != NULL ? (uint32_t)(at - letters) : 0);
		if (++n == 4) {
			if (!add_group(out, v, pads))
				goto bad;
			v = 0;
			n = 0;
		}
	}
	if (n == 0)
		return true;
bad:
	out->size = before;
	return false;
}

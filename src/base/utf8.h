/* SPDX-License-Identifier: MIT */
/* Well-formed UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing beyond U+10FFFF. */
#ifndef INBOXD_BASE_UTF8_H
#define INBOXD_BASE_UTF8_H

#include "base/buf.h"

#define UTF8_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Length of the well-formed sequence at p (1 to 4), and its code point if ret is not NULL; 0 if
 * there is none.  left must not be 0. */
size_t utf8_decode(const uint8_t *p, size_t left, uint32_t *ret);

/* Appends a code point; a surrogate is the caller's mistake. */
void utf8_add(struct buf *out, uint32_t code_point);

/* Length of text once it is cut, at the end of a character, to fit max bytes; it is the whole
 * length if text fits.  Bytes that are not UTF-8 are cut anywhere. */
size_t utf8_cut(struct bytes text, size_t max);

/* Copies text as well-formed UTF-8 without NUL into out (size bytes with the ending NUL), cut at the end of
 * a character; what is not UTF-8 becomes U+FFFD. */
void utf8_clean(struct bytes text, char *out, size_t size);

/* Whether a person sees the character as itself: no control, no format character that hides,
 * reorders or breaks what stands around it. */
bool utf8_is_visible(uint32_t code_point);

#endif

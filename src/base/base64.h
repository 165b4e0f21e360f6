/* SPDX-License-Identifier: MIT */
/* Base64 of RFC 4648, with its standard letters and padding.  Pure. */
#ifndef INBOXD_BASE_BASE64_H
#define INBOXD_BASE_BASE64_H

#include "base/buf.h"

void base64_encode(struct bytes data, struct buf *out);

/* Appends what text stands for.  White space is passed over; false (and out unchanged) on anything
 * else that is not base64 with its padding. */
bool base64_decode(struct bytes text, struct buf *out);

#endif

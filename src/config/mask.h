/* SPDX-License-Identifier: MIT */
/* Finds passwords in texts, so that neither an error nor a printed configuration shows one.  Pure.
 */
#ifndef INBOXD_CONFIG_MASK_H
#define INBOXD_CONFIG_MASK_H

#include "base/buf.h"

#define MASK "********"

/* Whether an option or header of that name holds a secret: password, token, api_key, db_secret …;
 * not password_file, which names one. */
bool mask_is_secret_name(const char *name);

/* Appends text with the passwords in URIs (`://user:…@`), in conninfos (`password=…`) and in the
 * parameters of URIs (`?password=…`) replaced by MASK. */
void mask_value(const char *text, struct buf *out);

/* Overwrites with MASK_BYTE whatever may be secret in a YAML file's text: what mask_value masks and
 * the values of keys with a secret name, also where they go on over several lines.  It works on any
 * text, well-formed or not, and rather masks too much.  Line feeds stay. */
#define MASK_BYTE '\x01'
void mask_file(char *text, size_t size);

#endif

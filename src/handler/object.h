/* SPDX-License-Identifier: MIT */
/* Whether a file is a shared object for this machine, and all of it is there.  Pure.  dlopen maps
 * before it looks: a truncated file kills the process that loads it. */
#ifndef INBOXD_HANDLER_OBJECT_H
#define INBOXD_HANDLER_OBJECT_H

#include "base/bytes.h"
#include "base/err.h"

/* self: the beginning (64 bytes are enough) of a program that runs here, to compare with.  RC_FATAL
 * with what the file is instead, or how much of it is missing. */
enum rc object_check(struct bytes file, struct bytes self, struct err *err) MUST_CHECK;

#endif

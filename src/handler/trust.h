/* SPDX-License-Identifier: MIT */
/* Who could put other code into a file that we are about to load. */
#ifndef INBOXD_HANDLER_TRUST_H
#define INBOXD_HANDLER_TRUST_H

#include "base/err.h"

#include <stdbool.h>
#include <sys/stat.h>

/* NULL if nobody but root and we ourselves can write to it, else what is wrong.  Writing by the
 * group is fine where the group is root's or ours; a directory open to all is where it is sticky,
 * because nobody can replace there what belongs to root or us.  Pure. */
const char *trust_objection(const struct stat *st, uid_t our_user, gid_t our_group);

/* The directories above path (absolute), as written and with symbolic links resolved.  RC_FATAL
 * names the one at fault and what to do. */
enum rc trust_directories(const char *path, struct err *err) MUST_CHECK;

/* An open file: regular, and as above. */
enum rc trust_file(int fd, const char *path, struct stat *ret_st, struct err *err) MUST_CHECK;

#endif

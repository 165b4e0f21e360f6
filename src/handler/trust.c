/* SPDX-License-Identifier: MIT */
/* Owners and modes on the way to a handler. */
#include "handler/trust.h"

#include "base/fd.h"

#include <errno.h>
#include <string.h>

const char *trust_objection(const struct stat *st, uid_t our_user, gid_t our_group)
{
	if (st->st_uid != 0 && st->st_uid != our_user)
		return "belongs neither to root nor to the user that inboxd runs as";
	if (S_ISDIR(st->st_mode) && (st->st_mode & S_ISVTX) != 0)
		return NULL;
	if ((st->st_mode & S_IWOTH) != 0)
		return "can be written by everybody";
	if ((st->st_mode & S_IWGRP) != 0 && st->st_gid != 0 && st->st_gid != our_group)
		return "can be written by a group that is neither root's nor that of inboxd";
	return NULL;
}

static enum rc judge(const char *path, const struct stat *st, struct err *err)
{
	const char *objection = trust_objection(st, geteuid(), getegid());
	if (objection == NULL)
		return RC_OK;
	return err_set(err, RC_FATAL,
		"%s %s (owner %u:%u, mode %04o), so others could put their code into inboxd: chown "
		"or "
		"chmod it",
		path, objection, (unsigned)st->st_uid, (unsigned)st->st_gid,
		(unsigned)(st->st_mode & 07777));
}

/* "/", "/usr", "/usr/lib", …, without the last component. */
static enum rc check_above(const char *path, struct err *err)
{
	AUTO(free) char *prefix = xstrdup(path);
	struct stat st;
	for (char *p = prefix; (p = strchr(p, '/')) != NULL; p++) {
		char kept = p[p == prefix];
		p[p == prefix] = '\0';
		if (stat(prefix, &st) != 0)
			return err_set(
				err, RC_FATAL, "cannot look at %s: %s", prefix, strerror(errno));
		if (judge(prefix, &st, err) != RC_OK)
			return err->rc;
		p[p == prefix] = kept;
	}
	return RC_OK;
}

enum rc trust_directories(const char *path, struct err *err)
{
	AUTO(free) char *real = realpath(path, NULL);
	if (real == NULL)
		return err_set(err, RC_FATAL, "cannot look at %s: %s", path, strerror(errno));
	if (check_above(path, err) != RC_OK)
		return err->rc;
	return check_above(real, err);
}

enum rc trust_file(int fd, const char *path, struct stat *ret_st, struct err *err)
{
	struct stat st;
	if (fstat(fd, &st) != 0)
		return err_set(err, RC_FATAL, "cannot look at %s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return err_set(err, RC_FATAL, "%s is no regular file", path);
	if (judge(path, &st, err) != RC_OK)
		return err->rc;
	*ret_st = st;
	return RC_OK;
}

/* SPDX-License-Identifier: MIT */
/* Which database a command logs in to: one of the configuration, or one that its options name. */
#ifndef INBOXD_CTL_LOGIN_H
#define INBOXD_CTL_LOGIN_H

#include "ctl/ctl.h"
#include "db/db.h"

enum { LOGIN_DATABASE = 0x200, LOGIN_CONNINFO, LOGIN_SCHEMA };

#define LOGIN_OPTIONS                                                                    \
	{LOGIN_DATABASE, "database", "NAME", "which of several configured databases"},   \
		{LOGIN_CONNINFO, "conninfo", "TEXT",                                     \
			"log in by this libpq conninfo, not as configured"},             \
	{                                                                                \
		LOGIN_SCHEMA, "schema", "NAME", "schema of inboxd, if not as configured" \
	}

struct login {
	const char *database, *conninfo, *schema; /* from options; NULL: none */
	struct config *config;                    /* owned; NULL where it was not needed */
	struct config_database effective;         /* owns its texts */
};

void login_done(struct login *l);
static inline void auto_login(struct login *l)
{
	login_done(l);
}

/* Takes one of LOGIN_OPTIONS; false if id is none of them. */
bool login_option(struct login *l, int id, const char *argument);

/* Reads the configuration, for those who look into it before they log in. */
int login_load(const struct ctl *ctl, struct login *l);

/* Fills effective.  The configuration is not read where --conninfo stands in for all of it: a
 * database's owner need not be able to read the daemon's file.  Returns 0, or the exit code of what
 * it said. */
int login_resolve(const struct ctl *ctl, struct login *l);

/* Resolves and connects; the session's application name is "inboxctl". */
int login_open(const struct ctl *ctl, struct login *l, struct db_conn **ret);

static inline void auto_db(struct db_conn **c)
{
	db_conn_close(*c);
}

/* Statement text with every "@." replaced by the schema; owned by the caller. */
char *login_sql(const struct db_conn *c, const char *text) __attribute__((returns_nonnull));

#endif

/* SPDX-License-Identifier: MIT */
/* Options win over the configuration, one by one. */
#include "ctl/login.h"

#include <stdlib.h>
#include <string.h>

#include "base/fd.h"

bool login_option(struct login *l, int id, const char *argument)
{
	switch (id) {
	case LOGIN_DATABASE:
		l->database = argument;
		return true;
	case LOGIN_CONNINFO:
		l->conninfo = argument;
		return true;
	case LOGIN_SCHEMA:
		l->schema = argument;
		return true;
	default:
		return false;
	}
}

static void free_texts(struct config_database *d)
{
	free(d->name);
	free(d->conninfo);
	free(d->password_file);
	free(d->schema);
	free(d->synchronous_commit);
	*d = (struct config_database){0};
}

void login_done(struct login *l)
{
	config_free(l->config);
	free_texts(&l->effective);
	*l = (struct login){0};
}

static char *copy_or_null(const char *text)
{
	return text != NULL ? xstrdup(text) : NULL;
}

/* A configured database, or what stands in for one. */
static void fill(struct login *l, const struct config_database *d)
{
	static char name[] = "default", conninfo[] = "", schema[] = "inboxd", on[] = "on";
	const struct config_database defaults = {.name = name,
		.conninfo = conninfo,
		.schema = schema,
		.synchronous_commit = on,
		.prepared_statements = true,
		.connect_timeout_ms = 10000};
	if (d == NULL)
		d = &defaults;
	l->effective = *d;
	l->effective.name = xstrdup(d->name);
	l->effective.conninfo = xstrdup(l->conninfo != NULL ? l->conninfo : d->conninfo);
	/* The password belongs to the configured login. */
	l->effective.password_file = l->conninfo != NULL ? NULL : copy_or_null(d->password_file);
	l->effective.schema = xstrdup(l->schema != NULL ? l->schema : d->schema);
	l->effective.synchronous_commit = xstrdup(d->synchronous_commit);
}

int login_load(const struct ctl *ctl, struct login *l)
{
	if (l->config == NULL)
		l->config = ctl_load(ctl);
	return l->config != NULL ? EX_OK : EX_CONFIG;
}

int login_resolve(const struct ctl *ctl, struct login *l)
{
	const struct config_database *d = NULL;
	struct err err;
	if (l->config != NULL || l->conninfo == NULL || l->database != NULL) {
		if (login_load(ctl, l) != EX_OK)
			return EX_CONFIG;
		d = ctl_find_database(l->config, l->database, &err);
		/* Without one to start from, --conninfo is still enough. */
		if (d == NULL && (l->conninfo == NULL || l->database != NULL))
			return ctl_fail_err(ctl, &err);
	}
	fill(l, d);
	return EX_OK;
}

int login_open(const struct ctl *ctl, struct login *l, struct db_conn **ret)
{
	struct err err;
	int exit = login_resolve(ctl, l);
	if (exit == EX_OK && db_conn_open(&l->effective, "inboxctl", ret, &err) != RC_OK)
		return ctl_fail_err(ctl, &err);
	return exit;
}

char *login_sql(const struct db_conn *c, const char *text)
{
	AUTO(buf) struct buf out = {0};
	for (const char *at; (at = strstr(text, "@.")) != NULL; text = at + 1) {
		buf_add(&out, text, (size_t)(at - text));
		buf_add_str(&out, db_conn_schema(c));
	}
	buf_add_str(&out, text);
	return xstrdup(buf_str(&out));
}

/* SPDX-License-Identifier: MIT */
/* inboxctl migrate: brings a database's schema to this version. */
#include "ctl/login.h"

#include <getopt.h>

#include "base/fd.h"
#include "base/json.h"
#include "db/migrate.h"

enum { OPT_PRINT = 0x100, OPT_ALL, OPT_RUN, OPT_OPERATOR, OPT_READ, MOST_GRANTS = 16 };

static const struct ctl_option options[] = {
	{OPT_PRINT, "print", NULL, "print what is missing as a script for psql, change nothing"},
	{OPT_ALL, "all", NULL, "with --print: print everything, without looking at a database"},
	{OPT_RUN, "grant-run", "ROLE", "let the daemon work as this role"},
	{OPT_OPERATOR, "grant-operator", "ROLE",
		"let this role see all and use operators' functions"},
	{OPT_READ, "grant-read", "ROLE", "let this role see the views"},
	LOGIN_OPTIONS,
};

struct migrate_args {
	bool print, all;
	struct migrate_grant grants[MOST_GRANTS];
	size_t n_grants;
	struct login login;
};

static int add_grant(const struct ctl *ctl, struct migrate_args *a, enum migrate_part part)
{
	if (a->n_grants == MOST_GRANTS)
		return ctl_usage(ctl, "more than %d roles in one go", MOST_GRANTS);
	a->grants[a->n_grants++] = (struct migrate_grant){.part = part, .role = optarg};
	return EX_OK;
}

static int take(const struct ctl *ctl, struct migrate_args *a, int id)
{
	switch (id) {
	case OPT_PRINT:
		a->print = true;
		break;
	case OPT_ALL:
		a->all = true;
		break;
	case OPT_RUN:
		return add_grant(ctl, a, MIGRATE_RUN);
	case OPT_OPERATOR:
		return add_grant(ctl, a, MIGRATE_OPERATOR);
	case OPT_READ:
		return add_grant(ctl, a, MIGRATE_READ);
	default:
		(void)login_option(&a->login, id, optarg);
	}
	return EX_OK;
}

/* Steps are no data: they go where errors go, so that --print stays clean. */
static void say(void *arg, const char *text)
{
	(void)arg;
	(void)fprintf(stderr, "%s\n", text);
}

static struct migrate_order order_of(const struct migrate_args *a)
{
	return (struct migrate_order){.schema = a->login.effective.schema,
		.grants = a->grants,
		.n_grants = a->n_grants,
		.say = say};
}

static int print(const struct ctl *ctl, struct migrate_args *a)
{
	AUTO(db) struct db_conn *db = NULL;
	AUTO(buf) struct buf out = {0};
	struct err err;
	/* With the schema named as well, --all needs neither configuration nor database. */
	if (a->all && a->login.conninfo == NULL && a->login.schema != NULL)
		a->login.conninfo = "";
	int exit = a->all ? login_resolve(ctl, &a->login) : login_open(ctl, &a->login, &db);
	if (exit != EX_OK)
		return exit;
	struct migrate_order order = order_of(a);
	if (migrate_print(db, &order, &out, &err) != RC_OK)
		return ctl_fail_err(ctl, &err);
	ctl_write(buf_bytes(&out));
	return EX_OK;
}

static void report(const struct ctl *ctl, const struct migrate_order *order, size_t applied)
{
	AUTO(buf) struct buf out = {0};
	if (ctl->json) {
		buf_add_str(&out, "{\"schema\": ");
		json_add_string(&out, bytes_str(order->schema));
		buf_addf(&out, ", \"version\": %u, \"applied\": %zu}\n", migrations_newest(),
			applied);
	} else {
		buf_addf(&out, "schema %s is at version %u (%zu applied now)\n", order->schema,
			migrations_newest(), applied);
	}
	ctl_write(buf_bytes(&out));
}

static int apply(const struct ctl *ctl, struct migrate_args *a)
{
	AUTO(db) struct db_conn *db = NULL;
	struct err err;
	size_t applied = 0;
	int exit = login_open(ctl, &a->login, &db);
	if (exit != EX_OK)
		return exit;
	struct migrate_order order = order_of(a);
	if (migrate_run(db, &order, &applied, &err) != RC_OK)
		return ctl_fail_err(ctl, &err);
	if (applied != 0 && a->n_grants == 0)
		say(NULL,
			"roles other than the schema's owner need the --grant options again after "
			"this");
	report(ctl, &order, applied);
	return EX_OK;
}

static int run(struct ctl *ctl, int argc, char **argv)
{
	struct migrate_args a = {0};
	int id, exit = EX_OK;
	while (exit == EX_OK && (id = ctl_next_option(ctl, argc, argv)) >= 0)
		exit = take(ctl, &a, id);
	if (exit != EX_OK)
		return exit;
	if (id == CTL_STOP)
		return ctl->exit;
	if (optind != argc)
		return ctl_usage(ctl, "it takes no \"%s\"", argv[optind]);
	if (a.all && !a.print)
		return ctl_usage(ctl, "--all goes with --print");
	exit = a.print ? print(ctl, &a) : apply(ctl, &a);
	login_done(&a.login);
	return exit;
}

const struct ctl_command ctl_migrate = {.name = "migrate",
	.operands = "",
	.summary = "Brings the database's schema to this version",
	.details =
		"\n"
		"It may be run at any time and as often as wanted; two at once wait for each\n"
		"other.  It has to log in as a role that owns the schema or may create it.  Other\n"
		"roles must exist and are granted what they need by the --grant options, again\n"
		"after each migration.",
	.options = options,
	.n_options = sizeof options / sizeof options[0],
	.run = run};

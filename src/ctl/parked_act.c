/* SPDX-License-Identifier: MIT */
/* inboxctl parked retry, discard, restore: by functions of the schema, message by message. */
#include "ctl/parked.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"

/* clang-format off */
static const struct action {
	const char *verb, *done;
	const char *states; /* that a group is of, unless it is said */
	const char *sql;    /* $1: ids of one transaction */
} actions[] = {
	{"retry", "retried", "{failed,waiting}",
		"SELECT i::text, @.parked_retry(i) FROM unnest($1::bigint[]) i"},
	{"discard", "discarded", "{waiting,failed,mismatch,unresolved}",
		"SELECT i::text, @.parked_discard(i) FROM unnest($1::bigint[]) i"},
	{"restore", "restored", "{discarded}",
		"SELECT i::text, @.parked_restore(i) FROM unnest($1::bigint[]) i"},
};

#define SELECTED "FROM @.parked_view WHERE ($1::text IS NULL OR consumer = $1) AND " \
	"CASE WHEN $2::text IS NULL THEN state = ANY ($4::text[]) ELSE state = $2 END AND " \
	"($3::text IS NULL OR reason = $3)"
static const char count_sql[] = "SELECT count(*)::text, coalesce(max(id), 0)::text " SELECTED;
/* Those that came after the count are not meant. */
static const char next_sql[] = "SELECT array_agg(id)::text, max(id)::text FROM (SELECT id " SELECTED
	" AND id > $5::bigint AND id <= $6::bigint ORDER BY id LIMIT 200) x";
/* clang-format on */

static const struct action *find_action(const char *verb)
{
	for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++)
		if (strcmp(actions[i].verb, verb) == 0)
			return &actions[i];
	return NULL;
}

bool parked_is_action(const char *verb)
{
	return find_action(verb) != NULL;
}

enum { MOST_TRIES = 5 };

/* ---- doing it -------------------------------------------------------------------- */

struct doing {
	const struct ctl *ctl;
	const struct action *action;
	struct db_conn *db;
	uint64_t done, refused;
	struct buf refusals; /* JSON, a comma in front of each but the first */
};

static void note_refusal(struct doing *d, struct bytes id, struct bytes why)
{
	d->refused++;
	if (d->ctl->json) {
		buf_addf(&d->refusals, "%s{\"id\": %.*s, \"reason\": ", d->refused > 1 ? ", " : "",
			(int)id.size, (const char *)id.data);
		json_add_string(&d->refusals, why);
		buf_add_byte(&d->refusals, '}');
		return;
	}
	(void)fprintf(stderr, "%.*s: %.*s\n", (int)id.size, (const char *)id.data, (int)why.size,
		(const char *)why.data);
}

static enum rc commit(struct db_conn *db, struct err *err)
{
	AUTO(result) struct db_result *res = NULL;
	enum rc rc = db_exec(db, "COMMIT", 0, NULL, false, &res, err);
	/* A session that ends takes an open transaction with it. */
	if (rc == RC_OK && strcmp(db_result_tag(res), "COMMIT") != 0)
		rc = err_set(err, RC_RETRY, "the database rolled the change back");
	return rc;
}

static enum rc transact(struct doing *d, const char *ids, struct db_result **ret, struct err *err)
{
	AUTO(free) char *sql = login_sql(d->db, d->action->sql);
	const struct db_value arg = {.data = ids, .size = strlen(ids)};
	enum rc rc = db_exec(d->db, "BEGIN READ WRITE", 0, NULL, false, NULL, err);
	if (rc == RC_OK)
		rc = db_exec(d->db, sql, 1, &arg, false, ret, err);
	if (rc == RC_OK)
		return commit(d->db, err);
	struct err ignored;
	enum db_tx_state state = db_tx_state(d->db);
	if (state != DB_TX_NONE && state != DB_TX_LOST)
		(void)!db_exec(d->db, "ROLLBACK", 0, NULL, false, NULL, &ignored);
	return rc;
}

/* One transaction; ids as an array of PostgreSQL's.  A daemon may hold some of the rows and want others: a
 * deadlock is tried again. */
static enum rc do_some(struct doing *d, const char *ids, struct err *err)
{
	AUTO(result) struct db_result *res = NULL;
	enum rc rc = RC_RETRY;
	for (int tries = 0; tries < MOST_TRIES; tries++) {
		db_result_free(res);
		res = NULL;
		rc = transact(d, ids, &res, err);
		if (rc == RC_OK || !db_error_is_serialization(err->sqlstate))
			break;
	}
	for (size_t i = 0; rc == RC_OK && i < db_result_rows(res); i++) {
		struct bytes why = db_result_value(res, i, 1);
		if (why.data != NULL)
			note_refusal(d, db_result_value(res, i, 0), why);
		else
			d->done++;
	}
	return rc;
}

static int report(struct doing *d)
{
	AUTO(buf) struct buf out = {0};
	if (d->ctl->json)
		buf_addf(&out, "{\"action\": \"%s\", \"done\": %" PRIu64 ", \"refused\": [%s]}\n",
			d->action->verb, d->done, d->refused != 0 ? buf_str(&d->refusals) : "");
	else if (d->refused != 0)
		buf_addf(&out, "%s %" PRIu64 ", refused %" PRIu64 "\n", d->action->done, d->done,
			d->refused);
	else
		buf_addf(&out, "%s %" PRIu64 "\n", d->action->done, d->done);
	ctl_write(buf_bytes(&out));
	return d->refused != 0 ? CTL_NO : EX_OK;
}

/* ---- by id ----------------------------------------------------------------------- */

static void say_matched(const struct doing *d, const char *count)
{
	(void)printf(d->ctl->json ? "{\"action\": \"%s\", \"matched\": %s}\n"
				  : "%s would be tried on %s messages\n",
		d->action->verb, count);
}

static int act_on_ids(struct doing *d, const struct parked_args *a, int n, char **ids)
{
	AUTO(buf) struct buf array = {0};
	struct err err;
	char count[16];
	if (a->dry_run) {
		(void)snprintf(count, sizeof count, "%d", n);
		say_matched(d, count);
		return EX_OK;
	}
	for (int i = 0; i < n; i++)
		buf_addf(&array, "%c%s", i == 0 ? '{' : ',', ids[i]);
	buf_add_byte(&array, '}');
	if (do_some(d, buf_str(&array), &err) != RC_OK)
		return ctl_fail_err(d->ctl, &err);
	return report(d);
}

/* ---- by what they are ------------------------------------------------------------ */

static struct db_value text_or_null(const char *text)
{
	return (struct db_value){.data = text, .size = text != NULL ? strlen(text) : 0};
}

static bool says_yes(const char *verb, const char *count)
{
	char line[16];
	(void)fprintf(stderr, "%s %s messages? [y/N] ", verb, count);
	return fgets(line, sizeof line, stdin) != NULL && (line[0] == 'y' || line[0] == 'Y');
}

/* Whether to go on; else *ret_exit says how it ended. */
static bool is_meant(
	const struct doing *d, const struct parked_args *a, const char *count, int *ret_exit)
{
	*ret_exit = EX_OK;
	if (a->dry_run) {
		say_matched(d, count);
		return false;
	}
	if (a->yes || strcmp(count, "0") == 0)
		return true;
	if (isatty(STDIN_FILENO) && says_yes(d->action->verb, count))
		return true;
	*ret_exit = ctl_fail(
		d->ctl, CTL_NO, "%s messages match and nothing was done: add --yes", count);
	return false;
}

static int act_on_group(struct doing *d, const struct parked_args *a)
{
	AUTO(free) char *count = login_sql(d->db, count_sql);
	AUTO(free) char *next = login_sql(d->db, next_sql);
	AUTO(result) struct db_result *counted = NULL;
	struct err err;
	struct db_value args[6] = {text_or_null(a->consumer), text_or_null(a->state),
		text_or_null(a->reason), text_or_null(d->action->states), text_or_null("0")};
	int exit = EX_OK;
	if (db_exec(d->db, count, 4, args, false, &counted, &err) != RC_OK)
		return ctl_fail_err(d->ctl, &err);
	if (!is_meant(d, a, (const char *)db_result_value(counted, 0, 0).data, &exit))
		return exit;
	args[5] = text_or_null((const char *)db_result_value(counted, 0, 1).data);
	AUTO(free) char *last = xstrdup("0");
	for (;;) {
		AUTO(result) struct db_result *some = NULL;
		args[4] = text_or_null(last);
		if (db_exec(d->db, next, 6, args, false, &some, &err) != RC_OK)
			return ctl_fail_err(d->ctl, &err);
		struct bytes ids = db_result_value(some, 0, 0);
		if (ids.data == NULL)
			return report(d);
		if (do_some(d, (const char *)ids.data, &err) != RC_OK) {
			(void)report(d); /* what was done stays done */
			return ctl_fail_err(d->ctl, &err);
		}
		free(last);
		last = xstrdup((const char *)db_result_value(some, 0, 1).data);
	}
}

int parked_act(const struct ctl *ctl, struct parked_args *args, const char *verb, int n, char **ids)
{
	AUTO(db) struct db_conn *db = NULL;
	struct doing d = {.ctl = ctl, .action = find_action(verb)};
	bool is_group =
		args->consumer != NULL || args->state != NULL || args->reason != NULL || args->all;
	uint64_t number;
	assert(d.action != NULL);
	if ((n > 0) == is_group)
		return ctl_usage(
			ctl, "%s takes ids, or --consumer, --state, --reason or --all", verb);
	for (int i = 0; i < n; i++)
		if (!ctl_number(ids[i], 1, INT64_MAX, &number))
			return ctl_usage(ctl,
				"\"%s\" is no id: take one from \"inboxctl parked list\"", ids[i]);
	int exit = login_open(ctl, &args->login, &db);
	if (exit != EX_OK)
		return exit;
	d.db = db;
	exit = n > 0 ? act_on_ids(&d, args, n, ids) : act_on_group(&d, args);
	buf_done(&d.refusals);
	return exit;
}

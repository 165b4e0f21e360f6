/* SPDX-License-Identifier: MIT */
/* inboxctl parked: messages that wait for their time or for a person. */
#include <getopt.h>
#include <inttypes.h>
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "ctl/amqp_value.h"
#include "ctl/draft.h"
#include "ctl/login.h"
#include "ctl/parked.h"
#include "ctl/table.h"

enum {
	OPT_CONSUMER = 0x100,
	OPT_STATE,
	OPT_REASON,
	OPT_LIMIT,
	OPT_GROUP,
	OPT_BODY,
	OPT_ALL,
	OPT_YES,
	OPT_DRY_RUN
};

enum { LIST_LIMIT = 100 };

static const struct ctl_option options[] = {
	{OPT_CONSUMER, "consumer", "NAME", "only this identity's"},
	{OPT_STATE, "state", "STATE", "only waiting, failed, mismatch, unresolved or discarded"},
	{OPT_REASON, "reason", "REASON", "only crashed, rejected, sql_error, too_large, ..."},
	{OPT_GROUP, "group", NULL, "list: alike ones once, with their number"},
	{OPT_LIMIT, "limit", "N", "list: at most so many, the oldest (default 100)"},
	{OPT_BODY, "body", NULL, "show: nothing but the body, byte for byte"},
	{OPT_ALL, "all", NULL, "retry, discard, restore: whichever there are"},
	{OPT_YES, "yes", NULL, "retry, discard, restore: do not ask"},
	{OPT_DRY_RUN, "dry-run", NULL, "retry, discard, restore: only say how many"},
	LOGIN_OPTIONS,
};

static struct db_value text_or_null(const char *text)
{
	return (struct db_value){.data = text, .size = text != NULL ? strlen(text) : 0};
}

/* ---- list ----------------------------------------------------------------------------------- */

#define UTC(column) "to_char(" column " AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')"

static const struct table_column list_columns[] = {{"id", true}, {"consumer", false},
	{"state", false}, {"reason", false}, {"attempts", true}, {"parked_at", false},
	{"next_at", false}, {"key", false}, {"detail", false}};
enum { N_LIST = sizeof list_columns / sizeof list_columns[0] };

/* clang-format off */
static const char list_sql[] =
	"SELECT id, consumer, state, reason, attempts, " UTC("parked_at") ", " UTC("next_at") ", key, "
	"detail FROM @.parked_view "
	"WHERE ($1::text IS NULL OR consumer = $1) AND ($2::text IS NULL OR state = $2) AND "
	"($3::text IS NULL OR reason = $3) ORDER BY id LIMIT $4::bigint + 1";

static const struct table_column group_columns[] = {{"messages", true}, {"consumer", false},
	{"state", false}, {"reason", false}, {"sqlstate", false}, {"oldest", false},
	{"newest", false}, {"example", true}, {"detail", false}};
enum { N_GROUP = sizeof group_columns / sizeof group_columns[0] };

static const char group_sql[] =
	"SELECT messages, consumer, state, reason, nullif(sqlstate, ''), " UTC("oldest") ", "
	UTC("newest") ", example, detail FROM @.parked_group_view "
	"WHERE ($1::text IS NULL OR consumer = $1) AND ($2::text IS NULL OR state = $2) AND "
	"($3::text IS NULL OR reason = $3) ORDER BY messages DESC, example LIMIT $4::bigint + 1";
/* clang-format on */

static int list(const struct ctl *ctl, struct parked_args *a)
{
	const size_t n_columns = a->group ? N_GROUP : N_LIST;
	AUTO(db) struct db_conn *db = NULL;
	AUTO(result) struct db_result *res = NULL;
	AUTO(table) struct table t = {0};
	AUTO(buf) struct buf out = {0};
	struct err err;
	char limit[24];
	table_init(&t, a->group ? group_columns : list_columns, n_columns);
	(void)snprintf(limit, sizeof limit, "%" PRIu64, a->limit);
	const struct db_value args[] = {text_or_null(a->consumer), text_or_null(a->state),
		text_or_null(a->reason), text_or_null(limit)};
	int exit = login_open(ctl, &a->login, &db);
	if (exit != EX_OK)
		return exit;
	AUTO(free) char *sql = login_sql(db, a->group ? group_sql : list_sql);
	if (db_exec(db, sql, 4, args, false, &res, &err) != RC_OK)
		return ctl_fail_err(ctl, &err);
	size_t n = db_result_rows(res);
	for (size_t i = 0; i < n && i < a->limit; i++)
		for (size_t k = 0; k < n_columns; k++)
			table_add(&t, db_result_value(res, i, k));
	if (ctl->json)
		table_print_json(&t, &out);
	else
		table_print(&t, &out);
	ctl_write(buf_bytes(&out));
	if (n > a->limit)
		(void)fprintf(stderr, "and more: see --limit, --consumer, --state, --reason\n");
	return EX_OK;
}

/* ---- show ----------------------------------------------------------------------------------- */

/* Shown as they are; the first ones by name, the message itself behind them. */
static const struct table_column facts[] = {{"id", true}, {"consumer", false}, {"entry", false},
	{"state", false}, {"reason", false}, {"detail", false}, {"sqlstate", false},
	{"attempts", true}, {"crashes", true}, {"parked_at", false}, {"changed_at", false},
	{"next_at", false}, {"key", false}, {"fingerprint", false}, {"queue", false},
	{"body_size", true}};
enum {
	N_FACTS = sizeof facts / sizeof facts[0],
	COLUMN_EXCHANGE = N_FACTS,
	COLUMN_ROUTING_KEY,
	COLUMN_REDELIVERED,
	COLUMN_PROPERTIES,
};

/* clang-format off */
static const char facts_sql[] =
	"SELECT p.id::text, c.identity, p.entry, p.state, p.reason, p.detail, p.sqlstate, "
	"p.attempts::text, p.crashes::text, " UTC("p.parked_at") ", " UTC("p.changed_at") ", "
	UTC("p.next_at") ", @.key_text(p.key), encode(p.fingerprint, 'hex'), p.queue, "
	"p.body_size::text, p.exchange, p.routing_key, p.redelivered, p.properties "
	"FROM @.parked p JOIN @.consumer c ON c.id = p.consumer WHERE p.id = $1::bigint";
/* clang-format on */

static const char body_sql[] = "SELECT body FROM @.parked WHERE id = $1::bigint";
static const char chunk_sql[] = "SELECT seq, data FROM @.parked_chunk WHERE parked = $1::bigint "
				"AND seq > $2::integer ORDER BY seq LIMIT 1";

/* Hands the body over piece by piece, since it may be larger than memory. */
static enum rc read_body(struct db_conn *db, const char *id,
	void (*take)(void *arg, struct bytes piece), void *arg, struct err *err)
{
	AUTO(free) char *sql = login_sql(db, body_sql);
	AUTO(result) struct db_result *whole = NULL;
	struct db_value args[] = {text_or_null(id), text_or_null("-1")};
	enum rc rc = db_exec(db, sql, 1, args, true, &whole, err);
	if (rc != RC_OK || db_result_rows(whole) == 0)
		return rc;
	struct bytes body = db_result_value(whole, 0, 0);
	if (body.data != NULL) {
		take(arg, body);
		return RC_OK;
	}
	AUTO(free) char *next = login_sql(db, chunk_sql);
	for (;;) {
		AUTO(result) struct db_result *piece = NULL;
		char seq[24];
		rc = db_exec(db, next, 2, args, true, &piece, err);
		if (rc != RC_OK || db_result_rows(piece) == 0)
			return rc;
		take(arg, db_result_value(piece, 0, 1));
		(void)snprintf(seq, sizeof seq, "%" PRId64, db_result_int(piece, 0, 0));
		args[1] = text_or_null(seq);
	}
}

static void write_piece(void *arg, struct bytes piece)
{
	(void)arg;
	ctl_write(piece);
}

static void keep_piece(void *arg, struct bytes piece)
{
	buf_add(arg, piece.data, piece.size);
}

static struct message message_of(const struct db_result *res)
{
	return (struct message){.exchange = db_result_value(res, 0, COLUMN_EXCHANGE),
		.routing_key = db_result_value(res, 0, COLUMN_ROUTING_KEY),
		.properties = db_result_value(res, 0, COLUMN_PROPERTIES),
		.redelivered = db_result_value(res, 0, COLUMN_REDELIVERED).data[0] != 0};
}

/* One JSON object whose member "message" is what `inboxctl try` takes. */
static void print_json(const struct db_result *res, const struct message *m, struct buf *out)
{
	buf_add_str(out, "{\n");
	for (size_t k = 0; k < N_FACTS; k++) {
		struct bytes v = db_result_value(res, 0, k);
		buf_addf(out, "  \"%s\": ", facts[k].name);
		if (v.data == NULL)
			buf_add_str(out, "null");
		else if (facts[k].is_number)
			buf_add(out, v.data, v.size);
		else
			json_add_string(out, v);
		buf_add_str(out, ",\n");
	}
	buf_add_str(out, "  \"message\": ");
	draft_print(out, m, "  ");
	buf_add_str(out, "\n}\n");
}

static void print_line(struct buf *out, const char *name, struct bytes value)
{
	buf_addf(out, "%-12s ", name);
	ctl_add_visible(out, value);
	buf_add_byte(out, '\n');
}

static void print_properties(const struct props *p, struct buf *out)
{
	for (int i = 0; i < PROP_COUNT; i++) {
		if (i == PROP_HEADERS || (p->present & (1u << i)) == 0)
			continue;
		buf_addf(out, "  %s: ", prop_name((enum prop)i));
		if (prop_is_number((enum prop)i))
			buf_addf(out, "%" PRIu64, p->number[i]);
		else
			ctl_add_visible(out, p->text[i]);
		buf_add_byte(out, '\n');
	}
}

static void print_headers(struct bytes table, struct buf *out)
{
	struct reader r = reader_of(table);
	struct amqp_entry e;
	while (amqp_next(&r, false, &e)) {
		AUTO(buf) struct buf value = {0};
		buf_add_str(out, "  ");
		ctl_add_visible(out, e.field.name);
		buf_addf(out, " (%s): ", e.type);
		if (!field_text(&e.field, &value))
			amqp_add_as_json(&value, &e);
		ctl_add_visible(out, buf_bytes(&value));
		buf_add_byte(out, '\n');
	}
	if (r.bad)
		buf_add_str(out, "  (what follows is malformed)\n");
}

static void print_text(const struct db_result *res, const struct message *m, struct buf *out)
{
	struct props props;
	for (size_t k = 0; k < N_FACTS; k++) {
		struct bytes v = db_result_value(res, 0, k);
		if (v.size != 0)
			print_line(out, facts[k].name, v);
	}
	print_line(out, "exchange", m->exchange);
	print_line(out, "routing_key", m->routing_key);
	print_line(out, "redelivered", bytes_str(m->redelivered ? "yes" : "no"));
	if (!props_decode(m->properties, &props)) {
		buf_add_str(out, "properties   not known\n");
		return;
	}
	buf_add_str(out, "properties\n");
	print_properties(&props, out);
	buf_add_str(out, "headers\n");
	print_headers(props.text[PROP_HEADERS], out);
}

static int show(const struct ctl *ctl, struct db_conn *db, const char *id, bool only_body)
{
	AUTO(free) char *sql = login_sql(db, facts_sql);
	AUTO(result) struct db_result *res = NULL;
	AUTO(buf) struct buf out = {0}, body = {0};
	struct err err;
	const struct db_value arg = text_or_null(id);
	if (db_exec(db, sql, 1, &arg, true, &res, &err) != RC_OK)
		return ctl_fail_err(ctl, &err);
	if (db_result_rows(res) == 0)
		return ctl_fail(ctl, CTL_NO, "no message %s is parked", id);
	struct message m = message_of(res);
	enum rc rc = RC_OK;
	if (only_body)
		rc = read_body(db, id, write_piece, NULL, &err);
	else if (ctl->json)
		rc = read_body(db, id, keep_piece, &body, &err);
	if (rc != RC_OK)
		return ctl_fail_err(ctl, &err);
	if (!only_body && ctl->json) {
		m.body = body.data != NULL ? buf_bytes(&body) : bytes_str("");
		print_json(res, &m, &out);
	} else if (!only_body) {
		print_text(res, &m, &out);
	}
	ctl_write(buf_bytes(&out));
	return EX_OK;
}

static int show_one(const struct ctl *ctl, struct parked_args *a, const char *id)
{
	AUTO(db) struct db_conn *db = NULL;
	uint64_t number;
	if (!ctl_number(id, 1, INT64_MAX, &number))
		return ctl_usage(
			ctl, "\"%s\" is no id: take one from \"inboxctl parked list\"", id);
	int exit = login_open(ctl, &a->login, &db);
	return exit == EX_OK ? show(ctl, db, id, a->body) : exit;
}

/* ---- all ------------------------------------------------------------------------------------ */

static bool is_state(const char *text)
{
	static const char *const states[] = {
		"waiting", "failed", "mismatch", "unresolved", "discarded"};
	for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
		if (strcmp(text, states[i]) == 0)
			return true;
	return false;
}

static bool is_reason(const char *text)
{
	static const char *const reasons[] = {"mismatch", "no_key", "unusable_key", "too_large",
		"undecodable", "rejected", "sql_error", "retry", "broken", "crashed", "timed_out",
		"redelivered"};
	for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
		if (strcmp(text, reasons[i]) == 0)
			return true;
	return false;
}

static int take(const struct ctl *ctl, struct parked_args *a, int id)
{
	switch (id) {
	case OPT_CONSUMER:
		a->consumer = optarg;
		break;
	case OPT_STATE:
		a->state = optarg;
		if (!is_state(optarg))
			return ctl_usage(ctl, "there is no state \"%s\"", optarg);
		break;
	case OPT_REASON:
		a->reason = optarg;
		if (!is_reason(optarg))
			return ctl_usage(ctl, "there is no reason \"%s\"", optarg);
		break;
	case OPT_GROUP:
		a->group = true;
		break;
	case OPT_ALL:
		a->all = true;
		break;
	case OPT_YES:
		a->yes = true;
		break;
	case OPT_DRY_RUN:
		a->dry_run = true;
		break;
	case OPT_LIMIT:
		if (!ctl_number(optarg, 1, INT32_MAX, &a->limit))
			return ctl_usage(ctl, "--limit: \"%s\" is no number from 1 on", optarg);
		break;
	case OPT_BODY:
		a->body = true;
		break;
	default:
		(void)login_option(&a->login, id, optarg);
	}
	return EX_OK;
}

/* An option that is not for this verb is a mistake, and may be a dear one. */
static int check_options(const struct ctl *ctl, const struct parked_args *a, const char *verb)
{
	bool is_list = strcmp(verb, "list") == 0, is_show = strcmp(verb, "show") == 0;
	bool is_action = parked_is_action(verb);
	const struct {
		const char *name;
		bool is_given, is_fitting;
	} given[] = {
		{"--limit", a->limit != 0, is_list},
		{"--group", a->group, is_list},
		{"--body", a->body, is_show},
		{"--consumer", a->consumer != NULL, !is_show},
		{"--state", a->state != NULL, !is_show},
		{"--reason", a->reason != NULL, !is_show},
		{"--all", a->all, is_action},
		{"--yes", a->yes, is_action},
		{"--dry-run", a->dry_run, is_action},
	};
	for (size_t i = 0; i < sizeof given / sizeof given[0]; i++)
		if (given[i].is_given && !given[i].is_fitting)
			return ctl_usage(ctl, "%s is not for %s", given[i].name, verb);
	return EX_OK;
}

static int dispatch(const struct ctl *ctl, struct parked_args *a, int argc, char **argv)
{
	const char *verb = optind < argc ? argv[optind] : "list";
	int operands = argc - optind;
	int wrong = check_options(ctl, a, verb);
	if (wrong != EX_OK)
		return wrong;
	if (a->limit == 0)
		a->limit = LIST_LIMIT;
	if (strcmp(verb, "list") == 0 && operands <= 1)
		return list(ctl, a);
	if (strcmp(verb, "show") == 0 && operands == 2)
		return show_one(ctl, a, argv[optind + 1]);
	if (strcmp(verb, "show") == 0)
		return ctl_usage(ctl, "show takes one id");
	if (parked_is_action(verb))
		return parked_act(ctl, a, verb, operands - 1, argv + optind + 1);
	return ctl_usage(
		ctl, "it takes list, show, retry, discard or restore, not \"%s\"", argv[argc - 1]);
}

static int run(struct ctl *ctl, int argc, char **argv)
{
	struct parked_args a = {.limit = 0};
	int id, exit = EX_OK;
	while (exit == EX_OK && (id = ctl_next_option(ctl, argc, argv)) >= 0)
		exit = take(ctl, &a, id);
	if (exit == EX_OK)
		exit = id == CTL_STOP ? ctl->exit : dispatch(ctl, &a, argc, argv);
	login_done(&a.login);
	return exit;
}

const struct ctl_command ctl_parked = {.name = "parked",
	.operands = "[list | show ID | retry ID... | discard ID... | restore ID...]",
	.summary = "Lists the messages that are parked, shows one, or says what becomes of them",
	.details =
		"\n"
		"\"retry\" runs them again at once, \"discard\" settles them for good, "
		"\"restore\" takes\n"
		"that back.  Instead of ids they take --consumer, --state, --reason or --all, say\n"
		"how many that are, and ask.  What \"show --json\" prints can be given to\n"
		"\"inboxctl try\".",
	.options = options,
	.n_options = sizeof options / sizeof options[0],
	.run = run};

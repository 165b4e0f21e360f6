/* SPDX-License-Identifier: MIT */
/* inboxctl consumers: what the database remembers of consumers, and the operator's word that a
 * change of it is meant. */
#include "ctl/login.h"

#include <getopt.h>
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "ctl/table.h"
#include "mq/uri.h"

static const struct ctl_option options[] = {LOGIN_OPTIONS};

/* What identifies a consumer, in the order of accept_consumer's arguments behind identity and
 * entry. */
enum fact { FACT_VHOST, FACT_QUEUE, FACT_KEY, FACT_FINGERPRINT, N_FACTS };
static const char *const fact_names[] = {
	[FACT_VHOST] = "vhost",
	[FACT_QUEUE] = "queue",
	[FACT_KEY] = "key",
	[FACT_FINGERPRINT] = "fingerprint",
};

struct facts {
	struct bytes of[N_FACTS]; /* borrowed */
};

/* The vhost a consumer uses, as its connections will see it. */
static enum rc find_vhost(
	const struct config_broker *b, struct mq_uri *uri, const char **ret, struct err *err)
{
	*ret = b->vhost;
	if (b->vhost != NULL)
		return RC_OK;
	if (mq_uri_parse(b->uris.items[0], uri, err) != RC_OK)
		return err_ctx(err, "broker \"%s\"", b->name);
	*ret = uri->vhost;
	return RC_OK;
}

static enum rc configured(
	const struct config_consumer *c, struct mq_uri *uri, struct facts *ret, struct err *err)
{
	const char *vhost = NULL;
	if (find_vhost(c->broker, uri, &vhost, err) != RC_OK)
		return err->rc;
	ret->of[FACT_VHOST] = bytes_str(vhost);
	ret->of[FACT_QUEUE] = bytes_str(c->queue);
	ret->of[FACT_KEY] = bytes_str(c->key.text);
	ret->of[FACT_FINGERPRINT] = bytes_str(c->fingerprint.text);
	return RC_OK;
}

static bool is_same(const struct facts *a, const struct facts *b)
{
	for (int f = 0; f < N_FACTS; f++)
		if (!bytes_equal(a->of[f], b->of[f]))
			return false;
	return true;
}

/* ---- list ----------------------------------------------------------------------------------- */

static const struct table_column columns[] = {{"consumer", false}, {"entry", false},
	{"vhost", false}, {"queue", false}, {"key", false}, {"fingerprint", false},
	{"registered_at", false}, {"accepted_at", false}, {"configuration", false}};
enum { N_COLUMNS = sizeof columns / sizeof columns[0], COLUMN_ENTRY = 1, COLUMN_FACTS = 2 };

static const char list_sql[] =
	"SELECT consumer, entry, vhost, queue, key_rule, fingerprint_rule, "
	"to_char(registered_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), "
	"to_char(accepted_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') "
	"FROM @.consumer_view ORDER BY consumer, entry";

static const struct config_consumer *find_entry(const struct config *config, struct bytes entry)
{
	for (size_t i = 0; entry.data != NULL && i < config->n_consumers; i++)
		if (bytes_equal(entry, bytes_str(config->consumers[i]->name)))
			return config->consumers[i];
	return NULL;
}

/* How the configuration at hand looks upon a registered entry. */
static const char *compare(const struct config *config, const struct db_result *res, size_t row)
{
	struct facts old, new;
	struct mq_uri uri;
	struct err err;
	if (config == NULL)
		return NULL;
	const struct config_consumer *c =
		find_entry(config, db_result_value(res, row, COLUMN_ENTRY));
	if (c == NULL)
		return "not in it";
	for (size_t f = 0; f < N_FACTS; f++)
		old.of[f] = db_result_value(res, row, COLUMN_FACTS + f);
	return configured(c, &uri, &new, &err) == RC_OK && is_same(&old, &new) ? "same" : "differs";
}

static int list(const struct ctl *ctl, struct login *login)
{
	AUTO(db) struct db_conn *db = NULL;
	AUTO(result) struct db_result *res = NULL;
	AUTO(table) struct table t = {0};
	AUTO(buf) struct buf out = {0};
	struct err err;
	table_init(&t, columns, N_COLUMNS);
	int exit = login_open(ctl, login, &db);
	if (exit != EX_OK)
		return exit;
	AUTO(free) char *sql = login_sql(db, list_sql);
	if (db_exec(db, sql, 0, NULL, false, &res, &err) != RC_OK)
		return ctl_fail_err(ctl, &err);
	for (size_t i = 0; i < db_result_rows(res); i++) {
		for (size_t k = 0; k < N_COLUMNS - 1; k++)
			table_add(&t, db_result_value(res, i, k));
		table_add(&t, bytes_str(compare(login->config, res, i)));
	}
	if (ctl->json)
		table_print_json(&t, &out);
	else
		table_print(&t, &out);
	ctl_write(buf_bytes(&out));
	return EX_OK;
}

/* ---- accept --------------------------------------------------------------------------------- */

/* The rules are the identity's, vhost and queue the entry's, which may not be there yet. */
static const char old_sql[] =
	"SELECT e.vhost, e.queue, c.key_rule, c.fingerprint_rule FROM @.consumer c "
	"LEFT JOIN @.consumer_entry e ON e.consumer = c.id AND e.entry = $2 WHERE c.identity = $1";

/* "  queue: orders -> orders-2" for each fact; in JSON only those that change. */
static void print_facts(const struct ctl *ctl, const struct config_consumer *c,
	const struct facts *old, const struct facts *new, struct buf *out)
{
	const char *comma = "";
	if (ctl->json) {
		buf_add_str(out, "{\"consumer\": ");
		json_add_string(out, bytes_str(c->name));
		buf_add_str(out, ", \"changes\": [");
	} else {
		buf_addf(out, "consumer %s, identity %s\n", c->name, c->identity);
	}
	for (int f = 0; f < N_FACTS; f++) {
		bool is_change = !bytes_equal(old->of[f], new->of[f]);
		if (ctl->json && is_change) {
			buf_addf(out, "%s{\"name\": \"%s\", \"old\": ", comma, fact_names[f]);
			json_add_string(out, old->of[f]);
			buf_add_str(out, ", \"new\": ");
			json_add_string(out, new->of[f]);
			buf_add_str(out, "}");
			comma = ", ";
		} else if (!ctl->json) {
			buf_addf(out, "  %-12s ", fact_names[f]);
			ctl_add_visible(out, old->of[f]);
			buf_add_str(out, is_change ? "  ->  " : "");
			ctl_add_visible(out, is_change ? new->of[f] : bytes_str(""));
			buf_add_byte(out, '\n');
		}
	}
	buf_add_str(out, ctl->json ? "]}\n" : "");
}

/* Text for a parameter: a NUL stands behind what comes from the configuration. */
static struct db_value text_value(struct bytes text)
{
	return (struct db_value){.data = text.data, .size = text.size};
}

static enum rc accept_facts(struct db_conn *db, const struct config_consumer *c,
	const struct facts *new, struct err *err)
{
	AUTO(free) char *sql = login_sql(db, "SELECT @.accept_consumer($1, $2, $3, $4, $5, $6)");
	AUTO(result) struct db_result *res = NULL;
	struct db_value args[2 + N_FACTS] = {
		text_value(bytes_str(c->identity)), text_value(bytes_str(c->name))};
	for (size_t f = 0; f < N_FACTS; f++)
		args[2 + f] = text_value(new->of[f]);
	enum rc rc = db_exec(db, "BEGIN READ WRITE", 0, NULL, false, NULL, err);
	if (rc == RC_OK)
		rc = db_exec(db, sql, 2 + N_FACTS, args, false, NULL, err);
	if (rc == RC_OK)
		rc = db_exec(db, "COMMIT", 0, NULL, false, &res, err);
	/* A session that ends takes an open transaction with it. */
	if (rc == RC_OK && strcmp(db_result_tag(res), "COMMIT") != 0)
		rc = err_set(err, RC_RETRY, "the database rolled the change back");
	return rc;
}

static int accept_change(const struct ctl *ctl, struct db_conn *db, const struct config_consumer *c)
{
	AUTO(free) char *sql = login_sql(db, old_sql);
	AUTO(result) struct db_result *res = NULL;
	AUTO(buf) struct buf out = {0};
	struct facts old, new;
	struct mq_uri uri;
	struct err err;
	const struct db_value args[] = {
		text_value(bytes_str(c->identity)), text_value(bytes_str(c->name))};
	if (configured(c, &uri, &new, &err) != RC_OK ||
		db_exec(db, sql, 2, args, false, &res, &err) != RC_OK)
		return ctl_fail_err(ctl, &err);
	if (db_result_rows(res) == 0)
		return ctl_fail(ctl, CTL_NO,
			"consumer \"%s\" is not registered in this database: inboxd will do that "
			"at its start",
			c->name);
	for (size_t f = 0; f < N_FACTS; f++)
		old.of[f] = db_result_value(res, 0, f);
	print_facts(ctl, c, &old, &new, &out);
	ctl_write(buf_bytes(&out));
	if (is_same(&old, &new))
		return EX_OK;
	if (accept_facts(db, c, &new, &err) != RC_OK)
		return ctl_fail_err(ctl, &err);
	(void)fprintf(stderr, "accepted\n");
	return EX_OK;
}

static int accept_one(const struct ctl *ctl, struct login *login, const char *name)
{
	AUTO(db) struct db_conn *db = NULL;
	struct err err;
	int exit = login_load(ctl, login);
	if (exit != EX_OK)
		return exit;
	const struct config_consumer *c = ctl_find_consumer(login->config, name, &err);
	if (c == NULL)
		return ctl_fail_err(ctl, &err);
	login->database = c->database->name;
	exit = login_open(ctl, login, &db);
	return exit == EX_OK ? accept_change(ctl, db, c) : exit;
}

/* ---- both ----------------------------------------------------------------------------------- */

static int dispatch(const struct ctl *ctl, struct login *login, int argc, char **argv)
{
	const char *verb = optind < argc ? argv[optind] : "list";
	int operands = argc - optind;
	if (strcmp(verb, "list") == 0 && operands <= 1)
		return list(ctl, login);
	if (strcmp(verb, "accept") == 0 && operands == 2)
		return accept_one(ctl, login, argv[optind + 1]);
	if (strcmp(verb, "accept") == 0)
		return ctl_usage(ctl, "accept takes one consumer");
	return ctl_usage(ctl, "it takes \"list\" or \"accept NAME\", not \"%s\"", argv[argc - 1]);
}

static int run(struct ctl *ctl, int argc, char **argv)
{
	AUTO(login) struct login login = {0};
	int id;
	while ((id = ctl_next_option(ctl, argc, argv)) >= 0)
		(void)login_option(&login, id, optarg);
	return id == CTL_STOP ? ctl->exit : dispatch(ctl, &login, argc, argv);
}

const struct ctl_command ctl_consumers = {.name = "consumers",
	.operands = "[list | accept NAME]",
	.summary = "Lists the consumers that the database knows, or accepts a change of one",
	.details = "\n"
		   "A consumer is known by its vhost, its queue, and the rules its keys and\n"
		   "fingerprints are made by.  inboxd refuses to start it when the configuration\n"
		   "says otherwise, because messages could then be repeated or swallowed.  "
		   "\"accept\"\n"
		   "shows both and takes the configuration's word.",
	.options = options,
	.n_options = sizeof options / sizeof options[0],
	.run = run};

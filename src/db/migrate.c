/* SPDX-License-Identifier: MIT */
/* Plans, applies and prints migrations.  What was applied stands in SCHEMA.migration; what is known
 * stands in the program. */
#include "db/migrate.h"

#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/version.h"
#include "db/script.h"

/* With two 32-bit numbers advisory locks have a space apart from the 64-bit ones of message keys.
 */
#define LOCK_CLASS 0x696e6278

static const char *const part_template[] = {
	[MIGRATE_RUN] = "grants_run",
	[MIGRATE_OPERATOR] = "grants_operator",
	[MIGRATE_READ] = "grants_read",
};

enum rc migrate_plan(const struct migration *known, size_t n_known, const struct migrate_row *rows,
	size_t n_rows, size_t *ret_applied, struct err *err)
{
	for (size_t i = 0; i < n_rows; i++) {
		const struct migrate_row *row = &rows[i];
		if (i >= n_known) {
			const struct migrate_row *last = &rows[n_rows - 1];
			return err_set(err, RC_FATAL,
				"the database is at version %u (%s), this program knows only %zu: "
				"use "
				"inboxctl %s, which brought it there, or a later one",
				last->version, last->name, n_known, last->program);
		}
		if (row->version != known[i].version)
			return err_set(err, RC_FATAL,
				"the database has version %u (%s) where %s belongs: apply or "
				"restore the "
				"missing one by hand",
				row->version, row->name, known[i].name);
		uint8_t checksum[MIGRATION_CHECKSUM_SIZE];
		migration_checksum(&known[i], checksum);
		if (memcmp(checksum, row->checksum, sizeof checksum) != 0)
			return err_set(err, RC_FATAL,
				"%s was applied by inboxctl %s with other content than this "
				"program has: "
				"use that program, or compare the two (inboxctl migrate --print "
				"--all)",
				row->name, row->program);
	}
	*ret_applied = n_rows;
	return RC_OK;
}

/* Such a name could not stand inside the quoted texts of the scripts. */
static enum rc check_schema_name(const char *schema, struct err *err)
{
	if (schema[0] == '\0' || strlen(schema) > 63 || strpbrk(schema, "'\"$\\@\n") != NULL)
		return err_set(err, RC_FATAL,
			"\"%s\" cannot be the schema: a name has 1 to 63 bytes without ' \" $ \\ @",
			schema);
	return RC_OK;
}

static int32_t lock_id(const char *schema)
{
	uint8_t hash[HASH_SIZE];
	hash_sha256(bytes_str(schema), hash);
	return (int32_t)((uint32_t)hash[0] << 24 | (uint32_t)hash[1] << 16 |
		(uint32_t)hash[2] << 8 | hash[3]);
}

/* ---- texts ---------------------------------------------------------------------------------- */

static void add_record(struct buf *out, const struct migration *m, const char *schema)
{
	uint8_t checksum[MIGRATION_CHECKSUM_SIZE];
	migration_checksum(m, checksum);
	buf_add_str(out, "INSERT INTO ");
	sql_add_identifier(out, schema);
	buf_addf(out, ".migration (version, name, sha256, program)\nVALUES (%u, '%s', decode('",
		m->version, m->name);
	for (size_t i = 0; i < sizeof checksum; i++)
		buf_addf(out, "%02x", checksum[i]);
	buf_add_str(out, "', 'hex'), '" INBOXD_VERSION "');\n");
}

static void add_base(struct buf *out, const char *schema)
{
	sql_add_filled(out, migrations_template("migration_table"), schema, NULL);
}

static void add_grant(struct buf *out, const struct migrate_order *order, size_t i)
{
	const struct migrate_grant *g = &order->grants[i];
	sql_add_filled(out, migrations_template(part_template[g->part]), order->schema, g->role);
}

/* ---- the database's side -------------------------------------------------------------------- */

static enum rc has_table(struct db_conn *c, const char *schema, bool *ret, struct err *err)
{
	AUTO(buf) struct buf name = {0};
	sql_add_identifier(&name, schema);
	buf_add_str(&name, ".migration");
	struct db_value arg = {.data = buf_str(&name), .size = name.size};
	AUTO(result) struct db_result *res = NULL;
	enum rc rc = db_exec(c, "SELECT to_regclass($1) IS NOT NULL", 1, &arg, true, &res, err);
	if (rc == RC_OK)
		*ret = db_result_value(res, 0, 0).data[0] != 0;
	return rc;
}

static void copy_text(char *to, size_t size, struct bytes from)
{
	(void)snprintf(
		to, size, "%.*s", (int)from.size, from.data != NULL ? (const char *)from.data : "");
}

static enum rc read_rows(struct db_conn *c, const char *schema, struct migrate_row **ret,
	size_t *ret_n, struct err *err)
{
	AUTO(buf) struct buf sql = {0};
	buf_add_str(&sql, "SELECT version, name, program, sha256 FROM ");
	sql_add_identifier(&sql, schema);
	buf_add_str(&sql, ".migration ORDER BY version");
	AUTO(result) struct db_result *res = NULL;
	enum rc rc = db_exec(c, buf_str(&sql), 0, NULL, true, &res, err);
	if (rc != RC_OK)
		return rc;
	size_t n = db_result_rows(res);
	struct migrate_row *rows = xcalloc(n, sizeof *rows);
	for (size_t i = 0; i < n; i++) {
		rows[i].version = (uint32_t)db_result_int(res, i, 0);
		copy_text(rows[i].name, sizeof rows[i].name, db_result_value(res, i, 1));
		copy_text(rows[i].program, sizeof rows[i].program, db_result_value(res, i, 2));
		struct bytes sum = db_result_value(res, i, 3);
		/* A sum of another length stays all zeros, which no file has. */
		if (sum.size == sizeof rows[i].checksum)
			memcpy(rows[i].checksum, sum.data, sum.size);
	}
	*ret = rows;
	*ret_n = n;
	return RC_OK;
}

/* How many of the known migrations the database has. */
static enum rc find_applied(struct db_conn *c, const char *schema, size_t *ret, struct err *err)
{
	bool is_there = false;
	*ret = 0;
	enum rc rc = has_table(c, schema, &is_there, err);
	if (rc != RC_OK || !is_there)
		return rc;
	AUTO(free) struct migrate_row *rows = NULL;
	size_t n = 0;
	rc = read_rows(c, schema, &rows, &n, err);
	if (rc != RC_OK)
		return rc;
	size_t n_known = migrations_count();
	AUTO(free) struct migration *known = xcalloc(n_known, sizeof *known);
	for (size_t i = 0; i < n_known; i++)
		known[i] = migrations_get(i);
	return migrate_plan(known, n_known, rows, n, ret, err);
}

/* ---- applying ------------------------------------------------------------------------------- */

static void say(const struct migrate_order *order, const char *what, const char *which)
{
	if (order->say == NULL)
		return;
	AUTO(free) char *text = xasprintf("%s%s", what, which);
	order->say(order->arg, text);
}

static enum rc take_lock(struct db_conn *c, const struct migrate_order *order, struct err *err)
{
	AUTO(buf) struct buf sql = {0};
	buf_addf(&sql, "SELECT pg_try_advisory_lock(%d, %d)", LOCK_CLASS, lock_id(order->schema));
	AUTO(result) struct db_result *res = NULL;
	/* A time limit set for the role must not end a migration half-way. */
	enum rc rc = db_script(c, "SET statement_timeout = 0; SET lock_timeout = 0", err);
	if (rc == RC_OK)
		rc = db_exec(c, buf_str(&sql), 0, NULL, true, &res, err);
	if (rc != RC_OK || db_result_value(res, 0, 0).data[0] != 0)
		return rc;
	say(order, "waiting for another migration of schema ", order->schema);
	buf_clear(&sql);
	buf_addf(&sql, "SELECT pg_advisory_lock(%d, %d)", LOCK_CLASS, lock_id(order->schema));
	return db_script(c, buf_str(&sql), err);
}

static void drop_lock(struct db_conn *c, const char *schema)
{
	AUTO(buf) struct buf sql = {0};
	struct err ignored;
	buf_addf(&sql, "SELECT pg_advisory_unlock(%d, %d)", LOCK_CLASS, lock_id(schema));
	/* The end of the session drops it as well. */
	(void)!db_script(c, buf_str(&sql), &ignored);
}

static enum rc commit(struct db_conn *c, struct err *err)
{
	enum rc rc = db_script(c, "COMMIT", err);
	if (rc != RC_UNAVAILABLE)
		return rc;
	rc = err_set(err, RC_UNKNOWN,
		"the database session was lost during COMMIT: run it again, it goes on where it "
		"was");
	return rc;
}

/* Runs a script of ours in a transaction of its own; head, which may be NULL, in front of it. */
static enum rc run_in_transaction(
	struct db_conn *c, const char *head, const char *script, struct err *err)
{
	/* Names that a script forgot to qualify must not land in whatever the role's path begins
	 * with. */
	enum rc rc = db_script(c, "BEGIN READ WRITE; SET LOCAL search_path = pg_catalog", err);
	if (rc == RC_OK && head != NULL)
		rc = db_script(c, head, err);
	if (rc == RC_OK)
		rc = db_script(c, script, err);
	if (rc == RC_OK)
		return commit(c, err);
	if (rc != RC_UNAVAILABLE) {
		struct err ignored;
		(void)!db_script(c, "ROLLBACK", &ignored);
	}
	return rc;
}

static enum rc apply_base(struct db_conn *c, const struct migrate_order *order, struct err *err)
{
	AUTO(buf) struct buf script = {0};
	bool is_there = false;
	enum rc rc = has_table(c, order->schema, &is_there, err);
	if (rc != RC_OK || is_there)
		return rc;
	add_base(&script, order->schema);
	rc = run_in_transaction(c, NULL, buf_str(&script), err);
	return rc == RC_OK ? rc : err_ctx(err, "creating schema %s", order->schema);
}

static enum rc apply_one(struct db_conn *c, const struct migrate_order *order,
	const struct migration *m, struct err *err)
{
	AUTO(buf) struct buf record = {0};
	AUTO(buf) struct buf script = {0};
	add_record(&record, m, order->schema);
	sql_add_filled(&script, m->text, order->schema, NULL);
	enum rc rc = run_in_transaction(c, buf_str(&record), buf_str(&script), err);
	if (rc != RC_OK)
		return err_ctx(err, "%s", m->name);
	say(order, "applied ", m->name);
	return RC_OK;
}

static enum rc apply_grants(struct db_conn *c, const struct migrate_order *order, struct err *err)
{
	for (size_t i = 0; i < order->n_grants; i++) {
		AUTO(buf) struct buf script = {0};
		const char *name = part_template[order->grants[i].part];
		add_grant(&script, order, i);
		enum rc rc = run_in_transaction(c, NULL, buf_str(&script), err);
		if (rc != RC_OK)
			return err_ctx(err, "%s for role %s", name, order->grants[i].role);
		AUTO(free) char *text = xasprintf("%s to role ", name);
		say(order, text, order->grants[i].role);
	}
	return RC_OK;
}

static enum rc apply_all(
	struct db_conn *c, const struct migrate_order *order, size_t *ret_applied, struct err *err)
{
	size_t applied = 0;
	enum rc rc = apply_base(c, order, err);
	if (rc == RC_OK)
		rc = find_applied(c, order->schema, &applied, err);
	*ret_applied = 0;
	for (size_t i = applied; rc == RC_OK && i < migrations_count(); i++) {
		struct migration m = migrations_get(i);
		rc = apply_one(c, order, &m, err);
		*ret_applied += rc == RC_OK;
	}
	return rc == RC_OK ? apply_grants(c, order, err) : rc;
}

enum rc migrate_run(
	struct db_conn *c, const struct migrate_order *order, size_t *ret_applied, struct err *err)
{
	enum rc rc = check_schema_name(order->schema, err);
	if (rc == RC_OK)
		rc = take_lock(c, order, err);
	if (rc != RC_OK)
		return rc;
	rc = apply_all(c, order, ret_applied, err);
	if (rc != RC_UNAVAILABLE && rc != RC_UNKNOWN)
		drop_lock(c, order->schema);
	return rc;
}

/* ---- printing ------------------------------------------------------------------------------- */

static void begin_block(struct buf *out, const char *what)
{
	buf_addf(out, "\n-- %s\nBEGIN READ WRITE;\nSET LOCAL search_path = pg_catalog;\n", what);
}

static void end_block(struct buf *out)
{
	buf_add_str(out, "\nCOMMIT;\n");
}

static void print_all(
	const struct migrate_order *order, bool has_base, size_t applied, struct buf *out)
{
	buf_addf(out,
		"-- Migrations of inboxd " INBOXD_VERSION " for psql.\n\\set ON_ERROR_STOP on\n"
		"SELECT pg_advisory_lock(%d, %d);\n",
		LOCK_CLASS, lock_id(order->schema));
	if (!has_base) {
		begin_block(out, "migration_table");
		add_base(out, order->schema);
		end_block(out);
	}
	for (size_t i = applied; i < migrations_count(); i++) {
		struct migration m = migrations_get(i);
		begin_block(out, m.name);
		add_record(out, &m, order->schema);
		sql_add_filled(out, m.text, order->schema, NULL);
		end_block(out);
	}
	for (size_t i = 0; i < order->n_grants; i++) {
		begin_block(out, part_template[order->grants[i].part]);
		add_grant(out, order, i);
		end_block(out);
	}
	buf_addf(out, "\nSELECT pg_advisory_unlock(%d, %d);\n", LOCK_CLASS, lock_id(order->schema));
}

enum rc migrate_print(
	struct db_conn *c, const struct migrate_order *order, struct buf *out, struct err *err)
{
	bool has_base = false;
	size_t applied = 0;
	enum rc rc = check_schema_name(order->schema, err);
	if (rc == RC_OK && c != NULL) {
		rc = has_table(c, order->schema, &has_base, err);
		if (rc == RC_OK)
			rc = find_applied(c, order->schema, &applied, err);
	}
	if (rc != RC_OK)
		return rc;
	if (c != NULL && applied == migrations_count() && order->n_grants == 0)
		buf_addf(out, "-- Nothing to do: schema %s is at version %u.\n", order->schema,
			migrations_newest());
	else
		print_all(order, has_base, applied, out);
	return RC_OK;
}

/* ---- the daemon's check --------------------------------------------------------------------- */

static enum rc explain_check(struct db_conn *c, struct err *err)
{
	if (err == NULL || err->rc == RC_UNAVAILABLE)
		return err != NULL ? err->rc : RC_FATAL;
	const char *remedy = NULL;
	if (strcmp(err->sqlstate, "42501") == 0)
		remedy = "the role may not use it: run inboxctl migrate --grant-run ROLE";
	else if (strcmp(err->sqlstate, "42P01") == 0 || strcmp(err->sqlstate, "3F000") == 0 ||
		strcmp(err->sqlstate, "42883") == 0)
		remedy = "it is not there or not complete: run inboxctl migrate";
	if (remedy == NULL)
		return err_ctx(err, "schema %s", db_conn_schema(c));
	return err_set(err, RC_FATAL, "schema %s: %s", db_conn_schema(c), remedy);
}

enum rc migrate_check(struct db_conn *c, struct err *err)
{
	AUTO(free) char *sql = xasprintf("SELECT m.version, m.program, %s.schema_serves(%u) "
					 "FROM %s.migration m ORDER BY m.version DESC LIMIT 1",
		db_conn_schema(c), migrations_newest(), db_conn_schema(c));
	AUTO(result) struct db_result *res = NULL;
	if (db_exec(c, sql, 0, NULL, true, &res, err) != RC_OK)
		return explain_check(c, err);
	int64_t version = db_result_rows(res) != 0 ? db_result_int(res, 0, 0) : 0;
	if (version < (int64_t)migrations_newest())
		return err_set(err, RC_FATAL,
			"schema %s is at version %d, this program needs %u: run inboxctl migrate",
			db_conn_schema(c), (int)version, migrations_newest());
	struct bytes program = db_result_value(res, 0, 1);
	if (db_result_value(res, 0, 2).data[0] == 0)
		return err_set(err, RC_FATAL,
			"schema %s is at version %d and no longer serves programs that know only "
			"%u: "
			"install inboxd %.*s or a later one",
			db_conn_schema(c), (int)version, migrations_newest(), (int)program.size,
			(const char *)program.data);
	return RC_OK;
}

/* SPDX-License-Identifier: MIT */
#include "db/migrate.h"
#include "db/script.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fd.h"
#include "unit.h"

START_TEST(holds_every_file_of_sql_byte_for_byte)
{
	struct dirent **entries;
	int n = scandir("sql", &entries, NULL, alphasort);
	size_t n_migrations = 0;
	ck_assert_int_gt(n, 2);
	for (int i = 0; i < n; i++) {
		char *name = entries[i]->d_name;
		char *dot = strrchr(name, '.');
		if (dot != NULL && strcmp(dot, ".sql") == 0) {
			char path[300];
			(void)snprintf(path, sizeof path, "sql/%s", name);
			AUTO(buf) struct buf file = {0};
			struct err err;
			ck_assert_int_eq(fd_read_file(path, 1 << 20, &file, &err), RC_OK);
			*dot = '\0';
			const char *text = migrations_template(name);
			if (text == NULL) {
				struct migration m = migrations_get(n_migrations++);
				ck_assert_str_eq(m.name, name);
				text = m.text;
			}
			ck_assert_uint_eq(strlen(text), file.size);
			ck_assert_str_eq(text, buf_str(&file));
		}
		free(entries[i]);
	}
	free(entries);
	ck_assert_uint_eq(n_migrations, migrations_count());
}
END_TEST

START_TEST(numbers_migrations_from_one_without_gaps)
{
	ck_assert_uint_ge(migrations_count(), 1);
	for (size_t i = 0; i < migrations_count(); i++)
		ck_assert_uint_eq(migrations_get(i).version, i + 1);
	ck_assert_uint_eq(migrations_newest(), migrations_count());
}
END_TEST

START_TEST(leaves_transactions_to_the_program_that_applies_it)
{
	static const char *const words[] = {
		"\nBEGIN;", "\nCOMMIT", "\nROLLBACK", "\nSTART TRANSACTION", "CONCURRENTLY"};
	for (size_t i = 0; i < migrations_count(); i++)
		for (size_t w = 0; w < sizeof words / sizeof words[0]; w++)
			ck_assert_msg(strstr(migrations_get(i).text, words[w]) == NULL,
				"%s holds %s", migrations_get(i).name, words[w]);
}
END_TEST

START_TEST(has_a_template_for_each_kind_of_role)
{
	ck_assert_ptr_nonnull(migrations_template("grants_run"));
	ck_assert_ptr_nonnull(migrations_template("grants_operator"));
	ck_assert_ptr_nonnull(migrations_template("grants_read"));
	ck_assert_ptr_null(migrations_template("grants"));
	ck_assert_ptr_null(migrations_template("0001_inboxd"));
}
END_TEST

START_TEST(fills_in_quoted_names_and_nothing_else)
{
	AUTO(buf) struct buf out = {0};
	sql_add_filled(&out, "GRANT x ON @schema@.t TO @role@; -- a@b.c @schema @ @@schema@",
		"my \"s", "r");
	ck_assert_str_eq(buf_str(&out),
		"GRANT x ON \"my \"\"s\".t TO \"r\"; -- a@b.c @schema @ @\"my \"\"s\"");
}
END_TEST

START_TEST(finds_the_line_of_a_character)
{
	ck_assert_uint_eq(script_line("SELECT 1", 1), 1);
	ck_assert_uint_eq(script_line("a\nb\nc", 3), 2);
	ck_assert_uint_eq(script_line("a\nb\nc", 5), 3);
	/* Two bytes, one character. */
	ck_assert_uint_eq(script_line("\xc3\xa4\xc3\xa4\nx", 3), 1);
	ck_assert_uint_eq(script_line("\xc3\xa4\xc3\xa4\nx", 4), 2);
	ck_assert_uint_eq(script_line("a", 99), 1);
}
END_TEST

static const struct migration three[] = {
	{1, "0001_a", "CREATE a"}, {2, "0002_b", "CREATE b"}, {3, "0003_c", "CREATE c"}};

static struct migrate_row row_of(uint32_t version, const char *name, const char *text)
{
	struct migration m = {version, name, text};
	struct migrate_row row = {.version = version, .program = "7.8.9"};
	(void)snprintf(row.name, sizeof row.name, "%s", name);
	migration_checksum(&m, row.checksum);
	return row;
}

START_TEST(plans_what_is_missing)
{
	struct migrate_row rows[] = {
		row_of(1, "0001_a", "CREATE a"), row_of(2, "0002_b", "CREATE b")};
	size_t applied = 99;
	struct err err;
	ck_assert_int_eq(migrate_plan(three, 3, NULL, 0, &applied, &err), RC_OK);
	ck_assert_uint_eq(applied, 0);
	ck_assert_int_eq(migrate_plan(three, 3, rows, 2, &applied, &err), RC_OK);
	ck_assert_uint_eq(applied, 2);
	ck_assert_int_eq(migrate_plan(three, 2, rows, 2, &applied, &err), RC_OK);
	ck_assert_uint_eq(applied, 2);
}
END_TEST

START_TEST(refuses_a_newer_database_and_names_the_program_to_use)
{
	struct migrate_row rows[] = {
		row_of(1, "0001_a", "CREATE a"), row_of(2, "0002_b", "CREATE b")};
	size_t applied;
	struct err err;
	ck_assert_int_eq(migrate_plan(three, 1, rows, 2, &applied, &err), RC_FATAL);
	ck_assert_ptr_nonnull(strstr(err.text, "inboxctl 7.8.9"));
	ck_assert_ptr_nonnull(strstr(err.text, "version 2 (0002_b)"));
}
END_TEST

START_TEST(refuses_a_file_that_was_changed_after_it_was_applied)
{
	struct migrate_row rows[] = {
		row_of(1, "0001_a", "CREATE a"), row_of(2, "0002_b", "CREATE B")};
	size_t applied;
	struct err err;
	ck_assert_int_eq(migrate_plan(three, 3, rows, 2, &applied, &err), RC_FATAL);
	ck_assert_ptr_nonnull(strstr(err.text, "0002_b"));
	ck_assert_ptr_nonnull(strstr(err.text, "other content"));
}
END_TEST

START_TEST(refuses_a_gap)
{
	struct migrate_row rows[] = {
		row_of(1, "0001_a", "CREATE a"), row_of(3, "0003_c", "CREATE c")};
	size_t applied;
	struct err err;
	ck_assert_int_eq(migrate_plan(three, 3, rows, 2, &applied, &err), RC_FATAL);
	ck_assert_ptr_nonnull(strstr(err.text, "0002_b belongs"));
}
END_TEST

START_TEST(prints_a_script_that_records_what_it_does)
{
	AUTO(buf) struct buf out = {0};
	struct err err;
	struct migrate_grant grants[] = {{MIGRATE_RUN, "shop"}};
	struct migrate_order order = {.schema = "other", .grants = grants, .n_grants = 1};
	ck_assert_int_eq(migrate_print(NULL, &order, &out, &err), RC_OK);
	const char *text = buf_str(&out);
	const char *schema = strstr(text, "CREATE SCHEMA \"other\"");
	const char *record = strstr(text, "INSERT INTO \"other\".migration");
	const char *inbox = strstr(text, "CREATE TABLE \"other\".inbox");
	const char *grant = strstr(text, "GRANT USAGE ON SCHEMA \"other\" TO \"shop\"");
	ck_assert(schema != NULL && record != NULL && inbox != NULL && grant != NULL);
	ck_assert(schema < record && record < inbox && inbox < grant);
	ck_assert_ptr_nonnull(strstr(text, "\\set ON_ERROR_STOP on"));
	ck_assert_ptr_null(strstr(text, "@schema@."));
	ck_assert_ptr_null(strstr(text, "@role@"));
}
END_TEST

START_TEST(refuses_schema_names_that_would_break_out_of_quotes)
{
	static const char *const names[] = {"", "a'b", "a\"b", "a$b", "a\\b", "a@b",
		"a234567890123456789012345678901234567890123456789012345678901234"};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		AUTO(buf) struct buf out = {0};
		struct err err;
		struct migrate_order order = {.schema = names[i]};
		ck_assert_int_eq(migrate_print(NULL, &order, &out, &err), RC_FATAL);
		ck_assert_uint_eq(out.size, 0);
	}
}
END_TEST

/* Every name that a migration creates as `what` stands in one of the two templates. */
static void expect_granted(const char *what, const char *in, const char *or_in)
{
	char head[40];
	(void)snprintf(head, sizeof head, "CREATE %s @schema@.", what);
	for (size_t i = 0; i < migrations_count(); i++) {
		const char *p = migrations_get(i).text;
		while ((p = strstr(p, head)) != NULL) {
			char name[64];
			p += strlen(head);
			(void)snprintf(
				name, sizeof name, "@schema@.%.*s", (int)strcspn(p, " (;"), p);
			const char *line_end = strchr(p, '\n');
			/* Triggers call their functions themselves. */
			if (memmem(p, (size_t)(line_end - p), "RETURNS trigger", 15) != NULL)
				continue;
			ck_assert_msg(strstr(migrations_template(in), name) != NULL ||
					strstr(migrations_template(or_in), name) != NULL,
				"nobody is granted %s %s", what, name);
		}
	}
}

START_TEST(grants_everything_that_is_created_to_somebody)
{
	expect_granted("TABLE", "grants_run", "grants_run");
	expect_granted("UNLOGGED TABLE", "grants_run", "grants_run");
	expect_granted("SEQUENCE", "grants_run", "grants_run");
	expect_granted("FUNCTION", "grants_run", "grants_operator");
	expect_granted("VIEW", "grants_read", "grants_read");
	expect_granted("VIEW", "grants_run", "grants_run");
}
END_TEST

UNIT_SUITE("db/migrations", grants_everything_that_is_created_to_somebody,
	holds_every_file_of_sql_byte_for_byte, numbers_migrations_from_one_without_gaps,
	leaves_transactions_to_the_program_that_applies_it, has_a_template_for_each_kind_of_role,
	fills_in_quoted_names_and_nothing_else, finds_the_line_of_a_character,
	plans_what_is_missing, refuses_a_newer_database_and_names_the_program_to_use,
	refuses_a_file_that_was_changed_after_it_was_applied, refuses_a_gap,
	prints_a_script_that_records_what_it_does,
	refuses_schema_names_that_would_break_out_of_quotes)

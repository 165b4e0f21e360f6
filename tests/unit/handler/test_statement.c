/* SPDX-License-Identifier: MIT */
#include "handler/statement.h"

#include "unit.h"

static void is(const char *sql, enum statement_kind kind, const char *name)
{
	struct statement s = statement_parse(sql);
	ck_assert_msg(s.kind == kind, "%s is %d", sql, s.kind);
	ck_assert_str_eq(s.name, name);
}

START_TEST(tells_statements_apart_by_their_first_words)
{
	is("INSERT INTO t VALUES ('COPY')", STATEMENT_OTHER, "");
	is("", STATEMENT_EMPTY, "");
	is(" -- nothing\n/* at /* all */ */ ;", STATEMENT_EMPTY, "");
	is("/* unclosed", STATEMENT_EMPTY, "");
	is("\n copy t FROM STDIN", STATEMENT_COPY, "");
	is("-- first\nCOPY t FROM STDIN", STATEMENT_COPY, "");
	is("/* a /* b */ c */ CoPy t FROM STDIN", STATEMENT_COPY, "");
	is("copyright()", STATEMENT_OTHER, "");
	is("ROLLBACK", STATEMENT_OTHER, "");
	is("ROLLBACK AND CHAIN", STATEMENT_OTHER, "");
}
END_TEST

START_TEST(takes_the_names_of_savepoints_as_postgresql_does)
{
	is("SAVEPOINT Here", STATEMENT_SAVEPOINT, "here");
	is("savepoint \"He\"\"re\"", STATEMENT_SAVEPOINT, "He\"re");
	is("RELEASE here;", STATEMENT_RELEASE, "here");
	is("RELEASE SAVEPOINT here", STATEMENT_RELEASE, "here");
	is("ROLLBACK TO here", STATEMENT_ROLLBACK_TO, "here");
	is("ROLLBACK WORK TO SAVEPOINT here", STATEMENT_ROLLBACK_TO, "here");
	is("rollback transaction/**/to/**/savepoint/**/here", STATEMENT_ROLLBACK_TO, "here");
	is("SAVEPOINT a234567890b234567890c234567890d234567890e234567890f234567890g234567890",
		STATEMENT_SAVEPOINT,
		"a234567890b234567890c234567890d234567890e234567890f234567890g23");
}
END_TEST

static bool allows(struct savepoints *s, const char *sql)
{
	struct statement statement = statement_parse(sql);
	if (!savepoints_allow(s, &statement))
		return false;
	savepoints_note(s, &statement);
	return true;
}

START_TEST(goes_back_to_own_savepoints_only)
{
	struct savepoints s = {.names = {0}};
	ck_assert(!allows(&s, "ROLLBACK TO a"));
	ck_assert(allows(&s, "SAVEPOINT a"));
	ck_assert(allows(&s, "ROLLBACK TO a"));
	ck_assert(allows(&s, "ROLLBACK TO a"));
	ck_assert(!allows(&s, "ROLLBACK TO \"A\""));
	ck_assert(allows(&s, "SAVEPOINT b"));
	ck_assert(allows(&s, "SAVEPOINT c"));
	/* Going back undoes those behind. */
	ck_assert(allows(&s, "ROLLBACK TO b"));
	ck_assert(!allows(&s, "RELEASE c"));
	ck_assert(allows(&s, "RELEASE a"));
	ck_assert(!allows(&s, "ROLLBACK TO b"));
	/* The message before had one: the next has not. */
	ck_assert(allows(&s, "SAVEPOINT a"));
	savepoints_clear(&s);
	ck_assert(!allows(&s, "RELEASE a"));
	savepoints_done(&s);
}
END_TEST

START_TEST(a_savepoint_hides_an_older_one_of_its_name)
{
	struct savepoints s = {.names = {0}};
	ck_assert(allows(&s, "SAVEPOINT a"));
	ck_assert(allows(&s, "SAVEPOINT a"));
	ck_assert(allows(&s, "RELEASE a"));
	ck_assert(allows(&s, "RELEASE a"));
	ck_assert(!allows(&s, "RELEASE a"));
	savepoints_done(&s);
}
END_TEST

UNIT_SUITE("handler/statement", tells_statements_apart_by_their_first_words,
	takes_the_names_of_savepoints_as_postgresql_does, goes_back_to_own_savepoints_only,
	a_savepoint_hides_an_older_one_of_its_name)

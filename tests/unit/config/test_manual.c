/* SPDX-License-Identifier: MIT */
/* The manual page and the installed sample say what the table of options says. */
#include "base/fd.h"
#include "config/config.h"
#include "config/schema.h"

#include "fixture.h"
#include "unit.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#define MANUAL "conf/man/inboxd.yaml.5"
#define SAMPLE "conf/inboxd.yaml"

static char *read_whole(const char *path)
{
	struct buf text = {0};
	struct err err = {0};
	ck_assert_msg(fd_read_file(path, 1 << 20, &text, &err) == RC_OK, "%s", err.text);
	char *copy = xstrdup(buf_str(&text));
	buf_done(&text);
	return copy;
}

/* The text of `.Sh HEADING` up to the next one; owned. */
static char *heading_of(const char *manual, const char *heading)
{
	char *line = xasprintf("\n.Sh %s\n", heading);
	const char *from = strstr(manual, line);
	ck_assert_msg(from != NULL, "no heading %s", heading);
	from += strlen(line);
	free(line);
	const char *to = strstr(from, "\n.Sh ");
	ck_assert_ptr_nonnull(to);
	return xstrndup(from, (size_t)(to - from) + 1);
}

/* The text of `.It Cm NAME` up to the next item; owned, NULL if there is none. */
static char *item_of(const char *section, const char *name)
{
	char *line = xasprintf(".It Cm %s\n", name);
	const char *from = strstr(section, line);
	free(line);
	if (from == NULL)
		return NULL;
	from += strlen(".It Cm \n") + strlen(name);
	const char *it = strstr(from, "\n.It "), *el = strstr(from, "\n.El\n");
	const char *to = it != NULL && it < el ? it : el;
	ck_assert_ptr_nonnull(to);
	return xstrndup(from, (size_t)(to - from) + 1);
}

static void expect_in_item(const char *item, const char *name, const char *text)
{
	ck_assert_msg(strstr(item, text) != NULL, "%s should say \"%s\": %s", name, text, item);
}

/* What the last line of an option's item must be: "A duration from 1s to 1h; default: 15s." */
static void expect_line(const struct option *o, const char *item, const char *name)
{
	struct buf line = {0};
	schema_describe(o, &line);
	if (o->words == NULL && o->type != OPTION_BOOL)
		line.data[0] = (uint8_t)toupper(line.data[0]);
	if ((o->flags & OPTION_REQUIRED) != 0)
		buf_add_str(&line, "; required");
	else if (o->def != NULL)
		buf_addf(&line, "; default: %s", strcmp(o->def, "\"\"") == 0 ? "empty" : o->def);
	else if (o->computed != NULL)
		buf_addf(&line, "; default: %s", o->computed);
	buf_add_str(&line, ".\n");
	expect_in_item(item, name, buf_str(&line));
	if (o->refused != NULL) {
		expect_in_item(item, name, "is refused");
		buf_clear(&line);
		buf_addf(&line, ".Li %s\n", o->refused);
		expect_in_item(item, name, buf_str(&line));
	}
	if (o->reload == RELOAD_RESTART)
		expect_in_item(item, name, "when the service is restarted");
	buf_done(&line);
}

static size_t check_section(const char *text, enum section_id id, const char *prefix)
{
	const struct section *s = schema_section(id);
	size_t checked = 0;
	for (size_t i = 0; i < s->n; i++) {
		const struct option *o = &s->options[i];
		char *name = xasprintf("%s%s", prefix, o->name), *below = xasprintf("%s.", name);
		char *item = item_of(text, name);
		bool has_own = o->type != OPTION_SECTION && o->type != OPTION_ONE &&
			o->type != OPTION_MANY;
		ck_assert_msg(item != NULL || o->type == OPTION_SECTION, "%s is missing", name);
		if (has_own)
			expect_line(o, item, name);
		if (o->type == OPTION_SECTION || o->type == OPTION_BINDINGS)
			checked += check_section(text, o->child, below);
		checked++;
		free(item);
		free(below);
		free(name);
	}
	return checked;
}

/* mdoc's times sign, and what the installation puts in. */
static void plain(char **text)
{
	struct buf out = {0};
	for (const char *p = *text; *p != '\0';) {
		if (strncmp(p, "\\(mu", 4) == 0) {
			buf_add_str(&out, "×");
			p += 4;
		} else if (strncmp(p, "@HANDLERDIR@", 12) == 0) {
			buf_add_str(&out, schema_find(SECTION_HANDLERS, "directory")->def);
			p += 12;
		} else {
			buf_add_byte(&out, (uint8_t)*p++);
		}
	}
	free(*text);
	*text = xstrdup(buf_str(&out));
	buf_done(&out);
}

START_TEST(the_manual_page_describes_every_option_with_type_range_and_default)
{
	static const struct {
		const char *heading;
		enum section_id id;
	} parts[] = {{"TOP LEVEL", SECTION_TOP}, {"BROKER", SECTION_BROKER},
		{"DATABASE", SECTION_DATABASE}, {"CONSUMER", SECTION_CONSUMER}};
	char *manual = read_whole(MANUAL);
	size_t checked = 0;
	plain(&manual);
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
		char *text = heading_of(manual, parts[i].heading);
		checked += check_section(text, parts[i].id, "");
		free(text);
	}
	ck_assert_uint_gt(checked, 60);
	free(manual);
}
END_TEST

START_TEST(the_manual_page_describes_no_option_that_is_none)
{
	char *manual = read_whole(MANUAL);
	char *text = heading_of(manual, "CONSUMER");
	for (const char *p = text; (p = strstr(p, ".It Cm ")) != NULL; p++) {
		char name[64];
		ck_assert_int_eq(sscanf(p, ".It Cm %63s", name), 1);
		enum section_id id = SECTION_CONSUMER;
		char *step = name, *dot;
		while ((dot = strchr(step, '.')) != NULL) {
			*dot = '\0';
			const struct option *o = schema_find(id, step);
			ck_assert_msg(o != NULL, "%s", step);
			id = o->child;
			step = dot + 1;
		}
		ck_assert_msg(schema_find(id, step) != NULL, "%s", step);
	}
	free(text);
	free(manual);
}
END_TEST

START_TEST(the_sample_is_a_configuration)
{
	struct buf errors = {0};
	struct config *c = config_load(SAMPLE, &errors);
	ck_assert_msg(c != NULL, "%s", buf_str(&errors));
	ck_assert_uint_eq(c->n_consumers, 1);
	ck_assert_str_eq(c->consumers[0]->handler, "sql");
	config_free(c);
	buf_done(&errors);
}
END_TEST

/* "  #name: value" to "  name: value"; prose has a blank behind its #. */
static char *without_marks(const char *text)
{
	struct buf out = {0};
	for (const char *p = text; *p != '\0';) {
		size_t n = strcspn(p, "\n") + 1, blanks = strspn(p, " ");
		bool is_option = p[blanks] == '#' && strchr(" \n#", p[blanks + 1]) == NULL;
		buf_add(&out, p, blanks);
		buf_add(&out, p + blanks + is_option, n - blanks - is_option);
		p += n;
	}
	char *copy = xstrdup(buf_str(&out));
	buf_done(&out);
	return copy;
}

START_TEST(the_samples_options_are_valid_and_mostly_the_defaults)
{
	char *text = read_whole(SAMPLE), *whole = without_marks(text);
	struct config *plain_one = config_of(text), *c = config_of(whole);
	const struct config_consumer *a = plain_one->consumers[0], *b = c->consumers[0];
	ck_assert_str_ne(text, whole);
	ck_assert(b->topology.declare);
	ck_assert_str_eq(b->topology.bindings[0].exchange, "shop");
	ck_assert_ptr_nonnull(c->brokers[0]->password_file);
	ck_assert_uint_eq(a->prefetch, b->prefetch);
	ck_assert_uint_eq(a->prefetch_bytes, b->prefetch_bytes);
	ck_assert_uint_eq(a->batch_bytes, b->batch_bytes);
	ck_assert_uint_eq(a->batch_time_ms, b->batch_time_ms);
	ck_assert_uint_eq(a->max_message_bytes, b->max_message_bytes);
	ck_assert_uint_eq(a->handler_timeout_ms, b->handler_timeout_ms);
	ck_assert_uint_eq(a->n_retry_delays, b->n_retry_delays);
	ck_assert_str_eq(a->key.text, b->key.text);
	ck_assert_str_eq(a->fingerprint.text, b->fingerprint.text);
	ck_assert_uint_eq(plain_one->stop_timeout_ms, c->stop_timeout_ms);
	ck_assert_int_eq(plain_one->log_level, c->log_level);
	ck_assert_uint_eq(plain_one->brokers[0]->heartbeat_s, c->brokers[0]->heartbeat_s);
	config_free(plain_one);
	config_free(c);
	free(text);
	free(whole);
}
END_TEST

START_TEST(the_table_has_a_help_and_a_sane_default_for_each_option)
{
	for (int id = 0; id < SECTION_COUNT; id++) {
		const struct section *s = schema_section((enum section_id)id);
		for (size_t i = 0; i < s->n; i++) {
			const struct option *o = &s->options[i];
			ck_assert_msg(o->help != NULL && o->help[0] != '\0', "%s", o->name);
			ck_assert_msg((o->refused == NULL) == (o->why == NULL), "%s", o->name);
			ck_assert_msg(o->max >= o->min, "%s", o->name);
			ck_assert_msg(
				o->def == NULL || (o->flags & OPTION_REQUIRED) == 0, "%s", o->name);
			ck_assert_ptr_eq(schema_find((enum section_id)id, o->name), o);
		}
	}
	ck_assert_ptr_null(schema_find(SECTION_BROKER, "queue"));
}
END_TEST

START_TEST(the_table_names_what_was_probably_meant)
{
	static const char *const names[] = {"warning", "error", "heartbeat", "on"};
	ck_assert_str_eq(schema_nearest("warn", names, 4), "warning");
	ck_assert_str_eq(schema_nearest("hartbeat", names, 4), "heartbeat");
	ck_assert_str_eq(schema_nearest("ERROR", names, 4), "error");
	ck_assert_ptr_null(schema_nearest("o", names, 4));
	ck_assert_ptr_null(schema_nearest("", names, 4));
	ck_assert_ptr_null(schema_nearest("something", names, 4));
}
END_TEST

UNIT_SUITE("config/manual", the_manual_page_describes_every_option_with_type_range_and_default,
	the_manual_page_describes_no_option_that_is_none, the_sample_is_a_configuration,
	the_samples_options_are_valid_and_mostly_the_defaults,
	the_table_has_a_help_and_a_sane_default_for_each_option,
	the_table_names_what_was_probably_meant)

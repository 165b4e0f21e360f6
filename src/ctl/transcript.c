/* SPDX-License-Identifier: MIT */
/* Lines for people go out at once: what comes next may end the process. */
#include "ctl/transcript.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/fd.h"
#include "base/json.h"
#include "ctl/ctl.h"

enum { VALUE_SHOWN = 400 }; /* bytes of a value, for people */

void transcript_init(struct transcript *t, bool json)
{
	*t = (struct transcript){.json = json};
}

void transcript_done(struct transcript *t)
{
	for (size_t i = 0; i < t->n; i++) {
		free(t->statements[i].sql);
		buf_done(&t->statements[i].parameters);
		free(t->statements[i].result);
	}
	free(t->statements);
	buf_done(&t->facts);
	*t = (struct transcript){0};
}

static void add_shown(struct buf *out, struct bytes value)
{
	size_t n = value.size < VALUE_SHOWN ? value.size : VALUE_SHOWN;
	ctl_add_visible(out, bytes_of(value.data, n));
	if (n < value.size)
		buf_addf(out, "… (%zu bytes)", value.size);
}

static void say(struct buf *line)
{
	buf_add_byte(line, '\n');
	ctl_write(buf_bytes(line));
	(void)fflush(stdout);
}

void transcript_fact(struct transcript *t, const char *name, struct bytes value)
{
	AUTO(buf) struct buf line = {0};
	if (value.data == NULL)
		return;
	if (t->json) {
		buf_addf(&t->facts, "  \"%s\": ", name);
		json_add_string(&t->facts, value);
		buf_add_str(&t->facts, ",\n");
		return;
	}
	buf_addf(&line, "%-12s ", name);
	add_shown(&line, value);
	say(&line);
}

static struct transcript_statement *add_statement(struct transcript *t)
{
	if (t->n == t->cap) {
		t->cap = t->cap != 0 ? 2 * t->cap : 16;
		t->statements = xrealloc(t->statements, t->cap * sizeof *t->statements);
	}
	t->statements[t->n] = (struct transcript_statement){0};
	return &t->statements[t->n++];
}

static void add_parameters_json(struct buf *out, size_t n, const struct db_value *args)
{
	buf_add_byte(out, '[');
	for (size_t i = 0; i < n; i++) {
		buf_add_str(out, i != 0 ? ", " : "");
		if (args[i].data == NULL)
			buf_add_str(out, "null");
		else
			json_add_string(out, bytes_of(args[i].data, args[i].size));
	}
	buf_add_byte(out, ']');
}

void transcript_sql(struct transcript *t, const char *sql, size_t n, const struct db_value *args)
{
	struct transcript_statement *s = add_statement(t);
	s->sql = xstrdup(sql);
	add_parameters_json(&s->parameters, n, args);
	if (t->json)
		return;
	AUTO(buf) struct buf line = {0};
	buf_addf(&line, "%-12s (%zu) ", "statement", t->n);
	ctl_add_visible(&line, bytes_str(sql));
	for (size_t i = 0; i < n; i++) {
		buf_addf(&line, "\n%-12s     $%zu = ", "", i + 1);
		if (args[i].data == NULL)
			buf_add_str(&line, "NULL");
		else
			add_shown(&line, bytes_of(args[i].data, args[i].size));
	}
	say(&line);
}

void transcript_result(struct transcript *t, const char *text)
{
	AUTO(buf) struct buf line = {0};
	if (t->answered == t->n)
		return;
	t->statements[t->answered++].result = xstrdup(text);
	if (t->json)
		return;
	buf_addf(&line, "%-12s (%zu) ", "result", t->answered);
	ctl_add_visible(&line, bytes_str(text));
	say(&line);
}

void transcript_end(const struct transcript *t)
{
	AUTO(buf) struct buf out = {0};
	if (!t->json)
		return;
	buf_add_str(&out, "{\n");
	buf_add(&out, t->facts.data, t->facts.size);
	buf_add_str(&out, "  \"statements\": [");
	for (size_t i = 0; i < t->n; i++) {
		const struct transcript_statement *s = &t->statements[i];
		buf_addf(&out, "%s\n    {\"sql\": ", i != 0 ? "," : "");
		json_add_string(&out, bytes_str(s->sql));
		buf_add_str(&out, ", \"parameters\": ");
		buf_add(&out, s->parameters.data, s->parameters.size);
		buf_add_str(&out, ", \"result\": ");
		if (s->result != NULL)
			json_add_string(&out, bytes_str(s->result));
		else
			buf_add_str(&out, "null");
		buf_add_byte(&out, '}');
	}
	buf_add_str(&out, t->n != 0 ? "\n  ]\n}\n" : "]\n}\n");
	ctl_write(buf_bytes(&out));
}

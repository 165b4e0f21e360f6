/* SPDX-License-Identifier: MIT */
/* Tables are kept whole, because widths are known only at the end. */
#include "ctl/table.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/fd.h"
#include "base/json.h"
#include "ctl/ctl.h"

void table_init(struct table *t, const struct table_column *columns, size_t n_columns)
{
	assert(n_columns != 0);
	*t = (struct table){.columns = columns, .n_columns = n_columns};
}

void table_done(struct table *t)
{
	free(t->cells);
	buf_done(&t->text);
	*t = (struct table){0};
}

void table_add(struct table *t, struct bytes text)
{
	if (t->n_cells == t->cap) {
		t->cap = t->cap != 0 ? 2 * t->cap : 64;
		t->cells = xrealloc(t->cells, t->cap * sizeof *t->cells);
	}
	t->cells[t->n_cells++] = (struct table_cell){
		.at = t->text.size, .size = text.size, .is_null = text.data == NULL};
	buf_add(&t->text, text.data, text.size);
}

void table_add_number(struct table *t, uint64_t v)
{
	char text[24];
	(void)snprintf(text, sizeof text, "%" PRIu64, v);
	table_add(t, bytes_str(text));
}

static size_t column_of(const struct table *t, size_t i)
{
	assert(t->n_columns != 0);
	return i % t->n_columns;
}

static struct bytes cell_text(const struct table *t, size_t i)
{
	if (t->cells[i].size == 0)
		return bytes_str("");
	return bytes_of(t->text.data + t->cells[i].at, t->cells[i].size);
}

/* What stands in a cell for people; returns how many columns of a terminal it takes, at a guess
 * that holds for most scripts. */
static size_t add_cell(const struct table *t, size_t i, struct buf *out)
{
	size_t before = out->size, n = 0;
	if (t->cells[i].is_null || t->cells[i].size == 0)
		buf_add_byte(out, '-');
	else
		ctl_add_visible(out, cell_text(t, i));
	for (size_t k = before; k < out->size; k++)
		n += (out->data[k] & 0xC0) != 0x80;
	return n;
}

static size_t *measure(const struct table *t)
{
	size_t *widths = xcalloc(t->n_columns, sizeof *widths);
	AUTO(buf) struct buf text = {0};
	for (size_t k = 0; k < t->n_columns; k++)
		widths[k] = strlen(t->columns[k].name);
	for (size_t i = 0; i < t->n_cells; i++) {
		buf_clear(&text);
		size_t n = add_cell(t, i, &text), k = column_of(t, i);
		if (n > widths[k])
			widths[k] = n;
	}
	return widths;
}

static void add_padded(const struct table *t, size_t k, struct bytes text, size_t width,
	size_t *widths, struct buf *out)
{
	bool is_last = k + 1 == t->n_columns;
	size_t pad = widths[k] - width;
	if (k != 0)
		buf_add_str(out, "  ");
	for (size_t i = 0; t->columns[k].is_number && i < pad; i++)
		buf_add_byte(out, ' ');
	buf_add(out, text.data, text.size);
	for (size_t i = 0; !t->columns[k].is_number && !is_last && i < pad; i++)
		buf_add_byte(out, ' ');
	if (is_last)
		buf_add_byte(out, '\n');
}

void table_print(const struct table *t, struct buf *out)
{
	AUTO(free) size_t *widths = measure(t);
	AUTO(buf) struct buf text = {0};
	for (size_t k = 0; k < t->n_columns; k++) {
		buf_clear(&text);
		for (const char *p = t->columns[k].name; *p != '\0'; p++)
			buf_add_byte(&text, (uint8_t)toupper((unsigned char)*p));
		add_padded(t, k, buf_bytes(&text), text.size, widths, out);
	}
	for (size_t i = 0; i < t->n_cells; i++) {
		buf_clear(&text);
		size_t width = add_cell(t, i, &text);
		add_padded(t, column_of(t, i), buf_bytes(&text), width, widths, out);
	}
}

static void add_json_cell(const struct table *t, size_t i, struct buf *out)
{
	const struct table_column *column = &t->columns[column_of(t, i)];
	buf_addf(out, "%s\"%s\": ", column_of(t, i) == 0 ? "{" : ", ", column->name);
	if (t->cells[i].is_null)
		buf_add_str(out, "null");
	else if (column->is_number)
		buf_add(out, cell_text(t, i).data, t->cells[i].size);
	else
		json_add_string(out, cell_text(t, i));
}

void table_print_json(const struct table *t, struct buf *out)
{
	buf_add_byte(out, '[');
	for (size_t i = 0; i < t->n_cells; i++) {
		if (column_of(t, i) == 0)
			buf_add_str(out, i == 0 ? "\n" : ",\n");
		add_json_cell(t, i, out);
		if (column_of(t, i) == t->n_columns - 1)
			buf_add_byte(out, '}');
	}
	buf_add_str(out, t->n_cells != 0 ? "\n]\n" : "]\n");
}

/* SPDX-License-Identifier: MIT */
/* Collecting, sorting and showing errors. */
#include "config/diag.h"

#include "base/fd.h"
#include "base/utf8.h"
#include "config/mask.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

enum {
	KEPT_MAX = 1000,  /* a file of rubbish must not fill memory with errors */
	LINE_SHOWN = 100, /* code points of a long line that are shown */
	QUOTED_MAX = 48,
};

static char *format(const char *fmt, va_list ap) __attribute__((format(printf, 1, 0)));
static char *format(const char *fmt, va_list ap)
{
	char text[2048];
	(void)vsnprintf(text, sizeof text, fmt, ap);
	return xstrdup(text);
}

void diag_add(struct diags *d, struct place place, const char *fmt, ...)
{
	assert(place.file != NULL);
	if (d->n == KEPT_MAX) {
		d->dropped++;
		return;
	}
	if (d->n == d->cap) {
		d->cap = d->cap != 0 ? 2 * d->cap : 16;
		d->items = xrealloc(d->items, d->cap * sizeof d->items[0]);
	}
	va_list ap;
	va_start(ap, fmt);
	d->items[d->n] = (struct diag){.place = place, .number = d->n, .text = format(fmt, ap)};
	va_end(ap);
	d->n++;
}

void diag_hint(struct diags *d, const char *fmt, ...)
{
	if (d->dropped > 0)
		return;
	va_list ap;
	va_start(ap, fmt);
	free(d->items[d->n - 1].hint);
	d->items[d->n - 1].hint = format(fmt, ap);
	va_end(ap);
}

void diags_done(struct diags *d)
{
	for (size_t i = 0; i < d->n; i++) {
		free(d->items[i].text);
		free(d->items[i].hint);
	}
	free(d->items);
	*d = (struct diags){0};
}

void diag_quote(struct buf *out, const char *text)
{
	const uint8_t *p = (const uint8_t *)text;
	size_t left = strlen(text);
	for (unsigned shown = 0; left > 0; shown++) {
		uint32_t code;
		size_t n = diag_step(p, left, &code);
		if (shown == QUOTED_MAX) {
			buf_add_str(out, "…");
			return;
		}
		if (code == '\n')
			buf_add_str(out, "\\n");
		else if (code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0xfffd)
			buf_addf(out, "\\x%02x", p[0]);
		else
			buf_add(out, p, n);
		p += n;
		left -= n;
	}
}

static struct bytes line_of(const char *text, size_t size, uint32_t line)
{
	const char *p = text, *end = text + size;
	for (uint32_t i = 1; i < line && p != end; i++) {
		const char *lf = memchr(p, '\n', (size_t)(end - p));
		p = lf != NULL ? lf + 1 : end;
	}
	const char *lf = p != end ? memchr(p, '\n', (size_t)(end - p)) : NULL;
	return bytes_of(p, (size_t)((lf != NULL ? lf : end) - p));
}

size_t diag_step(const uint8_t *p, size_t left, uint32_t *ret_code)
{
	size_t n = utf8_decode(p, left, ret_code);
	if (n == 0)
		*ret_code = 0xfffd;
	return n != 0 ? n : 1;
}

struct bytes diag_line(const struct diag_file *file, uint32_t line)
{
	return line_of(file->text, file->size, line);
}

/* A line made fit for a terminal: one entry for each code point shown. */
struct shown {
	uint32_t *codes;
	size_t n;
	size_t caret;
};

/* A masked run takes its eight stars, whatever its length; a place inside it is its beginning. */
static void lay_out(struct bytes line, uint32_t column, struct shown *ret)
{
	ret->codes = xcalloc(line.size * strlen(MASK) + 1, sizeof ret->codes[0]);
	size_t left = line.size;
	bool was_mask = false;
	size_t mask_at = 0;
	uint32_t at = 1;
	for (const uint8_t *p = line.data; left > 0; at++) {
		uint32_t code;
		size_t n = diag_step(p, left, &code);
		bool is_mask = code == MASK_BYTE;
		if (is_mask && !was_mask) {
			mask_at = ret->n;
			for (size_t i = 0; i < strlen(MASK); i++)
				ret->codes[ret->n++] = '*';
		}
		if (at == column)
			ret->caret = is_mask ? mask_at : ret->n;
		if (!is_mask)
			ret->codes[ret->n++] =
				(code < 0x20 && code != '\t') || code == 0x7f ? 0xfffd : code;
		was_mask = is_mask;
		p += n;
		left -= n;
	}
	if (column >= at)
		ret->caret = ret->n;
}

/* The line and the caret beneath; of a long line the part around the caret. */
static void add_excerpt(struct buf *out, const struct shown *s)
{
	size_t from =
		s->n > LINE_SHOWN && s->caret > LINE_SHOWN / 2 ? s->caret - LINE_SHOWN / 2 : 0;
	size_t to = s->n - from > LINE_SHOWN ? from + LINE_SHOWN : s->n;
	buf_add_str(out, from != 0 ? "  …" : "  ");
	for (size_t i = from; i < to; i++)
		utf8_add(out, s->codes[i]);
	buf_add_str(out, to != s->n ? "…\n" : "\n");
	buf_add_str(out, from != 0 ? "   " : "  ");
	for (size_t i = from; i < s->caret; i++)
		buf_add_byte(out, s->codes[i] == '\t' ? '\t' : ' ');
	buf_add_str(out, "^\n");
}

static void print_with(
	struct place at, const char *text, const char *hint, const char *masked, struct buf *out)
{
	buf_addf(out, "%s:", at.file->name);
	if (at.line != 0)
		buf_addf(out, "%u:%u:", at.line, at.column);
	buf_addf(out, " %s\n", text);
	if (at.line != 0) {
		struct shown s = {0};
		lay_out(line_of(masked, at.file->size, at.line), at.column, &s);
		add_excerpt(out, &s);
		free(s.codes);
	}
	if (hint != NULL)
		buf_addf(out, "  hint: %s\n", hint);
}

static char *masked_text(const struct diag_file *file)
{
	char *text = xmalloc(file->size + 1);
	memcpy(text, file->text, file->size + 1);
	for (size_t i = 0; i < file->size; i++)
		if (text[i] == MASK_BYTE)
			text[i] = MASK_BYTE + 1; /* another control character, shown alike */
	mask_file(text, file->size);
	return text;
}

void diag_print(struct place place, const char *text, const char *hint, struct buf *out)
{
	AUTO(free) char *masked = masked_text(place.file);
	print_with(place, text, hint, masked, out);
}

static int by_place(const void *a, const void *b)
{
	const struct diag *x = a, *y = b;
	if (x->place.file->order != y->place.file->order)
		return x->place.file->order < y->place.file->order ? -1 : 1;
	if (x->place.line != y->place.line)
		return x->place.line < y->place.line ? -1 : 1;
	if (x->place.column != y->place.column)
		return x->place.column < y->place.column ? -1 : 1;
	return x->number < y->number ? -1 : 1;
}

static bool is_same(const struct diag *a, const struct diag *b)
{
	return a->place.file == b->place.file && a->place.line == b->place.line &&
		a->place.column == b->place.column && strcmp(a->text, b->text) == 0;
}

void diags_print(struct diags *d, struct buf *out)
{
	const struct diag_file *file = NULL;
	char *masked = NULL;
	size_t shown = 0, more = d->dropped;
	if (d->n > 1)
		qsort(d->items, d->n, sizeof d->items[0], by_place);
	for (size_t i = 0; i < d->n; i++) {
		const struct diag *x = &d->items[i];
		if (i > 0 && is_same(x - 1, x))
			continue;
		if (shown == DIAG_SHOWN_MAX) {
			more++;
			continue;
		}
		assert(x->place.file != NULL);
		if (x->place.file != file) {
			free(masked);
			file = x->place.file;
			masked = masked_text(file);
		}
		print_with(x->place, x->text, x->hint, masked, out);
		shown++;
	}
	free(masked);
	if (more != 0)
		buf_addf(out, "… and %zu more\n", more);
}

/* SPDX-License-Identifier: MIT */
/*
 * inboxd/testkit.h - tests a handler without a broker, a database or inboxd.
 *
 * One header, nothing to link: it has a table of functions (struct inboxd_host) that takes
 * messages and options from the test, writes down every statement, and answers what the test has
 * told it to.  Use it with Check or any other framework, or with plain asserts, in C or C++:
 *
 *     #include <inboxd/testkit.h>
 *     extern const struct inboxd_handler inboxd_handler;     // link with the handler's object
 *
 *     struct inboxd_test *t = inboxd_test_new(&inboxd_handler);
 *     inboxd_test_option(t, "limit", "100");
 *     assert(inboxd_test_check(t) == INBOXD_DONE);
 *     assert(inboxd_test_open(t) == INBOXD_DONE);
 *
 *     struct inboxd_call *m = inboxd_test_message(t, "{\"id\": 17}");
 *     inboxd_test_property(m, "message_id", "m-1");
 *     inboxd_test_affected(t, "UPDATE stock", 0);            // what the database would say
 *     assert(inboxd_test_handle(m) == INBOXD_RETRY);
 *     assert(strcmp(m->reason, "no such article") == 0);
 *     assert(t->n_statements == 1);
 *     assert(inboxd_is(t->statements[0].args[0], "17"));
 *     inboxd_test_free(t);
 *
 * What it does as inboxd does: the order of the entries, sources (message_id, header:, json:,
 * property:, routing_key, body), get's failures, statements that failed or were refused and
 * savepoints, marks in handle_batch, unknown results.  What it does not: SQL.  A statement
 * succeeds, touches one row and returns none unless the test says otherwise.  JSON is read, not
 * checked.
 */
#ifndef INBOXD_TESTKIT_H
#define INBOXD_TESTKIT_H

#include <inboxd/handler.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What inboxd_test_handle says of a result that is none of INBOXD_...: the message is put aside. */
#define INBOXD_BROKEN INT32_C(-1)

/* ---- what a test sees ---------------------------------------------------------------- */

/* A statement that the handler ran, in order; for COPY args[0] is all that was sent. */
struct inboxd_test_statement {
	const char *how; /* "exec", "queue", "copy" */
	const char *sql;
	uint32_t n;
	struct inboxd_value *args;
	struct inboxd_call *message; /* NULL: of the batch as a whole */
};

/* What the database is to say to statements that begin so. */
struct inboxd_test_answer {
	const char *prefix;
	int32_t result;
	const char *reason;
	uint64_t affected;
	uint32_t columns, n_cells;
	struct inboxd_value *cells; /* row by row */
};

struct inboxd_test_pair {
	const char *name;
	struct inboxd_value value;
	int32_t kind;    /* headers */
	int64_t integer; /* headers of a numeric kind */
	double real;
};

struct inboxd_test_list {
	struct inboxd_test_pair *items;
	uint32_t n;
};

struct inboxd_call {
	struct inboxd_test *test;
	uint32_t index;
	int is_message; /* 0: check, open, close, or the batch as a whole */

	/* Of the message. */
	struct inboxd_value content;
	struct inboxd_test_list headers, properties;
	const char *key; /* "k" unless the test sets it; NULL: none */
	uint32_t attempts;
	int32_t is_redelivered;

	/* What became of it. */
	int32_t verdict; /* INBOXD_..., INBOXD_BROKEN; as inboxd_test_handle returned */
	char reason[1024];
	uint64_t delay_ms;
	struct inboxd_value result; /* data == NULL: none */
	const char *content_type;

	/* The kit's own. */
	int32_t mark;
	int is_own_mark, has_own_reason, has_failed_statement;
	int32_t failed_result;
	uint32_t statements;
};

struct inboxd_test {
	struct inboxd_test_statement *statements;
	uint32_t n_statements;
	char errors[4096];    /* what was reported by bad_option: "path: text\n" each */
	char log[4096];       /* "level text\n" each */
	struct pg_conn *conn; /* what conn answers; a test may set it */

	/* The kit's own. */
	const struct inboxd_handler *handler;
	struct inboxd_host host;
	struct inboxd_call whole;
	struct inboxd_call **messages;
	uint32_t n_messages;
	struct inboxd_test_list options;
	struct inboxd_test_answer *answers;
	uint32_t n_answers;
	struct inboxd_call *copying;
	int entry; /* 0 none, 'c'heck, 'o'pen, 'h'andle, 'b'atch, 'x' close */
	int is_open;
	void *state;
	void **owned; /* everything that lives as long as the test */
	uint32_t n_owned;
};

struct inboxd_rows {
	const struct inboxd_test_answer *answer;
};

/* ---- memory -------------------------------------------------------------------------- */

static inline void *inboxd_test_own(struct inboxd_test *t, void *p)
{
	if ((t->n_owned & (t->n_owned - 1)) == 0) {
		size_t room = t->n_owned == 0 ? 1 : 2 * (size_t)t->n_owned;
		t->owned = (void **)realloc(t->owned, room * sizeof *t->owned);
	}
	if (p == NULL || t->owned == NULL)
		abort();
	t->owned[t->n_owned++] = p;
	return p;
}

static inline void *inboxd_test_alloc(struct inboxd_test *t, size_t size)
{
	return inboxd_test_own(t, calloc(1, size + 1));
}

/* A copy that lives as long as the test. */
static inline struct inboxd_value inboxd_test_keep(struct inboxd_test *t, struct inboxd_value v)
{
	if (v.data != NULL) {
		char *p = (char *)inboxd_test_alloc(t, v.size);
		memcpy(p, v.data, v.size);
		v.data = p;
	}
	return v;
}

static inline const char *inboxd_test_keep_text(struct inboxd_test *t, const char *s)
{
	return inboxd_test_keep(t, inboxd_text(s)).data;
}

/* Room for one more behind n items; doubles, and the old array stays until the test ends. */
static inline void *inboxd_test_grow(struct inboxd_test *t, void *items, uint32_t n, size_t size)
{
	void *p;
	if (n != 0 && (n & (n - 1)) != 0)
		return items;
	p = inboxd_test_alloc(t, (n != 0 ? 2 * (size_t)n : 1) * size);
	if (n != 0)
		memcpy(p, items, n * size);
	return p;
}

static inline void inboxd_test_append(char *text, size_t size, const char *a, const char *b)
{
	size_t n = strlen(text);
	(void)snprintf(text + n, size - n, "%s: %s\n", a, b);
}

/* ---- setting up ---------------------------------------------------------------------- */

static inline struct inboxd_test_pair *inboxd_test_find(
	const struct inboxd_test_list *l, const char *name)
{
	for (uint32_t i = 0; i < l->n; i++)
		if (strcmp(l->items[i].name, name) == 0)
			return &l->items[i];
	return NULL;
}

static inline struct inboxd_test_pair *inboxd_test_put(struct inboxd_test *t,
	struct inboxd_test_list *l, const char *name, struct inboxd_value value)
{
	struct inboxd_test_pair *p = inboxd_test_find(l, name);
	if (p == NULL) {
		l->items =
			(struct inboxd_test_pair *)inboxd_test_grow(t, l->items, l->n, sizeof *p);
		p = &l->items[l->n++];
		p->name = inboxd_test_keep_text(t, name);
	}
	p->value = inboxd_test_keep(t, value);
	return p;
}

/* A scalar of the options; lists and maps come about by their paths: "parameters/0",
 * "limits/daily". */
static inline void inboxd_test_option(struct inboxd_test *t, const char *path, const char *value)
{
	(void)inboxd_test_put(t, &t->options, path, inboxd_text(value));
}

/* One more message; its body may hold any bytes in inboxd_test_message_bytes. */
static inline struct inboxd_call *inboxd_test_message_bytes(
	struct inboxd_test *t, const char *body, size_t size)
{
	struct inboxd_call *m = (struct inboxd_call *)inboxd_test_alloc(t, sizeof *m);
	struct inboxd_value v;
	v.data = body;
	v.size = size;
	m->test = t;
	m->index = t->n_messages;
	m->is_message = 1;
	m->content = inboxd_test_keep(t, v);
	m->key = "k";
	t->messages = (struct inboxd_call **)inboxd_test_grow(
		t, t->messages, t->n_messages, sizeof *t->messages);
	t->messages[t->n_messages++] = m;
	return m;
}

static inline struct inboxd_call *inboxd_test_message(struct inboxd_test *t, const char *body)
{
	return inboxd_test_message_bytes(t, body, strlen(body));
}

/* Properties by AMQP's names ("message_id", "type", "priority" ...), and "routing_key". */
static inline void inboxd_test_property(struct inboxd_call *m, const char *name, const char *value)
{
	(void)inboxd_test_put(m->test, &m->properties, name, inboxd_text(value));
}

static inline void inboxd_test_header(struct inboxd_call *m, const char *name, const char *value)
{
	struct inboxd_test_pair *p = inboxd_test_put(
		m->test, &m->headers, name, inboxd_text(value != NULL ? value : ""));
	p->kind = INBOXD_KIND_STRING;
}

static inline void inboxd_test_header_int(struct inboxd_call *m, const char *name, int64_t value)
{
	char text[32];
	(void)snprintf(text, sizeof text, "%lld", (long long)value);
	struct inboxd_test_pair *p = inboxd_test_put(m->test, &m->headers, name, inboxd_text(text));
	p->kind = INBOXD_KIND_INTEGER;
	p->integer = value;
	p->real = (double)value;
}

static inline struct inboxd_test_answer *inboxd_test_answer(
	struct inboxd_test *t, const char *prefix)
{
	struct inboxd_test_answer *a;
	t->answers = (struct inboxd_test_answer *)inboxd_test_grow(
		t, t->answers, t->n_answers, sizeof *t->answers);
	a = &t->answers[t->n_answers++];
	a->prefix = inboxd_test_keep_text(t, prefix);
	a->affected = 1;
	return a;
}

/* Statements that begin so touch that many rows.  Of several answers that fit, the last one is
 * given. */
static inline void inboxd_test_affected(struct inboxd_test *t, const char *prefix, uint64_t rows)
{
	inboxd_test_answer(t, prefix)->affected = rows;
}

/* Statements that begin so return these values, row by row; a cell of NULL is SQL NULL. */
static inline void inboxd_test_rows(struct inboxd_test *t, const char *prefix, uint32_t columns,
	uint32_t n_cells, const char *const *cells)
{
	struct inboxd_test_answer *a = inboxd_test_answer(t, prefix);
	a->columns = columns;
	a->n_cells = n_cells;
	a->affected = columns != 0 ? n_cells / columns : 0;
	a->cells = (struct inboxd_value *)inboxd_test_alloc(t, n_cells * sizeof *a->cells);
	for (uint32_t i = 0; i < n_cells; i++)
		a->cells[i] = inboxd_test_keep(t, inboxd_text(cells[i]));
}

/* Statements that begin so fail: INBOXD_REJECT as for bad data, INBOXD_RETRY as for all else. */
static inline void inboxd_test_fail(
	struct inboxd_test *t, const char *prefix, int32_t result, const char *reason)
{
	struct inboxd_test_answer *a = inboxd_test_answer(t, prefix);
	a->result = result;
	a->reason = inboxd_test_keep_text(t, reason);
}

/* ---- JSON ---------------------------------------------------------------------------- */

static inline const char *inboxd_test_json_space(const char *p)
{
	return p + strspn(p, " \t\r\n");
}

/* Behind the value at p; NULL if there is none. */
static inline const char *inboxd_test_json_skip(const char *p)
{
	int depth = 0;
	p = inboxd_test_json_space(p);
	if (*p == '\0')
		return NULL;
	do {
		p = inboxd_test_json_space(p);
		if (*p == '"') {
			for (p++; *p != '"'; p++)
				if (*p == '\0' || (*p == '\\' && *++p == '\0'))
					return NULL;
			p++;
		} else if (*p == '{' || *p == '[') {
			depth++;
			p++;
		} else if (*p == '}' || *p == ']') {
			depth--;
			p++;
		} else if ((*p == ',' || *p == ':') && depth > 0) {
			p++;
		} else {
			size_t n = strcspn(p, " \t\r\n,:{}[]\"");
			if (n == 0)
				return NULL;
			p += n;
		}
	} while (depth > 0);
	return depth == 0 ? p : NULL;
}

static inline unsigned inboxd_test_json_hex(const char *p)
{
	char digits[5];
	(void)snprintf(digits, sizeof digits, "%.4s", p);
	return (unsigned)strtoul(digits, NULL, 16);
}

static inline char *inboxd_test_utf8(char *to, unsigned c)
{
	static const unsigned first[] = {0, 0xc0, 0xe0, 0xf0};
	unsigned char bytes[4];
	size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
	bytes[0] = (unsigned char)(first[n - 1] | c >> (6 * (n - 1)));
	for (size_t i = 1; i < n; i++)
		bytes[i] = (unsigned char)(0x80 | (c >> (6 * (n - 1 - i)) & 0x3f));
	memcpy(to, bytes, n);
	return to + n;
}

/* A string between its quotes, escapes resolved. */
static inline struct inboxd_value inboxd_test_json_string(
	struct inboxd_test *t, const char *p, const char *end)
{
	static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
	char *text = (char *)inboxd_test_alloc(t, (size_t)(end - p));
	char *out = text;
	struct inboxd_value v;
	while (p < end) {
		const char *known;
		if (*p != '\\') {
			*out++ = *p++;
		} else if (p[1] == 'u' && end - p >= 6) {
			unsigned c = inboxd_test_json_hex(p + 2);
			p += 6;
			if (c >= 0xd800 && c < 0xdc00 && end - p >= 6 && p[0] == '\\' &&
				p[1] == 'u') {
				c = 0x10000 + ((c - 0xd800) << 10) +
					(inboxd_test_json_hex(p + 2) - 0xdc00);
				p += 6;
			}
			out = inboxd_test_utf8(out, c);
		} else {
			known = strchr(from, p[1]);
			*out = p[1];
			if (known != NULL && *known != '\0')
				*out = to[known - from];
			out++;
			p += 2;
		}
	}
	v.data = text;
	v.size = (size_t)(out - text);
	return v;
}

/* Whether the member's name at p (a quoted string) is the pointer's next token. */
static inline int inboxd_test_json_is(
	struct inboxd_test *t, const char *p, const char *end, const char *token, size_t n)
{
	struct inboxd_value name = inboxd_test_json_string(t, p + 1, end - 1);
	size_t k = 0;
	for (size_t i = 0; i < n; i++, k++) {
		char c = token[i];
		if (c == '~' && i + 1 < n)
			c = token[++i] == '1' ? '/' : '~';
		if (k >= name.size || name.data[k] != c)
			return 0;
	}
	return k == name.size;
}

/* The value at a pointer within the value at p; NULL if there is none. */
static inline const char *inboxd_test_json_find(
	struct inboxd_test *t, const char *p, const char *pointer)
{
	p = inboxd_test_json_space(p);
	while (*pointer == '/') {
		size_t n = strcspn(++pointer, "/");
		int is_object = *p == '{';
		long i = 0;
		const char *found = NULL;
		if (!is_object && *p != '[')
			return NULL;
		for (p = inboxd_test_json_space(p + 1); *p != '}' && *p != ']'; i++) {
			const char *end = inboxd_test_json_skip(p);
			int is_it = end != NULL && is_object &&
				inboxd_test_json_is(t, p, end, pointer, n);
			if (end != NULL && is_object) {
				p = inboxd_test_json_space(end);
				p = inboxd_test_json_space(*p == ':' ? p + 1 : p);
				end = inboxd_test_json_skip(p);
			}
			if (end == NULL)
				return NULL;
			if (is_it || (!is_object && n != 0 && strtol(pointer, NULL, 10) == i))
				found = p;
			p = inboxd_test_json_space(end);
			if (*p == ',')
				p = inboxd_test_json_space(p + 1);
		}
		if (found == NULL)
			return NULL;
		p = found;
		pointer += n;
	}
	return p;
}

static inline struct inboxd_value inboxd_test_json_get(
	struct inboxd_test *t, const char *body, const char *pointer)
{
	struct inboxd_value v = inboxd_null();
	const char *p = inboxd_test_json_find(t, body, pointer);
	const char *end = p != NULL ? inboxd_test_json_skip(p) : NULL;
	if (end == NULL || strncmp(p, "null", 4) == 0)
		return v;
	if (*p == '"')
		return inboxd_test_json_string(t, p + 1, end - 1);
	v.data = p;
	v.size = (size_t)(end - p);
	return inboxd_test_keep(t, v);
}

/* ---- verdicts ------------------------------------------------------------------------ */

static inline void inboxd_test_note(struct inboxd_call *m, const char *reason)
{
	if (!m->has_own_reason)
		(void)snprintf(m->reason, sizeof m->reason, "%s", reason);
}

static inline int32_t inboxd_test_fail_statement(
	struct inboxd_call *m, int32_t result, const char *reason)
{
	inboxd_test_note(m, reason);
	if (!m->has_failed_statement) {
		m->has_failed_statement = 1;
		m->failed_result = result;
	}
	return result;
}

static inline int32_t inboxd_test_mark(
	struct inboxd_call *m, int32_t mark, const char *reason, uint64_t delay_ms)
{
	if (reason != NULL) {
		m->has_own_reason = 0;
		inboxd_test_note(m, reason);
		m->has_own_reason = 1;
	}
	m->mark = mark;
	m->is_own_mark = 1;
	m->delay_ms = delay_ms;
	return mark;
}

static inline int32_t inboxd_test_f_retry(
	struct inboxd_call *m, const char *reason, uint64_t delay_ms)
{
	return inboxd_test_mark(m, INBOXD_RETRY, reason, delay_ms);
}

static inline int32_t inboxd_test_f_reject(struct inboxd_call *m, const char *reason)
{
	return inboxd_test_mark(m, INBOXD_REJECT, reason, 0);
}

static inline int32_t inboxd_test_f_is_failed(struct inboxd_call *m)
{
	return m->mark != INBOXD_DONE || m->has_failed_statement;
}

static inline int32_t inboxd_test_f_set_result(
	struct inboxd_call *m, const char *data, size_t size, const char *content_type)
{
	struct inboxd_value v;
	v.data = data != NULL ? data : "";
	v.size = size;
	if (!m->is_message || (content_type != NULL && strlen(content_type) > 127))
		return INBOXD_REJECT;
	m->result = inboxd_test_keep(m->test, v);
	m->content_type = inboxd_test_keep_text(m->test, content_type);
	return INBOXD_DONE;
}

/* ---- the message --------------------------------------------------------------------- */

static inline const char *inboxd_test_f_source_error(struct inboxd_call *m, const char *source)
{
	static const char *const whole[] = {"message_id", "routing_key", "body", "cloudevents"};
	(void)m;
	for (int i = 0; i < 4; i++)
		if (strcmp(source, whole[i]) == 0)
			return NULL;
	if (strcmp(source, "json:") == 0 || strncmp(source, "json:/", 6) == 0 ||
		(strncmp(source, "header:", 7) == 0 && source[7] != '\0') ||
		(strncmp(source, "property:", 9) == 0 && source[9] != '\0'))
		return NULL;
	return "no source: message_id, header:NAME, json:/pointer, property:NAME, routing_key, "
	       "body or "
	       "cloudevents";
}

static inline struct inboxd_value inboxd_test_refuse(
	struct inboxd_call *m, const char *source, const char *why)
{
	char text[512];
	(void)snprintf(text, sizeof text, "%s: %s", source, why);
	inboxd_test_note(m, text);
	m->mark = INBOXD_REJECT;
	return inboxd_null();
}

static inline struct inboxd_value inboxd_test_cloudevents(struct inboxd_call *m)
{
	struct inboxd_test_pair *source = inboxd_test_find(&m->headers, "cloudEvents:source");
	struct inboxd_test_pair *id = inboxd_test_find(&m->headers, "cloudEvents:id");
	struct inboxd_value a, b, both;
	char *text;
	if (source != NULL && id != NULL) {
		a = source->value;
		b = id->value;
	} else {
		a = inboxd_test_json_get(m->test, m->content.data, "/source");
		b = inboxd_test_json_get(m->test, m->content.data, "/id");
	}
	if (a.data == NULL || b.data == NULL)
		return inboxd_null();
	text = (char *)inboxd_test_alloc(m->test, a.size + 1 + b.size);
	memcpy(text, a.data, a.size);
	memcpy(text + a.size + 1, b.data, b.size);
	both.data = text;
	both.size = a.size + 1 + b.size;
	return both;
}

static inline struct inboxd_value inboxd_test_f_get(struct inboxd_call *m, const char *source)
{
	const struct inboxd_test_list *list = &m->properties;
	const char *name = source;
	const struct inboxd_test_pair *p;
	const char *wrong = inboxd_test_f_source_error(m, source);
	if (!m->is_message)
		return inboxd_test_refuse(
			m, source, "there is no message here; in handle_batch use batch_item");
	if (wrong != NULL)
		return inboxd_test_refuse(m, source, wrong);
	if (strcmp(source, "body") == 0)
		return m->content;
	if (strcmp(source, "cloudevents") == 0)
		return inboxd_test_cloudevents(m);
	if (strncmp(source, "json:", 5) == 0) {
		const char *end = inboxd_test_json_skip(m->content.data);
		if (end == NULL || *inboxd_test_json_space(end) != '\0')
			return inboxd_test_refuse(m, source, "the body is not JSON");
		return inboxd_test_json_get(m->test, m->content.data, source + 5);
	}
	if (strncmp(source, "property:", 9) == 0)
		name = source + 9;
	if (strncmp(source, "header:", 7) == 0) {
		name = source + 7;
		list = &m->headers;
	}
	p = inboxd_test_find(list, name);
	return p != NULL ? p->value : inboxd_null();
}

static inline struct inboxd_value inboxd_test_f_body(struct inboxd_call *m)
{
	return m->content;
}

static inline int32_t inboxd_test_f_header_kind(struct inboxd_call *m, const char *name)
{
	const struct inboxd_test_pair *p = inboxd_test_find(&m->headers, name);
	return p != NULL ? p->kind : INBOXD_KIND_ABSENT;
}

static inline int32_t inboxd_test_f_header_int(
	struct inboxd_call *m, const char *name, int64_t *ret)
{
	const struct inboxd_test_pair *p = inboxd_test_find(&m->headers, name);
	if (p == NULL || p->kind != INBOXD_KIND_INTEGER)
		return 0;
	*ret = p->integer;
	return 1;
}

static inline int32_t inboxd_test_f_header_float(
	struct inboxd_call *m, const char *name, double *ret)
{
	const struct inboxd_test_pair *p = inboxd_test_find(&m->headers, name);
	if (p == NULL || p->kind != INBOXD_KIND_INTEGER)
		return 0;
	*ret = p->real;
	return 1;
}

static inline struct inboxd_value inboxd_test_f_header_name(struct inboxd_call *m, uint32_t i)
{
	return inboxd_text(i < m->headers.n ? m->headers.items[i].name : NULL);
}

static inline int32_t inboxd_test_f_property_int(
	struct inboxd_call *m, const char *name, uint64_t *ret)
{
	const struct inboxd_test_pair *p = inboxd_test_find(&m->properties, name);
	if (p == NULL || p->value.size == 0 || strspn(p->value.data, "0123456789") != p->value.size)
		return 0;
	*ret = strtoull(p->value.data, NULL, 10);
	return 1;
}

static inline uint32_t inboxd_test_f_attempt(struct inboxd_call *m)
{
	return m->attempts;
}

static inline int32_t inboxd_test_f_redelivered(struct inboxd_call *m)
{
	return m->is_redelivered;
}

/* Readable here: "test-KEY-STEP". */
static inline struct inboxd_value inboxd_test_f_idempotency_key(
	struct inboxd_call *m, const char *step)
{
	char text[65];
	if (!m->is_message || m->key == NULL)
		return inboxd_null();
	(void)snprintf(text, sizeof text, "test-%s-%s", m->key, step != NULL ? step : "");
	return inboxd_test_keep(m->test, inboxd_text(text));
}

static inline uint32_t inboxd_test_f_batch_size(struct inboxd_call *m)
{
	if (m->is_message)
		return 1;
	return m->test->entry == 'b' ? m->test->n_messages : 0;
}

static inline struct inboxd_call *inboxd_test_f_batch_item(struct inboxd_call *m, uint32_t i)
{
	if (i >= inboxd_test_f_batch_size(m))
		return NULL;
	return m->is_message ? m : m->test->messages[i];
}

/* ---- the database -------------------------------------------------------------------- */

static inline int inboxd_test_begins(const char *sql, const char *prefix)
{
	sql = inboxd_test_json_space(sql);
	for (; *prefix != '\0'; sql++, prefix++) {
		char a = *sql, b = *prefix;
		a = (char)(a >= 'a' && a <= 'z' ? a - 32 : a);
		b = (char)(b >= 'a' && b <= 'z' ? b - 32 : b);
		if (a != b)
			return 0;
	}
	return 1;
}

static inline const char *inboxd_test_f_statement_error(struct inboxd_call *m, const char *sql)
{
	static const char *const refused[] = {
		"BEGIN", "START", "COMMIT", "END", "ABORT", "ROLLBACK", "PREPARE TRANSACTION"};
	(void)m;
	if (*inboxd_test_json_space(sql) == '\0')
		return "there is no statement in it";
	if (inboxd_test_begins(sql, "COPY "))
		return "COPY goes through copy_begin, not exec or queue";
	if (inboxd_test_begins(sql, "ROLLBACK TO "))
		return NULL;
	for (int i = 0; i < 7; i++)
		if (inboxd_test_begins(sql, refused[i]))
			return "the transaction belongs to inboxd: BEGIN, COMMIT, ROLLBACK and "
			       "their kin are refused";
	return NULL;
}

static inline const struct inboxd_test_answer *inboxd_test_find_answer(
	const struct inboxd_test *t, const char *sql)
{
	for (uint32_t i = t->n_answers; i > 0; i--)
		if (inboxd_test_begins(sql, t->answers[i - 1].prefix))
			return &t->answers[i - 1];
	return NULL;
}

static inline struct inboxd_test_statement *inboxd_test_write_down(struct inboxd_call *m,
	const char *how, const char *sql, uint32_t n, const struct inboxd_value *args)
{
	struct inboxd_test *t = m->test;
	struct inboxd_test_statement *s;
	t->statements = (struct inboxd_test_statement *)inboxd_test_grow(
		t, t->statements, t->n_statements, sizeof *s);
	s = &t->statements[t->n_statements++];
	s->how = how;
	s->sql = inboxd_test_keep_text(t, sql);
	s->n = n;
	s->message = m->is_message ? m : NULL;
	s->args = (struct inboxd_value *)inboxd_test_alloc(t, ((size_t)n + 1) * sizeof *args);
	for (uint32_t i = 0; i < n; i++)
		s->args[i] = inboxd_test_keep(t, args[i]);
	m->statements++;
	return s;
}

/* What stands in the way of a statement; NULL: nothing. */
static inline const char *inboxd_test_objection(
	struct inboxd_call *m, const char *sql, uint32_t n, const struct inboxd_value *args)
{
	int entry = m->test->entry;
	if (entry != 'h' && entry != 'b' && entry != 'o')
		return "there is no database in check and close";
	if (m->test->copying != NULL)
		return "a statement between copy_begin and copy_end";
	for (uint32_t i = 0; i < n; i++)
		if (args[i].data != NULL && args[i].size != 0 &&
			memchr(args[i].data, '\0', args[i].size) != NULL)
			return "a parameter has a NUL inside, which text cannot hold";
	if (n > 1024)
		return "a statement has at most 1024 parameters";
	return inboxd_test_f_statement_error(m, sql);
}

static inline int32_t inboxd_test_run(struct inboxd_call *m, const char *how, const char *sql,
	uint32_t n, const struct inboxd_value *args, struct inboxd_rows **rows)
{
	static const struct inboxd_test_answer usual = {"", INBOXD_DONE, NULL, 1, 0, 0, NULL};
	const char *objection = inboxd_test_objection(m, sql, n, args);
	const struct inboxd_test_answer *answer = inboxd_test_find_answer(m->test, sql);
	if (objection != NULL)
		return inboxd_test_fail_statement(m, INBOXD_REJECT, objection);
	(void)inboxd_test_write_down(m, how, sql, n, args);
	if (inboxd_test_begins(sql, "ROLLBACK TO "))
		m->has_failed_statement = 0;
	else if (m->has_failed_statement)
		return inboxd_test_fail_statement(m, INBOXD_RETRY,
			"current transaction is aborted, commands ignored until end of transaction "
			"block");
	if (answer != NULL && answer->result != INBOXD_DONE)
		return inboxd_test_fail_statement(m, answer->result, answer->reason);
	if (rows != NULL) {
		*rows = (struct inboxd_rows *)inboxd_test_alloc(m->test, sizeof **rows);
		(*rows)->answer = answer != NULL ? answer : &usual;
	}
	return INBOXD_DONE;
}

static inline int32_t inboxd_test_f_exec(struct inboxd_call *m, const char *sql, uint32_t n,
	const struct inboxd_value *args, struct inboxd_rows **rows)
{
	return inboxd_test_run(m, "exec", sql, n, args, rows);
}

/* An error of a queued statement shows later: here, when the entry has returned. */
static inline int32_t inboxd_test_f_queue(
	struct inboxd_call *m, const char *sql, uint32_t n, const struct inboxd_value *args)
{
	const char *objection = inboxd_test_objection(m, sql, n, args);
	if (objection == NULL && m->test->entry == 'o')
		objection = "queue needs a transaction, which open has not";
	if (objection != NULL)
		return inboxd_test_fail_statement(m, INBOXD_REJECT, objection);
	(void)inboxd_test_run(m, "queue", sql, n, args, NULL);
	return INBOXD_DONE;
}

static inline uint32_t inboxd_test_f_rows_count(const struct inboxd_rows *rows)
{
	return rows->answer->columns != 0 ? rows->answer->n_cells / rows->answer->columns : 0;
}

static inline uint32_t inboxd_test_f_rows_columns(const struct inboxd_rows *rows)
{
	return rows->answer->columns;
}

static inline uint64_t inboxd_test_f_rows_affected(const struct inboxd_rows *rows)
{
	return rows->answer->affected;
}

static inline struct inboxd_value inboxd_test_f_rows_value(
	const struct inboxd_rows *rows, uint32_t row, uint32_t column)
{
	const struct inboxd_test_answer *a = rows->answer;
	if (column >= a->columns || row >= a->n_cells / a->columns)
		return inboxd_null();
	return a->cells[(size_t)row * a->columns + column];
}

static inline struct inboxd_value inboxd_test_f_bytea(
	struct inboxd_call *m, struct inboxd_value bytes)
{
	struct inboxd_value v;
	char *text;
	if (bytes.data == NULL)
		return bytes;
	text = (char *)inboxd_test_alloc(m->test, 2 + 2 * bytes.size);
	text[0] = '\\';
	text[1] = 'x';
	for (size_t i = 0; i < bytes.size; i++)
		(void)snprintf(text + 2 + 2 * i, 3, "%02x", (unsigned)(unsigned char)bytes.data[i]);
	v.data = text;
	v.size = 2 + 2 * bytes.size;
	return v;
}

static inline int32_t inboxd_test_f_copy_begin(struct inboxd_call *m, const char *sql)
{
	int entry = m->test->entry;
	if ((entry != 'h' && entry != 'b') || m->test->copying != NULL ||
		!inboxd_test_begins(sql, "COPY "))
		return inboxd_test_fail_statement(m, INBOXD_REJECT,
			"copy_begin is for COPY ... FROM STDIN, in handle and handle_batch");
	(void)inboxd_test_write_down(m, "copy", sql, 0, NULL);
	m->test->copying = m;
	return INBOXD_DONE;
}

static inline int32_t inboxd_test_f_copy_data(struct inboxd_call *m, const char *data, size_t size)
{
	struct inboxd_test *t = m->test;
	struct inboxd_test_statement *s =
		t->n_statements != 0 ? &t->statements[t->n_statements - 1] : NULL;
	char *text;
	if (t->copying == NULL || s == NULL)
		return inboxd_test_fail_statement(m, INBOXD_REJECT, "copy_data without copy_begin");
	text = (char *)inboxd_test_alloc(t, s->args[0].size + size);
	if (s->args[0].size != 0)
		memcpy(text, s->args[0].data, s->args[0].size);
	memcpy(text + s->args[0].size, data, size);
	s->args[0].data = text;
	s->args[0].size += size;
	s->n = 1;
	return INBOXD_DONE;
}

static inline int32_t inboxd_test_f_copy_end(struct inboxd_call *m)
{
	struct inboxd_test *t = m->test;
	const struct inboxd_test_answer *answer;
	if (t->copying == NULL)
		return inboxd_test_fail_statement(m, INBOXD_REJECT, "copy_end without copy_begin");
	t->copying = NULL;
	answer = inboxd_test_find_answer(t, t->statements[t->n_statements - 1].sql);
	if (answer != NULL && answer->result != INBOXD_DONE)
		return inboxd_test_fail_statement(m, answer->result, answer->reason);
	return INBOXD_DONE;
}

static inline struct pg_conn *inboxd_test_f_conn(struct inboxd_call *m)
{
	return (m->test->handler->flags & INBOXD_USES_CONN) != 0 ? m->test->conn : NULL;
}

/* ---- everything else ----------------------------------------------------------------- */

static inline void inboxd_test_f_log(struct inboxd_call *m, int32_t level, const char *text)
{
	static const char *const names[] = {"error", "warning", "info", "debug"};
	int bounded = level < 0 ? 0 : level > 3 ? 3 : (int)level;
	inboxd_test_append(m->test->log, sizeof m->test->log, names[bounded], text);
}

static inline struct inboxd_value inboxd_test_f_option(struct inboxd_call *m, const char *path)
{
	const struct inboxd_test_pair *p = inboxd_test_find(&m->test->options, path);
	return p != NULL ? p->value : inboxd_null();
}

/* The i-th name below path, in the order in which the options were set; *ret_n counts them all. */
static inline struct inboxd_value inboxd_test_child(
	struct inboxd_test *t, const char *path, uint32_t wanted, uint32_t *ret_n)
{
	struct inboxd_value found = inboxd_null();
	size_t skip = *path != '\0' ? strlen(path) + 1 : 0;
	*ret_n = 0;
	for (uint32_t i = 0; i < t->options.n; i++) {
		const char *name = t->options.items[i].name;
		size_t n;
		int is_new = 1;
		if (skip != 0 && (strncmp(name, path, skip - 1) != 0 || name[skip - 1] != '/'))
			continue;
		n = strcspn(name + skip, "/");
		for (uint32_t k = 0; k < i; k++)
			if (strncmp(t->options.items[k].name, name, skip + n) == 0 &&
				strchr("/", t->options.items[k].name[skip + n]) != NULL)
				is_new = 0;
		if (is_new && (*ret_n)++ == wanted) {
			found.data = name + skip;
			found.size = n;
		}
	}
	return inboxd_test_keep(t, found);
}

static inline uint32_t inboxd_test_f_option_count(struct inboxd_call *m, const char *path)
{
	uint32_t n;
	if (*path != '\0' && inboxd_test_find(&m->test->options, path) != NULL)
		return 1;
	(void)inboxd_test_child(m->test, path, UINT32_MAX, &n);
	return n;
}

static inline struct inboxd_value inboxd_test_f_option_name(
	struct inboxd_call *m, const char *path, uint32_t i)
{
	uint32_t n;
	struct inboxd_value v = inboxd_test_child(m->test, path, i, &n);
	/* Numbers are the indexes of a list. */
	return v.data != NULL && strspn(v.data, "0123456789") == v.size ? inboxd_null() : v;
}

static inline int32_t inboxd_test_f_bad_option(
	struct inboxd_call *m, const char *path, const char *text)
{
	inboxd_test_append(m->test->errors, sizeof m->test->errors, path, text);
	return INBOXD_REJECT;
}

static inline int32_t inboxd_test_f_only_options(
	struct inboxd_call *m, const char *path, uint32_t n, const char *const *names)
{
	int32_t result = INBOXD_DONE;
	struct inboxd_value name;
	for (uint32_t i = 0; (name = inboxd_test_f_option_name(m, path, i)).data != NULL; i++) {
		int is_known = 0;
		char full[256];
		for (uint32_t k = 0; k < n; k++)
			is_known = is_known || inboxd_is(name, names[k]);
		(void)snprintf(
			full, sizeof full, "%s%s%s", path, *path != '\0' ? "/" : "", name.data);
		if (!is_known)
			result = inboxd_test_f_bad_option(
				m, full, "this handler has no such option");
	}
	return result;
}

/* As many parameters as the highest $n in the text, all of type text. */
static inline int32_t inboxd_test_f_prepare(struct inboxd_call *m, const char *sql,
	const char *option_path, uint32_t *types, uint32_t *n)
{
	const struct inboxd_test_answer *answer = inboxd_test_find_answer(m->test, sql);
	const char *wrong = inboxd_test_f_statement_error(m, sql);
	uint32_t room = *n, highest = 0;
	if (m->test->entry != 'o')
		return inboxd_test_fail_statement(m, INBOXD_REJECT, "prepare is for open");
	if (wrong == NULL && answer != NULL && answer->result != INBOXD_DONE)
		wrong = answer->reason;
	if (wrong != NULL)
		return inboxd_test_f_bad_option(m, option_path, wrong);
	for (const char *p = sql; (p = strchr(p, '$')) != NULL; p++) {
		uint32_t number = (uint32_t)strtoul(p + 1, NULL, 10);
		highest = number > highest ? number : highest;
	}
	for (uint32_t i = 0; i < room && i < highest; i++)
		types[i] = 25;
	*n = highest;
	return INBOXD_DONE;
}

static inline void inboxd_test_f_set_state(struct inboxd_call *m, void *state)
{
	m->test->state = state;
}

static inline void *inboxd_test_f_state(struct inboxd_call *m)
{
	return m->test->state;
}

/* ---- running ------------------------------------------------------------------------- */

static inline struct inboxd_test *inboxd_test_new(const struct inboxd_handler *handler)
{
	struct inboxd_test *t = (struct inboxd_test *)calloc(1, sizeof *t);
	struct inboxd_host *h;
	if (t == NULL)
		abort();
	t->handler = handler;
	t->whole.test = t;
	h = &t->host;
	h->abi_major = INBOXD_ABI_MAJOR;
	h->abi_minor = INBOXD_ABI_MINOR;
	h->size = sizeof *h;
	h->get = inboxd_test_f_get;
	h->body = inboxd_test_f_body;
	h->header_kind = inboxd_test_f_header_kind;
	h->header_int = inboxd_test_f_header_int;
	h->header_float = inboxd_test_f_header_float;
	h->header_name = inboxd_test_f_header_name;
	h->property_int = inboxd_test_f_property_int;
	h->attempt = inboxd_test_f_attempt;
	h->redelivered = inboxd_test_f_redelivered;
	h->idempotency_key = inboxd_test_f_idempotency_key;
	h->batch_size = inboxd_test_f_batch_size;
	h->batch_item = inboxd_test_f_batch_item;
	h->exec = inboxd_test_f_exec;
	h->queue = inboxd_test_f_queue;
	h->rows_count = inboxd_test_f_rows_count;
	h->rows_columns = inboxd_test_f_rows_columns;
	h->rows_affected = inboxd_test_f_rows_affected;
	h->rows_value = inboxd_test_f_rows_value;
	h->bytea = inboxd_test_f_bytea;
	h->copy_begin = inboxd_test_f_copy_begin;
	h->copy_data = inboxd_test_f_copy_data;
	h->copy_end = inboxd_test_f_copy_end;
	h->conn = inboxd_test_f_conn;
	h->retry = inboxd_test_f_retry;
	h->reject = inboxd_test_f_reject;
	h->is_failed = inboxd_test_f_is_failed;
	h->set_result = inboxd_test_f_set_result;
	h->log = inboxd_test_f_log;
	h->option = inboxd_test_f_option;
	h->option_count = inboxd_test_f_option_count;
	h->option_name = inboxd_test_f_option_name;
	h->bad_option = inboxd_test_f_bad_option;
	h->only_options = inboxd_test_f_only_options;
	h->prepare = inboxd_test_f_prepare;
	h->source_error = inboxd_test_f_source_error;
	h->statement_error = inboxd_test_f_statement_error;
	h->set_state = inboxd_test_f_set_state;
	h->state = inboxd_test_f_state;
	return t;
}

static inline void inboxd_test_reset(struct inboxd_call *m)
{
	m->verdict = INBOXD_DONE;
	m->reason[0] = '\0';
	m->delay_ms = 0;
	m->result = inboxd_null();
	m->content_type = NULL;
	m->mark = INBOXD_DONE;
	m->is_own_mark = m->has_own_reason = m->has_failed_statement = 0;
	m->statements = 0;
}

static inline int32_t inboxd_test_set_up(struct inboxd_test *t, int entry,
	int32_t (*run)(const struct inboxd_host *host, struct inboxd_call *call))
{
	int32_t result = INBOXD_DONE;
	inboxd_test_reset(&t->whole);
	t->errors[0] = '\0';
	t->entry = entry;
	if (run != NULL)
		result = run(&t->host, &t->whole);
	t->entry = 0;
	/* Errors that were reported and then forgotten. */
	return result == INBOXD_DONE && t->errors[0] != '\0' ? INBOXD_REJECT : result;
}

/* Run check and open; INBOXD_DONE if there is none.  What was wrong stands in errors and
 * whole.reason. */
static inline int32_t inboxd_test_check(struct inboxd_test *t)
{
	return inboxd_test_set_up(t, 'c', t->handler->check);
}

static inline int32_t inboxd_test_open(struct inboxd_test *t)
{
	t->is_open = 1;
	return inboxd_test_set_up(t, 'o', t->handler->open);
}

/* What counts, given what the entry returned and what happened meanwhile. */
static inline int32_t inboxd_test_judge(struct inboxd_call *m, int32_t result)
{
	if (m->test->copying != NULL) {
		m->test->copying = NULL;
		inboxd_test_note(m, "the handler returned between copy_begin and copy_end");
		m->mark = INBOXD_REJECT;
	}
	if (result == INBOXD_RETRY || result == INBOXD_REJECT)
		return result;
	if (result != INBOXD_DONE)
		return INBOXD_BROKEN;
	if (m->mark != INBOXD_DONE)
		return m->mark;
	return m->has_failed_statement ? m->failed_result : INBOXD_DONE;
}

/* Runs handle for one message and says what becomes of it: INBOXD_DONE (all its statements commit),
 * INBOXD_RETRY, INBOXD_REJECT, or INBOXD_BROKEN. */
static inline int32_t inboxd_test_handle(struct inboxd_call *m)
{
	struct inboxd_test *t = m->test;
	inboxd_test_reset(m);
	t->entry = 'h';
	m->verdict = inboxd_test_judge(m, t->handler->handle(&t->host, m));
	t->entry = 0;
	return m->verdict;
}

/* Runs handle_batch for all messages.  INBOXD_DONE: it commits, and each message's verdict stands
 * in it.  Anything else: all is rolled back and each would be run again by itself. */
static inline int32_t inboxd_test_handle_batch(struct inboxd_test *t)
{
	int32_t result;
	inboxd_test_reset(&t->whole);
	for (uint32_t i = 0; i < t->n_messages; i++)
		inboxd_test_reset(t->messages[i]);
	t->entry = 'b';
	result = inboxd_test_judge(&t->whole, t->handler->handle_batch(&t->host, &t->whole));
	t->entry = 0;
	for (uint32_t i = 0; i < t->n_messages; i++) {
		struct inboxd_call *m = t->messages[i];
		m->verdict = inboxd_test_judge(m, INBOXD_DONE);
		/* Only what the handler knows to have failed, and wrote nothing for, can be left
		 * out. */
		if (m->verdict != INBOXD_DONE && (!m->is_own_mark || m->statements != 0) &&
			result == INBOXD_DONE)
			result = m->verdict;
	}
	return result;
}

/* Forgets messages and statements, for the next round; options and answers stay. */
static inline void inboxd_test_clear(struct inboxd_test *t)
{
	t->n_messages = 0;
	t->n_statements = 0;
	t->log[0] = '\0';
}

/* Runs close, if open was run, and frees everything. */
static inline void inboxd_test_free(struct inboxd_test *t)
{
	if (t->is_open && t->handler->close != NULL) {
		t->entry = 'x';
		t->handler->close(&t->host, &t->whole);
	}
	for (uint32_t i = 0; i < t->n_owned; i++)
		free(t->owned[i]);
	free(t->owned);
	free(t);
}

#ifdef __cplusplus
}
#endif

#endif

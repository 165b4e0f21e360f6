/* SPDX-License-Identifier: MIT */
/* A JSON scanner that checks the whole text in one pass and picks one value out of it.
 *
 * Instead of recursion there is a stack of open containers.  `rest` is what is left of the pointer
 * at a value: NULL when the value does not lie on the way, "" when it is the one that is looked
 * for. */
#include "base/json.h"

#include "base/utf8.h"

struct level {
	bool is_object;
	bool is_fresh;    /* nothing but the opening bracket was read */
	const char *rest; /* at the container itself */
	size_t index;     /* of the next element; only counted in arrays on the way */
};

struct scan {
	const uint8_t *begin, *p, *end;
	const char *why;
	enum json_kind kind; /* of the value that was found last */
	const uint8_t *found;
	size_t found_size;
	size_t depth;
	struct level level[JSON_MAX_DEPTH];
};

static bool fail(struct scan *s, const char *why)
{
	s->why = why;
	return false;
}

static void skip_space(struct scan *s)
{
	while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t'))
		s->p++;
}

static int hex_value(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The four digits at p, or UINT32_MAX. */
static uint32_t hex4(const uint8_t *p, const uint8_t *end)
{
	uint32_t v = 0;
	if (end - p < 4)
		return UINT32_MAX;
	for (int i = 0; i < 4; i++) {
		int d = hex_value(p[i]);
		if (d < 0)
			return UINT32_MAX;
		v = v << 4 | (uint32_t)d;
	}
	return v;
}

/* The code point of an escape, p behind the backslash; its length behind the backslash to
 * *ret_size, or 0 and *ret_why. */
static uint32_t read_escape(
	const uint8_t *p, const uint8_t *end, size_t *ret_size, const char **ret_why)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	*ret_size = 0;
	*ret_why = "unknown escape in a string";
	if (p == end || *p == '\0')
		return 0;
	const char *simple = strchr(from, *p);
	if (simple != NULL) {
		*ret_size = 1;
		return (uint32_t)to[simple - from];
	}
	uint32_t high = *p == 'u' ? hex4(p + 1, end) : UINT32_MAX;
	if (high == UINT32_MAX)
		return 0;
	if (high < 0xd800 || high > 0xdfff) {
		*ret_size = 5;
		return high;
	}
	*ret_why = "lone surrogate in a string";
	if (high > 0xdbff || end - p < 7 || p[5] != '\\' || p[6] != 'u')
		return 0;
	uint32_t low = hex4(p + 7, end);
	if (low < 0xdc00 || low > 0xdfff)
		return 0;
	*ret_size = 11;
	return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}

/* Over what is neither ASCII text nor the end of the string. */
static bool scan_special(struct scan *s, bool *has_escape)
{
	size_t n;
	if (*s->p == '\\') {
		const char *why;
		(void)read_escape(s->p + 1, s->end, &n, &why);
		if (n == 0)
			return fail(s, why);
		*has_escape = true;
		s->p += 1 + n;
		return true;
	}
	if (*s->p < 0x20)
		return fail(s, "control character in a string");
	n = utf8_decode(s->p, (size_t)(s->end - s->p), NULL);
	if (n == 0)
		return fail(s, "string is not UTF-8");
	s->p += n;
	return true;
}

/* Past characters that need no look: ASCII but for control characters, quote and backslash.  Eight at a
 * time; a byte's top bit is set in `special` if it, or one before it, is none of these. */
static const uint8_t *skip_plain(const uint8_t *p, const uint8_t *end)
{
	const uint64_t ones = UINT64_C(0x0101010101010101), tops = ones << 7;
	while (end - p >= 8) {
		uint64_t v;
		memcpy(&v, p, sizeof v);
		uint64_t quote = v ^ ones * '"', backslash = v ^ ones * '\\';
		uint64_t special = v | ((v - ones * 0x20) & ~v) | ((quote - ones) & ~quote) |
			((backslash - ones) & ~backslash);
		if ((special & tops) != 0)
			break;
		p += 8;
	}
	while (p < end && *p >= 0x20 && *p < 0x80 && *p != '"' && *p != '\\')
		p++;
	return p;
}

/* A string token, p at its quote; the text between the quotes to *ret. */
static bool scan_string(struct scan *s, struct bytes *ret, bool *ret_has_escape)
{
	const uint8_t *begin = ++s->p;
	*ret_has_escape = false;
	for (;;) {
		s->p = skip_plain(s->p, s->end);
		if (s->p == s->end)
			return fail(s, "string without end");
		if (*s->p == '"')
			break;
		if (!scan_special(s, ret_has_escape))
			return false;
	}
	*ret = bytes_of(begin, (size_t)(s->p - begin));
	s->p++;
	return true;
}

static bool scan_digits(struct scan *s)
{
	const uint8_t *begin = s->p;
	while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
		s->p++;
	return s->p != begin || fail(s, "digit expected in a number");
}

static bool scan_number(struct scan *s)
{
	if (*s->p == '-')
		s->p++;
	if (s->p < s->end && *s->p == '0')
		s->p++;
	else if (!scan_digits(s))
		return false;
	if (s->p < s->end && *s->p == '.') {
		s->p++;
		if (!scan_digits(s))
			return false;
	}
	if (s->p < s->end && (*s->p == 'e' || *s->p == 'E')) {
		s->p++;
		if (s->p < s->end && (*s->p == '+' || *s->p == '-'))
			s->p++;
		return scan_digits(s);
	}
	return true;
}

static bool scan_word(struct scan *s, const char *word)
{
	size_t n = strlen(word);
	if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0)
		return fail(s, "value expected");
	s->p += n;
	return true;
}

static bool scan_scalar(struct scan *s, enum json_kind *ret_kind)
{
	struct bytes text;
	bool has_escape;
	switch (*s->p) {
	case '"':
		*ret_kind = JSON_STRING;
		return scan_string(s, &text, &has_escape);
	case 't':
		*ret_kind = JSON_BOOL;
		return scan_word(s, "true");
	case 'f':
		*ret_kind = JSON_BOOL;
		return scan_word(s, "false");
	case 'n':
		*ret_kind = JSON_NULL;
		return scan_word(s, "null");
	default:
		*ret_kind = JSON_NUMBER;
		if (*s->p != '-' && (*s->p < '0' || *s->p > '9'))
			return fail(s, "value expected");
		return scan_number(s);
	}
}

static void note_found(struct scan *s, enum json_kind kind, const uint8_t *begin)
{
	s->kind = kind;
	s->found = begin;
	s->found_size = (size_t)(s->p - begin);
}

static bool open_container(struct scan *s, const char *rest)
{
	bool is_object = *s->p == '{';
	if (s->depth == JSON_MAX_DEPTH)
		return fail(s, "nested too deep");
	if (rest != NULL && *rest == '\0')
		note_found(s, is_object ? JSON_OBJECT : JSON_ARRAY, s->p);
	s->p++;
	s->level[s->depth++] =
		(struct level){.is_object = is_object, .is_fresh = true, .rest = rest};
	return true;
}

static void close_container(struct scan *s)
{
	const struct level *l = &s->level[--s->depth];
	s->p++;
	if (l->rest != NULL && *l->rest == '\0')
		s->found_size = (size_t)(s->p - s->found);
}

static bool begin_value(struct scan *s, const char *rest)
{
	skip_space(s);
	if (s->p == s->end)
		return fail(s, "text ends where a value is expected");
	if (*s->p == '{' || *s->p == '[')
		return open_container(s, rest);
	const uint8_t *begin = s->p;
	enum json_kind kind;
	if (!scan_scalar(s, &kind))
		return false;
	if (rest != NULL && *rest == '\0')
		note_found(s, kind, begin);
	return true;
}

/* End of the pointer's first token; rest stands at its slash. */
static const char *token_end(const char *rest)
{
	return rest + 1 + strcspn(rest + 1, "/");
}

/* Whether the bytes of a name's piece are what the token goes on with; moves the token on. */
static bool token_take(const char **token, const char *end, const uint8_t *piece, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const char *t = *token;
		if (t == end)
			return false;
		bool is_escape = *t == '~';
		uint8_t c = is_escape ? (t[1] == '1' ? '/' : '~') : (uint8_t)*t;
		if (c != piece[i])
			return false;
		*token = t + (is_escape && t + 1 != end ? 2 : 1);
	}
	return true;
}

/* The same for names with escapes: each is resolved on its way to the comparison. */
static bool token_is_escaped_name(const char *token, const char *end, struct bytes name)
{
	const uint8_t *p = name.data, *name_end = name.data + name.size;
	while (p < name_end) {
		uint8_t text[8];
		struct buf piece = {.data = text, .cap = sizeof text};
		size_t n = 0;
		if (*p == '\\') {
			const char *why;
			utf8_add(&piece, read_escape(p + 1, name_end, &n, &why));
			p += 1 + n;
		} else {
			buf_add_byte(&piece, *p++);
		}
		if (!token_take(&token, end, piece.data, piece.size))
			return false;
	}
	return token == end;
}

static bool token_is_name(const char *rest, struct bytes name, bool has_escape)
{
	const char *token = rest + 1, *end = token_end(rest);
	if (has_escape)
		return token_is_escaped_name(token, end, name);
	return token_take(&token, end, name.data, name.size) && token == end;
}

/* RFC 6901: digits without leading zeros; "-" stands behind the last element, where nothing is. */
static bool token_is_index(const char *rest, size_t index)
{
	const char *token = rest + 1, *end = token_end(rest);
	size_t v = 0;
	if (token == end || (*token == '0' && end - token > 1) || end - token > 18)
		return false;
	for (; token < end; token++) {
		if (*token < '0' || *token > '9')
			return false;
		v = v * 10 + (size_t)(*token - '0');
	}
	return v == index;
}

/* What is left of the pointer at this child, or NULL.  A child that lies on the way takes the place
 * of an earlier one of the same name, with all that was found in it. */
static const char *child_rest(struct scan *s, const struct level *l, bool is_match)
{
	if (!is_match)
		return NULL;
	s->kind = JSON_ABSENT;
	return token_end(l->rest);
}

static bool begin_member(struct scan *s, struct level *l)
{
	struct bytes name;
	bool has_escape;
	if (s->p == s->end || *s->p != '"')
		return fail(s, "name expected in an object");
	if (!scan_string(s, &name, &has_escape))
		return false;
	skip_space(s);
	if (s->p == s->end || *s->p != ':')
		return fail(s, "colon expected behind a name");
	s->p++;
	bool is_on_way = l->rest != NULL && *l->rest == '/';
	return begin_value(
		s, child_rest(s, l, is_on_way && token_is_name(l->rest, name, has_escape)));
}

static bool begin_element(struct scan *s, struct level *l)
{
	bool is_on_way = l->rest != NULL && *l->rest == '/';
	return begin_value(s, child_rest(s, l, is_on_way && token_is_index(l->rest, l->index++)));
}

/* The next thing in the innermost container: its end, or one more child. */
static bool step(struct scan *s)
{
	struct level *l = &s->level[s->depth - 1];
	skip_space(s);
	if (s->p == s->end)
		return fail(s, l->is_object ? "object without end" : "array without end");
	if (*s->p == (l->is_object ? '}' : ']')) {
		close_container(s);
		return true;
	}
	if (!l->is_fresh) {
		if (*s->p != ',')
			return fail(s, "comma or closing bracket expected");
		s->p++;
		skip_space(s);
	}
	l->is_fresh = false;
	return l->is_object ? begin_member(s, l) : begin_element(s, l);
}

static bool scan_text(struct scan *s, const char *pointer)
{
	if (s->end - s->p >= 3 && memcmp(s->p, "\xef\xbb\xbf", 3) == 0)
		s->p += 3;
	if (!begin_value(s, pointer))
		return false;
	while (s->depth != 0)
		if (!step(s))
			return false;
	skip_space(s);
	return s->p == s->end || fail(s, "something stands behind the value");
}

bool json_find(struct bytes text, const char *pointer, enum json_kind *ret_kind,
	struct bytes *ret_raw, const char **ret_why, size_t *ret_at)
{
	static const uint8_t nothing[1];
	struct scan s; /* the levels are left as they are: clearing them would cost more than most
			  scans */
	s.begin = s.p = text.size != 0 ? text.data : nothing;
	s.end = s.begin + text.size;
	s.kind = JSON_ABSENT;
	s.depth = 0;
	if (!scan_text(&s, pointer)) {
		*ret_why = s.why;
		*ret_at = (size_t)(s.p - s.begin);
		return false;
	}
	*ret_kind = s.kind;
	*ret_raw = s.kind != JSON_ABSENT ? bytes_of(s.found, s.found_size) : bytes_of(NULL, 0);
	return true;
}

void json_unescape(struct bytes raw, struct buf *out)
{
	const uint8_t *p = raw.data + 1, *end = raw.data + raw.size - 1;
	while (p < end) {
		const uint8_t *escape = memchr(p, '\\', (size_t)(end - p));
		const uint8_t *stop = escape != NULL ? escape : end;
		buf_add(out, p, (size_t)(stop - p));
		p = stop;
		if (escape != NULL) {
			size_t n;
			const char *why;
			utf8_add(out, read_escape(p + 1, end, &n, &why));
			p += 1 + n;
		}
	}
}

const char *json_pointer_error(const char *pointer)
{
	if (*pointer == '\0')
		return NULL;
	if (*pointer != '/')
		return "a JSON pointer begins with a slash, as in /order/id";
	for (const char *p = pointer; *p != '\0'; p++)
		if (*p == '~' && p[1] != '0' && p[1] != '1')
			return "~ in a JSON pointer is written ~0, and / inside a name ~1";
	return NULL;
}

static void add_escaped(struct buf *out, uint8_t c)
{
	static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
	const char *simple = c != '\0' ? strchr(from, c) : NULL;
	if (simple != NULL) {
		buf_add_byte(out, '\\');
		buf_add_byte(out, (uint8_t)to[simple - from]);
	} else {
		buf_addf(out, "\\u%04x", c);
	}
}

void json_add_string(struct buf *out, struct bytes text)
{
	buf_add_byte(out, '"');
	for (size_t i = 0; i < text.size;) {
		uint8_t c = text.data[i];
		size_t n = utf8_decode(text.data + i, text.size - i, NULL);
		if (n == 0)
			buf_add_str(out, UTF8_REPLACEMENT);
		else if (c < 0x20 || c == '"' || c == '\\')
			add_escaped(out, c);
		else
			buf_add(out, text.data + i, n);
		i += n != 0 ? n : 1;
	}
	buf_add_byte(out, '"');
}

/* SPDX-License-Identifier: MIT */
/* Checks of a file's bytes, and a translation of libyaml's errors: those name the scanner's
 * troubles, the reader needs to hear about quotes, brackets and indentation. */
#include "config/text.h"

#include "base/utf8.h"

struct fault {
	const char *text;
	const char *hint;
	bool has_code; /* the code point or byte is told */
};

/* What is wrong with the bytes at p, or NULL. */
static const struct fault *fault_at(
	const uint8_t *p, size_t left, uint32_t *ret_code, size_t *ret_n)
{
	static const struct fault nul = {"a NUL byte: this is not a text file",
		"is it the right file, and saved as UTF-8 (not UTF-16)?", false};
	static const struct fault bad = {"a byte that is not UTF-8",
		"save the file as UTF-8; in vim: \":set fileencoding=utf-8\"", true};
	static const struct fault crlf = {"the line ends in CR LF, as on Windows",
		"save the file with line feeds alone; dos2unix does it", false};
	static const struct fault cr = {"a carriage return stands inside the line",
		"write \"\\r\" inside double quotes if it is meant", false};
	static const struct fault control = {
		"a control character", "write \"\\x…\" inside double quotes if it is meant", true};
	static const struct fault line_break = {"an invisible character that ends the line",
		"remove it, or write \"\\u…\" inside double quotes if it is meant", true};

	*ret_n = utf8_decode(p, left, ret_code);
	if (*ret_n == 0) {
		*ret_code = p[0];
		return &bad;
	}
	uint32_t code = *ret_code;
	if (code == 0)
		return &nul;
	if (code == '\r')
		return left > 1 && p[1] == '\n' ? &crlf : &cr;
	if (code == 0x85 || code == 0x2028 || code == 0x2029)
		return &line_break;
	if ((code < 0x20 && code != '\t' && code != '\n') || (code >= 0x7f && code < 0xa0) ||
		code == 0xfeff || code == 0xfffe || code == 0xffff)
		return &control;
	return NULL;
}

bool text_check(const struct diag_file *file, struct diags *d)
{
	struct place place = {.file = file, .line = 1, .column = 1};
	const uint8_t *p = (const uint8_t *)file->text, *end = p + file->size;
	while (p < end) {
		uint32_t code;
		size_t n;
		const struct fault *fault = fault_at(p, (size_t)(end - p), &code, &n);
		if (fault != NULL) {
			if (fault->has_code)
				diag_add(d, place, "%s (0x%02X)", fault->text, code);
			else
				diag_add(d, place, "%s", fault->text);
			diag_hint(d, "%s", fault->hint);
			return false;
		}
		place.column++;
		if (code == '\n') {
			place.line++;
			place.column = 1;
		}
		p += n;
	}
	return true;
}

struct translation {
	const char *problem; /* beginning of libyaml's text */
	const char *context; /* likewise; "": any */
	bool at_context;     /* the mistake is where the thing began */
	const char *text;
	const char *hint;
};

static const struct translation translations[] = {
	{"found unexpected end of stream", "while scanning a quoted scalar", true,
		"this quote is never closed",
		"close it; a quote inside single quotes is doubled, inside "
		"double quotes written \\\""},
	{"found unexpected document indicator", "while scanning a quoted scalar", true,
		"this quote is never closed", "close it in front of the \"---\" or \"...\""},
	{"did not find expected ',' or ']'", "", true, "this list is not closed, or lacks a comma",
		"write [a, b]; a text with a comma, colon, bracket or ${NAME} inside must be "
		"quoted"},
	{"did not find expected ',' or '}'", "", true, "this map is not closed, or lacks a comma",
		"write {a: 1, b: 2}; a text with a comma, colon, bracket or ${NAME} inside must be "
		"quoted"},
	{"mapping values are not allowed", "", false, "a colon is not expected here",
		"a text with \": \" inside must be quoted; or the line is indented too deep"},
	{"found unexpected ':'", "", false, "a colon is not expected here",
		"a text with a colon inside brackets must be quoted"},
	{"could not find expected ':'", "", false, "there is no colon behind the name before here",
		"write \"name: value\", with a blank behind the colon"},
	{"did not find expected node content", "while parsing a flow node", false,
		"a value is missing here, or a bracket is not closed",
		"write \"\" for an empty text; {a: 1} and [a, b] end with their brackets"},
	{"did not find expected key", "", false, "no option can begin here",
		"the names of one map begin in the same column; a value that goes on behind its "
		"quote "
		"must be quoted as a whole"},
	{"did not find expected '-' indicator", "", false, "an item of a list is expected here",
		"all items of one list begin with \"- \" in the same column"},
	{"block sequence entries are not allowed", "", false, "a list cannot begin here",
		"put the \"- \" into a line of its own; a text that begins with it must be quoted"},
	{"found unknown escape character", "", false, "no such escape inside double quotes",
		"write a backslash as \\\\, or use single quotes"},
	{"found character that cannot start any token", "", false,
		"a value cannot begin with this character", "put the text in quotes"},
	{"did not find expected alphabetic or numeric character", "", false,
		"a text cannot begin with \"*\" or \"&\"", "put the text in quotes"},
	{"found undefined tag handle", "", false, "tags are not read",
		"a text that begins with \"!\" must be quoted"},
	{"found incompatible YAML document", "", false, "this version of YAML is not known",
		"remove the %YAML line"},
	{"found a tab character", "", false, "a tab cannot indent", "use blanks"},
};

static bool begins_with(const char *text, const char *beginning)
{
	return text != NULL && strncmp(text, beginning, strlen(beginning)) == 0;
}

/* A tab in the indentation confuses the scanner in several ways; the tab is what to mend. */
static bool is_about_a_tab(struct place *at)
{
	struct bytes line = diag_line(at->file, at->line);
	for (size_t i = 0; i < line.size && (line.data[i] == ' ' || line.data[i] == '\t'); i++) {
		if (line.data[i] != '\t')
			continue;
		at->column = (uint32_t)i + 1;
		return true;
	}
	return false;
}

void text_syntax_error(struct diags *d, struct place at, const char *problem,
	struct place context_at, const char *context)
{
	if (is_about_a_tab(&at)) {
		diag_add(d, at, "a tab cannot indent");
		diag_hint(d, "use blanks");
		return;
	}
	for (size_t i = 0; i < sizeof translations / sizeof translations[0]; i++) {
		const struct translation *t = &translations[i];
		if (!begins_with(problem, t->problem) ||
			(t->context[0] != '\0' && !begins_with(context, t->context)))
			continue;
		diag_add(d, t->at_context ? context_at : at, "%s", t->text);
		diag_hint(d, "%s", t->hint);
		return;
	}
	diag_add(d, at, "this is not YAML: %s%s%s", problem != NULL ? problem : "unreadable",
		context != NULL ? " " : "", context != NULL ? context : "");
	diag_hint(d, "quotes, brackets and indentation are where to look");
}

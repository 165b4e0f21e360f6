/* SPDX-License-Identifier: MIT */
/* How commands fail, find things in the configuration, and write. */
#include "ctl/ctl.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/nearest.h"
#include "base/utf8.h"

static void say(const struct ctl *ctl, const char *text)
{
	AUTO(buf) struct buf line = {0};
	/* Texts of servers and files end up here: none of them may drive the terminal. */
	ctl_add_visible(&line, bytes_str(text));
	(void)fflush(stdout);
	(void)fprintf(stderr, "inboxctl%s%s: %s\n", ctl->command != NULL ? " " : "",
		ctl->command != NULL ? ctl->command->name : "", buf_str(&line));
}

int ctl_fail(const struct ctl *ctl, int exit, const char *fmt, ...)
{
	char text[2048];
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	say(ctl, text);
	return exit;
}

int ctl_usage(const struct ctl *ctl, const char *fmt, ...)
{
	char text[2048];
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	say(ctl, text);
	(void)fprintf(stderr, "see inboxctl%s%s --help\n", ctl->command != NULL ? " " : "",
		ctl->command != NULL ? ctl->command->name : "");
	return EX_USAGE;
}

int ctl_exit_code(const struct err *err)
{
	assert(err != NULL);
	/* Insufficient privilege, and logins that were refused. */
	if (strcmp(err->sqlstate, "42501") == 0 || strncmp(err->sqlstate, "28", 2) == 0)
		return EX_NOPERM;
	switch (err->rc) {
	case RC_OK:
		return EX_OK;
	case RC_RETRY:
	case RC_UNKNOWN:
		return EX_TEMPFAIL;
	case RC_REJECT:
		return EX_DATAERR;
	case RC_UNAVAILABLE:
		return EX_UNAVAILABLE;
	case RC_FATAL:
		break;
	}
	return EX_CONFIG;
}

int ctl_fail_err(const struct ctl *ctl, const struct err *err)
{
	say(ctl, err->text);
	return ctl_exit_code(err);
}

struct config *ctl_load(const struct ctl *ctl)
{
	AUTO(buf) struct buf errors = {0};
	struct config *c = config_load(ctl->config_path, &errors);
	if (c == NULL && errors.size != 0) {
		(void)fflush(stdout);
		(void)fwrite(errors.data, 1, errors.size, stderr);
	}
	return c;
}

/* "broker "x" is not configured; did you mean "y"?", or the whole list. */
static void not_found(
	struct err *err, const char *what, const char *name, const char *const *names, size_t n)
{
	const char *near = nearest_name(bytes_str(name), names, n);
	if (near != NULL) {
		err_set(err, RC_FATAL, "no %s \"%s\" is configured; did you mean \"%s\"?", what,
			name, near);
		return;
	}
	AUTO(buf) struct buf list = {0};
	for (size_t i = 0; i < n; i++)
		buf_addf(&list, "%s%s", i != 0 ? ", " : "", names[i]);
	err_set(err, RC_FATAL, "no %s \"%s\" is configured; there is: %s", what, name,
		buf_str(&list));
}

/* Index of name among n; the only one when name is NULL; SIZE_MAX with err. */
static size_t find(
	const char *what, const char *name, const char *const *names, size_t n, struct err *err)
{
	if (name == NULL && n == 1)
		return 0;
	for (size_t i = 0; i < n; i++)
		if (strcmp(names[i], name != NULL ? name : "default") == 0)
			return i;
	if (name == NULL)
		err_set(err, RC_FATAL, "%zu %ss are configured: say which by --%s NAME", n, what,
			what);
	else
		not_found(err, what, name, names, n);
	return SIZE_MAX;
}

#define FIND(what, items, n_items, name, err)                                        \
	__extension__({                                                              \
		AUTO(free) const char **names_ = xcalloc((n_items), sizeof *names_); \
		for (size_t i_ = 0; i_ < (n_items); i_++)                            \
			names_[i_] = (items)[i_]->name;                              \
		size_t at_ = find((what), (name), names_, (n_items), (err));         \
		at_ != SIZE_MAX ? (items)[at_] : NULL;                               \
	})

struct config_broker *ctl_find_broker(const struct config *c, const char *name, struct err *err)
{
	return FIND("broker", c->brokers, c->n_brokers, name, err);
}

struct config_database *ctl_find_database(const struct config *c, const char *name, struct err *err)
{
	return FIND("database", c->databases, c->n_databases, name, err);
}

const struct config_consumer *ctl_find_consumer(
	const struct config *c, const char *name, struct err *err)
{
	return FIND("consumer", c->consumers, c->n_consumers, name, err);
}

void ctl_add_visible(struct buf *out, struct bytes text)
{
	for (size_t i = 0; i < text.size;) {
		uint32_t point;
		size_t n = utf8_decode(text.data + i, text.size - i, &point);
		if (n != 0 && (utf8_is_visible(point) || point == ' ')) {
			buf_add(out, text.data + i, n);
			i += n;
		} else {
			buf_addf(out, "\\x%02x", text.data[i]);
			i++;
		}
	}
}

bool ctl_is_utf8(struct bytes text)
{
	for (size_t i = 0; i < text.size;) {
		size_t n = utf8_decode(text.data + i, text.size - i, NULL);
		if (n == 0)
			return false;
		i += n;
	}
	return true;
}

void ctl_write(struct bytes text)
{
	/* A failure shows when the program ends and flushes. */
	if (text.size != 0)
		(void)fwrite(text.data, 1, text.size, stdout);
}

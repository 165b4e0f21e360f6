/* SPDX-License-Identifier: MIT */
/* Lends the handler's own options, and takes its complaints about them. */
#include "handler/host_call.h"

#include "base/nearest.h"

struct inboxd_value lend_option(struct inboxd_call *call, const char *path)
{
	return call_copy(call, options_get(call->host->consumer->options, path));
}

uint32_t lend_option_count(struct inboxd_call *call, const char *path)
{
	return options_count(call->host->consumer->options, path);
}

struct inboxd_value lend_option_name(struct inboxd_call *call, const char *path, uint32_t i)
{
	return call_copy(call, options_name(call->host->consumer->options, path, i));
}

int32_t lend_bad_option(struct inboxd_call *call, const char *path, const char *text)
{
	struct host *h = call->host;
	if (h->entry == ENTRY_CHECK || h->entry == ENTRY_OPEN) {
		h->wrong_options++;
		if (h->errors != NULL)
			config_option_error(h->consumer, path, text, h->errors);
	}
	/* The first is the one that is told where there is room for one. */
	if (call->reason[0] == '\0')
		call_note(call, "options%s%s: %s", *path != '\0' ? "/" : "", path, text);
	return INBOXD_REJECT;
}

/* path/name, where '/' and '~' in a name are written ~1 and ~0. */
static const char *path_of(struct host *h, const char *path, struct bytes name)
{
	buf_clear(&h->scratch);
	buf_addf(&h->scratch, "%s%s", path, *path != '\0' ? "/" : "");
	for (size_t i = 0; i < name.size; i++) {
		if (name.data[i] == '~')
			buf_add_str(&h->scratch, "~0");
		else if (name.data[i] == '/')
			buf_add_str(&h->scratch, "~1");
		else
			buf_add_byte(&h->scratch, name.data[i]);
	}
	return buf_str(&h->scratch);
}

static void report_unknown(struct inboxd_call *call, const char *path, struct bytes name,
	uint32_t n, const char *const *names)
{
	struct buf text = {0};
	const char *near = nearest_name(name, names, n);
	buf_addf(&text, "this handler has no option \"%.*s\"", (int)name.size,
		(const char *)name.data);
	if (near != NULL)
		buf_addf(&text, "; did you mean %s?", near);
	else
		buf_addf(&text, n != 0 ? "; it has " : "; it has none");
	for (uint32_t i = 0; near == NULL && i < n; i++)
		buf_addf(&text, "%s%s", i != 0 ? ", " : "", names[i]);
	(void)lend_bad_option(call, path_of(call->host, path, name), buf_str(&text));
	buf_done(&text);
}

int32_t lend_only_options(
	struct inboxd_call *call, const char *path, uint32_t n, const char *const *names)
{
	const struct options *options = call->host->consumer->options;
	int32_t result = INBOXD_DONE;
	struct bytes name;
	for (uint32_t i = 0; (name = options_name(options, path, i)).data != NULL; i++) {
		bool is_known = false;
		for (uint32_t k = 0; k < n; k++)
			is_known = is_known || bytes_equal(name, bytes_str(names[k]));
		if (!is_known) {
			report_unknown(call, path, name, n, names);
			result = INBOXD_REJECT;
		}
	}
	return result;
}

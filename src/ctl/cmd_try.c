/* SPDX-License-Identifier: MIT */
/* inboxctl try: shows what a handler would do with a message. */
#include "ctl/ctl.h"

#include <getopt.h>
#include <string.h>

#include "base/fd.h"
#include "ctl/attempt.h"
#include "ctl/draft.h"

enum {
	OPT_BODY = 0x100,
	OPT_ID,
	OPT_HEADER,
	OPT_PROPERTY,
	OPT_CONTENT_TYPE,
	OPT_KEY,
	FILE_MAX = 1024 * 1024 * 1024,
};

static const struct ctl_option options[] = {
	{OPT_BODY, "body", NULL, "FILE is the body itself"},
	{OPT_ID, "id", "ID", "property message_id"},
	{OPT_HEADER, "header", "NAME[:TYPE]=V", "a header; may be given again"},
	{OPT_PROPERTY, "property", "NAME=VALUE", "a property by its AMQP name; may be given again"},
	{OPT_CONTENT_TYPE, "content-type", "TYPE", "property content_type"},
	{OPT_KEY, "routing-key", "KEY", "routing key"},
};

struct try_args {
	bool is_body;
	const char *routing_key;
	struct draft changes; /* from options: they win over the file */
	struct draft draft;
};

static enum rc take(struct try_args *a, int id, struct err *err)
{
	switch (id) {
	case OPT_ID:
		return draft_set(&a->changes, PROP_MESSAGE_ID, bytes_str(optarg), err);
	case OPT_CONTENT_TYPE:
		return draft_set(&a->changes, PROP_CONTENT_TYPE, bytes_str(optarg), err);
	case OPT_HEADER:
		return draft_header(&a->changes, optarg, err);
	case OPT_PROPERTY:
		return draft_property(&a->changes, optarg, err);
	case OPT_KEY:
		a->routing_key = optarg;
		return RC_OK;
	default:
		a->is_body = true;
		return RC_OK;
	}
}

static int read_file(const struct ctl *ctl, struct try_args *a, const char *path)
{
	AUTO(buf) struct buf text = {0};
	struct err err;
	bool is_stdin = strcmp(path, "-") == 0;
	enum rc rc = is_stdin ? fd_read_all(STDIN_FILENO, FILE_MAX, &text, &err)
			      : fd_read_file(path, FILE_MAX, &text, &err);
	if (rc != RC_OK)
		return ctl_fail(
			ctl, EX_NOINPUT, "%s%s", is_stdin ? "standard input: " : "", err.text);
	if (a->is_body)
		buf_add(&a->draft.body, text.data, text.size);
	else if (draft_json(&a->draft, buf_bytes(&text), &err) != RC_OK)
		return ctl_fail(ctl, EX_DATAERR, "%s: %s%s", path, err.text,
			strncmp(err.text, "not JSON", 8) == 0
				? " (--body takes a file that is the body)"
				: "");
	return EX_OK;
}

/* What the options say goes over what the file says; the queue's name stands in for a routing key,
 * as the default exchange has it. */
static void complete(struct try_args *a, const struct config_consumer *c)
{
	draft_merge(&a->draft, &a->changes);
	if (a->routing_key != NULL)
		buf_clear(&a->draft.routing_key);
	if (a->routing_key != NULL)
		buf_add_str(&a->draft.routing_key, a->routing_key);
	else if (a->draft.routing_key.size == 0 && a->draft.exchange.size == 0)
		buf_add_str(&a->draft.routing_key, c->queue);
}

static int try_message(const struct ctl *ctl, const struct config *config,
	const struct config_consumer *c, struct try_args *a)
{
	AUTO(buf) struct buf errors = {0};
	struct transcript t;
	struct err err;
	bool is_done = false;
	complete(a, c);
	const struct message m = draft_message(&a->draft);
	transcript_init(&t, ctl->json);
	enum rc rc = attempt_run(config, c, &m, &t, &is_done, &errors, &err);
	if (rc == RC_OK)
		transcript_end(&t);
	transcript_done(&t);
	if (errors.size != 0) {
		(void)fflush(stdout);
		(void)fwrite(errors.data, 1, errors.size, stderr);
	}
	if (rc != RC_OK)
		return ctl_fail_err(ctl, &err);
	return is_done ? EX_OK : CTL_NO;
}

static int try_file(const struct ctl *ctl, struct try_args *a, int argc, char **argv)
{
	struct err err;
	if (argc - optind != 2)
		return ctl_usage(ctl, "it takes a consumer and a file");
	AUTO(config) struct config *config = ctl_load(ctl);
	if (config == NULL)
		return EX_CONFIG;
	const struct config_consumer *c = ctl_find_consumer(config, argv[optind], &err);
	if (c == NULL)
		return ctl_fail_err(ctl, &err);
	int exit = read_file(ctl, a, argv[optind + 1]);
	log_init(config->log_level, LOG_LOGFMT); /* what the handler says goes to standard error */
	return exit == EX_OK ? try_message(ctl, config, c, a) : exit;
}

static int run(struct ctl *ctl, int argc, char **argv)
{
	struct try_args a = {0};
	struct err err;
	int id, exit = EX_OK;
	while (exit == EX_OK && (id = ctl_next_option(ctl, argc, argv)) >= 0)
		if (take(&a, id, &err) != RC_OK)
			exit = ctl_usage(ctl, "%s", err.text);
	if (exit == EX_OK)
		exit = id == CTL_STOP ? ctl->exit : try_file(ctl, &a, argc, argv);
	draft_done(&a.changes);
	draft_done(&a.draft);
	return exit;
}

const struct ctl_command ctl_try = {.name = "try",
	.operands = "CONSUMER FILE",
	.summary = "Runs a consumer's handler on a message from a file and rolls back",
	.details =
		"\n"
		"FILE (- is standard input) is JSON, all of it optional:\n"
		"\n"
		"  {\"exchange\": \"\", \"routing_key\": \"orders\", \"redelivered\": false,\n"
		"   \"properties\": {\"message_id\": \"o-1\"}, \"headers\": {\"tries\": 1},\n"
		"   \"body\": \"text\" (or an object, or \"body_base64\")}\n"
		"\n"
		"Exit code 0 if a worker would commit the work, 1 if not.  Statements and their\n"
		"results are shown as the handler runs them; effects outside the database are not\n"
		"undone.",
	.options = options,
	.n_options = sizeof options / sizeof options[0],
	.run = run};

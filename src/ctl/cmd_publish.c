/* SPDX-License-Identifier: MIT */
/* inboxctl publish: sends a message and says whether a queue has it. */
#include "ctl/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "ctl/draft.h"
#include "ctl/publisher.h"

enum {
	OPT_EXCHANGE = 0x100,
	OPT_KEY,
	OPT_ID,
	OPT_HEADER,
	OPT_PROPERTY,
	OPT_CONTENT_TYPE,
	OPT_TRANSIENT,
	OPT_FILE,
	OPT_COUNT,
	OPT_BROKER,
	BODY_MAX = 512 * 1024 * 1024, /* what RabbitMQ takes at most */
};

static const struct ctl_option options[] = {
	{OPT_EXCHANGE, "exchange", "NAME",
		"publish to this exchange instead of straight to a queue"},
	{OPT_KEY, "routing-key", "KEY", "routing key, with --exchange"},
	{OPT_ID, "id", "ID", "property message_id"},
	{OPT_HEADER, "header", "NAME[:TYPE]=V", "a header; may be given again"},
	{OPT_PROPERTY, "property", "NAME=VALUE", "a property by its AMQP name; may be given again"},
	{OPT_CONTENT_TYPE, "content-type", "TYPE", "property content_type"},
	{OPT_TRANSIENT, "transient", NULL, "let the broker lose it in a restart"},
	{'m', "message", "TEXT", "the body"},
	{OPT_FILE, "file", "FILE", "the body's file; without it and -m, standard input"},
	{OPT_COUNT, "count", "N", "send N copies, all alike"},
	{OPT_BROKER, "broker", "NAME", "which of several configured brokers"},
};

struct publish_args {
	const char *queue, *exchange, *routing_key, *text, *file, *broker;
	bool transient;
	uint64_t count;
	struct draft draft;
};

static enum rc take_more(struct publish_args *a, int id, struct err *err)
{
	switch (id) {
	case OPT_ID:
		return draft_set(&a->draft, PROP_MESSAGE_ID, bytes_str(optarg), err);
	case OPT_CONTENT_TYPE:
		return draft_set(&a->draft, PROP_CONTENT_TYPE, bytes_str(optarg), err);
	case OPT_HEADER:
		return draft_header(&a->draft, optarg, err);
	case OPT_PROPERTY:
		return draft_property(&a->draft, optarg, err);
	default:
		return ctl_number(optarg, 1, UINT32_MAX, &a->count)
			? RC_OK
			: err_set(err, RC_REJECT, "--count: \"%s\" is no number from 1 on", optarg);
	}
}

static enum rc take(struct publish_args *a, int id, struct err *err)
{
	switch (id) {
	case OPT_EXCHANGE:
		a->exchange = optarg;
		return RC_OK;
	case OPT_KEY:
		a->routing_key = optarg;
		return RC_OK;
	case OPT_TRANSIENT:
		a->transient = true;
		return RC_OK;
	case 'm':
		a->text = optarg;
		return RC_OK;
	case OPT_FILE:
		a->file = optarg;
		return RC_OK;
	case OPT_BROKER:
		a->broker = optarg;
		return RC_OK;
	default:
		return take_more(a, id, err);
	}
}

/* Where to; 0, or the exit code of what it said. */
static int set_target(const struct ctl *ctl, struct publish_args *a, int argc, char **argv)
{
	if (argc - optind > 1)
		return ctl_usage(
			ctl, "it takes one queue, \"%s\" is one too many", argv[optind + 1]);
	if ((argc - optind == 1) == (a->exchange != NULL))
		return ctl_usage(ctl, "it takes either a queue or --exchange");
	if (a->exchange == NULL && a->routing_key != NULL)
		return ctl_usage(ctl, "--routing-key goes with --exchange");
	if (a->text != NULL && a->file != NULL)
		return ctl_usage(ctl, "-m and --file are two bodies");
	if (a->exchange == NULL)
		a->queue = argv[optind];
	const char *key = a->routing_key != NULL ? a->routing_key : "";
	buf_add_str(&a->draft.exchange, a->exchange != NULL ? a->exchange : "");
	buf_add_str(&a->draft.routing_key, a->queue != NULL ? a->queue : key);
	return EX_OK;
}

static int read_body(const struct ctl *ctl, struct publish_args *a)
{
	struct err err;
	if (a->text != NULL) {
		buf_add_str(&a->draft.body, a->text);
		return EX_OK;
	}
	if (a->file != NULL && strcmp(a->file, "-") != 0) {
		if (fd_read_file(a->file, BODY_MAX, &a->draft.body, &err) != RC_OK)
			return ctl_fail(ctl, EX_NOINPUT, "%s", err.text);
		return EX_OK;
	}
	if (isatty(STDIN_FILENO) != 0)
		(void)fprintf(stderr, "reading the body from standard input\n");
	if (fd_read_all(STDIN_FILENO, BODY_MAX, &a->draft.body, &err) != RC_OK)
		return ctl_fail(ctl, EX_NOINPUT, "standard input: %s", err.text);
	return EX_OK;
}

static int unroutable(
	const struct ctl *ctl, const struct publish_args *a, const struct publish_result *r)
{
	const char *key = a->routing_key != NULL ? a->routing_key : "";
	if (a->queue != NULL)
		return ctl_fail(ctl, CTL_NO,
			"vhost \"%s\" of %s has no queue \"%s\", so the message is not there (%u "
			"%s): declare "
			"the queue, or check its name and the vhost",
			r->place.vhost, r->place.address, a->queue, r->code, r->text);
	return ctl_fail(ctl, CTL_NO,
		"no queue is bound to exchange \"%s\" for routing key \"%s\", so the message is "
		"nowhere "
		"(%u %s): bind one, or check the key",
		a->exchange, key, r->code, r->text);
}

static int refused(const struct ctl *ctl, const struct publish_result *r, const struct err *err)
{
	enum { ACCESS_REFUSED = 403, NOT_FOUND = 404 };
	switch (r->code) {
	case ACCESS_REFUSED:
		return ctl_fail(ctl, EX_NOPERM, "%s", err->text);
	case NOT_FOUND:
		return ctl_fail(ctl, CTL_NO, "%s", err->text);
	default:
		return ctl_fail_err(ctl, err);
	}
}

static void report(const struct ctl *ctl, const struct message *m, const struct publish_result *r)
{
	AUTO(buf) struct buf out = {0};
	if (!ctl->json) {
		buf_addf(&out, "%" PRIu64 " published and confirmed\n", r->confirmed);
	} else {
		buf_addf(&out, "{\"published\": %" PRIu64 ", \"exchange\": ", r->confirmed);
		json_add_string(&out, m->exchange);
		buf_add_str(&out, ", \"routing_key\": ");
		json_add_string(&out, m->routing_key);
		buf_add_str(&out, "}\n");
	}
	ctl_write(buf_bytes(&out));
}

static int send(const struct ctl *ctl, struct publish_args *a)
{
	AUTO(config) struct config *config = ctl_load(ctl);
	struct publish_result result;
	struct err err;
	if (config == NULL)
		return EX_CONFIG;
	const struct config_broker *broker = ctl_find_broker(config, a->broker, &err);
	if (broker == NULL)
		return ctl_fail_err(ctl, &err);
	const struct message m = draft_message(&a->draft);
	if (publish_copies(broker, &m, a->count, &result, &err) != RC_OK)
		return refused(ctl, &result, &err);
	if (result.is_returned)
		return unroutable(ctl, a, &result);
	report(ctl, &m, &result);
	return EX_OK;
}

static int prepare(const struct ctl *ctl, struct publish_args *a, int argc, char **argv)
{
	struct err err;
	int exit = set_target(ctl, a, argc, argv);
	if (exit == EX_OK)
		exit = read_body(ctl, a);
	/* Durable unless somebody says otherwise, as people expect of a message that they send. */
	if (exit == EX_OK && (a->draft.present & (1u << PROP_DELIVERY_MODE)) == 0 &&
		draft_set(&a->draft, PROP_DELIVERY_MODE, bytes_str(a->transient ? "1" : "2"),
			&err) != RC_OK)
		return ctl_fail_err(ctl, &err);
	return exit;
}

static int run(struct ctl *ctl, int argc, char **argv)
{
	struct publish_args a = {.count = 1};
	struct err err;
	int id, exit = EX_OK;
	while (exit == EX_OK && (id = ctl_next_option(ctl, argc, argv)) >= 0)
		if (take(&a, id, &err) != RC_OK)
			exit = ctl_usage(ctl, "%s", err.text);
	if (exit == EX_OK && id == CTL_STOP)
		exit = ctl->exit;
	else if (exit == EX_OK)
		exit = prepare(ctl, &a, argc, argv);
	if (exit == EX_OK && id == CTL_END)
		exit = send(ctl, &a);
	draft_done(&a.draft);
	return exit;
}

const struct ctl_command ctl_publish = {.name = "publish",
	.operands = "[QUEUE]",
	.summary = "Sends a message and waits until a queue has it",
	.details =
		"\n"
		"Headers are strings unless a TYPE is named: bytes, base64, bool, int (and int8\n"
		"to int64, uint8 to uint32), float, double, decimal, timestamp, void, json.",
	.options = options,
	.n_options = sizeof options / sizeof options[0],
	.run = run};

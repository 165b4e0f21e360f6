/* SPDX-License-Identifier: MIT */
/* Declares a queue and its bindings on request, and explains a broker that has another idea of
 * them. */
#include "mq/conn.h"

#include <stdlib.h>
#include <string.h>

#include "base/fd.h"

enum { ACCESS_REFUSED = 403, NOT_FOUND = 404, PRECONDITION_FAILED = 406 };

static amqp_field_value_t value_of(const struct config_argument *a)
{
	switch (a->kind) {
	case ARGUMENT_INTEGER:
		return (amqp_field_value_t){.kind = AMQP_FIELD_KIND_I64, .value.i64 = a->integer};
	case ARGUMENT_BOOL:
		return (amqp_field_value_t){
			.kind = AMQP_FIELD_KIND_BOOLEAN, .value.boolean = a->integer != 0};
	case ARGUMENT_STRING:
		break;
	}
	return (amqp_field_value_t){
		.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = mq_amqp_bytes(bytes_str(a->string))};
}

/* The type is an argument of the declaration like any other; one that is given twice is the
 * operator's own. */
static amqp_table_t arguments_of(const struct config_topology *t, amqp_table_entry_t *entries)
{
	int n = 0;
	bool has_type = t->type == NULL;
	for (size_t i = 0; i < t->n_arguments; i++) {
		const struct config_argument *a = &t->arguments[i];
		has_type = has_type || strcmp(a->name, "x-queue-type") == 0;
		entries[n++] = (amqp_table_entry_t){
			.key = mq_amqp_bytes(bytes_str(a->name)), .value = value_of(a)};
	}
	const struct config_argument type = {.kind = ARGUMENT_STRING, .string = t->type};
	if (!has_type)
		entries[n++] = (amqp_table_entry_t){
			.key = mq_amqp_bytes(bytes_str("x-queue-type")), .value = value_of(&type)};
	return (amqp_table_t){.num_entries = n, .entries = entries};
}

static const char *remedy(uint16_t code)
{
	if (code == PRECONDITION_FAILED)
		return "inboxd changes no existing queue: remove `topology:` to consume it as it "
		       "is, or "
		       "delete it and it will be made as configured";
	if (code == ACCESS_REFUSED)
		return "declaring needs the permission `configure` on the queue, binding `write` "
		       "on it and "
		       "`read` on the exchange; without `topology:`, `read` on the queue is enough";
	if (code == NOT_FOUND)
		return "inboxd makes no exchanges: make it, or correct the binding";
	return "see the broker's log";
}

/* The channel is opened anew before the refusal is told, so that the caller can go on. */
static enum rc refused(
	struct mq_conn *c, const struct mq_refusal *refusal, const char *what, struct err *err)
{
	enum rc rc = mq_channel_reopen(c, err);
	if (rc != RC_OK)
		return rc;
	rc = refusal->code == PRECONDITION_FAILED ? RC_FATAL : RC_UNAVAILABLE;
	return err_set(
		err, rc, "%s: the broker says: %s; %s", what, refusal->text, remedy(refusal->code));
}

static enum rc answer(struct mq_conn *c, const char *what, struct err *err)
{
	struct mq_refusal refusal;
	enum rc rc = mq_rpc_result(c, amqp_get_rpc_reply(c->amqp), &refusal, err);
	if (rc == RC_OK)
		return RC_OK;
	if (refusal.code != 0 && !c->is_lost)
		return refused(c, &refusal, what, err);
	(void)err_ctx(err, "%s", what);
	return rc;
}

static enum rc declare_queue(
	struct mq_conn *c, const char *queue, const struct config_topology *t, struct err *err)
{
	AUTO(free) char *what = xasprintf("declaring queue %s", queue);
	AUTO(free) amqp_table_entry_t *entries = xcalloc(t->n_arguments + 1, sizeof *entries);
	enum rc rc = mq_wait_writable(c, err);
	if (rc != RC_OK)
		return rc;
	(void)amqp_queue_declare(c->amqp, MQ_CHANNEL, mq_amqp_bytes(bytes_str(queue)), 0,
		t->durable, 0, 0, arguments_of(t, entries));
	return answer(c, what, err);
}

static enum rc bind_queue(
	struct mq_conn *c, const char *queue, const struct config_binding *b, struct err *err)
{
	AUTO(free) char *what = xasprintf("binding queue %s to exchange %s", queue, b->exchange);
	const char *key = b->routing_key != NULL ? b->routing_key : "";
	enum rc rc = mq_wait_writable(c, err);
	if (rc != RC_OK)
		return rc;
	(void)amqp_queue_bind(c->amqp, MQ_CHANNEL, mq_amqp_bytes(bytes_str(queue)),
		mq_amqp_bytes(bytes_str(b->exchange)), mq_amqp_bytes(bytes_str(key)),
		(amqp_table_t){0});
	return answer(c, what, err);
}

enum rc mq_declare(struct mq_conn *c, const char *queue, const struct config_topology *topology,
	struct err *err)
{
	if (!c->is_channel_open && !c->is_lost)
		return err_set(err, RC_RETRY, "the channel is closed");
	enum rc rc = declare_queue(c, queue, topology, err);
	for (size_t i = 0; rc == RC_OK && i < topology->n_bindings; i++)
		rc = bind_queue(c, queue, &topology->bindings[i], err);
	return rc;
}

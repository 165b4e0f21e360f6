/* SPDX-License-Identifier: MIT */
/* Publishing with confirms.  Frames are sent one by one: the library's own publish reads in between
 * when heartbeats are late, and in 0.11 it then waits without limit. */
#include "mq/conn.h"

#include "base/clock.h"

/* Of a body, unless the broker wants smaller frames; small beside the send buffer. */
enum { PIECE = 65536, FRAME_OVERHEAD = 8 };

enum rc mq_confirm_select(struct mq_conn *c, struct err *err)
{
	struct mq_refusal refusal;
	enum rc rc = mq_wait_writable(c, err);
	if (rc != RC_OK)
		return rc;
	if (!c->is_channel_open)
		return err_set(err, RC_RETRY, "the channel is closed");
	(void)amqp_confirm_select(c->amqp, MQ_CHANNEL);
	return mq_rpc_result(c, amqp_get_rpc_reply(c->amqp), &refusal, err);
}

static enum rc send_header(struct mq_conn *c, void *properties, uint64_t body_size, struct err *err)
{
	const amqp_frame_t frame = {
		.frame_type = AMQP_FRAME_HEADER,
		.channel = MQ_CHANNEL,
		.payload.properties = {.class_id = AMQP_BASIC_CLASS,
			.body_size = body_size,
			.decoded = properties},
	};
	return mq_send_frame(c, &frame, err);
}

static enum rc send_body(struct mq_conn *c, struct bytes body, struct err *err)
{
	size_t most = (size_t)amqp_get_frame_max(c->amqp) - FRAME_OVERHEAD;
	if (most > PIECE)
		most = PIECE;
	while (body.size != 0) {
		size_t n = body.size < most ? body.size : most;
		const amqp_frame_t frame = {
			.frame_type = AMQP_FRAME_BODY,
			.channel = MQ_CHANNEL,
			.payload.body_fragment = mq_amqp_bytes(bytes_of(body.data, n)),
		};
		enum rc rc = mq_send_frame(c, &frame, err);
		if (rc != RC_OK)
			return rc;
		body = bytes_of(body.data + n, body.size - n);
	}
	return RC_OK;
}

static enum rc send_message(struct mq_conn *c, const amqp_basic_publish_t *m, void *properties,
	struct bytes body, struct err *err)
{
	enum rc rc = mq_send_method(c, MQ_CHANNEL, AMQP_BASIC_PUBLISH_METHOD, m, err);
	if (rc == RC_OK)
		rc = send_header(c, properties, body.size, err);
	return rc == RC_OK ? send_body(c, body, err) : rc;
}

/* What cannot be a message is refused before the first byte of it is sent. */
static enum rc check(struct mq_conn *c, const amqp_basic_publish_t *m, struct bytes properties,
	struct err *err)
{
	enum { FRAME_AND_HEADER = 20 };
	if (m->exchange.len > MQ_SHORT_MAX || m->routing_key.len > MQ_SHORT_MAX)
		return err_set(err, RC_REJECT, "exchange and routing key have at most %d bytes",
			MQ_SHORT_MAX);
	if (properties.size > (size_t)(amqp_get_frame_max(c->amqp) - FRAME_AND_HEADER))
		return err_set(err, RC_REJECT, "the properties (%zu bytes) do not fit a frame",
			properties.size);
	return RC_OK;
}

enum rc mq_publish(struct mq_conn *c, struct bytes exchange, struct bytes routing_key,
	struct bytes properties, struct bytes body, struct err *err)
{
	const amqp_basic_publish_t m = {
		.exchange = mq_amqp_bytes(exchange),
		.routing_key = mq_amqp_bytes(routing_key),
		.mandatory = 1,
	};
	enum rc rc = check(c, &m, properties, err);
	if (rc != RC_OK)
		return rc;
	if (!c->is_channel_open && !c->is_lost)
		return err_set(err, RC_RETRY, "the channel is closed");
	amqp_pool_t pool;
	void *decoded = NULL;
	init_amqp_pool(&pool, 4096);
	int status = amqp_decode_properties(
		AMQP_BASIC_CLASS, &pool, mq_amqp_bytes(properties), &decoded);
	rc = status == AMQP_STATUS_OK
		? send_message(c, &m, decoded, body, err)
		: err_set(err, RC_REJECT, "the properties are no AMQP property list");
	empty_amqp_pool(&pool);
	return rc;
}

/* SPDX-License-Identifier: MIT */
/* What is sent without waiting for an answer: frames, heartbeats, consume and cancel, settlements.
 */
#include "mq/conn.h"

#include <assert.h>
#include <poll.h>

#include "base/clock.h"
#include "mq/wait.h"

enum rc mq_wait_writable(struct mq_conn *c, struct err *err)
{
	if (c->is_lost)
		return err_set(err, RC_UNAVAILABLE, "the connection is lost");
	enum rc rc = mq_wait_fd(c->fd, POLLOUT, clock_ms() + c->patience_ms, -1, NULL);
	if (rc == RC_OK)
		return rc;
	c->is_lost = true;
	return err_set(err, RC_UNAVAILABLE, "the broker took nothing for %u ms", c->patience_ms);
}

enum rc mq_send_frame(struct mq_conn *c, const amqp_frame_t *frame, struct err *err)
{
	enum rc rc = mq_wait_writable(c, err);
	if (rc != RC_OK)
		return rc;
	int status = amqp_send_frame(c->amqp, frame);
	if (status != AMQP_STATUS_OK)
		return mq_lost(c, status, err);
	c->written_ms = clock_ms();
	return RC_OK;
}

enum rc mq_send_method(struct mq_conn *c, amqp_channel_t channel, amqp_method_number_t id,
	const void *method, struct err *err)
{
	union {
		const void *from;
		void *to;
	} cast = {.from = method}; /* the library only encodes it */
	const amqp_frame_t frame = {
		.frame_type = AMQP_FRAME_METHOD,
		.channel = channel,
		.payload.method = {.id = id, .decoded = cast.to},
	};
	return mq_send_frame(c, &frame, err);
}

enum rc mq_heartbeat(struct mq_conn *c, struct err *err)
{
	const amqp_frame_t frame = {.frame_type = AMQP_FRAME_HEARTBEAT, .channel = 0};
	return mq_send_frame(c, &frame, err);
}

uint32_t mq_heartbeat_s(const struct mq_conn *c)
{
	return c->heartbeat_s;
}

/* A method on a closed channel would be answered by the loss of the whole connection (504). */
static enum rc send_on_channel(
	struct mq_conn *c, amqp_method_number_t id, const void *method, struct err *err)
{
	if (!c->is_channel_open && !c->is_lost)
		return err_set(err, RC_RETRY, "the channel is closed; its deliveries are void");
	return mq_send_method(c, MQ_CHANNEL, id, method, err);
}

/* The answer to qos need not be waited for: the server takes methods in their order, so the limit
 * stands before the first delivery. */
enum rc mq_consume(struct mq_conn *c, const char *queue, uint16_t prefetch, struct err *err)
{
	assert(prefetch != 0); /* no limit at all */
	const amqp_basic_qos_t qos = {.prefetch_count = prefetch};
	enum rc rc = send_on_channel(c, AMQP_BASIC_QOS_METHOD, &qos, err);
	if (rc != RC_OK)
		return rc;
	const amqp_basic_consume_t consume = {
		.queue = mq_amqp_bytes(bytes_str(queue)),
		.consumer_tag = mq_amqp_bytes(bytes_str(c->consumer_tag)),
	};
	return send_on_channel(c, AMQP_BASIC_CONSUME_METHOD, &consume, err);
}

enum rc mq_cancel(struct mq_conn *c, struct err *err)
{
	const amqp_basic_cancel_t m = {.consumer_tag = mq_amqp_bytes(bytes_str(c->consumer_tag))};
	return send_on_channel(c, AMQP_BASIC_CANCEL_METHOD, &m, err);
}

enum rc mq_ack(struct mq_conn *c, uint64_t tag, bool multiple, struct err *err)
{
	assert(tag != 0);
	const amqp_basic_ack_t m = {.delivery_tag = tag, .multiple = multiple};
	return send_on_channel(c, AMQP_BASIC_ACK_METHOD, &m, err);
}

enum rc mq_nack(struct mq_conn *c, uint64_t tag, bool multiple, struct err *err)
{
	assert(tag != 0);
	const amqp_basic_nack_t m = {.delivery_tag = tag, .multiple = multiple, .requeue = true};
	return send_on_channel(c, AMQP_BASIC_NACK_METHOD, &m, err);
}

enum rc mq_reject(struct mq_conn *c, uint64_t tag, struct err *err)
{
	assert(tag != 0);
	const amqp_basic_reject_t m = {.delivery_tag = tag, .requeue = false};
	return send_on_channel(c, AMQP_BASIC_REJECT_METHOD, &m, err);
}

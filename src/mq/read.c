/* SPDX-License-Identifier: MIT */
/* Frames become events: the library's own consumer calls would wait for whole messages without a
 * time limit, hold them in memory, and trip over every method they do not expect. */
#include "mq/conn.h"

#include <poll.h>
#include <string.h>
#include <sys/time.h>

#include "base/clock.h"
#include "mq/wait.h"

typedef enum rc method_handler(
	struct mq_conn *c, const void *method, struct mq_event *ret, struct err *err);

static enum rc out_of_order(struct mq_conn *c, const char *what, struct err *err)
{
	c->is_lost = true;
	return err_set(err, RC_UNAVAILABLE, "the broker broke the protocol: %s", what);
}

static struct bytes keep_short(uint8_t to[MQ_SHORT_MAX], amqp_bytes_t from)
{
	size_t n = from.len < MQ_SHORT_MAX ? from.len : MQ_SHORT_MAX;
	if (n != 0)
		memcpy(to, from.bytes, n);
	return bytes_of(to, n);
}

/* Exchange and routing key outlive the method's frame, whose memory goes with the next one. */
static struct mq_event *content_begin(
	struct mq_conn *c, enum mq_event_kind kind, amqp_bytes_t exchange, amqp_bytes_t routing_key)
{
	struct mq_content *content = &c->content;
	content->state = CONTENT_HEADER;
	content->event = (struct mq_event){
		.kind = kind,
		.exchange = keep_short(content->exchange, exchange),
		.routing_key = keep_short(content->routing_key, routing_key),
	};
	return &content->event;
}

static enum rc on_deliver(
	struct mq_conn *c, const void *method, struct mq_event *ret, struct err *err)
{
	(void)ret, (void)err;
	const amqp_basic_deliver_t *m = method;
	struct mq_event *e = content_begin(c, MQ_DELIVERY, m->exchange, m->routing_key);
	e->tag = m->delivery_tag;
	e->redelivered = m->redelivered != 0;
	return RC_OK;
}

static enum rc on_return(
	struct mq_conn *c, const void *method, struct mq_event *ret, struct err *err)
{
	(void)ret, (void)err;
	const amqp_basic_return_t *m = method;
	struct mq_event *e = content_begin(c, MQ_RETURNED, m->exchange, m->routing_key);
	e->code = m->reply_code;
	mq_escape(e->text, sizeof e->text, m->reply_text);
	return RC_OK;
}

static enum rc on_consume_ok(
	struct mq_conn *c, const void *method, struct mq_event *ret, struct err *err)
{
	(void)c, (void)method, (void)err;
	ret->kind = MQ_CONSUMING;
	return RC_OK;
}

static enum rc on_cancel_ok(
	struct mq_conn *c, const void *method, struct mq_event *ret, struct err *err)
{
	(void)c, (void)method, (void)err;
	ret->kind = MQ_CANCEL_OK;
	return RC_OK;
}

static enum rc on_cancel(
	struct mq_conn *c, const void *method, struct mq_event *ret, struct err *err)
{
	const amqp_basic_cancel_t *m = method;
	ret->kind = MQ_CANCELLED;
	if (m->nowait)
		return RC_OK;
	const amqp_basic_cancel_ok_t ok = {.consumer_tag = m->consumer_tag};
	return mq_send_method(c, MQ_CHANNEL, AMQP_BASIC_CANCEL_OK_METHOD, &ok, err);
}

static enum rc on_ack(struct mq_conn *c, const void *method, struct mq_event *ret, struct err *err)
{
	(void)c, (void)err;
	const amqp_basic_ack_t *m = method;
	ret->kind = MQ_CONFIRMED;
	ret->tag = m->delivery_tag;
	ret->multiple = m->multiple != 0;
	return RC_OK;
}

static enum rc on_nack(struct mq_conn *c, const void *method, struct mq_event *ret, struct err *err)
{
	(void)c, (void)err;
	const amqp_basic_nack_t *m = method;
	ret->kind = MQ_NACKED;
	ret->tag = m->delivery_tag;
	ret->multiple = m->multiple != 0;
	return RC_OK;
}

static enum rc on_flow(struct mq_conn *c, const void *method, struct mq_event *ret, struct err *err)
{
	(void)ret;
	const amqp_channel_flow_t *m = method;
	const amqp_channel_flow_ok_t ok = {.active = m->active};
	return mq_send_method(c, MQ_CHANNEL, AMQP_CHANNEL_FLOW_OK_METHOD, &ok, err);
}

static enum rc on_channel_close(
	struct mq_conn *c, const void *method, struct mq_event *ret, struct err *err)
{
	const amqp_channel_close_t *m = method;
	ret->kind = MQ_CHANNEL_CLOSED;
	ret->code = m->reply_code;
	mq_escape(ret->text, sizeof ret->text, m->reply_text);
	return mq_answer_channel_close(c, err);
}

static enum rc on_connection_close(
	struct mq_conn *c, const void *method, struct mq_event *ret, struct err *err)
{
	(void)err;
	const amqp_connection_close_t *m = method;
	ret->kind = MQ_CLOSED;
	ret->code = m->reply_code;
	mq_escape(ret->text, sizeof ret->text, m->reply_text);
	mq_answer_close(c);
	return RC_OK;
}

static enum rc on_blocked(
	struct mq_conn *c, const void *method, struct mq_event *ret, struct err *err)
{
	(void)c, (void)err;
	const amqp_connection_blocked_t *m = method;
	ret->kind = MQ_BLOCKED;
	mq_escape(ret->text, sizeof ret->text, m->reason);
	return RC_OK;
}

static enum rc on_unblocked(
	struct mq_conn *c, const void *method, struct mq_event *ret, struct err *err)
{
	(void)c, (void)method, (void)err;
	ret->kind = MQ_UNBLOCKED;
	return RC_OK;
}

/* What is not here is an answer nobody waits for any more, such as qos-ok. */
static const struct {
	amqp_channel_t channel;
	amqp_method_number_t id;
	method_handler *handle;
} methods[] = {
	{MQ_CHANNEL, AMQP_BASIC_DELIVER_METHOD, on_deliver},
	{MQ_CHANNEL, AMQP_BASIC_ACK_METHOD, on_ack},
	{MQ_CHANNEL, AMQP_BASIC_NACK_METHOD, on_nack},
	{MQ_CHANNEL, AMQP_BASIC_RETURN_METHOD, on_return},
	{MQ_CHANNEL, AMQP_BASIC_CONSUME_OK_METHOD, on_consume_ok},
	{MQ_CHANNEL, AMQP_BASIC_CANCEL_OK_METHOD, on_cancel_ok},
	{MQ_CHANNEL, AMQP_BASIC_CANCEL_METHOD, on_cancel},
	{MQ_CHANNEL, AMQP_CHANNEL_CLOSE_METHOD, on_channel_close},
	{MQ_CHANNEL, AMQP_CHANNEL_FLOW_METHOD, on_flow},
	{0, AMQP_CONNECTION_CLOSE_METHOD, on_connection_close},
	{0, AMQP_CONNECTION_BLOCKED_METHOD, on_blocked},
	{0, AMQP_CONNECTION_UNBLOCKED_METHOD, on_unblocked},
};

static enum rc on_method(
	struct mq_conn *c, const amqp_frame_t *f, struct mq_event *ret, struct err *err)
{
	amqp_method_number_t id = f->payload.method.id;
	bool is_content_cut = f->channel == MQ_CHANNEL && c->content.state != CONTENT_NONE;
	if (is_content_cut && id != AMQP_CHANNEL_CLOSE_METHOD)
		return out_of_order(c, "a method within a message", err);
	for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
		if (methods[i].id == id && methods[i].channel == f->channel)
			return methods[i].handle(c, f->payload.method.decoded, ret, err);
	return RC_OK;
}

static enum rc on_header(
	struct mq_conn *c, const amqp_frame_t *f, struct mq_event *ret, struct err *err)
{
	struct mq_content *content = &c->content;
	if (content->state != CONTENT_HEADER || f->channel != MQ_CHANNEL ||
		f->payload.properties.class_id != AMQP_BASIC_CLASS)
		return out_of_order(c, "a content header of no message", err);
	content->left = f->payload.properties.body_size;
	content->state = content->left != 0 ? CONTENT_BODY : CONTENT_NONE;
	*ret = content->event;
	ret->properties = bytes_of(f->payload.properties.raw.bytes, f->payload.properties.raw.len);
	ret->body_size = content->left;
	return RC_OK;
}

/* The size a header announces is believed only as a bound: nothing is ever reserved for it. */
static enum rc on_body(
	struct mq_conn *c, const amqp_frame_t *f, struct mq_event *ret, struct err *err)
{
	struct mq_content *content = &c->content;
	const amqp_bytes_t piece = f->payload.body_fragment;
	if (content->state != CONTENT_BODY || f->channel != MQ_CHANNEL)
		return out_of_order(c, "a body of no message", err);
	if (piece.len > content->left)
		return out_of_order(c, "a body longer than announced", err);
	content->left -= piece.len;
	if (content->left == 0)
		content->state = CONTENT_NONE;
	if (content->event.kind == MQ_RETURNED || piece.len == 0)
		return RC_OK;
	ret->kind = MQ_BODY;
	ret->piece = bytes_of(piece.bytes, piece.len);
	return RC_OK;
}

static enum rc on_frame(
	struct mq_conn *c, const amqp_frame_t *f, struct mq_event *ret, struct err *err)
{
	switch (f->frame_type) {
	case AMQP_FRAME_METHOD:
		return on_method(c, f, ret, err);
	case AMQP_FRAME_HEADER:
		return on_header(c, f, ret, err);
	case AMQP_FRAME_BODY:
		return on_body(c, f, ret, err);
	default:
		return RC_OK; /* heartbeats, which may have been queued while a call waited */
	}
}

/* The header's frame could not be decoded, so its delivery is the one that was announced last. */
static enum rc on_bad_data(struct mq_conn *c, int status, struct mq_event *ret, struct err *err)
{
	c->is_unreadable = true;
	if (c->content.state != CONTENT_HEADER || c->content.event.kind != MQ_DELIVERY)
		return mq_lost(c, status, err);
	c->content.state = CONTENT_NONE;
	*ret = c->content.event;
	ret->kind = MQ_UNDECODABLE;
	return RC_OK;
}

/* Heartbeats are ours to send, at half the interval: left to the library, one that finds the socket
 * full waits in 0.11 without limit.  *ret_may_read is false while reading on could make it try. */
static enum rc keep_alive(struct mq_conn *c, bool *ret_may_read, struct err *err)
{
	uint64_t idle_ms = clock_ms() - c->written_ms;
	uint64_t heartbeat_ms = c->heartbeat_s * UINT64_C(1000);
	*ret_may_read = true;
	if (idle_ms < heartbeat_ms / 2)
		return RC_OK;
	if (mq_wait_fd(c->fd, POLLOUT, 0, -1, NULL) == RC_OK)
		return mq_heartbeat(c, err);
	if (idle_ms < c->patience_ms) {
		*ret_may_read = idle_ms < heartbeat_ms * 3 / 4;
		return RC_OK;
	}
	c->is_lost = true;
	return err_set(err, RC_UNAVAILABLE, "the broker took nothing for %u s",
		(unsigned)(idle_ms / 1000));
}

static enum rc read_frame(struct mq_conn *c, struct mq_event *ret, bool *ret_more, struct err *err)
{
	const struct timeval now = {0};
	amqp_frame_t f;
	amqp_maybe_release_buffers_on_channel(c->amqp, MQ_CHANNEL);
	amqp_maybe_release_buffers_on_channel(c->amqp, 0);
	int status = amqp_simple_wait_frame_noblock(c->amqp, &f, &now);
	*ret_more = status == AMQP_STATUS_OK;
	if (status == AMQP_STATUS_OK)
		return on_frame(c, &f, ret, err);
	if (status == AMQP_STATUS_TIMEOUT)
		return RC_OK;
	if (status == AMQP_STATUS_BAD_AMQP_DATA)
		return on_bad_data(c, status, ret, err);
	return mq_lost(c, status, err);
}

enum rc mq_read(struct mq_conn *c, struct mq_event *ret, struct err *err)
{
	*ret = (struct mq_event){.kind = MQ_NONE};
	if (c->is_lost || c->is_unreadable)
		return err_set(err, RC_UNAVAILABLE, "the connection is lost");
	bool more;
	enum rc rc = keep_alive(c, &more, err);
	while (rc == RC_OK && more && ret->kind == MQ_NONE)
		rc = read_frame(c, ret, &more, err);
	return rc;
}

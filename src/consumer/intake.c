/* SPDX-License-Identifier: MIT */
/* Deliveries on their way in: bodies put together, keys taken out, large ones passed through. */
#include "consumer/redelivery.h"
#include "consumer/state.h"

#include "base/fault.h"

#include <stdio.h>

enum { STREAM_PENDING_MAX = 1 << 20 };

/* ---- a message that is held -------------------------------------------------------------------- */

/* What we did not declare ourselves may be a quorum queue. */
static bool may_count(const struct config_topology *t)
{
	return !t->declare || strcmp(t->type, "quorum") == 0;
}

static void finish(struct consumer *c, struct entry *e)
{
	struct reader r = reader_of(buf_bytes(&e->message));
	struct message m;
	struct source_message sm;
	struct err err = {.text = ""};

	if (!message_decode(&r, &m)) { /* cannot be: we encoded it */
		window_complete_parking(&c->window, e, PARK_UNDECODABLE, "lost its shape");
		return;
	}
	source_message_init(&sm, &m);
	if (redelivery_is_often(&sm.props, m.redelivered, may_count(&c->config->topology),
		    c->config->delivery_limit))
		e->flags |= ITEM_KEEP_FIRST;
	buf_clear(&c->key);
	switch (key_extract(&c->config->key, &sm, &c->key, &err)) {
	case KEY_OK:
		window_complete(&c->window, e, buf_bytes(&c->key));
		break;
	case KEY_NONE:
		window_complete(&c->window, e, bytes_of(NULL, 0));
		break;
	case KEY_MISSING:
		window_complete_parking(&c->window, e, PARK_NO_KEY, err.text);
		break;
	case KEY_UNUSABLE:
		window_complete_parking(&c->window, e, PARK_UNUSABLE_KEY, err.text);
		break;
	}
}

static void hold(struct entry *e, const struct mq_event *ev)
{
	const struct message head = {
		.exchange = ev->exchange,
		.routing_key = ev->routing_key,
		.properties = ev->properties,
		.body = {.data = NULL, .size = ev->body_size},
		.body_size = ev->body_size,
		.redelivered = ev->redelivered,
	};
	/* One allocation for head and body. */
	(void)buf_reserve(&e->message, 64 + head.exchange.size + head.routing_key.size +
					       head.properties.size + ev->body_size);
	message_encode_head(&e->message, &head);
}

/* ---- a message that passes through ---------------------------------------------------------------- */

static struct bytes keep(struct buf *store, struct bytes b)
{
	size_t at = store->size;
	buf_add(store, b.data, b.size);
	return bytes_of(store->data + at, b.size);
}

static void hold_head(struct consumer *c, const struct mq_event *ev)
{
	buf_clear(&c->head_copy);
	(void)buf_reserve(
		&c->head_copy, ev->exchange.size + ev->routing_key.size + ev->properties.size + 1);
	c->arriving_head = (struct message){
		.exchange = keep(&c->head_copy, ev->exchange),
		.routing_key = keep(&c->head_copy, ev->routing_key),
		.properties = keep(&c->head_copy, ev->properties),
		.body_size = ev->body_size,
		.redelivered = ev->redelivered,
	};
	c->arriving->is_streamed = true;
	c->arriving->is_parking = true;
	c->arriving->park_reason = PARK_TOO_LARGE;
	c->is_head_waiting = true;
}

bool intake_offer(struct consumer *c, struct crew *crew)
{
	char detail[128];
	if (!c->is_head_waiting)
		return false;
	(void)snprintf(detail, sizeof detail, "body of %llu bytes is over max_message_bytes = %llu",
		(unsigned long long)c->arriving_head.body_size,
		(unsigned long long)c->config->max_message_bytes);
	const struct item item = {
		.ref = {.generation = c->window.generation, .tag = c->arriving->tag},
		.message = c->arriving_head,
	};
	size_t at = channel_begin(&crew->channel, TO_PARK_BEGIN);
	buf_add_byte(&crew->channel.out, PARK_TOO_LARGE);
	short_encode(&crew->channel.out, bytes_str(detail));
	item_encode(&crew->channel.out, &item);
	channel_end(&crew->channel, at);
	FAULT("stream-formed");
	crew->task = TASK_STREAM;
	c->streaming = crew;
	c->is_head_waiting = false;
	crew_flush(crew);
	return true;
}

static void pass_on(struct consumer *c, struct bytes piece)
{
	struct crew *crew = c->streaming;
	if (crew == NULL)
		return; /* its worker died: read over, given back at the end */
	size_t at = channel_begin(&crew->channel, TO_PARK_PIECE);
	buf_add(&crew->channel.out, piece.data, piece.size);
	channel_end(&crew->channel, at);
	crew_flush(crew);
}

static void finish_stream(struct consumer *c, struct entry *e)
{
	struct crew *crew = c->streaming;
	c->streaming = NULL;
	window_complete_parking(&c->window, e, PARK_TOO_LARGE, NULL);
	window_take(&c->window, e);
	if (crew == NULL) {
		broker_give_back_later(c, e);
		return;
	}
	crew_hand(crew, e);
	channel_end(&crew->channel, channel_begin(&crew->channel, TO_PARK_END));
	FAULT("stream-ends");
	crew_flush(crew);
}

/* ---- events -------------------------------------------------------------------------------------------- */

static void finish_if_whole(struct consumer *c)
{
	struct entry *e = c->arriving;
	if (c->arriving_left != 0 || c->is_head_waiting)
		return;
	c->arriving = NULL;
	if (e->is_streamed)
		finish_stream(c, e);
	else
		finish(c, e);
}

static struct entry *enter(struct consumer *c, const struct mq_event *ev)
{
	struct err err;
	struct entry *e = window_add(&c->window, ev->tag);
	if (e == NULL) {
		(void)err_set(&err, RC_UNAVAILABLE, "delivery tag %llu is not the next one",
			(unsigned long long)ev->tag);
		broker_lost(c, &err);
		return NULL;
	}
	stats_add(c->slot, STATS_delivered, 1);
	return e;
}

/* The broker writes it into everything that it delivers from a stream, where nothing is ever delivered
 * again: so the first delivery tells, and a message that only carries the header, from wherever it was read
 * before, is refused once at most. */
static bool is_of_stream(const struct mq_event *ev)
{
	struct props p;
	struct field f;
	return ev->tag == 1 && !ev->redelivered && props_decode(ev->properties, &p) &&
	       props_header(&p, bytes_str("x-stream-offset"), &f) && f.kind == FIELD_INTEGER;
}

void intake_begin(struct consumer *c, const struct mq_event *ev)
{
	if (is_of_stream(ev)) {
		broker_refuse_stream(c);
		return;
	}
	c->arriving = enter(c, ev);
	if (c->arriving == NULL)
		return;
	FAULT("delivery-read");
	c->arriving_left = ev->body_size;
	if (ev->body_size > c->config->max_message_bytes)
		hold_head(c, ev);
	else
		hold(c->arriving, ev);
	finish_if_whole(c);
}

void intake_piece(struct consumer *c, const struct mq_event *ev)
{
	struct entry *e = c->arriving;
	if (e == NULL)
		return;
	c->arriving_left -= ev->piece.size < c->arriving_left ? ev->piece.size : c->arriving_left;
	if (e->is_streamed)
		pass_on(c, ev->piece);
	else
		buf_add(&e->message, ev->piece.data, ev->piece.size);
	finish_if_whole(c);
}

void intake_undecodable(struct consumer *c, const struct mq_event *ev)
{
	static const uint8_t no_properties[] = {0, 0};
	struct entry *e = enter(c, ev);
	if (e == NULL)
		return;
	struct mq_event known = *ev;
	known.properties = bytes_of(no_properties, sizeof no_properties);
	known.body_size = 0;
	hold(e, &known);
	window_complete_parking(&c->window, e, PARK_UNDECODABLE,
		"properties cannot be decoded; the message itself survives only by the queue's "
		"dead-letter exchange");
}

void intake_abort(struct consumer *c)
{
	if (c->streaming != NULL) {
		channel_end(&c->streaming->channel,
			channel_begin(&c->streaming->channel, TO_PARK_ABORT));
		c->streaming->task = TASK_NONE;
		crew_flush(c->streaming);
	}
	c->streaming = NULL;
	c->arriving = NULL;
	c->arriving_left = 0;
	c->is_head_waiting = false;
}

bool intake_may_read(const struct consumer *c)
{
	if (c->is_head_waiting)
		return false;
	if (c->streaming != NULL)
		return channel_pending(&c->streaming->channel) < STREAM_PENDING_MAX;
	/* Always room for one, or nothing would ever move. */
	return c->window.bytes < c->config->prefetch_bytes || c->window.n_held <= 1;
}

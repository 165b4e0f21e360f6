/* SPDX-License-Identifier: MIT */
/* A small loop of its own: publish while there is room, take what the broker answers. */
#include "ctl/publisher.h"

#include <poll.h>
#include <stdio.h>

#include "base/clock.h"

enum { PATIENCE_MS = 30000 }; /* without any answer */

struct publishing {
	struct mq_conn *mq;
	const struct message *message;
	uint64_t copies;
	struct publisher_window window;
	uint64_t returned, refused;
	uint64_t deadline_ms;
	bool is_blocked;
	struct publish_result *result;
};

bool publisher_has_room(const struct publisher_window *w)
{
	return w->sent - w->settled < PUBLISHER_WINDOW;
}

void publisher_settle(struct publisher_window *w, uint64_t tag, bool multiple)
{
	if (tag <= w->settled || tag > w->sent)
		return;
	for (uint64_t t = multiple ? w->settled + 1 : tag; t <= tag; t++)
		w->answered[t % PUBLISHER_WINDOW] = true;
	while (w->settled < w->sent && w->answered[(w->settled + 1) % PUBLISHER_WINDOW]) {
		w->settled++;
		w->answered[w->settled % PUBLISHER_WINDOW] = false;
	}
}

static enum rc channel_closed(struct publishing *p, const struct mq_event *e, struct err *err)
{
	p->result->code = e->code;
	return err_set(err, RC_REJECT, "the broker refused: %u %s", e->code, e->text);
}

static enum rc take_event(struct publishing *p, const struct mq_event *e, struct err *err)
{
	switch (e->kind) {
	case MQ_CONFIRMED:
		publisher_settle(&p->window, e->tag, e->multiple);
		break;
	case MQ_NACKED:
		p->refused++;
		publisher_settle(&p->window, e->tag, e->multiple);
		break;
	case MQ_RETURNED:
		p->returned++;
		p->result->is_returned = true;
		p->result->code = e->code;
		(void)snprintf(p->result->text, sizeof p->result->text, "%s", e->text);
		break;
	case MQ_CHANNEL_CLOSED:
		return channel_closed(p, e, err);
	case MQ_CLOSED:
		return err_set(err, RC_UNAVAILABLE, "the broker closed the connection: %u %s",
			e->code, e->text);
	case MQ_BLOCKED:
	case MQ_UNBLOCKED:
		p->is_blocked = e->kind == MQ_BLOCKED;
		(void)snprintf(p->result->text, sizeof p->result->text, "%s", e->text);
		break;
	case MQ_NONE:
	case MQ_DELIVERY:
	case MQ_BODY:
	case MQ_CONSUMING:
	case MQ_CANCELLED:
	case MQ_CANCEL_OK:
	case MQ_UNDECODABLE:
		break;
	}
	return RC_OK;
}

static enum rc take_events(struct publishing *p, struct err *err)
{
	for (;;) {
		struct mq_event e;
		enum rc rc = mq_read(p->mq, &e, err);
		if (rc != RC_OK || e.kind == MQ_NONE)
			return rc;
		p->deadline_ms = clock_ms() + PATIENCE_MS;
		rc = take_event(p, &e, err);
		if (rc != RC_OK)
			return rc;
	}
}

static enum rc wait_for_answers(struct publishing *p, struct err *err)
{
	struct pollfd fd = {.fd = mq_conn_fd(p->mq), .events = POLLIN};
	if (clock_ms() > p->deadline_ms)
		return p->is_blocked
			? err_set(err, RC_UNAVAILABLE, "the broker blocks publishers: %s",
				  p->result->text)
			: err_set(err, RC_UNAVAILABLE, "the broker did not answer for %d s",
				  PATIENCE_MS / 1000);
	/* Short enough for heartbeats, whatever was negotiated. */
	(void)poll(&fd, 1, 400);
	return RC_OK;
}

static enum rc send_some(struct publishing *p, struct err *err)
{
	while (p->window.sent < p->copies && publisher_has_room(&p->window) && p->returned == 0) {
		enum rc rc = mq_publish(p->mq, p->message->exchange, p->message->routing_key,
			p->message->properties, p->message->body, err);
		if (rc != RC_OK)
			return rc;
		p->window.sent++;
	}
	return RC_OK;
}

static bool is_done(const struct publishing *p)
{
	return p->window.settled == p->window.sent &&
		(p->window.sent == p->copies || p->returned != 0);
}

static enum rc run(struct publishing *p, struct err *err)
{
	enum rc rc = mq_confirm_select(p->mq, err);
	p->deadline_ms = clock_ms() + PATIENCE_MS;
	while (rc == RC_OK && !is_done(p)) {
		rc = send_some(p, err);
		if (rc == RC_OK)
			rc = take_events(p, err);
		if (rc == RC_OK && !is_done(p))
			rc = wait_for_answers(p, err);
	}
	p->result->confirmed = p->window.settled - p->returned - p->refused;
	if (rc == RC_OK && p->refused != 0)
		rc = err_set(err, RC_UNAVAILABLE, "the broker did not take %llu of the messages",
			(unsigned long long)p->refused);
	return rc;
}

static enum rc open_any(const struct config_broker *broker, struct mq_conn **ret,
	struct mq_place *place, struct err *err)
{
	enum rc rc = RC_UNAVAILABLE;
	for (size_t i = 0; i < broker->uris.n; i++) {
		rc = mq_conn_open(broker, i, "inboxctl publish", -1, ret, place, err);
		if (rc == RC_OK)
			break;
		(void)err_ctx(err, "broker \"%s\" at %s", broker->name, place->address);
	}
	return rc;
}

enum rc publish_copies(const struct config_broker *broker, const struct message *m, uint64_t copies,
	struct publish_result *ret, struct err *err)
{
	struct publishing p = {.message = m, .copies = copies, .result = ret};
	*ret = (struct publish_result){0};
	enum rc rc = open_any(broker, &p.mq, &ret->place, err);
	if (rc != RC_OK)
		return rc;
	rc = run(&p, err);
	mq_conn_close(p.mq, rc != RC_UNAVAILABLE);
	return rc;
}

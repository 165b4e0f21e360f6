/* SPDX-License-Identifier: MIT */
/* What the parts of a consumer share; for the files of this room only. */
#ifndef INBOXD_CONSUMER_STATE_H
#define INBOXD_CONSUMER_STATE_H

#include "base/backoff.h"
#include "consumer/breaker.h"
#include "consumer/consumer.h"
#include "consumer/publisher.h"
#include "consumer/window.h"
#include "ipc/channel.h"
#include "message/outgoing.h"
#include "mq/mq.h"

#include <systemd/sd-event.h>

/* What a worker is doing for us. */
enum crew_task {
	TASK_NONE,
	TASK_BATCH,
	TASK_PARK,
	TASK_STREAM,
	TASK_RETRY,
	TASK_CRASHED,
	TASK_OUTGOING,
	TASK_SENT,
};

/* What a free worker is given, in turn, so that none of them starves. */
enum turn { TURN_DELIVERY, TURN_RETRY, TURN_OUTGOING, TURN_COUNT };

struct crew {
	struct consumer *owner;
	uint32_t index;
	uint32_t life;
	bool is_alive;  /* its channel is open */
	bool is_ready;  /* it can work: connected to the database */
	bool is_greeted; /* it knows where we consume */
	bool is_single; /* its handler takes one message at a time */
	struct channel channel;
	sd_event_source *io;
	enum crew_task task;
	uint64_t since_us; /* of the task */
	struct entry **hand; /* owned; entries of TASK_BATCH, TASK_PARK, TASK_STREAM */
	size_t n_hand;
	uint32_t hand_generation;
	int64_t parked, token; /* TASK_RETRY once announced, TASK_CRASHED; 0: none */
	bool timed_out;        /* TASK_CRASHED */
	char down_text[256];   /* why it is not ready */
};

/* A retry whose worker died and that is still to be counted. */
struct crash {
	int64_t parked, token;
	bool timed_out;
	char detail[128];
	uint64_t not_before_ms;
	struct crash *next;
};

enum link_state {
	LINK_DOWN,       /* no connection; the timer will try */
	LINK_IDLE,       /* connected, not consuming */
	LINK_CONSUMING,  /* basic.consume sent or confirmed */
	LINK_CANCELLING, /* basic.cancel sent: deliveries may still come */
	LINK_POISONED,   /* a message that cannot be decoded came: nothing more is read */
};

struct consumer {
	const struct config_consumer *config;
	struct stats_slot *slot;
	sd_event *event;
	int control_fd;

	/* broker.c */
	struct mq_conn *mq;
	enum link_state link;
	size_t which_uri;
	struct mq_place place;
	bool is_placed; /* place is known */
	struct backoff backoff;
	uint64_t next_connect_ms;
	uint64_t up_since_ms;     /* consuming, as the broker said; 0: not */
	uint16_t consuming_with;  /* prefetch of the consumer that stands */
	bool is_trying;           /* it was begun for one message, the breaker being open */
	uint64_t consume_at_ms;   /* not before; after the broker has cancelled or closed the channel */
	uint64_t heartbeat_at_ms; /* our own, while nothing is read */
	sd_event_source *mq_io;
	bool is_reading;
	bool has_input;        /* there may be something to read */
	uint64_t read_at_ms;   /* everything was, last */
	struct window window;

	/* intake.c: the delivery that is arriving */
	struct entry *arriving;
	uint64_t arriving_left;
	struct message arriving_head; /* of a body to be streamed: points into head_copy */
	struct buf head_copy;
	struct backoff streams; /* between two times that a body is streamed in vain */
	bool is_head_waiting; /* a body to be streamed waits for a worker */
	struct crew *streaming; /* the worker it goes to */
	struct buf key;

	/* crew.c */
	struct crew *crew; /* owned; config->workers of them */
	uint32_t batch_limit;
	struct { /* of the last batches, each counting 7/8 of the one after it */
		uint64_t us, messages;
	} pace;
	uint64_t gathering_ms; /* since when a free worker waits for more; 0: none does */
	struct crash *crashes;
	uint64_t retry_at_ms; /* when to ask for due retries; UINT64_MAX: after the next poll */
	uint64_t acked_at_ms;         /* the last ack was sent */
	uint64_t retry_not_before_ms; /* what is given out again is kept before anything is run */
	enum turn last_turn;  /* what was given last: the others come first now */
	uint64_t no_crew_since_ms; /* 0: some worker is ready */
	struct {
		char text[256];
		uint64_t at_ms;
	} told[4]; /* reasons for being down, as they were logged last, in turn */
	unsigned n_told;
	bool is_in_doubt; /* paused for want of workers, and none has answered for anything since */
	struct breaker breaker;
	uint32_t parked; /* messages that are, as a worker last said, and those since */
	bool is_full;    /* no more may be */
	bool has_kept;   /* of them, one is due that the broker gave out before what it gives out now */

	/* outgoing.c */
	struct {
		struct publisher *publisher; /* NULL: not started */
		struct channel channel;      /* to it */
		sd_event_source *io;
		size_t n_held;       /* messages it has whose outcome is not known */
		struct buf outcomes; /* in flat form, to be recorded */
		size_t n_given;      /* bytes of them that a worker has */
		uint64_t ask_at_ms;  /* when to ask for more */
		bool is_stopping;
		uint64_t stop_until_ms;
	} outgoing;

	/* consumer.c */
	bool is_draining;
	uint64_t drain_until_ms;
	sd_event_source *timer;
	uint64_t timer_ms; /* what it is set to, while it is on */
	sd_event_source *later;
};

/* ---- broker.c ------------------------------------------------------------------------------------ */

/* Connects when it is time, starts and stops consuming as crew and window ask for, reads what is there. */
void broker_step(struct consumer *c, uint64_t now_ms);
/* A drain waits with the cancel and with all acks, for a moment. */
bool broker_is_resting(const struct consumer *c);
/* Sends the acknowledgements that are due; returns when to call again. */
uint64_t broker_acknowledge(struct consumer *c, uint64_t now_ms);
/* Gives everything that is not settled back, closes. */
void broker_close(struct consumer *c);
/* When broker_step wants to be called at the latest. */
uint64_t broker_next_ms(const struct consumer *c, uint64_t now_ms);
/* A lost connection: voids all deliveries. */
void broker_lost(struct consumer *c, const struct err *err);
/* The queue turned out to be a stream: leaves it, and looks again later. */
void broker_refuse_stream(struct consumer *c);
/* Settles an entry that cannot be acknowledged: rejects (for good) or gives back just that one. */
void broker_reject(struct consumer *c, struct entry *e);
void broker_give_back(struct consumer *c, struct entry *e);
/* Holds one in hand whose body is gone and must come again, each time for longer; then gives it back. */
void broker_give_back_later(struct consumer *c, struct entry *e);

/* ---- intake.c -------------------------------------------------------------------------------------- */

/* A delivery begins, a piece of its body. */
void intake_begin(struct consumer *c, const struct mq_event *ev);
void intake_piece(struct consumer *c, const struct mq_event *ev);
void intake_undecodable(struct consumer *c, const struct mq_event *ev);
/* What is arriving will not come to its end. */
void intake_abort(struct consumer *c);
/* Whether more may be read: bounds on bytes held, and on a streamed body's way to its worker. */
bool intake_may_read(const struct consumer *c);
/* A worker became free: a body that waits to be streamed goes to it.  True if it took one. */
bool intake_offer(struct consumer *c, struct crew *crew);

/* ---- crew.c ------------------------------------------------------------------------------------------ */

void crew_init(struct consumer *c);
void crew_done(struct consumer *c);
/* The supervisor started or reaped a worker. */
void crew_arrived(struct consumer *c, uint32_t index, uint32_t life, int take_fd);
/* ran: a handler had been started for what it had in hand. */
void crew_gone(struct consumer *c, uint32_t index, uint32_t life, bool timed_out, bool ran,
	const char *detail);
/* Gives work to whoever is free; returns when to call again. */
uint64_t crew_dispatch(struct consumer *c, uint64_t now_ms);
/* The connection is gone: what workers have in hand is void, though they go on. */
void crew_void(struct consumer *c);
bool crew_has_ready(const struct consumer *c);
/* Whether somebody would begin at once with what is ready. */
bool crew_is_hungry(const struct consumer *c);
/* Whether deliveries may be run, or parked, now: breaker and parked.max. */
bool crew_may_take(const struct consumer *c, uint64_t now_ms);
bool crew_is_working(const struct consumer *c);
/* Tells those who do not know yet where we consume: the vhost, once it is known. */
void crew_greet(struct consumer *c);
/* Sends what was added to a worker's channel. */
void crew_flush(struct crew *crew);
void crew_hand(struct crew *crew, struct entry *e);
/* What was added to its channel is its task from now on. */
void crew_begin_task(struct crew *crew, enum crew_task task);

/* ---- outgoing.c ---------------------------------------------------------------------------------------- */

/* FROM_OUTGOING, FROM_SENT, FROM_DUE. */
void outgoing_taken(struct crew *crew, struct bytes payload);
void outgoing_recorded(struct crew *crew, struct bytes payload);
void outgoing_due(struct consumer *c);
/* The worker that had TASK_SENT died: another one gets the outcomes. */
void outgoing_lost(struct consumer *c);
/* Gives a worker outcomes to record, or asks it for what is to be published; false: neither is due. */
bool outgoing_give(struct crew *crew, uint64_t now_ms);
/* When to ask; UINT64_MAX: something else comes first. */
uint64_t outgoing_next_ms(const struct consumer *c);
/* Draining: nothing more is published. */
void outgoing_stop(struct consumer *c);
/* Whether nothing is left to be recorded, or nobody is there to do it. */
bool outgoing_is_done(const struct consumer *c, uint64_t now_ms);
/* Ends the publisher and frees all; false if it does not end: then only the process can. */
bool outgoing_done(struct consumer *c);

/* ---- consumer.c ---------------------------------------------------------------------------------------- */

/* Something changed: runs all steps. */
void consumer_step(struct consumer *c);
/* There is more to do than one step should: again, after what else has happened. */
void consumer_wake(struct consumer *c);

#endif

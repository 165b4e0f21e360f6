/* SPDX-License-Identifier: MIT */
/* What the files of this room share.  Other rooms include mq.h and never see rabbitmq-c. */
#ifndef INBOXD_MQ_CONN_H
#define INBOXD_MQ_CONN_H

#include "mq/mq.h"
#include "mq/rabbitmq.h"
#include "mq/tls.h"

#define MQ_CHANNEL 1
#define MQ_FRAME_MAX 131072
#define MQ_SHORT_MAX 255 /* bytes of an AMQP short string */

/* The content whose frames are being read: a method, then a header, then body frames. */
enum mq_content_state { CONTENT_NONE, CONTENT_HEADER, CONTENT_BODY };

struct mq_content {
	enum mq_content_state state;
	struct mq_event event; /* MQ_DELIVERY or MQ_RETURNED, as far as it is known */
	uint64_t left;         /* bytes of the body still to come */
	uint8_t exchange[MQ_SHORT_MAX], routing_key[MQ_SHORT_MAX];
};

struct mq_conn {
	amqp_connection_state_t amqp;
	int fd; /* the socket again, ours: the library closes its own when it likes, and then the
		 * number would stand for something else in the caller's event loop */
	struct mq_tls tls;
	bool is_tls;
	uint32_t heartbeat_s;
	uint32_t patience_ms; /* how long a write may wait for the peer to read */
	uint64_t written_ms;  /* clock_ms of the last write */
	bool is_lost;
	bool is_unreadable; /* a frame could not be decoded: where the next begins is not known */
	bool is_channel_open;
	char consumer_tag[MQ_SHORT_MAX + 1];
	struct mq_content content;
};

/* How the server refused a call. */
struct mq_refusal {
	uint16_t code; /* 0: it did not */
	char text[256];
};

/* A broker's bytes for people: printable ASCII, the rest as \xNN, cut to fit. */
void mq_escape(char *ret, size_t size, amqp_bytes_t in);

static inline amqp_bytes_t mq_amqp_bytes(struct bytes b)
{
	union {
		const void *from;
		void *to;
	} cast = {.from = b.data}; /* the library has no const; it only reads */
	return (amqp_bytes_t){.len = b.size, .bytes = cast.to};
}

/* Marks the connection as lost and tells why; RC_UNAVAILABLE. */
enum rc mq_lost(struct mq_conn *c, int status, struct err *err);

/* Waits until the kernel takes a frame, at most patience_ms, so that no call into the library can
 * block on a peer that does not read (0.11 then waits without any limit).  Before everything that
 * may write. */
enum rc mq_wait_writable(struct mq_conn *c, struct err *err) MUST_CHECK;

/* Sends one frame, or one method on a channel. */
enum rc mq_send_frame(struct mq_conn *c, const amqp_frame_t *frame, struct err *err) MUST_CHECK;
enum rc mq_send_method(struct mq_conn *c, amqp_channel_t channel, amqp_method_number_t id,
	const void *method, struct err *err) MUST_CHECK;

/* What a call that waited for its answer came to: RC_OK; RC_UNAVAILABLE with ret->code set when the
 * server closed the channel for it (which is answered: mq_channel_reopen comes next), with code 0
 * when the connection is gone. */
enum rc mq_rpc_result(struct mq_conn *c, amqp_rpc_reply_t reply, struct mq_refusal *ret,
	struct err *err) MUST_CHECK;

/* Answers channel.close or connection.close of the server. */
enum rc mq_answer_channel_close(struct mq_conn *c, struct err *err) MUST_CHECK;
void mq_answer_close(struct mq_conn *c);

#endif

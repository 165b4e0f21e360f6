/* SPDX-License-Identifier: MIT */
/* Publishes for `make bench`:  load URI QUEUE COUNT PERCENT SIZE RATE FAILING
 * COUNT messages, of which PERCENT repeat one of the last hundred, with bodies of SIZE bytes, RATE of them a
 * second (0: as fast as the broker confirms).  FAILING of a thousand have an amount that is no number.  Ids
 * are UUIDs, the same in every run: the nth id is made of n.  Ends when the broker has confirmed all of
 * them, and prints how many different ids those have that can succeed. */
#include "amqp.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 2000, LARGEST = 4 << 20 };

struct load {
	amqp_connection_state_t c;
	const char *queue;
	uint64_t count, percent, size, rate, failing;
	uint64_t sent, confirmed, distinct;
	bool *is_confirmed, *is_used;
	char *body;
};

/* SplitMix64: the same numbers everywhere, and none twice. */
static uint64_t mixed(uint64_t n)
{
	n += UINT64_C(0x9e3779b97f4a7c15);
	n = (n ^ n >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	n = (n ^ n >> 27) * UINT64_C(0x94d049bb133111eb);
	return n ^ n >> 31;
}

static void write_id(uint64_t n, char id[37])
{
	uint64_t a = mixed(2 * n), b = mixed(2 * n + 1);
	(void)snprintf(id, 37, "%08x-%04x-4%03x-a%03x-%012" PRIx64, (unsigned)(a >> 32),
		(unsigned)(a >> 16 & 0xffff), (unsigned)(a & 0xfff), (unsigned)(b >> 52),
		b & UINT64_C(0xffffffffffff));
}

/* Which of the ids the nth message has. */
static uint64_t id_number(const struct load *l, uint64_t n)
{
	bool repeats = n >= 100 && mixed(n) % 100 < l->percent;
	return repeats ? n - 1 - mixed(n + 1) % 99 : n;
}

static bool must_fail(const struct load *l, uint64_t number)
{
	return mixed(number + 2) % 1000 < l->failing;
}

/* A repeated message is the same to the last byte, but for the time it was sent at. */
static size_t write_body(struct load *l, uint64_t number, const char *id)
{
	int n = snprintf(l->body, LARGEST,
		"{\"id\":\"%s\",\"account\":\"%" PRIu64 "\",\"amount\":\"%s%" PRIu64
		".%02u\",\"sent_us\":\"%" PRId64 "\",\"note\":\"",
		id, number % 10007, must_fail(l, number) ? "x" : "", number % 997, (unsigned)(number % 100),
		l->rate != 0 ? wall_us() : 0);
	size_t size = (size_t)n;
	for (; size + 2 < l->size; size++)
		l->body[size] = (char)('a' + size % 26);
	l->body[size++] = '"';
	l->body[size++] = '}';
	return size;
}

static void publish(struct load *l)
{
	char id[37];
	uint64_t number = id_number(l, l->sent);
	write_id(number, id);
	l->distinct += !l->is_used[number] && !must_fail(l, number);
	l->is_used[number] = true;
	size_t size = write_body(l, number, id);
	const amqp_basic_properties_t p = {
		._flags = AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG |
			AMQP_BASIC_CONTENT_TYPE_FLAG,
		.message_id = amqp_cstring_bytes(id),
		.content_type = amqp_cstring_bytes("application/json"),
		.delivery_mode = 2};
	if (amqp_basic_publish(l->c, 1, amqp_empty_bytes, amqp_cstring_bytes(l->queue), 0, 0, &p,
		    (amqp_bytes_t){.len = size, .bytes = l->body}) != AMQP_STATUS_OK)
		give_up("publish", "the connection is lost");
	l->sent++;
}

static void note_confirm(struct load *l, const amqp_basic_ack_t *ack)
{
	uint64_t from = ack->multiple ? 1 : ack->delivery_tag;
	for (uint64_t tag = ack->delivery_tag; tag >= from && !l->is_confirmed[tag]; tag--) {
		l->is_confirmed[tag] = true;
		l->confirmed++;
	}
}

/* What has come, or within that time. */
static void take_confirms(struct load *l, int wait_ms)
{
	struct timeval now = {.tv_sec = wait_ms / 1000, .tv_usec = wait_ms % 1000 * 1000};
	amqp_frame_t frame;
	amqp_maybe_release_buffers(l->c);
	while (amqp_simple_wait_frame_noblock(l->c, &frame, &now) == AMQP_STATUS_OK) {
		if (frame.frame_type == AMQP_FRAME_METHOD &&
			frame.payload.method.id == AMQP_BASIC_ACK_METHOD)
			note_confirm(l, frame.payload.method.decoded);
		else
			give_up("confirm", "not what was expected");
		now = (struct timeval){0};
	}
}

static void run(struct load *l)
{
	int64_t begin = steady_us();
	while (l->sent < l->count) {
		if (l->rate != 0) {
			int64_t due = begin + (int64_t)(l->sent * 1000000 / l->rate);
			while (steady_us() < due)
				(void)poll(NULL, 0, 1);
		}
		publish(l);
		if (l->rate != 0 || l->sent % 100 == 0)
			take_confirms(l, 0);
		while (l->sent - l->confirmed > WINDOW)
			take_confirms(l, 1000);
	}
	while (l->confirmed < l->count)
		take_confirms(l, 1000);
}

int main(int argc, char **argv)
{
	if (argc != 8)
		give_up("usage", "load URI QUEUE COUNT PERCENT SIZE RATE FAILING");
	struct load l = {.c = bench_connect(argv[1]),
		.queue = argv[2],
		.count = strtoull(argv[3], NULL, 10),
		.percent = strtoull(argv[4], NULL, 10),
		.size = strtoull(argv[5], NULL, 10),
		.rate = strtoull(argv[6], NULL, 10),
		.failing = strtoull(argv[7], NULL, 10)};
	l.is_confirmed = calloc(l.count + 2, sizeof(bool));
	l.is_used = calloc(l.count + 1, sizeof(bool));
	l.body = malloc(LARGEST);
	if (l.is_confirmed == NULL || l.is_used == NULL || l.body == NULL || l.size > LARGEST - 300)
		give_up("load", "too much");
	(void)amqp_confirm_select(l.c, 1);
	bench_expect(l.c, "confirm.select");
	run(&l);
	(void)amqp_connection_close(l.c, AMQP_REPLY_SUCCESS);
	(void)amqp_destroy_connection(l.c);
	(void)printf("%" PRIu64 "\n", l.distinct);
	free(l.is_confirmed);
	free(l.is_used);
	free(l.body);
	return 0;
}

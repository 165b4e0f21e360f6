/* SPDX-License-Identifier: MIT */
/* The flat form of a message, as it stands in a frame or in inboxd.parked: what decodes says the
 * same when it is encoded again, lies inside the bytes it came from, and every shorter run of bytes
 * is refused. */
#include "fuzz.h"

#include "message/message.h"

static void check_inside(struct bytes part, struct bytes whole)
{
	assert(part.size <= whole.size);
	assert(part.data >= whole.data && part.data + part.size <= whole.data + whole.size);
}

static void check_cut(struct bytes whole, size_t size)
{
	struct message m = {.body_size = 12345};
	struct reader r = reader_of(bytes_of(whole.data, size));
	bool is_decoded = message_decode(&r, &m);
	assert(!is_decoded && m.body_size == 12345);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO(buf) struct buf again = {0};
	struct bytes in = bytes_of(data, size);
	struct reader r = reader_of(in);
	struct message m, same;
	if (!message_decode(&r, &m))
		return 0;
	check_inside(m.exchange, in);
	check_inside(m.routing_key, in);
	check_inside(m.properties, in);
	check_inside(m.body, in);
	assert(m.body.size <= m.body_size);
	size_t used = size - reader_left(&r);
	message_encode(&again, &m);
	assert(again.size == used);
	/* All but the first byte, which is a truth value and may have been written as any number.
	 */
	assert(memcmp(again.data + 1, data + 1, used - 1) == 0);
	r = reader_of(buf_bytes(&again));
	bool is_decoded = message_decode(&r, &same);
	assert(is_decoded && same.redelivered == m.redelivered && bytes_equal(same.body, m.body));
	for (size_t cut = used < 64 ? used : 64; cut > 0; cut--)
		check_cut(buf_bytes(&again), used - cut);
	return 0;
}

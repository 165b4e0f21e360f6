/* SPDX-License-Identifier: MIT */
/* Bytes on a channel between our processes: a frame decodes within its bounds, and an item says the same
 * when it is encoded again. */
#include "fuzz.h"

#include "ipc/protocol.h"

static void check_item(struct bytes payload)
{
	AUTO(buf) struct buf again = {0};
	struct reader r = reader_of(payload);
	struct item item, same;
	if (!item_decode(&r, &item))
		return;
	item_encode(&again, &item);
	struct reader r_again = reader_of(buf_bytes(&again));
	bool is_decoded = item_decode(&r_again, &same);
	assert(is_decoded && reader_left(&r_again) == 0);
	assert(same.ref.tag == item.ref.tag && bytes_equal(same.key, item.key));
	assert(bytes_equal(same.message.body, item.message.body));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes in = bytes_of(data, size);
	struct frame frame;
	size_t used;
	while (frame_decode(in, &frame, &used) == FRAME_OK) {
		assert(used >= FRAME_HEADER_SIZE && used <= in.size);
		assert(frame.payload.size == used - FRAME_HEADER_SIZE);
		check_item(frame.payload);
		in = bytes_of(in.data + used, in.size - used);
	}
	return 0;
}

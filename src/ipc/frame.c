/* SPDX-License-Identifier: MIT */
/* Frame headers. */
#include "ipc/frame.h"

#include <assert.h>

size_t frame_begin(struct buf *out, uint8_t type)
{
	size_t begin = out->size;
	buf_add_u32(out, 0);
	buf_add_byte(out, type);
	return begin;
}

void frame_end(struct buf *out, size_t begin)
{
	size_t size = out->size - begin - FRAME_HEADER_SIZE;
	assert(size <= FRAME_MAX);
	for (int i = 0; i < 4; i++)
		out->data[begin + (size_t)i] = (uint8_t)(size >> (24 - 8 * i));
}

enum frame_result frame_decode(struct bytes in, struct frame *ret_frame, size_t *ret_size)
{
	struct reader r = reader_of(in);
	uint32_t size = reader_u32(&r);
	uint8_t type = reader_u8(&r);
	if (r.bad) {
		*ret_size = FRAME_HEADER_SIZE;
		return FRAME_MORE;
	}
	if (size > FRAME_MAX)
		return FRAME_BAD;
	*ret_size = FRAME_HEADER_SIZE + (size_t)size;
	if (reader_left(&r) < size)
		return FRAME_MORE;
	*ret_frame = (struct frame){.type = type, .payload = bytes_of(r.p, size)};
	return FRAME_OK;
}

/* SPDX-License-Identifier: MIT */
/* Frames on the channels between our processes: u32 size of the payload, u8 type, payload.  Pure. */
#ifndef INBOXD_IPC_FRAME_H
#define INBOXD_IPC_FRAME_H

#include "base/buf.h"

#define FRAME_HEADER_SIZE 5
#define FRAME_MAX (UINT32_C(1) << 30)

struct frame {
	uint8_t type;
	struct bytes payload; /* borrowed from the receive buffer */
};

/* Begins a frame at the end of out and returns its place, to be given to frame_end once the payload
 * has been added. */
size_t frame_begin(struct buf *out, uint8_t type);
void frame_end(struct buf *out, size_t begin);

enum frame_result {
	FRAME_OK,   /* *ret_frame is set, *ret_size bytes of in belong to it */
	FRAME_MORE, /* not all of it is here yet; *ret_size bytes are needed in all (at least 5) */
	FRAME_BAD,  /* too long: the peer is broken */
};
enum frame_result frame_decode(struct bytes in, struct frame *ret_frame, size_t *ret_size);

#endif

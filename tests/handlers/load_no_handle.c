/* SPDX-License-Identifier: MIT */
/* Leaves out the one entry that is required. */
#include <inboxd/handler.h>

INBOXD_HANDLER(.version = "1")

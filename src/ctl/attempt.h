/* SPDX-License-Identifier: MIT */
/* One message through one handler, as a worker would do it, and back: nothing is ever committed. */
#ifndef INBOXD_CTL_ATTEMPT_H
#define INBOXD_CTL_ATTEMPT_H

#include "config/config.h"
#include "ctl/transcript.h"
#include "message/message.h"

/* Tells all steps to the transcript.  *ret_done: a worker would have committed the work.  RC_OK
 * also when the message is not handled (no key, known before) or fails; anything else: the attempt
 * could not be made, errors (of options, in the form of config_load) or err say why. */
enum rc attempt_run(const struct config *config, const struct config_consumer *consumer,
	const struct message *m, struct transcript *t, bool *ret_done, struct buf *errors,
	struct err *err) MUST_CHECK;

#endif

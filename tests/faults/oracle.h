/* SPDX-License-Identifier: MIT */
/* Says whether anything was lost, doubled or went where it does not belong: compares what was
 * published with what the database holds, message by message.  A message is told by its body, which
 * no other has; a copy that was sent again has the same. */
#ifndef INBOXD_TESTS_FAULTS_ORACLE_H
#define INBOXD_TESTS_FAULTS_ORACLE_H

#include "../integration/harness.h"

/* Where a message may end. */
enum oracle_fate {
	ORACLE_EFFECT, /* one effect of its key */
	ORACLE_EITHER, /* of those with its key one is the effect, the others are parked as mismatch
			*/
	ORACLE_REJECTED, /* parked */
	ORACLE_KEYLESS,
	ORACLE_LARGE,
};

struct oracle {
	struct told *told; /* by body, in order of publication */
	size_t n, room;
	size_t copies; /* messages published, copies included */
	/* What has no key is parked once more where two daemons have it in hand and the first was
	 * cut off in the midst of parking it: nothing tells that from a message that was sent
	 * twice. */
	bool keyless_may_repeat;
	bool has_fetched; /* the dead letters */
};

struct judgement {
	size_t published, keys, effects, parked,
		duplicates; /* different bodies; copies beyond them */
	size_t lost, doubled, misplaced;
	size_t untold;   /* failed, and no dead letter */
	char text[4096]; /* which; "" */
};

void oracle_done(struct oracle *o);
/* The broker has taken a message; again with the same body: a copy. */
void oracle_tell(struct oracle *o, const char *key, const char *body, enum oracle_fate fate);

/* Nothing is in the queue any more, and nothing waits to be tried again or to be published. */
bool oracle_is_quiet(struct world *w);
/* Takes the dead letters out of their queue and remembers whose they are. */
void oracle_fetch_dead(struct oracle *o, struct world *w, const char *queue);
/* When all is quiet. */
struct judgement oracle_judge(const struct oracle *o, struct world *w);
/* At any moment: what is no longer in the broker must be in the database.  The text says what is
 * not, or is empty. */
const char *oracle_look(const struct oracle *o, struct world *w);
/* Fails the test unless the judgement is clean. */
void oracle_expect_clean(const struct oracle *o, struct world *w);

#endif

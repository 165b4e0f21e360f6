/* SPDX-License-Identifier: MIT */
#include "oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct told {
	char key[64];
	char body[64]; /* its beginning, which tells it from all others */
	enum oracle_fate fate;
	size_t copies;
	/* found */
	size_t effects, parked, dead;
	char reason[32]; /* of the last parked one */
};

void oracle_done(struct oracle *o)
{
	free(o->told);
	*o = (struct oracle){0};
}

/* A dead letter: a large one comes without its body. */
struct letter_copy {
	char id[64], body[64];
};

static void copy_text(char *ret, size_t size, amqp_bytes_t b)
{
	(void)snprintf(ret, size, "%.*s", (int)b.len, (const char *)b.bytes);
}

static bool take_letter(struct world *w, const char *queue, struct letter_copy *ret)
{
	amqp_message_t m;
	amqp_rpc_reply_t r = amqp_basic_get(w->broker, 2, amqp_cstring_bytes(queue), 1);
	ck_assert_int_eq(r.reply_type, AMQP_RESPONSE_NORMAL);
	if (r.reply.id == AMQP_BASIC_GET_EMPTY_METHOD)
		return false;
	r = amqp_read_message(w->broker, 2, &m, 0);
	ck_assert_int_eq(r.reply_type, AMQP_RESPONSE_NORMAL);
	copy_text(ret->id, sizeof ret->id, m.properties.message_id);
	copy_text(ret->body, sizeof ret->body, m.body);
	amqp_destroy_message(&m);
	amqp_maybe_release_buffers(w->broker);
	return true;
}

static struct told *find(const struct oracle *o, const char *body)
{
	for (size_t i = o->n; i-- > 0;) /* copies come soon */
		if (strcmp(o->told[i].body, body) == 0)
			return &o->told[i];
	return NULL;
}

void oracle_tell(struct oracle *o, const char *key, const char *body, enum oracle_fate fate)
{
	struct told *t = find(o, body);
	o->copies++;
	if (t != NULL) {
		t->copies++;
		return;
	}
	if (o->n == o->room) {
		o->room = o->room == 0 ? 1024 : 2 * o->room;
		o->told = realloc(o->told, o->room * sizeof *o->told);
		ck_assert_ptr_nonnull(o->told);
	}
	t = &o->told[o->n++];
	*t = (struct told){.fate = fate, .copies = 1};
	(void)snprintf(t->key, sizeof t->key, "%s", key);
	(void)snprintf(t->body, sizeof t->body, "%s", body);
}

/* ---- what the database holds ----------------------------------------------------- */

static int by_body(const void *a, const void *b)
{
	return strcmp(((const struct told *)a)->body, ((const struct told *)b)->body);
}

/* A copy, sorted by body. */
static struct told *sorted(const struct oracle *o)
{
	struct told *t = calloc(o->n + 1, sizeof *t);
	ck_assert_ptr_nonnull(t);
	if (o->n != 0)
		memcpy(t, o->told, o->n * sizeof *t);
	qsort(t, o->n, sizeof *t, by_body);
	return t;
}

static struct told *search(struct told *t, size_t n, const char *body)
{
	struct told wanted = {.fate = ORACLE_EFFECT};
	(void)snprintf(wanted.body, sizeof wanted.body, "%s", body);
	return bsearch(&wanted, t, n, sizeof *t, by_body);
}

/* Rows of (body, reason), reason "" for an effect; the number of those that were never published.
 */
static size_t collect(struct world *w, struct told *t, size_t n)
{
	static const char query[] =
		"SELECT convert_from(body, 'UTF8'), '' FROM effect UNION ALL SELECT split_part("
		"convert_from(parked_body(id), 'UTF8'), '.', 1), CASE state WHEN 'waiting' THEN "
		"state "
		"ELSE reason END FROM parked";
	size_t strangers = 0;
	PGresult *r = PQexec(w->db, query);
	ck_assert_msg(PQresultStatus(r) == PGRES_TUPLES_OK, "%s", PQresultErrorMessage(r));
	for (int i = 0; i < PQntuples(r); i++) {
		struct told *found = search(t, n, PQgetvalue(r, i, 0));
		const char *reason = PQgetvalue(r, i, 1);
		if (found == NULL) {
			strangers++;
		} else if (reason[0] == '\0') {
			found->effects++;
		} else {
			found->parked++;
			(void)snprintf(found->reason, sizeof found->reason, "%s", reason);
		}
	}
	PQclear(r);
	return strangers;
}

/* ---- judging --------------------------------------------------------------------- */

static void note(struct judgement *j, const char *what, const struct told *t)
{
	size_t at = strlen(j->text);
	if (at + 200 < sizeof j->text)
		(void)snprintf(j->text + at, sizeof j->text - at,
			"\n  %s: key %s, body %s: %zu effects, %zu parked %s", what, t->key,
			t->body, t->effects, t->parked, t->reason);
}

static bool is_parked_rightly(const struct told *t)
{
	switch (t->fate) {
	case ORACLE_EFFECT:
		return false;
	case ORACLE_EITHER:
		return strcmp(t->reason, "mismatch") == 0;
	case ORACLE_REJECTED:
		return strcmp(t->reason, "rejected") == 0;
	case ORACLE_KEYLESS:
		return strcmp(t->reason, "no_key") == 0;
	case ORACLE_LARGE:
		return strcmp(t->reason, "too_large") == 0;
	}
	return false;
}

static bool is_worked(const struct told *t)
{
	return t->fate == ORACLE_EFFECT || t->fate == ORACLE_EITHER;
}

static bool has_no_key(const struct told *t)
{
	return t->fate == ORACLE_KEYLESS || t->fate == ORACLE_LARGE;
}

static void judge_one(struct judgement *j, const struct told *t, bool keyless_may_repeat)
{
	size_t most = keyless_may_repeat && has_no_key(t) ? t->effects + t->parked : 1;
	j->effects += t->effects;
	j->parked += t->parked;
	j->duplicates += t->copies - 1;
	if (t->effects + t->parked == 0) {
		j->lost++;
		note(j, "lost", t);
	} else if (t->effects + t->parked > most) {
		j->doubled++;
		note(j, "doubled", t);
	} else if (t->parked != 0 ? !is_parked_rightly(t) : !is_worked(t)) {
		j->misplaced++;
		note(j, "misplaced", t);
	}
}

/* Sent once at least; a confirm that is lost makes it twice. */
static void judge_dead(struct judgement *j, const struct told *t)
{
	bool is_failed = t->fate == ORACLE_REJECTED || has_no_key(t);
	if (is_failed == (t->dead != 0))
		return;
	j->untold++;
	note(j, is_failed ? "no dead letter" : "a dead letter", t);
}

static int by_key(const void *a, const void *b)
{
	return strcmp(((const struct told *)a)->key, ((const struct told *)b)->key);
}

/* Bodies of one key together have one effect. */
static void judge_keys(struct judgement *j, struct told *t, size_t n)
{
	qsort(t, n, sizeof *t, by_key);
	for (size_t i = 0, next; i < n; i = next) {
		size_t sum = 0;
		for (next = i; next < n && strcmp(t[next].key, t[i].key) == 0; next++)
			sum += t[next].effects;
		j->keys++;
		if (sum > 1 && t[i].effects < 2) {
			j->doubled++;
			note(j, "doubled key", &t[i]);
		}
	}
}

struct judgement oracle_judge(const struct oracle *o, struct world *w)
{
	struct judgement j = {.published = o->n};
	struct told *t = sorted(o);
	size_t strangers = collect(w, t, o->n);
	for (size_t i = 0; i < o->n; i++)
		judge_one(&j, &t[i], o->keyless_may_repeat);
	for (size_t i = 0; o->has_fetched && i < o->n; i++)
		judge_dead(&j, &t[i]);
	judge_keys(&j, t, o->n);
	if (strangers != 0) {
		j.misplaced += strangers;
		note(&j, "never published",
			&(struct told){.effects = strangers, .fate = ORACLE_EFFECT});
	}
	free(t);
	return j;
}

void oracle_fetch_dead(struct oracle *o, struct world *w, const char *queue)
{
	o->has_fetched = true;
	for (struct letter_copy l; take_letter(w, queue, &l);) {
		struct told *t = find(o, l.body[0] != '\0' ? l.body : l.id);
		ck_assert_msg(t != NULL, "a dead letter of nobody: %s %s", l.id, l.body);
		t->dead++;
	}
}

bool oracle_is_quiet(struct world *w)
{
	struct queue_state s = queue_state(w->queue);
	/* In this order: what has left the queue is committed, and waits if it is to be tried
	 * again. */
	return s.ready == 0 && s.unacked == 0 &&
		sql_int(w,
			"SELECT (SELECT count(*) FROM parked WHERE state = 'waiting') + "
			"(SELECT count(*) FROM outgoing)") == 0;
}

const char *oracle_look(const struct oracle *o, struct world *w)
{
	static char text[256];
	size_t held = 0;
	struct queue_state s = queue_state(w->queue);
	struct told *t = sorted(o);
	/* One view of all tables: a retry that succeeds moves from one to the other. */
	sql(w, "BEGIN ISOLATION LEVEL REPEATABLE READ");
	(void)collect(w, t, o->n);
	sql(w, "COMMIT");
	for (size_t i = 0; i < o->n; i++)
		if (t[i].effects + t[i].parked != 0)
			held += t[i].copies;
	free(t);
	text[0] = '\0';
	size_t queued = (size_t)(s.ready + s.unacked);
	if (s.ready < 0 || o->copies > held + queued)
		(void)snprintf(text, sizeof text,
			"of %zu published %zu are in the broker, and only %zu committed", o->copies,
			queued, held);
	return text;
}

void oracle_expect_clean(const struct oracle *o, struct world *w)
{
	struct judgement j = oracle_judge(o, w);
	ck_assert_msg(j.lost + j.doubled + j.misplaced + j.untold == 0,
		"%zu published: %zu lost, %zu doubled, %zu misplaced, %zu untold%s", j.published,
		j.lost, j.doubled, j.misplaced, j.untold, j.text);
}

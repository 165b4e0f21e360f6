/* SPDX-License-Identifier: MIT */
/* Starts one process of inboxd and plays its neighbours - supervisor, and consumer or worker -
 * always in the same way: what it does for a message can be counted.
 *
 *   neighbours worker|consumer CONFIG FIRST COUNT COMMAND...
 *
 * gives COUNT messages, numbered from FIRST on, to the only consumer of CONFIG.  COMMAND is inboxd
 * itself, or what runs it. */
#include "base/fd.h"
#include "base/stats.h"
#include "handler/loader.h"
#include "ipc/channel.h"
#include "ipc/control.h"
#include "ipc/protocol.h"
#include "message/key.h"
#include "mq/mq.h"
#include "supervisor/child.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { BODY_SIZE = 200, MOST_ARGUMENTS = 32, DEADLINE_S = 60 };

static struct {
	struct config *config;
	const struct config_consumer *consumer;
	uint64_t first, count;
	char **command;
	struct stats *stats;
	struct stats_slot *slot; /* of the process */
	int stats_fd;
	pid_t pid;
	struct err err;
} run;

_Noreturn static void fail(const char *what, const char *why)
{
	(void)fprintf(stderr, "neighbours: %s: %s\n", what, why);
	exit(1);
}

static void must(enum rc rc, const char *what)
{
	if (rc != RC_OK)
		fail(what, run.err.text);
}

static void must_be(bool is_so, const char *what)
{
	if (!is_so)
		fail("expected", what);
}

static void must_flush(struct channel *c)
{
	must_be(channel_flush(c) == RC_OK, "it listens");
}

/* ---- the process ----------------------------------------------------------------------------- */

_Noreturn static void become(char *const argv[], const int from[], int n)
{
	int spare[4];
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 0; i < n; i++)
		spare[i] = fcntl(from[i], F_DUPFD_CLOEXEC, CHILD_HANDLER_FD + 1);
	for (int i = 0; i < n; i++)
		(void)dup2(spare[i], CHILD_CHANNEL_FD + i);
	(void)execvp(argv[0], argv);
	_exit(127);
}

/* execve takes what it does not change without saying so. */
static char *word(const char *s)
{
	return (char *)(uintptr_t)s;
}

/* As the supervisor would; handler NULL: a consumer.  Takes channel_fd. */
static void start(
	const char *role, enum config_part part, int channel_fd, const struct handler_copy *handler)
{
	AUTO(buf) struct buf text = {0};
	AUTO(fd) int config_fd = -1;
	const char *name = run.consumer->name;
	char *const arguments[] = {word("--role"), word(role), word("--consumer"), word(name),
		word("--index"), word("0"), handler != NULL ? word("--handler") : NULL,
		handler != NULL ? word(handler->file.path) : NULL, NULL};
	char *argv[MOST_ARGUMENTS];
	size_t n = 0;
	for (char **a = run.command; *a != NULL && n < MOST_ARGUMENTS / 2; a++)
		argv[n++] = *a;
	memcpy(argv + n, arguments, sizeof arguments);

	config_print(run.config, part, name, &text);
	must(fd_memfd("config", buf_bytes(&text), &config_fd, &run.err), "configuration");
	must(stats_create(&run.stats_fd, &run.stats, &run.err), "counters");
	run.slot = stats_slot_take(
		run.stats, handler != NULL ? STATS_WORKER : STATS_CONSUMER, name, 0);
	const int fds[] = {channel_fd, config_fd, run.stats_fd, handler != NULL ? handler->fd : -1};
	run.pid = fork();
	if (run.pid == 0)
		become(argv, fds, handler != NULL ? 4 : 3);
	(void)close(channel_fd);
}

static void expect_end(void)
{
	int status = -1;
	must_be(waitpid(run.pid, &status, 0) == run.pid && WIFEXITED(status) &&
			WEXITSTATUS(status) == 0,
		"it ends well");
}

static struct frame receive(struct channel *c)
{
	struct frame f;
	int got;
	while ((got = channel_next(c, &f)) == 0) {
		struct pollfd in = {.fd = c->fd, .events = POLLIN};
		(void)poll(&in, 1, -1);
		must_be(channel_fill(c) == RC_OK, "it goes on");
	}
	must_be(got == 1, "it says frames");
	return f;
}

/* ---- messages -------------------------------------------------------------------------------- */

struct sample {
	char id[40], body[BODY_SIZE + 1];
	struct buf properties;
	struct message message;
};

static void sample_make(struct sample *s, uint64_t number)
{
	struct props p = {0};
	(void)snprintf(s->id, sizeof s->id, "%08x-1c27-4d0e-9a54-%012llx",
		(unsigned)(number * 2654435761u), (unsigned long long)number);
	int head = snprintf(s->body, sizeof s->body,
		"{\"id\": %llu, \"customer\": \"alice\", \"total\": \"17.50\", \"note\": \"",
		(unsigned long long)number);
	memset(s->body + head, 'n', BODY_SIZE - 2 - (size_t)head);
	(void)strcpy(s->body + BODY_SIZE - 2, "\"}");
	p.present = 1u << PROP_CONTENT_TYPE | 1u << PROP_DELIVERY_MODE | 1u << PROP_MESSAGE_ID;
	p.text[PROP_CONTENT_TYPE] = bytes_str("application/json");
	p.number[PROP_DELIVERY_MODE] = 2;
	p.text[PROP_MESSAGE_ID] = bytes_str(s->id);
	buf_clear(&s->properties);
	props_encode(&s->properties, &p);
	s->message = (struct message){.routing_key = bytes_str(run.consumer->queue),
		.properties = buf_bytes(&s->properties),
		.body = bytes_str(s->body),
		.body_size = BODY_SIZE};
}

/* ---- a worker -------------------------------------------------------------------------------- */

static void add_item(struct buf *out, struct sample *s, uint64_t number)
{
	AUTO(buf) struct buf key = {0};
	struct source_message view;
	sample_make(s, run.first + number);
	source_message_init(&view, &s->message);
	must_be(key_extract(&run.consumer->key, &view, &key, &run.err) == KEY_OK, "a key is there");
	const struct item item = {.ref = {.generation = 1, .tag = number + 1},
		.key = buf_bytes(&key),
		.message = s->message};
	item_encode(out, &item);
}

static void expect_done(const struct frame *f, uint32_t n)
{
	struct reader r = reader_of(f->payload);
	must_be(f->type == FROM_VERDICTS && reader_u32(&r) == n, "a batch is answered");
	(void)reader_u64(&r);
	for (uint32_t i = 0; i < n; i++) {
		(void)ref_decode(&r);
		must_be(reader_u8(&r) == VERDICT_DONE, "a message is done");
	}
}

static void run_worker(void)
{
	struct handler_copy handler;
	struct channel c;
	struct sample s = {0};
	int ends[2];
	must(channel_pair(ends, &run.err), "channel");
	must(handler_copy_take(&run.config->handler_directories, run.consumer->handler,
		     run.config->runtime_directory, &handler, &run.err),
		"handler");
	/* The file itself: of a copy in memory, valgrind finds neither name nor symbols. */
	(void)close(handler.fd);
	handler.fd = open(handler.file.path, O_RDONLY | O_CLOEXEC);
	must_be(handler.fd >= 0, "the handler can be read");
	start("worker", CONFIG_FOR_WORKER, ends[1], &handler);
	handler_copy_done(&handler);
	channel_init(&c, ends[0]);
	size_t at = channel_begin(&c, TO_HELLO);
	buf_add_str(&c.out, "/");
	channel_end(&c, at);
	must_flush(&c);
	must_be(receive(&c).type == FROM_READY, "it is ready");
	for (uint64_t i = 0; i < run.count;) {
		uint32_t n = run.consumer->batch_max;
		at = channel_begin(&c, TO_BATCH);
		buf_add_u32(&c.out, n);
		for (uint32_t k = 0; k < n; k++)
			add_item(&c.out, &s, i++);
		channel_end(&c, at);
		must_flush(&c);
		const struct frame f = receive(&c);
		expect_done(&f, n);
	}
	channel_done(&c);
	buf_done(&s.properties);
	expect_end();
}

/* ---- a consumer ------------------------------------------------------------------------------ */

static void fill_queue(void)
{
	struct mq_conn *mq = NULL;
	struct mq_place place;
	struct mq_event ev;
	struct sample s = {0};
	must(mq_conn_open(run.consumer->broker, 0, "fill", -1, &mq, &place, &run.err), "broker");
	must(mq_declare(mq, run.consumer->queue, &run.consumer->topology, &run.err), "queue");
	must(mq_confirm_select(mq, &run.err), "confirms");
	for (uint64_t i = 0; i < run.count; i++) {
		sample_make(&s, run.first + i);
		must(mq_publish(mq, bytes_str(""), bytes_str(run.consumer->queue),
			     s.message.properties, s.message.body, &run.err),
			"publishing");
	}
	do {
		struct pollfd in = {.fd = mq_conn_fd(mq), .events = POLLIN};
		must(mq_read(mq, &ev, &run.err), "confirms");
		if (ev.kind == MQ_NONE)
			(void)poll(&in, 1, 1000);
	} while (ev.kind != MQ_CONFIRMED || ev.tag != run.count);
	mq_conn_close(mq, true);
	buf_done(&s.properties);
}

static void wait_until(enum stats_counter counter, uint64_t value)
{
	while (stats_get(run.slot, counter) != value) {
		must_be(waitpid(run.pid, NULL, WNOHANG) == 0, "it goes on");
		(void)poll(NULL, 0, 1);
	}
}

/* All are done, but that is said once the consumer holds all that it may: so batches come out the
 * same each time.  Returns how many they are. */
static uint32_t answer_batch(struct channel *c, struct bytes payload, uint64_t done)
{
	struct reader r = reader_of(payload);
	uint32_t n = reader_u32(&r);
	uint64_t left = run.count - done;
	size_t at = channel_begin(c, FROM_VERDICTS);
	buf_add_u32(&c->out, n);
	buf_add_u64(&c->out, UINT64_MAX);
	for (uint32_t i = 0; i < n; i++) {
		struct item item;
		must_be(item_decode(&r, &item), "an item is whole");
		ref_encode(&c->out, &item.ref);
		buf_add_byte(&c->out, VERDICT_DONE);
	}
	channel_end(c, at);
	wait_until(STATS_in_flight, left < run.consumer->prefetch ? left : run.consumer->prefetch);
	return n;
}

static void say_ready(struct channel *c)
{
	size_t at = channel_begin(c, FROM_READY);
	buf_add_byte(&c->out, 0);
	buf_add_u64(&c->out, UINT64_MAX);
	buf_add_u32(&c->out, 0);
	buf_add_byte(&c->out, 0);
	channel_end(c, at);
}

static void say_no_retry(struct channel *c)
{
	size_t at = channel_begin(c, FROM_RETRY);
	buf_add_byte(&c->out, RETRY_NONE);
	buf_add_u64(&c->out, UINT64_MAX);
	buf_add_u32(&c->out, 0);
	buf_add_byte(&c->out, 0);
	channel_end(c, at);
}

static void say_nothing_outgoing(struct channel *c)
{
	size_t at = channel_begin(c, FROM_OUTGOING);
	buf_add_u64(&c->out, UINT64_MAX);
	buf_add_u32(&c->out, 0);
	channel_end(c, at);
}

static void play_worker(struct channel *c)
{
	for (uint64_t done = 0; done < run.count;) {
		const struct frame f = receive(c);
		if (f.type == TO_HELLO)
			say_ready(c);
		else if (f.type == TO_BATCH)
			done += answer_batch(c, f.payload, done);
		else if (f.type == TO_RETRY)
			say_no_retry(c);
		else if (f.type == TO_OUTGOING)
			say_nothing_outgoing(c);
		else
			must_be(false, "only that is asked for which was expected");
		must_flush(c);
	}
}

static void run_consumer(void)
{
	int control[2], ends[2];
	struct channel c;
	fill_queue();
	must(control_pair(control, &run.err), "control");
	must(channel_pair(ends, &run.err), "channel");
	start("consumer", CONFIG_FOR_CONSUMER, control[1], NULL);
	const struct control worker = {.kind = CONTROL_WORKER, .life = 1, .pid = getpid()};
	const struct control drain = {.kind = CONTROL_DRAIN, .timeout_ms = 10000};
	must(control_send(control[0], &worker, ends[1], &run.err), "worker");
	(void)close(ends[1]);
	channel_init(&c, ends[0]);
	play_worker(&c);
	wait_until(STATS_acked, run.count);
	must(control_send(control[0], &drain, -1, &run.err), "drain");
	expect_end();
	channel_done(&c);
	(void)close(control[0]);
}

int main(int argc, char **argv)
{
	AUTO(buf) struct buf errors = {0};
	if (argc < 6)
		return 64;
	(void)alarm(DEADLINE_S);
	run.config = config_load(argv[2], &errors);
	if (run.config == NULL || run.config->n_consumers != 1) {
		(void)fprintf(stderr, "neighbours: one consumer is wanted\n%s", buf_str(&errors));
		return 78;
	}
	run.consumer = run.config->consumers[0];
	run.first = strtoull(argv[3], NULL, 10);
	run.count = strtoull(argv[4], NULL, 10);
	run.command = argv + 5;
	must_be(run.count % run.consumer->batch_max == 0, "COUNT is whole batches");
	if (strcmp(argv[1], "worker") == 0)
		run_worker();
	else
		run_consumer();
	stats_unmap(run.stats);
	(void)close(run.stats_fd);
	config_free(run.config);
	return 0;
}

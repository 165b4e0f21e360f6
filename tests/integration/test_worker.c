/* SPDX-License-Identifier: MIT */
/* A worker process by itself: this test is its consumer, and speaks the protocol.  Needs a built
 * inboxd and its handlers in INBOXD_TEST_BUILD. */
#include "inbox_world.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/stats.h"
#include "ipc/channel.h"
#include "handler/loader.h"
#include "ipc/protocol.h"
#include "message/props.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <sysexits.h>

enum { CHANNEL_FD = 3, CONFIG_FD = 4, STATS_FD = 5, SPARE_FD = 64, MOST = 16, PATIENCE_MS = 20000 };

static struct {
	struct channel channel;
	pid_t pid;
	int stats_fd;
	struct stats *stats;
	struct stats_slot *slot;
	bool is_ready; /* said so last */
	uint64_t tag;
	uint16_t losses; /* of the next messages */
	enum verdict verdict[MOST]; /* of the last answer, in order */
	size_t n;
} w;

/* ---- the process ----------------------------------------------------------------------------- */

_Noreturn static void become_worker(
	int channel_fd, int config_fd, int stats_fd, const struct handler_copy *handler)
{
	const int from[] = {channel_fd, config_fd, stats_fd, handler->fd};
	enum { N = sizeof from / sizeof from[0] };
	char path[1024];
	int spare[N], null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getenv("INBOXD_TEST_VERBOSE") == NULL)
		(void)dup2(null, STDERR_FILENO);
	for (int i = 0; i < N; i++)
		spare[i] = fcntl(from[i], F_DUPFD_CLOEXEC, SPARE_FD);
	for (int i = 0; i < N; i++)
		(void)dup2(spare[i], CHANNEL_FD + i);
	(void)snprintf(path, sizeof path, "%s/inboxd", getenv("INBOXD_TEST_BUILD"));
	(void)execl(path, "inboxd", "--role", "worker", "--consumer", "main", "--index", "0",
		"--handler", handler->file.path, (char *)NULL);
	_exit(127);
}

static void start_worker(void)
{
	AUTO(buf) struct buf text = {0};
	struct handler_copy handler;
	int ends[2], config_fd;
	memset(&w, 0, sizeof w);
	config_print(world.config, CONFIG_FOR_WORKER, "main", &text);
	MUST_OK(fd_memfd("config", buf_bytes(&text), &config_fd, &world.err));
	MUST_OK(stats_create(&w.stats_fd, &w.stats, &world.err));
	w.slot = stats_slot_take(w.stats, STATS_WORKER, "main", 0);
	MUST_OK(channel_pair(ends, &world.err));
	MUST_OK(handler_copy_take(&world.config->handler_directories,
		world.config->consumers[0]->handler, "/tmp", &handler, &world.err));
	w.pid = fork();
	if (w.pid == 0)
		become_worker(ends[1], config_fd, w.stats_fd, &handler);
	(void)close(ends[1]);
	(void)close(config_fd);
	handler_copy_done(&handler);
	channel_init(&w.channel, ends[0]);
}

/* A clean end when the consumer goes; anything else fails the test. */
static void stop_worker(void)
{
	int status = -1;
	channel_done(&w.channel);
	ck_assert_int_eq(waitpid(w.pid, &status, 0), w.pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == EX_OK,
		"the worker ended with status %#x", (unsigned)status);
	stats_unmap(w.stats);
	(void)close(w.stats_fd);
}

/* ---- what it says ---------------------------------------------------------------------------- */

static void take_verdicts(struct bytes payload)
{
	struct reader r = reader_of(payload);
	w.n = reader_u32(&r);
	(void)reader_u64(&r);
	ck_assert_uint_le(w.n, MOST);
	for (size_t i = 0; i < w.n; i++) {
		struct delivery_ref ref = ref_decode(&r);
		ck_assert_uint_eq(ref.tag, w.tag - w.n + 1 + i);
		w.verdict[i] = (enum verdict)reader_u8(&r);
	}
	ck_assert(!r.bad);
}

/* The next frame of a type; of what comes in between it is remembered whether the worker can work.
 */
static struct frame receive(enum frame_type type)
{
	struct frame f;
	uint64_t until = clock_ms() + PATIENCE_MS;
	for (;;) {
		while (channel_next(&w.channel, &f) == 1) {
			if (f.type == FROM_READY || f.type == FROM_DOWN)
				w.is_ready = f.type == FROM_READY;
			if (f.type == type)
				return f;
			ck_assert_msg(f.type == FROM_READY || f.type == FROM_DOWN,
				"frame %u before %d", f.type, (int)type);
		}
		struct pollfd in = {.fd = w.channel.fd, .events = POLLIN};
		(void)poll(&in, 1, 100);
		ck_assert_msg(clock_ms() < until, "no frame %d came", (int)type);
		if (in.revents != 0)
			ck_assert_msg(channel_fill(&w.channel) == RC_OK, "the worker is gone");
	}
}

static void wait_until_ready(void)
{
	if (!w.is_ready)
		(void)receive(FROM_READY);
}

static void flush(void)
{
	MUST_OK(channel_flush(&w.channel));
}

static void begin_world(const char *more)
{
	inbox_world_begin(more);
	(void)admin("SET ROLE inboxd");
	(void)admin("CREATE TABLE done (key text); CREATE SEQUENCE calls");
	(void)admin("CREATE FUNCTION act(p_key text, p_body text) RETURNS void LANGUAGE plpgsql AS "
		    "$$ BEGIN "
		    "INSERT INTO done VALUES (p_key); "
		    "CASE p_body WHEN 'bad' THEN RAISE 'no good' USING ERRCODE = '22000'; "
		    "WHEN 'later' THEN RAISE 'not yet'; "
		    "WHEN 'full' THEN RAISE 'no space' USING ERRCODE = '53100'; "
		    "WHEN 'away' THEN PERFORM pg_terminate_backend(pg_backend_pid()); "
		    "  PERFORM pg_sleep(10); "
		    "WHEN 'conflict' THEN IF nextval('calls') = 1 THEN "
		    "  RAISE 'again' USING ERRCODE = '40001'; END IF; "
		    "WHEN 'conflict, then bad' THEN IF nextval('calls') = 1 THEN "
		    "  PERFORM pg_sleep(0.5); RAISE 'again' USING ERRCODE = '40001'; "
		    "  ELSE RAISE 'no good' USING ERRCODE = '22000'; END IF; "
		    "ELSE NULL; END CASE; END $$");
	(void)admin("RESET ROLE");
	start_worker();
	size_t at = channel_begin(&w.channel, TO_HELLO);
	buf_add_str(&w.channel.out, "/");
	channel_end(&w.channel, at);
	flush();
	wait_until_ready();
}

static const char acting[] =
	"options: {statement: 'SELECT act($1, $2)', parameters: [message_id, body]}\n";

static void begin_acting(const char *more)
{
	AUTO(free) char *all = xasprintf("%s%s", acting, more);
	begin_world(all);
}

static void end_world(void)
{
	stop_worker();
	inbox_world_end();
}

/* ---- what is said to it ---------------------------------------------------------------------- */

static void add_item_of_size(const char *id, const char *body, uint16_t crashes, uint64_t body_size)
{
	AUTO(buf) struct buf properties = {0};
	AUTO(free) char *key = xasprintf("\001%s", id);
	struct props p = {.present = 1u << PROP_MESSAGE_ID};
	p.text[PROP_MESSAGE_ID] = bytes_str(id);
	props_encode(&properties, &p);
	const struct item item = {.ref = {.generation = 1, .tag = ++w.tag},
		.crashes = crashes,
		.losses = w.losses,
		.key = bytes_str(key),
		.message = {.routing_key = bytes_str("q"),
			.properties = buf_bytes(&properties),
			.body = bytes_str(body),
			.body_size = body_size}};
	item_encode(&w.channel.out, &item);
}

static void add_item(const char *id, const char *body)
{
	add_item_of_size(id, body, 0, strlen(body));
}

/* Pairs of id and body. */
static void send_batch(size_t n, const char *const *pairs)
{
	size_t at = channel_begin(&w.channel, TO_BATCH);
	buf_add_u32(&w.channel.out, (uint32_t)n);
	for (size_t i = 0; i < n; i++)
		add_item(pairs[2 * i], pairs[2 * i + 1]);
	channel_end(&w.channel, at);
	flush();
}

static void receive_verdicts(void)
{
	take_verdicts(receive(FROM_VERDICTS).payload);
}

static void run_batch(size_t n, const char *const *pairs)
{
	send_batch(n, pairs);
	receive_verdicts();
	ck_assert_uint_eq(w.n, n);
}
#define RUN(...)                                                         \
	do {                                                             \
		static const char *const pairs_[] = {__VA_ARGS__};       \
		run_batch(sizeof pairs_ / sizeof pairs_[0] / 2, pairs_); \
	} while (0)

static void verdict_is(size_t i, enum verdict v)
{
	ck_assert_msg(w.verdict[i] == v, "message %zu: %s, not %s", i, verdict_name(w.verdict[i]),
		verdict_name(v));
}

static void park_crashed(const char *id, uint16_t crashes)
{
	size_t at = channel_begin(&w.channel, TO_PARK);
	buf_add_byte(&w.channel.out, PARK_CRASHED);
	short_encode(&w.channel.out, bytes_str("signal 11"));
	add_item_of_size(id, "x", crashes, 1);
	channel_end(&w.channel, at);
	flush();
	receive_verdicts();
}

static enum retry_fate run_retry(void)
{
	channel_end(&w.channel, channel_begin(&w.channel, TO_RETRY));
	flush();
	struct frame f = receive(FROM_TAKEN);
	struct reader r = reader_of(f.payload);
	ck_assert_int_ne((int64_t)reader_u64(&r), 0);
	f = receive(FROM_RETRY);
	r = reader_of(f.payload);
	return (enum retry_fate)reader_u8(&r);
}

static const char *done(void)
{
	return admin("SELECT coalesce(string_agg(key, ',' ORDER BY key), '') FROM done");
}

static const char *parked_keys(const char *state)
{
	return admin("SELECT coalesce(string_agg(key_text(key), ',' ORDER BY key), '') FROM parked "
		     "WHERE state = '%s'",
		state);
}

static void end_its_session(void)
{
	(void)admin("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
		    "WHERE application_name = 'inboxd main'");
}

/* ---- batches --------------------------------------------------------------------------------- */

START_TEST(a_batch_is_done_and_a_second_time_it_is_a_duplicate)
{
	begin_acting("");
	RUN("b", "x", "a", "x", "c", "x");
	for (size_t i = 0; i < 3; i++)
		verdict_is(i, VERDICT_DONE);
	RUN("c", "x", "d", "x", "a", "other");
	verdict_is(0, VERDICT_DUPLICATE);
	verdict_is(1, VERDICT_DONE);
	verdict_is(2, VERDICT_PARKED);
	ck_assert_str_eq(done(), "a,b,c,d");
	ck_assert_str_eq(parked_keys("mismatch"), "a");
	ck_assert_int_eq(world_markers(), 4);
	end_world();
}
END_TEST

START_TEST(a_failure_among_several_goes_alone_and_the_others_without_it)
{
	begin_acting("workers: 2");
	RUN("a", "x", "b", "later", "c", "x", "d", "bad", "e", "x");
	verdict_is(0, VERDICT_DONE);
	verdict_is(1, VERDICT_ALONE);
	verdict_is(2, VERDICT_DONE);
	verdict_is(3, VERDICT_ALONE);
	verdict_is(4, VERDICT_DONE);
	ck_assert_str_eq(done(), "a,c,e");
	ck_assert_str_eq(parked_keys("waiting"), "");
	ck_assert_int_eq(world_markers(), 3);
	end_world();
}
END_TEST

/* COPY fails as a whole, and says of no message that it is to blame. */
START_TEST(a_batch_that_nobody_is_blamed_for_is_run_message_by_message)
{
#define AT(sensor, at) "{\"sensor\": \"" sensor "\", \"at\": \"" at "\", \"value\": 1}"
	begin_world("workers: 2\nhandler: bulk");
	(void)admin("CREATE TABLE measurement (sensor text, at timestamptz, value float8); "
		    "GRANT ALL ON measurement TO inboxd");
	RUN("a", AT("x", "2024-01-01"), "b", AT("y", "yesterday noon?"), "c", AT("z", "2024-01-02"));
	verdict_is(0, VERDICT_DONE);
	verdict_is(1, VERDICT_ALONE);
	verdict_is(2, VERDICT_DONE);
	ck_assert_str_eq(admin("SELECT string_agg(sensor, ',' ORDER BY sensor) FROM measurement"), "x,z");
	RUN("d", AT("v", "2024-01-03"), "e", AT("w", "2024-01-04"));
	verdict_is(0, VERDICT_DONE);
	verdict_is(1, VERDICT_DONE);
	end_world();
#undef AT
}
END_TEST

START_TEST(where_one_after_the_other_fails_each_goes_alone)
{
	begin_acting("workers: 2");
	RUN("a", "bad", "b", "bad", "c", "bad", "d", "bad", "e", "bad", "f", "x", "g", "x");
	for (size_t i = 0; i < 7; i++)
		verdict_is(i, VERDICT_ALONE);
	ck_assert_str_eq(done(), "");
	ck_assert_int_eq(world_markers(), 0);
	end_world();
}
END_TEST

START_TEST(one_worker_alone_lets_nobody_pass_a_failure)
{
	begin_acting("retry: {immediate: 1, delays: [1h]}");
	RUN("a", "x", "b", "later", "c", "x");
	verdict_is(0, VERDICT_DONE);
	verdict_is(1, VERDICT_ALONE);
	verdict_is(2, VERDICT_AGAIN);
	ck_assert_str_eq(done(), "a");
	RUN("a", "x", "b", "later", "c", "x");
	verdict_is(0, VERDICT_DUPLICATE);
	RUN("b", "later");
	verdict_is(0, VERDICT_PARKED);
	RUN("c", "bad");
	verdict_is(0, VERDICT_PARKED);
	ck_assert_str_eq(done(), "a");
	ck_assert_str_eq(parked_keys("waiting"), "b");
	ck_assert_str_eq(parked_keys("failed"), "c");
	ck_assert_str_eq(admin("SELECT attempts::text FROM parked WHERE state = 'waiting'"), "1");
	end_world();
}
END_TEST

START_TEST(a_conflict_between_transactions_is_run_again_at_once)
{
	begin_acting("");
	RUN("a", "x", "b", "conflict", "c", "x");
	for (size_t i = 0; i < 3; i++)
		verdict_is(i, VERDICT_DONE);
	ck_assert_str_eq(done(), "a,b,c");
	ck_assert_str_eq(admin("SELECT last_value::text FROM calls"), "2");
	end_world();
}
END_TEST

/* Between the first run and the second, somebody else commits the key of the first message. */
START_TEST(what_fails_in_the_second_run_is_not_blamed_on_who_was_in_the_first)
{
	static const char *const pairs[] = {"a", "x", "b", "conflict, then bad"};
	begin_acting("");
	(void)admin("CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
		    "IF current_user = 'inboxd' AND (SELECT is_called FROM calls) THEN "
		    "PERFORM pg_sleep(0.5); END IF; RETURN NEW; END $$");
	(void)admin(
		"CREATE TRIGGER slow BEFORE INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION slow()");
	send_batch(2, pairs);
	while (strcmp(admin("SELECT is_called::text FROM calls"), "true") != 0)
		(void)usleep(1000);
	(void)admin("INSERT INTO inbox (consumer, key, fingerprint) VALUES (%d, '\\x0161', '')",
		(int)world.a.x.id); /* waits for the first run's end */
	receive_verdicts();
	verdict_is(0, VERDICT_AGAIN);
	verdict_is(1, VERDICT_PARKED);
	ck_assert_str_eq(parked_keys("failed"), "b");
	RUN("a", "x");
	verdict_is(0, VERDICT_DUPLICATE);
	ck_assert_str_eq(done(), "");
	end_world();
}
END_TEST

START_TEST(past_the_time_of_a_batch_the_rest_is_left_for_later)
{
	begin_world("handler: effect\noptions: {table: seen, delay_ms: 60}\nbatch: {max: 10, time: "
		    "100ms}\n");
	(void)admin("CREATE TABLE seen (key text, size bigint, body bytea, pid integer); "
		    "GRANT ALL ON seen TO inboxd");
	RUN("a", "x", "b", "x", "c", "x", "d", "x", "e", "x");
	verdict_is(0, VERDICT_DONE);
	verdict_is(4, VERDICT_AGAIN);
	int n_done = 0;
	for (size_t i = 0; i < 5; i++)
		n_done += w.verdict[i] == VERDICT_DONE;
	ck_assert_int_eq(world_markers(), n_done);
	ck_assert_int_eq(admin_int("SELECT count(*) FROM seen"), n_done);
	RUN("e", "x");
	verdict_is(0, VERDICT_DONE);
	end_world();
}
END_TEST

/* ---- parking --------------------------------------------------------------------------------- */

START_TEST(a_crash_is_counted_when_it_is_parked_not_each_time_the_key_was_busy)
{
	begin_acting("");
	struct claim c = claim_of("\001a", 'x');
	MUST_OK(begin(&world.a, &c, 1));
	for (int i = 0; i < 3; i++) {
		park_crashed("a", 1);
		verdict_is(0, VERDICT_BUSY);
	}
	ck_assert_uint_eq(stats_get(w.slot, STATS_crashed), 0);
	roll_back(&world.a);
	park_crashed("a", 1);
	verdict_is(0, VERDICT_PARKED);
	ck_assert_uint_eq(stats_get(w.slot, STATS_crashed), 1);
	ck_assert_str_eq(admin("SELECT concat_ws('|', state, reason, detail, attempts, crashes) "
			       "FROM parked"),
		"waiting|crashed|signal 11|1|1");
	end_world();
}
END_TEST

static void begin_stream(const char *id, uint64_t size)
{
	size_t at = channel_begin(&w.channel, TO_PARK_BEGIN);
	buf_add_byte(&w.channel.out, PARK_TOO_LARGE);
	short_encode(&w.channel.out, bytes_str("too large"));
	add_item_of_size(id, "", 0, size);
	channel_end(&w.channel, at);
	flush();
}

static void send_piece(const char *piece)
{
	size_t at = channel_begin(&w.channel, TO_PARK_PIECE);
	buf_add_str(&w.channel.out, piece);
	channel_end(&w.channel, at);
	flush();
}

static void end_stream(void)
{
	channel_end(&w.channel, channel_begin(&w.channel, TO_PARK_END));
	flush();
	receive_verdicts();
}

START_TEST(a_session_lost_in_the_midst_of_a_large_body_is_no_harm)
{
	begin_acting("");
	for (int i = 0; i < 2; i++) {
		begin_stream("a", 12);
		send_piece("first ");
		while (admin_int("SELECT count(*) FROM pg_stat_activity WHERE application_name = "
				 "'inboxd main' "
				 "AND state = 'idle in transaction' AND query LIKE "
				 "'%%parked_chunk%%'") == 0)
			(void)usleep(1000);
		end_its_session();
		(void)receive(FROM_DOWN);
		if (i == 1)
			wait_until_ready(); /* the rest comes to the next session */
		send_piece("second");
		end_stream();
		verdict_is(0, VERDICT_AGAIN);
		if (i == 0)
			wait_until_ready();
	}
	ck_assert_int_eq(admin_int("SELECT count(*) FROM parked"), 0);
	begin_stream("a", 12);
	send_piece("first ");
	send_piece("second");
	end_stream();
	verdict_is(0, VERDICT_PARKED);
	ck_assert_str_eq(
		admin("SELECT convert_from(parked_body(id), 'UTF8') FROM parked"), "first second");
	end_world();
}
END_TEST

START_TEST(a_large_body_given_up_leaves_the_worker_fit_for_work)
{
	begin_acting("");
	begin_stream("a", 12);
	send_piece("first ");
	channel_end(&w.channel, channel_begin(&w.channel, TO_PARK_ABORT));
	RUN("a", "x");
	verdict_is(0, VERDICT_DONE);
	ck_assert_int_eq(admin_int("SELECT count(*) FROM parked"), 0);
	end_world();
}
END_TEST

/* ---- retries --------------------------------------------------------------------------------- */

START_TEST(a_retry_runs_when_it_is_due_until_its_attempts_are_used)
{
	begin_acting("retry: {immediate: 2, delays: []}");
	RUN("a", "later");
	verdict_is(0, VERDICT_PARKED);
	ck_assert(run_retry());
	ck_assert_str_eq(admin("SELECT state || attempts FROM parked"), "waiting2");
	ck_assert(run_retry());
	ck_assert_str_eq(admin("SELECT state || attempts FROM parked"), "failed3");
	ck_assert_str_eq(done(), "");
	end_world();
}
END_TEST

START_TEST(a_retry_that_succeeds_leaves_its_marker_and_no_row)
{
	begin_acting("retry: {immediate: 2, delays: []}");
	RUN("a", "later");
	verdict_is(0, VERDICT_PARKED);
	(void)admin("CREATE OR REPLACE FUNCTION act(p_key text, p_body text) RETURNS void LANGUAGE "
		    "sql AS "
		    "'INSERT INTO done VALUES (p_key)'");
	ck_assert(run_retry());
	ck_assert_str_eq(done(), "a");
	ck_assert_int_eq(admin_int("SELECT count(*) FROM parked"), 0);
	RUN("a", "later");
	verdict_is(0, VERDICT_DUPLICATE);
	end_world();
}
END_TEST

START_TEST(an_outage_gives_the_attempt_of_a_retry_back)
{
	begin_acting("retry: {immediate: 2, delays: []}");
	RUN("a", "later");
	(void)admin("UPDATE parked SET body = 'away'");
	ck_assert(run_retry());
	wait_until_ready();
	ck_assert_str_eq(admin("SELECT concat_ws('|', state, attempts, losses, next_at <= "
			       "clock_timestamp()) FROM parked"),
		"waiting|1|1|t");
	end_world();
}
END_TEST

/* The row counts, whoever runs it. */
START_TEST(a_retry_whose_sessions_end_is_a_crash_after_a_few_ever_later_ones)
{
	begin_acting("retry: {immediate: 2, delays: []}");
	RUN("a", "later");
	(void)admin("UPDATE parked SET body = 'away', losses = 4");
	ck_assert_int_eq(run_retry(), RETRY_RAN);
	wait_until_ready();
	ck_assert_str_eq(admin("SELECT concat_ws('|', state, attempts, losses, next_at > "
			       "clock_timestamp() + interval '2 s') FROM parked"),
		"waiting|1|5|t");
	(void)admin("UPDATE parked SET next_at = clock_timestamp()");
	ck_assert_int_eq(run_retry(), RETRY_CRASHED);
	end_world();
}
END_TEST

/* ---- the session ----------------------------------------------------------------------------- */

START_TEST(a_session_lost_while_nothing_runs_is_opened_again)
{
	begin_acting("");
	end_its_session();
	(void)receive(FROM_DOWN);
	wait_until_ready();
	RUN("a", "x");
	verdict_is(0, VERDICT_DONE);
	end_world();
}
END_TEST

START_TEST(a_message_whose_sessions_end_is_charged_for_it_after_a_few_ever_slower_ones)
{
	begin_acting("");
	uint64_t since = clock_ms();
	int believed = 0;
	for (;; believed++) {
		w.losses = (uint16_t)believed;
		RUN("a", "away");
		if (w.verdict[0] != VERDICT_LOST)
			break;
		ck_assert_int_lt(believed, 20);
		wait_until_ready();
	}
	verdict_is(0, VERDICT_CRASHED);
	wait_until_ready();
	park_crashed("a", 1);
	ck_assert_int_ge(believed, 3);
	ck_assert_uint_ge(clock_ms() - since, 2000);
	verdict_is(0, VERDICT_PARKED);
	ck_assert_str_eq(
		admin("SELECT concat_ws('|', state, reason, attempts, crashes) FROM parked"),
		"waiting|crashed|1|1");
	ck_assert_str_eq(done(), "");
	RUN("b", "x");
	verdict_is(0, VERDICT_DONE);
	end_world();
}
END_TEST

START_TEST(a_code_of_the_servers_own_that_a_handler_raised_itself_is_a_failure_of_its_message)
{
	begin_acting("");
	RUN("a", "full");
	verdict_is(0, VERDICT_PARKED);
	ck_assert_str_eq(admin("SELECT concat_ws('|', state, reason, sqlstate, attempts) FROM parked"),
		"waiting|sql_error|53100|1");
	ck_assert(w.is_ready);
	RUN("b", "x");
	verdict_is(0, VERDICT_DONE);
	end_world();
}
END_TEST

UNIT_SUITE_TIMEOUT(60, "worker/process", a_batch_is_done_and_a_second_time_it_is_a_duplicate,
	a_failure_among_several_goes_alone_and_the_others_without_it,
	a_batch_that_nobody_is_blamed_for_is_run_message_by_message,
	where_one_after_the_other_fails_each_goes_alone, one_worker_alone_lets_nobody_pass_a_failure,
	a_conflict_between_transactions_is_run_again_at_once,
	what_fails_in_the_second_run_is_not_blamed_on_who_was_in_the_first,
	past_the_time_of_a_batch_the_rest_is_left_for_later,
	a_crash_is_counted_when_it_is_parked_not_each_time_the_key_was_busy,
	a_session_lost_in_the_midst_of_a_large_body_is_no_harm,
	a_large_body_given_up_leaves_the_worker_fit_for_work,
	a_retry_runs_when_it_is_due_until_its_attempts_are_used,
	a_retry_that_succeeds_leaves_its_marker_and_no_row,
	an_outage_gives_the_attempt_of_a_retry_back,
	a_retry_whose_sessions_end_is_a_crash_after_a_few_ever_later_ones,
	a_session_lost_while_nothing_runs_is_opened_again,
	a_message_whose_sessions_end_is_charged_for_it_after_a_few_ever_slower_ones,
	a_code_of_the_servers_own_that_a_handler_raised_itself_is_a_failure_of_its_message)

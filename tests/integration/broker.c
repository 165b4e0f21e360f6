/* SPDX-License-Identifier: MIT */
/* The tests' own publisher and inspector, on rabbitmq-c and on the console inside the broker. */
#include "harness.h"

#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { CONFIRMED = 1, PLAIN = 2 };

static char declared[64][96];
static size_t n_declared;

static amqp_bytes_t text_bytes(const char *s)
{
	return amqp_cstring_bytes(s);
}

static void must_reply(struct world *w, const char *what)
{
	amqp_rpc_reply_t r = amqp_get_rpc_reply(w->broker);
	if (r.reply_type == AMQP_RESPONSE_NORMAL)
		return;
	const char *why = "refused by the broker";
	if (r.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION)
		why = amqp_error_string2(r.library_error);
	ck_abort_msg("%s: %s", what, why);
}

void broker_restore(void)
{
	const char *answer = broker_eval(
		"application:set_env(rabbit, consumer_timeout, 1800000), "
		"application:set_env(rabbit, channel_tick_interval, 60000), "
		"application:set_env(rabbit, ssl_options, []), "
		"application:set_env(rabbit, auth_mechanisms, ['PLAIN', 'AMQPLAIN']), "
		"rabbit_registry:unregister(auth_mechanism, <<\"EXTERNAL\">>), "
		"rabbit_alarm:clear_alarm({resource_limit, memory, node()}), "
		"[rabbit_vhost:delete(V, <<\"test\">>) || V <- rabbit_vhost:list_names(), "
		"V =/= <<\"/\">>], "
		"[rabbit_auth_backend_internal:delete_user(U, <<\"test\">>) || "
		"L <- rabbit_auth_backend_internal:list_users(), {user, U} <- L, "
		"U =/= <<\"inboxd\">>]");
	ck_assert_msg(strstr(answer, "error") == NULL, "%s", answer);
}

void broker_open(struct world *w)
{
	char uri[512];
	(void)snprintf(uri, sizeof uri, "%s", environment("INBOXD_TEST_AMQP_URI"));
	struct amqp_connection_info info;
	ck_assert_int_eq(amqp_parse_url(uri, &info), AMQP_STATUS_OK);
	w->broker = amqp_new_connection();
	amqp_socket_t *socket = amqp_tcp_socket_new(w->broker);
	ck_assert_int_eq(amqp_socket_open(socket, info.host, info.port), AMQP_STATUS_OK);
	/* No heartbeat: a test may look away for long. */
	amqp_rpc_reply_t r = amqp_login(w->broker, info.vhost, 0, 131072, 0, AMQP_SASL_METHOD_PLAIN,
		info.user, info.password);
	ck_assert_msg(r.reply_type == AMQP_RESPONSE_NORMAL, "cannot log in to the broker");
	(void)amqp_channel_open(w->broker, CONFIRMED);
	must_reply(w, "channel.open");
	(void)amqp_confirm_select(w->broker, CONFIRMED);
	must_reply(w, "confirm.select");
	(void)amqp_channel_open(w->broker, PLAIN);
	must_reply(w, "channel.open");
}

static void disconnect(struct world *w)
{
	(void)amqp_connection_close(w->broker, AMQP_REPLY_SUCCESS);
	(void)amqp_destroy_connection(w->broker);
}

void broker_close(struct world *w)
{
	while (n_declared > 0) {
		(void)amqp_queue_delete(w->broker, PLAIN, text_bytes(declared[--n_declared]), 0, 0);
		must_reply(w, "queue.delete");
	}
	disconnect(w);
}

/* ---- queues ---------------------------------------------------------------------------------- */

static void remember(const char *queue)
{
	for (size_t i = 0; i < n_declared; i++)
		if (strcmp(declared[i], queue) == 0)
			return;
	ck_assert_uint_lt(n_declared, sizeof declared / sizeof declared[0]);
	(void)snprintf(declared[n_declared++], sizeof declared[0], "%s", queue);
}

amqp_table_entry_t entry_text(const char *name, const char *text)
{
	return (amqp_table_entry_t){.key = text_bytes(name),
		.value = {.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = text_bytes(text)}};
}

amqp_table_entry_t entry_int(const char *name, int64_t value)
{
	return (amqp_table_entry_t){.key = text_bytes(name),
		.value = {.kind = AMQP_FIELD_KIND_I64, .value.i64 = value}};
}

void queue_declare_with(
	struct world *w, const char *queue, int n_arguments, amqp_table_entry_t *arguments)
{
	(void)amqp_queue_declare(w->broker, PLAIN, text_bytes(queue), 0, 1, 0, 0,
		(amqp_table_t){.num_entries = n_arguments, .entries = arguments});
	must_reply(w, "queue.declare");
	remember(queue);
}

void queue_declare_limited(struct world *w, const char *queue, const char *type, int32_t limit)
{
	amqp_table_entry_t arguments[] = {
		entry_text("x-queue-type", type != NULL ? type : "classic"),
		entry_int("x-delivery-limit", limit)};
	/* Without a type none is named: some tests find a queue that was declared so. */
	queue_declare_with(w, queue, limit > 0 ? 2 : type != NULL ? 1 : 0, arguments);
}

void queue_declare(struct world *w, const char *queue, const char *type)
{
	queue_declare_limited(w, queue, type, 0);
}

void queue_delete(struct world *w, const char *queue)
{
	(void)amqp_queue_delete(w->broker, PLAIN, text_bytes(queue), 0, 0);
	must_reply(w, "queue.delete");
}

void queue_bind(struct world *w, const char *queue, const char *exchange, const char *routing_key)
{
	(void)amqp_queue_bind(w->broker, PLAIN, text_bytes(queue), text_bytes(exchange),
		text_bytes(routing_key), amqp_empty_table);
	must_reply(w, "queue.bind");
}

/* ---- publishing ------------------------------------------------------------------------------ */

/* Which of the messages published on channel 1 the broker has taken: confirms come in any order,
 * singly or for all up to a tag. */
static struct {
	bool *taken; /* by delivery tag */
	uint64_t size;
	uint64_t all_below; /* every tag up to here is taken */
	uint64_t count;
} confirms;

static void confirm_one(uint64_t tag)
{
	ck_assert_uint_lt(tag, confirms.size);
	if (!confirms.taken[tag])
		confirms.count++;
	confirms.taken[tag] = true;
}

static void confirm_all_up_to(uint64_t tag)
{
	while (confirms.all_below < tag)
		confirm_one(++confirms.all_below);
}

static void read_confirm(struct world *w)
{
	struct timeval timeout = {.tv_sec = 60};
	amqp_frame_t f;
	int rc = amqp_simple_wait_frame_noblock(w->broker, &f, &timeout);
	ck_assert_msg(rc == AMQP_STATUS_OK, "waiting for confirms: %s", amqp_error_string2(rc));
	ck_assert_int_eq(f.frame_type, AMQP_FRAME_METHOD);
	ck_assert_msg(f.payload.method.id == AMQP_BASIC_ACK_METHOD,
		"the broker did not take a message: method %#x", f.payload.method.id);
	const amqp_basic_ack_t *ack = f.payload.method.decoded;
	if (ack->multiple)
		confirm_all_up_to(ack->delivery_tag);
	else
		confirm_one(ack->delivery_tag);
	amqp_maybe_release_buffers(w->broker);
}

static void publish_raw(struct world *w, const char *queue,
	const amqp_basic_properties_t *properties, amqp_bytes_t body)
{
	if (++w->published >= confirms.size) {
		uint64_t size = confirms.size == 0 ? 4096 : 2 * confirms.size;
		confirms.taken = realloc(confirms.taken, size * sizeof *confirms.taken);
		ck_assert_ptr_nonnull(confirms.taken);
		memset(confirms.taken + confirms.size, 0,
			(size - confirms.size) * sizeof *confirms.taken);
		confirms.size = size;
	}
	int rc = amqp_basic_publish(
		w->broker, CONFIRMED, amqp_empty_bytes, text_bytes(queue), 1, 0, properties, body);
	ck_assert_msg(rc == AMQP_STATUS_OK, "publish: %s", amqp_error_string2(rc));
	if (w->published - confirms.count > 4000)
		while (w->published - confirms.count > 2000)
			read_confirm(w);
}

void publish(struct world *w, const char *queue, const struct msg *m)
{
	amqp_table_entry_t act = entry_text("act", m->act != NULL ? m->act : "");
	amqp_basic_properties_t p = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG, .delivery_mode = 2};
	if (m->id != NULL) {
		p._flags |= AMQP_BASIC_MESSAGE_ID_FLAG;
		p.message_id = text_bytes(m->id);
	}
	if (m->act != NULL) {
		p._flags |= AMQP_BASIC_HEADERS_FLAG;
		p.headers = (amqp_table_t){.num_entries = 1, .entries = &act};
	}
	const char *text = m->body != NULL ? m->body : "x";
	amqp_bytes_t body = {
		.len = m->size != 0 ? m->size : strlen(text), .bytes = (void *)(uintptr_t)text};
	publish_raw(w, queue, m->properties != NULL ? m->properties : &p, body);
}

void publish_confirm(struct world *w)
{
	while (confirms.count < w->published)
		read_confirm(w);
}

void publish_many(struct world *w, const char *queue, const char *prefix, int n)
{
	for (int i = 0; i < n; i++) {
		char id[96], body[32];
		(void)snprintf(id, sizeof id, "%s%d", prefix, i);
		(void)snprintf(body, sizeof body, "%d", i);
		publish(w, queue, &(struct msg){.id = id, .body = body});
	}
	publish_confirm(w);
}

int requeue_messages(struct world *w, const char *queue)
{
	uint64_t tag = 0;
	for (int n = 0;; n++) {
		amqp_rpc_reply_t r = amqp_basic_get(w->broker, PLAIN, text_bytes(queue), 0);
		ck_assert_int_eq(r.reply_type, AMQP_RESPONSE_NORMAL);
		if (r.reply.id == AMQP_BASIC_GET_EMPTY_METHOD) {
			if (n != 0)
				ck_assert_int_eq(amqp_basic_nack(w->broker, PLAIN, tag, 1, 1), 0);
			return n;
		}
		tag = ((amqp_basic_get_ok_t *)r.reply.decoded)->delivery_tag;
		amqp_message_t m;
		r = amqp_read_message(w->broker, PLAIN, &m, 0);
		ck_assert_int_eq(r.reply_type, AMQP_RESPONSE_NORMAL);
		amqp_destroy_message(&m);
		amqp_maybe_release_buffers(w->broker);
	}
}

int move_messages(struct world *w, const char *from, const char *to)
{
	int n = queue_state(from).ready;
	for (int i = 0; i < n; i++) {
		amqp_message_t m = message_get(w, from);
		publish_raw(w, to, &m.properties, m.body);
		publish_confirm(w);
		amqp_destroy_message(&m);
		amqp_maybe_release_buffers(w->broker);
	}
	return n;
}

/* Tags begin anew with each channel. */
void broker_reconnect(struct world *w)
{
	publish_confirm(w);
	disconnect(w);
	broker_open(w);
	w->published = confirms.count = confirms.all_below = 0;
	memset(confirms.taken, 0, confirms.size * sizeof *confirms.taken);
}

amqp_message_t message_get(struct world *w, const char *queue)
{
	amqp_message_t m;
	WAIT_FOR(queue_state(queue).ready > 0, 30);
	amqp_rpc_reply_t r = amqp_basic_get(w->broker, 2, amqp_cstring_bytes(queue), 1);
	ck_assert_int_eq(r.reply_type, AMQP_RESPONSE_NORMAL);
	ck_assert_int_eq(r.reply.id, AMQP_BASIC_GET_OK_METHOD);
	r = amqp_read_message(w->broker, 2, &m, 0);
	ck_assert_int_eq(r.reply_type, AMQP_RESPONSE_NORMAL);
	return m;
}

const amqp_field_value_t *message_header(const amqp_message_t *m, const char *name)
{
	const amqp_table_t *t = &m->properties.headers;
	for (int i = 0; i < t->num_entries; i++)
		if (t->entries[i].key.len == strlen(name) &&
			memcmp(t->entries[i].key.bytes, name, strlen(name)) == 0)
			return &t->entries[i].value;
	return NULL;
}

void is_text(amqp_bytes_t b, const char *text)
{
	ck_assert_msg(b.len == strlen(text) && (b.len == 0 || memcmp(b.bytes, text, b.len) == 0),
		"%.*s instead of %s", (int)b.len, (const char *)b.bytes, text);
}

/* ---- console --------------------------------------------------------------------------------- */

static int console_fd = -1;
static FILE *console;

static void console_open(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	(void)snprintf(address.sun_path, sizeof address.sun_path, "%s",
		environment("INBOXD_TEST_CONSOLE"));
	console_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(console_fd, 0);
	ck_assert_msg(connect(console_fd, (struct sockaddr *)&address, sizeof address) == 0,
		"no console of the broker at %s", address.sun_path);
	console = fdopen(console_fd, "r");
	ck_assert_ptr_nonnull(console);
}

void console_close(void)
{
	if (console != NULL)
		(void)fclose(console);
	console = NULL;
}

const char *broker_eval(const char *fmt, ...)
{
	static char answer[65536];
	va_list args;
	if (console == NULL)
		console_open();
	va_start(args, fmt);
	int n = vdprintf(console_fd, fmt, args);
	va_end(args);
	ck_assert_msg(n > 0 && dprintf(console_fd, ".\n") > 0, "the broker's console is gone");
	ck_assert_msg(
		fgets(answer, sizeof answer, console) != NULL, "the broker's console is gone");
	answer[strcspn(answer, "\n")] = '\0';
	return answer;
}

struct queue_state queue_state(const char *queue)
{
	struct queue_state s = {-1, -1, -1};
	/* What a quorum queue tells with the others is some seconds old. */
	const char *answer = broker_eval(
		"case rabbit_amqqueue:lookup(rabbit_misc:r(<<\"/\">>, queue, <<\"%s\">>)) of "
		"{ok, Q} -> case amqqueue:get_type(Q) of rabbit_quorum_queue -> "
		"[begin {ok, {_, N}, _} = ra:local_query(amqqueue:get_pid(Q), F), N end || F <- "
		"[fun rabbit_fifo:query_messages_ready/1, fun "
		"rabbit_fifo:query_messages_checked_out/1, fun rabbit_fifo:query_consumer_count/1]]; "
		"_ -> [V || {_, V} <- rabbit_amqqueue:info(Q, "
		"[messages_ready, messages_unacknowledged, consumers])] end; E -> E end",
		queue);
	if (sscanf(answer, "[%d,%d,%d]", &s.ready, &s.unacked, &s.consumers) != 3)
		return (struct queue_state){-1, -1, -1};
	return s;
}

/* For C, the broker's process of the channel that consumes from the queue. */
#define FOR_CONSUMER                                                                              \
	"[begin %s end || [{queue_name, {resource, _, _, <<\"%s\">>}}, {channel_pid, C} | _] <- " \
	"rabbit_amqqueue:consumers_all(<<\"/\">>)]"

const char *consuming_connection(const char *queue)
{
	return broker_eval(FOR_CONSUMER, "rabbit_channel:info(C, [connection])", queue);
}

void close_consuming_connection(const char *queue)
{
	const char *answer = broker_eval(FOR_CONSUMER,
		"[{connection, X}] = rabbit_channel:info(C, [connection]), "
		"rabbit_reader:shutdown(X, \"test\")",
		queue);
	ck_assert_str_eq(answer, "[ok]");
}

bool is_settled(const char *queue)
{
	for (int i = 0; i < 3; i++) {
		struct queue_state s = queue_state(queue);
		if (s.ready != 0 || s.unacked != 0)
			return false;
		sleep_ms(100);
	}
	return true;
}

void publish_nested(const char *queue)
{
	/* RabbitMQ 3 and 4 publish by other names. */
	const char *answer = broker_eval(
		"X = rabbit_misc:r(<<\"/\">>, exchange, <<>>), "
		"H = lists:foldl(fun(_, T) -> [{<<\"a\">>, table, T}] end, [], "
		"lists:seq(1, 17000)), "
		"case code:which(mc_amqpl) of "
		"non_existing -> rabbit_basic:publish(X, <<\"%s\">>, [{headers, H}], <<\"x\">>); "
		"_ -> P = list_to_tuple(['P_basic', undefined, undefined, H | "
		"lists:duplicate(11, undefined)]), "
		"{ok, M} = mc_amqpl:message(X, <<\"%s\">>, "
		"rabbit_basic:build_content(P, <<\"x\">>)), "
		"rabbit_queue_type:publish_at_most_once(X, M) end",
		queue, queue);
	ck_assert_msg(strstr(answer, "error") == NULL, "%s", answer);
}

void user_make(const char *user, const char *password)
{
	ck_assert_str_eq(
		broker_eval("rabbit_auth_backend_internal:add_user(<<\"%s\">>, <<\"%s\">>, "
			    "<<\"test\">>)",
			user, password),
		"ok");
}

void user_permit(const char *user, const char *write, const char *read)
{
	ck_assert_str_eq(
		broker_eval("rabbit_auth_backend_internal:set_permissions(<<\"%s\">>, <<\"/\">>, "
			    "<<\"^$\">>, <<\"^%s$\">>, <<\"^%s$\">>, <<\"test\">>)",
			user, write, read),
		"ok");
}

void broker_alarm(bool on)
{
	(void)broker_eval(on ? "rabbit_alarm:set_alarm({{resource_limit, memory, node()}, []})"
			     : "rabbit_alarm:clear_alarm({resource_limit, memory, node()})");
	/* It is told later than it is set. */
	WAIT_FOR(
		strcmp(broker_eval("rabbit_alarm:get_alarms() =/= []"), on ? "true" : "false") == 0,
		20);
}

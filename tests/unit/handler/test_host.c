/* SPDX-License-Identifier: MIT */
/* What is lent without a database: messages, options, check.  The rest is
 * tests/integration/test_host.c. */
#include "handler/host_call.h"

#include "base/fd.h"
#include "unit.h"

#include <stdio.h>

static struct handler handler;
static struct config *config;
static struct host *host;
static struct inboxd_call *call;
static struct host_item item;
static struct message message;
static struct source_message source;
static struct buf properties, headers, errors;

static void begin_with(const char *options)
{
	AUTO(buf) struct buf text = {0};
	buf_addf(&text,
		"database: {conninfo: dbname=x}\nbroker: {uri: amqp://localhost}\n"
		"consumers:\n  main:\n    queue: q\n    handler: any\n    options: %s\n",
		options);
	config = config_parse("test.yaml", buf_bytes(&text), &errors);
	ck_assert_msg(config != NULL, "%s", buf_str(&errors));
	host = host_new(&handler, config->consumers[0]);
	call = &host->whole;
}

static void begin(const char *body)
{
	struct props p = {
		.present = (1u << PROP_MESSAGE_ID) | (1u << PROP_HEADERS) | (1u << PROP_PRIORITY)};
	begin_with("{}");
	p.text[PROP_MESSAGE_ID] = bytes_str("m-1");
	p.text[PROP_HEADERS] = buf_bytes(&headers);
	p.number[PROP_PRIORITY] = 7;
	props_encode(&properties, &p);
	message = (struct message){.routing_key = bytes_str("rk"),
		.properties = buf_bytes(&properties),
		.body = bytes_str(body),
		.body_size = strlen(body),
		.redelivered = true};
	source_message_init(&source, &message);
	item = (struct host_item){.message = &source, .key = bytes_str("\001k"), .attempt = 3};
	call->item = &item;
}

static void end(void)
{
	host_free(host);
	config_free(config);
	buf_done(&properties);
	buf_done(&headers);
	buf_done(&errors);
}

#define is(value_, text_) ck_assert_msg(inboxd_is((value_), (text_)), "%s", (value_).data)
#define says(text_, part_) ck_assert_msg(strstr((text_), (part_)) != NULL, "%s", (text_))

START_TEST(gives_values_by_their_sources)
{
	field_add_string(&headers, "tenant", bytes_str("acme"));
	begin("{\"n\": 1.50, \"s\": \"\", \"null\": null, \"o\": {\"a\": [1, 2]}}");
	is(lend_get(call, "message_id"), "m-1");
	is(lend_get(call, "header:tenant"), "acme");
	is(lend_get(call, "routing_key"), "rk");
	is(lend_get(call, "property:priority"), "7");
	is(lend_get(call, "json:/n"), "1.50");
	is(lend_get(call, "json:/s"), "");
	is(lend_get(call, "json:/o"), "{\"a\": [1, 2]}");
	is(lend_get(call, "body"), (const char *)message.body.data);
	ck_assert_ptr_null(lend_get(call, "json:/null").data);
	ck_assert_ptr_null(lend_get(call, "json:/nothing").data);
	ck_assert_ptr_null(lend_get(call, "header:nothing").data);
	ck_assert_int_eq(call->mark, HOST_DONE);
	/* The body is copied once, whoever asks. */
	ck_assert_ptr_eq(lend_body(call).data, lend_get(call, "body").data);
	end();
}
END_TEST

START_TEST(garbage_is_not_taken_for_a_missing_value)
{
	begin("no json");
	ck_assert_ptr_null(lend_get(call, "json:/n").data);
	ck_assert_int_eq(call->mark, HOST_REJECT);
	says(call->reason, "json:/n: the body is not JSON");
	end();
	begin("{}");
	ck_assert_ptr_null(lend_get(call, "jsn:/n").data);
	ck_assert_int_eq(call->mark, HOST_REJECT);
	says(call->reason, "did you mean json:");
	end();
}
END_TEST

START_TEST(an_empty_body_is_there)
{
	begin("");
	message.body = bytes_of(NULL, 0);
	ck_assert_ptr_nonnull(lend_body(call).data);
	ck_assert_uint_eq(lend_body(call).size, 0);
	end();
}
END_TEST

START_TEST(gives_headers_with_their_types)
{
	int64_t i;
	double d;
	field_add_integer(&headers, "count", -5);
	field_add_string(&headers, "text", bytes_str("5"));
	buf_add(&headers, "\004flagt\001", 7);
	buf_add(&headers, "\005priceD\002\000\000\000\175", 12);
	begin("");
	ck_assert_int_eq(lend_header_kind(call, "count"), INBOXD_KIND_INTEGER);
	ck_assert_int_eq(lend_header_kind(call, "text"), INBOXD_KIND_STRING);
	ck_assert_int_eq(lend_header_kind(call, "flag"), INBOXD_KIND_BOOL);
	ck_assert_int_eq(lend_header_kind(call, "price"), INBOXD_KIND_DECIMAL);
	ck_assert_int_eq(lend_header_kind(call, "nothing"), INBOXD_KIND_ABSENT);
	ck_assert_int_eq(lend_header_int(call, "count", &i), 1);
	ck_assert_int_eq(i, -5);
	ck_assert_int_eq(lend_header_int(call, "flag", &i), 1);
	ck_assert_int_eq(i, 1);
	ck_assert_int_eq(lend_header_int(call, "text", &i), 0);
	ck_assert_int_eq(lend_header_int(call, "price", &i), 0);
	ck_assert_int_eq(lend_header_float(call, "price", &d), 1);
	ck_assert_double_eq(d, 1.25);
	ck_assert_int_eq(lend_header_float(call, "count", &d), 1);
	ck_assert_double_eq(d, -5);
	is(lend_header_name(call, 0), "count");
	is(lend_header_name(call, 3), "price");
	ck_assert_ptr_null(lend_header_name(call, 4).data);
	end();
}
END_TEST

START_TEST(gives_what_is_known_of_the_delivery)
{
	uint64_t n;
	begin("");
	ck_assert_uint_eq(lend_attempt(call), 3);
	ck_assert_int_eq(lend_redelivered(call), 1);
	ck_assert_int_eq(lend_property_int(call, "priority", &n), 1);
	ck_assert_uint_eq(n, 7);
	ck_assert_int_eq(lend_property_int(call, "timestamp", &n), 0);
	ck_assert_int_eq(lend_property_int(call, "message_id", &n), 0);
	ck_assert_int_eq(lend_property_int(call, "nonsense", &n), 0);
	end();
}
END_TEST

START_TEST(idempotency_keys_are_stable_and_differ_by_step)
{
	begin("");
	struct inboxd_value a = lend_idempotency_key(call, NULL);
	struct inboxd_value b = lend_idempotency_key(call, "charge");
	ck_assert(a.size > 20 && a.size <= 64);
	ck_assert_str_ne(a.data, b.data);
	is(lend_idempotency_key(call, "charge"), b.data);
	item.key = bytes_of(NULL, 0);
	ck_assert_ptr_null(lend_idempotency_key(call, NULL).data);
	end();
}
END_TEST

START_TEST(a_million_made_up_sources_do_not_fill_the_memory)
{
	char text[64];
	begin("[]");
	for (int i = 0; i < 5000; i++) {
		(void)snprintf(text, sizeof text, "json:/%d", i);
		ck_assert_ptr_null(lend_get(call, text).data);
	}
	ck_assert_uint_le(HASH_COUNT(host->sources), 1024);
	ck_assert_int_eq(call->mark, HOST_DONE);
	end();
}
END_TEST

START_TEST(says_what_is_wrong_with_a_source_or_statement)
{
	begin("");
	ck_assert_ptr_null(lend_source_error(call, "header:x"));
	says(lend_source_error(call, "heder:x"), "header:x");
	ck_assert_ptr_null(lend_statement_error(call, "SELECT 1"));
	ck_assert_ptr_null(lend_statement_error(call, "ROLLBACK TO x"));
	says(lend_statement_error(call, "/* */ Commit"), "belongs to inboxd");
	says(lend_statement_error(call, "copy t from stdin"), "copy_begin");
	says(lend_statement_error(call, " "), "no statement");
	end();
}
END_TEST

/* ---- options and check --------------------------------------------------------------- */

START_TEST(gives_options_by_their_paths)
{
	begin_with("{text: hello, list: [a, b], map: {x: 1, y/z: 2}, nothing: null}");
	is(lend_option(call, "text"), "hello");
	is(lend_option(call, "list/1"), "b");
	is(lend_option(call, "map/x"), "1");
	is(lend_option(call, "map/y~1z"), "2");
	ck_assert_ptr_null(lend_option(call, "nothing").data);
	ck_assert_ptr_null(lend_option(call, "list").data);
	ck_assert_uint_eq(lend_option_count(call, ""), 4);
	ck_assert_uint_eq(lend_option_count(call, "list"), 2);
	ck_assert_uint_eq(lend_option_count(call, "text"), 1);
	ck_assert_uint_eq(lend_option_count(call, "no"), 0);
	is(lend_option_name(call, "map", 1), "y/z");
	ck_assert_ptr_null(lend_option_name(call, "map", 2).data);
	ck_assert_ptr_null(lend_option_name(call, "list", 0).data);
	end();
}
END_TEST

static int32_t check_options(const struct inboxd_host *h, struct inboxd_call *c)
{
	static const char *const known[] = {"limit", "table"};
	/* Forgets to return what was reported. */
	(void)h->only_options(c, "", 2, known);
	(void)h->bad_option(c, "limit", "limit is a number");
	return INBOXD_DONE;
}

START_TEST(check_reports_each_wrong_option_at_its_place)
{
	handler.entries.check = check_options;
	begin_with("\n      limits: 5\n      limit: x\n      a/b: 1");
	ck_assert_int_eq(host_check(host, &errors), RC_FATAL);
	const char *text = buf_str(&errors);
	says(text, "test.yaml:8:");
	says(text, "did you mean limit?");
	says(text, "test.yaml:9:");
	says(text, "limit is a number");
	says(text, "test.yaml:10:");
	says(text, "no option \"a/b\"; it has limit, table");
	end();
}
END_TEST

static int32_t check_silently(const struct inboxd_host *h, struct inboxd_call *c)
{
	(void)h;
	(void)c;
	return INBOXD_REJECT;
}

static int32_t check_with_nonsense(const struct inboxd_host *h, struct inboxd_call *c)
{
	/* None of this is there yet; nothing of it may crash. */
	const struct inboxd_value v = h->get(c, "body");
	struct inboxd_rows *rows = NULL;
	uint32_t n = 0;
	if (v.data != NULL || h->body(c).data != NULL || h->conn(c) != NULL ||
		h->batch_size(c) != 0)
		return INBOXD_DONE;
	if (h->exec(c, "SELECT 1", 0, NULL, &rows) == INBOXD_DONE ||
		h->queue(c, "SELECT 1", 0, NULL) == INBOXD_DONE ||
		h->copy_begin(c, "COPY t FROM STDIN") == INBOXD_DONE ||
		h->copy_data(c, "x", 1) == INBOXD_DONE || h->copy_end(c) == INBOXD_DONE ||
		h->prepare(c, "SELECT 1", "", NULL, &n) == INBOXD_DONE ||
		h->set_result(c, "x", 1, NULL) == INBOXD_DONE)
		return INBOXD_DONE;
	return 77;
}

START_TEST(check_always_says_why)
{
	handler.entries.check = check_silently;
	begin_with("{}");
	ck_assert_int_eq(host_check(host, &errors), RC_FATAL);
	says(buf_str(&errors), "refused without giving a reason");
	end();
	handler.entries.check = check_with_nonsense;
	begin_with("{}");
	ck_assert_int_eq(host_check(host, &errors), RC_FATAL);
	ck_assert_uint_gt(errors.size, 0);
	end();
	handler.entries.check = NULL;
	begin_with("{}");
	ck_assert_int_eq(host_check(host, &errors), RC_OK);
	end();
}
END_TEST

UNIT_SUITE("handler/host", gives_values_by_their_sources, garbage_is_not_taken_for_a_missing_value,
	an_empty_body_is_there, gives_headers_with_their_types, gives_what_is_known_of_the_delivery,
	idempotency_keys_are_stable_and_differ_by_step,
	a_million_made_up_sources_do_not_fill_the_memory,
	says_what_is_wrong_with_a_source_or_statement, gives_options_by_their_paths,
	check_reports_each_wrong_option_at_its_place, check_always_says_why)

/* SPDX-License-Identifier: MIT */
#include "message/source.h"

#include "maker.h"
#include "unit.h"

static struct maker mk;
static struct buf out;
static struct err err;

static enum source_result get(const char *source, const struct source_message *sm)
{
	struct source s;
	buf_clear(&out);
	err.text[0] = '\0';
	ck_assert_msg(source_parse(source, &s, &err) == RC_OK, "%s: %s", source, err.text);
	enum source_result result = source_get(&s, sm, &out, &err);
	source_done(&s);
	return result;
}

static void expect(const char *source, const struct source_message *sm, const char *text)
{
	enum source_result result = get(source, sm);
	ck_assert_msg(result == SOURCE_PRESENT, "%s: result %d, %s", source, (int)result, err.text);
	ck_assert_str_eq(buf_str(&out), text);
	ck_assert_uint_eq(out.size, strlen(text));
}

static void expect_missing(const char *source, const struct source_message *sm)
{
	ck_assert_int_eq(get(source, sm), SOURCE_MISSING);
	ck_assert_uint_eq(out.size, 0);
}

static void expect_unusable(const char *source, const struct source_message *sm, const char *reason)
{
	ck_assert_int_eq(get(source, sm), SOURCE_UNUSABLE);
	ck_assert_uint_eq(out.size, 0);
	ck_assert_msg(strstr(err.text, reason) != NULL, "%s", err.text);
	ck_assert_int_eq(err.rc, RC_REJECT);
}

START_TEST(reads_every_kind_of_source)
{
	maker_begin(&mk);
	maker_text(&mk, PROP_MESSAGE_ID, "m-1");
	maker_text(&mk, PROP_TYPE, "order");
	mk.props.present |= 1u << PROP_TIMESTAMP;
	mk.props.number[PROP_TIMESTAMP] = 1700000000123;
	maker_header(&mk, "x-id", "h-1");
	maker_body(&mk, "{\"id\":\"j-1\",\"n\":1.50,\"t\":true}");
	const struct source_message *sm = maker_end(&mk);
	expect("message_id", sm, "m-1");
	expect("property:message_id", sm, "m-1");
	expect("property:type", sm, "order");
	expect("property:timestamp", sm, "1700000000123");
	expect("header:x-id", sm, "h-1");
	expect("json:/id", sm, "j-1");
	expect("json:/n", sm, "1.50");
	expect("json:/t", sm, "true");
	expect("routing_key", sm, "rk");
	expect("body", sm, "{\"id\":\"j-1\",\"n\":1.50,\"t\":true}");
	expect("json:", sm, "{\"id\":\"j-1\",\"n\":1.50,\"t\":true}");
}
END_TEST

START_TEST(missing_is_neither_empty_nor_an_error)
{
	maker_begin(&mk);
	maker_text(&mk, PROP_TYPE, "");
	maker_header(&mk, "empty", "");
	maker_header_raw(&mk, "void", "V", 1);
	maker_body(&mk, "{\"null\":null,\"empty\":\"\"}");
	const struct source_message *sm = maker_end(&mk);
	expect_missing("message_id", sm);
	expect_missing("property:app_id", sm);
	expect_missing("property:priority", sm);
	expect_missing("header:none", sm);
	expect_missing("header:void", sm);
	expect_missing("json:/none", sm);
	expect_missing("json:/null", sm);
	expect_missing("cloudevents", sm);
	expect("property:type", sm, "");
	expect("header:empty", sm, "");
	expect("json:/empty", sm, "");
}
END_TEST

START_TEST(json_strings_may_hold_a_nul_and_numbers_stay_tokens)
{
	maker_begin(&mk);
	maker_body(&mk, "{\"z\":\"a\\u0000b\",\"n\":[9007199254740993,1e400,-0]}");
	const struct source_message *sm = maker_end(&mk);
	ck_assert_int_eq(get("json:/z", sm), SOURCE_PRESENT);
	ck_assert_uint_eq(out.size, 3);
	ck_assert_mem_eq(out.data, "a\0b", 3);
	expect("json:/n/0", sm, "9007199254740993");
	expect("json:/n/1", sm, "1e400");
	expect("json:/n/2", sm, "-0");
}
END_TEST

START_TEST(containers_are_texts_for_handlers_and_unusable_for_keys)
{
	struct source s;
	maker_begin(&mk);
	maker_body(&mk, "{\"a\":[1, 2],\"o\":{}}");
	maker_header_raw(&mk, "list", "A\0\0\0\2t\1", 7);
	maker_header_raw(&mk, "table", "F\0\0\0\0", 5);
	const struct source_message *sm = maker_end(&mk);
	expect("json:/a", sm, "[1, 2]");
	expect("json:/o", sm, "{}");
	ck_assert_int_eq(source_parse("json:/a", &s, &err), RC_OK);
	buf_clear(&out);
	ck_assert_int_eq(source_get_scalar(&s, sm, &out, &err), SOURCE_UNUSABLE);
	ck_assert_str_eq(err.text, "json:/a is an array, not a single value");
	ck_assert_uint_eq(out.size, 0);
	source_done(&s);
	expect_unusable("header:list", sm, "header:list is an array, not a single value");
	expect_unusable("header:table", sm, "header:table is a table");
}
END_TEST

START_TEST(header_kinds_other_than_string_have_texts)
{
	maker_begin(&mk);
	maker_header_raw(&mk, "int", "I\0\0\0\5", 5);
	maker_header_raw(&mk, "bool", "t\1", 2);
	maker_header_raw(&mk, "dec", "D\2\0\0\4\xd2", 6);
	maker_header_raw(&mk, "time", "T\0\0\0\0\0\0\0\7", 9);
	maker_header_raw(&mk, "bytes", "x\0\0\0\2\xff\0", 7);
	const struct source_message *sm = maker_end(&mk);
	expect("header:int", sm, "5");
	expect("header:bool", sm, "true");
	expect("header:dec", sm, "12.34");
	expect("header:time", sm, "7");
	ck_assert_int_eq(get("header:bytes", sm), SOURCE_PRESENT);
	ck_assert_uint_eq(out.size, 2);
	ck_assert_mem_eq(out.data, "\xff\0", 2);
}
END_TEST

START_TEST(an_encoded_body_is_not_taken_for_json)
{
	static const char *const fine[] = {
		"", "identity", "Binary", "7bit", "8BIT", "UTF-8", "utf8"};
	static const char *const refused[] = {"gzip", "deflate", "br", "base64", "utf-16",
		"latin-1", "gzip, identity", "utf-8x", "utf-"};
	for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++) {
		maker_begin(&mk);
		maker_text(&mk, PROP_CONTENT_ENCODING, fine[i]);
		maker_body(&mk, "{\"id\":1}");
		expect("json:/id", maker_end(&mk), "1");
	}
	for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
		maker_begin(&mk);
		maker_text(&mk, PROP_CONTENT_ENCODING, refused[i]);
		maker_body(&mk, "{\"id\":1}");
		const struct source_message *sm = maker_end(&mk);
		expect_unusable(
			"json:/id", sm, "cannot read JSON from a body with content-encoding");
		ck_assert_ptr_nonnull(strstr(err.text, refused[i]));
		expect("body", sm, "{\"id\":1}");
	}
}
END_TEST

START_TEST(a_body_that_is_no_json_is_unusable_and_says_where)
{
	static const char *const bad[] = {
		"{\"id\":\"\\ud800\"}", "nan", "{\"id\":1", "{\"id\":1}x", "", "\x1f\x8b\x08"};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		maker_begin(&mk);
		maker_body(&mk, bad[i]);
		const struct source_message *sm = maker_end(&mk);
		expect_unusable("json:/id", sm, "the body is not JSON: ");
		ck_assert_ptr_nonnull(strstr(err.text, " at byte "));
		expect("routing_key", sm, "rk");
	}
}
END_TEST

START_TEST(a_streamed_body_is_unusable)
{
	maker_begin(&mk);
	mk.message.body_size = 100000000;
	const struct source_message *sm = maker_end(&mk);
	expect_unusable("body", sm, "too large");
	expect_unusable("json:/id", sm, "too large");
	expect("routing_key", sm, "rk");
}
END_TEST

START_TEST(malformed_properties_make_their_sources_unusable_only)
{
	struct source_message sm;
	struct message m = {.properties = bytes_str("\xff\xff"), .routing_key = bytes_str("rk")};
	source_message_init(&sm, &m);
	ck_assert(!sm.has_props);
	expect_unusable("message_id", &sm, "malformed");
	expect_unusable("header:a", &sm, "malformed");
	expect_unusable("property:type", &sm, "malformed");
	expect_unusable("cloudevents", &sm, "malformed");
	expect_unusable("json:/id", &sm, "malformed");
	expect("routing_key", &sm, "rk");
	expect("body", &sm, "");
}
END_TEST

START_TEST(headers_that_break_off_are_not_just_missing)
{
	maker_begin(&mk);
	maker_header(&mk, "a", "1");
	maker_header_raw(&mk, "b", "?", 1);
	const struct source_message *sm = maker_end(&mk);
	expect_unusable("header:c", sm, "headers are malformed");
	expect_unusable("cloudevents", sm, "headers are malformed");
}
END_TEST

/* ---- CloudEvents ----------------------------------------------------------------- */

static const struct source_message *binary_event(
	const char *id_header, const char *id, const char *source_header, const char *source)
{
	maker_begin(&mk);
	maker_header(&mk, id_header, id);
	maker_header(&mk, source_header, source);
	return maker_end(&mk);
}

static void expect_event(const struct source_message *sm, const char *source, const char *id)
{
	size_t n = strlen(source);
	ck_assert_msg(get("cloudevents", sm) == SOURCE_PRESENT, "%s", err.text);
	ck_assert_uint_eq(out.size, n + 1 + strlen(id));
	ck_assert_str_eq(buf_str(&out), source);
	ck_assert_str_eq(buf_str(&out) + n + 1, id);
}

START_TEST(binary_events_come_with_any_known_prefix)
{
	expect_event(binary_event("cloudEvents:id", "7", "cloudEvents:source", "/a"), "/a", "7");
	expect_event(binary_event("cloudEvents_id", "7", "cloudEvents_source", "/a"), "/a", "7");
	expect_event(binary_event("ce-id", "7", "ce-source", "/a"), "/a", "7");
	expect_event(binary_event("ce_id", "7", "ce_source", "/a"), "/a", "7");
	expect_event(binary_event("CE-Id", "7", "Ce-Source", "/a"), "/a", "7");
	expect_event(binary_event("cloudEvents:id", "7", "cloudEvents_source", "/a"), "/a", "7");
	expect_missing("cloudevents", binary_event("cloudEvents-id", "7", "ce-source", "/a"));
	expect_missing("cloudevents", binary_event("id", "7", "source", "/a"));
}
END_TEST

static const struct source_message *structured_event(const char *type, const char *body)
{
	maker_begin(&mk);
	maker_text(&mk, PROP_CONTENT_TYPE, type);
	maker_body(&mk, body);
	return maker_end(&mk);
}

START_TEST(structured_events_are_read_from_the_body)
{
	const char *body = "{\"specversion\":\"1.0\",\"id\":\"7\",\"source\":\"/a\"}";
	expect_event(structured_event("application/cloudevents+json", body), "/a", "7");
	expect_event(
		structured_event("application/cloudevents+json; charset=utf-8", body), "/a", "7");
	expect_event(
		structured_event("Application/CloudEvents+JSON;charset=UTF-8", body), "/a", "7");
	expect_event(structured_event("application/cloudevents+json ;x=y", body), "/a", "7");
	expect_missing("cloudevents", structured_event("application/json", body));
	expect_missing(
		"cloudevents", structured_event("application/cloudevents+json", "{\"id\":1}"));
	expect_unusable("cloudevents", structured_event("application/cloudevents+json", "{"),
		"the body is not JSON");
	expect_unusable("cloudevents",
		structured_event("application/cloudevents+json", "{\"id\":[],\"source\":\"/a\"}"),
		"json:/id is an array");
}
END_TEST

START_TEST(batches_and_other_formats_of_events_are_refused)
{
	expect_unusable("cloudevents",
		structured_event("application/cloudevents-batch+json; charset=utf-8", "[]"),
		"many events in one message");
	expect_unusable("cloudevents", structured_event("application/cloudevents+avro", "x"),
		"only application/cloudevents+json");
	expect_unusable("cloudevents", structured_event("application/cloudevents+jsonx", "{}"),
		"only application/cloudevents+json");
}
END_TEST

START_TEST(an_event_that_contradicts_itself_is_unusable)
{
	maker_begin(&mk);
	maker_header(&mk, "cloudEvents:source", "/a");
	maker_header(&mk, "cloudEvents:id", "7");
	maker_header(&mk, "cloudEvents_id", "8");
	expect_unusable("cloudevents", maker_end(&mk), "two different values of id");
	maker_begin(&mk);
	maker_header(&mk, "cloudEvents:source", "/a");
	maker_header(&mk, "cloudEvents:id", "7");
	maker_header(&mk, "cloudEvents_id", "7");
	expect_event(maker_end(&mk), "/a", "7");
	maker_begin(&mk);
	maker_text(&mk, PROP_CONTENT_TYPE, "application/cloudevents+json");
	maker_header(&mk, "cloudEvents:source", "/b");
	maker_body(&mk, "{\"id\":\"7\",\"source\":\"/a\"}");
	expect_unusable("cloudevents", maker_end(&mk), "two different values of source");
}
END_TEST

START_TEST(an_event_without_one_half_of_its_identity_is_missing)
{
	expect_missing("cloudevents", binary_event("cloudEvents:id", "7", "other", "/a"));
	expect_missing("cloudevents", binary_event("other", "7", "cloudEvents:source", "/a"));
	expect_missing("cloudevents", binary_event("ce-id", "", "ce-source", "/a"));
	expect_missing("cloudevents",
		structured_event(
			"application/cloudevents+json", "{\"id\":\"\",\"source\":\"/a\"}"));
}
END_TEST

START_TEST(an_event_says_where_its_source_ends)
{
	size_t size = 0;
	const struct source_message *sm = binary_event("ce-id", "bc", "ce-source", "a");
	buf_clear(&out);
	buf_add_str(&out, "before");
	ck_assert_int_eq(source_get_cloudevent(sm, &out, &size, &err), SOURCE_PRESENT);
	ck_assert_str_eq(buf_str(&out), "beforeabc");
	ck_assert_uint_eq(size, 1);
}
END_TEST

/* ---- names ----------------------------------------------------------------------- */

static void expect_error(const char *text, const char *hint)
{
	struct source s = {0};
	ck_assert_msg(source_parse(text, &s, &err) == RC_FATAL, "taken: %s", text);
	ck_assert_msg(strstr(err.text, hint) != NULL, "%s: %s", text, err.text);
}

START_TEST(wrong_names_come_with_what_would_be_right)
{
	expect_error("", "a source is message_id, header:NAME");
	expect_error("mesage_id", "did you mean message_id?");
	expect_error("message-id", "did you mean message_id?");
	expect_error("headers:x-id", "did you mean header:x-id?");
	expect_error("Header:x-id", "did you mean header:x-id?");
	expect_error("/id", "did you mean json:/id?");
	expect_error("type", "did you mean property:type?");
	expect_error("app_id", "did you mean property:app_id?");
	expect_error("cloudevent", "did you mean cloudevents?");
	expect_error("something entirely else", "a source is message_id");
	expect_error("message_id ", "did you mean message_id?");
	expect_error("property:message-id", "did you mean property:message_id?");
	expect_error("property:x-tenant", "header:x-tenant");
	expect_error("property:headers", "header:NAME");
	expect_error("headers", "header:NAME");
	expect_error("header:", "needs a name");
	expect_error("json:id", "begins with a slash");
	expect_error("json:/a~", "~0");
	expect_error("delivery_tag", "cannot tell a message from its copy");
	expect_error("Delivery_Tag", "cannot tell a message from its copy");
	expect_error("property:delivery_tag", "cannot tell a message from its copy");
	expect_error("redelivered", "not which message it is");
	expect_error("property:redelivered", "which message it is");
	expect_error("exchange", "same for all");
	expect_error("property:routing_key", "write routing_key");
}
END_TEST

START_TEST(a_header_name_longer_than_the_wire_allows_is_refused)
{
	char text[300] = "header:";
	memset(text + 7, 'x', 255);
	struct source s;
	ck_assert_int_eq(source_parse(text, &s, &err), RC_OK);
	source_done(&s);
	memset(text + 7, 'x', 256);
	expect_error(text, "at most 255 bytes");
}
END_TEST

START_TEST(writes_the_text_it_was_read_from)
{
	static const char *const texts[] = {"message_id", "header:x, y|z", "json:/a~1b",
		"json:", "property:type", "routing_key", "body", "cloudevents"};
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		struct source s;
		ck_assert_int_eq(source_parse(texts[i], &s, &err), RC_OK);
		buf_clear(&out);
		source_text(&s, &out);
		ck_assert_str_eq(buf_str(&out), texts[i]);
		source_done(&s);
		source_done(&s);
	}
}
END_TEST

static const char *unfit(const char *text)
{
	struct source s;
	ck_assert_int_eq(source_parse(text, &s, &err), RC_OK);
	const char *why = source_unfit_for_key(&s);
	source_done(&s);
	return why != NULL ? why : "(fit)";
}

START_TEST(knows_what_cannot_tell_messages_apart)
{
	static const char *const by_broker[] = {"header:x-death", "header:x-first-death-queue",
		"header:x-first-death-reason", "header:x-last-death-exchange",
		"header:x-delivery-count", "header:x-acquired-count"};
	static const char *const fit[] = {"message_id", "body", "routing_key", "cloudevents",
		"json:/correlation_id", "header:x-deaths", "header:x-delivery-counter",
		"header:timestamp", "header:x-stream-offset", "property:type", "property:app_id"};
	for (size_t i = 0; i < sizeof by_broker / sizeof by_broker[0]; i++)
		ck_assert_ptr_nonnull(strstr(unfit(by_broker[i]), "changes from delivery"));
	for (size_t i = 0; i < sizeof fit / sizeof fit[0]; i++)
		ck_assert_str_eq(unfit(fit[i]), "(fit)");
	ck_assert_ptr_nonnull(strstr(unfit("property:timestamp"), "a time"));
	ck_assert_ptr_nonnull(strstr(unfit("header:timestamp_in_ms"), "a time"));
	ck_assert_ptr_nonnull(strstr(unfit("property:correlation_id"), "shared"));
	ck_assert_ptr_nonnull(strstr(unfit("property:delivery_mode"), "stored"));
	ck_assert_ptr_nonnull(strstr(unfit("property:priority"), "urgent"));
	ck_assert_ptr_nonnull(strstr(unfit("property:expiration"), "dead-letters"));
	ck_assert_ptr_nonnull(strstr(unfit("header:x-shovelled-timestamp"), "another one"));
}
END_TEST

UNIT_SUITE("message/source", reads_every_kind_of_source, missing_is_neither_empty_nor_an_error,
	json_strings_may_hold_a_nul_and_numbers_stay_tokens,
	containers_are_texts_for_handlers_and_unusable_for_keys,
	header_kinds_other_than_string_have_texts, an_encoded_body_is_not_taken_for_json,
	a_body_that_is_no_json_is_unusable_and_says_where, a_streamed_body_is_unusable,
	malformed_properties_make_their_sources_unusable_only,
	headers_that_break_off_are_not_just_missing, binary_events_come_with_any_known_prefix,
	structured_events_are_read_from_the_body, batches_and_other_formats_of_events_are_refused,
	an_event_that_contradicts_itself_is_unusable,
	an_event_without_one_half_of_its_identity_is_missing, an_event_says_where_its_source_ends,
	wrong_names_come_with_what_would_be_right,
	a_header_name_longer_than_the_wire_allows_is_refused, writes_the_text_it_was_read_from,
	knows_what_cannot_tell_messages_apart)

/* SPDX-License-Identifier: MIT */
/* Kinds of errors that the files of tests/config/broken do not show, or do not show from all sides.
 */
#include "fixture.h"
#include "unit.h"

#include <stdlib.h>

/* One option line of a consumer that is wrong in one way: it stands in line 5, below four blanks.
 */
struct sample {
	const char *option;
	uint32_t column;
	const char *what; /* behind "consumers.orders." */
	const char *hint;
};

static void check_sample(const struct sample *s)
{
	char *text = xasprintf(CONSUMER("    %s\n"), s->option);
	char *errors = xasprintf("inboxd.yaml:5:%u: consumers.orders.%s\n"
				 "      %s\n%*s^\n  hint: %s\n",
		s->column, s->what, s->option, (int)s->column + 1, "", s->hint);
	expect_errors(text, errors);
	free(text);
	free(errors);
}

static void check_samples(const struct sample *samples, size_t n)
{
	for (size_t i = 0; i < n; i++)
		check_sample(&samples[i]);
}

#define CHECK(...)                                                          \
	do {                                                                \
		static const struct sample samples[] = {__VA_ARGS__};       \
		check_samples(samples, sizeof samples / sizeof samples[0]); \
	} while (0)

#define COUNT_RANGE "must be a whole number from 1 to 64, not "
#define DECIMAL "write decimal digits alone"

START_TEST(refuses_counts_that_are_none)
{
	CHECK({"workers: 0", 14, "workers " COUNT_RANGE "\"0\"", "the default is 1"},
		{"workers: 65", 14, "workers " COUNT_RANGE "\"65\"", "the default is 1"},
		{"workers: -1", 14, "workers " COUNT_RANGE "\"-1\"", "it cannot be negative"},
		{"workers: two", 14, "workers " COUNT_RANGE "\"two\"", DECIMAL},
		{"workers: \"\"", 14, "workers " COUNT_RANGE "an empty text", DECIMAL},
		{"workers: 1.5", 14, "workers " COUNT_RANGE "\"1.5\"",
			"write a whole number, of a smaller unit if there is one"},
		{"workers: 99999999999999999999", 14,
			"workers " COUNT_RANGE "\"99999999999999999999\"", "it is beyond 64 bits"},
		{"workers: 4294967297", 14, "workers " COUNT_RANGE "\"4294967297\"",
			"the default is 1"},
		{"workers: {}", 14, "workers " COUNT_RANGE "a map",
			"workers: processes, each with a connection; more than one loses order"},
		{"workers: ~", 14, "workers has no value",
			"~ stands for nothing; put it in quotes if the text is meant"},
		{"workers:", 13, "workers has no value",
			"give it one, or remove the line: the default is 1"});
}
END_TEST

START_TEST(refuses_values_at_both_ends_of_their_ranges)
{
	static const struct {
		const char *option, *low, *high, *below, *above;
	} ranges[] = {
		{"workers", "1", "64", "0", "65"},
		{"prefetch", "1", "65535", NULL, "65536"},
		{"prefetch_bytes", "1KiB", "64GiB", "1023", "65GiB"},
		{"max_message_bytes", "1KiB", "512MiB", "1023B", "536870913"},
		{"handler_timeout", "10ms", "15m", "9ms", "86400001ms"},
		{"crash_limit", "1", "1000", "0", "1001"},
		{"delivery_limit", "1", "1000000", "0", "1000001"},
	};
	for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
		const char *good[] = {ranges[i].low, ranges[i].high};
		const char *bad[] = {ranges[i].below, ranges[i].above};
		for (size_t k = 0; k < 2; k++) {
			struct fixture f;
			char *text = xasprintf(CONSUMER("    %s: %s\n"), ranges[i].option, good[k]);
			config_free(config_of(text));
			free(text);
			if (bad[k] == NULL)
				continue;
			text = xasprintf(CONSUMER("    %s: %s\n"), ranges[i].option, bad[k]);
			fixture_open(&f, text);
			ck_assert_msg(f.config == NULL, "%s", text);
			ck_assert_ptr_nonnull(strstr(buf_str(&f.errors), " must be "));
			fixture_done(&f);
			free(text);
		}
	}
}
END_TEST

START_TEST(refuses_durations_and_sizes_without_sense)
{
	CHECK({"handler_timeout: 30", 22,
		      "handler_timeout must be a duration from 10ms to 1d, not \"30\"",
		      "durations end in ms, s, m, h or d, without a blank: 30s"},
		{"handler_timeout: 0s", 22,
			"handler_timeout must be a duration from 10ms to 1d, not \"0s\"",
			"the default is 30s"},
		{"prefetch_bytes: 1GB", 21,
			"prefetch_bytes must be a size from 1KiB to 64GiB, not \"1GB\"",
			"sizes end in B, KiB, MiB or GiB, without a blank: 16MiB"},
		{"retry: {jitter: 101%}", 21,
			"retry.jitter must be a percentage from 0% to 100%, not \"101%\"",
			"the default is 20%"},
		{"retry: {delays: [0s]}", 22,
			"retry.delays must be a duration from 1ms to 30d, not \"0s\"",
			"the default is [10s, 1m, 10m]"},
		{"retry: {delays: [[1s]]}", 22,
			"retry.delays must be a duration from 1ms to 30d, not a list",
			"delays: then one try after each of these"});
}
END_TEST

START_TEST(refuses_sqlstates_that_are_none_and_words_that_say_nothing)
{
	CHECK({"retry: {sqlstates: {p0001: reject}}", 25, "retry.sqlstates.p0001 is no SQLSTATE",
		      "five digits and capitals, as in 23505, or two for a whole class, as in 23"},
		{"retry: {sqlstates: {235: reject}}", 25, "retry.sqlstates.235 is no SQLSTATE",
			"five digits and capitals, as in 23505, or two for a whole class, as in "
			"23"},
		{"retry: {sqlstates: {01: reject}}", 25, "retry.sqlstates.01 is the SQLSTATE of no error",
			"classes 00, 01 and 02 are success, warnings and \"no data\""},
		{"retry: {sqlstates: {00000: retry}}", 25,
			"retry.sqlstates.00000 is the SQLSTATE of no error",
			"classes 00, 01 and 02 are success, warnings and \"no data\""},
		{"retry: {sqlstates: {23505: ignore}}", 32,
			"retry.sqlstates.23505 must be retry or reject",
			"retry: it may pass; reject: this message can never succeed"},
		{"retry: {sqlstates: {23505: [retry]}}", 32,
			"retry.sqlstates.23505 must be retry or reject",
			"retry: it may pass; reject: this message can never succeed"},
		{"retry: {sqlstates: [23505]}", 24, "retry.sqlstates must be a map, not a list",
			"as in {P0001: reject, 23: retry}"});
}
END_TEST

START_TEST(refuses_words_that_are_none_and_names_the_nearest)
{
	CHECK({"on_missing_key: prak", 21,
		      "on_missing_key must be park, body or process, not \"prak\"",
		      "did you mean park?"},
		{"on_missing_key: skip", 21,
			"on_missing_key must be park, body or process, not \"skip\"",
			"the default is park"},
		{"on_missing_key: proc", 21,
			"on_missing_key must be park, body or process, not \"proc\"",
			"did you mean process?"});
}
END_TEST

START_TEST(refuses_names_and_handlers_that_cannot_be_some)
{
#define HANDLER "handler must be the bare name of a handler, not "
	expect_errors("consumers:\n  a: {queue: a, handler: /opt/a.so}\n",
		"inboxd.yaml:2:26: consumers.a." HANDLER "\"/opt/a.so\"\n"
		"    a: {queue: a, handler: /opt/a.so}\n"
		"                           ^\n"
		"  hint: its directory goes into handlers.directory\n");
	expect_errors("consumers:\n  a: {queue: a, handler: \"é\"}\n",
		"inboxd.yaml:2:26: consumers.a." HANDLER "\"é\"\n"
		"    a: {queue: a, handler: \"é\"}\n"
		"                           ^\n"
		"  hint: letters, digits, \"_\", \".\" and \"-\", at most 63\n");
	CHECK({"identity: a/b", 15,
		      "identity must be a name: letters, digits, \"_\", \".\" and \"-\", at most "
		      "63, not \"a/b\"",
		      "identity: the name its keys have in the inbox"},
		{"identity: \"\"", 15,
			"identity must be a name: letters, digits, \"_\", \".\" and \"-\", at most "
			"63, not an "
			"empty text",
			"identity: the name its keys have in the inbox"});
}
END_TEST

START_TEST(refuses_texts_beyond_what_the_broker_takes)
{
	char queue[257];
	memset(queue, 'q', 256);
	queue[256] = '\0';
	struct fixture f;
	char *text = xasprintf("consumers: {a: {handler: h, queue: %s}}\n", queue);
	fixture_open(&f, text);
	ck_assert_ptr_null(f.config);
	ck_assert_ptr_nonnull(strstr(
		buf_str(&f.errors), "inboxd.yaml:1:36: consumers.a.queue is 256 bytes long\n"));
	ck_assert_ptr_nonnull(
		strstr(buf_str(&f.errors), "  hint: at most 255 bytes are possible here\n"));
	fixture_done(&f);
	free(text);
	text = xasprintf("consumers: {a: {handler: h, queue: %s}}\n", queue + 1);
	config_free(config_of(text));
	free(text);
}
END_TEST

START_TEST(refuses_what_only_some_options_are)
{
	CHECK({"identity: ~", 15, "identity has no value",
		      "~ stands for nothing; put it in quotes if the text is meant"},
		{"identity:", 14, "identity has no value", "give it one, or remove the line"},
		{"topology: {durable: maybe}", 25,
			"topology.durable must be true or false, not \"maybe\"",
			"the default is true"},
		{"retry: {delays: ~}", 21,
			"retry.delays must be a list of durations, each from 1ms to 30d, not \"~\"",
			"write it in brackets: [10s, 1m, 10m]"},
		{"fingerprint: [none, body]", 19,
			"fingerprint: none stands alone, not among fields",
			"sources: message_id, header:NAME, json:/pointer, property:NAME, "
			"routing_key, body, "
			"cloudevents"});
}
END_TEST

START_TEST(refuses_names_of_arguments_that_the_broker_cannot_take)
{
	char name[130];
	memset(name, 'x', 129);
	name[129] = '\0';
	struct fixture f;
	char *text = xasprintf(CONSUMER("    topology: {arguments: {%s: 1}}\n"), name);
	fixture_open(&f, text);
	ck_assert_ptr_null(f.config);
	ck_assert_ptr_nonnull(
		strstr(buf_str(&f.errors), "inboxd.yaml:5:28: consumers.orders.topology"));
	ck_assert_ptr_nonnull(
		strstr(buf_str(&f.errors), " is too long for the name of an argument\n"));
	ck_assert_ptr_nonnull(
		strstr(buf_str(&f.errors), "  hint: at most 128 bytes are possible\n"));
	fixture_done(&f);
	free(text);
}
END_TEST

START_TEST(names_the_broker_that_was_probably_meant)
{
	expect_errors("brokers: {east: {}, west: {}}\n" CONSUMER("    broker: esat\n"),
		"inboxd.yaml:6:13: consumers.orders.broker: there is none named \"esat\"\n"
		"      broker: esat\n"
		"              ^\n"
		"  hint: did you mean east?\n");
	expect_errors("brokers: {east: {}, west: {}}\n" CONSUMER("    broker: other\n"),
		"inboxd.yaml:6:13: consumers.orders.broker: there is none named \"other\"\n"
		"      broker: other\n"
		"              ^\n"
		"  hint: there are: east, west\n");
}
END_TEST

START_TEST(refuses_a_password_file_where_the_certificate_logs_in)
{
	expect_errors("broker: {uri: amqps://h, auth: external, password_file: pw, tls: {cert: c, "
		      "key: c}}\n" CONSUMER(""),
		"inboxd.yaml:1:42: broker.password_file is not used with auth: external\n"
		"  broker: {uri: amqps://h, auth: external, password_file: pw, tls: {cert: c, key: "
		"c}}\n"
		"                                           ^\n"
		"  hint: remove one of the two\n");
}
END_TEST

START_TEST(refuses_lists_that_are_too_long)
{
	struct buf text = {0};
	struct fixture f;
	buf_add_str(&text, CONSUMER("    retry: {delays: ["));
	for (int i = 0; i < 101; i++)
		buf_addf(&text, "%s%ds", i != 0 ? ", " : "", i + 1);
	buf_add_str(&text, "]}\n    key: [");
	for (int i = 0; i < 17; i++)
		buf_addf(&text, "%sheader:h%d", i != 0 ? ", " : "", i);
	buf_add_str(&text, "]\n");
	fixture_open(&f, buf_str(&text));
	ck_assert_ptr_nonnull(strstr(buf_str(&f.errors),
		"inboxd.yaml:5:21: consumers.orders.retry.delays has 101 items\n"));
	ck_assert_ptr_nonnull(strstr(buf_str(&f.errors), "  hint: at most 100 are possible\n"));
	ck_assert_ptr_nonnull(strstr(
		buf_str(&f.errors), "inboxd.yaml:6:10: consumers.orders.key is a list of 17\n"));
	ck_assert_ptr_nonnull(strstr(buf_str(&f.errors), "  hint: from 1 to 16 are possible\n"));
	fixture_done(&f);
	buf_done(&text);
}
END_TEST

START_TEST(refuses_what_a_broker_cannot_be)
{
	expect_errors("broker: {heartbeat: 500ms, uri: \"\", connect_timeout: 0s}\n" CONSUMER(""),
		"inboxd.yaml:1:21: broker.heartbeat must be a duration from 1s to 1h, not "
		"\"500ms\"\n"
		"  broker: {heartbeat: 500ms, uri: \"\", connect_timeout: 0s}\n"
		"                      ^\n"
		"  hint: the default is 15s\n"
		"inboxd.yaml:1:33: broker.uri must begin with amqp:// or amqps://\n"
		"  broker: {heartbeat: 500ms, uri: \"\", connect_timeout: 0s}\n"
		"                                  ^\n"
		"  hint: amqp://user@host:port/vhost\n"
		"inboxd.yaml:1:54: broker.connect_timeout must be a duration from 100ms to 10m, "
		"not \"0s\"\n"
		"  broker: {heartbeat: 500ms, uri: \"\", connect_timeout: 0s}\n"
		"                                                       ^\n"
		"  hint: the default is 10s\n");
	expect_errors("broker: {heartbeat: 1500ms}\n" CONSUMER(""),
		"inboxd.yaml:1:21: broker.heartbeat must be whole seconds, not \"1500ms\"\n"
		"  broker: {heartbeat: 1500ms}\n"
		"                      ^\n"
		"  hint: the default is 15s\n");
	expect_errors("broker: {heartbeat: 0s}\n" CONSUMER(""),
		"inboxd.yaml:1:21: broker.heartbeat cannot be 0\n"
		"  broker: {heartbeat: 0s}\n"
		"                      ^\n"
		"  hint: without heartbeats a dead connection is never noticed; write 15s, or 5m "
		"where "
		"they disturb\n");
}
END_TEST

START_TEST(points_into_a_uri_without_showing_its_password)
{
#define ESCAPES                                                                                   \
	"  hint: in user, password and vhost write @ as %40, : as %3A, / as %2F, a blank as %20 " \
	"and % "                                                                                  \
	"as %25\n"
	expect_errors("broker:\n  uri: amqp://u:sesame@h/a%2\n" CONSUMER(""),
		"inboxd.yaml:2:27: broker.uri holds a \"%\" without two hexadecimal digits\n"
		"    uri: amqp://u:********@h/a%2\n"
		"                              ^\n" ESCAPES);
	expect_errors("broker:\n  uri: amqp://u:ses ame@h\n" CONSUMER(""),
		"inboxd.yaml:2:20: broker.uri holds a blank or control character\n"
		"    uri: amqp://u:********@h\n"
		"                  ^\n" ESCAPES);
	expect_errors("broker:\n  uri: amqp://h/%00\n" CONSUMER(""),
		"inboxd.yaml:2:17: broker.uri holds a NUL (%00)\n"
		"    uri: amqp://h/%00\n"
		"                  ^\n" ESCAPES);
	expect_errors("broker: [amqp://u:sesame@h]\n" CONSUMER(""),
		"inboxd.yaml:1:9: broker must be a map of options, not a list\n"
		"  broker: [amqp://u:********@h]\n"
		"          ^\n"
		"  hint: write each option as \"name: value\", indented, on a line of its own\n");
}
END_TEST

START_TEST(refuses_what_a_database_cannot_be)
{
	expect_errors("database: {schema: 1a, synchronous_commit: 'on ', prepared_statements: "
		      "OFF}\n" CONSUMER(""),
		"inboxd.yaml:1:20: database.schema must be an SQL identifier: letters, digits and "
		"\"_\", at "
		"most 63, not \"1a\"\n"
		"  database: {schema: 1a, synchronous_commit: 'on ', prepared_statements: OFF}\n"
		"                     ^\n"
		"  hint: it begins with a letter or \"_\"; the default is inboxd\n"
		"inboxd.yaml:1:44: database.synchronous_commit must be on, remote_apply, "
		"remote_write or "
		"local, not \"on \"\n"
		"  database: {schema: 1a, synchronous_commit: 'on ', prepared_statements: OFF}\n"
		"                                             ^\n"
		"  hint: did you mean on?\n"
		"inboxd.yaml:1:72: database.prepared_statements must be true or false, not "
		"\"OFF\"\n"
		"  database: {schema: 1a, synchronous_commit: 'on ', prepared_statements: OFF}\n"
		"                                                                         ^\n"
		"  hint: write false\n");
}
END_TEST

START_TEST(refuses_empty_paths_and_home_directories)
{
	expect_errors(
		"broker: {password_file: \"\"}\ndatabase: {password_file: ~/pw}\n" CONSUMER(""),
		"inboxd.yaml:1:25: broker.password_file is empty\n"
		"  broker: {password_file: \"\"}\n"
		"                          ^\n"
		"  hint: password_file: a file with the password; read at each connect\n"
		"inboxd.yaml:2:27: database.password_file cannot begin with \"~\"\n"
		"  database: {password_file: ~/pw}\n"
		"                            ^\n"
		"  hint: write the directory out, or ${HOME}/pw\n");
}
END_TEST

START_TEST(tells_mistakes_in_defaults_once_and_where_they_are)
{
	expect_errors("defaults:\n  workers: 0\n  batch: {maxx: 1}\n  identity: x\n  key: tag\n"
		      "consumers:\n  a: {queue: a, handler: h}\n  b: {queue: b, handler: h}\n",
		"inboxd.yaml:2:12: defaults.workers " COUNT_RANGE "\"0\"\n"
		"    workers: 0\n"
		"             ^\n"
		"  hint: the default is 1\n"
		"inboxd.yaml:3:11: unknown option \"maxx\" in defaults.batch\n"
		"    batch: {maxx: 1}\n"
		"            ^\n"
		"  hint: did you mean \"max\"?\n"
		"inboxd.yaml:4:3: \"identity\" cannot stand in defaults\n"
		"    identity: x\n"
		"    ^\n"
		"  hint: each consumer has its own\n"
		"inboxd.yaml:5:8: defaults.key: \"tag\" is no source; a source is message_id, "
		"header:NAME, "
		"json:/pointer, property:NAME, routing_key, body or cloudevents\n"
		"    key: tag\n"
		"         ^\n"
		"  hint: sources: message_id, header:NAME, json:/pointer, property:NAME, "
		"routing_key, body, "
		"cloudevents\n");
}
END_TEST

START_TEST(tells_what_is_missing_at_the_name_that_lacks_it)
{
	expect_errors("consumers:\n  orders: {}\n  billing:\n",
		"inboxd.yaml:2:3: consumers.orders.queue is missing\n"
		"    orders: {}\n"
		"    ^\n"
		"  hint: queue: the queue to take messages from\n"
		"inboxd.yaml:2:3: consumers.orders.handler is missing\n"
		"    orders: {}\n"
		"    ^\n"
		"  hint: handler: who does the work: a name, sql or orders\n"
		"inboxd.yaml:3:3: consumers.billing.queue is missing\n"
		"    billing:\n"
		"    ^\n"
		"  hint: queue: the queue to take messages from\n"
		"inboxd.yaml:3:3: consumers.billing.handler is missing\n"
		"    billing:\n"
		"    ^\n"
		"  hint: handler: who does the work: a name, sql or orders\n");
	expect_errors("consumers: {}\n",
		"inboxd.yaml:1:12: consumers is empty\n"
		"  consumers: {}\n"
		"             ^\n"
		"  hint: write a name, and its options indented beneath\n");
	expect_errors("",
		"inboxd.yaml:1:1: consumers is missing\n  \n  ^\n"
		"  hint: consumers: the consumers, by name; at least one\n");
}
END_TEST

START_TEST(tells_nothing_that_only_follows_from_another_error)
{
	expect_errors("consumers: *all\n",
		"inboxd.yaml:1:12: aliases (\"*all\") are not read\n"
		"  consumers: *all\n"
		"             ^\n"
		"  hint: write the value out; a text that begins with \"*\" must be quoted\n");
	expect_errors("broker: *main\nconsumers:\n  a: [x]\n  b: {queue: *q, handler: h}\n",
		"inboxd.yaml:1:9: aliases (\"*main\") are not read\n"
		"  broker: *main\n"
		"          ^\n"
		"  hint: write the value out; a text that begins with \"*\" must be quoted\n"
		"inboxd.yaml:3:6: consumers.a must be a map of options, not a list\n"
		"    a: [x]\n"
		"       ^\n"
		"  hint: write each option as \"name: value\", indented, on a line of its own\n"
		"inboxd.yaml:4:14: aliases (\"*q\") are not read\n"
		"    b: {queue: *q, handler: h}\n"
		"               ^\n"
		"  hint: write the value out; a text that begins with \"*\" must be quoted\n");
}
END_TEST

START_TEST(never_crashes_on_options_of_the_wrong_kind)
{
	static const char *const names[] = {"queue", "handler", "identity", "broker", "database",
		"key", "on_missing_key", "fingerprint", "workers", "prefetch", "batch", "retry",
		"topology", "options", "handler_timeout", "prefetch_bytes"};
	static const char *const values[] = {"~", "[]", "{}", "[~]", "[[]]", "[{}]", "{a: b}",
		"{delays: ~}", "{sqlstates: ~}", "{sqlstates: [~]}", "{sqlstates: {~: ~, 23: {}}}",
		"{type: ~, durable: ~, arguments: ~, bindings: ~}",
		"{arguments: {a: [b]}, bindings: [~, x]}", "*x", "[*x]", "{max: {}, bytes: []}",
		"\"\"", "{? [a] : b}"};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		for (size_t k = 0; k < sizeof values / sizeof values[0]; k++) {
			struct fixture f;
			char *text = xasprintf("consumers: {a: {%s: %s}}\ndefaults: {%s: %s}\n",
				names[i], values[k], names[i], values[k]);
			fixture_open(&f, text);
			ck_assert_ptr_null(f.config);
			ck_assert_uint_gt(f.errors.size, 0);
			fixture_done(&f);
			free(text);
		}
	}
}
END_TEST

START_TEST(refuses_a_delivery_limit_that_would_lose_messages)
{
	static const char what[] = "topology.arguments.x-delivery-limit must be a whole number from 1 on";
	static const char hint[] = "with less, a message is lost with the first connection";
	CHECK({"topology: {arguments: {x-delivery-limit: 0}}", 28, what, hint},
		{"topology: {arguments: {x-delivery-limit: -1}}", 28, what, hint},
		{"topology: {arguments: {x-delivery-limit: abc}}", 28, what, hint});
	struct fixture f;
	fixture_open(&f, CONSUMER("    delivery_limit: 1000\n"
				  "    topology: {arguments: {x-delivery-limit: 2}}\n"));
	ck_assert_ptr_null(f.config);
	ck_assert_ptr_nonnull(strstr(buf_str(&f.errors), "x-delivery-limit is less than delivery_limit"));
	fixture_done(&f);
}
END_TEST

START_TEST(refuses_a_dead_letter_that_cannot_leave_or_comes_back)
{
	static const char *const bad[] = {"    dead_letter: {exchange: \"\", routing_key: \"\"}\n",
		"    dead_letter: {exchange: x, routing_key: k}\n"
		"    topology: {bindings: [{exchange: x, routing_key: k}]}\n"};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct fixture f;
		char *text = xasprintf(CONSUMER("%s"), bad[i]);
		fixture_open(&f, text);
		ck_assert_ptr_null(f.config);
		ck_assert_ptr_nonnull(strstr(buf_str(&f.errors), "dead_letter"));
		fixture_done(&f);
		free(text);
	}
}
END_TEST

START_TEST(refuses_a_handler_that_may_outlast_the_brokers_patience)
{
	static const char hint[] = "that is consumer_timeout of broker \"default\", now 1800 s; if "
				   "RabbitMQ waits longer, say so there";
	CHECK({"handler_timeout: 901s", 22,
		"handler_timeout must be at most half of what the broker waits for an acknowledgement",
		hint});
	config_free(config_of("broker: {consumer_timeout: 2h}\n" CONSUMER("    handler_timeout: 1h\n")));
}
END_TEST

START_TEST(refuses_dead_letters_that_would_come_back)
{
	CHECK({"dead_letter: {exchange: \"\"}", 19, "dead_letter.exchange \"\" needs a routing_key",
		      "by its own routing key a message would come back to the queue it is from; "
		      "set routing_key to the queue that dead letters are meant for"},
		{"dead_letter: {routing_key: dead}", 19,
			"dead_letter.routing_key needs an exchange",
			"set exchange; \"\" is the default exchange, whose routing keys are queues"},
		{"dead_letter: {exchange: \"\", routing_key: orders}", 5,
			"dead_letter leads back to the consumer's own queue",
			"name another queue, or write dead_letter: {}"});
	expect_errors("defaults: {handler: h, dead_letter: {exchange: \"\"}}\n"
		      "consumers: {a: {queue: a}, b: {queue: b}}\n",
		"inboxd.yaml:1:38: defaults.dead_letter.exchange \"\" needs a routing_key\n"
		"  defaults: {handler: h, dead_letter: {exchange: \"\"}}\n"
		"                                       ^\n"
		"  hint: by its own routing key a message would come back to the queue it is from; "
		"set routing_key to the queue that dead letters are meant for\n");
}
END_TEST

UNIT_SUITE("config/errors", refuses_dead_letters_that_would_come_back,
	refuses_counts_that_are_none,
	refuses_a_delivery_limit_that_would_lose_messages,
	refuses_a_dead_letter_that_cannot_leave_or_comes_back,
	refuses_a_handler_that_may_outlast_the_brokers_patience,
	refuses_values_at_both_ends_of_their_ranges, refuses_durations_and_sizes_without_sense,
	refuses_sqlstates_that_are_none_and_words_that_say_nothing,
	refuses_words_that_are_none_and_names_the_nearest,
	refuses_names_and_handlers_that_cannot_be_some, refuses_texts_beyond_what_the_broker_takes,
	refuses_what_only_some_options_are, refuses_names_of_arguments_that_the_broker_cannot_take,
	names_the_broker_that_was_probably_meant,
	refuses_a_password_file_where_the_certificate_logs_in, refuses_lists_that_are_too_long,
	refuses_what_a_broker_cannot_be, points_into_a_uri_without_showing_its_password,
	refuses_what_a_database_cannot_be, refuses_empty_paths_and_home_directories,
	tells_mistakes_in_defaults_once_and_where_they_are,
	tells_what_is_missing_at_the_name_that_lacks_it,
	tells_nothing_that_only_follows_from_another_error,
	never_crashes_on_options_of_the_wrong_kind)

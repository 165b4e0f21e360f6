/* SPDX-License-Identifier: MIT */
#include "config/config.h"

#include "fixture.h"
#include "unit.h"

#include <stdlib.h>

/* A configuration with something of everything. */
static const char rich[] =
	"brokers:\n"
	"  east:\n"
	"    uri: [amqps://inboxd:ses%40ame@rabbit-1/pay, amqps://inboxd:sesame2@rabbit-2/pay]\n"
	"    tls: {ca: /ca.pem, cert: /c.pem, key: /k.pem, verify: none}\n"
	"    user: \"u@x\"\n    password: \"p@:/#%é${T_SECRET}\"\n    vhost: a/b\n    heartbeat: "
	"90s\n    consumer_timeout: 4h\n"
	"  west: {uri: amqp://w, password_file: /pw, vhost: \"\"}\n"
	"databases:\n"
	"  one: {conninfo: \"host=a password='ses ame' application_name=${T_NAME}\", schema: s}\n"
	"  two: {conninfo: \"postgresql://u:sesame@h/d\", prepared_statements: false,\n"
	"    synchronous_commit: remote_write, password_file: /pw2}\n"
	"handlers: {directory: [/opt/a, /opt/b b]}\n"
	"runtime_directory: /run/x\n"
	"log: {level: debug, format: json}\n"
	"stop_timeout: 1m\n"
	"defaults: {workers: 2, options: {api_token: sesame, note: beneath}}\n"
	"consumers:\n"
	"  captures:\n"
	"    queue: \"q: # [x]\"\n    handler: captures\n    broker: east\n    database: one\n"
	"    identity: other\n    key: [header:merchant, \"json:/a b\"]\n    fingerprint: none\n"
	"    on_missing_key: process\n    prefetch: 7\n    prefetch_bytes: 12345\n"
	"    batch: {max: 3, bytes: 5KiB, time: 1500ms}\n    handler_timeout: 90m\n"
	"    max_message_bytes: 1048577\n    crash_limit: 9\n    delivery_limit: 8\n"
	"    breaker: {failures: 2, pause: 7s}\n    parked: {max: 11}\n    retention: {keep: forever}\n"
	"    dead_letter: {exchange: \"\", routing_key: \"dead # letters\"}\n"
	"    retry: {immediate: 0, delays: [], jitter: 100%, sqlstates: {P0001: reject, 08: "
	"retry}}\n"
	"    worker: {memory_max: 100MiB, recycle_after: 7}\n"
	"    topology:\n      type: quorum\n"
	"      arguments: {x-a: 5, x-b: \"5\", x-c: true, x-d: 'true', x-e: \"~\", \"x f\": "
	"\"${T_NAME}\"}\n"
	"      bindings: [{exchange: pay, routing_key: \"capture.#\"}, {exchange: \"é\"}]\n"
	"    options:\n"
	"      statement: |\n        INSERT INTO t\n          VALUES ($1, '$${T_NAME}')\n"
	"      numbers: [0123, 1e3, 0x10, 1_000, -5, 5, 0.5, .5, +5, 1:30, 2024-01-01]\n"
	"      words: [no, 'no', yes, true, null, \"null\", ~, \"~\", \"\", on, y, NULL, .inf, <<, "
	"=]\n"
	"      marks: [\"- a\", \"a: b\", \"a #b\", \"#\", \"'\", '\"', \"*a\", \"&a\", \"!a\", "
	"\"|\", \"@\", \"%\",\n"
	"        \"`\", \"? a\", \": \", \"{\", \"}\", \"[\", \"]\", \",\", \" a\", \"a \", "
	"\"\\\\\", \"---\", \"...\",\n"
	"        \"a:\", \"a\\tb\\nc\\r\\x01\\x7f\\x85\\u2028\\ufeff\\U0001F600\\u200b\", é, "
	"\"$${X}\", $, \"$$${X}\"]\n"
	"      empty: {m: {}, l: [], n: [[], {}, [[a], {b: [c]}]]}\n"
	"      \"0123\": a\n      \"no\": b\n      \"\": c\n      \"a: b\": d\n      ${X}: e\n     "
	" ~: f\n"
	"      deep: {a: {b: [{c: d, e: [f]}, {g: h}]}}\n"
	"  plain: {queue: p, handler: sql, broker: west, database: two}\n";

static struct config *rich_config(void)
{
	ck_assert_int_eq(setenv("T_SECRET", "ses\"ame", 1), 0);
	ck_assert_int_eq(setenv("T_NAME", "${HOME} $1: {x}", 1), 0);
	return config_of(rich);
}

static void print(
	const struct config *c, enum config_part part, const char *consumer, struct buf *out)
{
	buf_clear(out);
	config_print(c, part, consumer, out);
	(void)buf_str(out);
}

static struct config *parse(struct buf *text)
{
	struct buf errors = {0};
	struct config *c = config_parse("role", buf_bytes(text), &errors);
	ck_assert_msg(c != NULL, "%s%s", buf_str(&errors), buf_str(text));
	buf_done(&errors);
	return c;
}

/* What is printed is read back, without any environment, as what prints the same. */
static void round_trip(const struct config *c, enum config_part part, const char *consumer)
{
	struct buf first = {0}, second = {0};
	print(c, part, consumer, &first);
	(void)unsetenv("T_SECRET");
	(void)unsetenv("T_NAME");
	struct config *again = parse(&first);
	print(again, part, consumer, &second);
	ck_assert_str_eq(buf_str(&second), buf_str(&first));
	ck_assert_uint_eq(again->env_used.n, 0);
	config_free(again);
	buf_done(&first);
	buf_done(&second);
}

START_TEST(reads_back_what_it_prints)
{
	struct config *c = rich_config();
	round_trip(c, CONFIG_COMPLETE, NULL);
	round_trip(c, CONFIG_COMPLETE, "captures");
	round_trip(c, CONFIG_FOR_CONSUMER, "captures");
	round_trip(c, CONFIG_FOR_WORKER, "captures");
	round_trip(c, CONFIG_FOR_CONSUMER, "plain");
	round_trip(c, CONFIG_FOR_WORKER, "plain");
	round_trip(c, CONFIG_FOR_JANITOR, NULL);
	round_trip(c, CONFIG_FOR_PEOPLE, NULL);
	config_free(c);
	c = config_of(CONSUMER(""));
	round_trip(c, CONFIG_COMPLETE, NULL);
	round_trip(c, CONFIG_FOR_CONSUMER, "orders");
	round_trip(c, CONFIG_FOR_WORKER, "orders");
	config_free(c);
}
END_TEST

static void same_options(
	const struct options *a, const struct options *b, const char *path, size_t *ret_n)
{
	struct bytes x = options_get(a, path), y = options_get(b, path);
	++*ret_n;
	ck_assert_msg((x.data == NULL) == (y.data == NULL) && bytes_equal(x, y), "%s", path);
	ck_assert_msg(options_count(a, path) == options_count(b, path), "%s", path);
	for (uint32_t i = 0; x.data == NULL && i < options_count(a, path); i++) {
		struct bytes name = options_name(a, path, i);
		struct buf step = {0};
		ck_assert(bytes_equal(name, options_name(b, path, i)));
		buf_addf(&step, "%s%s", path, path[0] != '\0' ? "/" : "");
		if (name.data == NULL)
			buf_addf(&step, "%u", i);
		for (size_t k = 0; k < name.size; k++)
			buf_addf(&step,
				name.data[k] == '/'           ? "~1"
					: name.data[k] == '~' ? "~0"
							      : "%c",
				name.data[k]);
		if (step.size > 0)
			same_options(a, b, buf_str(&step), ret_n);
		buf_done(&step);
	}
}

START_TEST(keeps_a_handlers_options_exactly)
{
	struct config *c = rich_config();
	struct buf text = {0};
	print(c, CONFIG_FOR_WORKER, "captures", &text);
	struct config *again = parse(&text);
	size_t n = 0;
	same_options(c->consumers[0]->options, again->consumers[0]->options, "", &n);
	ck_assert_uint_gt(n, 80);
	ck_assert_str_eq(
		(const char *)options_get(again->consumers[0]->options, "numbers/0").data, "0123");
	ck_assert_ptr_null(options_get(again->consumers[0]->options, "words/4").data);
	ck_assert_str_eq(
		(const char *)options_get(again->consumers[0]->options, "words/5").data, "null");
	ck_assert_str_eq((const char *)options_get(again->consumers[0]->options, "statement").data,
		"INSERT INTO t\n  VALUES ($1, '${T_NAME}')\n");
	config_free(again);
	config_free(c);
	buf_done(&text);
}
END_TEST

START_TEST(gives_a_consumer_process_its_broker_and_nothing_of_the_database)
{
	struct config *c = rich_config();
	struct buf text = {0};
	print(c, CONFIG_FOR_CONSUMER, "captures", &text);
	ck_assert_ptr_null(strstr(buf_str(&text), "application_name"));
	ck_assert_ptr_null(strstr(buf_str(&text), "ses ame"));
	ck_assert_ptr_null(strstr(buf_str(&text), "api_token"));
	ck_assert_ptr_null(strstr(buf_str(&text), "west"));
	ck_assert_ptr_null(strstr(buf_str(&text), "plain:"));
	struct config *role = parse(&text);
	ck_assert_uint_eq(role->n_consumers, 1);
	ck_assert_uint_eq(role->n_brokers, 1);
	ck_assert_uint_eq(role->n_databases, 0);
	const struct config_consumer *o = role->consumers[0];
	ck_assert_ptr_null(o->database);
	ck_assert_ptr_null(o->print);
	ck_assert_uint_eq(options_count(o->options, ""), 0);
	ck_assert_str_eq(o->broker->name, "east");
	ck_assert_str_eq(o->broker->uris.items[0], "amqps://inboxd:ses%40ame@rabbit-1/pay");
	ck_assert_str_eq(o->broker->password, "p@:/#%éses\"ame");
	ck_assert_str_eq(o->topology.arguments[5].string, "${HOME} $1: {x}");
	ck_assert_int_eq(o->key.on_missing, ON_MISSING_KEY_PROCESS);
	ck_assert(o->fingerprint.none);
	ck_assert_str_eq(o->key.text, c->consumers[0]->key.text);
	ck_assert_str_eq(o->queue, "q: # [x]");
	ck_assert_uint_eq(o->prefetch_bytes, 12345);
	ck_assert_int_eq(role->log_level, L_DEBUG);
	config_free(role);
	config_free(c);
	buf_done(&text);
}
END_TEST

START_TEST(gives_a_worker_its_database_and_nothing_of_the_broker)
{
	struct config *c = rich_config();
	struct buf text = {0};
	print(c, CONFIG_FOR_WORKER, "captures", &text);
	ck_assert_ptr_null(strstr(buf_str(&text), "ses%40ame"));
	ck_assert_ptr_null(strstr(buf_str(&text), "rabbit"));
	ck_assert_ptr_null(strstr(buf_str(&text), "p@:"));
	struct config *role = parse(&text);
	ck_assert_uint_eq(role->n_brokers, 0);
	ck_assert_ptr_null(role->consumers[0]->broker);
	ck_assert_str_eq(role->consumers[0]->database->name, "one");
	ck_assert_str_eq(role->consumers[0]->database->conninfo,
		"host=a password='ses ame' application_name=${HOME} $1: {x}");
	ck_assert_str_eq(
		(const char *)options_get(role->consumers[0]->options, "api_token").data, "sesame");
	ck_assert_uint_eq(role->handler_directories.n, 2);
	ck_assert_str_eq(role->handler_directories.items[1], "/opt/b b");
	config_free(role);
	config_free(c);
	buf_done(&text);
}
END_TEST

START_TEST(gives_the_janitor_the_databases_and_nothing_of_brokers_and_handlers)
{
	struct config *c = rich_config();
	struct buf text = {0};
	print(c, CONFIG_FOR_JANITOR, NULL, &text);
	ck_assert_ptr_null(strstr(buf_str(&text), "ses%40ame"));
	ck_assert_ptr_null(strstr(buf_str(&text), "rabbit"));
	ck_assert_ptr_null(strstr(buf_str(&text), "api_token"));
	struct config *role = parse(&text);
	ck_assert_uint_eq(role->n_brokers, 0);
	ck_assert_uint_eq(role->n_databases, 2);
	ck_assert_uint_eq(role->n_consumers, 2);
	ck_assert_uint_eq(options_count(role->consumers[0]->options, ""), 0);
	ck_assert_str_eq(role->consumers[0]->database->name, "one");
	ck_assert_str_eq(role->consumers[0]->identity, "other");
	ck_assert_uint_eq(role->consumers[0]->keep_s, 0);
	ck_assert_str_eq(role->consumers[1]->database->name, "two");
	ck_assert_uint_eq(role->consumers[1]->keep_s, 7 * 86400);
	config_free(role);
	config_free(c);
	buf_done(&text);
}
END_TEST

START_TEST(shows_people_everything_but_secrets)
{
	struct config *c = rich_config();
	struct buf text = {0};
	print(c, CONFIG_FOR_PEOPLE, NULL, &text);
	const char *out = buf_str(&text);
	ck_assert_ptr_null(strstr(out, "sesame"));
	ck_assert_ptr_null(strstr(out, "ses ame"));
	ck_assert_ptr_null(strstr(out, "ses%40"));
	ck_assert_ptr_null(strstr(out, "ses\\"));
	ck_assert_ptr_null(strstr(out, "p@:"));
	ck_assert_ptr_nonnull(strstr(out, "amqps://inboxd:********@rabbit-1/pay"));
	ck_assert_ptr_nonnull(strstr(out, "amqps://inboxd:********@rabbit-2/pay"));
	ck_assert_ptr_nonnull(strstr(out, "    password: \"********\"\n"));
	ck_assert_ptr_nonnull(strstr(out, "host=a password=******** application_name="));
	ck_assert_ptr_nonnull(strstr(out, "postgresql://u:********@h/d"));
	ck_assert_ptr_nonnull(strstr(out, "api_token: \"********\"\n"));
	ck_assert_ptr_nonnull(strstr(out, "password_file: /pw\n"));
	ck_assert_ptr_nonnull(strstr(out, "user: u@x\n"));
	ck_assert_ptr_nonnull(strstr(out, "note: beneath\n"));
	config_free(c);
	buf_done(&text);
}
END_TEST

START_TEST(hides_all_below_a_secret_name_in_options)
{
	struct config *c =
		config_of(CONSUMER("    options: {credentials: {user: sesame, list: [sesame]}, "
				   "url: \"x://a:sesame@b\",\n"
				   "      dsn: [\"password=sesame\"], tokens: 5, max_token: 5}\n"));
	struct buf text = {0};
	print(c, CONFIG_FOR_PEOPLE, NULL, &text);
	ck_assert_ptr_null(strstr(buf_str(&text), "sesame"));
	ck_assert_ptr_nonnull(strstr(buf_str(&text), "tokens: 5\n"));
	ck_assert_ptr_nonnull(strstr(buf_str(&text), "max_token: \"********\"\n"));
	config_free(c);
	buf_done(&text);
}
END_TEST

START_TEST(prints_the_smallest_configuration_as_people_would_write_it)
{
	(void)unsetenv("RUNTIME_DIRECTORY");
	struct config *c = config_of("broker: {uri: amqp://inboxd@localhost}\n" CONSUMER(
		"    options: {statement: \"INSERT INTO orders VALUES ($1)\", parameters: "
		"[json:/id]}\n"));
	struct buf text = {0};
	print(c, CONFIG_FOR_PEOPLE, NULL, &text);
	ck_assert_str_eq(buf_str(&text),
		"handlers:\n"
		"  directory: " INBOXD_HANDLERDIR "\n"
		"runtime_directory: /run/inboxd\n"
		"log:\n  level: info\n  format: logfmt\n"
		"stop_timeout: 25s\n"
		"broker:\n  uri: amqp://inboxd@localhost\n  auth: plain\n  heartbeat: 15s\n"
		"  consumer_timeout: 30m\n  connect_timeout: 10s\n"
		"database:\n  conninfo: \"\"\n  schema: inboxd\n  synchronous_commit: \"on\"\n"
		"  prepared_statements: true\n  connect_timeout: 10s\n"
		"consumers:\n  orders:\n    queue: orders\n    handler: sql\n    identity: orders\n"
		"    broker: default\n    database: default\n    key: message_id\n"
		"    on_missing_key: park\n    fingerprint: body\n    workers: 1\n    prefetch: "
		"400\n"
		"    prefetch_bytes: 256MiB\n    batch:\n      max: 100\n      bytes: 4MiB\n"
		"      time: 100ms\n    max_message_bytes: 16MiB\n    handler_timeout: 30s\n"
		"    retry:\n      immediate: 2\n      delays: [10s, 1m, 10m]\n      jitter: 20%\n"
		"    crash_limit: 3\n    delivery_limit: 20\n    breaker:\n      failures: 10\n"
		"      pause: 30s\n    parked:\n      max: 10000\n    retention:\n      keep: 7d\n"
		"    worker:\n      memory_max: 512MiB\n      recycle_after: 0\n"
		"    options:\n      statement: \"INSERT INTO orders VALUES ($1)\"\n"
		"      parameters:\n        - json:/id\n");
	config_free(c);
	buf_done(&text);
}
END_TEST

/* Whether the consumer `orders` of two configurations is the same to a reload. */
static bool is_same(const char *a, const char *b)
{
	struct config *x = config_of(a), *y = config_of(b);
	bool same = strcmp(config_find_consumer(x, "orders")->print,
			    config_find_consumer(y, "orders")->print) == 0;
	config_free(x);
	config_free(y);
	return same;
}

START_TEST(tells_a_changed_consumer_by_everything_it_runs_by)
{
	static const char *const changes[] = {
		"broker: {heartbeat: 10s}\n" CONSUMER(""),
		"broker: {password: a}\n" CONSUMER(""),
		"database: {conninfo: password=a}\n" CONSUMER(""),
		"handlers: {directory: /opt}\n" CONSUMER(""),
		"log: {level: debug}\n" CONSUMER(""),
		"stop_timeout: 26s\n" CONSUMER(""),
		"defaults: {workers: 2}\n" CONSUMER(""),
		CONSUMER("    key: body\n"),
		CONSUMER("    fingerprint: none\n"),
		CONSUMER("    on_missing_key: body\n"),
		CONSUMER("    identity: x\n"),
		CONSUMER("    topology:\n"),
		CONSUMER("    retry: {delays: [10s, 1m]}\n"),
		CONSUMER("    options: {a: 1}\n"),
	};
	for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++)
		ck_assert_msg(!is_same(CONSUMER(""), changes[i]), "%s", changes[i]);
}
END_TEST

START_TEST(takes_a_consumer_for_the_same_when_only_its_writing_or_its_neighbours_change)
{
	ck_assert(is_same(CONSUMER(""),
		"# comment\n" CONSUMER("    workers: \"1\"\n    retry: {jitter: 20%}\n")));
	ck_assert(is_same(
		CONSUMER("    handler_timeout: 60s\n"), CONSUMER("    handler_timeout: 1m\n")));
	ck_assert(is_same(CONSUMER(""), CONSUMER("  billing: {queue: billing, handler: sql}\n")));
	ck_assert(is_same(
		CONSUMER(""), "brokers: {default: {}, other: {uri: amqp://x}}\n" CONSUMER("")));
	ck_assert(is_same(CONSUMER(""), "defaults: {workers: 2}\n" CONSUMER("    workers: 1\n")));
}
END_TEST

START_TEST(parses_with_errors_like_a_file)
{
	struct buf errors = {0};
	ck_assert_ptr_null(
		config_parse("memfd", bytes_str("consumers: {a: {queue: b}}\n"), &errors));
	ck_assert_str_eq(buf_str(&errors),
		"memfd:1:13: consumers.a.handler is missing\n"
		"  consumers: {a: {queue: b}}\n"
		"              ^\n"
		"  hint: handler: who does the work: a name, sql or orders\n");
	buf_done(&errors);
}
END_TEST

UNIT_SUITE("config/print", reads_back_what_it_prints, keeps_a_handlers_options_exactly,
	gives_a_consumer_process_its_broker_and_nothing_of_the_database,
	gives_a_worker_its_database_and_nothing_of_the_broker,
	gives_the_janitor_the_databases_and_nothing_of_brokers_and_handlers,
	shows_people_everything_but_secrets,
	hides_all_below_a_secret_name_in_options,
	prints_the_smallest_configuration_as_people_would_write_it,
	tells_a_changed_consumer_by_everything_it_runs_by,
	takes_a_consumer_for_the_same_when_only_its_writing_or_its_neighbours_change,
	parses_with_errors_like_a_file)

/* SPDX-License-Identifier: MIT */
#include "config/config.h"

#include "fixture.h"
#include "unit.h"

#include <stdlib.h>

START_TEST(fills_in_every_default)
{
	(void)unsetenv("RUNTIME_DIRECTORY");
	struct config *c = config_of(CONSUMER(""));
	ck_assert_uint_eq(c->handler_directories.n, 1);
	ck_assert_str_eq(c->handler_directories.items[0], INBOXD_HANDLERDIR);
	ck_assert_str_eq(c->runtime_directory, "/run/inboxd");
	ck_assert_int_eq(c->log_level, L_INFO);
	ck_assert_int_eq(c->log_format, LOG_LOGFMT);
	ck_assert_uint_eq(c->stop_timeout_ms, 25000);
	ck_assert_uint_eq(c->env_used.n, 0);

	ck_assert_uint_eq(c->n_brokers, 1);
	const struct config_broker *b = c->brokers[0];
	ck_assert_str_eq(b->name, "default");
	ck_assert_uint_eq(b->uris.n, 1);
	ck_assert_str_eq(b->uris.items[0], "amqp://localhost");
	ck_assert_int_eq(b->auth, BROKER_AUTH_PLAIN);
	ck_assert(b->user == NULL && b->password == NULL && b->password_file == NULL &&
		b->vhost == NULL);
	ck_assert_uint_eq(b->heartbeat_s, 15);
	ck_assert_uint_eq(b->connect_timeout_ms, 10000);
	ck_assert(b->tls.ca == NULL && b->tls.cert == NULL && b->tls.key == NULL);
	ck_assert_int_eq(b->tls.verify, TLS_VERIFY_FULL);

	ck_assert_uint_eq(c->n_databases, 1);
	const struct config_database *d = c->databases[0];
	ck_assert_str_eq(d->name, "default");
	ck_assert_str_eq(d->conninfo, "");
	ck_assert_ptr_null(d->password_file);
	ck_assert_str_eq(d->schema, "inboxd");
	ck_assert_str_eq(d->synchronous_commit, "on");
	ck_assert(d->prepared_statements);
	ck_assert_uint_eq(d->connect_timeout_ms, 10000);
	config_free(c);
}
END_TEST

START_TEST(fills_in_every_default_of_a_consumer)
{
	struct config *c = config_of(CONSUMER(""));
	ck_assert_uint_eq(c->n_consumers, 1);
	const struct config_consumer *o = config_find_consumer(c, "orders");
	ck_assert_ptr_eq(o, c->consumers[0]);
	ck_assert_ptr_null(config_find_consumer(c, "order"));
	ck_assert_str_eq(o->name, "orders");
	ck_assert_str_eq(o->identity, "orders");
	ck_assert_str_eq(o->queue, "orders");
	ck_assert_str_eq(o->handler, "sql");
	ck_assert_ptr_eq(o->broker, c->brokers[0]);
	ck_assert_ptr_eq(o->database, c->databases[0]);
	ck_assert_uint_eq(o->key.n, 1);
	ck_assert_int_eq(o->key.sources[0].kind, SOURCE_MESSAGE_ID);
	ck_assert_int_eq(o->key.on_missing, ON_MISSING_KEY_PARK);
	ck_assert(!o->fingerprint.none);
	ck_assert_uint_eq(o->fingerprint.n, 0);
	ck_assert_uint_eq(o->workers, 1);
	ck_assert_uint_eq(o->prefetch, 400);
	ck_assert_uint_eq(o->prefetch_bytes, 256 << 20);
	ck_assert_uint_eq(o->batch_max, 100);
	ck_assert_uint_eq(o->batch_bytes, 4 << 20);
	ck_assert_uint_eq(o->batch_time_ms, 100);
	ck_assert_uint_eq(o->max_message_bytes, 16 << 20);
	ck_assert_uint_eq(o->handler_timeout_ms, 30000);
	ck_assert_uint_eq(o->retry_immediate, 2);
	ck_assert_uint_eq(o->n_retry_delays, 3);
	ck_assert_uint_eq(o->retry_delays_ms[0], 10000);
	ck_assert_uint_eq(o->retry_delays_ms[1], 60000);
	ck_assert_uint_eq(o->retry_delays_ms[2], 600000);
	ck_assert_uint_eq(o->retry_jitter_percent, 20);
	ck_assert_uint_eq(o->crash_limit, 3);
	ck_assert_uint_eq(o->delivery_limit, 20);
	ck_assert_uint_eq(o->breaker_failures, 10);
	ck_assert_uint_eq(o->breaker_pause_ms, 30000);
	ck_assert_uint_eq(o->parked_max, 10000);
	ck_assert_uint_eq(o->keep_s, 7 * 86400);
	ck_assert_uint_eq(o->broker->consumer_timeout_ms, 1800000);
	ck_assert_ptr_null(o->dead_letter.exchange);
	ck_assert_ptr_null(o->dead_letter.routing_key);
	ck_assert(!o->topology.declare);
	ck_assert_uint_eq(options_count(o->options, ""), 0);
	ck_assert_ptr_nonnull(o->print);
	config_free(c);
}
END_TEST

START_TEST(takes_every_value_of_a_broker_and_a_database)
{
	struct config *c = config_of("broker:\n"
				     "  uri: [amqps://rabbit-1/pay, \"amqps://u:p%40@rabbit-2\"]\n"
				     "  auth: external\n  user: u\n  vhost: \"\"\n"
				     "  heartbeat: 5m\n  connect_timeout: 1500ms\n"
				     "  tls: {ca: /ca, cert: /cert, key: /key, verify: peer}\n"
				     "database:\n"
				     "  conninfo: dbname=x\n  password_file: /pw\n  schema: Box_2\n"
				     "  synchronous_commit: remote_apply\n  prepared_statements: "
				     "false\n  connect_timeout: 2s\n"
				     "runtime_directory: /run/x\nstop_timeout: 2m\nlog: {level: "
				     "warning, format: journal}\n" CONSUMER(""));
	const struct config_broker *b = c->brokers[0];
	ck_assert_uint_eq(b->uris.n, 2);
	ck_assert_str_eq(b->uris.items[1], "amqps://u:p%40@rabbit-2");
	ck_assert_int_eq(b->auth, BROKER_AUTH_EXTERNAL);
	ck_assert_str_eq(b->user, "u");
	ck_assert_str_eq(b->vhost, "");
	ck_assert_uint_eq(b->heartbeat_s, 300);
	ck_assert_uint_eq(b->connect_timeout_ms, 1500);
	ck_assert_str_eq(b->tls.ca, "/ca");
	ck_assert_str_eq(b->tls.cert, "/cert");
	ck_assert_str_eq(b->tls.key, "/key");
	ck_assert_int_eq(b->tls.verify, TLS_VERIFY_PEER);
	const struct config_database *d = c->databases[0];
	ck_assert_str_eq(d->conninfo, "dbname=x");
	ck_assert_str_eq(d->password_file, "/pw");
	ck_assert_str_eq(d->schema, "Box_2");
	ck_assert_str_eq(d->synchronous_commit, "remote_apply");
	ck_assert(!d->prepared_statements);
	ck_assert_uint_eq(d->connect_timeout_ms, 2000);
	ck_assert_str_eq(c->runtime_directory, "/run/x");
	ck_assert_uint_eq(c->stop_timeout_ms, 120000);
	ck_assert_int_eq(c->log_level, L_WARNING);
	ck_assert_int_eq(c->log_format, LOG_JOURNAL);
	config_free(c);
}
END_TEST

START_TEST(takes_every_value_of_a_consumer)
{
	struct config *c = config_of(CONSUMER(
		"    identity: shop.orders-1\n    key: [header:merchant, message_id]\n"
		"    on_missing_key: body\n    fingerprint: [json:/amount]\n    workers: 4\n"
		"    prefetch: 65535\n    prefetch_bytes: 1000000\n"
		"    batch: {max: 1, bytes: 1KiB, time: 2s}\n    max_message_bytes: 512MiB\n"
		"    handler_timeout: 10m\n    retry: {immediate: 0, delays: [], jitter: 0%, "
		"sqlstates: {\"23\": retry, P0001: reject}}\n"
		"    worker: {memory_max: 1GiB, recycle_after: 500}\n"
		"    crash_limit: 1\n    dead_letter: {exchange: dlx, routing_key: \"\"}\n"
		"    delivery_limit: 7\n    parked: {max: 5}\n    retention: {keep: 400d}\n"
		"    breaker: {failures: 3, pause: 1s}\n"));
	const struct config_consumer *o = c->consumers[0];
	ck_assert_str_eq(o->identity, "shop.orders-1");
	ck_assert_uint_eq(o->key.n, 2);
	ck_assert_int_eq(o->key.on_missing, ON_MISSING_KEY_BODY);
	ck_assert_uint_eq(o->fingerprint.n, 1);
	ck_assert_uint_eq(o->workers, 4);
	ck_assert_uint_eq(o->prefetch, 65535);
	ck_assert_uint_eq(o->prefetch_bytes, 1000000);
	ck_assert_uint_eq(o->batch_max, 1);
	ck_assert_uint_eq(o->batch_bytes, 1024);
	ck_assert_uint_eq(o->batch_time_ms, 2000);
	ck_assert_uint_eq(o->max_message_bytes, 512 << 20);
	ck_assert_uint_eq(o->handler_timeout_ms, 600000);
	ck_assert_uint_eq(o->retry_immediate, 0);
	ck_assert_uint_eq(o->n_retry_delays, 0);
	ck_assert_uint_eq(o->retry_jitter_percent, 0);
	ck_assert_uint_eq(o->crash_limit, 1);
	ck_assert_str_eq(o->dead_letter.exchange, "dlx");
	ck_assert_str_eq(o->dead_letter.routing_key, "");
	ck_assert_uint_eq(o->delivery_limit, 7);
	ck_assert_uint_eq(o->parked_max, 5);
	ck_assert_uint_eq(o->keep_s, 400 * 86400);
	ck_assert_uint_eq(o->breaker_failures, 3);
	ck_assert_uint_eq(o->breaker_pause_ms, 1000);
	ck_assert_uint_eq(o->n_sqlstates, 2);
	ck_assert_str_eq(o->sqlstates[0].state, "23");
	ck_assert(!o->sqlstates[0].is_reject);
	ck_assert_str_eq(o->sqlstates[1].state, "P0001");
	ck_assert(o->sqlstates[1].is_reject);
	ck_assert_uint_eq(o->memory_max, 1 << 30);
	ck_assert_uint_eq(o->recycle_after, 500);
	config_free(c);
}
END_TEST

START_TEST(takes_the_delivery_limit_from_the_declared_queue)
{
	struct config *c = config_of(CONSUMER("    topology: {type: quorum, arguments: {x-delivery-limit: 3}}\n"));
	ck_assert_uint_eq(c->consumers[0]->delivery_limit, 3);
	config_free(c);
	c = config_of(CONSUMER("    delivery_limit: 3\n    topology: {arguments: {x-delivery-limit: 6}}\n"));
	ck_assert_uint_eq(c->consumers[0]->delivery_limit, 3);
	config_free(c);
}
END_TEST

START_TEST(computes_prefetch_from_workers_and_batch_and_caps_it)
{
	struct config *c = config_of(CONSUMER("    workers: 3\n    batch: {max: 7}\n"));
	ck_assert_uint_eq(c->consumers[0]->prefetch, 84);
	config_free(c);
	c = config_of(CONSUMER("    workers: 64\n    batch: {max: 1000}\n"));
	ck_assert_uint_eq(c->consumers[0]->prefetch, 65535);
	config_free(c);
	c = config_of(CONSUMER(
		"    prefetch: 1\n    batch: {max: 1000}\n")); /* less than a batch is fine */
	ck_assert_uint_eq(c->consumers[0]->prefetch, 1);
	config_free(c);
}
END_TEST

START_TEST(declares_a_queue_only_where_topology_stands)
{
	struct config *c = config_of(CONSUMER("    topology:\n"));
	ck_assert(c->consumers[0]->topology.declare);
	ck_assert_str_eq(c->consumers[0]->topology.type, "classic");
	ck_assert(c->consumers[0]->topology.durable);
	ck_assert_uint_eq(c->consumers[0]->topology.n_arguments, 0);
	ck_assert_uint_eq(c->consumers[0]->topology.n_bindings, 0);
	config_free(c);
}
END_TEST

START_TEST(takes_arguments_with_the_type_of_their_form)
{
	static const struct config_argument expected[] = {
		{(char *)(uintptr_t) "x-a", ARGUMENT_INTEGER, NULL, -5},
		{(char *)(uintptr_t) "x-b", ARGUMENT_STRING, (char *)(uintptr_t) "-5", 0},
		{(char *)(uintptr_t) "x-c", ARGUMENT_BOOL, NULL, 1},
		{(char *)(uintptr_t) "x-d", ARGUMENT_BOOL, NULL, 0},
		{(char *)(uintptr_t) "x-e", ARGUMENT_STRING, (char *)(uintptr_t) "true", 0},
		{(char *)(uintptr_t) "x-f", ARGUMENT_STRING, (char *)(uintptr_t) "lazy", 0},
		{(char *)(uintptr_t) "x-g", ARGUMENT_STRING, (char *)(uintptr_t) "", 0},
		{(char *)(uintptr_t) "x-h", ARGUMENT_INTEGER, NULL, INT64_MAX},
		{(char *)(uintptr_t) "x-i", ARGUMENT_STRING, (char *)(uintptr_t) "0123", 0},
	};
	struct config *c = config_of(
		CONSUMER("    topology: {arguments: {x-a: -5, x-b: \"-5\", x-c: true, x-d: false, "
			 "x-e: 'true',\n"
			 "      x-f: lazy, x-g: \"\", x-h: 9223372036854775807, x-i: '0123'}}\n"));
	const struct config_topology *t = &c->consumers[0]->topology;
	ck_assert_uint_eq(t->n_arguments, sizeof expected / sizeof expected[0]);
	for (size_t i = 0; i < t->n_arguments; i++) {
		ck_assert_str_eq(t->arguments[i].name, expected[i].name);
		ck_assert_int_eq(t->arguments[i].kind, expected[i].kind);
		ck_assert_int_eq(t->arguments[i].integer, expected[i].integer);
		ck_assert_pstr_eq(t->arguments[i].string, expected[i].string);
	}
	config_free(c);
}
END_TEST

START_TEST(takes_bindings_in_their_order)
{
	struct config *c = config_of(CONSUMER("    topology:\n      type: quorum\n      bindings:\n"
					      "        - {exchange: pay, routing_key: "
					      "\"capture.#\"}\n        - exchange: all\n"));
	const struct config_topology *t = &c->consumers[0]->topology;
	ck_assert_str_eq(t->type, "quorum");
	ck_assert_uint_eq(t->n_bindings, 2);
	ck_assert_str_eq(t->bindings[0].exchange, "pay");
	ck_assert_str_eq(t->bindings[0].routing_key, "capture.#");
	ck_assert_str_eq(t->bindings[1].exchange, "all");
	ck_assert_str_eq(t->bindings[1].routing_key, "");
	config_free(c);
}
END_TEST

START_TEST(keeps_texts_that_look_like_something_else)
{
	struct config *c = config_of(
		"broker: {user: no, password: 0123, vhost: 1e3}\n"
		"consumers: {1: {queue: on, handler: 2}, yes: {queue: \"~\", handler: h}}\n");
	ck_assert_str_eq(c->brokers[0]->user, "no");
	ck_assert_str_eq(c->brokers[0]->password, "0123");
	ck_assert_str_eq(c->brokers[0]->vhost, "1e3");
	ck_assert_str_eq(c->consumers[0]->name, "1");
	ck_assert_str_eq(c->consumers[0]->queue, "on");
	ck_assert_str_eq(c->consumers[0]->handler, "2");
	ck_assert_str_eq(c->consumers[1]->queue, "~");
	config_free(c);
}
END_TEST

START_TEST(takes_quoted_numbers_and_booleans_like_plain_ones)
{
	struct config *c = config_of(
		"database: {prepared_statements: 'false'}\n" CONSUMER("    workers: \"4\"\n"));
	ck_assert(!c->databases[0]->prepared_statements);
	ck_assert_uint_eq(c->consumers[0]->workers, 4);
	config_free(c);
}
END_TEST

START_TEST(puts_defaults_beneath_every_consumer)
{
	struct config *c = config_of(
		"defaults:\n  handler: sql\n  workers: 2\n  batch: {max: 10, time: 1s}\n"
		"  key: [header:a, header:b]\n  on_missing_key: process\n  retry: {delays: [1s]}\n"
		"  options: {a: 1, m: {x: 1, y: 2}, l: [1, 2]}\n"
		"consumers:\n  one: {queue: one}\n  two:\n    queue: two\n    handler: own\n"
		"    batch: {max: 20}\n    key: body\n    options: {a: 2, m: {y: 3}, l: [3], n: "
		"4}\n");
	const struct config_consumer *one = c->consumers[0], *two = c->consumers[1];
	ck_assert_str_eq(one->handler, "sql");
	ck_assert_uint_eq(one->workers, 2);
	ck_assert_uint_eq(one->batch_max, 10);
	ck_assert_uint_eq(one->prefetch, 80);
	ck_assert_uint_eq(one->key.n, 2);
	ck_assert_int_eq(one->key.on_missing, ON_MISSING_KEY_PROCESS);
	ck_assert_uint_eq(one->n_retry_delays, 1);
	ck_assert_str_eq((const char *)options_get(one->options, "m/y").data, "2");
	ck_assert_str_eq(two->handler, "own");
	ck_assert_uint_eq(two->batch_max, 20);
	ck_assert_uint_eq(two->batch_time_ms, 1000);
	ck_assert_uint_eq(two->key.n, 1);
	ck_assert_int_eq(two->key.on_missing, ON_MISSING_KEY_PROCESS);
	ck_assert_str_eq((const char *)options_get(two->options, "a").data, "2");
	ck_assert_str_eq((const char *)options_get(two->options, "m/x").data, "1");
	ck_assert_str_eq((const char *)options_get(two->options, "m/y").data, "3");
	ck_assert_uint_eq(options_count(two->options, "l"), 1);
	ck_assert_str_eq((const char *)options_get(two->options, "n").data, "4");
	config_free(c);
}
END_TEST

START_TEST(takes_where_dead_letters_go_whole_from_a_consumer_or_from_the_defaults)
{
	struct config *c = config_of(
		"defaults: {handler: sql, dead_letter: {exchange: dlx, routing_key: k}}\n"
		"consumers:\n  beneath: {queue: q}\n  none: {queue: q, dead_letter: {}}\n"
		"  own: {queue: q, dead_letter: {exchange: other}}\n");
	const struct config_consumer *beneath = c->consumers[0], *none = c->consumers[1],
				     *own = c->consumers[2];
	ck_assert_str_eq(beneath->dead_letter.exchange, "dlx");
	ck_assert_str_eq(beneath->dead_letter.routing_key, "k");
	ck_assert_ptr_null(none->dead_letter.exchange);
	ck_assert_ptr_null(none->dead_letter.routing_key);
	ck_assert_str_eq(own->dead_letter.exchange, "other");
	ck_assert_ptr_null(own->dead_letter.routing_key);
	config_free(c);
}
END_TEST

START_TEST(finds_the_broker_and_the_database_that_a_consumer_names)
{
	struct config *c = config_of("brokers: {east: {uri: amqp://e}, default: {uri: amqp://d}}\n"
				     "databases: {only: {schema: s}}\n"
				     "consumers: {a: {queue: a, handler: h, broker: east}, b: "
				     "{queue: b, handler: h, database: only}}\n");
	ck_assert_str_eq(c->consumers[0]->broker->name, "east");
	ck_assert_str_eq(c->consumers[0]->database->name, "only");
	ck_assert_str_eq(c->consumers[1]->broker->name, "default");
	ck_assert_str_eq(c->consumers[1]->database->schema, "s");
	config_free(c);
}
END_TEST

START_TEST(sorts_consumers_by_name)
{
	struct config *c =
		config_of("consumers: {b: {queue: q, handler: h}, a.1: {queue: q, handler: h}, "
			  "B: {queue: q, handler: h}}\n");
	ck_assert_str_eq(c->consumers[0]->name, "B");
	ck_assert_str_eq(c->consumers[1]->name, "a.1");
	ck_assert_str_eq(c->consumers[2]->name, "b");
	config_free(c);
}
END_TEST

START_TEST(takes_the_runtime_directory_from_the_service_manager)
{
	ck_assert_int_eq(setenv("RUNTIME_DIRECTORY", "/run/inboxd-eu:/run/other", 1), 0);
	struct config *c = config_of(CONSUMER(""));
	ck_assert_str_eq(c->runtime_directory, "/run/inboxd-eu");
	config_free(c);
	c = config_of("runtime_directory: /run/own\n" CONSUMER(""));
	ck_assert_str_eq(c->runtime_directory, "/run/own");
	config_free(c);
}
END_TEST

START_TEST(lets_entries_of_one_identity_agree_or_use_different_databases)
{
	config_free(config_of("consumers:\n"
			      "  a: {queue: a, handler: h, identity: x, key: header:id}\n"
			      "  b: {queue: b, handler: h, identity: x, key: [header:id]}\n"));
	config_free(config_of(
		"databases: {one: {}, two: {}}\nconsumers:\n"
		"  a: {queue: a, handler: h, identity: x, key: header:id, database: one}\n"
		"  b: {queue: b, handler: h, identity: x, key: body, database: two}\n"));
	expect_errors("consumers:\n"
		      "  a: {queue: a, handler: h, on_missing_key: body}\n"
		      "  b: {queue: b, handler: h, identity: a}\n",
		"inboxd.yaml:3:39: consumers.b shares the identity \"a\" with consumers.a, but not "
		"its key rule\n"
		"    b: {queue: b, handler: h, identity: a}\n"
		"                                        ^\n"
		"  hint: give both the same key, on_missing_key, fingerprint and retention, or this "
		"one an identity of its own\n");
}
END_TEST

UNIT_SUITE("config/config", takes_where_dead_letters_go_whole_from_a_consumer_or_from_the_defaults,
	fills_in_every_default, fills_in_every_default_of_a_consumer,
	takes_every_value_of_a_broker_and_a_database, takes_every_value_of_a_consumer,
	takes_the_delivery_limit_from_the_declared_queue,
	computes_prefetch_from_workers_and_batch_and_caps_it,
	declares_a_queue_only_where_topology_stands, takes_arguments_with_the_type_of_their_form,
	takes_bindings_in_their_order, keeps_texts_that_look_like_something_else,
	takes_quoted_numbers_and_booleans_like_plain_ones, puts_defaults_beneath_every_consumer,
	finds_the_broker_and_the_database_that_a_consumer_names, sorts_consumers_by_name,
	takes_the_runtime_directory_from_the_service_manager,
	lets_entries_of_one_identity_agree_or_use_different_databases)

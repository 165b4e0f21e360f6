/* SPDX-License-Identifier: MIT */
/* Messages of clients and plugins that know nothing of inboxd: with the key that
 * tests/publishers/README.md names for each, every message has one effect, and nothing stumbles
 * over its headers. */
#include "harness.h"

#include <stdio.h>

enum { MESSAGES = 20 };

struct publisher {
	const char *program[3]; /* below tests/publishers */
	const char *key;        /* as in the configuration */
	const char *effect_key; /* what the handler writes */
	const char *exchange; /* the queue is bound there by its own name; NULL: default exchange */
	const char *prefix;   /* of its keys */
};

static void configure(struct world *w, const struct publisher *p)
{
	config_write(w, "inboxd", "",
		"  main:\n"
		"    queue: %s\n"
		"    handler: effect\n"
		"    key: %s\n"
		"    options: {table: %s.effect, key: %s}\n",
		w->queue, p->key, w->name, p->effect_key);
}

static void run_publisher(struct world *w, const struct publisher *p)
{
	const char *argv[6];
	char script[512], count[16];
	size_t n = 0;
	(void)snprintf(count, sizeof count, "%d", MESSAGES);
	(void)snprintf(script, sizeof script, "%s/publishers/%s",
		environment("INBOXD_TEST_SOURCES"), p->program[0]);
	if (p->program[1] != NULL)
		argv[n++] = p->program[1];
	argv[n++] = script;
	argv[n++] = w->queue;
	argv[n++] = count;
	argv[n] = NULL;
	run_program(w, "publisher", argv);
}

static void check_publisher(const struct publisher *p)
{
	struct world w;
	struct daemon d;
	world_begin(&w, p->prefix);
	configure(&w, p);
	if (p->exchange != NULL)
		queue_bind(&w, w.queue, p->exchange, w.queue);
	daemon_start_main(&w, &d);
	run_publisher(&w, p);
	WAIT_FOR(effect_keys(&w) == MESSAGES, 30);
	WAIT_FOR(is_settled(w.queue), 30);
	ck_assert_int_eq(effects(&w), MESSAGES);
	ck_assert_int_eq(markers(&w), MESSAGES);
	ck_assert_int_eq(parked(&w, NULL), 0);
	ck_assert_int_eq(log_lines(&d, " level=error"), 0);
	world_end(&w);
}

START_TEST(python_pika)
{
	check_publisher(&(struct publisher){.program = {"pika_publish.py"},
		.key = "message_id",
		.effect_key = "message_id",
		.prefix = "pika"});
}
END_TEST

START_TEST(amqp_publish)
{
	check_publisher(&(struct publisher){.program = {"amqp-publish.sh"},
		.key = "header:id",
		.effect_key = "header:id",
		.prefix = "tools"});
}
END_TEST

START_TEST(amqp_publish_without_any_id_by_its_body)
{
	check_publisher(&(struct publisher){.program = {"amqp-publish.sh"},
		.key = "body",
		.effect_key = "body",
		.prefix = "body"});
}
END_TEST

START_TEST(node_amqplib)
{
	check_publisher(&(struct publisher){.program = {"node/amqplib.js", "node"},
		.key = "message_id",
		.effect_key = "message_id",
		.prefix = "amqplib"});
}
END_TEST

START_TEST(node_rabbitmq_client)
{
	check_publisher(&(struct publisher){.program = {"node/rabbitmq-client.js", "node"},
		.key = "message_id",
		.effect_key = "message_id",
		.prefix = "client"});
}
END_TEST

START_TEST(celery)
{
	check_publisher(&(struct publisher){.program = {"celery_publish.py"},
		.key = "header:id",
		.effect_key = "header:id",
		.prefix = "celery"});
}
END_TEST

START_TEST(mqtt_plugin)
{
	check_publisher(&(struct publisher){.program = {"mqtt-publish.sh"},
		.key = "json:/id",
		.effect_key = "json:/id",
		.exchange = "amq.topic",
		.prefix = "mqtt"});
}
END_TEST

START_TEST(stomp_plugin)
{
	check_publisher(&(struct publisher){.program = {"stomp_publish.py"},
		.key = "message_id",
		.effect_key = "message_id",
		.prefix = "stomp"});
}
END_TEST

/* The broker tells of itself, once; the copies are made by publishing what another queue got, every
 * property and byte as it was. */
START_TEST(event_exchange)
{
	struct world w;
	struct daemon d;
	char other[96];
	world_begin(&w, "events");
	configure(&w, &(struct publisher){.key = "header:name", .effect_key = "header:name"});
	(void)snprintf(other, sizeof other, "%s-other", w.name);
	queue_declare(&w, other, NULL);
	queue_bind(&w, w.queue, "amq.rabbitmq.event", "user.created");
	queue_bind(&w, other, "amq.rabbitmq.event", "user.created");
	daemon_start_main(&w, &d);
	for (int i = 0; i < MESSAGES; i++) {
		char user[96];
		(void)snprintf(user, sizeof user, "%s-%d", w.name, i);
		user_make(user, "x");
	}
	WAIT_FOR(effect_keys(&w) == MESSAGES, 30);
	WAIT_FOR(queue_state(other).ready == MESSAGES, 10);
	ck_assert_int_eq(move_messages(&w, other, w.queue), MESSAGES);
	WAIT_FOR(is_settled(w.queue), 30);
	ck_assert_int_eq(effects(&w), MESSAGES);
	ck_assert_int_eq(markers(&w), MESSAGES);
	ck_assert_int_eq(parked(&w, NULL), 0);
	world_end(&w);
}
END_TEST

UNIT_SUITE_TIMEOUT(120, "integration/publishers", python_pika, amqp_publish,
	amqp_publish_without_any_id_by_its_body, node_amqplib, node_rabbitmq_client, celery,
	mqtt_plugin, stomp_plugin, event_exchange)

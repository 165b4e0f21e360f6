/* SPDX-License-Identifier: MIT */
/* What one option means for another. */
#include "config/check.h"

#include "base/fd.h"
#include "config/scalar.h"

/* ---- broker -------------------------------------------------------------------------------- */

static bool is_tls(const struct config_broker *b)
{
	return b->uris.n > 0 && strncmp(b->uris.items[0], "amqps", 5) == 0;
}

static void fault(struct reading *r, const struct yaml_node *map, const char *name,
	const char *text, const char *hint)
{
	size_t mark = read_enter(r, name);
	read_error(r, yaml_key_place(map, name), "%s", text);
	read_hint(r, "%s", hint);
	read_leave(r, mark);
}

static void check_external(
	struct reading *r, const struct yaml_node *own, const struct config_broker *b)
{
	const struct yaml_node *tls = yaml_find(own, "tls");
	if (b->uris.n > 0 && !is_tls(b))
		fault(r, own, "auth", "external needs TLS",
			"the broker takes our name from the client certificate; write amqps:// in "
			"uri");
	if (yaml_find(tls, "cert") == NULL)
		fault(r, own, "auth", "external needs a client certificate",
			"set tls.cert and tls.key");
	if (yaml_find(own, "password") != NULL)
		fault(r, own, "password", "is not used with auth: external",
			"remove one of the two");
	if (yaml_find(own, "password_file") != NULL)
		fault(r, own, "password_file", "is not used with auth: external",
			"remove one of the two");
}

static void check_tls(struct reading *r, const struct yaml_node *own, const struct config_broker *b)
{
	const struct yaml_node *tls = yaml_find(own, "tls");
	if (tls == NULL || tls->kind != NODE_MAP)
		return;
	if (tls->n > 0 && b->uris.n > 0 && !is_tls(b) && b->auth != BROKER_AUTH_EXTERNAL)
		fault(r, own, "tls", "has no effect: uri says amqp://",
			"write amqps:// in uri, or remove tls");
	size_t mark = read_enter(r, "tls");
	if (yaml_find(tls, "cert") != NULL && yaml_find(tls, "key") == NULL)
		fault(r, tls, "cert", "needs tls.key",
			"set key to the file of the private key; it may be the same file");
	if (yaml_find(tls, "key") != NULL && yaml_find(tls, "cert") == NULL)
		fault(r, tls, "key", "needs tls.cert",
			"set cert to the file of the certificate; it may be the same file");
	read_leave(r, mark);
}

void check_broker(struct reading *r, const struct yaml_node *own, const struct config_broker *b)
{
	if (own == NULL || own->kind != NODE_MAP)
		return;
	if (yaml_find(own, "password") != NULL && yaml_find(own, "password_file") != NULL)
		fault(r, own, "password", "and password_file exclude each other",
			"the file is better: it does not show in copies of the configuration");
	if (b->auth == BROKER_AUTH_EXTERNAL)
		check_external(r, own, b);
	check_tls(r, own, b);
}

/* ---- keys and fingerprints ----------------------------------------------------------------- */

/* A rule to be compiled; parse is key_rule_parse or fingerprint_rule_parse into c. */
struct rule {
	const char *name;
	const struct string_list *sources;
	enum rc (*parse)(struct config_consumer *c, const char *const *sources, size_t n,
		size_t *ret_bad, struct err *err);
	void (*done)(struct config_consumer *c);
};

static enum rc parse_key(struct config_consumer *c, const char *const *sources, size_t n,
	size_t *ret_bad, struct err *err)
{
	return key_rule_parse(sources, n, c->key.on_missing, &c->key, ret_bad, err);
}

static void done_key(struct config_consumer *c)
{
	enum on_missing_key on_missing = c->key.on_missing;
	key_rule_done(&c->key);
	c->key = (struct key_rule){.on_missing = on_missing};
}

static enum rc parse_fingerprint(struct config_consumer *c, const char *const *sources, size_t n,
	size_t *ret_bad, struct err *err)
{
	return fingerprint_rule_parse(sources, n, &c->fingerprint, ret_bad, err);
}

static void done_fingerprint(struct config_consumer *c)
{
	fingerprint_rule_done(&c->fingerprint);
	c->fingerprint = (struct fingerprint_rule){0};
}

static void rule_error(struct reading *r, const struct level *at, const struct rule *rule, size_t i,
	const struct err *err)
{
	const struct yaml_node *node = level_find(at, rule->name);
	struct place place = node != NULL ? node->place : at->place;
	if (node != NULL && node->kind == NODE_LIST && i < node->n)
		place = node->items[i]->place;
	bool was_quiet = r->is_quiet;
	r->is_quiet = was_quiet || yaml_find(at->own, rule->name) == NULL;
	read_error(r, place, ": %s", err->text);
	read_hint(r,
		"sources: message_id, header:NAME, json:/pointer, property:NAME, routing_key, "
		"body, "
		"cloudevents");
	r->is_quiet = was_quiet;
}

/* Each source by itself, so that all that are wrong are told, then the rule as a whole. */
static void check_rule(struct reading *r, const struct level *at, const struct rule *rule,
	struct config_consumer *c)
{
	const char *const *texts = (const char *const *)rule->sources->items;
	size_t n = rule->sources->n, bad = 0;
	bool is_fine = n > 0;
	struct err err;
	size_t mark = read_enter(r, rule->name);
	for (size_t i = 0; n > 1 && i < n; i++) {
		if (rule->parse(c, texts + i, 1, &bad, &err) == RC_OK) {
			rule->done(c);
			continue;
		}
		rule_error(r, at, rule, i, &err);
		is_fine = false;
	}
	if (is_fine && rule->parse(c, texts, n, &bad, &err) != RC_OK)
		rule_error(r, at, rule, bad, &err);
	read_leave(r, mark);
}

/* ---- dead letters -------------------------------------------------------------------------- */

static void check_dead_letter(
	struct reading *r, const struct yaml_node *own, const struct config_consumer *c)
{
	const struct yaml_node *map = yaml_find(own, "dead_letter");
	const char *exchange = c->dead_letter.exchange, *key = c->dead_letter.routing_key;
	if (map == NULL || map->kind != NODE_MAP)
		return;
	size_t mark = read_enter(r, "dead_letter");
	if (yaml_find(map, "exchange") == NULL && key != NULL)
		fault(r, map, "routing_key", "needs an exchange",
			"set exchange; \"\" is the default exchange, whose routing keys are queues");
	if (exchange != NULL && exchange[0] == '\0' && (key == NULL || key[0] == '\0'))
		fault(r, map, "exchange", "\"\" needs a routing_key",
			"by its own routing key a message would come back to the queue it is from; "
			"set routing_key to the queue that dead letters are meant for");
	read_leave(r, mark);
}

/* A message that fails, comes back as one that was sent again, and fails, for ever. */
static bool is_bound_to(const struct config_topology *t, const char *exchange, const char *key)
{
	for (size_t i = 0; i < t->n_bindings; i++) {
		const struct config_binding *b = &t->bindings[i];
		if (b->exchange != NULL && strcmp(b->exchange, exchange) == 0 &&
			b->routing_key != NULL && strcmp(b->routing_key, key) == 0)
			return true;
	}
	return false;
}

static bool leads_back(const struct config_consumer *c)
{
	const char *exchange = c->dead_letter.exchange, *key = c->dead_letter.routing_key;
	if (exchange == NULL || key == NULL || c->queue == NULL)
		return false;
	return exchange[0] == '\0' ? strcmp(key, c->queue) == 0
				   : is_bound_to(&c->topology, exchange, key);
}

static void check_no_circle(
	struct reading *r, const struct level *at, const struct config_consumer *c)
{
	if (!leads_back(c))
		return;
	const struct yaml_node *own = yaml_find(at->own, "dead_letter");
	size_t mark = read_enter(r, "dead_letter");
	read_error(r, own != NULL ? yaml_key_place(at->own, "dead_letter") : at->place,
		"leads back to the consumer's own queue");
	read_hint(r, "name another queue, or write dead_letter: {}");
	read_leave(r, mark);
}

void check_rules(struct reading *r, const struct level *at, struct config_consumer *c)
{
	const struct rule key = {"key", &c->key_sources, parse_key, done_key};
	const struct rule fingerprint = {
		"fingerprint", &c->fingerprint_sources, parse_fingerprint, done_fingerprint};
	check_rule(r, at, &key, c);
	check_rule(r, at, &fingerprint, c);
	check_dead_letter(r, at->own, c);
}

/* ---- broker and database of a consumer ----------------------------------------------------- */

static void unknown_name(struct reading *r, const struct yaml_node *node, const char *name,
	const char *const *names, size_t n)
{
	AUTO(buf) struct buf list = {0}, quoted = {0};
	const char *near = schema_nearest(name, names, n);
	diag_quote(&quoted, name);
	read_error(r, node->place, ": there is none named \"%s\"", buf_str(&quoted));
	for (size_t i = 0; i < n; i++)
		buf_addf(&list, "%s%s", i != 0 ? ", " : "", names[i]);
	if (near != NULL)
		read_hint(r, "did you mean %s?", near);
	else
		read_hint(r, "there are: %s", buf_str(&list));
}

/* Index of the one that is named, or the only one, or the one named default; n if there is none,
 * which is told. */
static size_t find_named(struct reading *r, const struct level *at, const char *option,
	const char *name, const char *const *names, size_t n)
{
	const char *wanted = name != NULL ? name : n == 1 ? names[0] : "default";
	for (size_t i = 0; i < n; i++)
		if (strcmp(names[i], wanted) == 0)
			return i;
	if (n == 0) /* a role has but one of the two; otherwise it is told already */
		return n;
	const struct yaml_node *node = level_find(at, option);
	size_t mark = read_enter(r, option);
	if (node != NULL && name != NULL) {
		unknown_name(r, node, name, names, n);
	} else if (node == NULL) {
		read_error(r, at->place, "is missing: there are several");
		read_hint(r, "say which, or name one of them default");
	}
	read_leave(r, mark);
	return n;
}

static void set_name(char **name, const char *to)
{
	char *copy = xstrdup(to);
	free(*name);
	*name = copy;
}

static void find_servers(struct reading *r, const struct level *at, struct config_consumer *c)
{
	struct config *all = r->config;
	AUTO(free) const char **names = xcalloc(all->n_brokers + all->n_databases, sizeof names[0]);
	for (size_t i = 0; i < all->n_brokers; i++)
		names[i] = all->brokers[i]->name;
	size_t found = find_named(r, at, "broker", c->broker_name, names, all->n_brokers);
	if (found < all->n_brokers) {
		c->broker = all->brokers[found];
		set_name(&c->broker_name, c->broker->name);
	}
	for (size_t i = 0; i < all->n_databases; i++)
		names[i] = all->databases[i]->name;
	found = find_named(r, at, "database", c->database_name, names, all->n_databases);
	if (found < all->n_databases) {
		c->database = all->databases[found];
		set_name(&c->database_name, c->database->name);
	}
}

/* A delivery that is not settled in time takes its whole channel with it, its neighbours included.  Half of
 * it, because a message waits for its turn before it runs. */
static void check_time(struct reading *r, const struct level *at, const struct config_consumer *c)
{
	if (c->broker == NULL || c->broker->consumer_timeout_ms == 0 ||
		c->handler_timeout_ms <= c->broker->consumer_timeout_ms / 2)
		return;
	const struct yaml_node *node = level_find(at, "handler_timeout");
	size_t mark = read_enter(r, "handler_timeout");
	read_error(r, node != NULL ? node->place : at->place,
		"must be at most half of what the broker waits for an acknowledgement");
	read_hint(r,
		"that is consumer_timeout of broker \"%s\", now %u"
		" s; if RabbitMQ waits longer, say so there",
		c->broker->name, c->broker->consumer_timeout_ms / 1000);
	read_leave(r, mark);
}

/* To a round number of some unit, for people. */
static uint64_t rounded_up(uint64_t ms)
{
	static const uint64_t units[] = {86400000, 3600000, 60000, 1000};
	size_t i = 0;
	while (i + 1 < sizeof units / sizeof units[0] && ms <= 2 * units[i])
		i++;
	return (ms + units[i] - 1) / units[i] * units[i];
}

/* What comes again while a message may still be tried, or be held by a daemon that the broker has not
 * given up yet, must find the key. */
static void check_keep(struct reading *r, const struct level *at, const struct config_consumer *c)
{
	uint64_t tries_ms = (uint64_t)c->handler_timeout_ms * (1 + c->retry_immediate + c->n_retry_delays);
	for (size_t i = 0; i < c->n_retry_delays; i++)
		tries_ms += c->retry_delays_ms[i] * (100 + c->retry_jitter_percent) / 100;
	uint64_t held_ms = c->broker != NULL ? c->broker->consumer_timeout_ms : 0;
	uint64_t least_ms = tries_ms > held_ms ? tries_ms : held_ms;
	if (c->keep_s == 0 || UINT64_C(1000) * c->keep_s >= least_ms)
		return;
	AUTO(buf) struct buf enough = {0};
	scalar_add_duration(&enough, rounded_up(least_ms));
	const struct yaml_node *keep = yaml_find(yaml_find(at->own, "retention"), "keep");
	size_t mark = read_enter(r, "retention.keep");
	read_error(r, keep != NULL ? keep->place : at->place, "is too short: %s would do",
		buf_str(&enough));
	read_hint(r, "%s",
		tries_ms > held_ms
			? "so long may the tries of a message take: handler_timeout for each, and retry.delays"
			: "so long may another daemon hold a copy: consumer_timeout of the broker");
	read_leave(r, mark);
}

/* With 0 the broker drops what it gives out once and gets back: nothing could keep it first. */
static void check_delivery_limit(
	struct reading *r, const struct yaml_node *topology, const struct config_consumer *c)
{
	static const char name[] = "x-delivery-limit";
	const struct yaml_node *arguments = yaml_find(topology, "arguments");
	size_t mark = read_enter(r, "topology.arguments");
	for (size_t i = 0; i < c->topology.n_arguments; i++) {
		const struct config_argument *a = &c->topology.arguments[i];
		if (a->name == NULL || strcmp(a->name, name) != 0)
			continue;
		if (a->kind != ARGUMENT_INTEGER || a->integer < 1)
			fault(r, arguments, name, "must be a whole number from 1 on",
				"with less, a message is lost with the first connection");
		else if ((uint64_t)a->integer < c->delivery_limit)
			fault(r, arguments, name, "is less than delivery_limit",
				"leave delivery_limit out: it is taken from here");
	}
	read_leave(r, mark);
}

void check_consumer(struct reading *r, const struct level *at, struct config_consumer *c)
{
	const struct yaml_node *topology = yaml_find(at->own, "topology");
	check_rules(r, at, c);
	find_servers(r, at, c);
	check_time(r, at, c);
	check_keep(r, at, c);
	check_delivery_limit(r, topology, c);
	check_no_circle(r, at, c);
	if (c->topology.type != NULL && strcmp(c->topology.type, "quorum") == 0 &&
		!c->topology.durable && yaml_find(topology, "durable") != NULL) {
		size_t mark = read_enter(r, "topology");
		fault(r, topology, "durable", "cannot be false: quorum queues are durable",
			"remove it, or write type: classic");
		read_leave(r, mark);
	}
}

/* ---- identities ---------------------------------------------------------------------------- */

static const char *difference(const struct config_consumer *a, const struct config_consumer *b)
{
	if (strcmp(a->key.text, b->key.text) != 0 || a->key.on_missing != b->key.on_missing)
		return "key rule";
	if (strcmp(a->fingerprint.text, b->fingerprint.text) != 0)
		return "fingerprint rule";
	return a->keep_s != b->keep_s ? "retention" : NULL;
}

static void check_pair(
	struct reading *r, const struct config_consumer *a, const struct config_consumer *b)
{
	const struct level *at = &b->origin->level;
	if (a->key.text == NULL || b->key.text == NULL || a->fingerprint.text == NULL ||
		b->fingerprint.text == NULL)
		return;
	const char *what = difference(a, b);
	if (what == NULL)
		return;
	const struct yaml_node *identity = yaml_find(at->own, "identity");
	diag_add(r->diags, identity != NULL ? identity->place : at->place,
		"consumers.%s shares the identity \"%s\" with consumers.%s, but not its %s",
		b->name, b->identity, a->name, what);
	diag_hint(r->diags,
		"give both the same key, on_missing_key, fingerprint and retention, or this one an "
		"identity of its own");
}

void check_identities(struct reading *r)
{
	const struct config *c = r->config;
	for (size_t i = 0; i < c->n_consumers; i++) {
		for (size_t j = 0; j < i; j++) {
			const struct config_consumer *a = c->consumers[j], *b = c->consumers[i];
			if (a->database == b->database && strcmp(a->identity, b->identity) == 0) {
				check_pair(r, a, b);
				break;
			}
		}
	}
}

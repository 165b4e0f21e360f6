/* SPDX-License-Identifier: MIT */
/* The configuration as a whole: read, checked, frozen, freed. */
#include "config/config.h"

#include "base/fd.h"
#include "config/build.h"
#include "config/env.h"
#include "config/files.h"
#include "config/options_tree.h"

static char *absolute_path(const struct diag_file *file)
{
	const char *slash = strrchr(file->name, '/');
	const char *base = slash != NULL ? slash + 1 : file->name;
	return xasprintf("%s/%s", strcmp(file->directory, "/") == 0 ? "" : file->directory, base);
}

/* Runs after all else is known to be right: each consumer's text tells it from its next version. */
static void set_prints(struct config *c)
{
	for (size_t i = 0; i < c->n_consumers; i++) {
		AUTO(buf) struct buf text = {0};
		config_print(c, CONFIG_COMPLETE, c->consumers[i]->name, &text);
		c->consumers[i]->print = xstrdup(buf_str(&text));
	}
}

/* The tree to a configuration, or NULL and all errors. */
static struct config *finish(
	struct config *c, struct yaml_node *root, bool is_role, struct diags *d, struct buf *errors)
{
	struct reading r = {.config = c, .pool = c->source, .diags = d, .is_role = is_role};
	if (root != NULL) {
		env_expand(root, &c->env_used, d);
		build_config(&r, root);
	}
	buf_done(&r.path);
	buf_done(&r.quote);
	bool is_fine = root != NULL && d->n == 0;
	diags_print(d, errors);
	diags_done(d);
	if (!is_fine) {
		config_free(c);
		return NULL;
	}
	if (!is_role)
		set_prints(c);
	return c;
}

static struct config *config_new(void)
{
	struct config *c = xcalloc(1, sizeof *c);
	c->source = xcalloc(1, sizeof *c->source);
	return c;
}

struct config *config_load(const char *path, struct buf *errors)
{
	struct diags d = {0};
	struct config *c = config_new();
	const struct diag_file *main_file;
	struct yaml_node *root = files_read(c->source, path, &d, &main_file);
	c->path = absolute_path(main_file);
	return finish(c, root, false, &d, errors);
}

struct config *config_parse(const char *name, struct bytes text, struct buf *errors)
{
	struct diags d = {0};
	struct config *c = config_new();
	c->path = xstrdup(name);
	const struct diag_file *file = yaml_add_file(c->source, name, "/", text);
	return finish(c, yaml_parse(c->source, file, &d), true, &d, errors);
}

static void origin_free(struct config_origin *origin)
{
	if (origin != NULL)
		free(origin->path);
	free(origin);
}

static void broker_free(struct config_broker *b)
{
	build_done(SECTION_BROKER, b);
	origin_free(b->origin);
	free(b->name);
	free(b);
}

static void database_free(struct config_database *d)
{
	build_done(SECTION_DATABASE, d);
	origin_free(d->origin);
	free(d->name);
	free(d);
}

static void consumer_free(struct config_consumer *c)
{
	build_done(SECTION_CONSUMER, c);
	key_rule_done(&c->key);
	fingerprint_rule_done(&c->fingerprint);
	origin_free(c->origin);
	free(c->name);
	free(c->print);
	free(c);
}

void config_free(struct config *c)
{
	if (c == NULL)
		return;
	for (size_t i = 0; i < c->n_brokers; i++)
		broker_free(c->brokers[i]);
	for (size_t i = 0; i < c->n_databases; i++)
		database_free(c->databases[i]);
	for (size_t i = 0; i < c->n_consumers; i++)
		consumer_free(c->consumers[i]);
	build_done(SECTION_TOP, c);
	string_list_done(&c->env_used);
	yaml_pool_done(c->source);
	free(c->source);
	free(c->brokers);
	free(c->databases);
	free(c->consumers);
	free(c->path);
	free(c);
}

const struct config_consumer *config_find_consumer(const struct config *c, const char *name)
{
	for (size_t i = 0; i < c->n_consumers; i++)
		if (strcmp(c->consumers[i]->name, name) == 0)
			return c->consumers[i];
	return NULL;
}

void config_error(const struct config_origin *origin, const char *option, size_t item,
	const char *text, struct buf *errors)
{
	const struct yaml_node *node = level_find(&origin->level, option);
	struct place place = node != NULL ? node->place : origin->level.place;
	if (node != NULL && node->kind == NODE_LIST && item < node->n)
		place = node->items[item]->place;
	AUTO(free) char *whole = xasprintf("%s.%s: %s", origin->path, option, text);
	diag_print(place, whole, NULL, errors);
}

void config_option_error(
	const struct config_consumer *c, const char *path, const char *text, struct buf *errors)
{
	AUTO(buf) struct buf whole = {0};
	buf_addf(&whole, "%s.options%s", c->origin->path, path[0] != '\0' ? "." : "");
	for (const char *p = path; *p != '\0'; p++)
		buf_add_byte(&whole, (uint8_t)(*p == '/' ? '.' : *p));
	buf_addf(&whole, ": %s", text);
	diag_print(options_place(c->options, path), buf_str(&whole), NULL, errors);
}

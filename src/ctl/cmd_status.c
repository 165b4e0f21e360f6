/* SPDX-License-Identifier: MIT */
/* inboxctl status: the counters of the inboxd that runs here. */
#include "ctl/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <string.h>

#include "base/fd.h"
#include "base/stats.h"
#include "ctl/table.h"

/* What is summed over a consumer and its workers. */
static const enum stats_counter summed[] = {STATS_processed, STATS_unkeyed,
	STATS_duplicates_redelivered, STATS_duplicates_republished, STATS_duplicates_concurrent,
	STATS_mismatches, STATS_rejected, STATS_failed, STATS_retried, STATS_crashed,
	STATS_timed_out, STATS_outgoing_sent, STATS_outgoing_postponed, STATS_forgotten};
enum { N_SUMMED = sizeof summed / sizeof summed[0] };

static const struct table_column columns[] = {{"consumer", false}, {"state", false},
	{"workers", false}, {"in_flight", true}, {"processed", true}, {"unkeyed", true},
	{"redelivered", true}, {"republished", true}, {"concurrent", true}, {"mismatches", true},
	{"rejected", true}, {"failed", true}, {"retried", true}, {"crashed", true},
	{"timed_out", true}, {"sent", true}, {"postponed", true},
	{"forgotten", true}};

static bool is_alive(const struct stats_slot *slot)
{
	int pid = atomic_load(&slot->pid);
	return pid > 0 && (kill(pid, 0) == 0 || errno == EPERM);
}

static const char *state_of(const struct stats_slot *slot)
{
	return is_alive(slot) ? stats_consumer_state_name(stats_get(slot, STATS_state)) : "not running";
}

static bool is_of(const struct stats_slot *slot, enum stats_role role, const char *name)
{
	return atomic_load(&slot->role) == role &&
		bytes_equal(bytes_str(slot->name), bytes_str(name));
}

/* "2/3": alive and configured. */
static void count_workers(const struct stats *s, const char *name, char text[24])
{
	unsigned alive = 0, all = 0;
	for (size_t i = 0; i < STATS_SLOTS; i++) {
		if (!is_of(&s->slot[i], STATS_WORKER, name))
			continue;
		all++;
		alive += is_alive(&s->slot[i]);
	}
	(void)snprintf(text, 24, "%u/%u", alive, all);
}

static uint64_t sum(const struct stats *s, const char *name, enum stats_counter c)
{
	uint64_t v = 0;
	for (size_t i = 0; i < STATS_SLOTS; i++)
		if (is_of(&s->slot[i], STATS_CONSUMER, name) ||
			is_of(&s->slot[i], STATS_WORKER, name))
			v += stats_get(&s->slot[i], c);
	return v;
}

/* One line; returns whether the consumer does its work. */
static bool add_consumer(struct table *t, const struct stats *s, const struct stats_slot *slot)
{
	char workers[24];
	count_workers(s, slot->name, workers);
	table_add(t, bytes_str(slot->name));
	table_add(t, bytes_str(state_of(slot)));
	table_add(t, bytes_str(workers));
	table_add_number(t, stats_get(slot, STATS_in_flight));
	for (size_t i = 0; i < N_SUMMED; i++)
		table_add_number(t, sum(s, slot->name, summed[i]));
	return is_alive(slot) && stats_get(slot, STATS_state) == CONSUMER_CONSUMING;
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(const struct stats_slot *const *)a)->name,
		(*(const struct stats_slot *const *)b)->name);
}

static bool fill(struct table *t, const struct stats *s)
{
	const struct stats_slot *found[STATS_SLOTS];
	size_t n = 0;
	bool is_well = true;
	for (size_t i = 0; i < STATS_SLOTS; i++)
		if (atomic_load(&s->slot[i].role) == STATS_CONSUMER)
			found[n++] = &s->slot[i];
	qsort(found, n, sizeof(const struct stats_slot *), by_name);
	for (size_t i = 0; i < n; i++)
		is_well &= add_consumer(t, s, found[i]);
	return is_well;
}

static int find_supervisor(const struct stats *s)
{
	for (size_t i = 0; i < STATS_SLOTS; i++)
		if (atomic_load(&s->slot[i].role) == STATS_SUPERVISOR && is_alive(&s->slot[i]))
			return atomic_load(&s->slot[i].pid);
	return 0;
}

static int map(const struct ctl *ctl, const struct config *config, struct stats **ret)
{
	struct err err;
	AUTO(free) char *path = xasprintf("%s/stats", config->runtime_directory);
	AUTO(fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 && (errno == EACCES || errno == EPERM))
		return ctl_fail(ctl, EX_NOPERM, "%s: %s", path, strerror(errno));
	if (fd < 0)
		return ctl_fail(ctl, EX_UNAVAILABLE,
			"no inboxd runs with runtime directory %s (%s: %s)",
			config->runtime_directory, path, strerror(errno));
	if (stats_map(fd, false, ret, &err) != RC_OK)
		return ctl_fail(ctl, EX_UNAVAILABLE,
			"%s: %s: use the inboxctl that belongs to the running inboxd", path,
			err.text);
	return EX_OK;
}

static int show(const struct ctl *ctl, const struct config *config, const struct stats *s)
{
	AUTO(table) struct table t = {0};
	AUTO(buf) struct buf out = {0};
	if (find_supervisor(s) == 0)
		return ctl_fail(ctl, EX_UNAVAILABLE,
			"no inboxd runs with runtime directory %s: its counters are left from an "
			"earlier one",
			config->runtime_directory);
	table_init(&t, columns, sizeof columns / sizeof columns[0]);
	bool is_well = fill(&t, s);
	if (ctl->json)
		table_print_json(&t, &out);
	else
		table_print(&t, &out);
	ctl_write(buf_bytes(&out));
	return is_well ? EX_OK : CTL_NO;
}

static int run(struct ctl *ctl, int argc, char **argv)
{
	struct stats *stats = NULL;
	if (ctl_next_option(ctl, argc, argv) == CTL_STOP)
		return ctl->exit;
	if (optind != argc)
		return ctl_usage(ctl, "it takes no \"%s\"", argv[optind]);
	AUTO(config) struct config *config = ctl_load(ctl);
	if (config == NULL)
		return EX_CONFIG;
	int exit = map(ctl, config, &stats);
	if (exit == EX_OK)
		exit = show(ctl, config, stats);
	stats_unmap(stats);
	return exit;
}

const struct ctl_command ctl_status = {.name = "status",
	.operands = "",
	.summary = "Shows the consumers of the inboxd that runs here, and its counters",
	.details = "\n"
		   "Exit code 0 if every consumer is consuming, 1 if one is not, 69 if no inboxd\n"
		   "runs.  The columns redelivered, republished and concurrent are duplicates by\n"
		   "their cause; sent are the messages that inboxd published itself (dead letters),\n"
		   "postponed the attempts at it that failed; forgotten are keys over retention.keep.",
	.run = run};

/* SPDX-License-Identifier: MIT */
/* Command line to role. */
#include "base/fd.h"
#include "base/version.h"
#include "check/check.h"
#include "config/config.h"
#include "consumer/consumer.h"
#include "janitor/janitor.h"
#include "supervisor/child.h"
#include "supervisor/supervisor.h"
#include "worker/worker.h"

#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>

static const char usage[] =
	"usage: inboxd [-c FILE]              run\n"
	"       inboxd [-c FILE] --check      check configuration and handlers\n"
	"                        --connect    ... and log in to brokers and databases\n"
	"       inboxd [-c FILE] --print-config\n"
	"                                     the effective configuration, secrets masked\n"
	"       inboxd --version | --help\n"
	"FILE is " INBOXD_SYSCONFDIR "/inboxd/inboxd.yaml unless given\n";

struct options {
	const char *config;
	const char *role, *consumer, *handler;
	unsigned long index;
	int check, connect, quiet, print_config;
};

enum { MOST_CONFIG = 16 << 20 };

/* ---- roles --------------------------------------------------------------------------------------- */

static struct config *inherited_config(void)
{
	AUTO(buf) struct buf text = {0};
	AUTO(buf) struct buf errors = {0};
	struct config *config = NULL;
	struct stat st;
	/* At offsets of our own: others who were started with the same file read it at this moment. */
	if (fstat(CHILD_CONFIG_FD, &st) == 0 && st.st_size <= MOST_CONFIG &&
		pread(CHILD_CONFIG_FD, buf_reserve(&text, (size_t)st.st_size), (size_t)st.st_size,
			0) == st.st_size) {
		text.size = (size_t)st.st_size;
		config = config_parse("inherited configuration", buf_bytes(&text), &errors);
	}
	if (config == NULL)
		(void)fputs(buf_str(&errors), stderr);
	if (text.data != NULL)
		explicit_bzero(text.data, text.size);
	(void)close(CHILD_CONFIG_FD);
	return config;
}

static int run_worker(
	const struct options *o, const struct config_consumer *consumer, struct stats_slot *slot)
{
	struct handler_copy handler = {.fd = CHILD_HANDLER_FD};
	(void)snprintf(handler.file.path, sizeof handler.file.path, "%s", o->handler);
	return worker_main(consumer, &handler, CHILD_CHANNEL_FD, slot);
}

static enum stats_role role_of(const struct options *o)
{
	if (strcmp(o->role, "janitor") == 0)
		return STATS_JANITOR;
	return o->handler != NULL ? STATS_WORKER : STATS_CONSUMER;
}

static int run_role(const struct options *o)
{
	struct stats *stats = NULL;
	struct err err;
	struct config *config = inherited_config();
	if (config == NULL)
		return EX_CONFIG;
	const struct config_consumer *consumer = config_find_consumer(config, o->consumer);
	enum stats_role role = role_of(o);
	int code = EX_SOFTWARE;

	log_init(config->log_level, config->log_format);
	log_set_role(o->role, consumer != NULL ? consumer->name : NULL);
	if ((consumer != NULL || role == STATS_JANITOR) &&
		stats_map(CHILD_STATS_FD, true, &stats, &err) == RC_OK) {
		(void)fcntl(CHILD_CHANNEL_FD, F_SETFD, FD_CLOEXEC);
		(void)close(CHILD_STATS_FD);
		struct stats_slot *slot =
			stats_slot_take(stats, role, o->consumer, (uint32_t)o->index);
		if (slot != NULL && role == STATS_JANITOR)
			janitor_main(config, stats, slot);
		if (slot != NULL)
			code = role == STATS_WORKER ? run_worker(o, consumer, slot)
						    : consumer_main(consumer, CHILD_CHANNEL_FD, slot);
	}
	stats_unmap(stats);
	config_free(config);
	return code;
}

/* ---- commands --------------------------------------------------------------------------------------- */

static int print_config(const char *path)
{
	AUTO(buf) struct buf errors = {0};
	AUTO(buf) struct buf text = {0};
	struct config *config = config_load(path, &errors);
	if (config == NULL) {
		(void)fputs(buf_str(&errors), stderr);
		return EX_CONFIG;
	}
	config_print(config, CONFIG_FOR_PEOPLE, NULL, &text);
	config_free(config);
	return fd_write_all(STDOUT_FILENO, text.data, text.size) ? EX_OK : EX_IOERR;
}

static bool parse(int argc, char **argv, struct options *o)
{
	const struct option options[] = {
		{"config", required_argument, NULL, 'c'},
		{"check", no_argument, &o->check, 1},
		{"connect", no_argument, &o->connect, 1},
		{"quiet", no_argument, &o->quiet, 1},
		{"print-config", no_argument, &o->print_config, 1},
		{"role", required_argument, NULL, 'r'},
		{"consumer", required_argument, NULL, 'n'},
		{"index", required_argument, NULL, 'i'},
		{"handler", required_argument, NULL, 'f'},
		{"version", no_argument, NULL, 'V'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int option;
	while ((option = getopt_long(argc, argv, "c:hV", options, NULL)) != -1) {
		switch (option) {
		case 0:
			break;
		case 'c':
			o->config = optarg;
			break;
		case 'r':
			o->role = optarg;
			break;
		case 'n':
			o->consumer = optarg;
			break;
		case 'i':
			o->index = strtoul(optarg, NULL, 10);
			break;
		case 'f':
			o->handler = optarg;
			break;
		case 'V':
			(void)puts("inboxd " INBOXD_VERSION);
			exit(EX_OK);
		case 'h':
			(void)fputs(usage, stdout);
			exit(EX_OK);
		default:
			return false;
		}
	}
	return optind == argc && (!o->connect || o->check);
}

int main(int argc, char **argv)
{
	struct options o = {.config = INBOXD_SYSCONFDIR "/inboxd/inboxd.yaml"};
	if (!parse(argc, argv, &o)) {
		(void)fputs(usage, stderr);
		return EX_USAGE;
	}
	if (o.role != NULL && o.consumer != NULL)
		return run_role(&o);
	if (o.check)
		return check_main(o.config, o.connect != 0, o.quiet != 0);
	if (o.print_config)
		return print_config(o.config);
	return supervisor_main(o.config);
}

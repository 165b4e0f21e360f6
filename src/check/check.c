/* SPDX-License-Identifier: MIT */
/* Checks a configuration with its handlers, and with its servers on request. */
#include "check/check.h"

#include "base/fd.h"
#include "config/config.h"
#include "handler/host.h"
#include "inbox/inbox.h"
#include "mq/mq.h"
#include "mq/uri.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

struct verdicts {
	bool is_quiet;
	bool has_error;       /* a person must edit something */
	bool has_unavailable; /* a server could not be reached */
};

static void report(struct verdicts *v, const struct config_consumer *c, enum rc rc, const char *text)
{
	(void)fprintf(stderr, "consumer \"%s\": %s\n", c->name, text);
	if (rc == RC_UNAVAILABLE || rc == RC_RETRY)
		v->has_unavailable = true;
	else
		v->has_error = true;
}

static void report_all(struct verdicts *v, struct buf *errors)
{
	(void)fputs(buf_str(errors), stderr);
	v->has_error = true;
}

/* Its addresses are one broker's, so a queue is the same queue wherever it is found. */
static void check_uris(const struct config_broker *b, struct buf *errors)
{
	struct mq_uri first, uri;
	struct err err;
	size_t n_good = 0;
	for (size_t i = 0; i < b->uris.n; i++) {
		if (mq_uri_parse(b->uris.items[i], &uri, &err) != RC_OK)
			config_error(b->origin, "uri", i, err.text, errors);
		else if (n_good++ == 0)
			first = uri;
		else if (strcmp(uri.vhost, first.vhost) != 0)
			config_error(b->origin, "uri", i,
				"has another virtual host than those before it; all are to lead to the "
				"same queues",
				errors);
	}
	explicit_bzero(&first, sizeof first);
	explicit_bzero(&uri, sizeof uri);
}

/* What can be told without a server. */
static void check_addresses(struct verdicts *v, const struct config *config)
{
	AUTO(buf) struct buf errors = {0};
	struct err err;
	for (size_t i = 0; i < config->n_brokers; i++)
		check_uris(config->brokers[i], &errors);
	for (size_t i = 0; i < config->n_databases; i++) {
		const struct config_database *d = config->databases[i];
		if (db_check_conninfo(d, &err) != RC_OK)
			config_error(d->origin, "conninfo", 0, err.text, &errors);
	}
	if (errors.size != 0)
		report_all(v, &errors);
}

static void check_broker(struct verdicts *v, const struct config_consumer *c)
{
	for (size_t i = 0; i < c->broker->uris.n; i++) {
		struct mq_conn *mq = NULL;
		struct mq_place place;
		struct err err;
		if (mq_conn_open(c->broker, i, "inboxd --check", -1, &mq, &place, &err) != RC_OK) {
			AUTO(free) char *text = xasprintf(
				"broker %s, vhost \"%s\", user \"%s\": %s", place.address,
				place.vhost, place.user, err.text);
			report(v, c, err.rc, text);
			continue;
		}
		if (!v->is_quiet)
			(void)printf("consumer \"%s\": broker %s, vhost \"%s\": logged in\n", c->name,
				place.address, place.vhost);
		mq_conn_close(mq, true);
	}
}

static void check_database(struct verdicts *v, const struct config_consumer *c, struct host *host)
{
	struct db_conn *db = NULL;
	struct inbox inbox = {.db = NULL};
	struct err err;
	AUTO(buf) struct buf errors = {0};

	enum rc rc = db_conn_open(c->database, "inboxd --check", &db, &err);
	if (rc == RC_OK) {
		inbox_init(&inbox, db, c);
		rc = inbox_check_schema(&inbox, &err);
	}
	if (rc == RC_OK)
		rc = host_open(host, db, &errors, &err);
	if (errors.size != 0)
		report_all(v, &errors);
	else if (rc != RC_OK)
		report(v, c, rc, err.text);
	else if (!v->is_quiet)
		(void)printf("consumer \"%s\": database \"%s\": schema and handler are ready\n",
			c->name, c->database->name);
	host_close(host);
	inbox_done(&inbox);
	db_conn_close(db);
}

static void check_consumer(struct verdicts *v, const struct config *config,
	const struct config_consumer *c, bool with_connect)
{
	struct handler handler = {.dl = NULL};
	struct err err;
	AUTO(buf) struct buf errors = {0};

	if (handler_load(&config->handler_directories, c->handler, config->runtime_directory,
		    &handler, &err) != RC_OK) {
		report(v, c, RC_FATAL, err.text);
		return;
	}
	struct host *host = host_new(&handler, c);
	if (host_check(host, &errors) != RC_OK || errors.size != 0) {
		if (errors.size == 0)
			report(v, c, RC_FATAL, "the handler's check failed and said no more");
		else
			report_all(v, &errors);
	} else if (with_connect) {
		check_broker(v, c);
		check_database(v, c, host);
	}
	host_free(host);
	handler_unload(&handler);
}

/* What a process that a handler runs in has left behind. */
struct shared {
	struct verdicts verdicts;
	bool is_done;
};

static void report_loss(struct verdicts *v, const struct config_consumer *c, int status)
{
	bool has_exited = WIFEXITED(status);
	AUTO(free) char *text = xasprintf("handler \"%s\" ended the process that checks it (%s %d)",
		c->handler, has_exited ? "exit code" : "signal",
		has_exited ? WEXITSTATUS(status) : WTERMSIG(status));
	report(v, c, RC_FATAL, text);
}

/* In a process of its own, believed only if it comes to its end: a handler may crash or exit, and what is
 * wrong with the others is to be told all the same. */
static void check_apart(struct shared *shared, const struct config *config,
	const struct config_consumer *c, bool with_connect)
{
	int status = 0;
	shared->is_done = false;
	(void)fflush(NULL);
	pid_t pid = fork();
	if (pid < 0) {
		report(&shared->verdicts, c, RC_RETRY, "cannot fork to check the handler");
		return;
	}
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		check_consumer(&shared->verdicts, config, c, with_connect);
		(void)fflush(NULL);
		shared->is_done = true;
		_exit(EX_OK);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			break;
	if (!shared->is_done)
		report_loss(&shared->verdicts, c, status);
}

static int verdict_of(const struct verdicts *v)
{
	return v->has_error ? EX_CONFIG : v->has_unavailable ? EX_UNAVAILABLE : EX_OK;
}

int check_main(const char *config_path, bool with_connect, bool is_quiet)
{
	AUTO(buf) struct buf errors = {0};
	struct shared *shared = mmap(
		NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct config *config = config_load(config_path, &errors);
	if (config == NULL) {
		(void)fputs(buf_str(&errors), stderr);
		return EX_CONFIG;
	}
	if (shared == MAP_FAILED)
		return EX_OSERR;
	shared->verdicts.is_quiet = is_quiet;
	check_addresses(&shared->verdicts, config);
	for (size_t i = 0; i < config->n_consumers; i++)
		check_apart(shared, config, config->consumers[i], with_connect);
	size_t n = config->n_consumers;
	config_free(config);
	int code = verdict_of(&shared->verdicts);
	if (code == EX_OK && !is_quiet)
		(void)printf("%s: ok, %zu consumer%s\n", config_path, n, n == 1 ? "" : "s");
	(void)munmap(shared, sizeof *shared);
	return code;
}

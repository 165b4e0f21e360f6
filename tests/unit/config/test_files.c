/* SPDX-License-Identifier: MIT */
#include "config/files.h"

#include "fixture.h"
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void add(const struct fixture *f, const char *name, const char *text)
{
	fixture_write(f, name, text, strlen(text));
}

static void load(struct fixture *f, const char *errors)
{
	fixture_load(f);
	ck_assert_str_eq(buf_str(&f->errors), errors);
	ck_assert(errors[0] != '\0' ? f->config == NULL : f->config != NULL);
}

START_TEST(merges_maps_of_drop_ins_in_order_of_their_names)
{
	struct fixture f;
	fixture_init(&f);
	add(&f, "inboxd.yaml",
		"broker: {uri: amqp://a}\nlog:\nconsumers:\n  a: {queue: a, handler: sql}\n");
	add(&f, "conf.d/20-b.yaml",
		"consumers:\n  b: {queue: b, handler: sql}\n  a: {workers: 3}\n");
	add(&f, "conf.d/10-log.yaml", "log: {level: debug}\nbroker: {heartbeat: 20s}\n");
	add(&f, "conf.d/30-empty.yaml", "# nothing\n");
	load(&f, "");
	ck_assert_uint_eq(f.config->n_consumers, 2);
	ck_assert_uint_eq(f.config->consumers[0]->workers, 3);
	ck_assert_str_eq(f.config->consumers[1]->queue, "b");
	ck_assert_int_eq(f.config->log_level, L_DEBUG);
	ck_assert_uint_eq(f.config->brokers[0]->heartbeat_s, 20);
	ck_assert_str_eq(f.config->brokers[0]->uris.items[0], "amqp://a");
	fixture_done(&f);
}
END_TEST

START_TEST(refuses_what_two_files_set_and_names_both)
{
	struct fixture f;
	fixture_init(&f);
	add(&f, "inboxd.yaml",
		"log: {level: info}\nconsumers:\n  a: {queue: a, handler: sql, key: [body]}\n");
	add(&f, "conf.d/a.yaml", "consumers:\n  a:\n    queue: b\n    key: [message_id]\n");
	add(&f, "conf.d/b.yaml", "consumers: {a: {queue: c}}\nlog: x\n");
	load(&f,
		"conf.d/a.yaml:3:5: \"queue\" is set already\n"
		"      queue: b\n      ^\n"
		"  hint: it was set in inboxd.yaml:3; only maps of several files are merged\n"
		"conf.d/a.yaml:4:5: \"key\" is set already\n"
		"      key: [message_id]\n      ^\n"
		"  hint: it was set in inboxd.yaml:3; only maps of several files are merged\n"
		"conf.d/b.yaml:1:17: \"queue\" is set already\n"
		"  consumers: {a: {queue: c}}\n                  ^\n"
		"  hint: it was set in inboxd.yaml:3; only maps of several files are merged\n"
		"conf.d/b.yaml:2:1: \"log\" is set already\n"
		"  log: x\n  ^\n"
		"  hint: it was set in inboxd.yaml:1; only maps of several files are merged\n");
	fixture_done(&f);
}
END_TEST

START_TEST(tells_the_errors_of_all_files_sorted_by_file)
{
	struct fixture f;
	fixture_init(&f);
	add(&f, "inboxd.yaml", "consumers: {a: {queue: a, handler: sql}}\nlogg: {}\n");
	add(&f, "conf.d/b.yaml", "broker: {hearbeat: 1s}\n");
	add(&f, "conf.d/a.yaml", "stop_timeout: 1\n");
	load(&f,
		"inboxd.yaml:2:1: unknown option \"logg\"\n  logg: {}\n  ^\n"
		"  hint: did you mean \"log\"?\n"
		"conf.d/a.yaml:1:15: stop_timeout must be a duration from 100ms to 1h, not \"1\"\n"
		"  stop_timeout: 1\n                ^\n"
		"  hint: durations end in ms, s, m, h or d, without a blank: 30s\n"
		"conf.d/b.yaml:1:10: unknown option \"hearbeat\" in broker\n"
		"  broker: {hearbeat: 1s}\n           ^\n"
		"  hint: did you mean \"heartbeat\"?\n");
	fixture_done(&f);
}
END_TEST

START_TEST(tells_the_syntax_errors_of_all_files_and_nothing_that_follows_from_them)
{
	struct fixture f;
	fixture_init(&f);
	add(&f, "inboxd.yaml", "consumers: [a\nb: c\n");
	add(&f, "conf.d/a.yaml", "a: 'x\n");
	add(&f, "conf.d/b.yaml", "unknown: 1\n");
	load(&f,
		"inboxd.yaml:1:12: this list is not closed, or lacks a comma\n"
		"  consumers: [a\n             ^\n"
		"  hint: write [a, b]; a text with a comma, colon, bracket or ${NAME} inside must "
		"be "
		"quoted\n"
		"conf.d/a.yaml:1:4: this quote is never closed\n  a: 'x\n     ^\n"
		"  hint: close it; a quote inside single quotes is doubled, inside double quotes "
		"written "
		"\\\"\n");
	fixture_done(&f);
}
END_TEST

START_TEST(reads_no_other_files_of_the_directory)
{
	struct fixture f;
	fixture_init(&f);
	add(&f, "inboxd.yaml", CONSUMER(""));
	add(&f, "conf.d/a.yaml~", "x: 1\n");
	add(&f, "conf.d/a.yaml.dpkg-dist", "x: 1\n");
	add(&f, "conf.d/.a.yaml", "x: 1\n");
	add(&f, "conf.d/README", "x: 1\n");
	load(&f, "");
	fixture_done(&f);
}
END_TEST

START_TEST(tells_a_file_that_cannot_be_read)
{
	struct fixture f;
	fixture_init(&f);
	load(&f, "inboxd.yaml: cannot be read: No such file or directory\n");
	add(&f, "inboxd.yaml", CONSUMER(""));
	add(&f, "conf.d/a.yaml/x", "");
	load(&f, "conf.d/a.yaml: cannot be read: Is a directory\n");
	fixture_done(&f);
	fixture_init(&f);
	add(&f, "inboxd.yaml", CONSUMER(""));
	add(&f, "conf.d", "no directory");
	load(&f, "inboxd.yaml: conf.d cannot be read: Not a directory\n");
	fixture_done(&f);
}
END_TEST

START_TEST(refuses_a_file_beyond_its_limit)
{
	struct fixture f;
	struct buf text = {0};
	fixture_init(&f);
	buf_add_str(&text, CONSUMER("#"));
	while (text.size < YAML_SIZE_MAX)
		buf_add_byte(&text, 'x');
	fixture_write(&f, "inboxd.yaml", buf_str(&text), text.size);
	load(&f, "");
	buf_add_byte(&text, 'x');
	fixture_write(&f, "inboxd.yaml", buf_str(&text), text.size);
	load(&f, "inboxd.yaml: cannot be read: it is longer than 1 MiB\n");
	buf_done(&text);
	fixture_done(&f);
}
END_TEST

START_TEST(makes_paths_absolute_to_the_file_they_stand_in)
{
	struct fixture f;
	fixture_init(&f);
	(void)unsetenv("CREDENTIALS_DIRECTORY");
	add(&f, "inboxd.yaml",
		"database: {password_file: pw}\nruntime_directory: run\n"
		"handlers: {directory: [handlers, /opt/h]}\n" CONSUMER(""));
	add(&f, "conf.d/b.yaml",
		"broker: {uri: amqps://a, password_file: sub/pw, tls: {ca: /etc/ca, cert: c, key: "
		"k}}\n");
	load(&f, "");
	char *expected = xasprintf("%s/pw", f.directory);
	ck_assert_str_eq(f.config->databases[0]->password_file, expected);
	free(expected);
	expected = xasprintf("%s/conf.d/sub/pw", f.directory);
	ck_assert_str_eq(f.config->brokers[0]->password_file, expected);
	free(expected);
	expected = xasprintf("%s/handlers", f.directory);
	ck_assert_str_eq(f.config->handler_directories.items[0], expected);
	free(expected);
	expected = xasprintf("%s/run", f.directory);
	ck_assert_str_eq(f.config->runtime_directory, expected);
	free(expected);
	ck_assert_str_eq(f.config->handler_directories.items[1], "/opt/h");
	ck_assert_str_eq(f.config->brokers[0]->tls.ca, "/etc/ca");
	expected = xasprintf("%s/inboxd.yaml", f.directory);
	ck_assert_str_eq(f.config->path, expected);
	free(expected);
	fixture_done(&f);
}
END_TEST

START_TEST(prefers_the_credentials_of_the_service_where_they_exist)
{
	struct fixture f;
	fixture_init(&f);
	add(&f, "creds/pw", "x");
	char *credentials = xasprintf("%s/creds", f.directory);
	ck_assert_int_eq(setenv("CREDENTIALS_DIRECTORY", credentials, 1), 0);
	add(&f, "inboxd.yaml",
		"database: {password_file: pw}\nbroker: {password_file: other}\n" CONSUMER(""));
	load(&f, "");
	char *expected = xasprintf("%s/creds/pw", f.directory);
	ck_assert_str_eq(f.config->databases[0]->password_file, expected);
	free(expected);
	expected = xasprintf("%s/other", f.directory);
	ck_assert_str_eq(f.config->brokers[0]->password_file, expected);
	free(expected);
	free(credentials);
	fixture_done(&f);
}
END_TEST

START_TEST(finds_everything_from_a_relative_path_too)
{
	struct fixture f;
	fixture_init(&f);
	add(&f, "inboxd.yaml", "broker: {password_file: pw}\n" CONSUMER(""));
	add(&f, "conf.d/a.yaml", "logg: {}\n");
	ck_assert_int_eq(chdir(f.directory), 0);
	struct buf errors = {0};
	ck_assert_ptr_null(config_load("inboxd.yaml", &errors));
	ck_assert_msg(
		strncmp(buf_str(&errors), "conf.d/a.yaml:1:1:", 18) == 0, "%s", buf_str(&errors));
	add(&f, "conf.d/a.yaml", "log: {}\n");
	buf_clear(&errors);
	struct config *c = config_load("inboxd.yaml", &errors);
	ck_assert_ptr_nonnull(c);
	char *expected = xasprintf("%s/pw", f.directory);
	ck_assert_str_eq(c->brokers[0]->password_file, expected);
	free(expected);
	expected = xasprintf("%s/inboxd.yaml", f.directory);
	ck_assert_str_eq(c->path, expected);
	free(expected);
	config_free(c);
	buf_done(&errors);
	ck_assert_int_eq(chdir("/"), 0);
	fixture_done(&f);
}
END_TEST

UNIT_SUITE("config/files", merges_maps_of_drop_ins_in_order_of_their_names,
	refuses_what_two_files_set_and_names_both, tells_the_errors_of_all_files_sorted_by_file,
	tells_the_syntax_errors_of_all_files_and_nothing_that_follows_from_them,
	reads_no_other_files_of_the_directory, tells_a_file_that_cannot_be_read,
	refuses_a_file_beyond_its_limit, makes_paths_absolute_to_the_file_they_stand_in,
	prefers_the_credentials_of_the_service_where_they_exist,
	finds_everything_from_a_relative_path_too)

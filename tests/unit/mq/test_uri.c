/* SPDX-License-Identifier: MIT */
#include "mq/uri.h"

#include "unit.h"

#include <stdio.h>
#include <string.h>

static struct mq_uri parsed(const char *text)
{
	struct mq_uri u;
	struct err err = {0};
	ck_assert_msg(mq_uri_parse(text, &u, &err) == RC_OK, "%s: %s", text, err.text);
	return u;
}

static void refused(const char *text, const char *must_say)
{
	struct mq_uri u = {.host = "untouched"};
	struct err err = {0};
	ck_assert_msg(mq_uri_parse(text, &u, &err) == RC_FATAL, "accepted: %s", text);
	ck_assert_int_eq(err.rc, RC_FATAL);
	ck_assert_msg(strstr(err.text, must_say) != NULL, "%s: %s", text, err.text);
	ck_assert_str_eq(u.host, "untouched");
}

START_TEST(a_bare_host_gets_every_default)
{
	struct mq_uri u = parsed("amqp://rabbit-1");
	ck_assert(!u.tls);
	ck_assert_str_eq(u.host, "rabbit-1");
	ck_assert_uint_eq(u.port, 5672);
	ck_assert_str_eq(u.user, "guest");
	ck_assert_str_eq(u.password, "guest");
	ck_assert(!u.has_user && !u.has_password);
	ck_assert_str_eq(u.vhost, "/");
}
END_TEST

START_TEST(amqps_means_tls_on_its_own_port)
{
	struct mq_uri u = parsed("amqps://rabbit-1");
	ck_assert(u.tls);
	ck_assert_uint_eq(u.port, 5671);
	ck_assert(parsed("AMQPS://rabbit-1:17").tls);
	ck_assert_uint_eq(parsed("AMQPS://rabbit-1:17").port, 17);
}
END_TEST

START_TEST(all_parts_are_taken)
{
	struct mq_uri u = parsed("amqp://inboxd:secret@mq.example.org:10000/pay");
	ck_assert_str_eq(u.user, "inboxd");
	ck_assert_str_eq(u.password, "secret");
	ck_assert(u.has_user && u.has_password);
	ck_assert_str_eq(u.host, "mq.example.org");
	ck_assert_uint_eq(u.port, 10000);
	ck_assert_str_eq(u.vhost, "pay");
}
END_TEST

START_TEST(user_password_and_vhost_are_percent_decoded)
{
	struct mq_uri u = parsed("amqp://u%40x:p%40%3a%2F%23%25%C3%A9@localhost/a%2fb");
	ck_assert_str_eq(u.user, "u@x");
	ck_assert_str_eq(u.password, "p@:/#%\xc3\xa9");
	ck_assert_str_eq(u.vhost, "a/b");
}
END_TEST

START_TEST(an_absent_vhost_is_not_an_empty_one)
{
	ck_assert_str_eq(parsed("amqp://localhost").vhost, "/");
	ck_assert_str_eq(parsed("amqp://localhost/").vhost, "");
	ck_assert_str_eq(parsed("amqp://localhost/%2F").vhost, "/");
	ck_assert_str_eq(parsed("amqp://localhost/%2f").vhost, "/");
	ck_assert_str_eq(parsed("amqp://localhost/%2Fa").vhost, "/a");
}
END_TEST

START_TEST(a_user_alone_has_no_password)
{
	struct mq_uri u = parsed("amqp://inboxd@localhost");
	ck_assert_str_eq(u.user, "inboxd");
	ck_assert_str_eq(u.password, "");
	ck_assert(u.has_user && !u.has_password);
	u = parsed("amqp://inboxd:@localhost");
	ck_assert_str_eq(u.password, "");
	ck_assert(u.has_password);
	u = parsed("amqp://@localhost");
	ck_assert_str_eq(u.user, "");
	ck_assert(u.has_user);
}
END_TEST

START_TEST(ipv6_stands_in_brackets)
{
	ck_assert_str_eq(parsed("amqp://[::1]").host, "::1");
	struct mq_uri u = parsed("amqp://u:p@[2001:db8::17]:5673/v");
	ck_assert_str_eq(u.host, "2001:db8::17");
	ck_assert_uint_eq(u.port, 5673);
	ck_assert_str_eq(u.vhost, "v");
	ck_assert_str_eq(parsed("amqp://[fe80::1%25eth0]").host, "fe80::1%eth0");
	refused("amqp://::1", "brackets");
	refused("amqp://[::1", "not closed");
	refused("amqp://[rabbit]", "IPv6");
	refused("amqp://[::1]5672", "port");
}
END_TEST

START_TEST(a_wrong_scheme_is_refused)
{
	refused("", "amqp://");
	refused("localhost", "amqp://");
	refused("http://localhost", "amqp://");
	refused("amqp:localhost", "amqp://");
}
END_TEST

START_TEST(a_wrong_port_is_refused_with_its_place)
{
	refused("amqp://localhost:", "port");
	refused("amqp://localhost:0", "port");
	refused("amqp://localhost:65536", "port");
	refused("amqp://localhost:99999999999999999999", "port");
	refused("amqp://localhost:56x2", "character 20");
	refused("amqp://localhost:-1", "port");
	ck_assert_uint_eq(parsed("amqp://localhost:65535").port, 65535);
	ck_assert_uint_eq(parsed("amqp://localhost:1").port, 1);
}
END_TEST

START_TEST(a_wrong_escape_is_refused_with_its_place)
{
	refused("amqp://localhost/a%", "character 19");
	refused("amqp://localhost/a%2", "character 19");
	refused("amqp://localhost/a%zz", "%25");
	refused("amqp://u:p%@localhost", "%25");
	refused("amqp://u:p%4@localhost", "%25");
	refused("amqp://localhost/%00", "NUL");
	refused("amqp://local host/", "blanks");
	refused("amqp://localhost/a\n", "blanks");
}
END_TEST

START_TEST(a_forgotten_escape_is_named)
{
	refused("amqp://u:p@ss@localhost", "%40");
	refused("amqp://u:p/ss@localhost", "%2F");
	refused("amqp://u:p:ss@localhost", "%3A");
	refused("amqp://u:p#ss@localhost", "%23");
	refused("amqp://u:p?ss@localhost", "%3F");
	refused("amqp://localhost/a/b", "%2F");
	refused("amqp://localhost/v?heartbeat=5", "options");
}
END_TEST

START_TEST(no_message_holds_the_password)
{
	static const char *const texts[] = {
		"amqp://u:hunter2@",
		"amqp://u:hunter2@local host",
		"amqp://u:hunter2%@localhost",
		"amqp://u:hunter2@x@localhost",
		"amqp://u:hunter2/x@localhost",
		"amqp://u:hunter2:x@localhost",
		"amqp://u:hunter2#x@localhost",
		"amqp://u:hunter2",
		"amqp://u:hunter2@localhost:hunter2",
		"amqp://u:x@hunter2@hunter2/hunter2/hunter2",
		"u:hunter2@localhost",
		"amqp://[hunter2]",
		"amqp://u:x@[::1]hunter2",
		"amqp://u%:hunter2@localhost",
	};
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		struct mq_uri u;
		struct err err = {0};
		ck_assert_msg(mq_uri_parse(texts[i], &u, &err) != RC_OK, "accepted: %s", texts[i]);
		ck_assert_msg(strstr(err.text, "hunter2") == NULL, "%s", err.text);
	}
}
END_TEST

static void with_long(const char *before, size_t n, const char *after, bool fits)
{
	char text[2000];
	int at = snprintf(text, sizeof text, "%s", before);
	memset(text + at, 'x', n);
	(void)snprintf(text + (size_t)at + n, sizeof text - (size_t)at - n, "%s", after);
	if (fits)
		(void)parsed(text);
	else
		refused(text, "longer");
}

START_TEST(what_does_not_fit_is_refused_and_never_cut)
{
	with_long("amqp://", 255, "", true);
	with_long("amqp://", 256, "", false);
	with_long("amqp://", 255, "@localhost", true);
	with_long("amqp://", 256, "@localhost", false);
	with_long("amqp://u:", 1023, "@localhost", true);
	with_long("amqp://u:", 1024, "@localhost", false);
	with_long("amqp://localhost/", 255, "", true);
	with_long("amqp://localhost/", 256, "", false);
}
END_TEST

START_TEST(a_host_is_needed)
{
	refused("amqp://", "no host");
	refused("amqp:///v", "no host");
	refused("amqp://u:p@", "no host");
	refused("amqp://:5672", "no host");
	refused("amqp://ho$t", "host name");
}
END_TEST

UNIT_SUITE("mq/uri", a_bare_host_gets_every_default, amqps_means_tls_on_its_own_port,
	all_parts_are_taken, user_password_and_vhost_are_percent_decoded,
	an_absent_vhost_is_not_an_empty_one, a_user_alone_has_no_password, ipv6_stands_in_brackets,
	a_wrong_scheme_is_refused, a_wrong_port_is_refused_with_its_place,
	a_wrong_escape_is_refused_with_its_place, a_forgotten_escape_is_named,
	no_message_holds_the_password, what_does_not_fit_is_refused_and_never_cut, a_host_is_needed)

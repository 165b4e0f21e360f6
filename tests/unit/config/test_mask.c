/* SPDX-License-Identifier: MIT */
#include "config/mask.h"

#include "unit.h"

#include <stdlib.h>

static void check_value(const char *text, const char *expected)
{
	struct buf out = {0};
	mask_value(text, &out);
	ck_assert_str_eq(buf_str(&out), expected);
	buf_done(&out);
}

/* '#' in expected stands for a masked byte. */
static void check_file(const char *text, const char *expected)
{
	char *copy = xstrdup(text);
	mask_file(copy, strlen(copy));
	for (char *p = copy; *p != '\0'; p++)
		if (*p == MASK_BYTE)
			*p = '#';
	ck_assert_str_eq(copy, expected);
	free(copy);
}

START_TEST(masks_the_password_of_a_uri_and_nothing_around_it)
{
	check_value("amqp://inboxd:sesame@localhost:5672/pay",
		"amqp://inboxd:********@localhost:5672/pay");
	check_value("amqps://u:p%40%3A@[::1]:5671", "amqps://u:********@[::1]:5671");
	check_value("amqp://inboxd@localhost:5672/", "amqp://inboxd@localhost:5672/");
	check_value("amqp://localhost:5672", "amqp://localhost:5672");
	check_value("amqp://[::1]:5672/", "amqp://[::1]:5672/");
	check_value("amqp://:sesame@h", "amqp://:********@h");
	check_value("amqp://u:@h", "amqp://u:@h");
	check_value("http://a:b@c http://d:e@f", "http://a:********@c http://d:********@f");
}
END_TEST

START_TEST(masks_passwords_that_should_have_been_escaped)
{
	check_value("amqp://u:p@ss@h/v", "amqp://u:********@h/v");
	check_value("amqp://u:pa/ss@h", "amqp://u:********@h");
	check_value("amqp://u:pa:ss@h", "amqp://u:********@h");
	check_value("amqp://u:pa ss@h", "amqp://u:********@h");
	check_value("amqp://u:pa'ss\"@h", "amqp://u:********@h");
	check_value("amqp://u:sesame", "amqp://u:********");
}
END_TEST

START_TEST(masks_passwords_in_conninfos)
{
	check_value("host=a password=sesame dbname=b", "host=a password=******** dbname=b");
	check_value("password = 'ses ame' x=y", "password = ******** x=y");
	check_value("password='it\\'s' x=y", "password=******** x=y");
	check_value("password=a\\ b x=y", "password=******** x=y");
	check_value("password=a&b'c x=y", "password=******** x=y");
	check_value("sslpassword=sesame", "sslpassword=********");
	check_value("PASSWORD=sesame", "PASSWORD=********");
	check_value("password=", "password=");
	check_value("postgresql://u:p@h/d?password=x&sslmode=on",
		"postgresql://u:********@h/d?password=********&sslmode=on");
	check_value(
		"passfile=/etc/x require_auth=password", "passfile=/etc/x require_auth=password");
	check_value("dbname=shop", "dbname=shop");
}
END_TEST

START_TEST(knows_names_of_secrets_from_names_of_their_files)
{
	ck_assert(mask_is_secret_name("password"));
	ck_assert(mask_is_secret_name("db_password"));
	ck_assert(mask_is_secret_name("API_TOKEN"));
	ck_assert(mask_is_secret_name("client-secret"));
	ck_assert(!mask_is_secret_name("password_file"));
	ck_assert(!mask_is_secret_name("key"));
	ck_assert(!mask_is_secret_name("routing_key"));
	ck_assert(!mask_is_secret_name("statement"));
}
END_TEST

START_TEST(masks_values_of_secret_names_in_a_file_whatever_their_form)
{
	check_file("password: sesame\nvhost: pay\n", "password: ######\nvhost: pay\n");
	check_file("password: ses: ame # x\nvhost: pay\n", "password: ############\nvhost: pay\n");
	check_file("password: \"ses\\\"ame\"\nv: 1\n", "password: #########\"\nv: 1\n");
	check_file("a: {password: sesame, b: 1}\n", "a: {password: ######, b: 1}\n");
	check_file("a: {\"password\": 'ses,ame', b: 1}\n", "a: {\"password\": ########', b: 1}\n");
	check_file("# password: sesame\n", "# password: ######\n");
	check_file("password_file: pw\n", "password_file: pw\n");
}
END_TEST

START_TEST(masks_secrets_that_go_on_over_several_lines)
{
	check_file("b:\n  password: |\n    ses\n\n    ame\n  vhost: pay\n",
		"b:\n  password: #\n#######\n\n#######\n  vhost: pay\n");
	check_file("b:\n  password:\n    sesame\nc: 1\n", "b:\n  password:\n##########\nc: 1\n");
	check_file("b:\n  password: ses\n    ame\n", "b:\n  password: ###\n#######\n");
	check_file("b:\n  password: \"ses\n  ame\"\n", "b:\n  password: ####\n#####\"\n");
	check_file(
		"password: \"never closed\nvhost: pay\n", "password: #############\n##########\n");
}
END_TEST

START_TEST(masks_a_file_in_time_that_grows_with_its_length)
{
	static const char *const parts[] = {"://", "://a:1/", "password: ", "password='",
		"{password:", "password=a ", "://a:b@"};
	enum { SIZE = 400000 };
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
		char *text = xmalloc(SIZE + 1);
		size_t n = strlen(parts[i]);
		for (size_t at = 0; at < SIZE; at++)
			text[at] = parts[i][at % n];
		text[SIZE] = '\0';
		mask_file(text, SIZE);
		ck_assert_uint_eq(strlen(text), SIZE);
		free(text);
	}
}
END_TEST

UNIT_SUITE("config/mask", masks_the_password_of_a_uri_and_nothing_around_it,
	masks_passwords_that_should_have_been_escaped, masks_passwords_in_conninfos,
	knows_names_of_secrets_from_names_of_their_files,
	masks_values_of_secret_names_in_a_file_whatever_their_form,
	masks_secrets_that_go_on_over_several_lines,
	masks_a_file_in_time_that_grows_with_its_length)

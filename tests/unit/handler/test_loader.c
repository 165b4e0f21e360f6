/* SPDX-License-Identifier: MIT */
#include "handler/loader.h"

#include "base/fd.h"
#include "handler/object.h"
#include "handler/trust.h"
#include "unit.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* A private directory for each test, and the handlers built from tests/handlers. */
static char place[64];
static struct err err;
static struct handler handler;

/* In place of libc's, to stand for a kernel that refuses. */
static bool memfd_is_forbidden;
int memfd_create(const char *name, unsigned flags)
{
	if (memfd_is_forbidden) {
		errno = EACCES;
		return -1;
	}
	return (int)syscall(SYS_memfd_create, name, flags);
}

static const char *built(const char *name)
{
	static char path[4200];
	const char *directory = getenv("INBOXD_TEST_HANDLERS");
	ck_assert_msg(
		directory != NULL, "INBOXD_TEST_HANDLERS names where tests/handlers was built");
	(void)snprintf(path, sizeof path, "%s/%s.so", directory, name);
	return path;
}

static const char *in_place(const char *name)
{
	static char path[300];
	(void)snprintf(path, sizeof path, "%s/%s.so", place, name);
	return path;
}

static void begin(void)
{
	(void)snprintf(place, sizeof place, "/tmp/inboxd-loader-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(place));
	handler = (struct handler){.dl = NULL};
	err.text[0] = '\0';
}

static void end(void)
{
	char command[128];
	handler_unload(&handler);
	(void)snprintf(command, sizeof command, "rm -rf %s", place);
	ck_assert_int_eq(system(command), 0);
}

static void put(const char *name, struct bytes content)
{
	AUTO(fd) int fd = open(in_place(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	ck_assert(fd >= 0 && fd_write_all(fd, content.data, content.size));
}

static void copy(const char *from, const char *name, struct buf *ret)
{
	buf_clear(ret);
	ck_assert_msg(fd_read_file(built(from), 1 << 24, ret, &err) == RC_OK, "%s", err.text);
	put(name, buf_bytes(ret));
}

static enum rc load_from(const char *runtime, const char *name)
{
	char *items[] = {place};
	struct string_list directories = {items, 1};
	return handler_load(&directories, name, runtime, &handler, &err);
}

static enum rc load(const char *name)
{
	return load_from(place, name);
}

#define refused_with(name_, text_)                                              \
	do {                                                                    \
		ck_assert_int_eq(load(name_), RC_FATAL);                        \
		ck_assert_msg(strstr(err.text, text_) != NULL, "%s", err.text); \
		ck_assert_msg(strstr(err.text, name_) != NULL, "%s", err.text); \
	} while (0)

START_TEST(loads_a_handler_by_its_bare_name)
{
	begin();
	AUTO(buf) struct buf b = {0};
	copy("plain_abi", "orders", &b);
	ck_assert_msg(load("orders") == RC_OK, "%s", err.text);
	ck_assert_str_eq(handler.entries.version, "plain 1");
	ck_assert_ptr_nonnull(handler.entries.handle);
	ck_assert_ptr_null(handler.entries.check);
	ck_assert_str_eq(handler.file.path, in_place("orders"));
	ck_assert_uint_eq(handler.file.size, b.size);
	end();
}
END_TEST

START_TEST(loads_a_handler_written_in_another_language)
{
	begin();
	AUTO(buf) struct buf b = {0};
	copy("cxx", "cxx", &b);
	ck_assert_msg(load("cxx") == RC_OK, "%s", err.text);
	ck_assert_str_eq(handler.entries.version, "c++ 1");
	end();
}
END_TEST

START_TEST(a_name_is_bare)
{
	begin();
	refused_with("sub/orders", "bare name");
	refused_with("../orders", "bare name");
	refused_with("orders.so", "write orders, without");
	ck_assert_int_eq(load(""), RC_FATAL);
	end();
}
END_TEST

START_TEST(a_missing_handler_is_told_with_what_there_is)
{
	begin();
	put("orders", bytes_str("x"));
	refused_with("order", "did you mean orders");
	ck_assert_ptr_nonnull(strstr(err.text, place));
	refused_with("zzz", "there are orders");
	end();
}
END_TEST

START_TEST(the_same_name_in_two_directories_is_refused)
{
	begin();
	char second[100], link[120], file[140];
	struct handler_file found;
	(void)snprintf(second, sizeof second, "%s/second", place);
	(void)snprintf(link, sizeof link, "%s/link", place);
	(void)snprintf(file, sizeof file, "%s/orders.so", second);
	ck_assert_int_eq(mkdir(second, 0755), 0);
	ck_assert_int_eq(symlink(place, link), 0);
	put("orders", bytes_str("x"));
	char *items[] = {place, second, link};
	struct string_list directories = {items, 3};
	/* A directory under two names holds one file. */
	ck_assert_msg(handler_find(&directories, "orders", &found, &err) == RC_OK, "%s", err.text);

	AUTO(fd) int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(handler_find(&directories, "orders", &found, &err), RC_FATAL);
	ck_assert_ptr_nonnull(strstr(err.text, file));
	ck_assert_ptr_nonnull(strstr(err.text, "two handlers"));
	end();
}
END_TEST

START_TEST(a_changed_file_is_another_file)
{
	begin();
	struct handler_file before, after;
	char *items[] = {place};
	struct string_list directories = {items, 1};
	put("orders", bytes_str("x"));
	ck_assert_int_eq(handler_find(&directories, "orders", &before, &err), RC_OK);
	ck_assert_int_eq(handler_find(&directories, "orders", &after, &err), RC_OK);
	ck_assert(handler_file_equal(&before, &after));
	put("orders", bytes_str("xy"));
	ck_assert_int_eq(handler_find(&directories, "orders", &after, &err), RC_OK);
	ck_assert(!handler_file_equal(&before, &after));
	end();
}
END_TEST

START_TEST(what_others_can_write_is_refused)
{
	begin();
	AUTO(buf) struct buf b = {0};
	copy("plain_abi", "orders", &b);
	ck_assert_int_eq(chmod(in_place("orders"), 0666), 0);
	refused_with("orders", "can be written by everybody");
	ck_assert_ptr_nonnull(strstr(err.text, "0666"));
	ck_assert_int_eq(chmod(in_place("orders"), 0644), 0);
	ck_assert_int_eq(chmod(place, 0777), 0);
	refused_with("orders", "can be written by everybody");
	ck_assert_int_eq(chmod(place, 0755), 0);
	ck_assert_msg(load("orders") == RC_OK, "%s", err.text);
	end();
}
END_TEST

START_TEST(a_link_does_not_hide_who_can_write)
{
	begin();
	char open_to_all[100], file[140];
	AUTO(buf) struct buf b = {0};
	(void)snprintf(open_to_all, sizeof open_to_all, "%s/open", place);
	(void)snprintf(file, sizeof file, "%s/real.so", open_to_all);
	ck_assert_int_eq(mkdir(open_to_all, 0755), 0);
	copy("plain_abi", "real", &b);
	ck_assert_int_eq(rename(in_place("real"), file), 0);
	ck_assert_int_eq(symlink(file, in_place("orders")), 0);
	ck_assert_msg(load("orders") == RC_OK, "%s", err.text);
	handler_unload(&handler);
	ck_assert_int_eq(chmod(open_to_all, 0777), 0);
	refused_with("orders", "can be written by everybody");
	end();
}
END_TEST

START_TEST(trust_depends_on_owner_group_and_mode)
{
	const uid_t us = 900;
	const gid_t group = 901;
	struct stat st = {.st_uid = 0, .st_gid = 0, .st_mode = S_IFREG | 0664};
	ck_assert_ptr_null(trust_objection(&st, us, group));
	st.st_uid = us;
	st.st_gid = group;
	ck_assert_ptr_null(trust_objection(&st, us, group));
	st.st_gid = 5;
	ck_assert_ptr_nonnull(trust_objection(&st, us, group));
	st.st_mode = S_IFREG | 0644;
	ck_assert_ptr_null(trust_objection(&st, us, group));
	st.st_mode = S_IFREG | 0646;
	ck_assert_ptr_nonnull(trust_objection(&st, us, group));
	st.st_mode = S_IFREG | 0644;
	st.st_uid = 1000;
	ck_assert_ptr_nonnull(trust_objection(&st, us, group));
	/* /tmp */
	st = (struct stat){.st_uid = 0, .st_gid = 0, .st_mode = S_IFDIR | 01777};
	ck_assert_ptr_null(trust_objection(&st, us, group));
	st.st_uid = 1000;
	ck_assert_ptr_nonnull(trust_objection(&st, us, group));
}
END_TEST

START_TEST(every_truncation_is_refused)
{
	begin();
	AUTO(buf) struct buf b = {0}, self = {0};
	ck_assert_int_eq(fd_read_file("/proc/self/exe", 1 << 28, &self, &err), RC_OK);
	copy("plain_abi", "orders", &b);
	ck_assert_int_eq(object_check(buf_bytes(&b), buf_bytes(&self), &err), RC_OK);
	for (size_t n = 0; n < b.size; n++)
		ck_assert_msg(object_check(bytes_of(b.data, n), buf_bytes(&self), &err) == RC_FATAL,
			"%zu of %zu bytes were taken for the whole", n, b.size);
	put("orders", bytes_of(b.data, 2000));
	refused_with("orders", "cut off: 2000 bytes are here");
	put("orders", bytes_of(b.data, 0));
	refused_with("orders", "empty");
	end();
}
END_TEST

START_TEST(damaged_headers_do_no_harm)
{
	begin();
	AUTO(buf) struct buf b = {0}, self = {0}, bad = {0};
	ck_assert_int_eq(fd_read_file("/proc/self/exe", 1 << 28, &self, &err), RC_OK);
	copy("plain_abi", "orders", &b);
	/* Each byte of the header in turn; what must never happen is a read outside the file. */
	for (size_t i = 0; i < sizeof(Elf64_Ehdr) + 8 * sizeof(Elf64_Phdr); i++) {
		buf_clear(&bad);
		buf_add(&bad, b.data, b.size);
		bad.data[i] = 0xff;
		(void)!object_check(buf_bytes(&bad), buf_bytes(&self), &err);
	}
	end();
}
END_TEST

START_TEST(what_is_no_shared_object_is_called_by_its_name)
{
	begin();
	AUTO(buf) struct buf b = {0};
	put("orders",
		bytes_str("#!/bin/sh\necho this is a script that somebody dropped here by "
			  "mistake\n"));
	refused_with("orders", "not a shared object");
	ck_assert_ptr_nonnull(strstr(err.text, "-shared"));

	copy("plain_abi", "orders", &b);
	Elf64_Ehdr e;
	memcpy(&e, b.data, sizeof e);
	uint16_t machine = e.e_machine;
	e.e_machine = machine == EM_AARCH64 ? EM_X86_64 : EM_AARCH64;
	memcpy(b.data, &e, sizeof e);
	put("orders", buf_bytes(&b));
	refused_with("orders", "for this machine");
	ck_assert_ptr_nonnull(strstr(err.text, machine == EM_AARCH64 ? "x86-64" : "aarch64"));

	e.e_machine = machine;
	e.e_type = ET_REL;
	memcpy(b.data, &e, sizeof e);
	put("orders", buf_bytes(&b));
	refused_with("orders", "object file");

	ck_assert_int_eq(unlink(in_place("orders")), 0);
	ck_assert_int_eq(mkfifo(in_place("orders"), 0644), 0);
	refused_with("orders", "no regular file");
	end();
}
END_TEST

START_TEST(another_major_is_refused_and_both_are_named)
{
	begin();
	AUTO(buf) struct buf b = {0};
	copy("load_other_abi", "orders", &b);
	refused_with("orders", "ABI 7");
	ck_assert_ptr_nonnull(strstr(err.text, "this inboxd has ABI 1"));
	end();
}
END_TEST

START_TEST(what_is_no_handler_is_told_apart)
{
	begin();
	AUTO(buf) struct buf b = {0};
	copy("load_no_symbol", "nothing", &b);
	refused_with("nothing", "exports no constant inboxd_handler");
	copy("load_function", "function", &b);
	refused_with("function", "exports no constant inboxd_handler");
	copy("load_no_handle", "handleless", &b);
	refused_with("handleless", "no `handle`");
	copy("load_lying_size", "lying", &b);
	refused_with("lying", "says that it has");
	copy("load_later_flags", "later", &b);
	refused_with("later", "needs a later one");
	end();
}
END_TEST

START_TEST(an_unresolved_symbol_is_named)
{
	begin();
	AUTO(buf) struct buf b = {0};
	copy("load_unresolved", "orders", &b);
	refused_with("orders", "frobnicate_order");
	ck_assert_ptr_null(strstr(err.text, "/proc/self/fd"));
	end();
}
END_TEST

START_TEST(a_handler_of_an_older_minor_has_nothing_where_it_has_no_field)
{
	begin();
	AUTO(buf) struct buf b = {0};
	copy("load_smaller", "old", &b);
	ck_assert_msg(load("old") == RC_OK, "%s", err.text);
	ck_assert_str_eq(handler.entries.version, "old");
	ck_assert_ptr_null(handler.entries.handle_batch);
	ck_assert_ptr_null(handler.entries.close);
	ck_assert_int_eq(handler.entries.handle(NULL, NULL), INBOXD_RETRY);
	end();
}
END_TEST

START_TEST(writing_over_the_file_does_not_reach_the_loaded_one)
{
	begin();
	AUTO(buf) struct buf b = {0}, other = {0};
	copy("load_twin_a", "twin", &b);
	ck_assert_msg(load("twin") == RC_OK, "%s", err.text);
	ck_assert_int_eq(handler.entries.handle(NULL, NULL), 101);
	/* In place, as cp does: same inode. */
	AUTO(fd) int fd = open(in_place("twin"), O_WRONLY | O_TRUNC | O_CLOEXEC);
	ck_assert(fd >= 0);
	ck_assert_int_eq(handler.entries.handle(NULL, NULL), 102);
	ck_assert_int_eq(fd_read_file(built("load_twin_b"), 1 << 24, &other, &err), RC_OK);
	ck_assert(fd_write_all(fd, other.data, other.size));
	ck_assert_int_eq(handler.entries.handle(NULL, NULL), 103);

	/* And the same path loaded again is the new one, the old one still in use. */
	struct handler old = handler;
	handler = (struct handler){.dl = NULL};
	ck_assert_msg(load("twin") == RC_OK, "%s", err.text);
	ck_assert_int_eq(handler.entries.handle(NULL, NULL), 201);
	ck_assert_int_eq(old.entries.handle(NULL, NULL), 104);
	handler_unload(&old);
	end();
}
END_TEST

START_TEST(two_handlers_with_the_same_names_stay_apart)
{
	begin();
	AUTO(buf) struct buf b = {0};
	copy("load_twin_a", "a", &b);
	copy("load_twin_b", "b", &b);
	struct handler a;
	ck_assert_msg(load("a") == RC_OK, "%s", err.text);
	a = handler;
	handler = (struct handler){.dl = NULL};
	ck_assert_msg(load("b") == RC_OK, "%s", err.text);
	ck_assert_int_eq(a.entries.handle(NULL, NULL), 101);
	ck_assert_int_eq(handler.entries.handle(NULL, NULL), 201);
	ck_assert_int_eq(a.entries.handle(NULL, NULL), 102);
	handler_unload(&a);
	end();
}
END_TEST

START_TEST(loading_leaves_no_descriptor_open)
{
	begin();
	AUTO(buf) struct buf b = {0};
	copy("plain_abi", "orders", &b);
	int before = dup(0);
	(void)close(before);
	for (int i = 0; i < 20; i++) {
		ck_assert_msg(load("orders") == RC_OK, "%s", err.text);
		handler_unload(&handler);
	}
	int after = dup(0);
	(void)close(after);
	ck_assert_int_eq(after, before);
	end();
}
END_TEST

START_TEST(where_memory_files_are_forbidden_a_private_file_is_used)
{
	begin();
	AUTO(buf) struct buf b = {0};
	copy("plain_abi", "orders", &b);
	memfd_is_forbidden = true;
	ck_assert_msg(load("orders") == RC_OK, "%s", err.text);
	ck_assert_str_eq(handler.entries.version, "plain 1");
	/* Nothing stays behind but the handler itself. */
	ck_assert_int_eq(unlink(in_place("orders")), 0);
	ck_assert_int_eq(rmdir(place), 0);
	ck_assert_int_eq(mkdir(place, 0755), 0);

	handler_unload(&handler);
	put("orders", buf_bytes(&b));
	ck_assert_int_eq(load_from("/nowhere", "orders"), RC_FATAL);
	ck_assert_msg(strstr(err.text, "/nowhere") != NULL, "%s", err.text);
	memfd_is_forbidden = false;
	ck_assert_msg(load_from("/nowhere", "orders") == RC_OK, "%s", err.text);
	end();
}
END_TEST

UNIT_SUITE("handler/loader", loads_a_handler_by_its_bare_name,
	loads_a_handler_written_in_another_language, a_name_is_bare,
	a_missing_handler_is_told_with_what_there_is, the_same_name_in_two_directories_is_refused,
	a_changed_file_is_another_file, what_others_can_write_is_refused,
	a_link_does_not_hide_who_can_write, trust_depends_on_owner_group_and_mode,
	every_truncation_is_refused, damaged_headers_do_no_harm,
	what_is_no_shared_object_is_called_by_its_name, another_major_is_refused_and_both_are_named,
	what_is_no_handler_is_told_apart, an_unresolved_symbol_is_named,
	a_handler_of_an_older_minor_has_nothing_where_it_has_no_field,
	writing_over_the_file_does_not_reach_the_loaded_one,
	two_handlers_with_the_same_names_stay_apart, loading_leaves_no_descriptor_open,
	where_memory_files_are_forbidden_a_private_file_is_used)

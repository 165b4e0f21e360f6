/* SPDX-License-Identifier: MIT */
/* Finds a handler by its bare name, checks it, and loads it from a private copy. */
#ifndef INBOXD_HANDLER_LOADER_H
#define INBOXD_HANDLER_LOADER_H

#include "base/err.h"
#include "config/config.h"
#include "handler/inboxd/handler.h"

/* Which file a handler was loaded from: two are the same file, unchanged, iff all fields are
 * equal. */
struct handler_file {
	char path[4096];
	uint64_t device, inode, size;
	int64_t mtime_ns;
};

/* A file as it was at one moment, where nobody can change it. */
struct handler_copy {
	struct handler_file file;
	int fd; /* read-only, and sealed where it is a memfd; owned */
};

struct handler {
	struct inboxd_handler entries; /* a copy; what an older handler does not have is zero */
	struct handler_file file;
	void *dl;
};

/* Looks NAME.so up in the directories: RC_FATAL when it is in none of them, or in two; the text
 * names what is there.  Opens no handler. */
enum rc handler_find(const struct string_list *directories, const char *name,
	struct handler_file *ret, struct err *err) MUST_CHECK;

/* Whether two finds gave the same file, unchanged. */
bool handler_file_equal(const struct handler_file *a, const struct handler_file *b);

/* Finds, checks (owner root or our user; file and directories above not writable by others; ELF
 * for this machine; whole, not truncated) and copies into a sealed memfd (a file in
 * runtime_directory where a memfd cannot be loaded from).  RC_FATAL; every refusal says which file
 * and what to do.  Runs nothing of the handler's. */
enum rc handler_copy_take(const struct string_list *directories, const char *name,
	const char *runtime_directory, struct handler_copy *ret, struct err *err) MUST_CHECK;
/* {.fd = -1} is fine.  What was loaded from it stays. */
void handler_copy_done(struct handler_copy *copy);

/* Loads RTLD_NOW|RTLD_LOCAL and checks symbol, ABI number and sizes.  RC_FATAL. */
enum rc handler_load_copy(
	const struct handler_copy *copy, struct handler *ret, struct err *err) MUST_CHECK;
/* Both, for who needs it once. */
enum rc handler_load(const struct string_list *directories, const char *name,
	const char *runtime_directory, struct handler *ret, struct err *err) MUST_CHECK;
/* Nothing of the handler may be in use any more.  NULL and {0} are fine. */
void handler_unload(struct handler *h);

#endif

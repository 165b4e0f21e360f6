/* SPDX-License-Identifier: MIT */
/* From a bare name to entries that can be called. */
#include "handler/loader.h"

#include "base/fd.h"
#include "base/nearest.h"
#include "handler/object.h"
#include "handler/trust.h"

#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U /* Linux 6.3 */
#endif

enum { FILE_MAX_BYTES = 256 << 20, SELF_BYTES = 64 };

#define SUFFIX ".so"

/* ---- finding ------------------------------------------------------------------------- */

static enum rc check_name(const char *name, struct err *err)
{
	size_t n = strlen(name);
	if (n == 0 || n > NAME_MAX - strlen(SUFFIX))
		return err_set(err, RC_FATAL, "a handler's name has 1 to %zu letters",
			(size_t)NAME_MAX - strlen(SUFFIX));
	if (strchr(name, '/') != NULL || name[0] == '.')
		return err_set(err, RC_FATAL,
			"handler \"%s\" is no bare name: write what stands between "
			"handlers.directory and "
			"\"" SUFFIX "\"",
			name);
	if (n > strlen(SUFFIX) && strcmp(name + n - strlen(SUFFIX), SUFFIX) == 0)
		return err_set(err, RC_FATAL, "handler \"%s\": write %.*s, without \"" SUFFIX "\"",
			name, (int)(n - strlen(SUFFIX)), name);
	return RC_OK;
}

static void note_file(struct handler_file *file, const struct stat *st)
{
	file->device = st->st_dev;
	file->inode = st->st_ino;
	file->size = (uint64_t)st->st_size;
	file->mtime_ns = st->st_mtim.tv_sec * INT64_C(1000000000) + st->st_mtim.tv_nsec;
}

/* Names of all handlers, for the error text. */
static void list_handlers(const struct string_list *directories, struct string_list *ret)
{
	for (size_t i = 0; i < directories->n; i++) {
		DIR *d = opendir(directories->items[i]);
		const struct dirent *e;
		while (d != NULL && (e = readdir(d)) != NULL) {
			size_t n = strlen(e->d_name);
			if (n <= strlen(SUFFIX) ||
				strcmp(e->d_name + n - strlen(SUFFIX), SUFFIX) != 0)
				continue;
			ret->items = xrealloc(ret->items, (ret->n + 1) * sizeof *ret->items);
			ret->items[ret->n++] = xstrndup(e->d_name, n - strlen(SUFFIX));
		}
		if (d != NULL)
			(void)closedir(d);
	}
}

static void add_names(struct buf *out, const struct string_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		buf_addf(out, "%s%s", i != 0 ? ", " : "", list->items[i]);
}

static enum rc not_found(const struct string_list *directories, const char *name, struct err *err)
{
	AUTO(buf) struct buf searched = {0}, found = {0};
	struct string_list names = {0};
	list_handlers(directories, &names);
	const char *near = nearest_name(bytes_str(name), (const char *const *)names.items, names.n);
	add_names(&searched, directories);
	if (near != NULL)
		buf_addf(&found, "; did you mean %s?", near);
	else if (names.n != 0)
		buf_add_str(&found, "; there are ");
	if (near == NULL)
		add_names(&found, &names);
	(void)err_set(err, RC_FATAL, "no handler \"%s\": there is no %s" SUFFIX " in %s%s", name,
		name, buf_str(&searched), buf_str(&found));
	for (size_t i = 0; i < names.n; i++)
		free(names.items[i]);
	free(names.items);
	return RC_FATAL;
}

enum rc handler_find(const struct string_list *directories, const char *name,
	struct handler_file *ret, struct err *err)
{
	struct handler_file found = {.path = ""};
	if (check_name(name, err) != RC_OK)
		return err->rc;
	for (size_t i = 0; i < directories->n; i++) {
		struct handler_file this = {.path = ""};
		struct stat st;
		int n = snprintf(
			this.path, sizeof this.path, "%s/%s" SUFFIX, directories->items[i], name);
		if (n < 0 || (size_t)n >= sizeof this.path)
			return err_set(
				err, RC_FATAL, "%s: the path is too long", directories->items[i]);
		if (stat(this.path, &st) != 0) {
			if (errno == ENOENT || errno == ENOTDIR)
				continue;
			return err_set(
				err, RC_FATAL, "cannot look at %s: %s", this.path, strerror(errno));
		}
		note_file(&this, &st);
		/* One file by two ways (a directory linked to another) is no question. */
		if (found.path[0] != '\0' &&
			(found.device != this.device || found.inode != this.inode))
			return err_set(err, RC_FATAL,
				"two handlers are called \"%s\": %s and %s; rename or remove one",
				name, found.path, this.path);
		if (found.path[0] == '\0')
			found = this;
	}
	if (found.path[0] == '\0')
		return not_found(directories, name, err);
	*ret = found;
	return RC_OK;
}

bool handler_file_equal(const struct handler_file *a, const struct handler_file *b)
{
	return strcmp(a->path, b->path) == 0 && a->device == b->device && a->inode == b->inode &&
		a->size == b->size && a->mtime_ns == b->mtime_ns;
}

/* ---- reading ------------------------------------------------------------------------- */

/* The file as it was at one moment: what changes while it is read is somebody's copy under way. */
static enum rc read_file(struct handler_file *file, struct buf *ret, struct err *err)
{
	struct stat before, after;
	AUTO(fd) int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return err_set(err, RC_FATAL, "cannot open %s: %s", file->path, strerror(errno));
	if (trust_file(fd, file->path, &before, err) != RC_OK)
		return err->rc;
	if (trust_directories(file->path, err) != RC_OK)
		return err_ctx(err, "%s", file->path);
	if (fd_read_all(fd, FILE_MAX_BYTES, ret, err) != RC_OK)
		return err_ctx(err, "%s", file->path);
	if (fstat(fd, &after) != 0 || after.st_size != before.st_size ||
		after.st_mtim.tv_sec != before.st_mtim.tv_sec ||
		after.st_mtim.tv_nsec != before.st_mtim.tv_nsec ||
		(uint64_t)after.st_size != ret->size)
		return err_set(err, RC_FATAL,
			"%s is being written at this moment: try again when that is done (or copy "
			"to another "
			"name and rename it)",
			file->path);
	note_file(file, &after);
	return RC_OK;
}

static enum rc check_object(const struct handler_file *file, struct bytes content, struct err *err)
{
	uint8_t self[SELF_BYTES];
	AUTO(fd) int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? pread(fd, self, sizeof self, 0) : -1;
	if (n < 0)
		return err_set(err, RC_FATAL, "cannot read /proc/self/exe: %s", strerror(errno));
	if (object_check(content, bytes_of(self, (size_t)n), err) != RC_OK)
		return err_ctx(err, "%s", file->path);
	return RC_OK;
}

/* ---- the private copy ---------------------------------------------------------------- */

/* Where files may not be mapped executable (mount option noexec, a security module), dlopen's text
 * would blame the handler. */
static bool can_be_executed(int fd)
{
	void *p = mmap(NULL, 1, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		return false;
	(void)munmap(p, 1);
	return true;
}

/* -1 where the kernel or a policy does not let us: the caller has another way. */
static int copy_to_memfd(const char *name, struct bytes content)
{
	int created = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
	if (created < 0 && errno == EINVAL)
		created = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	AUTO(fd) int fd = created;
	if (fd < 0 || !fd_write_all(fd, content.data, content.size) || !can_be_executed(fd) ||
		fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) !=
			0)
		return -1;
	return TAKE_FD(fd);
}

static enum rc copy_to_directory(
	const char *directory, struct bytes content, int *ret_fd, struct err *err)
{
	AUTO(free) char *path = xasprintf("%s/handler-XXXXXX", directory);
	AUTO(fd) int fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return err_set(err, RC_FATAL, "cannot make a private copy in %s: %s", directory,
			strerror(errno));
	/* It lives by its descriptor alone, so that nothing is left behind however this process
	 * ends. */
	(void)unlink(path);
	if (!fd_write_all(fd, content.data, content.size))
		return err_set(err, RC_FATAL, "cannot write a private copy in %s: %s", directory,
			strerror(errno));
	/* Read-only from here on, for as long as somebody has it open. */
	AUTO(free) char *self = xasprintf("/proc/self/fd/%d", fd);
	AUTO(fd) int readable = open(self, O_RDONLY | O_CLOEXEC);
	if (readable < 0)
		return err_set(err, RC_FATAL, "cannot open the copy in %s: %s", directory,
			strerror(errno));
	if (!can_be_executed(readable))
		return err_set(err, RC_FATAL,
			"code may not be run from memory files nor from %s (mounted noexec?): set "
			"runtime_directory to a place where it may",
			directory);
	*ret_fd = TAKE_FD(readable);
	return RC_OK;
}

enum rc handler_copy_take(const struct string_list *directories, const char *name,
	const char *runtime_directory, struct handler_copy *ret, struct err *err)
{
	AUTO(buf) struct buf content = {0};
	struct handler_copy copy = {.fd = -1};
	if (handler_find(directories, name, &copy.file, err) != RC_OK ||
		read_file(&copy.file, &content, err) != RC_OK ||
		check_object(&copy.file, buf_bytes(&content), err) != RC_OK)
		return err->rc;
	AUTO(free) char *memfd_name = xasprintf("%s" SUFFIX, name);
	copy.fd = copy_to_memfd(memfd_name, buf_bytes(&content));
	if (copy.fd < 0 && copy_to_directory(runtime_directory, buf_bytes(&content), &copy.fd,
				   err) != RC_OK)
		return err_ctx(err, "%s", copy.file.path);
	*ret = copy;
	return RC_OK;
}

void handler_copy_done(struct handler_copy *copy)
{
	if (copy->fd >= 0)
		(void)close(copy->fd);
	copy->fd = -1;
}

/* ---- loading ------------------------------------------------------------------------- */

/* The loader takes a path that it has loaded before for the same object.  A number that is free
 * again may belong to one that could not be unloaded (C++ objects often cannot): take the next. */
static void take_unused_name(int *fd, char path[32])
{
	for (;;) {
		(void)snprintf(path, 32, "/proc/self/fd/%d", *fd);
		void *old = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
		if (old == NULL)
			return;
		(void)dlclose(old);
		int next = fcntl(*fd, F_DUPFD_CLOEXEC, *fd + 1);
		if (next < 0)
			return;
		(void)close(*fd);
		*fd = next;
	}
}

static enum rc dl_failed(const struct handler_file *file, const char *copy, struct err *err)
{
	const char *text = dlerror();
	if (text == NULL)
		text = "unknown reason";
	/* The path of the copy means nothing to anybody. */
	if (strncmp(text, copy, strlen(copy)) == 0)
		text += strlen(copy) + strspn(text + strlen(copy), ": ");
	const char *hint = "";
	if (strstr(text, "undefined symbol") != NULL)
		hint = "; link the handler with the library that has it, and with -Wl,-z,defs to "
		       "see this "
		       "when it is built";
	else if (strstr(text, "cannot open shared object file") != NULL)
		hint = "; install that library";
	return err_set(err, RC_FATAL, "%s cannot be loaded: %s%s", file->path, text, hint);
}

static enum rc open_copy(const struct handler_copy *copy, void **ret_dl, struct err *err)
{
	char path[32];
	AUTO(fd) int fd = fcntl(copy->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return err_set(err, RC_FATAL, "%s: cannot open the copy: %s", copy->file.path,
			strerror(errno));
	take_unused_name(&fd, path);
	(void)dlerror();
	*ret_dl = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	return *ret_dl != NULL ? RC_OK : dl_failed(&copy->file, path, err);
}

/* The exported symbol, if it is data and as large as it must be. */
static const void *find_symbol(void *dl, size_t *ret_size)
{
	const void *symbol = dlsym(dl, "inboxd_handler");
	void *found = NULL;
	Dl_info info;
	if (symbol == NULL || dladdr1(symbol, &info, &found, RTLD_DL_SYMENT) == 0 || found == NULL)
		return NULL;
	const ElfW(Sym) *entry = found;
	if ((entry->st_info & 0xf) != STT_OBJECT)
		return NULL;
	*ret_size = entry->st_size;
	return symbol;
}

/* Copies what the handler has of the fields that we know. */
static enum rc copy_entries(
	const void *symbol, size_t symbol_size, struct inboxd_handler *ret, struct err *err)
{
	const size_t head = offsetof(struct inboxd_handler, version);
	const size_t least = offsetof(struct inboxd_handler, handle) + sizeof ret->handle;
	struct inboxd_handler h = {0};

	memcpy(&h, symbol, symbol_size < head ? symbol_size : head);
	if (symbol_size >= sizeof h.abi_major && h.abi_major != INBOXD_ABI_MAJOR)
		return err_set(err, RC_FATAL,
			"it is built for ABI %u of inboxd/handler.h, this inboxd has ABI %u: build "
			"it again "
			"with the header of this inboxd",
			h.abi_major, INBOXD_ABI_MAJOR);
	if (h.size > symbol_size || h.size < least)
		return err_set(err, RC_FATAL,
			"its inboxd_handler says that it has %zu bytes, has %zu, and needs at "
			"least %zu: "
			"define it with INBOXD_HANDLER, or set size to sizeof(struct "
			"inboxd_handler)",
			h.size, symbol_size, least);
	memcpy(&h, symbol, h.size < sizeof h ? h.size : sizeof h);
	if (h.handle == NULL)
		return err_set(
			err, RC_FATAL, "its inboxd_handler has no `handle`, which is required");
	if ((h.flags & ~INBOXD_USES_CONN) != 0)
		return err_set(err, RC_FATAL,
			"its flags 0x%llx ask for something that this inboxd (ABI %u.%u) does not "
			"know: it "
			"needs a later one",
			(unsigned long long)h.flags, INBOXD_ABI_MAJOR, INBOXD_ABI_MINOR);
	*ret = h;
	return RC_OK;
}

static enum rc find_entries(void *dl, struct inboxd_handler *ret, struct err *err)
{
	size_t size = 0;
	const void *symbol = find_symbol(dl, &size);
	if (symbol == NULL)
		return err_set(err, RC_FATAL,
			"it exports no constant inboxd_handler: define it with "
			"INBOXD_HANDLER(.handle = …)");
	return copy_entries(symbol, size, ret, err);
}

enum rc handler_load_copy(const struct handler_copy *copy, struct handler *ret, struct err *err)
{
	struct handler h = {.file = copy->file};
	if (open_copy(copy, &h.dl, err) != RC_OK)
		return err->rc;
	if (find_entries(h.dl, &h.entries, err) != RC_OK) {
		handler_unload(&h);
		return err_ctx(err, "%s", copy->file.path);
	}
	*ret = h;
	return RC_OK;
}

enum rc handler_load(const struct string_list *directories, const char *name,
	const char *runtime_directory, struct handler *ret, struct err *err)
{
	struct handler_copy copy = {.fd = -1};
	if (handler_copy_take(directories, name, runtime_directory, &copy, err) != RC_OK)
		return err->rc;
	enum rc rc = handler_load_copy(&copy, ret, err);
	handler_copy_done(&copy);
	return rc;
}

void handler_unload(struct handler *h)
{
	if (h == NULL || h->dl == NULL)
		return;
	(void)dlclose(h->dl);
	*h = (struct handler){.dl = NULL};
}

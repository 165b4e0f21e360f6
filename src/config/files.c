/* SPDX-License-Identifier: MIT */
/* Finding and reading the files of a configuration. */
#include "config/files.h"

#include "base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

/* The directory part, "" for none. */
static char *directory_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	return xstrndup(path, slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path));
}

static char *absolute(const char *directory)
{
	if (directory[0] == '/')
		return xstrdup(directory);
	AUTO(free) char *here = getcwd(NULL, 0);
	return directory[0] == '\0' ? xstrdup(here != NULL ? here : "/")
				    : xasprintf("%s/%s", here != NULL ? here : "", directory);
}

static const char *read_text(const char *path, struct buf *ret)
{
	struct err err;
	struct stat st;
	/* A pipe would be waited for, and nobody could stop us meanwhile. */
	AUTO(fd) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) != 0)
		return strerror(errno);
	if (!S_ISREG(st.st_mode))
		return S_ISDIR(st.st_mode) ? strerror(EISDIR) : "it is not a plain file";
	errno = 0;
	if (fd_read_all(fd, YAML_SIZE_MAX, ret, &err) == RC_OK)
		return NULL;
	return errno != 0 ? strerror(errno) : "it is longer than 1 MiB";
}

/* Reads and parses one file; *ret_file is set in any case. */
static struct yaml_node *read_file(struct yaml_pool *pool, const char *path, const char *directory,
	struct diags *d, const struct diag_file **ret_file)
{
	AUTO(buf) struct buf text = {0};
	const char *why = read_text(path, &text);
	if (why != NULL)
		buf_clear(&text);
	*ret_file = yaml_add_file(pool, path, directory, buf_bytes(&text));
	if (why == NULL)
		return yaml_parse(pool, *ret_file, d);
	diag_add(d, (struct place){.file = *ret_file}, "cannot be read: %s", why);
	return NULL;
}

/* A file that an editor or a package manager left behind ends otherwise, or begins with a dot. */
static int is_drop_in(const struct dirent *entry)
{
	size_t n = strlen(entry->d_name);
	return entry->d_name[0] != '.' && n > 5 && strcmp(entry->d_name + n - 5, ".yaml") == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

struct drop_ins {
	char *shown;     /* as the main file is named */
	char *directory; /* absolute */
	struct dirent **entries;
	int n;
};

static bool find_drop_ins(const char *path, const char *directory, struct drop_ins *ret)
{
	AUTO(free) char *shown = directory_of(path);
	const char *slash = shown[0] != '\0' && strcmp(shown, "/") != 0 ? "/" : "";
	ret->shown = xasprintf("%s%s%s", shown, slash, FILES_DROP_IN);
	ret->directory =
		xasprintf("%s/%s", strcmp(directory, "/") == 0 ? "" : directory, FILES_DROP_IN);
	ret->n = scandir(ret->directory, &ret->entries, is_drop_in, by_name);
	return ret->n >= 0 || errno == ENOENT;
}

static void drop_ins_done(struct drop_ins *f)
{
	for (int i = 0; i < f->n; i++)
		free(f->entries[i]);
	if (f->n >= 0)
		free(f->entries);
	free(f->shown);
	free(f->directory);
}

struct yaml_node *files_read(struct yaml_pool *pool, const char *path, struct diags *d,
	const struct diag_file **ret_main)
{
	AUTO(free) char *shown = directory_of(path);
	AUTO(free) char *directory = absolute(shown);
	struct yaml_node *root = read_file(pool, path, directory, d, ret_main);
	struct drop_ins more = {0};
	bool is_whole = root != NULL;
	if (!find_drop_ins(path, directory, &more)) {
		diag_add(d, (struct place){.file = *ret_main}, "%s cannot be read: %s", more.shown,
			strerror(errno));
		is_whole = false;
	}
	for (int i = 0; i < more.n; i++) {
		const struct diag_file *file;
		AUTO(free) char *name = xasprintf("%s/%s", more.shown, more.entries[i]->d_name);
		struct yaml_node *node = read_file(pool, name, more.directory, d, &file);
		if (node != NULL && root != NULL)
			yaml_merge(root, node, d);
		is_whole &= node != NULL;
	}
	drop_ins_done(&more);
	return is_whole ? root : NULL;
}

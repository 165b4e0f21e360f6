/* SPDX-License-Identifier: MIT */
/* Configurations for the tests of config/. */
#include "fixture.h"

#include "base/fd.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

void fixture_init(struct fixture *f)
{
	const char *base = getenv("TMPDIR");
	*f = (struct fixture){0};
	int n = snprintf(f->directory, sizeof f->directory, "%s/inboxd-config-XXXXXX",
		base != NULL && strlen(base) < 32 ? base : "/tmp");
	ck_assert_int_lt(n, (int)sizeof f->directory);
	ck_assert_ptr_nonnull(mkdtemp(f->directory));
}

void fixture_write(const struct fixture *f, const char *name, const char *text, size_t size)
{
	AUTO(free) char *path = xasprintf("%s/%s", f->directory, name);
	for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		(void)mkdir(path, 0700);
		*slash = '/';
	}
	AUTO(fd) int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert(fd_write_all(fd, text, size));
}

/* "DIRECTORY/" goes from the texts, so that they can be compared. */
static void strip(struct buf *text, const char *directory)
{
	AUTO(free) char *prefix = xasprintf("%s/", directory);
	size_t n = strlen(prefix);
	struct buf out = {0};
	for (const char *p = buf_str(text); *p != '\0';) {
		if (strncmp(p, prefix, n) == 0)
			p += n;
		else
			buf_add_byte(&out, (uint8_t)*p++);
	}
	buf_done(text);
	*text = out;
}

void fixture_load(struct fixture *f)
{
	AUTO(free) char *path = xasprintf("%s/inboxd.yaml", f->directory);
	config_free(f->config);
	buf_clear(&f->errors);
	f->config = config_load(path, &f->errors);
	strip(&f->errors, f->directory);
}

static void remove_all(const char *path)
{
	DIR *dir = opendir(path);
	const struct dirent *entry;
	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		AUTO(free) char *below = xasprintf("%s/%s", path, entry->d_name);
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (unlink(below) != 0)
			remove_all(below);
	}
	if (dir != NULL)
		(void)closedir(dir);
	(void)rmdir(path);
}

void fixture_done(struct fixture *f)
{
	config_free(f->config);
	buf_done(&f->errors);
	remove_all(f->directory);
}

void fixture_open(struct fixture *f, const char *text)
{
	fixture_init(f);
	fixture_write(f, "inboxd.yaml", text, strlen(text));
	fixture_load(f);
}

struct config *config_of(const char *text)
{
	struct fixture f;
	fixture_open(&f, text);
	ck_assert_msg(f.config != NULL, "%s", buf_str(&f.errors));
	ck_assert_uint_eq(f.errors.size, 0);
	struct config *c = f.config;
	f.config = NULL;
	fixture_done(&f);
	return c;
}

void expect_errors(const char *text, const char *errors)
{
	struct fixture f;
	fixture_open(&f, text);
	ck_assert_str_eq(buf_str(&f.errors), errors);
	ck_assert_ptr_null(f.config);
	fixture_done(&f);
}

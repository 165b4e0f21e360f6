/* SPDX-License-Identifier: MIT */
/* Embeds the files of sql/; the build lists them in sql_files.h, one SQL_FILE(name) for each. */
#include "db/migrations.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

/* The assembler takes the file in as it is; a NUL behind it makes it a string. */
#define SQL_FILE(name)                            \
	__asm__(".pushsection .rodata\n"          \
		".global inboxd_sql_" #name "\n"  \
		".hidden inboxd_sql_" #name "\n"  \
		"inboxd_sql_" #name ":\n"         \
		".incbin \"sql/" #name ".sql\"\n" \
		".byte 0\n"                       \
		".popsection\n");                 \
	extern const char inboxd_sql_##name[] __attribute__((visibility("hidden")));
#include "sql_files.h"
#undef SQL_FILE

static const struct sql_file {
	const char *name;
	const char *text;
} files[] = {
#define SQL_FILE(name) {#name, inboxd_sql_##name},
#include "sql_files.h"
#undef SQL_FILE
};

enum { N_FILES = sizeof files / sizeof files[0] };

static bool is_migration(const struct sql_file *f)
{
	return f->name[0] >= '0' && f->name[0] <= '9';
}

size_t migrations_count(void)
{
	size_t n = 0;
	for (size_t i = 0; i < N_FILES; i++)
		n += is_migration(&files[i]);
	return n;
}

struct migration migrations_get(size_t i)
{
	/* Digits sort before letters, so the migrations stand in front of the templates. */
	assert(i < N_FILES && is_migration(&files[i]));
	return (struct migration){.version = (uint32_t)strtoul(files[i].name, NULL, 10),
		.name = files[i].name,
		.text = files[i].text};
}

uint32_t migrations_newest(void)
{
	return migrations_get(migrations_count() - 1).version;
}

void migration_checksum(const struct migration *m, uint8_t ret[MIGRATION_CHECKSUM_SIZE])
{
	hash_sha256(bytes_str(m->text), ret);
}

const char *migrations_template(const char *name)
{
	for (size_t i = 0; i < N_FILES; i++)
		if (!is_migration(&files[i]) && strcmp(files[i].name, name) == 0)
			return files[i].text;
	return NULL;
}

void sql_add_identifier(struct buf *out, const char *name)
{
	buf_add_byte(out, '"');
	for (; *name != '\0'; name++) {
		if (*name == '"')
			buf_add_byte(out, '"');
		buf_add_byte(out, (uint8_t)*name);
	}
	buf_add_byte(out, '"');
}

void sql_add_filled(struct buf *out, const char *text, const char *schema, const char *role)
{
	static const char schema_mark[] = "@schema@", role_mark[] = "@role@";
	for (const char *at; (at = strchr(text, '@')) != NULL;) {
		buf_add(out, text, (size_t)(at - text));
		if (strncmp(at, schema_mark, sizeof schema_mark - 1) == 0) {
			sql_add_identifier(out, schema);
			text = at + sizeof schema_mark - 1;
		} else if (strncmp(at, role_mark, sizeof role_mark - 1) == 0) {
			assert(role != NULL);
			sql_add_identifier(out, role);
			text = at + sizeof role_mark - 1;
		} else {
			buf_add_byte(out, '@');
			text = at + 1;
		}
	}
	buf_add_str(out, text);
}

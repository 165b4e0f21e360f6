/* SPDX-License-Identifier: MIT */
/* The table of options: what may stand in the configuration, of which kind, and where it goes.
 * Reading, printing and the tests of the manual page all follow it. */
#ifndef INBOXD_CONFIG_SCHEMA_H
#define INBOXD_CONFIG_SCHEMA_H

#include "base/buf.h"

enum section_id {
	SECTION_TOP,
	SECTION_HANDLERS,
	SECTION_LOG,
	SECTION_BROKER,
	SECTION_TLS,
	SECTION_DATABASE,
	SECTION_CONSUMER,
	SECTION_BATCH,
	SECTION_RETRY,
	SECTION_BREAKER,
	SECTION_PARKED,
	SECTION_RETENTION,
	SECTION_DEAD_LETTER,
	SECTION_WORKER,
	SECTION_TOPOLOGY,
	SECTION_BINDING,
	SECTION_COUNT,
};

/* Kind of an option, and how it is held in its section's struct. */
enum option_type {
	OPTION_TEXT,       /* char *, min to max bytes */
	OPTION_NAME,       /* char *, CONFIG_NAME_MAX of [A-Za-z0-9_.-] */
	OPTION_HANDLER,    /* char *, a name without .so */
	OPTION_IDENTIFIER, /* char *, an SQL identifier */
	OPTION_PATH,       /* char *, made absolute */
	OPTION_DIRECTORY,  /* char *, made absolute; never beside the credentials */
	OPTION_PATHS,      /* struct string_list of directories, made absolute */
	OPTION_WORD,       /* unsigned, index into words */
	OPTION_WORD_TEXT,  /* char *, one of words */
	OPTION_BOOL,       /* bool */
	OPTION_COUNT,      /* uint32_t, min to max */
	OPTION_PERCENT,    /* uint32_t */
	OPTION_SECONDS,    /* uint32_t s; min and max in ms */
	OPTION_DURATION,   /* uint32_t ms */
	OPTION_DURATIONS,  /* uint64_t *, number at offset_n; min and max of each */
	OPTION_SIZE,       /* uint64_t bytes */
	OPTION_URIS,       /* struct string_list */
	OPTION_CONNINFO,   /* char * */
	OPTION_SOURCES,    /* struct string_list */
	OPTION_ARGUMENTS,  /* struct config_argument *, number at offset_n */
	OPTION_SQLSTATES,  /* struct config_sqlstate *, number at offset_n */
	OPTION_BINDINGS,   /* struct config_binding *, number at offset_n */
	OPTION_FREE,       /* struct options * */
	OPTION_SECTION,    /* the child's options, in the same struct */
	OPTION_ONE,        /* one child with a struct of its own */
	OPTION_MANY,       /* a map of names to such children */
	OPTION_TYPE_COUNT,
};

/* What a reload has to do for a change to take effect. */
enum option_reload {
	RELOAD_CONSUMER, /* the consumers that use it start again */
	RELOAD_ALL,      /* all consumers start again */
	RELOAD_RESTART,  /* the service must be restarted */
};

enum {
	OPTION_REQUIRED = 1,
	OPTION_SECRET = 2,       /* never shown */
	OPTION_OWN = 4,          /* of one consumer only: not in defaults */
	OPTION_OF_BROKER = 8,    /* left out for workers */
	OPTION_OF_DATABASE = 16, /* left out for consumer processes */
	OPTION_WHOLE = 32,       /* a section that takes the place of the one in defaults, not merged */
	OPTION_OF_HANDLER = 64,  /* left out for all but workers */
};

struct option {
	const char *name;
	enum option_type type;
	unsigned flags;
	enum section_id child; /* OPTION_SECTION, ONE, MANY, BINDINGS */
	size_t offset, offset_n;
	uint64_t min, max;
	const char *const *words; /* NULL-terminated */
	const char *zero;         /* a word for 0, which is not between min and max; NULL: none */
	const char *def;          /* YAML text of the default; NULL: none, or computed */
	const char *computed;     /* what a computed default is, for people */
	const char *refused;      /* a value that is refused for a reason … ("0", "off") */
	const char *why;          /* … which is this */
	enum option_reload reload;
	const char *help;
};

#define DELIVERY_LIMIT_MAX 1000000

struct section {
	const char *name; /* as errors name it: "broker" */
	const struct option *options;
	size_t n;
};

const struct section *schema_section(enum section_id id);
const struct option *schema_find(enum section_id id, const char *name); /* NULL: none */

/* What a value must be: "a duration from 1s to 1h"; appended. */
void schema_describe(const struct option *o, struct buf *out);

/* The name among n that was probably meant by `name`; NULL if none is near. */
const char *schema_nearest(const char *name, const char *const *names, size_t n);

/* What to do about an unknown option; appended. */
void schema_hint_unknown(enum section_id id, const char *name, struct buf *out);

#endif

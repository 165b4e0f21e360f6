/* SPDX-License-Identifier: MIT */
/* A handler's statement: whatever stands in it, looking for transaction verbs ends, and white space or a
 * comment in front hides none. */
#include "fuzz.h"

#include "db/db.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO(free) char *sql = xstrndup((const char *)data, size);
	AUTO(free) char *spaced = xasprintf("\n\t ;/* /* nested */ */ -- line\n%s", sql);
	enum db_verb verb = db_verb_of(sql);
	assert(verb == DB_VERB_PLAIN || verb == DB_VERB_STATE || verb == DB_VERB_CONTROL);
	assert(verb != DB_VERB_CONTROL || db_verb_of(spaced) == DB_VERB_CONTROL);
	return 0;
}

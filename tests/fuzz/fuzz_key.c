/* SPDX-License-Identifier: MIT */
/* Keys and fingerprints of any message: "sources, one a line, NUL, encoded message".  A key is never empty,
 * never longer than its bound, and the same for the same message. */
#include "fuzz.h"

#include "message/key.h"

enum { MOST_SOURCES = 8 };

static size_t split(char *text, const char **sources)
{
	size_t n = 0;
	for (char *line = strtok(text, "\n"); line != NULL && n < MOST_SOURCES; line = strtok(NULL, "\n"))
		sources[n++] = line;
	return n;
}

static void extract(const struct key_rule *rule, const struct message *m)
{
	AUTO(buf) struct buf key = {0};
	AUTO(buf) struct buf again = {0};
	AUTO(buf) struct buf text = {0};
	struct source_message sm;
	struct err err = {0};
	source_message_init(&sm, m);
	enum key_result result = key_extract(rule, &sm, &key, &err);
	enum key_result result_again = key_extract(rule, &sm, &again, &err);
	assert(result == result_again && bytes_equal(buf_bytes(&key), buf_bytes(&again)));
	if (result != KEY_OK)
		return;
	assert(key.size > 1 && key.size <= KEY_SIZE_MAX);
	assert(key.data[0] >= KEY_GIVEN && key.data[0] <= KEY_BODY);
	key_text(buf_bytes(&key), &text);
	assert(text.size > 0);
}

static void fingerprint(const char *const *sources, size_t n, const struct message *m)
{
	AUTO(buf) struct buf print = {0};
	struct fingerprint_rule rule;
	struct source_message sm;
	struct err err;
	size_t bad;
	if (fingerprint_rule_parse(sources, n, &rule, &bad, &err) != RC_OK)
		return;
	source_message_init(&sm, m);
	if (fingerprint_compute(&rule, &sm, &print, &err))
		assert(print.size <= FINGERPRINT_SIZE_MAX);
	fingerprint_rule_done(&rule);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *nul = size != 0 ? memchr(data, 0, size) : NULL;
	if (nul == NULL)
		return 0;
	AUTO(free) char *text = xstrdup((const char *)data);
	const char *sources[MOST_SOURCES];
	size_t n = split(text, sources);
	struct reader r = reader_of(bytes_of(nul + 1, (size_t)(data + size - nul - 1)));
	struct message m;
	struct key_rule rule;
	struct err err;
	size_t bad;
	if (n == 0 || !message_decode(&r, &m))
		return 0;
	fingerprint(sources, n, &m);
	if (key_rule_parse(sources, n, ON_MISSING_KEY_PARK, &rule, &bad, &err) != RC_OK)
		return 0;
	extract(&rule, &m);
	key_rule_done(&rule);
	return 0;
}

/* SPDX-License-Identifier: MIT */
/* A JSON body of any publisher: "pointer NUL body".  What is found lies inside the text and is itself
 * JSON of the same kind; what is a string survives being unescaped and written again. */
#include "fuzz.h"

#include "base/json.h"

static void check_string(struct bytes raw)
{
	AUTO(buf) struct buf plain = {0};
	AUTO(buf) struct buf again = {0};
	AUTO(buf) struct buf same = {0};
	enum json_kind kind;
	struct bytes found;
	const char *why;
	size_t at;
	json_unescape(raw, &plain);
	json_add_string(&again, buf_bytes(&plain));
	bool is_json = json_find(buf_bytes(&again), "", &kind, &found, &why, &at);
	assert(is_json && kind == JSON_STRING);
	json_unescape(found, &same);
	assert(bytes_equal(buf_bytes(&plain), buf_bytes(&same)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *nul = size != 0 ? memchr(data, 0, size) : NULL;
	if (nul == NULL)
		return 0;
	const char *pointer = (const char *)data;
	struct bytes text = bytes_of(nul + 1, (size_t)(data + size - nul - 1));
	enum json_kind kind, kind_again;
	struct bytes raw, raw_again;
	const char *why = NULL;
	size_t at = 0;
	if (json_pointer_error(pointer) != NULL)
		return 0;
	if (!json_find(text, pointer, &kind, &raw, &why, &at)) {
		assert(why != NULL && at <= text.size);
		return 0;
	}
	if (kind == JSON_ABSENT)
		return 0;
	assert(raw.data >= text.data && raw.data + raw.size <= text.data + text.size);
	bool is_json = json_find(raw, "", &kind_again, &raw_again, &why, &at);
	assert(is_json && kind_again == kind && bytes_equal(raw, raw_again));
	if (kind == JSON_STRING)
		check_string(raw);
	return 0;
}

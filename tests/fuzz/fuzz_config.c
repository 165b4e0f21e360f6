/* SPDX-License-Identifier: MIT */
/* A configuration as anybody may write it: it is refused with an error, or what it says, printed and read
 * again, prints the same. */
#include "fuzz.h"

#include "config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO(buf) struct buf errors = {0};
	AUTO(buf) struct buf once = {0};
	AUTO(buf) struct buf twice = {0};
	struct config *c = config_parse("fuzz.yaml", bytes_of(data, size), &errors);
	if (c == NULL) {
		assert(errors.size > 0);
		return 0;
	}
	assert(errors.size == 0);
	config_print(c, CONFIG_FOR_PEOPLE, NULL, &once);
	struct config *again = config_parse("printed.yaml", buf_bytes(&once), &errors);
	assert(again != NULL);
	config_print(again, CONFIG_FOR_PEOPLE, NULL, &twice);
	assert(bytes_equal(buf_bytes(&once), buf_bytes(&twice)));
	config_free(again);
	config_free(c);
	return 0;
}

/* SPDX-License-Identifier: MIT */
/* A broker's URI: an error never shows the password. */
#include "fuzz.h"

#include "mq/uri.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO(free) char *tail = xstrndup((const char *)data, size);
	AUTO(free) char *text = xasprintf("amqp://user:topsecret%s", tail);
	struct mq_uri uri;
	struct err err = {0};
	if (mq_uri_parse(tail, &uri, &err) == RC_OK)
		assert(uri.port != 0);
	if (mq_uri_parse(text, &uri, &err) != RC_OK)
		assert(err.text[0] != '\0' && strstr(err.text, "topsecret") == NULL);
	return 0;
}

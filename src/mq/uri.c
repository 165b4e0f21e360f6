/* SPDX-License-Identifier: MIT */
/* Takes an AMQP URI apart.  Whatever stands in front of the host may be a password or a piece of
 * one (a '/', '@' or '#' somebody forgot to escape cuts the text in unexpected places), so messages
 * name positions and never quote the text. */
#include "mq/uri.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* A run of the text, and where the text begins: for positions in messages. */
struct span {
	const char *text;
	const char *begin;
	const char *end;
};

static struct span span_of(const struct span *whole, const char *begin, const char *end)
{
	return (struct span){.text = whole->text, .begin = begin, .end = end};
}

static size_t column(const struct span *s, const char *at)
{
	return (size_t)(at - s->text) + 1;
}

static const char *find(const struct span *s, char c)
{
	return memchr(s->begin, c, (size_t)(s->end - s->begin));
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

static enum rc bad(struct err *err, const struct span *s, const char *at, const char *why)
{
	return err_set(err, RC_FATAL, "broker URI, character %zu: %s", column(s, at), why);
}

/* One character, or an escape of three. */
static enum rc decode_one(const struct span *s, const char **p, char *ret, struct err *err)
{
	const char *at = *p;
	unsigned char c = (unsigned char)*at;
	if (c <= ' ' || c == 0x7f)
		return bad(err, s, at, "blanks and control characters are written as %XX");
	*p = at + 1;
	*ret = *at;
	if (c != '%')
		return RC_OK;
	int high = s->end - at > 2 ? hex(at[1]) : -1;
	int low = high >= 0 ? hex(at[2]) : -1;
	if (low < 0)
		return bad(
			err, s, at, "% is followed by two hexadecimal digits; a % itself is %25");
	if (high == 0 && low == 0)
		return bad(err, s, at, "a NUL is not allowed");
	*ret = (char)(high * 16 + low);
	*p = at + 3;
	return RC_OK;
}

static enum rc decode(
	const struct span *s, const char *what, char *ret, size_t size, struct err *err)
{
	size_t n = 0;
	for (const char *p = s->begin; p < s->end;) {
		const char *at = p;
		if (n + 1 >= size)
			return err_set(err, RC_FATAL,
				"broker URI, character %zu: the %s is longer than %zu bytes",
				column(s, at), what, size - 1);
		enum rc rc = decode_one(s, &p, &ret[n++], err);
		if (rc != RC_OK)
			return rc;
	}
	ret[n] = '\0';
	return RC_OK;
}

static enum rc parse_scheme(struct span *rest, struct mq_uri *ret, struct err *err)
{
	static const struct {
		const char *prefix;
		bool tls;
		uint16_t port;
	} schemes[] = {{"amqp://", false, 5672}, {"amqps://", true, 5671}};
	for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
		size_t n = strlen(schemes[i].prefix);
		if (strncasecmp(rest->begin, schemes[i].prefix, n) != 0)
			continue;
		ret->tls = schemes[i].tls;
		ret->port = schemes[i].port;
		rest->begin += n;
		return RC_OK;
	}
	return err_set(err, RC_FATAL, "broker URI: it begins with amqp:// or amqps://");
}

static enum rc parse_userinfo(const struct span *s, struct mq_uri *ret, struct err *err)
{
	const char *colon = find(s, ':');
	struct span user = span_of(s, s->begin, colon != NULL ? colon : s->end);
	enum rc rc = decode(&user, "user", ret->user, sizeof ret->user, err);
	if (rc != RC_OK)
		return rc;
	ret->has_user = true;
	ret->password[0] = '\0';
	if (colon == NULL)
		return RC_OK;
	struct span password = span_of(s, colon + 1, s->end);
	const char *again = find(&password, ':');
	if (again != NULL)
		return bad(err, s, again, "a : within the password is written as %3A");
	ret->has_password = true;
	return decode(&password, "password", ret->password, sizeof ret->password, err);
}

static enum rc parse_port(const struct span *s, uint16_t *ret, struct err *err)
{
	uint32_t port = 0;
	for (const char *p = s->begin; p < s->end; p++) {
		if (*p < '0' || *p > '9' || port > UINT16_MAX)
			return bad(err, s, p, "a port is a number from 1 to 65535");
		port = port * 10 + (uint32_t)(*p - '0');
	}
	if (port == 0 || port > UINT16_MAX)
		return bad(err, s, s->begin, "a port is a number from 1 to 65535");
	*ret = (uint16_t)port;
	return RC_OK;
}

static bool is_ipv6(const char *host)
{
	char address[INET6_ADDRSTRLEN];
	size_t n = strcspn(host, "%"); /* a zone, as in fe80::1%eth0 */
	if (n >= sizeof address)
		return false;
	memcpy(address, host, n);
	address[n] = '\0';
	struct in6_addr ignored;
	return inet_pton(AF_INET6, address, &ignored) == 1;
}

/* s is what stands between the brackets, or the name. */
static enum rc parse_host(
	const struct span *s, bool in_brackets, struct mq_uri *ret, struct err *err)
{
	static const char allowed[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
	if (s->begin == s->end)
		return bad(err, s, s->begin, "no host");
	enum rc rc = decode(s, "host", ret->host, sizeof ret->host, err);
	if (rc != RC_OK)
		return rc;
	if (in_brackets && !is_ipv6(ret->host))
		return bad(err, s, s->begin, "only an IPv6 address stands in brackets");
	if (!in_brackets && ret->host[strspn(ret->host, allowed)] != '\0')
		return bad(err, s, s->begin, "this is no host name");
	return RC_OK;
}

static enum rc parse_host_port(const struct span *s, struct mq_uri *ret, struct err *err)
{
	struct span host = *s;
	const char *behind; /* the host */
	bool in_brackets = s->begin < s->end && *s->begin == '[';
	if (in_brackets) {
		const char *closing = find(s, ']');
		if (closing == NULL)
			return bad(err, s, s->begin, "the bracket is not closed");
		host = span_of(s, s->begin + 1, closing);
		behind = closing + 1;
	} else {
		const char *colon = find(s, ':');
		behind = colon != NULL ? colon : s->end;
		host = span_of(s, s->begin, behind);
		struct span port = span_of(s, behind < s->end ? behind + 1 : behind, s->end);
		if (find(&port, ':') != NULL)
			return bad(err, s, s->begin,
				"an IPv6 address stands in brackets; a : within user or password "
				"is %3A");
	}
	enum rc rc = parse_host(&host, in_brackets, ret, err);
	if (rc != RC_OK || behind == s->end)
		return rc;
	if (*behind != ':')
		return bad(err, s, behind, "a : and the port, or a / and the vhost, come next");
	struct span port = span_of(s, behind + 1, s->end);
	return parse_port(&port, &ret->port, err);
}

static enum rc parse_authority(const struct span *s, struct mq_uri *ret, struct err *err)
{
	struct span host = *s;
	const char *at = find(s, '@');
	if (at != NULL) {
		host = span_of(s, at + 1, s->end);
		const char *again = find(&host, '@');
		if (again != NULL)
			return bad(err, s, at, "an @ within user or password is written as %40");
		struct span userinfo = span_of(s, s->begin, at);
		enum rc rc = parse_userinfo(&userinfo, ret, err);
		if (rc != RC_OK)
			return rc;
	}
	return parse_host_port(&host, ret, err);
}

/* s begins behind the slash. */
static enum rc parse_vhost(const struct span *s, struct mq_uri *ret, struct err *err)
{
	const char *slash = find(s, '/');
	if (slash != NULL)
		return bad(err, s, slash, "a / within the vhost is written as %2F");
	return decode(s, "vhost", ret->vhost, sizeof ret->vhost, err);
}

static enum rc parse(struct span rest, struct mq_uri *ret, struct err *err)
{
	enum rc rc = parse_scheme(&rest, ret, err);
	if (rc != RC_OK)
		return rc;
	const char *special = strpbrk(rest.begin, "?#");
	if (special != NULL)
		return bad(err, &rest, special,
			"parameters are options of the broker here, not part of the URI; "
			"within user, password or vhost ? is written as %3F and # as %23");
	const char *slash = find(&rest, '/');
	if (slash == NULL)
		return parse_authority(&rest, ret, err);
	struct span authority = span_of(&rest, rest.begin, slash);
	struct span vhost = span_of(&rest, slash + 1, rest.end);
	if (find(&authority, '@') == NULL && find(&vhost, '@') != NULL)
		return bad(err, &rest, slash,
			"a / within user or password is written as %2F, an @ within the vhost as "
			"%40");
	rc = parse_authority(&authority, ret, err);
	return rc == RC_OK ? parse_vhost(&vhost, ret, err) : rc;
}

enum rc mq_uri_parse(const char *text, struct mq_uri *ret, struct err *err)
{
	struct mq_uri uri = {.user = "guest", .password = "guest", .vhost = "/"};
	struct span whole = {.text = text, .begin = text, .end = text + strlen(text)};
	enum rc rc = parse(whole, &uri, err);
	if (rc == RC_OK)
		*ret = uri;
	explicit_bzero(&uri, sizeof uri);
	return rc;
}

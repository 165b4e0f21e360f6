/* SPDX-License-Identifier: MIT */
#include "fake_broker.h"

#include "unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHECK(condition)                                                                  \
	do {                                                                              \
		if (!(condition)) {                                                       \
			(void)fprintf(stderr, "fake broker, line %d: %s: %s\n", __LINE__, \
				#condition, strerror(errno));                             \
			abort();                                                          \
		}                                                                         \
	} while (0)

void add_short(struct buf *out, const char *text)
{
	buf_add_byte(out, (uint8_t)strlen(text));
	buf_add_str(out, text);
}

static void add_long(struct buf *out, const char *text)
{
	buf_add_u32(out, (uint32_t)strlen(text));
	buf_add_str(out, text);
}

void add_frame(struct buf *out, uint8_t type, uint16_t channel, struct bytes payload)
{
	buf_add_byte(out, type);
	buf_add_u16(out, channel);
	buf_add_u32(out, (uint32_t)payload.size);
	buf_add(out, payload.data, payload.size);
	buf_add_byte(out, 0xce);
}

void add_method(struct buf *out, uint16_t channel, uint32_t method, struct bytes arguments)
{
	struct buf payload = {0};
	buf_add_u32(&payload, method);
	if (arguments.size != 0)
		buf_add(&payload, arguments.data, arguments.size);
	add_frame(out, 1, channel, buf_bytes(&payload));
	buf_done(&payload);
}

void add_deliver(
	struct buf *out, uint64_t tag, bool redelivered, const char *exchange, const char *key)
{
	struct buf a = {0};
	add_short(&a, "test");
	buf_add_u64(&a, tag);
	buf_add_byte(&a, redelivered);
	add_short(&a, exchange);
	add_short(&a, key);
	add_method(out, 1, METHOD(60, 60), buf_bytes(&a));
	buf_done(&a);
}

void add_header(struct buf *out, uint64_t body_size, struct bytes properties)
{
	struct buf payload = {0};
	buf_add_u16(&payload, 60);
	buf_add_u16(&payload, 0);
	buf_add_u64(&payload, body_size);
	buf_add(&payload, properties.data, properties.size);
	add_frame(out, 2, 1, buf_bytes(&payload));
	buf_done(&payload);
}

void add_body(struct buf *out, struct bytes piece)
{
	add_frame(out, 3, 1, piece);
}

void add_close(struct buf *out, uint16_t channel, uint16_t code, const char *text)
{
	struct buf a = {0};
	buf_add_u16(&a, code);
	add_short(&a, text);
	buf_add_u32(&a, 0);
	add_method(out, channel, channel == 0 ? METHOD(10, 50) : METHOD(20, 40), buf_bytes(&a));
	buf_done(&a);
}

void fake_send(int fd, const struct buf *frames)
{
	for (size_t at = 0; at < frames->size;) {
		ssize_t n = send(fd, frames->data + at, frames->size - at, MSG_NOSIGNAL);
		CHECK(n > 0);
		at += (size_t)n;
	}
}

static bool receive_exactly(int fd, uint8_t *to, size_t size)
{
	for (size_t at = 0; at < size;) {
		ssize_t n = recv(fd, to + at, size - at, 0);
		if (n <= 0)
			return false;
		at += (size_t)n;
	}
	return true;
}

static bool receive_frame(int fd, uint8_t *type, struct buf *payload)
{
	uint8_t head[7];
	buf_clear(payload);
	if (!receive_exactly(fd, head, sizeof head))
		return false;
	struct reader r = reader_of(bytes_of(head + 3, 4));
	size_t size = reader_u32(&r);
	*type = head[0];
	if (!receive_exactly(fd, buf_reserve(payload, size + 1), size + 1))
		return false;
	CHECK(payload->data[size] == 0xce);
	payload->size = size;
	return true;
}

uint32_t fake_receive(int fd, struct buf *payload)
{
	struct buf own = {0};
	uint8_t type = 8;
	struct buf *p = payload != NULL ? payload : &own;
	bool ok = receive_frame(fd, &type, p);
	while (ok && type == 8)
		ok = receive_frame(fd, &type, p);
	struct reader r = reader_of(buf_bytes(p));
	uint32_t method = !ok ? 0 : type == 1 ? reader_u32(&r) : type;
	buf_done(&own);
	return method;
}

void fake_await(int fd, uint32_t method)
{
	uint32_t got = fake_receive(fd, NULL);
	while (got != method && got != 0)
		got = fake_receive(fd, NULL);
	CHECK(got == method);
}

static void send_start(int fd)
{
	struct buf a = {0}, out = {0};
	buf_add_u16(&a, 0x0009);
	buf_add_u32(&a, 0);
	add_long(&a, "PLAIN AMQPLAIN");
	add_long(&a, "en_US");
	add_method(&out, 0, METHOD(10, 10), buf_bytes(&a));
	fake_send(fd, &out);
	buf_done(&a);
	buf_done(&out);
}

static void take_start_ok(struct fake_broker *f, int fd)
{
	struct buf payload = {0};
	CHECK(fake_receive(fd, &payload) == METHOD(10, 11));
	struct reader r = reader_of(buf_bytes(&payload));
	(void)reader_u32(&r);
	(void)reader_bytes(&r, reader_u32(&r));
	(void)reader_bytes(&r, reader_u8(&r));
	struct bytes sasl = reader_bytes(&r, reader_u32(&r));
	CHECK(!r.bad && sasl.size <= sizeof f->sasl);
	memcpy(f->sasl, sasl.data, sasl.size);
	f->sasl_size = sasl.size;
	buf_done(&payload);
}

static void send_tune(const struct fake_broker *f, int fd)
{
	struct buf a = {0}, out = {0};
	buf_add_u16(&a, 2047);
	buf_add_u32(&a, f->frame_max != 0 ? f->frame_max : 131072);
	buf_add_u16(&a, f->heartbeat_s);
	add_method(&out, 0, METHOD(10, 30), buf_bytes(&a));
	fake_send(fd, &out);
	buf_done(&a);
	buf_done(&out);
}

void fake_greet(int fd)
{
	uint8_t greeting[8];
	CHECK(receive_exactly(fd, greeting, sizeof greeting));
	CHECK(memcmp(greeting, "AMQP\0\0\x09\x01", sizeof greeting) == 0);
	send_start(fd);
}

void fake_login(struct fake_broker *f, int fd)
{
	struct buf out = {0};
	fake_greet(fd);
	take_start_ok(f, fd);
	send_tune(f, fd);
	CHECK(fake_receive(fd, NULL) == METHOD(10, 31));
	CHECK(fake_receive(fd, NULL) == METHOD(10, 40));
	add_method(&out, 0, METHOD(10, 41), bytes_of("", 1));
	fake_send(fd, &out);
	buf_done(&out);
}

void fake_accept(struct fake_broker *f, int fd)
{
	struct buf out = {0};
	fake_login(f, fd);
	CHECK(fake_receive(fd, NULL) == METHOD(20, 10));
	add_method(&out, 1, METHOD(20, 11), bytes_of("\0\0\0", 4));
	fake_send(fd, &out);
	buf_done(&out);
}

/* The next connection that says something: before TLS, one is made only to see who answers. */
static int next_caller(int listener)
{
	uint8_t first;
	int fd = accept(listener, NULL, NULL);
	while (fd >= 0 && recv(fd, &first, 1, MSG_PEEK) <= 0) {
		(void)close(fd);
		fd = accept(listener, NULL, NULL);
	}
	return fd;
}

static void *run(void *data)
{
	struct fake_broker *f = data;
	int fd = next_caller(f->listener);
	if (fd < 0)
		return NULL;
	f->script(f, fd);
	(void)close(fd);
	return NULL;
}

static void fill_backlog(const struct sockaddr_in *address)
{
	for (int i = 0; i < 4; i++) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		CHECK(fd >= 0);
		(void)connect(fd, (const struct sockaddr *)address, sizeof *address);
	}
}

void fake_listen(struct fake_broker *f, bool is_full)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof address;
	*f = (struct fake_broker){.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
	CHECK(f->listener >= 0);
	CHECK(bind(f->listener, (struct sockaddr *)&address, sizeof address) == 0);
	CHECK(listen(f->listener, is_full ? 0 : 8) == 0);
	CHECK(getsockname(f->listener, (struct sockaddr *)&address, &size) == 0);
	if (is_full)
		fill_backlog(&address);
	f->port = ntohs(address.sin_port);
	(void)snprintf(f->uri, sizeof f->uri, "amqp://u:p@127.0.0.1:%u", f->port);
	f->uris[0] = f->uri;
	f->broker = (struct config_broker){
		.uris = {.items = f->uris, .n = 1}, .heartbeat_s = 60, .connect_timeout_ms = 2000};
}

void fake_start(struct fake_broker *f, void (*script)(struct fake_broker *f, int fd))
{
	fake_listen(f, false);
	f->script = script;
	CHECK(pthread_create(&f->thread, NULL, run, f) == 0);
}

void fake_stop(struct fake_broker *f)
{
	if (f->script != NULL) {
		(void)shutdown(
			f->listener, SHUT_RDWR); /* whom nobody has called need not wait on */
		CHECK(pthread_join(f->thread, NULL) == 0);
	}
	(void)close(f->listener);
}

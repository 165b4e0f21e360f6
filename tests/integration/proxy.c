/* SPDX-License-Identifier: MIT */
/* The proxy's thread: moves bytes between pairs of sockets, looking at the messages in them. */
#include "proxy.h"

#include "wire.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_LINKS = 64, CHUNK = 65536 };

/* One direction of a connection. */
struct flow {
	int from, to;
	enum proxy_way way;
	struct wire wire; /* what the protocol says of the bytes */
	uint8_t data[CHUNK + WIRE_HEAD];
	size_t size, sent; /* what was read; how much of it was passed on */
	int64_t ready_ms;  /* when it may be passed on */
	bool is_ended;     /* nothing more comes */
};

struct link {
	struct flow flow[2]; /* by enum proxy_way */
	bool is_over;
};

struct proxy {
	enum proxy_protocol protocol;
	uint16_t target, port;
	pthread_t thread;
	pthread_mutex_t lock; /* of all below; the thread holds it except while it polls */
	pthread_cond_t idle;
	int wake;
	uint64_t asked, done; /* commands; the thread has seen all up to done */
	int listener;         /* -1: refusing */
	bool is_stopping;
	struct link *links[MOST_LINKS];
	int n_links;
	struct {
		bool is_frozen;
		uint64_t left; /* bytes that pass before it is */
		int delay_ms;
		uint64_t bytes;
	} way[2];
	struct wire_watch watch;
	uint64_t accepted;
};

static int64_t clock_now_ms(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- connections ----------------------------------------------------------------- */

static struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void set_nonblocking(int fd)
{
	(void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static void flow_init(struct proxy *p, struct link *l, enum proxy_way way, int from, int to)
{
	struct flow *f = &l->flow[way];
	f->from = from;
	f->to = to;
	f->way = way;
	wire_init(&f->wire, p->protocol, way, &l->flow[PROXY_TO_CLIENT].wire);
}

static void link_open(struct proxy *p, int client)
{
	struct sockaddr_in address = loopback(p->target);
	int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (p->n_links == MOST_LINKS ||
		connect(server, (struct sockaddr *)&address, sizeof address) != 0) {
		(void)close(server);
		(void)close(client);
		return;
	}
	set_nonblocking(client);
	set_nonblocking(server);
	struct link *l = calloc(1, sizeof *l);
	ck_assert_ptr_nonnull(l);
	flow_init(p, l, PROXY_TO_SERVER, client, server);
	flow_init(p, l, PROXY_TO_CLIENT, server, client);
	p->links[p->n_links++] = l;
	p->accepted++;
}

static void link_close(struct link *l, bool is_reset)
{
	const struct linger now = {.l_onoff = 1, .l_linger = 0};
	for (int i = 0; i < 2; i++) {
		if (is_reset)
			(void)setsockopt(l->flow[i].from, SOL_SOCKET, SO_LINGER, &now, sizeof now);
		(void)close(l->flow[i].from);
	}
	free(l);
}

static int close_all(struct proxy *p, bool is_reset)
{
	int n = p->n_links;
	for (int i = 0; i < n; i++)
		link_close(p->links[i], is_reset);
	p->n_links = 0;
	return n;
}

static void close_ended(struct proxy *p)
{
	int kept = 0;
	for (int i = 0; i < p->n_links; i++) {
		if (p->links[i]->is_over)
			link_close(p->links[i], false);
		else
			p->links[kept++] = p->links[i];
	}
	p->n_links = kept;
}

/* ---- bytes ----------------------------------------------------------------------- */

static bool is_frozen(const struct proxy *p, const struct flow *f)
{
	return p->way[f->way].is_frozen && p->way[f->way].left == 0;
}

static bool is_due(const struct flow *f, int64_t now_ms)
{
	return f->sent < f->size && now_ms >= f->ready_ms;
}

/* How many bytes may be read or passed on before the freeze. */
static size_t allowed(const struct proxy *p, const struct flow *f, size_t size)
{
	uint64_t left = p->way[f->way].left;
	return p->way[f->way].is_frozen && left < size ? (size_t)left : size;
}

static void take(struct proxy *p, struct link *l, struct flow *f, int64_t now_ms)
{
	uint8_t data[CHUNK];
	ssize_t n = read(f->from, data, sizeof data);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		f->is_ended = true;
		return;
	}
	f->sent = f->size = 0;
	f->ready_ms = now_ms + p->way[f->way].delay_ms;
	if (wire_pass(&f->wire, &p->watch, data, (size_t)n, f->data, &f->size) == WIRE_CUT)
		l->is_over = true;
}

static void give(struct proxy *p, struct link *l, struct flow *f)
{
	size_t size = allowed(p, f, f->size - f->sent);
	ssize_t n = size != 0 ? send(f->to, f->data + f->sent, size, MSG_NOSIGNAL) : 0;
	if (n < 0 && errno != EAGAIN && errno != EINTR)
		l->is_over = true;
	if (n <= 0)
		return;
	f->sent += (size_t)n;
	p->way[f->way].bytes += (uint64_t)n;
	if (p->way[f->way].is_frozen)
		p->way[f->way].left -= (uint64_t)n;
}

/* An end passes on when all before it has. */
static void move(struct proxy *p, struct link *l, struct flow *f, short events, int64_t now_ms)
{
	if (is_frozen(p, f) || l->is_over)
		return;
	if (f->sent == f->size && events != 0)
		take(p, l, f, now_ms);
	if (is_due(f, now_ms))
		give(p, l, f);
	if (f->is_ended && f->sent == f->size)
		l->is_over = true;
}

/* What was read before a cut arrives. */
static void flush_all(struct proxy *p)
{
	for (int i = 0; i < p->n_links; i++)
		for (int way = 0; way < 2; way++)
			if (!is_frozen(p, &p->links[i]->flow[way]))
				give(p, p->links[i], &p->links[i]->flow[way]);
}

/* ---- the thread ------------------------------------------------------------------ */

/* A descriptor that is not to be looked at is negative: even its end would not be waited for. */
static struct pollfd interest(
	const struct proxy *p, const struct flow *f, int64_t now_ms, int *wait_ms)
{
	struct pollfd none = {.fd = -1};
	if (is_frozen(p, f) || f->is_ended)
		return none;
	if (f->sent == f->size)
		return (struct pollfd){.fd = f->from, .events = POLLIN};
	if (is_due(f, now_ms))
		return (struct pollfd){.fd = f->to, .events = POLLOUT};
	int left = (int)(f->ready_ms - now_ms);
	if (*wait_ms < 0 || left < *wait_ms)
		*wait_ms = left;
	return none;
}

static void step(struct proxy *p)
{
	struct pollfd fds[2 + 2 * MOST_LINKS] = {
		{.fd = p->wake, .events = POLLIN}, {.fd = p->listener, .events = POLLIN}};
	int n = p->n_links, wait_ms = -1;
	int64_t now = clock_now_ms();
	for (int i = 0; i < 2 * n; i++)
		fds[2 + i] = interest(p, &p->links[i / 2]->flow[i % 2], now, &wait_ms);
	(void)pthread_mutex_unlock(&p->lock);
	(void)poll(fds, (nfds_t)(2 + 2 * n), wait_ms);
	(void)pthread_mutex_lock(&p->lock);
	if (fds[0].revents != 0) {
		uint64_t ignored;
		(void)!read(p->wake, &ignored, sizeof ignored);
	}
	/* A command may have closed what was polled: then everything is looked at anew. */
	if (p->done != p->asked) {
		p->done = p->asked;
		(void)pthread_cond_broadcast(&p->idle);
		return;
	}
	if (fds[1].revents != 0 && p->listener >= 0) {
		int client = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
		if (client >= 0)
			link_open(p, client);
	}
	now = clock_now_ms();
	for (int i = 0; i < 2 * n; i++)
		move(p, p->links[i / 2], &p->links[i / 2]->flow[i % 2], fds[2 + i].revents, now);
	close_ended(p);
}

static void *run(void *arg)
{
	struct proxy *p = arg;
	(void)pthread_mutex_lock(&p->lock);
	while (!p->is_stopping)
		step(p);
	(void)close_all(p, false);
	(void)pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* Commands change the state under the lock, then wait until the thread has looked at it. */
static void command_begin(struct proxy *p)
{
	(void)pthread_mutex_lock(&p->lock);
}

static void command_end(struct proxy *p)
{
	const uint64_t one = 1;
	uint64_t mine = ++p->asked;
	ck_assert_int_eq(write(p->wake, &one, sizeof one), sizeof one);
	while (p->done < mine)
		(void)pthread_cond_wait(&p->idle, &p->lock);
	(void)pthread_mutex_unlock(&p->lock);
}

static uint64_t look(struct proxy *p, const uint64_t *value)
{
	(void)pthread_mutex_lock(&p->lock);
	uint64_t v = *value;
	(void)pthread_mutex_unlock(&p->lock);
	return v;
}

/* ---- made and ended -------------------------------------------------------------- */

/* The port stays the same after the first time. */
static void start_listening(struct proxy *p)
{
	struct sockaddr_in address = loopback(p->port);
	socklen_t size = sizeof address;
	const int on = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	ck_assert_msg(bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
			listen(fd, 64) == 0 &&
			getsockname(fd, (struct sockaddr *)&address, &size) == 0,
		"the proxy cannot listen: %s", strerror(errno));
	p->port = ntohs(address.sin_port);
	p->listener = fd;
}

struct proxy *proxy_new(enum proxy_protocol protocol, uint16_t target)
{
	struct proxy *p = calloc(1, sizeof *p);
	ck_assert_ptr_nonnull(p);
	p->protocol = protocol;
	p->target = target;
	(void)pthread_mutex_init(&p->lock, NULL);
	(void)pthread_cond_init(&p->idle, NULL);
	p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	start_listening(p);
	ck_assert_int_eq(pthread_create(&p->thread, NULL, run, p), 0);
	return p;
}

void proxy_free(struct proxy *p)
{
	if (p == NULL)
		return;
	command_begin(p);
	p->is_stopping = true;
	command_end(p);
	ck_assert_int_eq(pthread_join(p->thread, NULL), 0);
	if (p->listener >= 0)
		(void)close(p->listener);
	(void)close(p->wake);
	free(p);
}

uint16_t proxy_port(const struct proxy *p)
{
	return p->port;
}

/* ---- commands -------------------------------------------------------------------- */

int proxy_cut(struct proxy *p)
{
	command_begin(p);
	flush_all(p);
	int n = close_all(p, false);
	command_end(p);
	return n;
}

int proxy_reset(struct proxy *p)
{
	command_begin(p);
	int n = close_all(p, true);
	command_end(p);
	return n;
}

void proxy_refuse(struct proxy *p, bool on)
{
	command_begin(p);
	if (on && p->listener >= 0) {
		(void)close(p->listener);
		p->listener = -1;
	} else if (!on && p->listener < 0) {
		start_listening(p);
	}
	command_end(p);
}

static void freeze_way(struct proxy *p, enum proxy_way way, uint64_t after_bytes)
{
	p->way[way].is_frozen = true;
	p->way[way].left = after_bytes;
}

void proxy_freeze(struct proxy *p, enum proxy_way way, uint64_t after_bytes)
{
	command_begin(p);
	if (way != PROXY_TO_CLIENT)
		freeze_way(p, PROXY_TO_SERVER, after_bytes);
	if (way != PROXY_TO_SERVER)
		freeze_way(p, PROXY_TO_CLIENT, after_bytes);
	command_end(p);
}

void proxy_thaw(struct proxy *p)
{
	command_begin(p);
	p->way[PROXY_TO_SERVER].is_frozen = p->way[PROXY_TO_CLIENT].is_frozen = false;
	command_end(p);
}

void proxy_delay(struct proxy *p, enum proxy_way way, int ms)
{
	command_begin(p);
	if (way != PROXY_TO_CLIENT)
		p->way[PROXY_TO_SERVER].delay_ms = ms;
	if (way != PROXY_TO_SERVER)
		p->way[PROXY_TO_CLIENT].delay_ms = ms;
	command_end(p);
}

void proxy_drop_commits(struct proxy *p, int n)
{
	ck_assert_int_eq(p->protocol, PROXY_POSTGRES);
	command_begin(p);
	p->watch.drops = n;
	command_end(p);
}

void proxy_drop_method(struct proxy *p, uint16_t class_id, uint16_t method_id, int n)
{
	ck_assert_int_eq(p->protocol, PROXY_AMQP);
	command_begin(p);
	p->watch.class_id = class_id;
	p->watch.method_id = method_id;
	p->watch.drops = n;
	command_end(p);
}

void proxy_spoil_properties(struct proxy *p, int n)
{
	ck_assert_int_eq(p->protocol, PROXY_AMQP);
	command_begin(p);
	p->watch.spoils = n;
	command_end(p);
}

int proxy_drops_left(struct proxy *p)
{
	(void)pthread_mutex_lock(&p->lock);
	int n = p->watch.drops;
	(void)pthread_mutex_unlock(&p->lock);
	return n;
}

/* ---- what has passed ------------------------------------------------------------- */

uint64_t proxy_methods(struct proxy *p, uint16_t class_id, uint16_t method_id)
{
	ck_assert_uint_lt(method_id, WIRE_METHODS);
	return class_id == WIRE_BASIC ? look(p, &p->watch.methods[method_id]) : 0;
}

uint64_t proxy_commits(struct proxy *p)
{
	return look(p, &p->watch.commits);
}

uint64_t proxy_bytes(struct proxy *p, enum proxy_way way)
{
	ck_assert_int_ne(way, PROXY_BOTH);
	return look(p, &p->way[way].bytes);
}

uint64_t proxy_accepted(struct proxy *p)
{
	return look(p, &p->accepted);
}

int proxy_open(struct proxy *p)
{
	(void)pthread_mutex_lock(&p->lock);
	int n = p->n_links;
	(void)pthread_mutex_unlock(&p->lock);
	return n;
}

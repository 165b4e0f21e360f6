/* SPDX-License-Identifier: MIT */
/* The log sink: the only file-scope state besides signals and fault points. */
#include "base/log.h"

#include "base/clock.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <systemd/sd-journal.h>
#include <time.h>
#include <unistd.h>

#define JOURNAL_SOCKET "/run/systemd/journal/socket"

static struct {
	enum log_level level;
	enum log_format format;
	const char *role;
	const char *consumer;
	uint64_t lost; /* lines that were not taken, since one was taken */
	bool is_torn;  /* of the last one a part was taken */
} sink = {.level = L_INFO, .format = LOG_LOGFMT};

/* Of what is lost and torn: a process may have a second thread that logs. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void log_init(enum log_level level, enum log_format format)
{
	sink.level = level;
	sink.format = format;
}

void log_set_role(const char *role, const char *consumer)
{
	sink.role = role;
	sink.consumer = consumer;
}

bool log_enabled(enum log_level level)
{
	return level <= sink.level;
}

const char *log_level_name(enum log_level level)
{
	static const char *const names[] = {"error", "warning", "info", "debug"};
	return names[level];
}

static void add_code_point(struct buf *line, uint32_t c)
{
	if (c < 0x10000)
		buf_addf(line, "\\u%04x", c);
	else
		buf_addf(line, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
			0xdc00 + (c & 0x3ff));
}

/* Quotes for logfmt and JSON alike; what is not UTF-8, or would move the cursor or hide what stands
 * beside it on somebody's terminal, becomes an escape. */
static void add_quoted(struct buf *line, struct bytes value, bool json)
{
	buf_add_byte(line, '"');
	for (size_t i = 0; i < value.size;) {
		uint32_t c = value.data[i];
		size_t n = utf8_decode(value.data + i, value.size - i, &c);
		if (c == '"' || c == '\\') {
			buf_add_byte(line, '\\');
			buf_add_byte(line, (uint8_t)c);
		} else if (c == '\n') {
			buf_add_str(line, "\\n");
		} else if (n == 0) {
			buf_addf(line, json ? "\\\\x%02x" : "\\x%02x", c);
			n = 1;
		} else if (!utf8_is_visible(c)) {
			add_code_point(line, c);
		} else {
			buf_add(line, value.data + i, n);
		}
		i += n;
	}
	buf_add_byte(line, '"');
}

static bool is_plain(struct bytes value)
{
	for (size_t i = 0; i < value.size; i++)
		if (value.data[i] <= ' ' || value.data[i] >= 0x7f || value.data[i] == '"' ||
			value.data[i] == '=' || value.data[i] == '\\')
			return false;
	return value.size != 0;
}

static void add_value(struct buf *line, const struct log_field *f, bool json)
{
	if (f->kind == LOG_FIELD_INT)
		buf_addf(line, "%" PRId64, f->i);
	else if (f->kind == LOG_FIELD_UINT)
		buf_addf(line, "%" PRIu64, f->u);
	else if (!json && is_plain(f->value))
		buf_add(line, f->value.data, f->value.size);
	else
		add_quoted(line, f->value, json);
}

static bool is_absent(const struct log_field *f)
{
	return f->name == NULL ||
		((f->kind == LOG_FIELD_STR || f->kind == LOG_FIELD_BYTES) && f->value.data == NULL);
}

static void add_field(struct buf *line, const struct log_field *f)
{
	bool json = sink.format == LOG_JSON;
	if (is_absent(f))
		return;
	buf_addf(line, json ? ",\"%s\":" : " %s=", f->name);
	add_value(line, f, json);
}

static void add_time(struct buf *line)
{
	struct timespec now;
	struct tm tm;
	char text[32];
	(void)clock_gettime(CLOCK_REALTIME, &now);
	if (gmtime_r(&now.tv_sec, &tm) == NULL)
		return;
	size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
	buf_addf(line, "%.*s.%03ldZ", (int)n, text, now.tv_nsec / 1000000);
}

/* ---- to standard error, which may be full, closed, or read by nobody ------------ */

enum {
	WAIT_MS = 1000
}; /* for a slow reader; one that has not come back since is not waited for again */

/* What cannot be said with O_NONBLOCK, which everyone who shares the descriptor would have, is said
 * per write for sockets, and by a description of our own for pipes.  Files do not block. */
static ssize_t write_without_waiting(int fd, const struct stat *st, const void *data, size_t n)
{
	if (S_ISSOCK(st->st_mode))
		return send(fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (!S_ISFIFO(st->st_mode))
		return write(fd, data, n);
	int own = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	if (own < 0 && errno == ENXIO) { /* nobody holds its other end */
		errno = EPIPE;
		return -1;
	}
	ssize_t written = write(own >= 0 ? own : fd, data, n);
	int error = errno;
	if (own >= 0)
		(void)close(own);
	errno = error;
	return written;
}

static bool has_room(int fd, int wait_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	return poll(&p, 1, wait_ms) != 0;
}

/* False: some of it was not taken. */
static bool emit(struct bytes line)
{
	struct stat st;
	uint64_t until_ms = clock_ms() + (sink.lost == 0 ? WAIT_MS : 0);
	if (fstat(STDERR_FILENO, &st) != 0)
		return false;
	for (sink.is_torn = false; line.size != 0;) {
		uint64_t now_ms = clock_ms();
		if (!has_room(STDERR_FILENO, until_ms > now_ms ? (int)(until_ms - now_ms) : 0))
			return false;
		ssize_t n = write_without_waiting(STDERR_FILENO, &st, line.data, line.size);
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return false;
		if (n < 0 && clock_ms() >= until_ms)
			return false;
		if (n > 0)
			line = bytes_of(line.data + n, line.size - (size_t)n);
		sink.is_torn = line.size != 0 && (sink.is_torn || n > 0);
	}
	return true;
}

static void emit_locked(struct bytes text)
{
	if (emit(text))
		sink.lost = 0;
	else
		sink.lost++;
}

static void add_line(struct buf *line, enum log_level level, const char *event,
	const struct log_field *fields, size_t n)
{
	bool json = sink.format == LOG_JSON;
	const struct log_field fixed[] = {LS("role", sink.role), LS("consumer", sink.consumer)};
	buf_add_str(line, json ? "{\"time\":\"" : "time=");
	add_time(line);
	buf_addf(line, json ? "\",\"level\":\"%s\",\"event\":\"%s\"" : " level=%s event=%s",
		log_level_name(level), event);
	for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
		add_field(line, &fixed[i]);
	for (size_t i = 0; i < n; i++)
		add_field(line, &fields[i]);
	buf_add_str(line, json ? "}\n" : "\n");
}

static void to_stderr(
	enum log_level level, const char *event, const struct log_field *fields, size_t n)
{
	struct buf lines = {0};
	(void)pthread_mutex_lock(&lock);
	const struct log_field lost = LU("lines", sink.lost);
	if (sink.is_torn)
		buf_add_str(&lines, "\n");
	if (sink.lost != 0)
		add_line(&lines, L_WARNING, "log_lines_lost", &lost, 1);
	add_line(&lines, level, event, fields, n);
	/* One write, or lines of other processes might come in between. */
	emit_locked(buf_bytes(&lines));
	(void)pthread_mutex_unlock(&lock);
	buf_done(&lines);
}

/* Journal fields are upper case; MESSAGE carries the whole line for people. */
static void to_journal(
	enum log_level level, const char *event, const struct log_field *fields, size_t n)
{
	static const int priority[] = {3, 4, 6, 7};
	enum { MOST = 24 };
	struct buf text[MOST] = {0};
	struct iovec iov[MOST];
	size_t used = 0;
	const struct log_field fixed[] = {LS("role", sink.role), LS("consumer", sink.consumer)};

	buf_addf(&text[used++], "PRIORITY=%d", priority[level]);
	buf_addf(&text[used++], "SYSLOG_IDENTIFIER=inboxd");
	buf_addf(&text[used++], "INBOXD_EVENT=%s", event);
	struct buf *message = &text[used++];
	buf_addf(message, "MESSAGE=%s", event);
	for (size_t i = 0; i < n + 2; i++) {
		const struct log_field *f = i < 2 ? &fixed[i] : &fields[i - 2];
		add_field(message, f);
		if (is_absent(f) || used == MOST)
			continue;
		struct buf *b = &text[used++];
		buf_add_str(b, "INBOXD_");
		for (const char *c = f->name; *c != '\0'; c++)
			buf_add_byte(b, (uint8_t)(*c >= 'a' && *c <= 'z' ? *c - 32 : *c));
		buf_add_byte(b, '=');
		if (f->kind == LOG_FIELD_STR || f->kind == LOG_FIELD_BYTES)
			buf_add(b, f->value.data, f->value.size);
		else
			add_value(b, f, false);
	}
	for (size_t i = 0; i < used; i++)
		iov[i] = (struct iovec){.iov_base = text[i].data, .iov_len = text[i].size};
	/* Without a journal the library does nothing and calls it a success. */
	if (access(JOURNAL_SOCKET, F_OK) != 0 || sd_journal_sendv(iov, (int)used) < 0)
		to_stderr(level, event, fields, n);
	for (size_t i = 0; i < used; i++)
		buf_done(&text[i]);
}

void log_write(enum log_level level, const char *event, const struct log_field *fields, size_t n)
{
	if (!log_enabled(level))
		return;
	if (sink.format == LOG_JOURNAL)
		to_journal(level, event, fields, n);
	else
		to_stderr(level, event, fields, n);
}

void log_text(enum log_level level, const char *event, struct bytes text)
{
	if (text.size == 0)
		return;
	if (sink.format == LOG_JSON) {
		log_event(level, event, LB("text", text));
		return;
	}
	(void)pthread_mutex_lock(&lock);
	emit_locked(text);
	(void)pthread_mutex_unlock(&lock);
}

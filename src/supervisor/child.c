/* SPDX-License-Identifier: MIT */
/* fork and exec. */
#include "supervisor/child.h"

#include "base/clock.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LAST_FIXED_FD = CHILD_HANDLER_FD, MOST_ENVIRONMENT = 1024, MOST_SAID = 64 << 10 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INBOXD_IS_SANITIZED
#elif defined(__clang__)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define INBOXD_IS_SANITIZED
#endif
#endif

#define STACK_BYTES ((rlim_t)8 << 20)

static const char self[] = "/proc/self/exe";

/* A consumer talks to the broker and to us: it needs no variable that a handler might. */
static bool is_plain(const char *entry)
{
	static const char *const names[] = {"PATH=", "LANG=", "LC_", "TZ=", "HOME=", "TMPDIR=", "LD_",
		"CREDENTIALS_DIRECTORY=", "RUNTIME_DIRECTORY=", "SSL_CERT_", "ASAN_OPTIONS=",
		"UBSAN_OPTIONS=", "LSAN_OPTIONS=", "TSAN_OPTIONS=", "INBOXD_FAULT"};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (strncmp(entry, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

static bool is_forgotten(const char *entry, const struct string_list *forget)
{
	for (size_t i = 0; forget != NULL && i < forget->n; i++) {
		size_t n = strlen(forget->items[i]);
		if (strncmp(entry, forget->items[i], n) == 0 && entry[n] == '=')
			return true;
	}
	/* systemd's own line to the main process is nobody else's. */
	return strncmp(entry, "NOTIFY_SOCKET=", 14) == 0 ||
	       strncmp(entry, "WATCHDOG_", 9) == 0;
}

static void environment_for(const struct child_spec *spec, char *out[MOST_ENVIRONMENT])
{
	size_t n = 0;
	for (char **e = environ; *e != NULL && n + 1 < MOST_ENVIRONMENT; e++) {
		if (is_forgotten(*e, spec->forget) || (spec->is_plain_environment && !is_plain(*e)))
			continue;
		out[n++] = *e;
	}
	out[n] = NULL;
}

/* First out of the way, then into place, so that no move overwrites what is still to be moved. */
static bool place_descriptors(const struct child_spec *spec)
{
	const int from[] = {spec->channel_fd, spec->config_fd, spec->stats_fd,
		spec->handler != NULL ? spec->handler->fd : -1};
	const int n = spec->handler != NULL ? 4 : 3;
	int spare[4];
	for (int i = 0; i < n; i++)
		if ((spare[i] = fcntl(from[i], F_DUPFD_CLOEXEC, LAST_FIXED_FD + 1)) < 0)
			return false;
	for (int i = 0; i < n; i++)
		if (dup2(spare[i], CHILD_CHANNEL_FD + i) < 0)
			return false;
	return close_range((unsigned)(CHILD_CHANNEL_FD + n), ~0u, 0) == 0;
}

static void reset_signals(void)
{
	sigset_t none;
	(void)sigemptyset(&none);
	for (int s = 1; s < NSIG; s++)
		if (s != SIGKILL && s != SIGSTOP)
			(void)signal(s, SIG_DFL);
	(void)signal(SIGPIPE, SIG_IGN); /* libraries write to sockets that may be closed */
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Deeply nested header tables are decoded recursively by some versions of librabbitmq. */
static void raise_stack_limit(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= STACK_BYTES)
		return;
	limit.rlim_cur = limit.rlim_max < STACK_BYTES ? limit.rlim_max : STACK_BYTES;
	(void)setrlimit(RLIMIT_STACK, &limit);
}

/* Where the watch over resident memory comes too late: what is asked for at once is not given.  Stacks of threads
 * count, touched or not, and so does what a sanitizer sets aside: a good deal more. */
static void limit_memory(uint64_t bytes)
{
#ifndef INBOXD_IS_SANITIZED
	const rlim_t margin = (rlim_t)256 << 20;
	struct rlimit limit;
	if (bytes == 0 || getrlimit(RLIMIT_DATA, &limit) != 0 || limit.rlim_cur < bytes + margin)
		return;
	limit.rlim_cur = bytes + margin;
	(void)setrlimit(RLIMIT_DATA, &limit);
#else
	(void)bytes;
#endif
}

/* execve takes what it does not change without saying so. */
static char *word(const char *s)
{
	return (char *)(uintptr_t)s;
}

_Noreturn static void become(const struct child_spec *spec, pid_t parent)
{
	char index[16];
	char *environment[MOST_ENVIRONMENT];
	(void)snprintf(index, sizeof index, "%u", spec->index);
	char *argv[] = {word(spec->title), word("--role"), word(spec->role), word("--consumer"),
		word(spec->consumer), word("--index"), index,
		spec->handler != NULL ? word("--handler") : NULL,
		spec->handler != NULL ? word(spec->handler->file.path) : NULL, NULL};

	environment_for(spec, environment);
	(void)setpgid(0, 0);
	raise_stack_limit();
	limit_memory(spec->memory_limit);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || !place_descriptors(spec))
		_exit(70);
	reset_signals();
	(void)execve(self, argv, environment);
	_exit(71);
}

enum rc child_start(const struct child_spec *spec, pid_t *ret, struct err *err)
{
	pid_t parent = getpid();
	pid_t pid = fork();
	if (pid < 0)
		return err_set(err, RC_RETRY, "cannot fork: %s", strerror(errno));
	if (pid == 0)
		become(spec, parent);
	(void)setpgid(pid, pid); /* whoever comes first */
	*ret = pid;
	return RC_OK;
}

/* To a file, not a pipe: a child of its own that outlives it would keep a pipe open.  Of what is very long, as
 * the output of a handler may be, the beginning and the end. */
static void read_said(int fd, struct buf *ret)
{
	struct stat st;
	off_t half = MOST_SAID / 2;
	if (fd < 0 || fstat(fd, &st) != 0)
		return;
	off_t end = st.st_size > half ? st.st_size - half : half;
	ssize_t n = pread(fd, buf_reserve(ret, MOST_SAID), (size_t)half, 0);
	ret->size += n > 0 ? (size_t)n : 0;
	if (end > half)
		buf_add_str(ret, "\n[...]\n");
	n = pread(fd, buf_reserve(ret, MOST_SAID), (size_t)half, end < half ? half : end);
	ret->size += n > 0 ? (size_t)n : 0;
}

/* What runs in it may ignore signals and reset alarms: only we hold it to its time. */
static bool wait_for(pid_t pid, uint64_t until_ms, bool (*may_go_on)(void), int *ret_status)
{
	enum { LOOK_EVERY_MS = 50 };
	AUTO(fd) int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd ended = {.fd = fd, .events = POLLIN};
	for (;;) {
		pid_t found = waitpid(pid, ret_status, WNOHANG);
		if (found == pid)
			return true;
		if ((found < 0 && errno != EINTR) || clock_ms() >= until_ms || !may_go_on())
			return false;
		(void)poll(&ended, 1, LOOK_EVERY_MS);
	}
}

int child_run(const char *const argv[], unsigned timeout_s, bool (*may_go_on)(void),
	struct buf *ret_said)
{
	int status = 0;
	AUTO(fd) int said = memfd_create("inboxd-check", MFD_CLOEXEC);
	pid_t pid = fork();
	if (pid < 0)
		return -1;
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)setpgid(0, 0);
		reset_signals();
		if (said >= 0)
			(void)dup2(said, STDERR_FILENO);
		(void)execv(self, (char *const *)(uintptr_t)argv);
		_exit(71);
	}
	(void)setpgid(pid, pid);
	bool has_ended = wait_for(pid, clock_ms() + timeout_s * 1000ull, may_go_on, &status);
	(void)kill(-pid, SIGKILL); /* what it left behind, too */
	while (!has_ended && waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			break;
	read_said(said, ret_said);
	return has_ended && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

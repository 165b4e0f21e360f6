/* SPDX-License-Identifier: MIT */
/* No handler: preloaded into a daemon it puts the wall clock, and only that, off by what a file
 * says: a number of seconds, as an int64_t, in the file named by INBOXD_FAULT_CLOCK. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t offset(void)
{
	static const int64_t none;
	static volatile const int64_t *seconds;
	const char *name = getenv("INBOXD_FAULT_CLOCK");
	if (seconds == NULL) {
		int fd = name != NULL ? open(name, O_RDONLY | O_CLOEXEC) : -1;
		void *p = fd >= 0 ? mmap(NULL, sizeof *seconds, PROT_READ, MAP_SHARED, fd, 0)
				  : MAP_FAILED;
		if (fd >= 0)
			(void)close(fd);
		seconds = p != MAP_FAILED ? p : &none;
	}
	return *seconds;
}

int clock_gettime(clockid_t id, struct timespec *ret)
{
	int rc = (int)syscall(SYS_clock_gettime, id, ret);
	if (rc == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
		ret->tv_sec += offset();
	return rc;
}

time_t time(time_t *ret)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_REALTIME, &now);
	if (ret != NULL)
		*ret = now.tv_sec;
	return now.tv_sec;
}

int gettimeofday(struct timeval *ret, void *zone)
{
	struct timespec now;
	(void)zone;
	(void)clock_gettime(CLOCK_REALTIME, &now);
	ret->tv_sec = now.tv_sec;
	ret->tv_usec = now.tv_nsec / 1000;
	return 0;
}

/* SPDX-License-Identifier: MIT */
/* The shared map of counters. */
#include "base/stats.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* An older file is cleared in place: whoever has it mapped would be killed by its becoming shorter.
 */
static enum rc fill(int fd, struct stats **ret, struct err *err)
{
	/* With its room set aside: where there is none, the first use of the map would end us. */
	int failed = ftruncate(fd, sizeof(struct stats)) != 0 ? errno : 0;
	if (failed == 0)
		failed = posix_fallocate(fd, 0, sizeof(struct stats));
	if (failed != 0)
		return err_set(err, RC_FATAL, "shared counters: %s", strerror(failed));
	void *p = mmap(NULL, sizeof(struct stats), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return err_set(err, RC_FATAL, "shared counters: %s", strerror(errno));
	struct stats *s = p;
	memset(s, 0, sizeof *s);
	s->magic = STATS_MAGIC;
	s->version = STATS_VERSION;
	s->slots = STATS_SLOTS;
	s->counters = STATS_COUNT;
	*ret = s;
	return RC_OK;
}

enum rc stats_create(int *ret_fd, struct stats **ret, struct err *err)
{
	AUTO(fd) int fd = memfd_create("inboxd-stats", MFD_CLOEXEC);
	if (fd < 0)
		return err_set(err, RC_FATAL, "shared counters: %s", strerror(errno));
	if (fill(fd, ret, err) != RC_OK)
		return RC_FATAL;
	*ret_fd = TAKE_FD(fd);
	return RC_OK;
}

enum rc stats_create_in(const char *directory, int *ret_fd, struct stats **ret, struct err *err)
{
	AUTO(free) char *path = xasprintf("%s/stats", directory);
	AUTO(fd) int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0)
		return err_set(err, RC_FATAL, "cannot write %s: %s", path, strerror(errno));
	/* It goes with the last of the processes that share the descriptor. */
	if (flock(fd, LOCK_EX | LOCK_NB) != 0)
		return err_set(err, RC_FATAL, "%s belongs to an inboxd that is running", path);
	if (fill(fd, ret, err) != RC_OK)
		return RC_FATAL;
	*ret_fd = TAKE_FD(fd);
	return RC_OK;
}

enum rc stats_map(int fd, bool writable, struct stats **ret, struct err *err)
{
	int prot = writable ? PROT_READ | PROT_WRITE : PROT_READ;
	struct stat st;
	if (fstat(fd, &st) != 0)
		return err_set(err, RC_FATAL, "shared counters: %s", strerror(errno));
	/* Touching a page behind the file's end would kill. */
	if (st.st_size != (off_t)sizeof(struct stats))
		return err_set(err, RC_FATAL, "shared counters are of another version");
	void *p = mmap(NULL, sizeof(struct stats), prot, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return err_set(err, RC_FATAL, "shared counters: %s", strerror(errno));
	const struct stats *s = p;
	if (s->magic != STATS_MAGIC || s->version != STATS_VERSION || s->slots != STATS_SLOTS ||
		s->counters != STATS_COUNT) {
		(void)munmap(p, sizeof(struct stats));
		return err_set(err, RC_FATAL, "shared counters are of another version");
	}
	*ret = p;
	return RC_OK;
}

void stats_unmap(struct stats *s)
{
	if (s != NULL)
		(void)munmap(s, sizeof *s);
}

/* The slot of a place, or with STATS_FREE any free one. */
struct stats_slot *stats_slot_find(
	struct stats *s, enum stats_role role, const char *name, uint32_t index)
{
	for (size_t i = 0; i < STATS_SLOTS; i++) {
		struct stats_slot *slot = &s->slot[i];
		if (atomic_load(&slot->role) != role)
			continue;
		if (role == STATS_FREE ||
			(atomic_load(&slot->index) == index &&
				strncmp(slot->name, name, sizeof slot->name - 1) == 0))
			return slot;
	}
	return NULL;
}

struct stats_slot *stats_slot_take(
	struct stats *s, enum stats_role role, const char *name, uint32_t index)
{
	struct stats_slot *slot = stats_slot_find(s, role, name, index);
	if (slot != NULL)
		return slot;
	slot = stats_slot_find(s, STATS_FREE, NULL, 0);
	if (slot == NULL)
		return NULL;
	for (size_t c = 0; c < STATS_COUNT; c++)
		atomic_store(&slot->counter[c], 0);
	memset(slot->name, 0, sizeof slot->name);
	memcpy(slot->name, name, strnlen(name, sizeof slot->name - 1));
	atomic_store(&slot->index, index);
	atomic_store(&slot->role, role);
	return slot;
}

void stats_slot_release(struct stats_slot *slot)
{
	if (slot != NULL) {
		atomic_store(&slot->pid, 0);
		atomic_store(&slot->role, STATS_FREE);
	}
}

const char *stats_counter_name(enum stats_counter c)
{
	static const char *const names[] = {
#define X(name, help) [STATS_##name] = #name,
		STATS_COUNTERS(X)
#undef X
	};
	return names[c];
}

const char *stats_counter_help(enum stats_counter c)
{
	static const char *const texts[] = {
#define X(name, help) [STATS_##name] = (help),
		STATS_COUNTERS(X)
#undef X
	};
	return texts[c];
}

const char *stats_consumer_state_name(uint64_t state)
{
	static const char *const names[] = {
#define X(state, name) [(state)] = (name),
		STATS_CONSUMER_STATES(X)
#undef X
	};
	return state < sizeof names / sizeof names[0] ? names[state] : "?";
}

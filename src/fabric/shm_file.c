/* SPDX-License-Identifier: Apache-2.0 */
/* Making, finding and mapping the memory of fabric shm. */
#include "shm_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../core/bits.h"

enum {
	/* A signal makes fallocate start over: pieces get on all the same. */
	PIECE_BYTES = 64 << 20,
};

static const char directory[] = "/dev/shm";

/* A file of a name that nobody else has or guesses. */
static int open_file(char name[FERRY_SHM_NAME_BYTES])
{
	uint64_t random[2];

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return -1;
	snprintf(name, FERRY_SHM_NAME_BYTES,
	         "%s/ferry-%016" PRIx64 "%016" PRIx64, directory, random[0],
	         random[1]);
	const int fd = open(
		name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		name[0] = 0;
	return fd;
}

/* Bytes that the machine can still give, as /proc/meminfo has it. */
static uint64_t available_bytes(void)
{
	char text[4096];
	const int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
	const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	uint64_t kib = 0;

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return UINT64_MAX;
	text[n] = 0;
	for (int i = 0; i < 2; i++) {
		const char *key = i ? "\nSwapFree:" : "\nMemAvailable:";
		const char *p = strstr(text, key);

		if (p)
			kib += strtoull(p + strlen(key), NULL, 10);
	}
	return kib ? kib << 10 : UINT64_MAX;
}

/*
 * Refuses what could only end in a signal: SIGXFSZ past the file size limit,
 * the OOM killer past the memory of the machine.
 */
static enum ferry_status check_limits(struct ferry_ctx *ctx, size_t bytes)
{
	const uint64_t available = available_bytes();
	struct rlimit limit;

	if (!getrlimit(RLIMIT_FSIZE, &limit) &&
	    limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur)
		return ferry_fail(ctx, FERRY_NOMEM,
		                  "shm: %zu bytes, the file size limit is %llu "
		                  "(ulimit -f)",
		                  bytes, (unsigned long long)limit.rlim_cur);
	if (bytes > available)
		return ferry_fail(ctx, FERRY_NOMEM,
		                  "shm: %zu bytes, the machine has %llu left",
		                  bytes, (unsigned long long)available);
	return FERRY_OK;
}

/* Backs every page, or a store would meet SIGBUS where none is left. */
static int back(int fd, size_t bytes)
{
	for (size_t at = 0; at < bytes;) {
		const size_t piece =
			bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;

		if (!fallocate(fd, 0, (off_t)at, (off_t)piece))
			at += piece;
		else if (errno != EINTR)
			return errno;
	}
	return 0;
}

static enum ferry_status back_or_say(struct ferry_ctx *ctx, int fd, bool file,
                                     size_t bytes)
{
	FERRY_TRY(check_limits(ctx, bytes));
	const int err = back(fd, bytes);

	if (!err)
		return FERRY_OK;
	return ferry_fail_errno(ctx,
	                        err == ENOSPC || err == ENOMEM || err == EFBIG
	                                ? FERRY_NOMEM
	                                : FERRY_SYS,
	                        err, "shm: %zu bytes in %s", bytes,
	                        file ? directory : "a memfd");
}

enum ferry_status ferry_shm_make(struct ferry_ctx *ctx, size_t bytes, bool file,
                                 struct ferry_shm_handle *handle, int *fd)
{
	struct stat st;
	enum ferry_status status;

	memset(handle, 0, sizeof(*handle));
	*fd = file ? open_file(handle->name)
	           : memfd_create("ferry", MFD_CLOEXEC);
	if (*fd < 0)
		return ferry_fail_errno(ctx, FERRY_SYS, errno, "shm: new %s",
		                        file ? "file in /dev/shm" : "memfd");
	status = back_or_say(ctx, *fd, file, bytes);
	if (status != FERRY_OK)
		goto err_close;
	if (fstat(*fd, &st)) {
		status = ferry_fail_errno(ctx, FERRY_SYS, errno, "shm: fstat");
		goto err_close;
	}
	handle->bytes = bytes;
	handle->device = st.st_dev;
	handle->inode = st.st_ino;
	handle->pid = getpid();
	handle->fd = file ? -1 : *fd;
	return FERRY_OK;

err_close:
	ferry_shm_unlink(handle);
	close(*fd);
	return status;
}

void ferry_shm_unlink(const struct ferry_shm_handle *handle)
{
	if (handle->name[0])
		unlink(handle->name);
}

enum ferry_status ferry_shm_map(struct ferry_ctx *ctx, int fd, size_t bytes,
                                void **base)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return ferry_fail_errno(ctx, FERRY_NOMEM, errno,
		                        "shm: mmap of %zu bytes", bytes);
	*base = p;
	return FERRY_OK;
}

/* Is it the file that the handle means? Descriptor numbers are used again. */
static bool is_meant(int fd, const struct ferry_shm_handle *handle)
{
	struct stat st;

	return !fstat(fd, &st) && st.st_dev == handle->device &&
	       st.st_ino == handle->inode &&
	       (uint64_t)st.st_size == handle->bytes;
}

enum ferry_status ferry_shm_find(struct ferry_ctx *ctx, int32_t rank,
                                 const struct ferry_shm_handle *handle,
                                 void **base)
{
	char path[FERRY_SHM_NAME_BYTES];
	enum ferry_status status;
	int fd;

	if (handle->fd >= 0)
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle->pid,
		         handle->fd);
	else
		snprintf(path, sizeof(path), "%.*s", (int)sizeof(path) - 1,
		         handle->name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return ferry_fail_errno(
			ctx, FERRY_SYS, errno, "shm: memory of rank %d: %s%s",
			rank, path,
			handle->fd >= 0 ? " (try FERRY_SHM=file)"
					: " (do the ranks share /dev/shm?)");
	if (is_meant(fd, handle))
		status = ferry_shm_map(ctx, fd, handle->bytes, base);
	else
		status = ferry_fail(ctx, FERRY_PEER,
		                    "shm: memory of rank %d is gone: %s is "
		                    "another file",
		                    rank, path);
	close(fd);
	return status;
}

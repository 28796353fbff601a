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

#include "backing.h"

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

/* Past the limit a file does not grow, it gets the process SIGXFSZ. */
static enum ferry_status check_limits(struct ferry_ctx *ctx, size_t bytes)
{
	struct rlimit limit;

	if (!getrlimit(RLIMIT_FSIZE, &limit) &&
	    limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur)
		return ferry_fail(ctx, FERRY_NOMEM,
		                  "shm: %zu bytes, the file size limit is %llu "
		                  "(ulimit -f)",
		                  bytes, (unsigned long long)limit.rlim_cur);
	return ferry_backing_check(ctx, "shm", bytes);
}

/* Backs every page, or a store would meet SIGBUS where none is left. */
static int back(int fd, void *base, size_t bytes)
{
	const int err = ferry_backing_populate(base, bytes);

	if (err != EINVAL)
		return err;
	while (fallocate(fd, 0, 0, (off_t)bytes))
		if (errno != EINTR)
			return errno;
	return 0;
}

static enum ferry_status map(struct ferry_ctx *ctx, int fd, size_t bytes,
                             void **base)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return ferry_fail_errno(ctx, FERRY_NOMEM, errno,
		                        "shm: mmap of %zu bytes", bytes);
	*base = p;
	return FERRY_OK;
}

static enum ferry_status fill(struct ferry_ctx *ctx, int fd, bool file,
                              size_t bytes, void **base)
{
	int err;

	FERRY_TRY(check_limits(ctx, bytes));
	if (ftruncate(fd, (off_t)bytes))
		return ferry_fail_errno(ctx, FERRY_NOMEM, errno,
		                        "shm: ftruncate to %zu bytes", bytes);
	FERRY_TRY(map(ctx, fd, bytes, base));
	err = back(fd, *base, bytes);
	if (!err)
		return FERRY_OK;
	munmap(*base, bytes);
	*base = NULL;
	return ferry_fail_errno(ctx, FERRY_NOMEM, err, "shm: %zu bytes in %s",
	                        bytes, file ? directory : "a memfd");
}

static enum ferry_status describe(struct ferry_ctx *ctx, int fd, bool file,
                                  struct ferry_shm_handle *handle)
{
	struct stat st;

	if (fstat(fd, &st))
		return ferry_fail_errno(ctx, FERRY_SYS, errno, "shm: fstat");
	handle->bytes = (uint64_t)st.st_size;
	handle->device = st.st_dev;
	handle->inode = st.st_ino;
	handle->pid = getpid();
	handle->fd = file ? -1 : fd;
	return FERRY_OK;
}

enum ferry_status ferry_shm_make(struct ferry_ctx *ctx, size_t bytes, bool file,
                                 struct ferry_shm_handle *handle, int *fd,
                                 void **base)
{
	enum ferry_status status;

	memset(handle, 0, sizeof(*handle));
	*fd = file ? open_file(handle->name)
	           : memfd_create("ferry", MFD_CLOEXEC);
	if (*fd < 0)
		return ferry_fail_errno(ctx, FERRY_SYS, errno, "shm: new %s",
		                        file ? "file in /dev/shm" : "memfd");
	status = fill(ctx, *fd, file, bytes, base);
	if (status == FERRY_OK)
		status = describe(ctx, *fd, file, handle);
	if (status == FERRY_OK)
		return FERRY_OK;
	if (*base)
		munmap(*base, bytes);
	*base = NULL;
	ferry_shm_unlink(handle);
	close(*fd);
	*fd = -1;
	return status;
}

void ferry_shm_unlink(const struct ferry_shm_handle *handle)
{
	if (handle->name[0])
		unlink(handle->name);
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
			handle->fd >= 0
				? " (try FERRY_SHM=file)"
				: " (do the ranks share /dev/shm? FERRY_HOST "
				  "can make hosts of them)");
	if (is_meant(fd, handle))
		status = map(ctx, fd, handle->bytes, base);
	else
		status = ferry_fail(ctx, FERRY_PEER,
		                    "shm: memory of rank %d is gone: %s is "
		                    "another file",
		                    rank, path);
	close(fd);
	return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that cannot be had is an error with sizes in it, never a signal: a
 * full /dev/shm, a limit of the file size, more than the machine has. The
 * world and its peers go on, and nothing is left.
 */
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <ferry/fabric.h>

#include "fabric/shm_file.h"
#include "ranks.h"

enum { SKIP = 77 };

static int count_files(void)
{
	DIR *dir = opendir("/dev/shm");
	int n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n - 2; /* "." and ".." */
}

/* A segment fits, one too large does not, and then one fits again. */
static void full(struct rank *rank)
{
	struct ferry_segment *s = NULL;

	for (int i = 0; i < 3; i++) {
		RANKS_OK(ferry_segment_open(rank->world, 100000, 1, &s));
		ferry_segment_close(s);
		RANKS_STATUS(ferry_segment_open(rank->world, 3 << 20, 1, &s),
		             FERRY_NOMEM);
		RANKS_TEXT(ferry_last_error(), "bytes in /dev/shm: No space");
	}
	RANKS_OK(ferry_world_barrier(rank->world));
	RANKS_EQ(count_files(), 0);
}

static void test_full_dev_shm(void **state)
{
	const struct ranks how = {
		.n_ranks = 2,
		.kind = RANKS_PROCESSES,
		.fabric = "shm",
		.options = "SHM=file",
	};

	(void)state;
	ranks_run(&how, full);
}

/* More than there is: refused in advance, nobody is killed for it. */
static void too_much(struct rank *rank)
{
	struct ferry_segment *s = NULL;

	RANKS_STATUS(ferry_segment_open(rank->world, (size_t)1 << 45, 1, &s),
	             FERRY_NOMEM);
	RANKS_TEXT(ferry_last_error(), "the machine has");
	RANKS_OK(ferry_segment_open(rank->world, 100, 1, &s));
	ferry_segment_close(s);
}

static void test_too_much(void **state)
{
	const struct ranks how = {
		.n_ranks = 2,
		.kind = RANKS_PROCESSES,
		.fabric = "shm",
		.options = "SHM=memfd",
	};

	(void)state;
	ranks_run(&how, too_much);
}

/* Past the limit a write would mean SIGXFSZ. */
static void limited(struct rank *rank)
{
	const struct rlimit limit = {1 << 20, 1 << 20};
	struct ferry_segment *s = NULL;

	RANKS_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
	RANKS_STATUS(ferry_segment_open(rank->world, 2 << 20, 1, &s),
	             FERRY_NOMEM);
	RANKS_TEXT(ferry_last_error(), "the file size limit is 1048576");
	RANKS_OK(ferry_segment_open(rank->world, 100, 1, &s));
	ferry_segment_close(s);
}

static void test_file_size_limit(void **state)
{
	const struct ranks how = {
		.n_ranks = 2,
		.kind = RANKS_PROCESSES,
		.fabric = "shm",
	};

	(void)state;
	ranks_run(&how, limited);
}

/* A name is the owner's alone and of no use to others. */
static void test_file_mode(void **state)
{
	struct ferry_shm_handle handle;
	struct ferry_shm_handle again;
	struct stat st;
	void *base = NULL;
	void *own = NULL;
	int fd = -1;

	(void)state;
	assert_int_equal(ferry_shm_make(NULL, 4096, true, &handle, &fd, &own),
	                 FERRY_OK);
	assert_int_equal(stat(handle.name, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(st.st_size, 4096);
	/* Another file of that name is not taken for it. */
	again = handle;
	again.inode++;
	assert_int_equal(ferry_shm_find(NULL, 3, &again, &base), FERRY_PEER);
	assert_non_null(strstr(ferry_last_error(), "rank 3"));
	ferry_shm_unlink(&handle);
	ferry_shm_unlink(&handle);
	assert_int_equal(stat(handle.name, &st), -1);
	assert_int_equal(ferry_shm_find(NULL, 3, &handle, &base), FERRY_SYS);
	assert_null(base);
	munmap(own, 4096);
	close(fd);
}

/* A /dev/shm of our own with 2 MiB; false where that is not allowed. */
static bool small_dev_shm(void)
{
	if (unshare(CLONE_NEWNS) && unshare(CLONE_NEWUSER | CLONE_NEWNS))
		return false;
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return false;
	return !mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=2m");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_full_dev_shm),
		cmocka_unit_test(test_too_much),
		cmocka_unit_test(test_file_size_limit),
		cmocka_unit_test(test_file_mode),
	};

	if (!small_dev_shm()) {
		printf("skipped: no mount namespace of our own: %s\n",
		       strerror(errno));
		return SKIP;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}

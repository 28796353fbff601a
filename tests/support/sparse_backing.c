/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the place of fabric/backing.c; see sparse_backing.h. */
#include "sparse_backing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "fabric/backing.h"

enum ferry_status ferry_backing_check(struct ferry_ctx *ctx, const char *who,
                                      size_t bytes)
{
	(void)ctx;
	(void)who;
	(void)bytes;
	return FERRY_OK;
}

int ferry_backing_populate(void *base, size_t bytes)
{
	(void)base;
	(void)bytes;
	return 0;
}

static _Noreturn void skip(const char *what, size_t bytes, const char *why)
{
	printf("skipped: no %s of %zu bytes: %s\n", what, bytes, why);
	exit(77);
}

void sparse_backing_need(size_t bytes)
{
	struct rlimit limit;
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		skip("mapping", bytes, strerror(errno));
	munmap(p, bytes);
	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < bytes)
		skip("file", bytes, "ulimit -f");
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for tools, which cannot go on without it. */
#include "alloc.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "opt.h"

static void *check(void *memory, size_t bytes)
{
	if (memory)
		return memory;
	fprintf(stderr, "ferry: no memory for %zu bytes\n", bytes);
	exit(EXIT_FAILED);
}

enum { HUGE_PAGE_BYTES = 2 << 20 };

static bool use_huge_pages;

void alloc_use_huge_pages(bool use)
{
	use_huge_pages = use;
}

void *alloc_or_exit(size_t n, size_t size)
{
	const size_t page = HUGE_PAGE_BYTES;

	if (n < page / size || n > SIZE_MAX / 2 / size)
		return check(calloc(n ? n : 1, size), n * size);
	const size_t bytes = (n * size + page - 1) / page * page;
	void *const memory = check(aligned_alloc(page, bytes), bytes);

	if (use_huge_pages)
		madvise(memory, bytes, MADV_HUGEPAGE); /* a hint */
	return memset(memory, 0, bytes);
}

void *alloc_shared(size_t bytes)
{
	void *memory = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
	                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return check(memory == MAP_FAILED ? NULL : memory, bytes);
}

void alloc_shared_free(void *memory, size_t bytes)
{
	if (memory)
		munmap(memory, bytes ? bytes : 1);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for tools, which cannot go on without it. */
#include "alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "opt.h"

static void *check(void *memory, size_t bytes)
{
	if (memory)
		return memory;
	fprintf(stderr, "ferry: no memory for %zu bytes\n", bytes);
	exit(EXIT_FAILED);
}

void *alloc_or_exit(size_t n, size_t size)
{
	return check(calloc(n ? n : 1, size), n * size);
}

void *alloc_shared(size_t bytes)
{
	void *memory = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
	                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return check(memory == MAP_FAILED ? NULL : memory, bytes);
}

void alloc_shared_free(void *memory, size_t bytes)
{
	munmap(memory, bytes ? bytes : 1);
}

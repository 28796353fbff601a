/* SPDX-License-Identifier: Apache-2.0 */
/* Backing of memory before its use. */
#include "backing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../core/text.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/* Bytes that the machine can still give, as /proc/meminfo has it. */
static uint64_t available_bytes(void)
{
	char text[4096];
	uint64_t kib = 0;

	if (!ferry_text_read("/proc/meminfo", text, sizeof(text)))
		return UINT64_MAX;
	for (int i = 0; i < 2; i++) {
		const char *key = i ? "\nSwapFree:" : "\nMemAvailable:";
		const char *p = strstr(text, key);

		if (p)
			kib += strtoull(p + strlen(key), NULL, 10);
	}
	return kib ? kib << 10 : UINT64_MAX;
}

enum ferry_status ferry_backing_check(struct ferry_ctx *ctx, const char *who,
                                      size_t bytes)
{
	const uint64_t available = available_bytes();

	if (bytes <= available)
		return FERRY_OK;
	return ferry_fail(ctx, FERRY_NOMEM,
	                  "%s: %zu bytes, the machine has %llu left", who,
	                  bytes, (unsigned long long)available);
}

/* Faults pages in as a store would, but answers instead of SIGBUS. */
int ferry_backing_populate(void *base, size_t bytes)
{
	madvise(base, bytes, MADV_HUGEPAGE); /* a hint: may well fail */
	while (madvise(base, bytes, MADV_POPULATE_WRITE))
		if (errno != EINTR)
			return errno == EFAULT ? ENOSPC : errno;
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* How fast this machine copies memory: the yardstick of floor_us. */
#ifndef FERRY_BENCH_COPY_H
#define FERRY_BENCH_COPY_H

#include <stddef.h>

#include "crew.h"

enum bench_copy_way {
	BENCH_COPY_MEMCPY, /* as the C library does it */
	BENCH_COPY_STREAM, /* 16-byte stores that bypass the caches */
	BENCH_COPY_KERNEL, /* as the CPU engine does it, bypassing too */
	BENCH_COPY_WAYS,
};

extern const char *const bench_copy_names[BENCH_COPY_WAYS];

/* All ranks together, bytes read plus bytes written in a second. */
struct bench_copy {
	double bytes_per_s[BENCH_COPY_WAYS];
	double best;
	size_t block_bytes; /* of each rank's source, and of its destination */
};

/*
 * All ranks copy at once, each its own block of so many MiB to another of its
 * own; the best of several passes. 0: large enough for the caches not to count.
 * False after a complaint.
 */
bool bench_copy_run(const struct crew *crew, int64_t mib,
                    struct bench_copy *copy);

/* Median of each way over several runs, and the best of these. */
struct bench_copy bench_copy_merge(const struct bench_copy *runs, int n);

#endif

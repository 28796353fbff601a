/* SPDX-License-Identifier: Apache-2.0 */
/* Where this rank lives, and what follows from where all ranks live. */
#ifndef FERRY_PLACE_H
#define FERRY_PLACE_H

#include <string.h>

#include "world.h"

void ferry_place_read(struct ferry_place *place);

/* Hosts among n places. */
int32_t ferry_place_hosts(const struct ferry_place *places, int32_t n);

/* Ranks on the host of rank `rank`. */
int32_t ferry_place_host_ranks(const struct ferry_place *places, int32_t n,
                               int32_t rank);

/* Ranks on the GPU of rank `rank`; 0: it has none. */
int32_t ferry_place_gpu_ranks(const struct ferry_place *places, int32_t n,
                              int32_t rank);

/*
 * CPUs that the ranks on the host of rank `rank` may use together, at least 1:
 * equal sets count once, for launchers bind each rank to a set of its own.
 */
int32_t ferry_place_host_cores(const struct ferry_place *places, int32_t n,
                               int32_t rank);

static inline bool ferry_place_same_process(const struct ferry_place *a,
                                            const struct ferry_place *b)
{
	return a->host_id == b->host_id && a->process_id == b->process_id;
}

static inline bool ferry_place_same_gpu(const struct ferry_place *a,
                                        const struct ferry_place *b)
{
	return a->host_id == b->host_id &&
	       !memcmp(a->gpu, b->gpu, sizeof(a->gpu));
}

#endif

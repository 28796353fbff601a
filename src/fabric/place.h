/* SPDX-License-Identifier: Apache-2.0 */
/* Where this rank lives, and what follows from where all ranks live. */
#ifndef FERRY_PLACE_H
#define FERRY_PLACE_H

#include "world.h"

void ferry_place_read(struct ferry_place *place);

/* Hosts among n places. */
int32_t ferry_place_hosts(const struct ferry_place *places, int32_t n);

/* Ranks on the host of rank `rank`. */
int32_t ferry_place_host_ranks(const struct ferry_place *places, int32_t n,
                               int32_t rank);

/* Cores that the threads of this rank may use at once, at least 1. */
int32_t ferry_place_cores(void);

static inline bool ferry_place_same_process(const struct ferry_place *a,
                                            const struct ferry_place *b)
{
	return a->host_id == b->host_id && a->process_id == b->process_id;
}

#endif

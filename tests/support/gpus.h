/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs that the ranks of a test share, found without touching them. */
#ifndef GPUS_H
#define GPUS_H

#include <stdint.h>

enum { GPUS_MAX = 16, GPUS_REASON = 160 };

/*
 * How many there are; `reason` says why none, else versions. A child process
 * asks: who has initialised CUDA must not fork ranks. Call it while the
 * program has one thread.
 */
int32_t gpus_count(char reason[GPUS_REASON]);

/* CUDA ordinal of a rank's GPU: they are dealt out in turn. */
static inline int32_t gpus_of_rank(int32_t rank, int32_t n_gpus)
{
	return n_gpus > 0 ? rank % n_gpus : 0;
}

#endif

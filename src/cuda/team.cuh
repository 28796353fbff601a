/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A team: the first or last warps of a block that do something together while
 * the others are busy elsewhere.
 */
#ifndef FERRY_TEAM_CUH
#define FERRY_TEAM_CUH

#include <stdint.h>

/* Of the hardware barriers; 0 is that of the block. */
enum { TEAM_BARRIER = 1 };

struct team {
	int32_t warp, n_warps; /* place of this warp in it */
	int32_t lane;
};

static __device__ __forceinline__ int32_t team_threads(const struct team *t)
{
	return t->n_warps * 32;
}

static __device__ __forceinline__ int32_t team_thread(const struct team *t)
{
	return t->warp * 32 + t->lane;
}

static __device__ __forceinline__ void team_sync(const struct team *t)
{
	__barrier_sync_count(TEAM_BARRIER, (unsigned)team_threads(t));
}

#endif

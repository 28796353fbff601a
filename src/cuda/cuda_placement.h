/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placements in device memory. A channel keeps those that its dispatches named
 * last, found by hash. A new one is copied when it is first named, in or out
 * of a capture: that call takes some tens of us longer. One that a capture has
 * named stays until the channel closes, since graphs hold its address; the
 * others are dropped when there is no more room, half of them at once and
 * those first that were not named for longest, after the slots' kernels are
 * over that may still read them.
 */
#ifndef FERRY_CUDA_PLACEMENT_CACHE_H
#define FERRY_CUDA_PLACEMENT_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include <ferry/placement.h>

#include "../proto/window.h"
#include "cuda_args.h"

struct ferry_engine;

struct cuda_placement {
	uint64_t hash;  /* 0: free */
	uint64_t named; /* when, in dispatches of the channel */
	bool captured;  /* a graph may hold its address */
};

struct cuda_placements {
	struct cuda_placement *entries; /* [n] */
	int32_t n;
	int32_t last; /* found last */
	uint64_t n_named;
	size_t stride;              /* of one on the device */
	unsigned char *device;      /* [n] */
	int32_t *staging;           /* one, as on the device */
	struct CUstream_st *stream; /* of copies */
	struct ferry_cuda_placement identity;
};

/* How many a channel keeps, and the device memory of them. */
int32_t ferry_cuda_placements_kept(const struct ferry_shape *shape);
size_t ferry_cuda_placements_bytes(const struct ferry_shape *shape);

/* On the current device; a CUDA error. destroy accepts what init left. */
int ferry_cuda_placements_init(struct cuda_placements *p,
                               const struct ferry_shape *shape,
                               uint64_t identity_hash,
                               struct CUstream_st *stream);
void ferry_cuda_placements_destroy(struct cuda_placements *p);

/*
 * The placement as kernels read it; NULL: expert e in slot e. capturing: a
 * graph will hold it. On the channel's device. A CUDA error, 0: none; out of
 * memory where graphs hold all that the channel keeps.
 */
int ferry_cuda_placement_get(struct ferry_engine *e,
                             const struct ferry_placement *placement,
                             bool capturing,
                             struct ferry_cuda_placement *found);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of combine_chunks.cu share: crews of warps, their shares of a
 * chunk, flags.
 */
#ifndef FERRY_COMBINE_CHUNKS_CUH
#define FERRY_COMBINE_CHUNKS_CUH

#include "combine_begin.cuh"
#include "combine_part.cuh"
#include "combine_terms.cuh"
#include "net_port.cuh"

enum {
	N_WARPS = 16,
	THREADS = N_WARPS * 32,
	STEP_BYTES = 32 * BLOCK_BYTES, /* of a row, by a warp at once */
	/* Steps of a warp at once; as many loads in flight as fit 128 registers
	 * without spilling, not tuned further (2026-11-30). */
	SUMS = 2,
	COPIES = 4, /* of rows that are summed already */
	STAGES = 6, /* of the ring of copies */
	AHEAD = 3,  /* copies on their way in */
	STAGE_BYTES = 16384,
	QUEUE = 8, /* chunks that wait for their flag */
};

/*
 * Steps, and rows of a token, at once. A form for whatever there is has long
 * loads, and would spill.
 */
template <int HOW> static __host__ __device__ constexpr int sums_at_once(void)
{
	return HOW == HOW_ANY ? 1 : SUMS;
}

template <int HOW> static __host__ __device__ constexpr int copies_at_once(void)
{
	return HOW == HOW_ANY ? 1 : COPIES;
}

template <int HOW> static __host__ __device__ constexpr int rows_at_once(void)
{
	return HOW == HOW_ANY ? 2 : IN_FLIGHT;
}

struct crew {
	int32_t warp, n_warps;
};

static __device__ __forceinline__ int32_t n_chunks_of(const struct combine *c,
                                                      int32_t group)
{
	const int32_t chunk = c->a->ch.back_chunk;

	return (c->shared->n_tokens[group] + chunk - 1) / chunk;
}

/* After what this thread knows to be written. */
static __device__ __forceinline__ void raise_flags(const struct combine *c,
                                                   int32_t group, int32_t chunk)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const int32_t first = group * ch->group_size;

#pragma unroll 1
	for (int32_t r = first; r < first + ch->group_size; r++)
		if (r != ch->rank && !net_is_far(ch, r))
			store_release_sys(back_flag_at(ch, r, c->a->slot,
			                               ch->rank, chunk),
			                  c->epoch);
}

/* What a warp does of a chunk: a token, and every n-th step of its rows. */
struct share {
	int32_t token, end, token_step;
	int32_t first, step; /* bytes of a row */
};

static __device__ __forceinline__ struct share share_of(const struct combine *c,
                                                        const struct crew *crew,
                                                        int32_t group,
                                                        int32_t chunk)
{
	const int32_t n = c->a->ch.back_chunk;
	const int32_t per_token = max(1, crew->n_warps / n);
	const int32_t part = crew->warp % per_token;
	struct share s;

	s.token = chunk * n + crew->warp / per_token;
	s.end = min((chunk + 1) * n, c->shared->n_tokens[group]);
	s.token_step = crew->n_warps / per_token;
	s.first = part * STEP_BYTES + c->lane * BLOCK_BYTES;
	s.step = per_token * STEP_BYTES;
	/* Warps that are left over have nothing. */
	if (crew->warp >= s.token_step * per_token)
		s.token = s.end;
	return s;
}

#endif

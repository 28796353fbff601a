/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of a sum over rows of y, as combine by chunks forms it: of an own
 * token, and of the part that this rank sends of another's.
 */
#ifndef FERRY_COMBINE_PART_CUH
#define FERRY_COMBINE_PART_CUH

#include "combine_terms.cuh"

/*
 * Adds rows of y to BATCH blocks of this lane, `step` bytes apart; N rows at a
 * time are in flight.
 */
template <int DTYPE, int HOW, int BATCH, int N>
static __device__ __forceinline__ void
add_rows(const struct combine *c, const struct terms *t, int32_t at,
         int32_t step, float acc[BATCH][BLOCK_MOST])
{
#pragma unroll 1
	for (uint32_t left = t->all; left;) {
		int32_t from[N];
		uint4 v[N][BATCH];

#pragma unroll
		for (int i = 0; i < N; i++) {
			from[i] = next_lane(&left);
			if (from[i] < 0)
				continue;
			const unsigned char *row = row_of_lane(t, from[i]) + at;

#pragma unroll
			for (int j = 0; j < BATCH; j++)
				v[i][j] = load_block<DTYPE, HOW != HOW_ANY>(
					row + j * step,
					block_bytes(c, at + j * step));
		}
#pragma unroll
		for (int i = 0; i < N; i++) {
			if (from[i] < 0)
				continue;
			const float weight =
				__shfl_sync(ALL_LANES, t->weight, from[i]);

#pragma unroll
			for (int j = 0; j < BATCH; j++)
				add_block<DTYPE>(acc[j], v[i][j], weight);
		}
	}
}

/*
 * BATCH blocks of the part of a REDUCED sum that this rank forms, of the
 * choices of a token that are served here; x is choice `lane`. Without any the
 * part means nothing. False: the channel has ended.
 */
template <int DTYPE, int HOW, int BATCH, int N>
static __device__ __forceinline__ bool
part_blocks(const struct combine *c, struct choice x, int32_t group,
            int32_t token, int32_t at, int32_t step, uint4 part[BATCH])
{
	float acc[BATCH][BLOCK_MOST] = {{0}};

	if (is_presummed<HOW>(c)) {
		const unsigned char *row = presummed_row(c, group, token) + at;

		if (!is_here<HOW>(c, &x, group, token))
			return true;
		if (!c->a->in.y) {
			fail_row(c->a, c->epoch, token, -1, 0);
			return false;
		}
#pragma unroll
		for (int j = 0; j < BATCH; j++)
			part[j] = load_block<DTYPE, HOW != HOW_ANY>(
				row + j * step, block_bytes(c, at + j * step));
		return true;
	}
#pragma unroll 1
	for (int32_t base = 0; base < (HOW == HOW_ANY ? c->a->topk : 1);
	     base += 32) {
		struct terms t;

		if (base)
			x = load_choice(c, group, token, base);
		if (!here_terms(c, &x, token, base, &t))
			return false;
		add_rows<DTYPE, HOW, BATCH, N>(c, &t, at, step, acc);
	}
#pragma unroll
	for (int j = 0; j < BATCH; j++)
		part[j] = round_block<DTYPE>(acc[j]);
	return true;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantising by one warp, which has nobody beside it to fill the time: seven
 * loads of a lane fly together, 14 blocks of 128 elements, where quantize_part
 * has two.
 */
#ifndef CUDA_RUNG_AHEAD_CUH
#define CUDA_RUNG_AHEAD_CUH

#include "cuda/rows.cuh"

enum { AHEAD_LOADS = 7 };

/* As quantize_part, to the bit. */
static __device__ __noinline__ void
quantize_ahead(unsigned char *part, uint32_t hidden, uint32_t scale_offset,
               const unsigned char *x, bool ue8m0, uint2 range, uint32_t thread,
               uint32_t n)
{
	const struct quant_part q = {part,    hidden,  scale_offset,
	                             range.x, range.y, ue8m0};
	const uint32_t all = (hidden + ROW_QUANT_BLOCK - 1) & ~127u;

#pragma unroll 1
	for (uint32_t at = thread * 8; at - thread % 32 * 8 < all;
	     at += AHEAD_LOADS * n * 8) {
		uint4 v[AHEAD_LOADS];

#pragma unroll
		for (uint32_t i = 0; i < AHEAD_LOADS; i++) {
			const uint32_t from = at + i * n * 8;

			v[i] = load_bf16_8(x + (size_t)from * 2,
			                   (int32_t)hidden - (int32_t)from);
		}
#pragma unroll
		for (uint32_t i = 0; i < AHEAD_LOADS; i++)
			quantize_8(&q, at + i * n * 8, v[i]);
	}
}

#endif

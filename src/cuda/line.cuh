/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines: 120 bytes of data and the epoch in 128 bytes. Eight lanes of a warp
 * (lane % 8 = 0..7, converged) write or read one: lane i bytes 16 * i on; the
 * upper half of lane 7's is the epoch. No fence: who sees the epoch sees the
 * data, as the 128 bytes travel as one packet. Only between GPUs over NVLink
 * and on one GPU, and only into memory that is never written in another form.
 */
#ifndef FERRY_LINE_CUH
#define FERRY_LINE_CUH

#include "order.cuh"

enum { LINE_BYTES = 128, LINE_DATA = 120, LINE_LANES = 8 };

/* This lane's 16 bytes of a line; lane 7 gives only `a`. */
static __device__ __forceinline__ void line_store(unsigned char *line,
                                                  uint32_t lane, uint64_t a,
                                                  uint64_t b, uint64_t epoch)
{
	store_volatile_16(line + lane * 16, a, lane == 7 ? epoch : b);
}

/*
 * Loads this lane's share. True on all eight lanes when the line is of this
 * epoch; `mask` holds the lanes of the warp that take part.
 */
static __device__ __forceinline__ bool line_load(const unsigned char *line,
                                                 uint32_t lane, uint64_t epoch,
                                                 uint32_t mask, uint64_t *a,
                                                 uint64_t *b)
{
	load_volatile_16(line + lane * 16, a, b);
	const uint64_t flag = __shfl_sync(mask, *b, 7, LINE_LANES);

	return flag == epoch;
}

/*
 * Of each team of a whole warp: does its last lane hold the epoch? b: the
 * upper half of what line_store's counterpart has loaded, lane: 0..31.
 */
static __device__ __forceinline__ bool line_flagged(uint32_t lane,
                                                    uint64_t epoch, uint64_t b)
{
	const uint32_t lanes = __ballot_sync(0xffffffffu, b == epoch);

	return lanes >> (lane | 7) & 1;
}

#endif

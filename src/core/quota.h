/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How FERRY_SPLIT_QUOTA chooses a replica: a point of a sequence that fills
 * an interval evenly, and the part of the interval that it falls into. Plain
 * arithmetic, without state or division, for the CPU and for kernels.
 */
#ifndef FERRY_QUOTA_H
#define FERRY_QUOTA_H

#include <stdint.h>

#ifdef __CUDACC__
#define QUOTA_CALL static __host__ __device__ __forceinline__
#else
#define QUOTA_CALL static inline
#endif

/*
 * Points are 31 bits, so that "beyond the last one" is a number, too: parts
 * of a replica with quota 0 are empty.
 */
#define QUOTA_POINTS ((uint32_t)1 << 31)

/*
 * Multiples of the golden ratio: any run of turns, and any run of every n-th
 * turn, is spread over the interval about as evenly as can be (Weyl's
 * sequence), so that shares are kept also by few tokens.
 */
QUOTA_CALL uint32_t quota_point(uint32_t turn)
{
	return turn * 0x9e3779b9u >> 1;
}

/*
 * Number of the replica that serves a turn, the last that starts at its point
 * or before; start[n] is the first point of each, rising, start[0] is 0. Halves
 * what is left: few steps also for an expert that every rank has.
 */
QUOTA_CALL int32_t quota_choose(const uint32_t *start, int32_t n, uint32_t turn)
{
	const uint32_t point = quota_point(turn);
	int32_t i = 0;

	while (n > 1) {
		const int32_t half = n / 2;

		i += start[i + half] <= point ? half : 0;
		n -= half;
	}
	return i;
}

/*
 * The starts of an expert's n replicas, in slots[n], from the quotas of the
 * slots, >= 0; alike where all are 0.
 */
void ferry_quota_starts(const int64_t *quota, const int32_t *slots, int32_t n,
                        uint32_t *start);

#endif

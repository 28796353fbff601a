/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables in shared memory as 16-bit expert slots: what dispatch on lines, and
 * its lean twin, count among them.
 */
#ifndef FERRY_ENTRIES_CUH
#define FERRY_ENTRIES_CUH

#include "number.cuh"

/*
 * How often `slot` stands among the first n entries of a group, this lane's
 * share. As fp16, slots are small numbers and 0xffff, which stands for none, is
 * a NaN; counts of a lane stay below 2^11, and so exact. OPEN: loads in flight
 * together.
 */
template <int OPEN>
static __device__ __forceinline__ uint32_t
count_equal(const uint16_t *entries, uint32_t n, uint32_t slot, uint32_t lane)
{
	const uint32_t both = slot | slot << 16;
	uint32_t a = 0, b = 0;

#pragma unroll OPEN
	for (uint32_t i = lane; i < n / 8; i += 32) {
		const uint4 v = ((const uint4 *)entries)[i];

		a = fp16_add(a, fp16_equal(v.x, both));
		b = fp16_add(b, fp16_equal(v.y, both));
		a = fp16_add(a, fp16_equal(v.z, both));
		b = fp16_add(b, fp16_equal(v.w, both));
	}
	const uint32_t at = (n & ~7u) + lane;
	const uint32_t last = at < n && entries[at] == slot;

	a = fp16_add(a, b);
	return last + (uint32_t)(f32_of_fp16((uint16_t)a) +
	                         f32_of_fp16((uint16_t)(a >> 16)));
}

/* The same, where loads in flight matter more than how many there are. */
static __device__ __forceinline__ uint32_t count_equal_flat(
	const uint16_t *entries, uint32_t n, uint32_t slot, uint32_t lane)
{
	const uint32_t both = slot | slot << 16, at = (n & ~7u) + lane;
	const uint32_t last = at < n && entries[at] == slot;
	uint32_t a = 0, b = 0;

#pragma unroll 1
	for (uint32_t first = 0; first < n / 8; first += 128) {
		uint4 v[4];

#pragma unroll
		for (uint32_t j = 0; j < 4; j++) {
			const uint32_t i = first + j * 32 + lane;

			v[j] = make_uint4(~0u, ~0u, ~0u, ~0u);
			if (i < n / 8)
				v[j] = ((const uint4 *)entries)[i];
		}
#pragma unroll
		for (uint32_t j = 0; j < 4; j++) {
			a = fp16_add(a, fp16_equal(v[j].x, both));
			b = fp16_add(b, fp16_equal(v[j].y, both));
			a = fp16_add(a, fp16_equal(v[j].z, both));
			b = fp16_add(b, fp16_equal(v[j].w, both));
		}
	}
	a = fp16_add(a, b);
	return last + (uint32_t)(f32_of_fp16((uint16_t)a) +
	                         f32_of_fp16((uint16_t)(a >> 16)));
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device code's words that need no PTX, as C++ on fibres: qualifiers, vector
 * types, votes, shuffles, atomics. As far as kernels of src/cuda
 * say them; __shared__ is left to fibre_source.cmake.
 */
#ifndef FIBRE_DEVICE_H
#define FIBRE_DEVICE_H

#include <limits.h>
#include <math.h>

#include "core/number.h"
#include "fibres.h"

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __grid_constant__
#define __launch_bounds__(...)

struct dim3 {
	unsigned x;

	explicit dim3(unsigned n = 1) : x(n)
	{
	}
};

struct alignas(16) uint4 {
	uint32_t x, y, z, w;
};

struct alignas(16) int4 {
	int32_t x, y, z, w;
};

struct alignas(8) uint2 {
	uint32_t x, y;
};

struct alignas(16) ulonglong2 {
	uint64_t x, y;
};

static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
	return {x, y, z, w};
}

static inline uint2 make_uint2(uint32_t x, uint32_t y)
{
	return {x, y};
}

static inline ulonglong2 make_ulonglong2(uint64_t x, uint64_t y)
{
	return {x, y};
}

template <class T, class U> auto min(T a, U b)
{
	return a < b ? a : b;
}

template <class T, class U> auto max(T a, U b)
{
	return a < b ? b : a;
}

/* A value of up to 8 bytes among lanes. */
template <class T> const uint64_t *fibre_give(uint32_t mask, T v)
{
	uint64_t u = 0;

	memcpy(&u, &v, sizeof(v));
	return fibre_meet(mask, u);
}

template <class T> T fibre_take(const uint64_t *u, uint32_t lane)
{
	T v;

	memcpy(&v, &u[lane], sizeof(v));
	return v;
}

template <class T> T __shfl_sync(uint32_t mask, T v, int from, int width = 32)
{
	const uint64_t *all = fibre_give(mask, v);
	const uint32_t within = (uint32_t)width - 1;

	return fibre_take<T>(all, (fibre_lane() & ~within) |
	                                  ((uint32_t)from & within));
}

template <class T> T __shfl_up_sync(uint32_t mask, T v, uint32_t by)
{
	const uint64_t *all = fibre_give(mask, v);
	const uint32_t lane = fibre_lane();

	return fibre_take<T>(all, lane >= by ? lane - by : lane);
}

template <class T> T __shfl_down_sync(uint32_t mask, T v, uint32_t by)
{
	const uint64_t *all = fibre_give(mask, v);
	const uint32_t lane = fibre_lane();

	return fibre_take<T>(all, lane + by < 32 ? lane + by : lane);
}

template <class T> T __shfl_xor_sync(uint32_t mask, T v, int with)
{
	const uint64_t *all = fibre_give(mask, v);

	return fibre_take<T>(all, fibre_lane() ^ (uint32_t)with);
}

static inline uint32_t __ballot_sync(uint32_t mask, bool v)
{
	const uint64_t *all = fibre_meet(mask, v);
	uint32_t result = 0;

	for (int lane = 0; lane < 32; lane++)
		if (mask >> lane & 1)
			result |= (uint32_t)all[lane] << lane;
	return result;
}

static inline bool __any_sync(uint32_t mask, bool v)
{
	return __ballot_sync(mask, v) != 0;
}

static inline bool __all_sync(uint32_t mask, bool v)
{
	return __ballot_sync(mask, v) == mask;
}

static inline void __syncwarp(uint32_t mask = 0xffffffffu)
{
	fibre_meet(mask, 0);
}

/* The lanes that gave the same. */
static inline uint32_t __match_any_sync(uint32_t mask, uint64_t v)
{
	const uint64_t *all = fibre_meet(mask, v);
	uint32_t result = 0;

	for (int lane = 0; lane < 32; lane++)
		if (mask >> lane & 1 && all[lane] == v)
			result |= 1u << lane;
	return result;
}

static inline uint32_t __reduce_add_sync(uint32_t mask, uint32_t v)
{
	const uint64_t *all = fibre_meet(mask, v);
	uint32_t result = 0;

	for (int lane = 0; lane < 32; lane++)
		if (mask >> lane & 1)
			result += (uint32_t)all[lane];
	return result;
}

static inline uint32_t __reduce_or_sync(uint32_t mask, uint32_t v)
{
	const uint64_t *all = fibre_meet(mask, v);
	uint32_t result = 0;

	for (int lane = 0; lane < 32; lane++)
		if (mask >> lane & 1)
			result |= (uint32_t)all[lane];
	return result;
}

static inline uint32_t __reduce_min_sync(uint32_t mask, uint32_t v)
{
	const uint64_t *all = fibre_meet(mask, v);
	uint32_t result = UINT32_MAX;

	for (int lane = 0; lane < 32; lane++)
		if (mask >> lane & 1 && (uint32_t)all[lane] < result)
			result = (uint32_t)all[lane];
	return result;
}

static inline void __syncthreads(void)
{
	fibre_barrier(0, 0, false);
}

static inline bool __syncthreads_or(bool v)
{
	return fibre_barrier(0, 0, v);
}

static inline void __barrier_sync_count(int barrier, unsigned n)
{
	fibre_barrier(barrier, n, false);
}

static inline int __ffs(int v)
{
	return __builtin_ffs(v);
}

static inline int __popc(uint32_t v)
{
	return __builtin_popcount(v);
}

static inline float __uint_as_float(uint32_t v)
{
	return f32_from_bits(v);
}

static inline uint32_t __float_as_uint(float x)
{
	return f32_bits(x);
}

static inline float __fmul_rn(float a, float b)
{
	return a * b;
}

static inline float __fadd_rn(float a, float b)
{
	return a + b;
}

static inline float __fmaf_rn(float a, float b, float c)
{
	return fmaf(a, b, c);
}

static inline float __fdiv_rn(float a, float b)
{
	return a / b;
}

static inline float __frcp_rn(float a)
{
	return 1.0f / a;
}

template <class T, class U> T atomicAdd(T *p, U v)
{
	const T old = *p;

	*p += (T)v;
	return old;
}

template <class T, class U> T atomicMin(T *p, U v)
{
	const T old = *p;

	if ((T)v < old)
		*p = (T)v;
	return old;
}

template <class T, class U> T atomicOr(T *p, U v)
{
	const T old = *p;

	*p |= (T)v;
	return old;
}

template <class T, class U> T atomicExch(T *p, U v)
{
	const T old = *p;

	*p = (T)v;
	return old;
}

#include "fibre_order.cuh"

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands in for the files of src/cuda that consist of PTX: order.cuh, copy.cuh
 * and number.cuh, whose guards it takes. One fibre runs at a time, so an access
 * is in order with all others and fences of memory do nothing; nothing here
 * could show that one is missing. What volatile keeps is that polls are loads.
 * Where threads talk, others may run in between; an acquire may be a poll.
 */
#ifndef FIBRE_ORDER_CUH
#define FIBRE_ORDER_CUH

#define FERRY_ORDER_CUH
#define FERRY_COPY_CUH
#define FERRY_NUMBER_CUH

#include "core/number.h"

template <class T> T fibre_load(const T *p)
{
	return *(const volatile T *)p;
}

template <class T, class U> void fibre_store(T *p, U v)
{
	*(volatile T *)p = (T)v;
}

template <class T> T fibre_acquire(const T *p)
{
	fibre_pause(1);
	return fibre_load(p);
}

template <class T, class U> void fibre_release(T *p, U v)
{
	fibre_pause(4);
	fibre_store(p, v);
}

#define load_relaxed_gpu  fibre_load
#define load_acquire_gpu  fibre_acquire
#define load_relaxed_sys  fibre_load
#define load_acquire_sys  fibre_acquire
#define store_relaxed_gpu fibre_store
#define store_release_gpu fibre_release
#define store_relaxed_sys fibre_store
#define store_release_sys fibre_release
#define add_relaxed_gpu   atomicAdd
#define add_acq_rel_gpu   atomicAdd

static inline uint32_t cas_acq_rel_gpu(uint32_t *p, uint32_t expected,
                                       uint32_t desired)
{
	const uint32_t old = *p;

	if (old == expected)
		*p = desired;
	return old;
}

static inline void block_sync(uint32_t n)
{
	fibre_barrier(1, n, false);
}

static inline bool block_any(uint32_t n, bool v)
{
	return fibre_barrier(1, n, v);
}

static inline void fence_acq_rel_gpu(void)
{
}

static inline void fence_sc_gpu(void)
{
}

static inline void fence_acq_rel_sys(void)
{
}

static inline void store_volatile_16(void *p, uint64_t a, uint64_t b)
{
	fibre_store((uint64_t *)p, a);
	fibre_store((uint64_t *)p + 1, b);
}

static inline void load_volatile_16(const void *p, uint64_t *a, uint64_t *b)
{
	*a = fibre_load((const uint64_t *)p);
	*b = fibre_load((const uint64_t *)p + 1);
}

static inline void kernel_wait_previous(void)
{
	fibre_wait_previous();
}

static inline void kernel_launch_next(void)
{
	fibre_launch_next();
}

static inline uint64_t global_ns(void)
{
	return fibre_ns();
}

static inline uint4 load_once_16(const void *p)
{
	return *(const uint4 *)p;
}

static inline void store_16(void *p, uint4 v)
{
	*(uint4 *)p = v;
}

static inline void async_load_16(void *shared, const void *global)
{
	fibre_async_load(shared, global, 16);
}

static inline void async_wait(void)
{
	fibre_async_wait();
}

static inline void team_arrive(int barrier, int n)
{
	fibre_arrive(barrier, (uint32_t)n);
}

static inline void fence_proxy_async_shared(void)
{
	fibre_fence_shared();
}

static inline void fence_proxy_async_global(void)
{
	fibre_fence_global();
}

static inline void barrier_init(uint64_t *barrier, uint32_t n_arrivals)
{
	fibre_mbarrier_init(barrier, n_arrivals);
}

static inline void barrier_expect(uint64_t *barrier, uint32_t bytes)
{
	fibre_mbarrier_add(barrier, bytes, true);
}

static inline void barrier_more(uint64_t *barrier, uint32_t bytes)
{
	fibre_mbarrier_add(barrier, bytes, false);
}

static inline void barrier_arrive(uint64_t *barrier)
{
	fibre_mbarrier_add(barrier, 0, true);
}

static inline void barrier_wait(uint64_t *barrier, uint32_t parity)
{
	fibre_mbarrier_wait(barrier, parity);
}

static inline void bulk_load(void *shared, const void *global, uint32_t bytes,
                             uint64_t *barrier)
{
	fibre_bulk_load(shared, global, bytes, barrier);
}

static inline void bulk_store(void *global, const void *shared, uint32_t bytes)
{
	fibre_bulk_store(global, shared, bytes);
}

static inline void bulk_store_away(void *global, const void *shared,
                                   uint32_t bytes)
{
	fibre_bulk_store(global, shared, bytes);
}

static inline void bulk_commit(void)
{
	fibre_bulk_commit();
}

template <int N> static inline void bulk_wait_read(void)
{
	fibre_bulk_wait(N, true);
}

template <int N> static inline void bulk_wait(void)
{
	fibre_bulk_wait(N, false);
}

static inline float f32_of_bf16_low(uint32_t pair)
{
	return f32_from_bits(pair << 16);
}

static inline float f32_of_bf16_high(uint32_t pair)
{
	return f32_from_bits(pair & 0xffff0000u);
}

static inline uint32_t bf16_pair(float low, float high)
{
	return bf16_from_f32(low) | (uint32_t)bf16_from_f32(high) << 16;
}

static inline float f32_of_fp16(uint16_t h)
{
	return f32_from_fp16(h);
}

static inline uint32_t fp16_pair(float low, float high)
{
	return fp16_from_f32(low) | (uint32_t)fp16_from_f32(high) << 16;
}

static inline uint32_t fp16_equal(uint32_t a, uint32_t b)
{
	const float low_a = f32_from_fp16((uint16_t)a);
	const float low_b = f32_from_fp16((uint16_t)b);
	const float high_a = f32_from_fp16((uint16_t)(a >> 16));
	const float high_b = f32_from_fp16((uint16_t)(b >> 16));

	return (low_a == low_b ? 0x3c00u : 0) |
	       (high_a == high_b ? 0x3c000000u : 0);
}

/* The sum in fp32 is rounded once: it is exact. */
static inline uint32_t fp16_add(uint32_t a, uint32_t b)
{
	return fp16_pair(f32_from_fp16((uint16_t)a) +
	                         f32_from_fp16((uint16_t)b),
	                 f32_from_fp16((uint16_t)(a >> 16)) +
	                         f32_from_fp16((uint16_t)(b >> 16)));
}

static inline float f32_canonical_of(float x)
{
	return x != x ? f32_from_bits(0x7fffffffu) : x;
}

static inline uint16_t e4m3_pair(float low, float high)
{
	return (uint16_t)(e4m3_from_f32(low) | e4m3_from_f32(high) << 8);
}

static inline float quant_scale_of(float amax)
{
	const float scale = amax / 448.0f;

	return scale < 0x1p-126f ? 0x1p-126f : scale;
}

static inline uint8_t ue8m0_of(float scale)
{
	return (uint8_t)((f32_bits(scale) + 0x7fffffu) >> 23);
}

static inline float f32_of_ue8m0(uint8_t e)
{
	return f32_from_bits(e ? (uint32_t)e << 23 : 0x00400000u);
}

#endif

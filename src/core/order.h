/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only atomics of Ferry, on plain integers so that they can lie in shared
 * memory. Named op_order. The CUDA half gets the same names with a scope.
 * Order belongs on the flag itself: ThreadSanitizer does not see fences.
 */
#ifndef FERRY_ORDER_H
#define FERRY_ORDER_H

#include <stdint.h>

static inline uint32_t load_relaxed_u32(const uint32_t *p)
{
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static inline uint32_t load_acquire_u32(const uint32_t *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static inline uint32_t load_seq_u32(const uint32_t *p)
{
	return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}

static inline void store_release_u32(uint32_t *p, uint32_t v)
{
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
}

static inline void store_release_u64(uint64_t *p, uint64_t v)
{
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
}

static inline void store_seq_u32(uint32_t *p, uint32_t v)
{
	__atomic_store_n(p, v, __ATOMIC_SEQ_CST);
}

static inline uint32_t add_seq_u32(uint32_t *p, uint32_t v)
{
	return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
}

static inline uint64_t load_relaxed_u64(const uint64_t *p)
{
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static inline uint64_t load_acquire_u64(const uint64_t *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static inline uint64_t load_seq_u64(const uint64_t *p)
{
	return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}

static inline uint64_t add_relaxed_u64(uint64_t *p, uint64_t v)
{
	return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}

static inline uint64_t add_seq_u64(uint64_t *p, uint64_t v)
{
	return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
}

static inline uint32_t sub_seq_u32(uint32_t *p, uint32_t v)
{
	return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST);
}

static inline uint32_t swap_seq_u32(uint32_t *p, uint32_t v)
{
	return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);
}

/* 1 when *p was `expected` and is `desired` now. */
static inline int cas_seq_u32(uint32_t *p, uint32_t expected, uint32_t desired)
{
	return __atomic_compare_exchange_n(p, &expected, desired, 0,
	                                   __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* Tells the core that this is a spin loop. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif

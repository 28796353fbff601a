/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA half of core/order.h: the only atomics and ordered accesses of
 * device code, named op_order_scope. gpu: among blocks of one GPU; sys: among
 * GPUs and the host.
 */
#ifndef FERRY_ORDER_CUH
#define FERRY_ORDER_CUH

#include <stdint.h>

static __device__ __forceinline__ uint32_t load_relaxed_gpu(const uint32_t *p)
{
	uint32_t v;

	asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p));
	return v;
}

static __device__ __forceinline__ uint64_t load_relaxed_gpu(const uint64_t *p)
{
	uint64_t v;

	asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p));
	return v;
}

static __device__ __forceinline__ uint32_t load_acquire_gpu(const uint32_t *p)
{
	uint32_t v;

	asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
	             : "=r"(v)
	             : "l"(p)
	             : "memory");
	return v;
}

static __device__ __forceinline__ uint64_t load_acquire_gpu(const uint64_t *p)
{
	uint64_t v;

	asm volatile("ld.acquire.gpu.global.u64 %0, [%1];"
	             : "=l"(v)
	             : "l"(p)
	             : "memory");
	return v;
}

static __device__ __forceinline__ uint32_t load_relaxed_sys(const uint32_t *p)
{
	uint32_t v;

	asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p));
	return v;
}

static __device__ __forceinline__ uint64_t load_relaxed_sys(const uint64_t *p)
{
	uint64_t v;

	asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p));
	return v;
}

static __device__ __forceinline__ uint64_t load_acquire_sys(const uint64_t *p)
{
	uint64_t v;

	asm volatile("ld.acquire.sys.global.u64 %0, [%1];"
	             : "=l"(v)
	             : "l"(p)
	             : "memory");
	return v;
}

static __device__ __forceinline__ void store_relaxed_gpu(uint32_t *p,
                                                         uint32_t v)
{
	asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v));
}

static __device__ __forceinline__ void store_relaxed_gpu(uint64_t *p,
                                                         uint64_t v)
{
	asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v));
}

static __device__ __forceinline__ void store_relaxed_sys(uint64_t *p,
                                                         uint64_t v)
{
	asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v));
}

static __device__ __forceinline__ void store_release_gpu(uint32_t *p,
                                                         uint32_t v)
{
	asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v)
	             : "memory");
}

static __device__ __forceinline__ void store_release_gpu(uint64_t *p,
                                                         uint64_t v)
{
	asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v)
	             : "memory");
}

static __device__ __forceinline__ void store_release_sys(uint64_t *p,
                                                         uint64_t v)
{
	asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v)
	             : "memory");
}

static __device__ __forceinline__ void store_release_sys(uint32_t *p,
                                                         uint32_t v)
{
	asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v)
	             : "memory");
}

/* The value before. */
static __device__ __forceinline__ uint32_t add_relaxed_gpu(uint32_t *p,
                                                           uint32_t v)
{
	uint32_t old;

	asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;"
	             : "=r"(old)
	             : "l"(p), "r"(v));
	return old;
}

static __device__ __forceinline__ uint64_t add_relaxed_gpu(uint64_t *p,
                                                           uint64_t v)
{
	uint64_t old;

	asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;"
	             : "=l"(old)
	             : "l"(p), "l"(v));
	return old;
}

static __device__ __forceinline__ uint32_t add_acq_rel_gpu(uint32_t *p,
                                                           uint32_t v)
{
	uint32_t old;

	asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
	             : "=r"(old)
	             : "l"(p), "r"(v)
	             : "memory");
	return old;
}

static __device__ __forceinline__ uint32_t cas_acq_rel_gpu(uint32_t *p,
                                                           uint32_t expected,
                                                           uint32_t desired)
{
	uint32_t old;

	asm volatile("atom.acq_rel.gpu.global.cas.b32 %0, [%1], %2, %3;"
	             : "=r"(old)
	             : "l"(p), "r"(expected), "r"(desired)
	             : "memory");
	return old;
}

/* A barrier of the first n threads of a block, whole warps. */
static __device__ __forceinline__ void block_sync(uint32_t n)
{
	asm volatile("barrier.cta.sync 1, %0;" ::"r"(n) : "memory");
}

/* The same: is v true for any of them? */
static __device__ __forceinline__ bool block_any(uint32_t n, bool v)
{
	uint32_t any;

	asm volatile("{\n"
	             ".reg .pred p, q;\n"
	             "setp.ne.u32 p, %2, 0;\n"
	             "barrier.cta.red.or.pred q, 1, %1, p;\n"
	             "selp.u32 %0, 1, 0, q;\n"
	             "}\n"
	             : "=r"(any)
	             : "r"(n), "r"((uint32_t)v)
	             : "memory");
	return any;
}

static __device__ __forceinline__ void fence_acq_rel_gpu(void)
{
	asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

/* Orders a store before a later load of something else. */
static __device__ __forceinline__ void fence_sc_gpu(void)
{
	asm volatile("fence.sc.gpu;" ::: "memory");
}

static __device__ __forceinline__ void fence_acq_rel_sys(void)
{
	asm volatile("fence.acq_rel.sys;" ::: "memory");
}

/*
 * Half a line's share of one lane: 16 bytes at once. Eight converged lanes
 * store or load a line of 128 bytes, which NVLink carries whole.
 */
static __device__ __forceinline__ void store_volatile_16(void *p, uint64_t a,
                                                         uint64_t b)
{
	asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(p),
	             "l"(a), "l"(b)
	             : "memory");
}

static __device__ __forceinline__ void
load_volatile_16(const void *p, uint64_t *a, uint64_t *b)
{
	asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];"
	             : "=l"(*a), "=l"(*b)
	             : "l"(p)
	             : "memory");
}

/*
 * For kernels that may start while the one in front of them in the stream
 * still runs: nothing of that one is read or overwritten before this returns.
 */
static __device__ __forceinline__ void kernel_wait_previous(void)
{
	asm volatile("griddepcontrol.wait;" ::: "memory");
}

/*
 * The next kernel may take the room that blocks leave. Called by a block that
 * waits for nobody any more: the next one only waits for this one.
 */
static __device__ __forceinline__ void kernel_launch_next(void)
{
	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* Nanoseconds; ticks coarsely. */
static __device__ __forceinline__ uint64_t global_ns(void)
{
	uint64_t t;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
	return t;
}

#endif

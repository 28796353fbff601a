/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wide accesses and the bulk copy engine (TMA without tensor maps): between
 * shared and global memory, own or a peer's, in multiples of 16 bytes at
 * addresses that are multiples of 16.
 */
#ifndef FERRY_COPY_CUH
#define FERRY_COPY_CUH

#include <stddef.h>
#include <stdint.h>

static __device__ __forceinline__ uint32_t smem_address(const void *p)
{
	return (uint32_t)__cvta_generic_to_shared(p);
}

/* 16 bytes that are read once. */
static __device__ __forceinline__ uint4 load_once_16(const void *p)
{
	uint4 v;

	asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
	             : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
	             : "l"(p));
	return v;
}

static __device__ __forceinline__ void store_16(void *p, uint4 v)
{
	asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p),
	             "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
	             : "memory");
}

/* 16 bytes to shared memory, for this thread, after async_wait. */
static __device__ __forceinline__ void async_load_16(void *shared,
                                                     const void *global)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
			     smem_address(shared)),
	             "l"(global)
	             : "memory");
}

static __device__ __forceinline__ void async_wait(void)
{
	asm volatile("cp.async.wait_all;" ::: "memory");
}

/* Arrives at a hardware barrier of n threads, and does not wait there. */
static __device__ __forceinline__ void team_arrive(int id, int n)
{
	asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n) : "memory");
}

static __device__ __forceinline__ void barrier_init(uint64_t *barrier,
                                                    uint32_t n_arrivals)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(
			     smem_address(barrier)),
	             "r"(n_arrivals)
	             : "memory");
}

/* Arrives, and tells how many bytes bulk loads will bring. */
static __device__ __forceinline__ void barrier_expect(uint64_t *barrier,
                                                      uint32_t bytes)
{
	asm volatile(
		"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
			smem_address(barrier)),
		"r"(bytes)
		: "memory");
}

/* The same without an arrival: by who has not arrived yet. */
static __device__ __forceinline__ void barrier_more(uint64_t *barrier,
                                                    uint32_t bytes)
{
	asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], "
	             "%1;" ::"r"(smem_address(barrier)),
	             "r"(bytes)
	             : "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint64_t *barrier)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(
			     smem_address(barrier))
	             : "memory");
}

static __device__ __forceinline__ bool barrier_try(uint64_t *barrier,
                                                   uint32_t parity)
{
	uint32_t done;

	asm volatile("{\n"
	             ".reg .pred p;\n"
	             "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
	             "selp.u32 %0, 1, 0, p;\n"
	             "}\n"
	             : "=r"(done)
	             : "r"(smem_address(barrier)), "r"(parity)
	             : "memory");
	return done;
}

/* For bulk loads of own memory: these always end. */
static __device__ __forceinline__ void barrier_wait(uint64_t *barrier,
                                                    uint32_t parity)
{
	while (!barrier_try(barrier, parity))
		;
}

/* Before bulk copies read what ordinary stores wrote to shared memory. */
static __device__ __forceinline__ void fence_proxy_async_shared(void)
{
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Before bulk copies read global memory that others wrote by stores. */
static __device__ __forceinline__ void fence_proxy_async_global(void)
{
	asm volatile("fence.proxy.async.global;" ::: "memory");
}

static __device__ __forceinline__ void
bulk_load(void *shared, const void *global, uint32_t bytes, uint64_t *barrier)
{
	asm volatile(
		"cp.async.bulk.shared::cluster.global.mbarrier::complete_"
		"tx::bytes [%0], [%1], %2, [%3];" ::"r"(smem_address(shared)),
		"l"(global), "r"(bytes), "r"(smem_address(barrier))
		: "memory");
}

static __device__ __forceinline__ void
bulk_store(void *global, const void *shared, uint32_t bytes)
{
	asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], "
	             "%2;" ::"l"(global),
	             "r"(smem_address(shared)), "r"(bytes)
	             : "memory");
}

/* The same, of what nobody reads soon: it leaves the L2 cache to others. */
static __device__ __forceinline__ void
bulk_store_away(void *global, const void *shared, uint32_t bytes)
{
	uint64_t policy;

	asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;"
	    : "=l"(policy));
	asm volatile(
		"cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint "
		"[%0], [%1], %2, %3;" ::"l"(global),
		"r"(smem_address(shared)), "r"(bytes), "l"(policy)
		: "memory");
}

static __device__ __forceinline__ void bulk_commit(void)
{
	asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Until at most N groups of this thread still read shared memory. */
template <int N> static __device__ __forceinline__ void bulk_wait_read(void)
{
	asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

/* Until at most N groups of this thread are still being written. */
template <int N> static __device__ __forceinline__ void bulk_wait(void)
{
	asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}

#endif

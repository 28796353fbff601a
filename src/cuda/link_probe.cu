/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast is a link?
 *
 * Does: store writes a buffer of a peer as fast as it can; flag sends a number
 * to a peer and waits for it to come back.
 *
 * Buffers: the buffer, on the peer, read by nobody; flag: one word on either
 * GPU, written by the other one, read by the owner.
 *
 * Steps of flag, for i = 1, 2, ...: F1 `first` stores i into the peer's word
 * (release, partner S1) and F2 loads its own until it is i (acquire, partner
 * S2); the other end S1 loads its own until it is i and S2 stores i into the
 * peer's.
 *
 * Flags: only grow from zero; the memory is new for each measurement.
 *
 * Threads: store: 1024 blocks of 512; flag: one.
 *
 * Waits: F2 and S1, a second each; who gives up leaves 0 ns behind.
 *
 * Cost: bytes / rate; 3 us a round over NVLink.
 */
#include "link_probe.h"

#include <cuda_runtime_api.h>

#include "order.cuh"

enum { BLOCKS = 1024, THREADS = 512 };

#define LIMIT_NS 1000000000ull

__global__ static void store(uint4 *to, size_t n, int32_t times)
{
	const size_t step = (size_t)gridDim.x * blockDim.x;

	for (int32_t t = 0; t < times; t++)
		for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
		     i < n; i += step)
			to[i] = make_uint4(t, (unsigned)i, t, (unsigned)i);
}

static __device__ bool reached(const uint64_t *own, uint64_t value)
{
	const uint64_t start = global_ns();

	while (load_acquire_sys(own) < value)
		if (global_ns() - start > LIMIT_NS)
			return false;
	return true;
}

__global__ static void flag(uint64_t *own, uint64_t *peer, uint64_t rounds,
                            bool first, uint64_t *ns)
{
	uint64_t start = 0;

	for (uint64_t i = 1; i <= rounds; i++) {
		if (first)
			store_release_sys(peer, i);
		if (!reached(own, i))
			return;
		if (!first)
			store_release_sys(peer, i);
		if (i == 1)
			start = global_ns();
	}
	if (ns)
		*ns = global_ns() - start;
}

/* A launch's own answer: the last error may be one of the caller's. */
static cudaLaunchConfig_t launch_of(unsigned blocks, unsigned threads,
                                    struct CUstream_st *stream)
{
	cudaLaunchConfig_t config = {};

	config.gridDim = dim3(blocks);
	config.blockDim = dim3(threads);
	config.stream = stream;
	return config;
}

int ferry_probe_store(void *to, size_t bytes, int32_t times,
                      struct CUstream_st *stream)
{
	const cudaLaunchConfig_t config = launch_of(BLOCKS, THREADS, stream);

	return cudaLaunchKernelEx(&config, store, (uint4 *)to, bytes / 16,
	                          times);
}

int ferry_probe_flag(uint64_t *own, uint64_t *peer, int32_t rounds, int first,
                     uint64_t *ns, struct CUstream_st *stream)
{
	const cudaLaunchConfig_t config = launch_of(1, 1, stream);

	return cudaLaunchKernelEx(&config, flag, own, peer, (uint64_t)rounds,
	                          first != 0, ns);
}

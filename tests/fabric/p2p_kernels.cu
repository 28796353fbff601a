/* SPDX-License-Identifier: Apache-2.0 */
/* See p2p_kernels.h. */
#include <cuda_runtime_api.h>

#include "p2p_kernels.h"

enum { BLOCKS = 16, THREADS = 256 };

__device__ static uint64_t now_ns(void)
{
	uint64_t ns;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
	return ns;
}

__global__ static void compare(const volatile uint64_t *from, uint64_t n_words,
                               uint64_t key, unsigned long long *differs)
{
	const uint64_t step = (uint64_t)gridDim.x * blockDim.x;

	for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n_words;
	     i += step)
		if (from[i] != p2p_word(key, i))
			atomicMin(differs, (unsigned long long)i);
}

__device__ static void store_part(volatile uint64_t *to, uint64_t n_words,
                                  uint64_t key)
{
	const uint64_t step = (uint64_t)gridDim.x * blockDim.x;

	for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n_words;
	     i += step)
		to[i] = p2p_word(key, i);
}

__global__ static void store(uint64_t *to, uint64_t n_words, uint64_t key)
{
	store_part(to, n_words, key);
}

__global__ static void store_for(uint64_t *to, uint64_t n_words, uint64_t ns,
                                 volatile uint64_t *rounds)
{
	const uint64_t end = now_ns() + ns;

	for (uint64_t key = 0; now_ns() < end; key++) {
		store_part(to, n_words, key);
		if (blockIdx.x == 0 && threadIdx.x == 0)
			*rounds = key + 1;
	}
	store_part(to, n_words, ~0ull);
}

/* What the launch says, or the run. */
static int finish(void)
{
	const cudaError_t error = cudaGetLastError();

	return error ? error : cudaStreamSynchronize(cudaStreamPerThread);
}

int p2p_store(uint64_t *to, uint64_t n_words, uint64_t key)
{
	store<<<BLOCKS, THREADS, 0, cudaStreamPerThread>>>(to, n_words, key);
	return finish();
}

int p2p_compare(const uint64_t *from, uint64_t n_words, uint64_t key,
                uint64_t *differs)
{
	unsigned long long *found;
	cudaError_t error = cudaHostAlloc((void **)&found, sizeof(*found),
	                                  cudaHostAllocMapped);

	if (error)
		return error;
	*found = n_words;
	compare<<<BLOCKS, THREADS, 0, cudaStreamPerThread>>>(from, n_words, key,
	                                                     found);
	error = (cudaError_t)finish();
	*differs = *found;
	cudaFreeHost(found);
	return error;
}

int p2p_store_for(uint64_t *to, uint64_t n_words, int64_t us, uint64_t *rounds)
{
	store_for<<<BLOCKS, THREADS, 0, cudaStreamPerThread>>>(
		to, n_words, (uint64_t)us * 1000u, rounds);
	return cudaGetLastError();
}

int p2p_sync(void)
{
	return cudaStreamSynchronize(cudaStreamPerThread);
}

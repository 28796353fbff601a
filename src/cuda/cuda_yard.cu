/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_yard.h: grid-stride loops of 16-byte accesses, and a kernel that waits
 * for the clock.
 */
#include "cuda_yard.h"

#include <cuda_runtime_api.h>

#include "copy.cuh"

enum { YARD_THREADS = 512, YARD_BLOCKS_PER_SM = 4, YARD_UNROLL = 4 };

static __global__ void store_kernel(uint4 *to, size_t n)
{
	const size_t stride = (size_t)gridDim.x * blockDim.x;
	const uint4 v = {1, 2, 3, blockIdx.x};

	for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n;
	     i += stride)
		store_16(to + i, v);
}

static __global__ void copy_kernel(uint4 *to, const uint4 *from, size_t n)
{
	const size_t stride = (size_t)gridDim.x * blockDim.x;
	const size_t first = blockIdx.x * blockDim.x + threadIdx.x;
	const size_t whole = n - n % (YARD_UNROLL * stride);

	for (size_t i = first; i < whole; i += YARD_UNROLL * stride) {
		uint4 v[YARD_UNROLL];

#pragma unroll
		for (int j = 0; j < YARD_UNROLL; j++)
			v[j] = load_once_16(from + i + j * stride);
#pragma unroll
		for (int j = 0; j < YARD_UNROLL; j++)
			store_16(to + i + j * stride, v[j]);
	}
	for (size_t i = whole + first; i < n; i += stride)
		store_16(to + i, load_once_16(from + i));
}

static __global__ void spin_kernel(long long cycles)
{
	const long long start = clock64();

	while (clock64() - start < cycles)
		;
}

static int attribute(enum cudaDeviceAttr which)
{
	int device = 0, value = 0;

	if (cudaGetDevice(&device) != cudaSuccess ||
	    cudaDeviceGetAttribute(&value, which, device) != cudaSuccess)
		return 0;
	return value;
}

int ferry_cuda_yard_store(void *to, size_t bytes, struct CUstream_st *stream)
{
	const unsigned blocks =
		(unsigned)attribute(cudaDevAttrMultiProcessorCount) *
		YARD_BLOCKS_PER_SM;

	store_kernel<<<blocks, YARD_THREADS, 0, stream>>>((uint4 *)to,
	                                                  bytes / 16);
	return cudaGetLastError();
}

int ferry_cuda_yard_copy(void *to, const void *from, size_t bytes,
                         struct CUstream_st *stream)
{
	const unsigned blocks =
		(unsigned)attribute(cudaDevAttrMultiProcessorCount) *
		YARD_BLOCKS_PER_SM;

	copy_kernel<<<blocks, YARD_THREADS, 0, stream>>>(
		(uint4 *)to, (const uint4 *)from, bytes / 16);
	return cudaGetLastError();
}

int ferry_cuda_yard_spin(uint64_t ns, struct CUstream_st *stream)
{
	const long long khz = attribute(cudaDevAttrClockRate);
	const unsigned blocks =
		(unsigned)attribute(cudaDevAttrMultiProcessorCount);

	spin_kernel<<<blocks, 32, 0, stream>>>((long long)ns * khz / 1000000);
	return cudaGetLastError();
}

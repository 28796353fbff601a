/* SPDX-License-Identifier: Apache-2.0 */
/* Small kernels for tests; see lab_kernels.h. */
#include "lab_kernels.h"

#include <cuda_runtime.h>

static __device__ uint64_t now_ns()
{
	uint64_t ns;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
	return ns;
}

static __global__ void sleep_kernel(uint64_t ns)
{
	const uint64_t begin = now_ns();

	while (now_ns() - begin < ns)
		__nanosleep(500);
}

static __global__ void hold_kernel(const volatile uint32_t *word,
                                   uint64_t limit_ns)
{
	const uint64_t begin = now_ns();

	while (*word == 0 && now_ns() - begin < limit_ns)
		__nanosleep(500);
}

static __global__ void add_kernel(uint32_t *numbers, uint32_t n,
                                  uint32_t addend)
{
	const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		numbers[i] += addend;
}

/* What may start early behind this one may do so at once. */
static __global__ void late_kernel(const __grid_constant__ struct lab_copies c,
                                   uint64_t ns)
{
	const size_t step = (size_t)gridDim.x * blockDim.x;
	const uint64_t begin = now_ns();

	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
	while (now_ns() - begin < ns)
		__nanosleep(500);
	for (int32_t k = 0; k < c.n; k++)
		for (size_t i = blockIdx.x * blockDim.x + threadIdx.x;
		     i < c.of[k].bytes; i += step)
			c.of[k].to[i] = c.of[k].from[i];
}

extern "C" int lab_load(void)
{
	cudaFuncAttributes attributes;
	cudaError_t error = cudaFuncGetAttributes(&attributes, sleep_kernel);

	if (error == cudaSuccess)
		error = cudaFuncGetAttributes(&attributes, hold_kernel);
	if (error == cudaSuccess)
		error = cudaFuncGetAttributes(&attributes, add_kernel);
	if (error == cudaSuccess)
		error = cudaFuncGetAttributes(&attributes, late_kernel);
	return error;
}

extern "C" int lab_sleep(uint64_t ns, struct CUstream_st *stream)
{
	sleep_kernel<<<1, 1, 0, stream>>>(ns);
	return cudaGetLastError();
}

extern "C" int lab_hold(const uint32_t *word, uint64_t limit_ns,
                        struct CUstream_st *stream)
{
	hold_kernel<<<1, 1, 0, stream>>>(word, limit_ns);
	return cudaGetLastError();
}

extern "C" int lab_add(uint32_t *numbers, uint32_t n, uint32_t addend,
                       struct CUstream_st *stream)
{
	add_kernel<<<(n + 127) / 128, 128, 0, stream>>>(numbers, n, addend);
	return cudaGetLastError();
}

extern "C" int lab_copy_late(const struct lab_copies *copies, uint64_t ns,
                             struct CUstream_st *stream)
{
	late_kernel<<<8, 256, 0, stream>>>(*copies, ns);
	return cudaGetLastError();
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel that lets the next one start at once (programmatic dependent
 * launch) and does its own work late.
 */
#include "late.h"

#include <cuda_runtime.h>

static __device__ uint64_t now_ns(void)
{
	uint64_t ns;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
	return ns;
}

static __global__ void late_kernel(struct late_copy a, struct late_copy b,
                                   uint64_t ns)
{
	const uint64_t begin = now_ns();

	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
	while (now_ns() - begin < ns)
		__nanosleep(500);
	for (size_t i = threadIdx.x; i < a.bytes; i += blockDim.x)
		a.to[i] = a.from[i];
	__syncthreads();
	for (size_t i = threadIdx.x; i < b.bytes; i += blockDim.x)
		b.to[i] = b.from[i];
}

extern "C" int late_launch(const struct late_copy *a, const struct late_copy *b,
                           uint64_t ns, struct CUstream_st *stream)
{
	late_kernel<<<1, 512, 0, stream>>>(*a, *b, ns);
	return cudaGetLastError();
}

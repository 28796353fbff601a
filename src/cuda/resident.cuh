/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading kernels that wait for each other, host side: each must be able to
 * start while others wait.
 *
 * A multiprocessor divides its memory between shared memory and cache anew only
 * when it stands idle, and a kernel that asks for another division than those
 * that run may be held back until they end. So all kernels of the engine ask
 * for the same: the most shared memory there is.
 */
#ifndef FERRY_RESIDENT_CUH
#define FERRY_RESIDENT_CUH

#include <limits.h>

#include <cuda_runtime_api.h>

#include "cuda_kernels.h"

/* Loads a kernel, which may use so much dynamic shared memory. */
static inline cudaError_t resident_load(const void *kernel, int most_bytes)
{
	cudaError_t error = cudaFuncSetAttribute(
		kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
		most_bytes);

	if (error != cudaSuccess)
		return error;
	return cudaFuncSetAttribute(
		kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
		cudaSharedmemCarveoutMaxShared);
}

/* What kernels take together: nothing is counted yet. */
static inline struct ferry_cuda_fit resident_begin(int threads, int bytes)
{
	return {threads, bytes, INT_MAX};
}

/* One more: the fit is that of the kernel of which the fewest blocks fit. */
static inline cudaError_t resident_count(const void *kernel,
                                         struct ferry_cuda_fit *fit)
{
	int ctas = 0;
	const cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
		&ctas, kernel, fit->threads, (size_t)fit->smem_bytes);

	if (ctas < fit->ctas_per_sm)
		fit->ctas_per_sm = ctas;
	return error;
}

#endif

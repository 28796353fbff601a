/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches that may start while the kernel in front still runs (programmatic
 * stream serialization), and how their kernels begin.
 */
#ifndef FERRY_COMBINE_EARLY_CUH
#define FERRY_COMBINE_EARLY_CUH

#include <cuda_runtime_api.h>

#include "cuda_args.h"
#include "order.cuh"

/*
 * The first thing that a thread does. Where the launch was early (launch_early)
 * the kernel in front may still run: until it has ended, and what it wrote is
 * to be seen, nothing but the argument is read and nothing is written. It ends
 * only when all in front of it have, as it begins in the same way or was
 * launched when they had. The next kernel may have the room of blocks that
 * end: all blocks of this one are there already.
 */
static __device__ __forceinline__ void
begin_early(const struct ferry_cuda_channel *ch)
{
	if (!ch->early)
		return;
	kernel_launch_next();
	kernel_wait_previous();
}

/* Host: enqueues a kernel that begins with begin_early. */
static inline int launch_early(const void *kernel, struct ferry_cuda_combine *a,
                               unsigned ctas, unsigned threads,
                               size_t smem_bytes, cudaStream_t stream)
{
	cudaLaunchConfig_t config = {};
	cudaLaunchAttribute early = {};
	void *arguments[] = {a};

	early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	early.val.programmaticStreamSerializationAllowed = 1;
	config.gridDim = dim3(ctas ? ctas : 1);
	config.blockDim = dim3(threads);
	config.dynamicSmemBytes = smem_bytes;
	config.stream = stream;
	config.attrs = &early;
	config.numAttrs = a->ch.early ? 1 : 0;
	return (int)cudaLaunchKernelExC(&config, kernel, arguments);
}

#endif

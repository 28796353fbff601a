/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches that may start while the kernel in front still runs (programmatic
 * stream serialization), and how their kernels begin.
 */
#ifndef FERRY_COMBINE_EARLY_CUH
#define FERRY_COMBINE_EARLY_CUH

#include <cuda_runtime_api.h>

#include "order.cuh"

/*
 * The first thing that a thread does. Where the launch was early (launch_early)
 * the kernel in front may still run: until it has ended, and what it wrote is
 * to be seen, nothing but the argument is read and nothing is written. It ends
 * only when all in front of it have, as it begins in the same way or was
 * launched when they had. The next kernel may have the room of blocks that
 * end: all blocks of this one are there already.
 */
static __device__ __forceinline__ void begin_early(bool early)
{
	if (!early)
		return;
	kernel_launch_next();
	kernel_wait_previous();
}

/* Host: enqueues a kernel that begins with begin_early. */
template <class A>
static inline int launch_early(void (*kernel)(const A), const A &args,
                               bool early, cudaLaunchConfig_t config)
{
	cudaLaunchAttribute attribute = {};

	attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	attribute.val.programmaticStreamSerializationAllowed = 1;
	config.attrs = &attribute;
	config.numAttrs = early ? 1 : 0;
	return (int)cudaLaunchKernelEx(&config, kernel, args);
}

#endif

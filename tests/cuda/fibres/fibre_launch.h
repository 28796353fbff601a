/* SPDX-License-Identifier: Apache-2.0 */
/* How src/cuda launches its kernels, on fibres. */
#ifndef FIBRE_LAUNCH_H
#define FIBRE_LAUNCH_H

#include "cuda/cuda_args.h"
#include "fibre_device.h"

typedef enum {
	cudaLaunchAttributeProgrammaticStreamSerialization
} cudaLaunchAttributeID;

struct cudaLaunchAttribute {
	cudaLaunchAttributeID id;
	struct {
		int programmaticStreamSerializationAllowed;
	} val;
};

struct cudaLaunchConfig_t {
	dim3 gridDim, blockDim;
	size_t dynamicSmemBytes;
	cudaStream_t stream;
	cudaLaunchAttribute *attrs;
	unsigned numAttrs;
};

template <class A> void fibre_call(void (*kernel)(void), const void *args)
{
	((void (*)(A))kernel)(*(const A *)args);
}

template <class A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config,
                               void (*kernel)(A), A args)
{
	const struct fibre_launch l = {
		fibre_call<A>,
		(void (*)(void))kernel,
		&args,
		sizeof(args),
		config->gridDim.x,
		config->blockDim.x,
		config->dynamicSmemBytes,
		config->numAttrs > 0,
	};

	fibres_enqueue(config->stream, &l);
	return cudaSuccess;
}

/* Of the one type of kernel that is launched in this way. */
static inline cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid,
                                           dim3 block, void **args,
                                           size_t shared, cudaStream_t stream)
{
	typedef struct ferry_cuda_combine A;
	const cudaLaunchConfig_t config = {grid,   block,   shared,
	                                   stream, nullptr, 0};

	return cudaLaunchKernelEx(&config, (void (*)(A))kernel, *(A *)args[0]);
}

enum cudaFuncAttribute {
	cudaFuncAttributeMaxDynamicSharedMemorySize,
	cudaFuncAttributePreferredSharedMemoryCarveout
};
enum { cudaSharedmemCarveoutMaxShared = 100 };

static inline cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute,
                                               int)
{
	return cudaSuccess;
}

static inline cudaError_t
cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *, int, size_t)
{
	*n = 1;
	return cudaSuccess;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* How src/cuda launches its kernels, on fibres: as far as lines do. */
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
	};

	fibres_enqueue(config->stream, &l);
	return cudaSuccess;
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

/* SPDX-License-Identifier: Apache-2.0 */
/* See cuda_memory.h. */
#include "cuda_memory.h"

cudaError_t ferry_cuda_take(void **p, size_t bytes, cudaStream_t stream)
{
	cudaError_t error = cudaMallocAsync(p, bytes, stream);

	if (error != cudaSuccess)
		return error;
	error = cudaMemsetAsync(*p, 0, bytes, stream);
	if (error == cudaSuccess)
		error = cudaStreamSynchronize(stream);
	if (error != cudaSuccess) {
		ferry_cuda_give(*p, stream);
		*p = NULL;
	}
	return error;
}

void ferry_cuda_give(void *p, cudaStream_t stream)
{
	if (p)
		(void)cudaFreeAsync(p, stream);
}

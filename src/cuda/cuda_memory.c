/* SPDX-License-Identifier: Apache-2.0 */
/* See cuda_memory.h. */
#include "cuda_memory.h"

#include <string.h>

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

static cudaError_t open_pool(cudaMemPool_t *pool, int device)
{
	const struct cudaMemPoolProps props = {
		.allocType = cudaMemAllocationTypePinned,
		.location = {.type = cudaMemLocationTypeHost},
	};
	const struct cudaMemAccessDesc access = {
		.location = {.type = cudaMemLocationTypeDevice, .id = device},
		.flags = cudaMemAccessFlagsProtReadWrite,
	};
	cudaError_t error = cudaMemPoolCreate(pool, &props);

	if (error == cudaSuccess)
		error = cudaMemPoolSetAccess(*pool, &access, 1);
	return error;
}

cudaError_t ferry_cuda_pin(struct cuda_pinned *pinned, size_t bytes, int device,
                           cudaStream_t stream)
{
	cudaError_t error;

	pinned->pool = NULL;
	pinned->p = NULL;
	error = open_pool(&pinned->pool, device);
	if (error == cudaSuccess)
		error = cudaMallocFromPoolAsync(&pinned->p, bytes, pinned->pool,
		                                stream);
	if (error == cudaSuccess)
		error = cudaStreamSynchronize(stream);
	if (error == cudaSuccess)
		memset(pinned->p, 0, bytes);
	else
		ferry_cuda_unpin(pinned, stream);
	return error;
}

void ferry_cuda_unpin(struct cuda_pinned *pinned, cudaStream_t stream)
{
	ferry_cuda_give(pinned->p, stream);
	if (pinned->pool)
		(void)cudaMemPoolDestroy(pinned->pool);
	pinned->p = NULL;
	pinned->pool = NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* See cuda_memory.h. */
#include "cuda_memory.h"

#include <stdint.h>
#include <string.h>

#include "../core/bits.h"

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

/* Maps whole pages; the mapping keeps them. */
static CUresult map_pages(const struct ferry_gpu *gpu,
                          const CUmemAllocationProp *prop, CUdeviceptr at,
                          size_t bytes)
{
	const struct ferry_cuda_driver *driver = &gpu->driver;
	const CUmemAccessDesc access[2] = {
		{.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
	                      .id = gpu->device},
	         .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
		{.location = prop->location,
	         .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
	};
	CUmemGenericAllocationHandle handle;
	CUresult result = driver->MemCreate(&handle, bytes, prop, 0);

	if (result != CUDA_SUCCESS)
		return result;
	result = driver->MemMap(at, bytes, 0, handle, 0);
	(void)driver->MemRelease(handle);
	if (result != CUDA_SUCCESS)
		return result;
	result = driver->MemSetAccess(at, bytes, access, 2);
	if (result != CUDA_SUCCESS)
		(void)driver->MemUnmap(at, bytes);
	return result;
}

static CUresult pin(const struct ferry_gpu *gpu, struct cuda_pinned *pinned,
                    size_t bytes)
{
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_HOST},
	};
	CUdeviceptr at = 0;
	size_t page = 0;
	CUresult result = gpu->driver.MemGetAllocationGranularity(
		&page, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);

	if (result != CUDA_SUCCESS)
		return result;
	bytes = round_up(bytes, page);
	result = gpu->driver.MemAddressReserve(&at, bytes, 0, 0, 0);
	if (result != CUDA_SUCCESS)
		return result;
	result = map_pages(gpu, &prop, at, bytes);
	if (result != CUDA_SUCCESS) {
		(void)gpu->driver.MemAddressFree(at, bytes);
		return result;
	}
	pinned->p = (void *)(uintptr_t)at;
	pinned->bytes = bytes;
	memset(pinned->p, 0, bytes);
	return result;
}

/* Errors of the driver have the numbers of the runtime's. */
cudaError_t ferry_cuda_pin(const struct ferry_gpu *gpu,
                           struct cuda_pinned *pinned, size_t bytes)
{
	return (cudaError_t)pin(gpu, pinned, bytes);
}

void ferry_cuda_unpin(const struct ferry_gpu *gpu, struct cuda_pinned *pinned)
{
	const CUdeviceptr at = (CUdeviceptr)(uintptr_t)pinned->p;

	if (!at)
		return;
	(void)gpu->driver.MemUnmap(at, pinned->bytes);
	(void)gpu->driver.MemAddressFree(at, pinned->bytes);
	pinned->p = NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a GPU that others map: physical pages and addresses apart (CUDA's
 * virtual memory management). The driver counts who has the pages, so that
 * neither a close nor a crash takes them from under somebody's stores. Also
 * the copies of the host.
 */
#include <stdint.h>
#include <stdlib.h>

#include "../core/bits.h"
#include "cuda_call.h"

struct ferry_gpu_memory {
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address; /* 0: not mapped */
	size_t bytes;
	bool is_mapped;
};

static CUmemLocation location(const struct ferry_gpu *gpu)
{
	return (CUmemLocation){
		.type = CU_MEM_LOCATION_TYPE_DEVICE,
		.id = gpu->device,
	};
}

static CUmemAllocationProp properties(const struct ferry_gpu *gpu)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes =
			CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = location(gpu),
	};
}

static enum ferry_status granularity(struct ferry_ctx *ctx,
                                     const struct ferry_gpu *gpu, size_t *bytes)
{
	const CUmemAllocationProp prop = properties(gpu);
	const CUresult result = gpu->driver.MemGetAllocationGranularity(
		bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);

	if (result == CUDA_SUCCESS)
		return FERRY_OK;
	return ferry_cuda_fail(ctx, (cudaError_t)result,
	                       "p2p: granularity of memory of GPU %d",
	                       gpu->device);
}

/* Lets kernels and copies of this GPU, and of no other, use the addresses. */
static CUresult grant(const struct ferry_gpu *gpu,
                      const struct ferry_gpu_memory *memory)
{
	const CUmemAccessDesc access = {
		.location = location(gpu),
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};

	return gpu->driver.MemSetAccess(memory->address, memory->bytes, &access,
	                                1);
}

/* Gives the pages of memory->handle an address. */
static CUresult map(const struct ferry_gpu *gpu,
                    struct ferry_gpu_memory *memory)
{
	CUresult result = gpu->driver.MemAddressReserve(&memory->address,
	                                                memory->bytes, 0, 0, 0);

	if (result != CUDA_SUCCESS)
		return result;
	result = gpu->driver.MemMap(memory->address, memory->bytes, 0,
	                            memory->handle, 0);
	if (result != CUDA_SUCCESS)
		return result;
	memory->is_mapped = true;
	return grant(gpu, memory);
}

static void unmap(const struct ferry_gpu *gpu, struct ferry_gpu_memory *memory)
{
	if (memory->is_mapped)
		(void)gpu->driver.MemUnmap(memory->address, memory->bytes);
	if (memory->address)
		(void)gpu->driver.MemAddressFree(memory->address,
		                                 memory->bytes);
	(void)gpu->driver.MemRelease(memory->handle);
	free(memory);
}

void ferry_gpu_free(const struct ferry_gpu *gpu,
                    struct ferry_gpu_memory *memory)
{
	struct ferry_cuda_scope scope;

	if (!memory || ferry_cuda_enter(NULL, gpu, &scope) != FERRY_OK)
		return;
	unmap(gpu, memory);
	ferry_cuda_leave(&scope);
}

/*
 * Zeroes, and waits for that alone: the device may be busy with kernels that
 * wait for this rank's peers.
 */
static cudaError_t zero(const struct ferry_gpu *gpu,
                        const struct ferry_gpu_memory *memory)
{
	cudaError_t error = cudaMemsetAsync(ferry_gpu_address(memory), 0,
	                                    memory->bytes, gpu->stream);

	if (error != cudaSuccess)
		return error;
	return cudaStreamSynchronize(gpu->stream);
}

static enum ferry_status alloc(struct ferry_ctx *ctx,
                               const struct ferry_gpu *gpu, size_t bytes,
                               struct ferry_gpu_memory **memory)
{
	const CUmemAllocationProp prop = properties(gpu);
	struct ferry_gpu_memory *m = calloc(1, sizeof(*m));
	cudaError_t error;
	size_t grain;

	if (!m)
		return ferry_fail(ctx, FERRY_NOMEM, "p2p: record of a memory");
	const enum ferry_status status = granularity(ctx, gpu, &grain);

	if (status != FERRY_OK) {
		free(m);
		return status;
	}
	m->bytes = round_up(bytes, grain);
	error = (cudaError_t)gpu->driver.MemCreate(&m->handle, m->bytes, &prop,
	                                           0);
	if (error != cudaSuccess) {
		free(m);
	} else {
		error = (cudaError_t)map(gpu, m);
		if (error == cudaSuccess)
			error = zero(gpu, m);
		if (error != cudaSuccess)
			unmap(gpu, m);
	}
	if (error != cudaSuccess)
		return ferry_cuda_fail(ctx, error, "p2p: %zu bytes on GPU %d",
		                       bytes, gpu->device);
	*memory = m;
	return FERRY_OK;
}

enum ferry_status ferry_gpu_alloc(struct ferry_ctx *ctx,
                                  const struct ferry_gpu *gpu, size_t bytes,
                                  struct ferry_gpu_memory **memory)
{
	struct ferry_cuda_scope scope;

	FERRY_TRY(ferry_cuda_enter(ctx, gpu, &scope));
	const enum ferry_status status = alloc(ctx, gpu, bytes, memory);

	ferry_cuda_leave(&scope);
	return status;
}

enum ferry_status ferry_gpu_export(struct ferry_ctx *ctx,
                                   const struct ferry_gpu *gpu,
                                   const struct ferry_gpu_memory *memory,
                                   int *fd)
{
	const CUresult result = gpu->driver.MemExportToShareableHandle(
		fd, memory->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		0);

	if (result == CUDA_SUCCESS)
		return FERRY_OK;
	return ferry_cuda_fail(ctx, (cudaError_t)result,
	                       "p2p: a descriptor of memory of GPU %d",
	                       gpu->device);
}

static enum ferry_status import(struct ferry_ctx *ctx,
                                const struct ferry_gpu *gpu, int32_t rank,
                                int fd, struct ferry_gpu_memory *m)
{
	/* The driver wants the number of the descriptor for a pointer. */
	CUresult result = gpu->driver.MemImportFromShareableHandle(
		&m->handle, (void *)(intptr_t)fd,
		CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

	if (result != CUDA_SUCCESS) {
		free(m);
	} else {
		result = map(gpu, m);
		if (result != CUDA_SUCCESS)
			unmap(gpu, m);
	}
	if (result == CUDA_SUCCESS)
		return FERRY_OK;
	return ferry_cuda_fail(ctx, (cudaError_t)result,
	                       "p2p: GPU %d cannot map the memory of rank %d",
	                       gpu->device, rank);
}

enum ferry_status ferry_gpu_import(struct ferry_ctx *ctx,
                                   const struct ferry_gpu *gpu, int32_t rank,
                                   int fd, size_t bytes,
                                   struct ferry_gpu_memory **memory)
{
	struct ferry_gpu_memory *m = calloc(1, sizeof(*m));
	struct ferry_cuda_scope scope;
	enum ferry_status status;

	if (!m)
		return ferry_fail(ctx, FERRY_NOMEM, "p2p: record of a memory");
	m->bytes = bytes;
	status = ferry_cuda_enter(ctx, gpu, &scope);
	if (status != FERRY_OK) {
		free(m);
		return status;
	}
	status = import(ctx, gpu, rank, fd, m);
	ferry_cuda_leave(&scope);
	if (status == FERRY_OK)
		*memory = m;
	return status;
}

enum ferry_status ferry_gpu_share(struct ferry_ctx *ctx,
                                  const struct ferry_gpu *gpu, int32_t rank,
                                  struct ferry_gpu_memory *memory)
{
	struct ferry_cuda_scope scope;

	FERRY_TRY(ferry_cuda_enter(ctx, gpu, &scope));
	const CUresult result = grant(gpu, memory);

	ferry_cuda_leave(&scope);
	if (result == CUDA_SUCCESS)
		return FERRY_OK;
	return ferry_cuda_fail(ctx, (cudaError_t)result,
	                       "p2p: GPU %d cannot use the memory of rank %d",
	                       gpu->device, rank);
}

void *ferry_gpu_address(const struct ferry_gpu_memory *memory)
{
	return (void *)(uintptr_t)memory->address;
}

size_t ferry_gpu_bytes(const struct ferry_gpu_memory *memory)
{
	return memory->bytes;
}

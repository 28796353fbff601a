/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a GPU that others map: physical pages and addresses apart (CUDA's
 * virtual memory management). The driver counts who has the pages, so that
 * neither a close nor a crash takes them from under somebody's stores. Also
 * memory of the host, made the same way.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../core/bits.h"
#include "cuda_call.h"

struct ferry_gpu_memory {
	CUmemGenericAllocationHandle handle; /* 0: no pages */
	CUdeviceptr address;                 /* 0: not mapped */
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

/* Whose pages. */
enum where { ON_GPU, ON_GPU_FOR_NICS, ON_HOST };

static CUmemAllocationProp properties(const struct ferry_gpu *gpu,
                                      enum where where)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes =
			CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = location(gpu),
		.allocFlags.gpuDirectRDMACapable = where == ON_GPU_FOR_NICS,
	};
}

bool ferry_gpu_has_host_memory(const struct ferry_gpu *gpu)
{
	return ferry_cuda_attribute(
		gpu,
		CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
}

/* Of the node nearest to the GPU: -1 where the system knows of none. */
static CUmemAllocationProp host_properties(const struct ferry_gpu *gpu)
{
	const int node =
		ferry_cuda_attribute(gpu, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_HOST},
	};

	if (ferry_gpu_has_host_memory(gpu))
		prop.location = (CUmemLocation){
			.type = CU_MEM_LOCATION_TYPE_HOST_NUMA,
			.id = node < 0 ? 0 : node,
		};
	return prop;
}

/* Lets whoever is at `where`, and nobody else yet, use the addresses. */
static CUresult grant(const struct ferry_gpu *gpu,
                      const struct ferry_gpu_memory *memory,
                      CUmemLocation where)
{
	const CUmemAccessDesc access = {
		.location = where,
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};

	return gpu->driver.MemSetAccess(memory->address, memory->bytes, &access,
	                                1);
}

/* Gives the pages of memory->handle an address, for this GPU. */
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
	return grant(gpu, memory, location(gpu));
}

/* As far as it was made. */
static void unmap(const struct ferry_gpu *gpu, struct ferry_gpu_memory *memory)
{
	if (memory->is_mapped)
		(void)gpu->driver.MemUnmap(memory->address, memory->bytes);
	if (memory->address)
		(void)gpu->driver.MemAddressFree(memory->address,
		                                 memory->bytes);
	if (memory->handle)
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

/* Pages with an address; what was made is there also when it fails. */
static cudaError_t make(const struct ferry_gpu *gpu,
                        const CUmemAllocationProp *prop, size_t bytes,
                        struct ferry_gpu_memory *m)
{
	size_t grain;
	CUresult result = gpu->driver.MemGetAllocationGranularity(
		&grain, prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);

	if (result != CUDA_SUCCESS)
		return (cudaError_t)result;
	m->bytes = round_up(bytes, grain);
	result = gpu->driver.MemCreate(&m->handle, m->bytes, prop, 0);
	if (result == CUDA_SUCCESS)
		result = map(gpu, m);
	return (cudaError_t)result;
}

static cudaError_t make_on_gpu(const struct ferry_gpu *gpu, size_t bytes,
                               enum where where, struct ferry_gpu_memory *m)
{
	const CUmemAllocationProp prop = properties(gpu, where);
	const cudaError_t error = make(gpu, &prop, bytes, m);

	return error == cudaSuccess ? zero(gpu, m) : error;
}

static cudaError_t make_on_host(const struct ferry_gpu *gpu, size_t bytes,
                                struct ferry_gpu_memory *m)
{
	const CUmemAllocationProp prop = host_properties(gpu);
	cudaError_t error = make(gpu, &prop, bytes, m);

	if (error == cudaSuccess)
		error = (cudaError_t)grant(gpu, m, prop.location);
	if (error == cudaSuccess)
		memset(ferry_gpu_address(m), 0, m->bytes);
	return error;
}

static enum ferry_status alloc(struct ferry_ctx *ctx,
                               const struct ferry_gpu *gpu, size_t bytes,
                               enum where where,
                               struct ferry_gpu_memory **memory)
{
	struct ferry_gpu_memory *m = calloc(1, sizeof(*m));

	if (!m)
		return ferry_fail(ctx, FERRY_NOMEM, "p2p: record of a memory");
	const cudaError_t error = where == ON_HOST
	                                  ? make_on_host(gpu, bytes, m)
	                                  : make_on_gpu(gpu, bytes, where, m);

	if (error == cudaSuccess) {
		*memory = m;
		return FERRY_OK;
	}
	unmap(gpu, m);
	return ferry_cuda_fail(ctx, error, "p2p: %zu bytes %s GPU %d", bytes,
	                       where == ON_HOST ? "of the host for" : "on",
	                       gpu->device);
}

static enum ferry_status alloc_within(struct ferry_ctx *ctx,
                                      const struct ferry_gpu *gpu, size_t bytes,
                                      enum where where,
                                      struct ferry_gpu_memory **memory)
{
	struct ferry_cuda_scope scope;

	FERRY_TRY(ferry_cuda_enter(ctx, gpu, &scope));
	const enum ferry_status status = alloc(ctx, gpu, bytes, where, memory);

	ferry_cuda_leave(&scope);
	return status;
}

enum ferry_status ferry_gpu_alloc(struct ferry_ctx *ctx,
                                  const struct ferry_gpu *gpu, size_t bytes,
                                  struct ferry_gpu_memory **memory)
{
	return alloc_within(ctx, gpu, bytes, ON_GPU, memory);
}

enum ferry_status ferry_gpu_alloc_rdma(struct ferry_ctx *ctx,
                                       const struct ferry_gpu *gpu,
                                       size_t bytes,
                                       struct ferry_gpu_memory **memory)
{
	return alloc_within(ctx, gpu, bytes, ON_GPU_FOR_NICS, memory);
}

enum ferry_status ferry_gpu_alloc_host(struct ferry_ctx *ctx,
                                       const struct ferry_gpu *gpu,
                                       size_t bytes,
                                       struct ferry_gpu_memory **memory)
{
	return alloc_within(ctx, gpu, bytes, ON_HOST, memory);
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

	if (result == CUDA_SUCCESS)
		result = map(gpu, m);
	if (result == CUDA_SUCCESS)
		return FERRY_OK;
	unmap(gpu, m);
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
	const CUresult result = grant(gpu, memory, location(gpu));

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

/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.h in a build without CUDA: there is no GPU. */
#include "gpu.h"

#include <stdio.h>
#include <string.h>

int32_t ferry_gpu_sighted(char reason[FERRY_GPU_REASON_BYTES])
{
	snprintf(reason, FERRY_GPU_REASON_BYTES, "built without CUDA");
	return 0;
}

enum ferry_status ferry_gpu_open(struct ferry_ctx *ctx, int32_t cuda_device,
                                 struct ferry_gpu **gpu)
{
	(void)cuda_device;
	(void)gpu;
	return ferry_fail(ctx, FERRY_UNSUPPORTED,
	                  "world_open: a CUDA world is asked for, and this "
	                  "ferry was built without CUDA");
}

void ferry_gpu_close(struct ferry_gpu *gpu)
{
	(void)gpu;
}

int32_t ferry_gpu_ordinal(const struct ferry_gpu *gpu)
{
	(void)gpu;
	return -1;
}

int32_t ferry_gpu_compute(const struct ferry_gpu *gpu)
{
	(void)gpu;
	return 0;
}

void ferry_gpu_uuid(const struct ferry_gpu *gpu,
                    uint8_t uuid[FERRY_GPU_UUID_BYTES])
{
	(void)gpu;
	memset(uuid, 0, FERRY_GPU_UUID_BYTES);
}

void ferry_gpu_pci(const struct ferry_gpu *gpu, char pci[FERRY_GPU_PCI_BYTES])
{
	(void)gpu;
	pci[0] = 0;
}

void ferry_gpu_within(const struct ferry_gpu *gpu, void (*call)(void *arg),
                      void *arg)
{
	(void)gpu;
	call(arg);
}

uint32_t ferry_gpu_reach(const struct ferry_gpu *gpu,
                         const uint8_t uuid[FERRY_GPU_UUID_BYTES],
                         char reason[FERRY_GPU_REASON_BYTES])
{
	(void)gpu;
	(void)uuid;
	snprintf(reason, FERRY_GPU_REASON_BYTES, "built without CUDA");
	return 0;
}

/* Nobody gets here, since there is no struct ferry_gpu. */
static enum ferry_status none(struct ferry_ctx *ctx)
{
	return ferry_fail(ctx, FERRY_UNSUPPORTED, "p2p: built without CUDA");
}

enum ferry_status ferry_gpu_alloc(struct ferry_ctx *ctx,
                                  const struct ferry_gpu *gpu, size_t bytes,
                                  struct ferry_gpu_memory **memory)
{
	(void)gpu;
	(void)bytes;
	(void)memory;
	return none(ctx);
}

enum ferry_status ferry_gpu_alloc_host(struct ferry_ctx *ctx,
                                       const struct ferry_gpu *gpu,
                                       size_t bytes,
                                       struct ferry_gpu_memory **memory)
{
	return ferry_gpu_alloc(ctx, gpu, bytes, memory);
}

bool ferry_gpu_takes_rdma(const struct ferry_gpu *gpu,
                          char reason[FERRY_GPU_REASON_BYTES])
{
	(void)gpu;
	snprintf(reason, FERRY_GPU_REASON_BYTES, "built without CUDA");
	return false;
}

enum ferry_status ferry_gpu_alloc_rdma(struct ferry_ctx *ctx,
                                       const struct ferry_gpu *gpu,
                                       size_t bytes,
                                       struct ferry_gpu_memory **memory)
{
	return ferry_gpu_alloc(ctx, gpu, bytes, memory);
}

bool ferry_gpu_has_host_memory(const struct ferry_gpu *gpu)
{
	(void)gpu;
	return false;
}

enum ferry_status ferry_gpu_export(struct ferry_ctx *ctx,
                                   const struct ferry_gpu *gpu,
                                   const struct ferry_gpu_memory *memory,
                                   int *fd)
{
	(void)gpu;
	(void)memory;
	(void)fd;
	return none(ctx);
}

enum ferry_status ferry_gpu_import(struct ferry_ctx *ctx,
                                   const struct ferry_gpu *gpu, int32_t rank,
                                   int fd, size_t bytes,
                                   struct ferry_gpu_memory **memory)
{
	(void)gpu;
	(void)rank;
	(void)fd;
	(void)bytes;
	(void)memory;
	return none(ctx);
}

enum ferry_status ferry_gpu_share(struct ferry_ctx *ctx,
                                  const struct ferry_gpu *gpu, int32_t rank,
                                  struct ferry_gpu_memory *memory)
{
	(void)gpu;
	(void)rank;
	(void)memory;
	return none(ctx);
}

void *ferry_gpu_address(const struct ferry_gpu_memory *memory)
{
	(void)memory;
	return NULL;
}

size_t ferry_gpu_bytes(const struct ferry_gpu_memory *memory)
{
	(void)memory;
	return 0;
}

void ferry_gpu_free(const struct ferry_gpu *gpu,
                    struct ferry_gpu_memory *memory)
{
	(void)gpu;
	(void)memory;
}

enum ferry_status ferry_gpu_copy(struct ferry_ctx *ctx, struct ferry_gpu *gpu,
                                 void *to, const void *from, size_t bytes,
                                 void (*done)(void *arg), void *arg)
{
	(void)gpu;
	(void)to;
	(void)from;
	(void)bytes;
	(void)done;
	(void)arg;
	return none(ctx);
}

bool ferry_gpu_failed(const struct ferry_gpu *gpu)
{
	(void)gpu;
	return true;
}

enum ferry_status ferry_gpu_copy_after(struct ferry_ctx *ctx,
                                       struct ferry_gpu *gpu,
                                       struct CUstream_st *stream)
{
	(void)gpu;
	(void)stream;
	return none(ctx);
}

enum ferry_status ferry_gpu_copy_on(struct ferry_ctx *ctx,
                                    const struct ferry_gpu *gpu, void *to,
                                    const void *from, size_t bytes,
                                    struct CUstream_st *stream)
{
	(void)gpu;
	(void)to;
	(void)from;
	(void)bytes;
	(void)stream;
	return none(ctx);
}

enum ferry_status ferry_gpu_mark(struct ferry_ctx *ctx,
                                 const struct ferry_gpu *gpu,
                                 struct CUstream_st *stream,
                                 struct CUevent_st **mark)
{
	(void)gpu;
	(void)stream;
	(void)mark;
	return none(ctx);
}

bool ferry_gpu_passed(const struct ferry_gpu *gpu, struct CUevent_st *mark)
{
	(void)gpu;
	(void)mark;
	return false;
}

void ferry_gpu_mark_free(const struct ferry_gpu *gpu, struct CUevent_st *mark)
{
	(void)gpu;
	(void)mark;
}

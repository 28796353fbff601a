/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What worlds and the fabric p2p need of a GPU: the device of this rank, memory
 * that peers map, copies. No CUDA header is needed to include this.
 * gpu_device.c, gpu_reach.c, gpu_memory.c and gpu_copy.c are the real one,
 * gpu_none.c stands for them in builds without CUDA, and tests put one of host
 * memory in their place.
 *
 * Every function leaves the current device of the calling thread as it was.
 */
#ifndef FERRY_GPU_H
#define FERRY_GPU_H

#include <stdbool.h>

#include "../core/ctx.h"

enum {
	FERRY_GPU_UUID_BYTES = 16,
	FERRY_GPU_REASON_BYTES = 160,
	FERRY_GPU_PCI_BYTES = 32,
};

/* A stream and an event of CUDA. */
struct CUstream_st;
struct CUevent_st;

/* The device of one rank. */
struct ferry_gpu;

/*
 * GPUs that this machine seems to have, and in reason why none, without
 * waking the driver: so a process may ask and fork afterwards.
 */
int32_t ferry_gpu_sighted(char reason[FERRY_GPU_REASON_BYTES]);

/*
 * Opens a device: its CUDA ordinal + 1, or 0 for the current one of the
 * thread. Errors: UNSUPPORTED (no GPU, no driver, no CUDA in this build, a
 * device that cannot share its memory), RANGE, CUDA, NOMEM.
 */
enum ferry_status ferry_gpu_open(struct ferry_ctx *ctx, int32_t cuda_device,
                                 struct ferry_gpu **gpu);
/* NULL is accepted. Its memories and queues are gone. */
void ferry_gpu_close(struct ferry_gpu *gpu);

int32_t ferry_gpu_ordinal(const struct ferry_gpu *gpu);
/* Compute capability, 90 for 9.0. */
int32_t ferry_gpu_compute(const struct ferry_gpu *gpu);
void ferry_gpu_uuid(const struct ferry_gpu *gpu,
                    uint8_t uuid[FERRY_GPU_UUID_BYTES]);
/* "0000:3b:00.0", as /sys has it; "" where it is not known. */
void ferry_gpu_pci(const struct ferry_gpu *gpu, char pci[FERRY_GPU_PCI_BYTES]);

/*
 * Calls call(arg) with this GPU as the current device of the thread, for
 * libraries that call CUDA themselves. NULL, or a GPU that has failed: with
 * whatever it has.
 */
void ferry_gpu_within(const struct ferry_gpu *gpu, void (*call)(void *arg),
                      void *arg);

/*
 * What kernels of this GPU can do to the memory of another: bits of enum
 * ferry_cap, DEVICE and NVLINK. 0: nothing, and reason says why.
 */
uint32_t ferry_gpu_reach(const struct ferry_gpu *gpu,
                         const uint8_t uuid[FERRY_GPU_UUID_BYTES],
                         char reason[FERRY_GPU_REASON_BYTES]);

/*
 * Memory of a GPU at an address of this process. It lives until all who have
 * mapped it, here and in other processes, have freed or died.
 */
struct ferry_gpu_memory;

/*
 * New memory, zeroed; nothing that was written to its pages before arrives
 * later. bytes is rounded up to what the GPU hands out. Errors: NOMEM, CUDA.
 */
enum ferry_status ferry_gpu_alloc(struct ferry_ctx *ctx,
                                  const struct ferry_gpu *gpu, size_t bytes,
                                  struct ferry_gpu_memory **memory);
/*
 * New memory of the host, zeroed, that kernels of this GPU use at the same
 * address. Neither this nor its ferry_gpu_free waits for kernels; to unregister
 * pages of the host waits for all of the process, and until it returns no
 * thread launches one (dev/cuda-host.md). Errors: NOMEM, CUDA.
 */
enum ferry_status ferry_gpu_alloc_host(struct ferry_ctx *ctx,
                                       const struct ferry_gpu *gpu,
                                       size_t bytes,
                                       struct ferry_gpu_memory **memory);
/* Is that promised for any size? Small ones are had where it is not, too. */
bool ferry_gpu_has_host_memory(const struct ferry_gpu *gpu);
/*
 * Can NICs read memory of this GPU, and write it so that kernels which run see
 * what had come before a word of the host that says so? False with the reason.
 */
bool ferry_gpu_takes_rdma(const struct ferry_gpu *gpu,
                          char reason[FERRY_GPU_REASON_BYTES]);
/* The same as ferry_gpu_alloc, of memory that NICs reach. */
enum ferry_status ferry_gpu_alloc_rdma(struct ferry_ctx *ctx,
                                       const struct ferry_gpu *gpu,
                                       size_t bytes,
                                       struct ferry_gpu_memory **memory);
/* A descriptor by which other processes can map it; to be closed. */
enum ferry_status ferry_gpu_export(struct ferry_ctx *ctx,
                                   const struct ferry_gpu *gpu,
                                   const struct ferry_gpu_memory *memory,
                                   int *fd);
/*
 * Maps memory of rank `rank` for this GPU alone. bytes as the owner's
 * ferry_gpu_bytes says. The descriptor stays the caller's.
 */
enum ferry_status ferry_gpu_import(struct ferry_ctx *ctx,
                                   const struct ferry_gpu *gpu, int32_t rank,
                                   int fd, size_t bytes,
                                   struct ferry_gpu_memory **memory);
/*
 * Lets this GPU use memory of another one, of rank `rank`, a thread of the
 * same process; once for each GPU.
 */
enum ferry_status ferry_gpu_share(struct ferry_ctx *ctx,
                                  const struct ferry_gpu *gpu, int32_t rank,
                                  struct ferry_gpu_memory *memory);
void *ferry_gpu_address(const struct ferry_gpu_memory *memory);
size_t ferry_gpu_bytes(const struct ferry_gpu_memory *memory);
/*
 * Unmaps it, by a GPU of this process. No kernel and no copy of this process
 * may use it any more.
 */
void ferry_gpu_free(const struct ferry_gpu *gpu,
                    struct ferry_gpu_memory *memory);

/*
 * Copies bytes (0: none) and then calls done(arg), in a thread of its own that
 * must not call CUDA. All copies of a GPU's struct are done in their order.
 * Returns when the copy is queued.
 */
enum ferry_status ferry_gpu_copy(struct ferry_ctx *ctx, struct ferry_gpu *gpu,
                                 void *to, const void *from, size_t bytes,
                                 void (*done)(void *arg), void *arg);
/*
 * Copies that are queued from here on wait for what a stream of the caller's
 * has now. Errors: INVAL (it is being captured), CUDA.
 */
enum ferry_status ferry_gpu_copy_after(struct ferry_ctx *ctx,
                                       struct ferry_gpu *gpu,
                                       struct CUstream_st *stream);
/* Copies within the GPU, in the order of such a stream. Errors: CUDA. */
enum ferry_status ferry_gpu_copy_on(struct ferry_ctx *ctx,
                                    const struct ferry_gpu *gpu, void *to,
                                    const void *from, size_t bytes,
                                    struct CUstream_st *stream);
/*
 * Marks what such a stream has now; *mark is made where it is NULL, and is an
 * event of CUDA. Errors: INVAL (it is being captured), CUDA.
 */
enum ferry_status ferry_gpu_mark(struct ferry_ctx *ctx,
                                 const struct ferry_gpu *gpu,
                                 struct CUstream_st *stream,
                                 struct CUevent_st **mark);
/* Is all that was marked over? Does not wait; a GPU that failed: false. */
bool ferry_gpu_passed(const struct ferry_gpu *gpu, struct CUevent_st *mark);
/* NULL is accepted. */
void ferry_gpu_mark_free(const struct ferry_gpu *gpu, struct CUevent_st *mark);
/* Has the GPU failed, so that what was queued will never be done? */
bool ferry_gpu_failed(const struct ferry_gpu *gpu);

#endif

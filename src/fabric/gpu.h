/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What worlds and the fabric p2p need of a GPU: the device of this rank, memory
 * that peers map, copies. No CUDA header is needed to include this.
 * gpu_device.c, gpu_memory.c and gpu_copy.c are the real one, gpu_none.c
 * stands for them in builds without CUDA, and tests put one of host memory in
 * their place.
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
};

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

#endif

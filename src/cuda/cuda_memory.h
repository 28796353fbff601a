/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a channel on the device. It is taken and given back on a stream of
 * the channel, never by cudaMalloc and cudaFree: cudaFree and
 * cudaFreeHost wait for every kernel of the process, and until they return no
 * other thread can launch one. A kernel that waits for a rank of the same
 * process would then wait for its whole timeout (two H200s, CUDA 13.0,
 * 2026-11: with a kernel that spins for 2 s, both take 2 s, and so does any
 * launch meanwhile; cudaFreeAsync 20 us). Pinned memory is
 * ferry_gpu_alloc_host's, for the same reason.
 */
#ifndef FERRY_CUDA_MEMORY_H
#define FERRY_CUDA_MEMORY_H

#include <stddef.h>

#include "../fabric/cuda_call.h"

/* Zeroed memory of the current device; ready when it returns. */
cudaError_t ferry_cuda_take(void **p, size_t bytes, cudaStream_t stream);
/* What runs on the stream may still use it. NULL is accepted. */
void ferry_cuda_give(void *p, cudaStream_t stream);

#endif

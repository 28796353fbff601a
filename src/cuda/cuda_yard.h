/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Yardsticks of a GPU, for the tools: how fast it copies, how fast it stores
 * into a peer's memory, and time that passes as other work. Nothing here is
 * used by an engine. CUDA errors come back as numbers (cudaError_t).
 */
#ifndef FERRY_CUDA_YARD_H
#define FERRY_CUDA_YARD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/* Stores `bytes`, a multiple of 16, to `to`: own memory or a peer's. */
int ferry_cuda_yard_store(void *to, size_t bytes, struct CUstream_st *stream);

/* Reads and writes `bytes`, a multiple of 16, with all multiprocessors. */
int ferry_cuda_yard_copy(void *to, const void *from, size_t bytes,
                         struct CUstream_st *stream);

/* Every multiprocessor is busy for about `ns`, and moves nothing. */
int ferry_cuda_yard_spin(uint64_t ns, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif
#endif

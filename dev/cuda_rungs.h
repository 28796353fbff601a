/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels by name: those of the library, and rungs beside them, which have not
 * replaced them: cuda_rung.cu, which dev/cuda-bulk.md tells about.
 */
#ifndef CUDA_RUNGS_H
#define CUDA_RUNGS_H

#include <stdbool.h>

#include "cuda_harness.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bulk dispatch: quantising with loads in flight; a ring that never runs dry;
 * both; both, and 16 blocks that send instead of 33. */
extern const struct ferry_cuda_dispatch_ops rung_ahead, rung_stream, rung_both,
	rung_few;

#ifdef __cplusplus
}
#endif

/* lines, chunks, ahead, stream, both, few. False: no such name. */
bool rungs_find(const char *name, struct harness_kernels *kernels);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels as the host sees them: one table for each of dispatch and
 * combine on each path. CUDA errors come back as numbers (cudaError_t); the
 * engine words them.
 */
#ifndef FERRY_CUDA_KERNELS_H
#define FERRY_CUDA_KERNELS_H

#include "cuda_args.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/* What a kernel of this channel occupies. */
struct ferry_cuda_fit {
	int32_t threads;     /* of a block */
	int32_t smem_bytes;  /* dynamic shared memory of a block */
	int32_t ctas_per_sm; /* that can be resident at once */
};

struct ferry_cuda_dispatch_ops {
	/* Can it serve this channel? NULL, or the reason why not. */
	const char *(*refuse)(const struct ferry_cuda_channel *ch);
	/* Bytes of ferry_cuda_op.scratch that it wants for `ctas` blocks. */
	size_t (*scratch_bytes)(const struct ferry_cuda_channel *ch,
	                        int32_t ctas);
	/* Loads all kernels of the path, on the current device. */
	int (*load)(void);
	/* What those occupy that this channel may launch; they are loaded. */
	int (*measure)(const struct ferry_cuda_channel *ch,
	               struct ferry_cuda_fit *fit);
	/*
	 * Enqueues one kernel of at most `ctas` blocks, which are resident
	 * together with all that the engine has planned for.
	 */
	int (*launch)(const struct ferry_cuda_dispatch *args, int32_t ctas,
	              struct CUstream_st *stream);
};

struct ferry_cuda_combine_ops {
	const char *(*refuse)(const struct ferry_cuda_channel *ch);
	size_t (*scratch_bytes)(const struct ferry_cuda_channel *ch,
	                        int32_t ctas);
	int (*load)(void);
	int (*measure)(const struct ferry_cuda_channel *ch,
	               struct ferry_cuda_fit *fit);
	int (*launch)(const struct ferry_cuda_combine *args, int32_t ctas,
	              struct CUstream_st *stream);
};

extern const struct ferry_cuda_dispatch_ops ferry_cuda_dispatch_lines;
extern const struct ferry_cuda_dispatch_ops ferry_cuda_dispatch_chunks;
extern const struct ferry_cuda_combine_ops ferry_cuda_combine_lines;
extern const struct ferry_cuda_combine_ops ferry_cuda_combine_chunks;
/* Chunks, where some ranks are reached over a network only. */
extern const struct ferry_cuda_dispatch_ops ferry_cuda_dispatch_net;
extern const struct ferry_cuda_combine_ops ferry_cuda_combine_net;

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rung of bulk dispatch: the kernel of src/cuda/dispatch_chunks.cu with parts
 * of it exchanged, compiled once for each rung. Given by the build:
 *
 *	RUNG_NAME     of its table
 *	RUNG_AHEAD    quantising with loads in flight
 *	RUNG_STREAM   the sender whose ring never runs dry
 *	RUNG_SENDERS  blocks that send, at most
 */
#include "cuda_rung_ahead.cuh"

#if RUNG_AHEAD
#define quantize_part quantize_ahead
#endif
#include "cuda_rung_stream.cuh"
#if RUNG_STREAM
#define send_queue send_stream
#endif
#define CHUNKS_SENDERS             RUNG_SENDERS
#define ferry_cuda_dispatch_chunks RUNG_NAME

#include "cuda/dispatch_chunks.cu"

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA's host functions on fibres, and an operation's memory by them, without
 * the pools of src/cuda/cuda_memory.c.
 */
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "cuda/cuda_channel.h"
#include "fibres.h"

cudaError_t fibre_malloc(void **p, size_t bytes)
{
	/* Exactly so many bytes, for AddressSanitizer. */
	return posix_memalign(p, 256, bytes) ? cudaErrorMemoryAllocation
	                                     : cudaSuccess;
}

cudaError_t fibre_free(void *p)
{
	fibres_run();
	free(p);
	return cudaSuccess;
}

cudaError_t fibre_memset(void *p, int value, size_t bytes)
{
	fibres_run();
	memset(p, value, bytes);
	return cudaSuccess;
}

cudaError_t fibre_memcpy(void *to, const void *from, size_t bytes)
{
	fibres_run();
	memcpy(to, from, bytes);
	return cudaSuccess;
}

cudaError_t fibre_device_pointer(void **p, void *host)
{
	*p = host;
	return cudaSuccess;
}

cudaError_t fibre_stream_create(cudaStream_t *stream)
{
	*stream = fibres_stream_open();
	return cudaSuccess;
}

cudaError_t fibre_stream_destroy(cudaStream_t stream)
{
	fibres_stream_close(stream);
	return cudaSuccess;
}

cudaError_t fibre_sync(void)
{
	fibres_run();
	return cudaSuccess;
}

int ferry_cuda_op_create(struct ferry_cuda_op *op,
                         const struct ferry_cuda_channel *channel,
                         size_t scratch_bytes, uint64_t first_epoch,
                         struct CUstream_st *stream)
{
	const size_t bytes = ferry_cuda_op_bytes(channel, scratch_bytes);
	void *base;

	(void)stream;
	if (cudaMalloc(&base, bytes))
		return cudaErrorMemoryAllocation;
	memset(base, 0, bytes);
	ferry_cuda_op_lay_out(op, channel, scratch_bytes, base);
	op->slot->epoch = first_epoch - 1;
	return cudaSuccess;
}

void ferry_cuda_op_destroy(struct ferry_cuda_op *op, struct CUstream_st *stream)
{
	(void)stream;
	cudaFree(op->slot);
	op->slot = NULL;
}

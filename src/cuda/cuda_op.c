/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory of an operation slot: one allocation, whole from the start. */
#include "cuda_channel.h"
#include "cuda_memory.h"

/* Where the first dispatch will find its epoch. */
static cudaError_t set_epoch(const struct ferry_cuda_op *op,
                             uint64_t first_epoch, cudaStream_t stream)
{
	const uint64_t before = first_epoch - 1;
	cudaError_t error =
		cudaMemcpyAsync(&op->slot->epoch, &before, sizeof(before),
	                        cudaMemcpyHostToDevice, stream);

	if (error == cudaSuccess)
		error = cudaStreamSynchronize(stream);
	return error;
}

int ferry_cuda_op_create(struct ferry_cuda_op *op,
                         const struct ferry_cuda_channel *channel,
                         size_t scratch_bytes, uint64_t first_epoch,
                         struct CUstream_st *stream)
{
	void *base = NULL;
	cudaError_t error = ferry_cuda_take(
		&base, ferry_cuda_op_bytes(channel, scratch_bytes), stream);

	if (error != cudaSuccess)
		return (int)error;
	ferry_cuda_op_lay_out(op, channel, scratch_bytes, base);
	error = set_epoch(op, first_epoch, stream);
	if (error != cudaSuccess)
		ferry_cuda_op_destroy(op, stream);
	return (int)error;
}

void ferry_cuda_op_destroy(struct ferry_cuda_op *op, struct CUstream_st *stream)
{
	ferry_cuda_give(op->slot, stream);
	op->slot = NULL;
}

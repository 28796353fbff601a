/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory of an operation slot: one allocation, whole from the start. */
#include <cuda_runtime_api.h>

#include "cuda_channel.h"

/* Zeroed, and where the first dispatch will find its epoch. */
static cudaError_t fill(const struct ferry_cuda_op *op, size_t bytes,
                        uint64_t first_epoch)
{
	const uint64_t before = first_epoch - 1;
	cudaError_t error = cudaMemset(op->slot, 0, bytes);

	if (error == cudaSuccess)
		error = cudaMemcpy(&op->slot->epoch, &before, sizeof(before),
		                   cudaMemcpyHostToDevice);
	return error;
}

int ferry_cuda_op_create(struct ferry_cuda_op *op,
                         const struct ferry_cuda_channel *channel,
                         size_t scratch_bytes, uint64_t first_epoch)
{
	const size_t bytes = ferry_cuda_op_bytes(channel, scratch_bytes);
	void *base = NULL;
	cudaError_t error = cudaMalloc(&base, bytes);

	if (error != cudaSuccess)
		return (int)error;
	ferry_cuda_op_lay_out(op, channel, scratch_bytes, base);
	error = fill(op, bytes, first_epoch);
	/* Neither of the above need have reached the device yet. */
	if (error == cudaSuccess)
		error = cudaDeviceSynchronize();
	if (error != cudaSuccess)
		ferry_cuda_op_destroy(op);
	return (int)error;
}

void ferry_cuda_op_destroy(struct ferry_cuda_op *op)
{
	if (op->slot)
		(void)cudaFree(op->slot);
	op->slot = NULL;
}

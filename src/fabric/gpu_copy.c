/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies that the host asks for, by the copy engine. A host function behind
 * each says that it is complete: unlike a query of an event that disturbs no
 * capture, and it needs neither a thread of our own nor further calls.
 */
#include "cuda_call.h"

enum ferry_status ferry_gpu_copy(struct ferry_ctx *ctx,
                                 const struct ferry_gpu *gpu, void *to,
                                 const void *from, size_t bytes,
                                 void (*done)(void *arg), void *arg)
{
	struct ferry_cuda_scope scope;
	cudaError_t error = cudaSuccess;

	FERRY_TRY(ferry_cuda_enter(ctx, gpu, &scope));
	if (bytes)
		error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault,
		                        gpu->stream);
	if (error == cudaSuccess)
		error = cudaLaunchHostFunc(gpu->stream, done, arg);
	ferry_cuda_leave(&scope);
	if (error == cudaSuccess)
		return FERRY_OK;
	return ferry_cuda_fail(ctx, error, "p2p: copy of %zu bytes by GPU %d",
	                       bytes, gpu->device);
}

bool ferry_gpu_failed(const struct ferry_gpu *gpu)
{
	struct ferry_cuda_scope scope;

	if (ferry_cuda_enter(NULL, gpu, &scope) != FERRY_OK)
		return true;
	const cudaError_t error = cudaStreamQuery(gpu->stream);

	(void)cudaGetLastError();
	ferry_cuda_leave(&scope);
	return error != cudaSuccess && error != cudaErrorNotReady;
}

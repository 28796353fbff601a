/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of the caller's: copies that wait for them or lie in them, and marks
 * that say when what they had is over. Nothing here waits.
 */
#include "cuda_call.h"

/* What is recorded in a capture is a node of a graph, and never over. */
static enum ferry_status check(struct ferry_ctx *ctx, cudaStream_t stream)
{
	enum cudaStreamCaptureStatus captures = cudaStreamCaptureStatusNone;
	const cudaError_t error = cudaStreamIsCapturing(stream, &captures);

	if (error != cudaSuccess)
		return ferry_cuda_fail(ctx, error, "p2p: the caller's stream");
	if (captures != cudaStreamCaptureStatusNone)
		return ferry_fail(ctx, FERRY_INVAL,
		                  "p2p: the caller's stream is being captured");
	return FERRY_OK;
}

static cudaError_t copy_after(struct ferry_gpu *gpu, cudaStream_t stream)
{
	cudaError_t error;

	pthread_mutex_lock(&gpu->lock);
	error = cudaEventRecord(gpu->copied, stream);
	if (error == cudaSuccess)
		error = cudaStreamWaitEvent(gpu->stream, gpu->copied, 0);
	pthread_mutex_unlock(&gpu->lock);
	return error;
}

enum ferry_status ferry_gpu_copy_after(struct ferry_ctx *ctx,
                                       struct ferry_gpu *gpu,
                                       struct CUstream_st *stream)
{
	struct ferry_cuda_scope scope;

	FERRY_TRY(ferry_cuda_enter(ctx, gpu, &scope));
	enum ferry_status status = check(ctx, stream);

	if (status == FERRY_OK) {
		const cudaError_t error = copy_after(gpu, stream);

		if (error != cudaSuccess)
			status = ferry_cuda_fail(ctx, error,
			                         "p2p: copies of GPU %d after "
			                         "the caller's stream",
			                         gpu->device);
	}
	ferry_cuda_leave(&scope);
	return status;
}

enum ferry_status ferry_gpu_copy_on(struct ferry_ctx *ctx,
                                    const struct ferry_gpu *gpu, void *to,
                                    const void *from, size_t bytes,
                                    struct CUstream_st *stream)
{
	struct ferry_cuda_scope scope;

	FERRY_TRY(ferry_cuda_enter(ctx, gpu, &scope));
	const cudaError_t error =
		cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);

	ferry_cuda_leave(&scope);
	if (error == cudaSuccess)
		return FERRY_OK;
	return ferry_cuda_fail(ctx, error, "p2p: copy of %zu bytes in GPU %d",
	                       bytes, gpu->device);
}

enum ferry_status ferry_gpu_mark(struct ferry_ctx *ctx,
                                 const struct ferry_gpu *gpu,
                                 struct CUstream_st *stream,
                                 struct CUevent_st **mark)
{
	struct ferry_cuda_scope scope;

	FERRY_TRY(ferry_cuda_enter(ctx, gpu, &scope));
	enum ferry_status status = check(ctx, stream);
	cudaError_t error = cudaSuccess;

	if (status == FERRY_OK && !*mark)
		error = cudaEventCreateWithFlags(mark, cudaEventDisableTiming);
	if (status == FERRY_OK && error == cudaSuccess)
		error = cudaEventRecord(*mark, stream);
	ferry_cuda_leave(&scope);
	if (error != cudaSuccess)
		return ferry_cuda_fail(ctx, error,
		                       "p2p: a mark in a stream of GPU %d",
		                       gpu->device);
	return status;
}

bool ferry_gpu_passed(const struct ferry_gpu *gpu, struct CUevent_st *mark)
{
	struct ferry_cuda_scope scope;

	if (ferry_cuda_enter(NULL, gpu, &scope) != FERRY_OK)
		return false;
	const cudaError_t error = cudaEventQuery(mark);

	(void)cudaGetLastError();
	ferry_cuda_leave(&scope);
	return error == cudaSuccess;
}

void ferry_gpu_mark_free(const struct ferry_gpu *gpu, struct CUevent_st *mark)
{
	struct ferry_cuda_scope scope;

	if (!mark || ferry_cuda_enter(NULL, gpu, &scope) != FERRY_OK)
		return;
	(void)cudaEventDestroy(mark);
	ferry_cuda_leave(&scope);
}

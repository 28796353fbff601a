/* SPDX-License-Identifier: Apache-2.0 */
/* See cuda_call.h. */
#include "cuda_call.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum ferry_status ferry_cuda_fail(struct ferry_ctx *ctx, cudaError_t error,
                                  const char *fmt, ...)
{
	char text[400];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	(void)cudaGetLastError();
	return ferry_fail(ctx,
	                  error == cudaErrorMemoryAllocation ? FERRY_NOMEM
	                                                     : FERRY_CUDA,
	                  "%s: %s (%s)", text, cudaGetErrorName(error),
	                  cudaGetErrorString(error));
}

/*
 * Contexts are pushed and popped, rather than devices set: a thread that has
 * none gets none, instead of one on GPU 0 that takes 500 MiB there.
 */
enum ferry_status ferry_cuda_enter(struct ferry_ctx *ctx,
                                   const struct ferry_gpu *gpu,
                                   struct ferry_cuda_scope *scope)
{
	CUresult result = gpu->driver.CtxPushCurrent(gpu->context);

	if (result != CUDA_SUCCESS)
		return ferry_cuda_fail(ctx, (cudaError_t)result,
		                       "making GPU %d current", gpu->device);
	scope->gpu = gpu;
	scope->mode = cudaStreamCaptureModeRelaxed;
	(void)cudaThreadExchangeStreamCaptureMode(&scope->mode);
	return FERRY_OK;
}

void ferry_cuda_leave(const struct ferry_cuda_scope *scope)
{
	enum cudaStreamCaptureMode mode = scope->mode;
	CUcontext context;

	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	(void)scope->gpu->driver.CtxPopCurrent(&context);
}

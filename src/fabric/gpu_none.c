/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.h in a build without CUDA: there is no GPU. */
#include "gpu.h"

#include <stdio.h>
#include <string.h>

int32_t ferry_gpu_sighted(char reason[FERRY_GPU_REASON_BYTES])
{
	snprintf(reason, FERRY_GPU_REASON_BYTES, "built without CUDA");
	return 0;
}

enum ferry_status ferry_gpu_open(struct ferry_ctx *ctx, int32_t cuda_device,
                                 struct ferry_gpu **gpu)
{
	(void)cuda_device;
	(void)gpu;
	return ferry_fail(ctx, FERRY_UNSUPPORTED,
	                  "world_open: a CUDA world is asked for, and this "
	                  "ferry was built without CUDA");
}

void ferry_gpu_close(struct ferry_gpu *gpu)
{
	(void)gpu;
}

int32_t ferry_gpu_ordinal(const struct ferry_gpu *gpu)
{
	(void)gpu;
	return -1;
}

int32_t ferry_gpu_compute(const struct ferry_gpu *gpu)
{
	(void)gpu;
	return 0;
}

void ferry_gpu_uuid(const struct ferry_gpu *gpu,
                    uint8_t uuid[FERRY_GPU_UUID_BYTES])
{
	(void)gpu;
	memset(uuid, 0, FERRY_GPU_UUID_BYTES);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPUs reach each other, and over what. */
#include <stdio.h>
#include <string.h>

#include <ferry/fabric.h>

#include "cuda_call.h"

/* Ordinal in this process; -1: CUDA_VISIBLE_DEVICES hides it. */
static int find(const struct ferry_gpu *gpu,
                const uint8_t uuid[FERRY_GPU_UUID_BYTES])
{
	CUuuid other;
	int n = 0;

	(void)cudaGetDeviceCount(&n);
	for (int i = 0; i < n; i++)
		if (gpu->driver.DeviceGetUuid(&other, i) == CUDA_SUCCESS &&
		    !memcmp(other.bytes, uuid, FERRY_GPU_UUID_BYTES))
			return i;
	return -1;
}

/* Only over NVLink does the hardware do atomics of one GPU on another. */
static bool has_nvlink(const struct ferry_gpu *gpu, int other)
{
	int atomics = 0;

	return cudaDeviceGetP2PAttribute(&atomics,
	                                 cudaDevP2PAttrNativeAtomicSupported,
	                                 gpu->device, other) == cudaSuccess &&
	       atomics;
}

uint32_t ferry_gpu_reach(const struct ferry_gpu *gpu,
                         const uint8_t uuid[FERRY_GPU_UUID_BYTES],
                         char reason[FERRY_GPU_REASON_BYTES])
{
	const int other = find(gpu, uuid);
	int can = 0;

	reason[0] = 0;
	if (other == gpu->device)
		return FERRY_CAP_DEVICE | FERRY_CAP_NVLINK;
	/* Hidden GPUs can be mapped all the same: then that is the trial. */
	if (other < 0)
		return FERRY_CAP_DEVICE;
	if (cudaDeviceCanAccessPeer(&can, gpu->device, other) != cudaSuccess)
		(void)cudaGetLastError();
	if (!can) {
		snprintf(reason, FERRY_GPU_REASON_BYTES,
		         "the driver grants no peer access from GPU %d to "
		         "GPU %d",
		         gpu->device, other);
		return 0;
	}
	return FERRY_CAP_DEVICE |
	       (has_nvlink(gpu, other) ? FERRY_CAP_NVLINK : 0);
}

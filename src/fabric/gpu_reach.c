/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPUs reach each other, and over what; and whether NICs reach them. */
#include <stdio.h>
#include <string.h>

#include <ferry/fabric.h>

#include "cuda_call.h"
#include "nvml_links.h"

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

bool ferry_cuda_has_atomics(int from, int to)
{
	int atomics = 0;
	const cudaError_t error = cudaDeviceGetP2PAttribute(
		&atomics, cudaDevP2PAttrNativeAtomicSupported, from, to);

	if (error != cudaSuccess)
		(void)cudaGetLastError();
	return error == cudaSuccess && atomics;
}

/*
 * A GPU that CUDA_VISIBLE_DEVICES hides can be mapped all the same: whether it
 * is reached shows then.
 */
static uint32_t reach_hidden(const struct ferry_gpu *gpu,
                             const uint8_t uuid[FERRY_GPU_UUID_BYTES])
{
	return FERRY_CAP_DEVICE |
	       (ferry_nvml_links(gpu->uuid, uuid) > 0 ? FERRY_CAP_NVLINK : 0);
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
	if (other < 0)
		return reach_hidden(gpu, uuid);
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
	       (ferry_cuda_has_atomics(gpu->device, other) ? FERRY_CAP_NVLINK
	                                                   : 0);
}

/*
 * Order: the NIC writes rows to the GPU and then its completion to the host,
 * which raises a counter there; a kernel reads the counter and then the rows.
 * A GPU whose order is less than OWNER would want a flush in between.
 */
bool ferry_gpu_takes_rdma(const struct ferry_gpu *gpu,
                          char reason[FERRY_GPU_REASON_BYTES])
{
	const char *lacks = NULL;

	if (!ferry_cuda_attribute(
		    gpu, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED) &&
	    !ferry_cuda_attribute(gpu, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED))
		lacks = "no GPUDirect RDMA";
	else if (
		!ferry_cuda_attribute(
			gpu,
			CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED))
		lacks = "no GPUDirect RDMA to memory of cuMemCreate";
	else if (ferry_cuda_attribute(
			 gpu,
			 CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) <
	         CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER)
		lacks = "no order among writes of NICs without a flush";
	if (lacks)
		snprintf(reason, FERRY_GPU_REASON_BYTES, "GPU %d has %s",
		         gpu->device, lacks);
	return !lacks;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_info.h with CUDA. Its twin without is cuda_none.c. */
#include <stdio.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "../fabric/nvml_links.h"
#include "cuda_info.h"

int32_t ferry_cuda_count(char reason[FERRY_CUDA_REASON_BYTES])
{
	int n = 0, driver = 0, runtime = 0;
	const cudaError_t error = cudaGetDeviceCount(&n);

	/* Versions answer without a driver too: 0. */
	cudaDriverGetVersion(&driver);
	cudaRuntimeGetVersion(&runtime);
	if (error != cudaSuccess || n == 0) {
		const char *why = driver == 0 ? "no NVIDIA driver is loaded"
		                  : error == cudaSuccess
		                          ? "the driver sees no GPU"
		                          : cudaGetErrorString(error);

		snprintf(reason, FERRY_CUDA_REASON_BYTES, "%s", why);
		return 0;
	}
	snprintf(reason, FERRY_CUDA_REASON_BYTES,
	         "CUDA driver %d.%d, runtime %d.%d", driver / 1000,
	         driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
	return n;
}

bool ferry_cuda_device_get(int32_t i, struct ferry_cuda_device *device)
{
	uint8_t uuid[FERRY_GPU_UUID_BYTES];
	struct cudaDeviceProp p;

	memset(device, 0, sizeof(*device));
	if (cudaGetDeviceProperties(&p, i) != cudaSuccess)
		return false;
	snprintf(device->name, sizeof(device->name), "%s", p.name);
	memcpy(uuid, p.uuid.bytes, sizeof(uuid));
	ferry_gpu_uuid_text(uuid, device->uuid);
	snprintf(device->pci, sizeof(device->pci), "%04x:%02x:%02x.0",
	         (unsigned)p.pciDomainID & 0xffff, (unsigned)p.pciBusID & 0xff,
	         (unsigned)p.pciDeviceID & 0xff);
	device->compute_major = p.major;
	device->compute_minor = p.minor;
	device->n_sms = p.multiProcessorCount;
	device->memory_bytes = p.totalGlobalMem;
	return true;
}

bool ferry_cuda_peer(int32_t from, int32_t to)
{
	int can = 0;

	if (from == to)
		return true;
	return cudaDeviceCanAccessPeer(&can, from, to) == cudaSuccess && can;
}

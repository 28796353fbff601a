/* SPDX-License-Identifier: Apache-2.0 */
/* The device of a rank: found, checked, its primary context kept. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_call.h"

/* "nvidia0", not "nvidiactl". */
static bool is_gpu_node(const char *name)
{
	return !strncmp(name, "nvidia", 6) && name[6] >= '0' && name[6] <= '9';
}

int32_t ferry_gpu_sighted(char reason[FERRY_GPU_REASON_BYTES])
{
	DIR *dir = opendir("/dev");
	struct dirent *entry;
	int32_t n = 0;

	while (dir && (entry = readdir(dir)))
		n += is_gpu_node(entry->d_name);
	if (dir)
		closedir(dir);
	if (n)
		snprintf(reason, FERRY_GPU_REASON_BYTES,
		         "for CUDA worlds on one host; %d GPU%s here", n,
		         n == 1 ? "" : "s");
	else
		snprintf(reason, FERRY_GPU_REASON_BYTES, "no GPU here");
	return n;
}

static enum ferry_status load(struct ferry_ctx *ctx, const char *name,
                              unsigned version, void *slot)
{
	enum cudaDriverEntryPointQueryResult found;
	void *function = NULL;
	cudaError_t error = cudaGetDriverEntryPointByVersion(
		name, &function, version, cudaEnableDefault, &found);

	if (error != cudaSuccess || !function)
		return ferry_cuda_fail(
			ctx, error, "world_open: the driver has no %s", name);
	memcpy(slot, &function, sizeof(function));
	return FERRY_OK;
}

static enum ferry_status load_all(struct ferry_ctx *ctx,
                                  struct ferry_cuda_driver *driver)
{
#define LOAD(name, version)                                                    \
	FERRY_TRY(load(ctx, "cu" #name, version, &driver->name));
	FERRY_CUDA_DRIVER_MAP(LOAD)
#undef LOAD
	return FERRY_OK;
}

/* Words for a machine whose GPUs cannot be counted. */
static enum ferry_status no_gpu(struct ferry_ctx *ctx, cudaError_t error)
{
	int driver = 0;

	cudaDriverGetVersion(&driver);
	(void)cudaGetLastError();
	if (error == cudaErrorInitializationError)
		return ferry_fail(ctx, FERRY_UNSUPPORTED,
		                  "world_open: CUDA does not start in this "
		                  "process: was it used before a fork?");
	return ferry_fail(ctx, FERRY_UNSUPPORTED,
	                  "world_open: a CUDA world needs a GPU: %s",
	                  driver == 0            ? "no NVIDIA driver is loaded"
	                  : error == cudaSuccess ? "the driver sees none"
	                                         : cudaGetErrorString(error));
}

static enum ferry_status choose(struct ferry_ctx *ctx, int32_t cuda_device,
                                int *ordinal)
{
	int n = 0;
	cudaError_t error = cudaGetDeviceCount(&n);

	if (error != cudaSuccess || n == 0)
		return no_gpu(ctx, error);
	if (cuda_device < 0 || cuda_device > n)
		return ferry_fail(ctx, FERRY_RANGE,
		                  "world_open: cuda_device is %d, allowed are "
		                  "1..%d (CUDA ordinal + 1) and 0 for the "
		                  "current device",
		                  cuda_device, n);
	*ordinal = cuda_device - 1;
	if (cuda_device == 0)
		error = cudaGetDevice(ordinal);
	return error == cudaSuccess ? FERRY_OK : no_gpu(ctx, error);
}

static CUresult attribute(const struct ferry_gpu *gpu, int which, int *value)
{
	*value = 0;
	return gpu->driver.DeviceGetAttribute(value, (CUdevice_attribute)which,
	                                      gpu->device);
}

/* What p2p cannot do without, and the compute capability. */
static enum ferry_status check(struct ferry_ctx *ctx, struct ferry_gpu *gpu)
{
	static const int wanted[] = {
		CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
		CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
		CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
		CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
	};
	int value[4];

	for (int i = 0; i < 4; i++) {
		const CUresult result = attribute(gpu, wanted[i], &value[i]);

		if (result != CUDA_SUCCESS)
			return no_gpu(ctx, (cudaError_t)result);
	}
	gpu->compute = 10 * value[2] + value[3];
	if (!value[0] || !value[1])
		return ferry_fail(ctx, FERRY_UNSUPPORTED,
		                  "world_open: GPU %d cannot share its memory "
		                  "by file descriptors",
		                  gpu->device);
	if (gpu->compute < 90)
		ferry_log(ctx, FERRY_LOG_WARN,
		          "world_open: GPU %d has compute capability %d.%d: "
		          "segments work, channels need 9.0",
		          gpu->device, gpu->compute / 10, gpu->compute % 10);
	return FERRY_OK;
}

static cudaError_t make_streams(struct ferry_gpu *gpu)
{
	int least = 0, greatest = 0;
	cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);

	if (error == cudaSuccess)
		error = cudaStreamCreateWithPriority(
			&gpu->stream, cudaStreamNonBlocking, least);
	if (error == cudaSuccess)
		error = cudaStreamCreateWithPriority(
			&gpu->notices, cudaStreamNonBlocking, least);
	if (error == cudaSuccess)
		error = cudaEventCreateWithFlags(&gpu->copied,
		                                 cudaEventDisableTiming);
	return error;
}

/* Of the least priority: whoever has a kernel is in a greater hurry. */
static enum ferry_status start_streams(struct ferry_ctx *ctx,
                                       struct ferry_gpu *gpu)
{
	struct ferry_cuda_scope scope;

	FERRY_TRY(ferry_cuda_enter(ctx, gpu, &scope));
	const cudaError_t error = make_streams(gpu);

	ferry_cuda_leave(&scope);
	if (error == cudaSuccess)
		return FERRY_OK;
	return ferry_cuda_fail(ctx, error, "world_open: streams of GPU %d",
	                       gpu->device);
}

static void stop_streams(struct ferry_gpu *gpu)
{
	struct ferry_cuda_scope scope;

	if (ferry_cuda_enter(NULL, gpu, &scope) != FERRY_OK)
		return;
	if (gpu->copied)
		(void)cudaEventDestroy(gpu->copied);
	if (gpu->notices)
		(void)cudaStreamDestroy(gpu->notices);
	if (gpu->stream)
		(void)cudaStreamDestroy(gpu->stream);
	ferry_cuda_leave(&scope);
}

static enum ferry_status start(struct ferry_ctx *ctx, struct ferry_gpu *gpu)
{
	CUuuid uuid;
	CUresult result;

	FERRY_TRY(load_all(ctx, &gpu->driver));
	FERRY_TRY(check(ctx, gpu));
	result = gpu->driver.DeviceGetUuid(&uuid, gpu->device);
	if (result == CUDA_SUCCESS)
		result = gpu->driver.DevicePrimaryCtxRetain(&gpu->context,
		                                            gpu->device);
	if (result != CUDA_SUCCESS)
		return ferry_cuda_fail(ctx, (cudaError_t)result,
		                       "world_open: GPU %d", gpu->device);
	memcpy(gpu->uuid, uuid.bytes, sizeof(gpu->uuid));
	return start_streams(ctx, gpu);
}

enum ferry_status ferry_gpu_open(struct ferry_ctx *ctx, int32_t cuda_device,
                                 struct ferry_gpu **gpu)
{
	struct ferry_gpu *g;
	enum ferry_status status;
	int ordinal;

	FERRY_TRY(choose(ctx, cuda_device, &ordinal));
	g = calloc(1, sizeof(*g));
	if (!g)
		return ferry_fail(ctx, FERRY_NOMEM,
		                  "world_open: state of a GPU");
	g->device = ordinal;
	pthread_mutex_init(&g->lock, NULL);
	status = start(ctx, g);
	if (status != FERRY_OK) {
		ferry_gpu_close(g);
		return status;
	}
	*gpu = g;
	return FERRY_OK;
}

void ferry_gpu_close(struct ferry_gpu *gpu)
{
	if (!gpu)
		return;
	if (gpu->context) {
		stop_streams(gpu);
		(void)gpu->driver.DevicePrimaryCtxRelease(gpu->device);
	}
	pthread_mutex_destroy(&gpu->lock);
	free(gpu);
}

int32_t ferry_gpu_ordinal(const struct ferry_gpu *gpu)
{
	return gpu->device;
}

int32_t ferry_gpu_compute(const struct ferry_gpu *gpu)
{
	return gpu->compute;
}

void ferry_gpu_uuid(const struct ferry_gpu *gpu,
                    uint8_t uuid[FERRY_GPU_UUID_BYTES])
{
	memcpy(uuid, gpu->uuid, FERRY_GPU_UUID_BYTES);
}

void ferry_gpu_pci(const struct ferry_gpu *gpu, char pci[FERRY_GPU_PCI_BYTES])
{
	static const int ids[] = {
		CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
		CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
		CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID,
	};
	int at[3];

	pci[0] = 0;
	for (int i = 0; i < 3; i++)
		if (attribute(gpu, ids[i], &at[i]) != CUDA_SUCCESS)
			return;
	snprintf(pci, FERRY_GPU_PCI_BYTES, "%04x:%02x:%02x.0", (unsigned)at[0],
	         (unsigned)at[1], (unsigned)at[2]);
}

void ferry_gpu_within(const struct ferry_gpu *gpu, void (*call)(void *arg),
                      void *arg)
{
	struct ferry_cuda_scope scope;
	const bool is_in =
		gpu && ferry_cuda_enter(NULL, gpu, &scope) == FERRY_OK;

	call(arg);
	if (is_in)
		ferry_cuda_leave(&scope);
}

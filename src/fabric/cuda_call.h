/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of CUDA from host code: errors as statuses, the device of a world made
 * current and put back, functions of the driver. For files that are built with
 * CUDA only.
 *
 *	struct ferry_cuda_scope scope;
 *
 *	FERRY_TRY(ferry_cuda_enter(ctx, world->gpu, &scope));
 *	cudaError_t error = cudaMalloc(&p, bytes);
 *	...
 *	ferry_cuda_leave(&scope);
 */
#ifndef FERRY_CUDA_CALL_H
#define FERRY_CUDA_CALL_H

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include "gpu.h"

/*
 * Functions of the driver: X(name, version of their signature). They are asked
 * for at run time, so that the library loads where there is no driver.
 */
#define FERRY_CUDA_DRIVER_MAP(X)                                               \
	X(CtxPushCurrent, 4000)                                                \
	X(CtxPopCurrent, 4000)                                                 \
	X(DeviceGetAttribute, 2000)                                            \
	X(DeviceGetUuid, 11040)                                                \
	X(DevicePrimaryCtxRetain, 7000)                                        \
	X(DevicePrimaryCtxRelease, 11000)                                      \
	X(MemAddressFree, 10020)                                               \
	X(MemAddressReserve, 10020)                                            \
	X(MemCreate, 10020)                                                    \
	X(MemExportToShareableHandle, 10020)                                   \
	X(MemGetAllocationGranularity, 10020)                                  \
	X(MemImportFromShareableHandle, 10020)                                 \
	X(MemMap, 10020)                                                       \
	X(MemRelease, 10020)                                                   \
	X(MemSetAccess, 10020)                                                 \
	X(MemUnmap, 10020)

struct ferry_cuda_driver {
#define FERRY_CUDA_DRIVER_FIELD_(name, version) PFN_cu##name##_v##version name;
	FERRY_CUDA_DRIVER_MAP(FERRY_CUDA_DRIVER_FIELD_)
#undef FERRY_CUDA_DRIVER_FIELD_
};

struct ferry_gpu {
	struct ferry_cuda_driver driver;
	CUcontext context;    /* the primary one, retained */
	CUdevice device;      /* equal to the ordinal */
	cudaStream_t stream;  /* for copies of the host */
	cudaStream_t notices; /* for what is told behind them */
	cudaEvent_t copied;
	pthread_mutex_t lock; /* of the three together */
	int32_t compute;
	uint8_t uuid[FERRY_GPU_UUID_BYTES];
};

/*
 * As ferry_fail, with name and words of the CUDA error behind the text. The
 * status is NOMEM where memory ran out, else CUDA. Errors of the driver have
 * the same numbers: cast a CUresult. What the runtime keeps for
 * cudaGetLastError is cleared.
 */
__attribute__((format(printf, 3, 4))) enum ferry_status
ferry_cuda_fail(struct ferry_ctx *ctx, cudaError_t error, const char *fmt, ...);

/* Of a GPU; 0 where the driver does not know it. */
static inline int ferry_cuda_attribute(const struct ferry_gpu *gpu,
                                       CUdevice_attribute which)
{
	int value = 0;

	(void)gpu->driver.DeviceGetAttribute(&value, which, gpu->device);
	return value;
}

/* Does GPU `from` do atomics on the memory of `to`? Over NVLink only. */
bool ferry_cuda_has_atomics(int from, int to);

/* What enter has to put back. */
struct ferry_cuda_scope {
	const struct ferry_gpu *gpu;
	enum cudaStreamCaptureMode mode;
};

/*
 * Makes the GPU the current device of this thread, until leave. Meanwhile a
 * capture of another thread does not mind what is called.
 */
enum ferry_status ferry_cuda_enter(struct ferry_ctx *ctx,
                                   const struct ferry_gpu *gpu,
                                   struct ferry_cuda_scope *scope);
void ferry_cuda_leave(const struct ferry_cuda_scope *scope);

#endif

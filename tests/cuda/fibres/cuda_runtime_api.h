/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands in for CUDA's header of that name: what the harness of dev/ and the
 * launchers of kernels use, on devices whose memory is the host's.
 * Names are macros, so that they do not meet those of a CUDA library in a link.
 */
#ifndef FIBRE_CUDA_RUNTIME_API_H
#define FIBRE_CUDA_RUNTIME_API_H

#include <stddef.h>
#include <stdint.h>

typedef enum {
	cudaSuccess = 0,
	cudaErrorMemoryAllocation = 2,
	cudaErrorInvalidDevice = 101,
	cudaErrorPeerAccessAlreadyEnabled = 704
} cudaError_t;
typedef struct CUstream_st *cudaStream_t;

enum { cudaMemcpyHostToDevice = 1, cudaMemcpyDefault = 4 };
enum {
	cudaHostAllocPortable = 1,
	cudaHostAllocMapped = 2,
	cudaStreamNonBlocking = 1
};

#ifdef __cplusplus
extern "C" {
#endif

/* What frees or looks at memory waits for all that was enqueued. */
cudaError_t fibre_malloc(void **p, size_t bytes);
cudaError_t fibre_free(void *p);
cudaError_t fibre_memset(void *p, int value, size_t bytes);
cudaError_t fibre_memcpy(void *to, const void *from, size_t bytes);
cudaError_t fibre_device_pointer(void **p, void *host);
cudaError_t fibre_stream_create(cudaStream_t *stream);
cudaError_t fibre_stream_destroy(cudaStream_t stream);
cudaError_t fibre_sync(void);

#ifdef __cplusplus
}
#endif

/* As many as there are ranks, each of them the peer of all. */
enum { FIBRE_DEVICES = 16 };

static inline cudaError_t fibre_good(int device)
{
	return device >= 0 && device < FIBRE_DEVICES ? cudaSuccess
	                                             : cudaErrorInvalidDevice;
}

#define cudaGetDeviceCount(n)                (*(n) = FIBRE_DEVICES, cudaSuccess)
#define cudaGetErrorString(e)                ((e) ? "an error of fibres" : "none")
#define cudaGetLastError()                   fibre_good(0)
#define cudaSetDevice(d)                     fibre_good(d)
#define cudaDeviceEnablePeerAccess(d, flags) fibre_good(d)
#define cudaMalloc(p, bytes)                 fibre_malloc(p, bytes)
#define cudaFree(p)                          fibre_free(p)
#define cudaMemset(p, v, bytes)              fibre_memset(p, v, bytes)
#define cudaMemsetAsync(p, v, bytes, s)      ((void)(s), fibre_memset(p, v, bytes))
#define cudaMemcpy(to, from, bytes, kind)    fibre_memcpy(to, from, bytes)
#define cudaMemcpyAsync(to, from, bytes, k, s)                                 \
	((void)(s), fibre_memcpy(to, from, bytes))
#define cudaHostAlloc(p, bytes, flags)        fibre_malloc(p, bytes)
#define cudaHostGetDevicePointer(p, h, flags) fibre_device_pointer(p, h)
#define cudaFreeHost(p)                       fibre_free(p)
#define cudaStreamCreateWithFlags(s, flags)   fibre_stream_create(s)
#define cudaStreamDestroy(s)                  fibre_stream_destroy(s)
#define cudaStreamSynchronize(s)              ((void)(s), fibre_sync())
#define cudaDeviceSynchronize()               fibre_sync()

#ifdef __cplusplus
#include "fibre_launch.h"
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libferry_nvshmem.so: the table of src/fabric/nvshmem_module.h over NVSHMEM.
 * Opening, heap and puts of the host are here; kernels are in files of their
 * own. Nothing of Ferry is called from here.
 */
#include "../cuda/cuda_kernels.h"
#include "../fabric/nvshmem_module.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <nvshmem.h>
#include <nvshmemx.h>

#include <ferry/base.h>

extern "C" const struct ferry_cuda_dispatch_ops ferry_cuda_dispatch_nvshmem;
extern "C" const struct ferry_cuda_combine_ops ferry_cuda_combine_nvshmem;

enum { PAGE = 4096 };

typedef CUresult push_fn(CUcontext context);
typedef CUresult pop_fn(CUcontext *context);
typedef CUresult retain_fn(CUcontext *context, CUdevice device);
typedef CUresult release_fn(CUdevice device);

struct ferry_nvshmem {
	int device;
	CUcontext context; /* the primary one, retained */
	push_fn *push;
	pop_fn *pop;
	release_fn *release;
	cudaStream_t stream;  /* for puts of the host */
	pthread_mutex_t lock; /* NVSHMEM is called by one thread at a time */
};

static_assert(sizeof(nvshmemx_uniqueid_t) <= FERRY_NVSHMEM_ID_BYTES,
              "room for an id");

static int fail(char *why, const char *what, int error)
{
	snprintf(why, FERRY_NVSHMEM_WHY_BYTES, "%s: error %d", what, error);
	return 1;
}

static int fail_cuda(char *why, const char *what, cudaError_t error)
{
	(void)cudaGetLastError();
	snprintf(why, FERRY_NVSHMEM_WHY_BYTES, "%s: %s (%s)", what,
	         cudaGetErrorName(error), cudaGetErrorString(error));
	return 1;
}

/* A function of the driver, which is not linked. */
static bool find(void *slot, const char *name, unsigned int version)
{
	cudaDriverEntryPointQueryResult result;

	return cudaGetDriverEntryPointByVersion(name, (void **)slot, version,
	                                        cudaEnableDefault,
	                                        &result) == cudaSuccess &&
	       result == cudaDriverEntryPointSuccess;
}

/*
 * NVSHMEM works on the current device: pushed here, so that a thread which has
 * none gets none. A capture of another thread does not mind meanwhile.
 */
struct scope {
	struct ferry_nvshmem *nvshmem;
	cudaStreamCaptureMode mode;
};

static struct scope enter(struct ferry_nvshmem *nvshmem)
{
	struct scope scope = {nvshmem, cudaStreamCaptureModeRelaxed};

	pthread_mutex_lock(&nvshmem->lock);
	(void)nvshmem->push(nvshmem->context);
	(void)cudaThreadExchangeStreamCaptureMode(&scope.mode);
	return scope;
}

static void leave(struct scope *scope)
{
	CUcontext context;

	(void)cudaThreadExchangeStreamCaptureMode(&scope->mode);
	(void)scope->nvshmem->pop(&context);
	pthread_mutex_unlock(&scope->nvshmem->lock);
}

static struct ferry_nvshmem_version version(void)
{
	struct ferry_nvshmem_version v = {0, 0, 0};

	nvshmemx_vendor_get_version_info(&v.major, &v.minor, &v.patch);
	return v;
}

static bool in_use(void)
{
	const int status = nvshmemx_init_status();

	return status >= NVSHMEM_STATUS_IS_INITIALIZED &&
	       status != NVSHMEM_STATUS_INVALID;
}

static int unique_id(uint8_t id[FERRY_NVSHMEM_ID_BYTES], char *why)
{
	nvshmemx_uniqueid_t made = NVSHMEMX_UNIQUEID_INITIALIZER;
	const int error = nvshmemx_get_uniqueid(&made);

	if (error)
		return fail(why, "nvshmemx_get_uniqueid", error);
	memcpy(id, &made, sizeof(made));
	return 0;
}

/* nvshmemx_init_attr would end the process where it fails. */
static int init(const struct ferry_nvshmem_pe *pe, char *why)
{
	const nvshmemi_version_t app = {NVSHMEM_VENDOR_MAJOR_VERSION,
	                                NVSHMEM_VENDOR_MINOR_VERSION,
	                                NVSHMEM_VENDOR_PATCH_VERSION};
	nvshmemx_init_attr_t attr = NVSHMEMX_INIT_ATTR_INITIALIZER;
	nvshmemx_uniqueid_t id;
	int provided;

	memcpy(&id, pe->id, sizeof(id));
	int error = nvshmemx_set_attr_uniqueid_args(pe->rank, pe->n_ranks, &id,
	                                            &attr);

	if (error)
		return fail(why, "nvshmemx_set_attr_uniqueid_args", error);
	error = nvshmemi_init_thread(NVSHMEM_THREAD_SERIALIZED, &provided,
	                             NVSHMEMX_INIT_WITH_UNIQUEID, &attr, app);
	if (error)
		return fail(why, "opening NVSHMEM", error);
	return 0;
}

static int open_context(struct ferry_nvshmem *n, char *why)
{
	retain_fn *retain;

	if (!find(&n->push, "cuCtxPushCurrent", 4000) ||
	    !find(&n->pop, "cuCtxPopCurrent", 4000) ||
	    !find(&retain, "cuDevicePrimaryCtxRetain", 7000) ||
	    !find(&n->release, "cuDevicePrimaryCtxRelease", 11000))
		return fail(why, "functions of the driver",
		            (int)cudaErrorSymbolNotFound);
	const CUresult error = retain(&n->context, n->device);

	if (error == CUDA_SUCCESS)
		return 0;
	return fail_cuda(why, "the context of the GPU", (cudaError_t)error);
}

static int open_stream(struct ferry_nvshmem *n, char *why)
{
	int least = 0, greatest = 0;
	cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);

	if (error == cudaSuccess)
		error = cudaStreamCreateWithPriority(
			&n->stream, cudaStreamNonBlocking, least);
	return error == cudaSuccess ? 0 : fail_cuda(why, "a stream", error);
}

static void drop(struct ferry_nvshmem *n)
{
	if (n->context)
		(void)n->release(n->device);
	pthread_mutex_destroy(&n->lock);
	free(n);
}

static int open(const struct ferry_nvshmem_pe *pe,
                struct ferry_nvshmem **nvshmem, char *why)
{
	struct ferry_nvshmem *n = (struct ferry_nvshmem *)calloc(1, sizeof(*n));

	if (!n)
		return fail(why, "out of memory", (int)sizeof(*n));
	n->device = pe->device;
	pthread_mutex_init(&n->lock, NULL);
	int error = open_context(n, why);

	if (!error) {
		struct scope scope = enter(n);

		error = open_stream(n, why) || init(pe, why);
		if (error && n->stream)
			(void)cudaStreamDestroy(n->stream);
		leave(&scope);
	}
	if (error) {
		drop(n);
		return error;
	}
	*nvshmem = n;
	return 0;
}

static void close(struct ferry_nvshmem *n)
{
	struct scope scope = enter(n);

	nvshmem_finalize();
	(void)cudaStreamDestroy(n->stream);
	leave(&scope);
	drop(n);
}

/* Puts may be under way: stream and context stay, too. */
static void leave_open(struct ferry_nvshmem *n)
{
	(void)n;
}

/*
 * Zeroed before any peer is told of it: after this all ranks meet once more.
 */
static int alloc(struct ferry_nvshmem *n, size_t bytes, void **memory,
                 char *why)
{
	struct scope scope = enter(n);
	void *const p = nvshmem_align(PAGE, bytes);
	cudaError_t error = cudaErrorMemoryAllocation;

	if (p) {
		error = cudaMemsetAsync(p, 0, bytes, n->stream);
		if (error == cudaSuccess)
			error = cudaStreamSynchronize(n->stream);
	}
	leave(&scope);
	if (error != cudaSuccess)
		return fail_cuda(why, "the symmetric heap", error);
	*memory = p;
	return 0;
}

static void free_memory(struct ferry_nvshmem *n, void *memory)
{
	struct scope scope = enter(n);

	nvshmem_free(memory);
	leave(&scope);
}

static void *ptr(struct ferry_nvshmem *n, const void *memory, int32_t peer)
{
	struct scope scope = enter(n);
	void *const p = nvshmem_ptr(memory, peer);

	leave(&scope);
	return p;
}

static int alltoall(struct ferry_nvshmem *n, void *to, const void *from,
                    size_t bytes, cudaStream_t stream, char *why)
{
	/* NVSHMEM would end the process. */
	if (nvshmemx_init_status() == NVSHMEM_STATUS_LIMITED_MPG) {
		snprintf(why, FERRY_NVSHMEM_WHY_BYTES,
		         "it has no collectives where ranks share a GPU "
		         "without MPS, or without a part of it for each");
		return 1;
	}
	struct scope scope = enter(n);
	const int error = nvshmemx_alltoallmem_on_stream(NVSHMEM_TEAM_WORLD, to,
	                                                 from, bytes, stream);

	leave(&scope);
	return error ? fail(why, "nvshmemx_alltoallmem_on_stream", error) : 0;
}

static int put(struct ferry_nvshmem *n, int32_t peer, void *to,
               const void *from, size_t bytes, void (*done)(void *arg),
               void *arg, char *why)
{
	struct scope scope = enter(n);

	if (bytes) {
		nvshmemx_putmem_on_stream(to, from, bytes, peer, n->stream);
		nvshmemx_quiet_on_stream(n->stream);
	}
	const cudaError_t error = cudaLaunchHostFunc(n->stream, done, arg);

	leave(&scope);
	return error == cudaSuccess ? 0 : fail_cuda(why, "a stream", error);
}

static const struct ferry_nvshmem_ops ops = {
	sizeof(struct ferry_nvshmem_ops),
	FERRY_VERSION,
	{NVSHMEM_VENDOR_MAJOR_VERSION, NVSHMEM_VENDOR_MINOR_VERSION,
         NVSHMEM_VENDOR_PATCH_VERSION},
	version,
	in_use,
	unique_id,
	open,
	close,
	leave_open,
	alloc,
	free_memory,
	ptr,
	alltoall,
	put,
	&ferry_cuda_dispatch_nvshmem,
	&ferry_cuda_combine_nvshmem,
	sizeof(struct ferry_cuda_dispatch) + sizeof(struct ferry_cuda_combine),
};

extern "C" __attribute__((visibility("default")))
const struct ferry_nvshmem_ops *
ferry_nvshmem_module(void)
{
	return &ops;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a rank on its GPU, with pinned mirrors on the host.
 *
 * Blocks come from arenas, one per GPU and one of pinned memory: a cudaMalloc
 * or cudaFree in the middle of a test could wait for a kernel that waits for
 * the very rank that calls it. TEST_EXACT_ALLOC=1 gives each buffer a
 * cudaMalloc of its own, for compute-sanitizer.
 */
#include "rank_memory.h"

#include <stdlib.h>
#include <string.h>
#include <threads.h>

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include "arena.h"
#include "gpus.h"

struct cuda_memory {
	struct rank_memory base; /* first */
	int device;
	CUcontext context;
	struct CUstream_st *streams[RANK_MEMORY_STREAMS];
};

static void check(cudaError_t error, const char *what)
{
	if (error != cudaSuccess)
		RANKS_FAIL("%s: %s", what, cudaGetErrorString(error));
}

static struct {
	PFN_cuDevicePrimaryCtxRetain_v7000 retain;
	PFN_cuCtxPushCurrent_v4000 push;
	PFN_cuCtxPopCurrent_v4000 pop;
} driver;
static struct arena pinned, on_gpu[GPUS_MAX];
static once_flag prepared_once = ONCE_FLAG_INIT;

static void *grow_pinned(size_t bytes)
{
	void *p = NULL;

	return cudaHostAlloc(&p, bytes, cudaHostAllocPortable) == cudaSuccess
	               ? p
	               : NULL;
}

/* On the current device. */
static void *grow_device(size_t bytes)
{
	void *p = NULL;

	return cudaMalloc(&p, bytes) == cudaSuccess ? p : NULL;
}

static void ask_driver(const char *name, unsigned version, void *function)
{
	enum cudaDriverEntryPointQueryResult found;
	void *p = NULL;

	if (cudaGetDriverEntryPointByVersion(name, &p, version,
	                                     cudaEnableDefault,
	                                     &found) != cudaSuccess ||
	    p == NULL)
		abort();
	memcpy(function, &p, sizeof(p));
}

static void prepare(void)
{
	const char *exact = getenv("TEST_EXACT_ALLOC");

	arena_init(&pinned, grow_pinned, false);
	for (int i = 0; i < GPUS_MAX; i++)
		arena_init(&on_gpu[i], grow_device,
		           exact != NULL && exact[0] == '1');
	ask_driver("cuDevicePrimaryCtxRetain", 7000, &driver.retain);
	ask_driver("cuCtxPushCurrent", 4000, &driver.push);
	ask_driver("cuCtxPopCurrent", 4000, &driver.pop);
}

/*
 * Around each call: the test's own current device is not to change. Setting it
 * back would make a context on GPU 0 for a thread that has none.
 */
static struct cuda_memory *enter(struct rank_memory *m)
{
	struct cuda_memory *c = (struct cuda_memory *)m;

	check((cudaError_t)driver.push(c->context), "cuCtxPushCurrent");
	return c;
}

static void leave(void)
{
	CUcontext context;

	check((cudaError_t)driver.pop(&context), "cuCtxPopCurrent");
}

/* A chunk before any kernel waits. */
static void grow_ahead(struct arena *arena)
{
	void *block = arena_take(arena, 1 << 20);

	arena_give(arena, block, 1 << 20);
}

static struct rank_memory *cuda_open(const struct rank *rank, int n_streams)
{
	struct cuda_memory *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	call_once(&prepared_once, prepare);
	c->device = gpus_of_rank(rank->rank, rank->n_gpus);
	c->base.n_streams = n_streams;
	check((cudaError_t)driver.retain(&c->context, c->device),
	      "cuDevicePrimaryCtxRetain");
	enter(&c->base);
	for (int i = 0; i < n_streams; i++)
		check(cudaStreamCreateWithFlags(&c->streams[i],
		                                cudaStreamNonBlocking),
		      "cudaStreamCreateWithFlags");
	grow_ahead(&on_gpu[c->device]);
	grow_ahead(&pinned);
	leave();
	return &c->base;
}

/* Perhaps after a failure: what cannot be done is left. */
static void cuda_close(struct rank_memory *m)
{
	struct cuda_memory *c = (struct cuda_memory *)m;

	for (int i = 0; i < m->n_streams; i++)
		if (c->streams[i] != NULL)
			(void)cudaStreamDestroy(c->streams[i]);
	free(c);
}

static struct CUstream_st *cuda_stream(struct rank_memory *m, int i)
{
	return ((struct cuda_memory *)m)->streams[i];
}

static void cuda_make(struct rank_memory *m, struct mirror *mirror)
{
	struct cuda_memory *c = enter(m);

	mirror->device = arena_take(&on_gpu[c->device], mirror->device_room);
	mirror->host = arena_take(&pinned, mirror->host_room);
	leave();
	if (mirror->device == NULL || mirror->host == NULL)
		RANKS_FAIL("out of memory: %zu bytes of the GPU, %zu pinned",
		           mirror->device_room, mirror->host_room);
}

static void cuda_drop(struct rank_memory *m, struct mirror *mirror)
{
	const struct cuda_memory *c = (struct cuda_memory *)m;

	arena_give(&on_gpu[c->device], mirror->device, mirror->device_room);
	arena_give(&pinned, mirror->host, mirror->host_room);
}

static void copy(struct rank_memory *m, void *to, const void *from,
                 size_t bytes, struct CUstream_st *stream)
{
	enter(m);
	check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream),
	      "cudaMemcpyAsync");
	leave();
}

static void cuda_push(struct rank_memory *m, const struct mirror *mirror,
                      struct CUstream_st *stream)
{
	copy(m, mirror->device, mirror->host, mirror->bytes, stream);
}

static void cuda_pull(struct rank_memory *m, const struct mirror *mirror,
                      struct CUstream_st *stream)
{
	copy(m, mirror->host, mirror->device, mirror->bytes, stream);
}

static void cuda_fill(struct rank_memory *m, const struct mirror *mirror,
                      int byte, struct CUstream_st *stream)
{
	enter(m);
	check(cudaMemsetAsync(mirror->device, byte, mirror->bytes, stream),
	      "cudaMemsetAsync");
	leave();
}

/* On stream 0, through pinned memory, and waited for. */
static void cuda_read(struct rank_memory *m, void *to, const void *from,
                      size_t bytes)
{
	struct CUstream_st *stream = cuda_stream(m, 0);
	void *through = arena_take(&pinned, bytes);

	if (through == NULL)
		RANKS_FAIL("out of memory: %zu bytes pinned", bytes);
	copy(m, through, from, bytes, stream);
	m->ops->sync(m, stream);
	memcpy(to, through, bytes);
	arena_give(&pinned, through, bytes);
}

static void cuda_write(struct rank_memory *m, void *to, const void *from,
                       size_t bytes)
{
	struct CUstream_st *stream = cuda_stream(m, 0);
	void *through = arena_take(&pinned, bytes);

	if (through == NULL)
		RANKS_FAIL("out of memory: %zu bytes pinned", bytes);
	memcpy(through, from, bytes);
	copy(m, to, through, bytes, stream);
	m->ops->sync(m, stream);
	arena_give(&pinned, through, bytes);
}

static void cuda_sync(struct rank_memory *m, struct CUstream_st *stream)
{
	struct cuda_memory *c = enter(m);

	for (int i = 0; i < m->n_streams; i++)
		if (stream == NULL || stream == c->streams[i])
			check(cudaStreamSynchronize(c->streams[i]),
			      "cudaStreamSynchronize");
	leave();
}

static const struct rank_memory_ops cuda_ops = {
	.open = cuda_open,
	.close = cuda_close,
	.stream = cuda_stream,
	.make = cuda_make,
	.drop = cuda_drop,
	.push = cuda_push,
	.pull = cuda_pull,
	.fill = cuda_fill,
	.read = cuda_read,
	.write = cuda_write,
	.sync = cuda_sync,
};

const struct rank_memory_ops *rank_memory_cuda(void)
{
	return &cuda_ops;
}

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

#include <cuda_runtime_api.h>

#include "arena.h"
#include "gpus.h"

struct cuda_memory {
	struct rank_memory base; /* first */
	int device;
	int before; /* current device of the thread, during a call */
	struct CUstream_st *streams[RANK_MEMORY_STREAMS];
};

static void check(cudaError_t error, const char *what)
{
	if (error != cudaSuccess)
		RANKS_FAIL("%s: %s", what, cudaGetErrorString(error));
}

static struct arena pinned, on_gpu[GPUS_MAX];
static once_flag arenas_once = ONCE_FLAG_INIT;

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

static void make_arenas(void)
{
	const char *exact = getenv("TEST_EXACT_ALLOC");

	arena_init(&pinned, grow_pinned, false);
	for (int i = 0; i < GPUS_MAX; i++)
		arena_init(&on_gpu[i], grow_device,
		           exact != NULL && exact[0] == '1');
}

/* Around each call: the test's own current device is not to change. */
static struct cuda_memory *enter(struct rank_memory *m)
{
	struct cuda_memory *c = (struct cuda_memory *)m;

	check(cudaGetDevice(&c->before), "cudaGetDevice");
	if (c->before != c->device)
		check(cudaSetDevice(c->device), "cudaSetDevice");
	return c;
}

static void leave(struct cuda_memory *c)
{
	if (c->before != c->device)
		check(cudaSetDevice(c->before), "cudaSetDevice");
}

static struct rank_memory *cuda_open(const struct rank *rank, int n_streams)
{
	struct cuda_memory *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	call_once(&arenas_once, make_arenas);
	c->device = gpus_of_rank(rank->rank, rank->n_gpus);
	c->base.n_streams = n_streams;
	enter(&c->base);
	for (int i = 0; i < n_streams; i++)
		check(cudaStreamCreateWithFlags(&c->streams[i],
		                                cudaStreamNonBlocking),
		      "cudaStreamCreateWithFlags");
	/* A chunk before any kernel waits. */
	void *block = arena_take(&on_gpu[c->device], 1 << 20);

	arena_give(&on_gpu[c->device], block, 1 << 20);
	leave(c);
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
	leave(c);
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
	struct cuda_memory *c = enter(m);

	check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream),
	      "cudaMemcpyAsync");
	leave(c);
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
	struct cuda_memory *c = enter(m);

	check(cudaMemsetAsync(mirror->device, byte, mirror->bytes, stream),
	      "cudaMemsetAsync");
	leave(c);
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
	leave(c);
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

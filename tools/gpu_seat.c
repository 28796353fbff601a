/* SPDX-License-Identifier: Apache-2.0 */
/* A rank takes a GPU, opens its world there, and keeps memory for all shapes.
 */
#include "gpu_seat.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda/cuda_yard.h"
#include "gpu_bench.h"

enum { THREADS_MAX = 16 };

bool gpu_good(const struct crew_member *me, cudaError_t error, const char *what)
{
	if (error == cudaSuccess)
		return true;
	fprintf(stderr, "%s: rank %d: %s: %s\n", me->crew->name, me->rank, what,
	        cudaGetErrorString(error));
	return false;
}

/*
 * Loads what this tool will enqueue: done at the first use, it would wait for
 * kernels on the GPU, and one of them may wait for a peer that waits for this
 * rank.
 */
static bool warm_up(const struct gpu_seat *seat)
{
	const struct crew_member *me = seat->me;
	void *memory = NULL;

	if (!gpu_good(me, cudaMalloc(&memory, 1 << 20), "GPU memory"))
		return false;
	const bool good =
		gpu_good(me, cudaMemsetAsync(memory, 1, 1 << 20, seat->stream),
	                 "memset") &&
		gpu_good(me,
	                 (cudaError_t)ferry_cuda_yard_spin(1000, seat->stream),
	                 "first kernel") &&
		gpu_good(me, cudaStreamSynchronize(seat->stream), "waiting");

	cudaFree(memory);
	return good;
}

void gpu_prepare(void)
{
	/* Streams of ranks that share a GPU must not queue up together. */
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

bool gpu_seat_open(struct gpu_seat *seat, const struct crew_member *me)
{
	const long per_rank = sysconf(_SC_NPROCESSORS_ONLN) / me->crew->n_ranks;
	int n = 0;

	*seat = (struct gpu_seat){.me = me};
	seat->n_threads = per_rank < 1             ? 1
	                  : per_rank > THREADS_MAX ? THREADS_MAX
	                                           : (int32_t)per_rank;
	if (!gpu_good(me, cudaGetDeviceCount(&n), "counting GPUs"))
		return false;
	seat->n_devices = n;
	seat->device = me->rank % n;
	return gpu_good(me, cudaSetDevice(seat->device), "choosing a GPU") &&
	       gpu_good(me,
	                cudaStreamCreateWithFlags(&seat->stream,
	                                          cudaStreamNonBlocking),
	                "making a stream") &&
	       warm_up(seat) && crew_open(me, 0, &seat->world);
}

void gpu_seat_close(struct gpu_seat *seat)
{
	ferry_world_close(seat->world);
	for (int i = 0; i < GPU_N_ARRAYS; i++) {
		cudaFree(seat->device_memory[i].start);
		cudaFreeHost(seat->host_memory[i].start);
	}
	for (int i = 0; i < seat->n_outgrown; i++)
		cudaFreeHost(seat->outgrown[i]);
	if (seat->stream)
		cudaStreamDestroy(seat->stream);
}

void *gpu_device_memory(struct gpu_seat *seat, enum gpu_array array,
                        size_t bytes)
{
	struct gpu_memory *m = &seat->device_memory[array];

	bytes = bytes ? bytes : 1;
	if (bytes <= m->bytes)
		return m->start;
	cudaFree(m->start);
	*m = (struct gpu_memory){0};
	if (!gpu_good(seat->me, cudaMalloc(&m->start, bytes), "GPU memory"))
		return NULL;
	m->bytes = bytes;
	return m->start;
}

void *gpu_host_memory(struct gpu_seat *seat, enum gpu_array array, size_t bytes)
{
	struct gpu_memory *m = &seat->host_memory[array];

	bytes = bytes ? bytes : 1;
	if (bytes <= m->bytes)
		return m->start;
	bytes += bytes / 2;
	if (m->start && seat->n_outgrown < GPU_OUTGROWN_MAX)
		seat->outgrown[seat->n_outgrown++] = m->start;
	*m = (struct gpu_memory){0};
	if (!gpu_good(seat->me, cudaMallocHost(&m->start, bytes),
	              "pinned memory"))
		return NULL;
	m->bytes = bytes;
	return m->start;
}

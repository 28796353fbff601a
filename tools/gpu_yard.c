/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which GPUs are here, and how fast they copy and store to each other. In a
 * process of its own: whoever has used CUDA cannot fork ranks that use it.
 */
#include <stdio.h>
#include <string.h>

#include "alloc.h"
#include "cuda/cuda_info.h"
#include "cuda/cuda_yard.h"
#include "gpu_bench.h"
#include "gpu_seat.h"
#include "opt.h"

enum { GPUS_MAX = 64, PASSES = 4 };

/* Several times the second-level cache. */
static const size_t block_bytes = (size_t)256 << 20;

struct yard_work {
	int32_t n_ranks; /* that will use the GPUs */
	bool yardsticks;
	struct gpu_facts *facts; /* shared */
};

/* Buffers and a stream on each GPU. */
struct yard {
	const struct crew_member *me;
	int n;
	char *from[GPUS_MAX], *to[GPUS_MAX];
	cudaStream_t stream[GPUS_MAX];
	cudaEvent_t start[GPUS_MAX], end[GPUS_MAX];
};

static bool yard_open(struct yard *y, const struct crew_member *me, int n)
{
	*y = (struct yard){.me = me, .n = n};
	for (int g = 0; g < n; g++)
		if (!gpu_good(me, cudaSetDevice(g), "choosing a GPU") ||
		    !gpu_good(me, cudaMalloc((void **)&y->from[g], block_bytes),
		              "memory") ||
		    !gpu_good(me, cudaMalloc((void **)&y->to[g], block_bytes),
		              "memory") ||
		    !gpu_good(me, cudaMemset(y->from[g], 1, block_bytes),
		              "memset") ||
		    !gpu_good(me, cudaStreamCreate(&y->stream[g]), "stream") ||
		    !gpu_good(me, cudaEventCreate(&y->start[g]), "event") ||
		    !gpu_good(me, cudaEventCreate(&y->end[g]), "event"))
			return false;
	return true;
}

/* Can every GPU store to the next one? */
static bool reach(const struct yard *y, struct gpu_facts *facts)
{
	for (int g = 0; g < y->n; g++) {
		const int next = (g + 1) % y->n;

		if (!ferry_cuda_peer(g, next)) {
			snprintf(facts->link, sizeof(facts->link),
			         "GPU %d cannot reach GPU %d", g, next);
			return false;
		}
		cudaSetDevice(g);
		const cudaError_t error = cudaDeviceEnablePeerAccess(next, 0);

		if (error != cudaSuccess &&
		    error != cudaErrorPeerAccessAlreadyEnabled) {
			snprintf(facts->link, sizeof(facts->link), "%s",
			         cudaGetErrorString(error));
			return false;
		}
	}
	cudaGetLastError();
	return true;
}

enum yard_way { COPY_KERNEL, COPY_ENGINE, STORE };

static cudaError_t enqueue(const struct yard *y, int g, enum yard_way way)
{
	const cudaStream_t stream = y->stream[g];

	switch (way) {
	case COPY_KERNEL:
		return (cudaError_t)ferry_cuda_yard_copy(y->to[g], y->from[g],
		                                         block_bytes, stream);
	case COPY_ENGINE:
		return cudaMemcpyAsync(y->to[g], y->from[g], block_bytes,
		                       cudaMemcpyDeviceToDevice, stream);
	case STORE:
	default:
		return (cudaError_t)ferry_cuda_yard_store(y->to[(g + 1) % y->n],
		                                          block_bytes, stream);
	}
}

/* All GPUs at once; bytes a second of the slowest, best of several passes. */
static bool rate(const struct yard *y, enum yard_way way, double *best)
{
	for (int pass = 0; pass < PASSES; pass++) {
		double least = 0;

		for (int g = 0; g < y->n; g++)
			if (!gpu_good(y->me, cudaSetDevice(g), "choosing") ||
			    !gpu_good(
				    y->me,
				    cudaEventRecord(y->start[g], y->stream[g]),
				    "event") ||
			    !gpu_good(y->me, enqueue(y, g, way), "yardstick") ||
			    !gpu_good(y->me,
			              cudaEventRecord(y->end[g], y->stream[g]),
			              "event"))
				return false;
		for (int g = 0; g < y->n; g++) {
			float ms = 0;

			if (!gpu_good(y->me, cudaEventSynchronize(y->end[g]),
			              "waiting") ||
			    !gpu_good(y->me,
			              cudaEventElapsedTime(&ms, y->start[g],
			                                   y->end[g]),
			              "elapsed time"))
				return false;
			const double r = (double)block_bytes / ms * 1e3;

			least = g == 0 || r < least ? r : least;
		}
		*best = least > *best ? least : *best;
	}
	return true;
}

static bool measure(const struct crew_member *me, const struct yard_work *work)
{
	struct gpu_facts *const facts = work->facts;
	const int n = facts->n_devices < work->n_ranks ? facts->n_devices
	                                               : work->n_ranks;
	double kernel = 0, engine = 0;
	struct yard y;

	if (!yard_open(&y, me, n) || !rate(&y, COPY_KERNEL, &kernel) ||
	    !rate(&y, COPY_ENGINE, &engine))
		return false;
	facts->copy_bytes_per_s = 2 * (kernel > engine ? kernel : engine);
	if (n < 2) {
		snprintf(facts->link, sizeof(facts->link), "one GPU");
		return true;
	}
	return !reach(&y, facts) || rate(&y, STORE, &facts->store_bytes_per_s);
}

static int yard_body(const struct crew_member *me, void *arg)
{
	const struct yard_work *work = arg;
	struct gpu_facts *const facts = work->facts;
	struct ferry_cuda_device device;
	const int32_t n = ferry_cuda_count(facts->reason);

	facts->n_devices = n < GPUS_MAX ? n : GPUS_MAX;
	if (n < 1)
		return EXIT_GOOD;
	if (ferry_cuda_device_get(0, &device))
		snprintf(facts->name, sizeof(facts->name), "%.127s",
		         device.name);
	return !work->yardsticks || measure(me, work) ? EXIT_GOOD : EXIT_FAILED;
}

bool gpu_facts_read(const struct crew *crew, bool yardsticks,
                    struct gpu_facts *facts)
{
	const struct crew one = {.name = crew->name, .n_ranks = 1};
	struct yard_work work = {
		.n_ranks = crew->n_ranks,
		.yardsticks = yardsticks,
		.facts = alloc_shared(sizeof(*facts)),
	};
	const bool good = crew_run(&one, yard_body, &work) == EXIT_GOOD;

	*facts = *work.facts;
	alloc_shared_free(work.facts, sizeof(*facts));
	return good;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank of a CUDA world keeps from the first shape to the last: its GPU,
 * its world, a stream, and memory that only grows, on the GPU and on the host.
 */
#ifndef FERRY_GPU_SEAT_H
#define FERRY_GPU_SEAT_H

#include <cuda_runtime_api.h>

#include "crew.h"

/* Arrays of a channel's user, on the GPU and as twins on the host. */
enum gpu_array {
	GPU_X,
	GPU_X_SCALES,
	GPU_IDS,
	GPU_WEIGHTS,
	GPU_ROWS,
	GPU_SCALES,
	GPU_COUNTS,
	GPU_OFFSETS,
	GPU_INDEX,
	GPU_Y,
	GPU_OUT,
	GPU_N_ARRAYS,
};

enum { GPU_OUTGROWN_MAX = 256 };

struct gpu_memory {
	void *start;
	size_t bytes;
};

struct gpu_seat {
	const struct crew_member *me;
	struct ferry_world *world;
	int32_t device, n_devices;
	int32_t n_threads; /* that check */
	cudaStream_t stream;
	struct gpu_memory device_memory[GPU_N_ARRAYS];
	struct gpu_memory host_memory[GPU_N_ARRAYS]; /* pinned */
	/* Outgrown, and not freed yet: that would wait for all kernels. */
	int n_outgrown;
	void *outgrown[GPU_OUTGROWN_MAX];
};

/* Good? Otherwise complains with CUDA's words. */
bool gpu_good(const struct crew_member *me, cudaError_t error,
              const char *what);

/*
 * Takes a GPU, rank modulo their number, and opens the world there. False
 * after a complaint; close it all the same.
 */
bool gpu_seat_open(struct gpu_seat *seat, const struct crew_member *me);

/* No kernel may be waiting for a peer on this GPU: memory is freed. */
void gpu_seat_close(struct gpu_seat *seat);

/*
 * At least `bytes`, contents undefined; NULL after a complaint. Where the GPU's
 * memory has to grow, no kernel may be waiting for a peer.
 */
void *gpu_device_memory(struct gpu_seat *seat, enum gpu_array array,
                        size_t bytes);
void *gpu_host_memory(struct gpu_seat *seat, enum gpu_array array,
                      size_t bytes);

#endif

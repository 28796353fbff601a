/* SPDX-License-Identifier: Apache-2.0 */
/* See cuda_placement.h. */
#include "cuda_placement.h"

#include <stdlib.h>
#include <string.h>

#include "../core/bits.h"
#include "../proto/sizes.h"
#include "cuda_channel.h"
#include "cuda_engine.h"
#include "cuda_memory.h"

enum {
	KEPT_LEAST = 2,
	KEPT_MOST = 512,
	KEPT_BYTES = 4 << 20, /* of them, where that is more than the least */
};

static size_t entry_bytes(const struct ferry_shape *shape)
{
	const size_t n = ferry_cuda_placement_words(shape->n_experts,
	                                            shape->n_expert_slots);

	return round_up(n * sizeof(int32_t), 256);
}

int32_t ferry_cuda_placements_kept(const struct ferry_shape *shape)
{
	const int64_t fit = (int64_t)(KEPT_BYTES / entry_bytes(shape));

	return (int32_t)max_i64(KEPT_LEAST, min_i64(KEPT_MOST, fit));
}

size_t ferry_cuda_placements_bytes(const struct ferry_shape *shape)
{
	return size_mul((size_t)ferry_cuda_placements_kept(shape),
	                entry_bytes(shape));
}

int ferry_cuda_placements_init(struct cuda_placements *p,
                               const struct ferry_shape *shape,
                               uint64_t identity_hash,
                               struct CUstream_st *stream)
{
	const size_t bytes = ferry_cuda_placements_bytes(shape);
	cudaError_t error;
	void *device = NULL;

	memset(p, 0, sizeof(*p));
	p->stream = stream;
	p->identity.hash = identity_hash;
	p->stride = entry_bytes(shape);
	p->n = ferry_cuda_placements_kept(shape);
	p->entries = calloc((size_t)p->n, sizeof(*p->entries));
	p->staging = calloc(1, p->stride);
	if (!p->entries || !p->staging)
		return cudaErrorMemoryAllocation;
	error = ferry_cuda_take(&device, bytes, stream);
	p->device = device;
	return (int)error;
}

void ferry_cuda_placements_destroy(struct cuda_placements *p)
{
	ferry_cuda_give(p->device, p->stream);
	free(p->entries);
	free(p->staging);
	memset(p, 0, sizeof(*p));
}

/* Waits for the kernels of all slots that were issued so far. */
static cudaError_t wait_for_kernels(struct ferry_engine *e)
{
	for (int32_t i = 0; i < e->moe->shape.n_slots; i++) {
		const cudaError_t error =
			(cudaError_t)ferry_cuda_order_wait(&e->slots[i].order);

		if (error != cudaSuccess)
			return error;
	}
	return cudaSuccess;
}

static int compare_named(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The older half of those that no graph holds goes; out of memory: none. */
static cudaError_t make_room(struct ferry_engine *e)
{
	struct cuda_placements *p = &e->placements;
	uint64_t *named = malloc((size_t)p->n * sizeof(*named));
	cudaError_t error = cudaErrorMemoryAllocation;
	uint64_t newest_dropped = 0;
	size_t n = 0;

	for (int32_t i = 0; named && i < p->n; i++)
		if (!p->entries[i].captured)
			named[n++] = p->entries[i].named;
	if (n) {
		qsort(named, n, sizeof(*named), compare_named);
		newest_dropped = named[(n - 1) / 2];
		error = wait_for_kernels(e);
	}
	free(named);
	for (int32_t i = 0; error == cudaSuccess && i < p->n; i++)
		if (!p->entries[i].captured &&
		    p->entries[i].named <= newest_dropped)
			p->entries[i].hash = 0;
	return error;
}

/* An entry with this hash, -1: none. */
static int32_t find(const struct cuda_placements *p, uint64_t hash)
{
	if (p->entries[p->last].hash == hash)
		return p->last;
	for (int32_t i = 0; i < p->n; i++)
		if (p->entries[i].hash == hash)
			return i;
	return -1;
}

static cudaError_t upload(struct cuda_placements *p, int32_t i,
                          const struct ferry_placement *placement)
{
	cudaError_t error;

	ferry_cuda_placement_copy(p->staging, placement);
	error = cudaMemcpyAsync(p->device + (size_t)i * p->stride, p->staging,
	                        p->stride, cudaMemcpyHostToDevice, p->stream);
	if (error == cudaSuccess)
		error = cudaStreamSynchronize(p->stream);
	return error;
}

static cudaError_t add(struct ferry_engine *e,
                       const struct ferry_placement *placement, int32_t *at)
{
	struct cuda_placements *p = &e->placements;
	cudaError_t error = cudaSuccess;
	int32_t i = find(p, 0);

	if (i < 0) {
		error = make_room(e);
		i = find(p, 0);
	}
	if (error == cudaSuccess)
		error = upload(p, i, placement);
	if (error == cudaSuccess)
		p->entries[i] = (struct cuda_placement){
			.hash = ferry_placement_hash(placement)};
	*at = i;
	return error;
}

/* A capture, of this thread or another, does not mind the copy. */
static cudaError_t add_relaxed(struct ferry_engine *e,
                               const struct ferry_placement *placement,
                               int32_t *at)
{
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
	cudaError_t error = cudaThreadExchangeStreamCaptureMode(&mode);

	if (error != cudaSuccess)
		return error;
	error = add(e, placement, at);
	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	return error;
}

int ferry_cuda_placement_get(struct ferry_engine *e,
                             const struct ferry_placement *placement,
                             bool capturing, struct ferry_cuda_placement *found)
{
	struct cuda_placements *p = &e->placements;
	cudaError_t error = cudaSuccess;

	if (!placement) {
		*found = p->identity;
		return (int)error;
	}
	const uint64_t hash = ferry_placement_hash(placement);
	int32_t i = find(p, hash);

	if (i < 0)
		error = add_relaxed(e, placement, &i);
	if (error != cudaSuccess)
		return (int)error;
	struct cuda_placement *entry = &p->entries[i];

	p->last = i;
	entry->named = ++p->n_named;
	entry->captured |= capturing;
	*found = ferry_cuda_placement_at(
		(const int32_t *)(const void *)(p->device +
	                                        (size_t)i * p->stride),
		placement);
	return (int)cudaSuccess;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* See cuda_link.h. Its twin without CUDA is in cuda_none.c. */
#include "cuda_link.h"

#include <string.h>

#include "../fabric/cuda_call.h"
#include "../fabric/nvml_links.h"
#include "cuda_info.h"
#include "link_probe.h"

enum {
	BUFFER_BYTES = 64 << 20, /* more than the L2 cache */
	TIMES = 4,
	TRIES = 3,
	FLAG_ROUNDS = 1000,
	LINE_BYTES = 128,
};

/* Both ends, while they are measured. */
struct ends {
	struct ferry_gpu *gpu[2];
	struct ferry_gpu_memory *memory[2]; /* both GPUs use both */
};

static bool uuid_of(int32_t i, uint8_t uuid[FERRY_GPU_UUID_BYTES])
{
	struct cudaDeviceProp p;

	if (cudaGetDeviceProperties(&p, i) != cudaSuccess)
		return false;
	memcpy(uuid, p.uuid.bytes, FERRY_GPU_UUID_BYTES);
	return true;
}

void ferry_cuda_link_get(int32_t from, int32_t to, struct ferry_cuda_link *link)
{
	uint8_t a[FERRY_GPU_UUID_BYTES], b[FERRY_GPU_UUID_BYTES];
	int32_t n = -1;

	memset(link, 0, sizeof(*link));
	if (!ferry_cuda_peer(from, to))
		return;
	if (uuid_of(from, a) && uuid_of(to, b))
		n = ferry_nvml_links(a, b);
	/* Without NVML: only NVLink does atomics of one GPU on another. */
	link->kind = n > 0 || (n < 0 && ferry_cuda_has_atomics(from, to))
	                     ? FERRY_LINK_NVLINK
	                     : FERRY_LINK_PCIE;
	link->n_links = n > 0 ? n : 0;
}

static void ends_close(struct ends *e)
{
	for (int i = 0; i < 2; i++)
		if (e->memory[i])
			ferry_gpu_free(e->gpu[i], e->memory[i]);
	for (int i = 0; i < 2; i++)
		ferry_gpu_close(e->gpu[i]);
}

static enum ferry_status ends_open(struct ends *e, int32_t from, int32_t to)
{
	const int32_t ordinals[] = {from, to};

	for (int i = 0; i < 2; i++)
		FERRY_TRY(ferry_gpu_open(NULL, ordinals[i] + 1, &e->gpu[i]));
	for (int i = 0; i < 2; i++)
		FERRY_TRY(ferry_gpu_alloc(NULL, e->gpu[i],
		                          BUFFER_BYTES + 2 * LINE_BYTES,
		                          &e->memory[i]));
	for (int i = 0; i < 2; i++)
		FERRY_TRY(
			ferry_gpu_share(NULL, e->gpu[1 - i], i, e->memory[i]));
	return FERRY_OK;
}

/* Behind the buffer of an end: its word, and on another line the time. */
static uint64_t *word(const struct ends *e, int end, int line)
{
	unsigned char *const base = ferry_gpu_address(e->memory[end]);

	return (uint64_t *)(void *)(base + BUFFER_BYTES + line * LINE_BYTES);
}

static cudaError_t time_store(const struct ends *e, const cudaEvent_t *at,
                              float *ms)
{
	const cudaStream_t stream = e->gpu[0]->stream;
	cudaError_t error = cudaEventRecord(at[0], stream);

	if (error == cudaSuccess)
		error = (cudaError_t)ferry_probe_store(
			ferry_gpu_address(e->memory[1]), BUFFER_BYTES, TIMES,
			stream);
	if (error == cudaSuccess)
		error = cudaEventRecord(at[1], stream);
	if (error == cudaSuccess)
		error = cudaStreamSynchronize(stream);
	if (error == cudaSuccess)
		error = cudaEventElapsedTime(ms, at[0], at[1]);
	return error;
}

/* Best of some tries, after one that does not count. */
static cudaError_t measure_store(const struct ends *e,
                                 struct ferry_cuda_link *link)
{
	cudaEvent_t at[2] = {NULL, NULL};
	cudaError_t error = cudaEventCreate(&at[0]);
	float ms = 0, best = 1e9f;

	if (error == cudaSuccess)
		error = cudaEventCreate(&at[1]);
	for (int i = 0; error == cudaSuccess && i <= TRIES; i++) {
		error = time_store(e, at, &ms);
		if (i > 0 && ms < best)
			best = ms;
	}
	for (int i = 0; i < 2; i++)
		if (at[i])
			(void)cudaEventDestroy(at[i]);
	if (error == cudaSuccess)
		link->gb_per_s =
			(double)BUFFER_BYTES * TIMES / (double)best / 1e6;
	return error;
}

static enum ferry_status launch_flag(const struct ends *e, int end,
                                     int32_t rounds)
{
	struct ferry_cuda_scope scope;

	FERRY_TRY(ferry_cuda_enter(NULL, e->gpu[end], &scope));
	const int error = ferry_probe_flag(word(e, end, 0), word(e, 1 - end, 0),
	                                   rounds, end == 0, word(e, end, 1),
	                                   e->gpu[end]->stream);

	ferry_cuda_leave(&scope);
	if (error == cudaSuccess)
		return FERRY_OK;
	return ferry_cuda_fail(NULL, (cudaError_t)error,
	                       "a flag between two GPUs");
}

static enum ferry_status sync_end(const struct ends *e, int end, uint64_t *ns)
{
	struct ferry_cuda_scope scope;

	FERRY_TRY(ferry_cuda_enter(NULL, e->gpu[end], &scope));
	cudaError_t error = cudaStreamSynchronize(e->gpu[end]->stream);

	if (error == cudaSuccess)
		error = cudaMemcpy(ns, word(e, end, 1), sizeof(*ns),
		                   cudaMemcpyDeviceToHost);
	ferry_cuda_leave(&scope);
	if (error == cudaSuccess)
		return FERRY_OK;
	return ferry_cuda_fail(NULL, error, "a flag between two GPUs");
}

/* Without rounds first: that loads the kernel, which may wait for others. */
static enum ferry_status measure_flag(const struct ends *e,
                                      struct ferry_cuda_link *link)
{
	static const int32_t rounds[] = {0, FLAG_ROUNDS};
	uint64_t ns[2] = {0, 0};

	for (int i = 0; i < 2; i++) {
		for (int end = 1; end >= 0; end--)
			FERRY_TRY(launch_flag(e, end, rounds[i]));
		for (int end = 0; end < 2; end++)
			FERRY_TRY(sync_end(e, end, &ns[end]));
	}
	link->flag_ns = (double)ns[0] / (FLAG_ROUNDS - 1);
	return FERRY_OK;
}

static enum ferry_status measure(const struct ends *e,
                                 struct ferry_cuda_link *link)
{
	struct ferry_cuda_scope scope;

	FERRY_TRY(ferry_cuda_enter(NULL, e->gpu[0], &scope));
	const cudaError_t error = measure_store(e, link);

	ferry_cuda_leave(&scope);
	if (error != cudaSuccess)
		return ferry_cuda_fail(NULL, error, "stores to another GPU");
	return measure_flag(e, link);
}

enum ferry_status ferry_cuda_link_measure(int32_t from, int32_t to,
                                          struct ferry_cuda_link *link)
{
	struct ends e = {0};
	enum ferry_status status = ends_open(&e, from, to);

	if (status == FERRY_OK)
		status = measure(&e, link);
	ends_close(&e);
	return status;
}

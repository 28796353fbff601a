/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The harness's memory, channels and launches; what it compares is in
 * cuda_harness_check.c, its clock in cuda_harness_time.c.
 */
#include "cuda_harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bits.h"
#include "core/dtype.h"
#include "cuda/cuda_channel.h"
#include "cuda_harness_inner.h"

int32_t harness_n_gpus(void)
{
	int n = 0;

	if (cudaGetDeviceCount(&n) != cudaSuccess)
		return 0;
	return n;
}

void harness_cuda(int error, const char *what, int line)
{
	if (error == 0)
		return;
	printf("line %d: %s: %s\n", line, what,
	       cudaGetErrorString((cudaError_t)error));
	exit(1);
}

void harness_on(const struct harness *h, int32_t rank)
{
	CU(cudaSetDevice(rank % h->n_gpus));
}

static void keep(struct harness *h, void *p, int32_t gpu)
{
	if (h->n_freed == (int32_t)(sizeof(h->freed) / sizeof(*h->freed))) {
		printf("harness: too many arrays\n");
		exit(1);
	}
	h->freed[h->n_freed] = p;
	h->freed_gpu[h->n_freed++] = gpu;
}

/* Zeroed device memory that lives as long as the harness. */
static void *device_array(struct harness *h, int32_t rank, size_t bytes)
{
	void *p;

	harness_on(h, rank);
	CU(cudaMalloc(&p, bytes ? bytes : 1));
	CU(cudaMemset(p, 0, bytes ? bytes : 1));
	keep(h, p, rank % h->n_gpus);
	return p;
}

static void make_shapes(struct harness *h)
{
	struct ferry_moe_config config = h->config;

	config.device = FERRY_DEVICE_CUDA;
	config.path = h->kernels.path;
	for (int32_t r = 0; r < h->n_ranks; r++)
		OK(ferry_shape_init(&h->shape[r], &config, h->n_ranks, r));
	OK(ferry_window_init(&h->window, &h->shape[0], false));
	/* Numbers of rows are those of a CPU world. */
	config.device = FERRY_DEVICE_CPU;
	config.path = FERRY_PATH_AUTO;
	h->need = (struct ferry_moe_need)FERRY_MOE_NEED_INIT;
	OK(ferry_moe_query(&config, &h->need));
}

static void make_channel(struct harness *h, int32_t rank)
{
	struct ferry_cuda_channel *c = &h->channel[rank];

	ferry_cuda_channel_fill(c, &h->shape[rank], &h->window, NULL);
	c->local = device_array(h, rank, sizeof(*c->local));
	harness_on(h, rank);
	CU(cudaHostAlloc((void **)&h->host[rank], sizeof(*h->host[rank]),
	                 cudaHostAllocMapped | cudaHostAllocPortable));
	memset(h->host[rank], 0, sizeof(*h->host[rank]));
	CU(cudaHostGetDevicePointer((void **)&c->host, h->host[rank], 0));
	c->timeout_ns = 2000000000u;
	c->early = h->kernels.early &&
	           (h->kernels.in_turn || h->n_ranks <= h->n_gpus);
	if (h->kernels.in_turn && rank > 0)
		h->stream[rank] = h->stream[0];
	else
		CU(cudaStreamCreateWithFlags(&h->stream[rank],
		                             cudaStreamNonBlocking));
}

static void share_windows(struct harness *h)
{
	unsigned char *windows[HARNESS_RANKS];

	for (int32_t a = 0; a < h->n_gpus; a++)
		for (int32_t b = 0; b < h->n_gpus; b++) {
			CU(cudaSetDevice(a));
			const cudaError_t e =
				a == b ? cudaSuccess
				       : cudaDeviceEnablePeerAccess(b, 0);

			if (e != cudaErrorPeerAccessAlreadyEnabled)
				CU(e);
			cudaGetLastError();
		}
	for (int32_t r = 0; r < h->n_ranks; r++)
		windows[r] = device_array(h, r, h->window.bytes);
	for (int32_t r = 0; r < h->n_ranks; r++)
		memcpy(h->channel[r].window, windows,
		       (size_t)h->n_ranks * sizeof(*windows));
}

/* Of dispatch; that of combine is behind it. */
static size_t dispatch_scratch(const struct harness *h, int32_t rank)
{
	if (!h->kernels.dispatch)
		return 0;
	return round_up(
		h->kernels.dispatch->scratch_bytes(&h->channel[rank], h->ctas),
		256);
}

static size_t scratch_bytes(const struct harness *h, int32_t rank)
{
	size_t combine = 0;

	if (h->kernels.combine)
		combine = h->kernels.combine->scratch_bytes(&h->channel[rank],
		                                            h->ctas);
	return dispatch_scratch(h, rank) + combine;
}

static void make_op(struct harness *h, int32_t rank, int32_t slot,
                    uint64_t first_epoch)
{
	harness_on(h, rank);
	CU(ferry_cuda_op_create(&h->op[rank][slot], &h->channel[rank],
	                        scratch_bytes(h, rank), first_epoch,
	                        h->stream[rank]));
}

static void load_kernels(struct harness *h)
{
	const int32_t per_gpu =
		h->kernels.in_turn ? 1
				   : (h->n_ranks + h->n_gpus - 1) / h->n_gpus;
	int32_t fit_ctas = 1;

	for (int32_t r = 0; r < h->n_ranks; r++) {
		struct ferry_cuda_fit fit = {.ctas_per_sm = 1};

		harness_on(h, r);
		if (h->kernels.dispatch) {
			CU(h->kernels.dispatch->load());
			CU(h->kernels.dispatch->measure(&h->channel[r], &fit));
		}
		if (h->kernels.combine) {
			CU(h->kernels.combine->load());
			CU(h->kernels.combine->measure(&h->channel[r], &fit));
		}
	}
	fit_ctas = 132 / per_gpu;
	h->ctas = h->kernels.ctas ? h->kernels.ctas : fit_ctas;
}

static void make_placement(struct harness *h)
{
	struct ferry_placement *made;

	if (!h->placement)
		return;
	OK(ferry_placement_create(h->placement, &made));
	const size_t bytes =
		4 * ferry_cuda_placement_words(h->shape[0].n_experts,
	                                       h->shape[0].n_expert_slots);
	int32_t *words = calloc(1, bytes);

	ferry_cuda_placement_copy(words, made);
	for (int32_t r = 0; r < h->n_ranks; r++) {
		int32_t *at = device_array(h, r, bytes);

		CU(cudaMemcpy(at, words, bytes, cudaMemcpyDefault));
		h->device_placement[r] = ferry_cuda_placement_at(at, made);
	}
	ferry_placement_destroy(made);
	free(words);
}

const char *harness_refusal(const struct ferry_moe_config *config,
                            const struct harness_kernels *kernels)
{
	struct ferry_moe_config c = *config;
	struct ferry_cuda_channel channel = {.n_ranks = 0};
	struct ferry_shape shape;
	struct ferry_window window;
	const char *why = NULL;

	c.device = FERRY_DEVICE_CUDA;
	c.path = kernels->path;
	if (ferry_shape_init(&shape, &c, c.n_ranks, 0))
		return ferry_last_error();
	if (ferry_window_init(&window, &shape, false))
		return ferry_last_error();
	ferry_cuda_channel_fill(&channel, &shape, &window, NULL);
	if (kernels->dispatch)
		why = kernels->dispatch->refuse(&channel);
	if (!why && kernels->combine)
		why = kernels->combine->refuse(&channel);
	ferry_shape_destroy(&shape);
	return why;
}

struct harness *harness_open(const struct ferry_moe_config *config,
                             const struct ferry_placement_config *placement,
                             const struct harness_kernels *kernels,
                             uint64_t first_epoch)
{
	struct harness *h = calloc(1, sizeof(*h));

	h->config = *config;
	h->kernels = *kernels;
	h->placement = placement;
	h->n_ranks = config->n_ranks;
	h->n_gpus = harness_n_gpus();
	if (h->n_gpus > h->n_ranks)
		h->n_gpus = h->n_ranks;
	if (h->n_gpus && kernels->in_turn)
		h->n_gpus = 1;
	if (!h->n_gpus) {
		printf("harness: no GPU\n");
		exit(77);
	}
	make_shapes(h);
	for (int32_t r = 0; r < h->n_ranks; r++)
		make_channel(h, r);
	share_windows(h);
	load_kernels(h);
	for (int32_t s = 0; s < h->shape[0].n_slots; s++) {
		h->epoch[s] = first_epoch - 1;
		for (int32_t r = 0; r < h->n_ranks; r++)
			make_op(h, r, s, first_epoch);
	}
	make_placement(h);
	for (int32_t g = 0; g < h->n_gpus; g++) {
		harness_on(h, g);
		CU(cudaDeviceSynchronize());
	}
	return h;
}

void harness_drop(struct harness *h, int32_t rank, struct harness_array *a)
{
	if (!a->device)
		return;
	harness_on(h, rank);
	CU(cudaFree(a->device));
	*a = (struct harness_array){NULL, 0};
}

static void drop_op(struct harness *h, int32_t rank, struct harness_op *op)
{
	for (int i = 0; i < 5; i++)
		harness_drop(h, rank, &op->input[i]);
	for (int i = 0; i < HARNESS_OUTPUTS; i++)
		harness_drop(h, rank, &op->output[i]);
	harness_free_want(&op->want);
	harness_drop(h, rank, &op->y);
	harness_drop(h, rank, &op->sum);
	traffic_free(&op->batch);
}

void harness_close(struct harness *h)
{
	harness_sync(h);
	for (int32_t r = 0; r < h->n_ranks; r++) {
		for (int32_t s = 0; s < HARNESS_SLOTS; s++)
			drop_op(h, r, &h->ops[r][s]);
		harness_on(h, r);
		for (int32_t s = 0; s < h->shape[r].n_slots; s++)
			ferry_cuda_op_destroy(&h->op[r][s], h->stream[r]);
		CU(cudaFreeHost(h->host[r]));
		ferry_shape_destroy(&h->shape[r]);
	}
	for (int32_t r = 0; r < (h->kernels.in_turn ? 1 : h->n_ranks); r++)
		CU(cudaStreamDestroy(h->stream[r]));
	for (int32_t i = 0; i < h->n_freed; i++) {
		CU(cudaSetDevice(h->freed_gpu[i]));
		CU(cudaFree(h->freed[i]));
	}
	free(h);
}

void harness_dispatch_rank(struct harness *h, void *arg, int32_t rank)
{
	const struct harness_launch *l = arg;
	const struct harness_op *op = &h->ops[rank][l->slot];
	const struct ferry_shape *shape = &h->shape[rank];
	struct ferry_cuda_dispatch d = {
		.ch = h->channel[rank],
		.op = h->op[rank][l->slot],
		.parts = l->parts,
		.slot = l->slot,
		.in = op->in,
		.placement = h->device_placement[rank],
		.row_bytes =
			(size_t)op->in.hidden * ferry_dtype_bytes(shape->dtype),
		.scale_row_bytes =
			ferry_shape_scale_bytes(shape, op->in.hidden),
	};

	if (shape->scale_type == FERRY_SCALE_BYTES)
		d.n_scales = 1;
	else if (shape->scale_type != FERRY_SCALE_NONE)
		d.n_scales = (int32_t)div_up(op->in.hidden, shape->scale_block);
	if (l->parts & FERRY_CUDA_RECV)
		d.out = op->out;
	harness_on(h, rank);
	CU(h->kernels.dispatch->launch(&d, h->ctas, h->stream[rank]));
}

void harness_combine_rank(struct harness *h, void *arg, int32_t rank)
{
	const struct harness_launch *l = arg;
	const struct harness_op *op = &h->ops[rank][l->slot];
	struct ferry_cuda_combine c = {
		.ch = h->channel[rank],
		.op = h->op[rank][l->slot],
		.parts = l->parts,
		.slot = l->slot,
		.hidden = op->in.hidden,
		.topk = op->in.topk,
		.in = op->combine_in,
		.out = op->combine_out,
		.row_bytes = (size_t)op->in.hidden *
	                     ferry_dtype_bytes(h->shape[rank].combine_dtype),
	};

	c.op.scratch =
		(unsigned char *)c.op.scratch + dispatch_scratch(h, rank);
	harness_on(h, rank);
	CU(h->kernels.combine->launch(&c, h->ctas, h->stream[rank]));
}

void harness_dispatch(struct harness *h, int32_t slot, int32_t parts)
{
	struct harness_launch l = {slot, parts};

	for (int32_t r = 0; r < h->n_ranks; r++)
		harness_dispatch_rank(h, &l, r);
	if (parts & FERRY_CUDA_SEND)
		h->epoch[slot]++;
}

void harness_combine(struct harness *h, int32_t slot, int32_t parts)
{
	struct harness_launch l = {slot, parts};

	for (int32_t r = 0; r < h->n_ranks; r++)
		harness_combine_rank(h, &l, r);
}

void harness_sync(struct harness *h)
{
	for (int32_t r = 0; r < h->n_ranks; r++) {
		harness_on(h, r);
		CU(cudaStreamSynchronize(h->stream[r]));
	}
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checked step of a CUDA rank: what came is copied to the host, and compared
 * there with the recomputation of bench_verify.h.
 */
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "bench_shares.h"
#include "gpu_rank.h"

/* A step under way: what every share of the work needs. */
struct gpu_step {
	struct gpu_rank *rank;
	uint64_t step;
	struct bench_arrivals arrivals;
	char *x;
	float *x_scales; /* of rows that come quantised */
	uint16_t *y;
	const uint16_t *out;
};

enum gpu_way { TO_GPU, TO_HOST };

static bool copy(struct gpu_rank *r, void *device, void *host, size_t bytes,
                 enum gpu_way way)
{
	cudaStream_t stream = r->seat->stream;
	cudaError_t error = cudaSuccess;

	if (bytes && way == TO_GPU)
		error = cudaMemcpyAsync(device, host, bytes,
		                        cudaMemcpyHostToDevice, stream);
	else if (bytes)
		error = cudaMemcpyAsync(host, device, bytes,
		                        cudaMemcpyDeviceToHost, stream);
	return gpu_good(r->seat->me, error, "copying");
}

/* Rows by expert slot: packed on the host, as the layout says on the GPU. */
static bool copy_rows(struct gpu_step *s, void *device, void *host,
                      size_t row_bytes, enum gpu_way way)
{
	struct gpu_rank *r = s->rank;
	const struct bench_arrivals *a = &s->arrivals;
	bool good = true;

	if (r->c->layout != FERRY_EXPERT_PADDED)
		return copy(r, device, host, (size_t)a->n * row_bytes, way);
	for (int32_t i = 0; good && i < a->n_slots; i++) {
		const size_t there = (size_t)(i * r->need.recv_rows_slot);

		good = copy(r, (char *)device + there * row_bytes,
		            (char *)host + (size_t)a->offsets[i] * row_bytes,
		            (size_t)a->counts[i] * row_bytes, way);
	}
	return good;
}

/* Of a row as the caller has it. */
static size_t in_row_bytes(const struct bench_case *c)
{
	return (size_t)c->hidden * (c->ready ? 1 : sizeof(uint16_t));
}

static int64_t make_rows(void *arg, struct bench_share share)
{
	struct gpu_step *s = arg;
	const struct bench_case *c = s->rank->c;
	const int32_t me = s->rank->seat->me->rank;
	const size_t hidden = (size_t)c->hidden;
	uint16_t *row = alloc_or_exit(hidden, sizeof(*row));

	for (int32_t t = share.part; t < bench_tokens(c, me); t += share.of) {
		char *const to = s->x + (size_t)t * in_row_bytes(c);

		bench_make_row(c, me, s->step, t, row);
		if (c->ready)
			bench_quantize(row, c->hidden, (uint8_t *)to,
			               s->x_scales +
			                       t * (int64_t)bench_scales(c));
		else
			memcpy(to, row, hidden * sizeof(*row));
	}
	free(row);
	return 0;
}

static bool load_inputs(struct gpu_step *s)
{
	struct gpu_rank *r = s->rank;
	const struct bench_case *c = r->c;
	const int32_t me = r->seat->me->rank;
	const size_t tokens = (size_t)bench_tokens(c, me);
	const size_t choices = (size_t)c->tokens * (size_t)c->topk * 4;
	const size_t x_bytes = tokens * in_row_bytes(c);
	const size_t scales_bytes =
		c->ready ? tokens * r->need.scale_row_bytes : 0;
	int32_t *ids = gpu_host_memory(r->seat, GPU_IDS, choices);
	float *weights = gpu_host_memory(r->seat, GPU_WEIGHTS, choices);

	s->x = gpu_host_memory(r->seat, GPU_X, x_bytes);
	s->x_scales = gpu_host_memory(r->seat, GPU_X_SCALES, scales_bytes);
	if (!ids || !weights || !s->x || !s->x_scales)
		return false;
	bench_make_routing(c, me, s->step, ids, weights);
	bench_share_out(r->seat->n_threads, make_rows, s);
	return copy(r, r->seat->device_memory[GPU_IDS].start, ids,
	            tokens * (size_t)c->topk * 4, TO_GPU) &&
	       copy(r, r->seat->device_memory[GPU_WEIGHTS].start, weights,
	            tokens * (size_t)c->topk * 4, TO_GPU) &&
	       copy(r, r->seat->device_memory[GPU_X_SCALES].start, s->x_scales,
	            scales_bytes, TO_GPU) &&
	       copy(r, r->seat->device_memory[GPU_X].start, s->x, x_bytes,
	            TO_GPU);
}

/* Old rows must not pass for new ones. */
static bool poison(struct gpu_rank *r)
{
	const struct gpu_seat *s = r->seat;
	const size_t out =
		(size_t)r->c->tokens * (size_t)r->c->hidden * sizeof(uint16_t);
	const size_t rows =
		r->got.rows ? (size_t)r->need.recv_rows * r->need.row_bytes : 0;

	return gpu_good(s->me,
	                cudaMemsetAsync(r->sum.out, 0x5a, out, s->stream),
	                "poisoning") &&
	       (!rows ||
	        gpu_good(s->me,
	                 cudaMemsetAsync(r->got.rows, 0x5a, rows, s->stream),
	                 "poisoning"));
}

/* TOKEN: the whole view, rows with their scales, and the index lists. */
static bool fetch_view(struct gpu_step *s)
{
	struct gpu_rank *r = s->rank;
	const struct ferry_moe_view *v = &r->view;
	const size_t bytes = (size_t)v->n_rows * v->row_stride;
	const size_t index_bytes = (size_t)s->arrivals.n * 8;
	char *rows = gpu_host_memory(r->seat, GPU_ROWS, bytes);
	void *index = gpu_host_memory(r->seat, GPU_INDEX, index_bytes);

	if (!rows || !index ||
	    !copy(r, (void *)(uintptr_t)v->rows, rows, bytes, TO_HOST) ||
	    !copy(r, r->got.index, index, index_bytes, TO_HOST))
		return false;
	r->received.rows = rows;
	r->received.row_stride = v->row_stride;
	if (v->scales)
		r->received.scales = rows + ((const char *)v->scales -
		                             (const char *)v->rows);
	r->received.scales_stride = v->row_stride;
	r->received.index = index;
	return true;
}

static bool fetch_rows(struct gpu_step *s)
{
	struct gpu_rank *r = s->rank;
	const size_t n = (size_t)s->arrivals.n;
	const size_t row = r->need.row_bytes, scales = r->need.scale_row_bytes;
	void *to = gpu_host_memory(r->seat, GPU_ROWS, n * row);
	void *to_scales = gpu_host_memory(r->seat, GPU_SCALES, n * scales);

	if (!to || !to_scales || !copy_rows(s, r->got.rows, to, row, TO_HOST) ||
	    (r->c->fp8 &&
	     !copy_rows(s, r->got.scales, to_scales, scales, TO_HOST)))
		return false;
	r->received.rows = to;
	r->received.row_stride = row;
	r->received.scales = r->c->fp8 ? to_scales : NULL;
	r->received.scales_stride = scales;
	return true;
}

/* What dispatch has brought, to the host. */
static bool fetch_received(struct gpu_step *s)
{
	struct gpu_rank *r = s->rank;
	const size_t slots = (size_t)s->arrivals.n_slots;
	int32_t *counts = gpu_host_memory(r->seat, GPU_COUNTS, slots * 4);
	int64_t *offsets =
		gpu_host_memory(r->seat, GPU_OFFSETS, (slots + 1) * 8);

	r->received = (struct bench_received){
		.counts = counts,
		.offsets = r->c->layout == FERRY_EXPERT_PADDED ? NULL : offsets,
	};
	return counts && offsets &&
	       copy(r, r->got.counts, counts, slots * 4, TO_HOST) &&
	       copy(r, r->got.offsets, offsets, (slots + 1) * 8, TO_HOST) &&
	       (r->c->layout == FERRY_TOKEN ? fetch_view(s) : fetch_rows(s)) &&
	       gpu_rank_sync(r);
}

static bool fetch_sums(struct gpu_step *s)
{
	struct gpu_rank *r = s->rank;
	const size_t bytes =
		(size_t)r->c->tokens * (size_t)r->c->hidden * sizeof(*s->out);
	void *out = gpu_host_memory(r->seat, GPU_OUT, bytes);

	s->out = out;
	return out && copy(r, r->sum.out, out, bytes, TO_HOST) &&
	       gpu_rank_sync(r);
}

static int64_t check_received(void *arg, struct bench_share share)
{
	const struct gpu_step *s = arg;

	return bench_check_received(&s->rank->packed, s->step, &s->arrivals,
	                            &s->rank->received, share);
}

static int64_t check_sums(void *arg, struct bench_share share)
{
	const struct gpu_step *s = arg;

	return bench_check_sums(s->rank->c, s->rank->seat->me->rank, s->step,
	                        s->out, share);
}

static int64_t experts(void *arg, struct bench_share share)
{
	const struct gpu_step *s = arg;

	bench_run_experts(&s->rank->packed, &s->arrivals, &s->rank->received,
	                  s->rank->presummed, s->y, share);
	return 0;
}

/* The experts' rows, made on the host, to where combine reads them. */
static bool run_experts(struct gpu_step *s)
{
	struct gpu_rank *r = s->rank;
	const size_t row = (size_t)r->c->hidden * sizeof(*s->y);
	const size_t rows =
		(size_t)(r->presummed ? r->view.n_rows : s->arrivals.n);
	void *to = r->seat->device_memory[GPU_Y].start;

	s->y = gpu_host_memory(r->seat, GPU_Y, rows * row);
	if (!s->y)
		return false;
	bench_share_out(r->seat->n_threads, experts, s);
	return r->presummed ? copy(r, to, s->y, rows * row, TO_GPU)
	                    : copy_rows(s, to, s->y, row, TO_GPU);
}

static void step_begin(struct gpu_step *s, struct gpu_rank *rank, uint64_t step)
{
	*s = (struct gpu_step){.rank = rank, .step = step};
	bench_arrivals_make(&s->arrivals, &rank->packed, rank->seat->me->rank,
	                    step, 0);
}

/* An index list that cannot be right leads anywhere: no experts then. */
static bool run_step(struct gpu_step *s, int64_t *wrong)
{
	struct gpu_rank *r = s->rank;
	const int32_t n = r->seat->n_threads;
	int64_t wrong_rows = 0;

	if (!load_inputs(s) || !poison(r) || !gpu_rank_sync(r) ||
	    !gpu_rank_dispatch(r, 0) || !gpu_rank_sync(r) || !fetch_received(s))
		return false;
	if (wrong || r->received.index)
		wrong_rows = bench_share_out(n, check_received, s);
	if (wrong)
		wrong[0] += wrong_rows;
	if (!(wrong_rows && r->received.index) && !run_experts(s))
		return false;
	if (!gpu_rank_combine(r, 0) || !gpu_rank_sync(r))
		return false;
	if (!wrong)
		return true;
	if (!fetch_sums(s))
		return false;
	wrong[1] += bench_share_out(n, check_sums, s);
	return true;
}

bool gpu_rank_step(struct gpu_rank *rank, uint64_t step, int64_t *wrong)
{
	struct gpu_step s;

	step_begin(&s, rank, step);
	const bool good = run_step(&s, wrong);

	bench_arrivals_free(&s.arrivals);
	return good;
}

bool gpu_rank_check(struct gpu_rank *rank, uint64_t step, int64_t *wrong)
{
	const int32_t n = rank->seat->n_threads;
	struct gpu_step s;

	step_begin(&s, rank, step);
	const bool good = fetch_received(&s) && fetch_sums(&s);

	if (good) {
		wrong[0] += bench_share_out(n, check_received, &s);
		wrong[1] += bench_share_out(n, check_sums, &s);
	}
	bench_arrivals_free(&s.arrivals);
	return good;
}

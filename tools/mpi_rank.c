/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers of the MPI baseline, and the steps that both forms share. */
#include "mpi_rank.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "core/bits.h"

/* Most rows that arrive here in the steps that are run: 0 and 1. */
static int64_t most_arrivals(const struct mpi_rank *r)
{
	int64_t most = 0;

	for (uint64_t step = 0; step < 2; step++) {
		struct bench_arrivals arrivals;

		bench_arrivals_make(&arrivals, r->c, r->rank, step, 0);
		most = max_i64(most, arrivals.n);
		bench_arrivals_free(&arrivals);
	}
	return most;
}

static void lane_make(struct mpi_lane *lane, const struct mpi_rank *r,
                      int64_t rows)
{
	const size_t n = (size_t)r->n_ranks;
	const size_t row_bytes =
		r->wire_row > r->back_row ? r->wire_row : r->back_row;

	lane->rows = alloc_or_exit((size_t)rows, row_bytes);
	lane->n = alloc_or_exit(n, sizeof(*lane->n));
	lane->bytes = alloc_or_exit(n, sizeof(*lane->bytes));
	lane->at = alloc_or_exit(n, sizeof(*lane->at));
	lane->first = alloc_or_exit(n + 1, sizeof(*lane->first));
}

static void lane_free(struct mpi_lane *lane)
{
	free(lane->rows);
	free(lane->n);
	free(lane->bytes);
	free(lane->at);
	free(lane->first);
}

static void set_sizes(struct mpi_rank *r)
{
	const struct bench_case *c = r->c;

	r->first_expert = bench_first_expert(c, r->rank);
	r->n_experts = bench_first_expert(c, r->rank + 1) - r->first_expert;
	r->most_experts = bench_first_expert(c, 1);
	r->row_bytes = bench_row_bytes(c);
	r->scale_at = round_up(r->row_bytes, sizeof(float));
	r->scale_bytes = (size_t)bench_scales(c) * sizeof(float);
	r->wire_row = c->fp8 ? r->scale_at + r->scale_bytes : r->row_bytes;
	r->back_row = (size_t)c->hidden * sizeof(uint16_t);
	r->padded_rows = (int64_t)c->n_ranks * c->tokens;
	r->owner = alloc_or_exit((size_t)c->experts, sizeof(*r->owner));
	for (int32_t e = 0; e < c->experts; e++)
		r->owner[e] = bench_owner(c, e);
}

static void make_inputs(struct mpi_rank *r, size_t choices)
{
	const size_t values = (size_t)r->tokens * (size_t)r->c->hidden;

	r->x = alloc_or_exit(values, sizeof(*r->x));
	r->out = alloc_or_exit(values, sizeof(*r->out));
	r->ids = alloc_or_exit(choices, sizeof(*r->ids));
	r->weights = alloc_or_exit(choices, sizeof(*r->weights));
	r->back = alloc_or_exit(choices, sizeof(*r->back));
}

static void make_outputs(struct mpi_rank *r, size_t rows)
{
	const size_t experts = (size_t)r->n_experts;

	r->rows = alloc_or_exit(rows, r->row_bytes);
	r->scales = alloc_or_exit(rows, r->scale_bytes ? r->scale_bytes : 1);
	r->y = alloc_or_exit(rows, r->back_row);
	r->counts = alloc_or_exit(experts, sizeof(*r->counts));
	r->offsets = alloc_or_exit(experts + 1, sizeof(*r->offsets));
}

void mpi_rank_make(struct mpi_rank *rank, const struct bench_case *c,
                   int32_t number)
{
	struct mpi_rank *const r = rank;
	const size_t ranks = (size_t)c->n_ranks;
	const size_t choices = (size_t)c->tokens * (size_t)c->topk;

	*r = (struct mpi_rank){
		.c = c,
		.kernels = ferry_kernels_at(0),
		.rank = number,
		.n_ranks = c->n_ranks,
		.tokens = c->tokens,
		.topk = c->topk,
	};
	set_sizes(r);
	const int64_t arrivals = most_arrivals(r);
	const int64_t lane_rows = max_i64(arrivals, (int64_t)choices);
	const int64_t rows = c->layout == FERRY_EXPERT_PADDED
	                             ? r->n_experts * r->padded_rows
	                             : arrivals;

	make_inputs(r, choices);
	make_outputs(r, (size_t)rows);
	lane_make(&r->send, r, lane_rows);
	lane_make(&r->recv, r, lane_rows);
	r->scratch = alloc_or_exit(1, r->wire_row + r->back_row);
	const size_t counts = ranks * (size_t)r->most_experts;

	r->counts_out = alloc_or_exit(counts, sizeof(*r->counts_out));
	r->counts_in = alloc_or_exit(counts, sizeof(*r->counts_in));
	r->next = alloc_or_exit((size_t)c->experts + ranks, sizeof(*r->next));
	r->serves = alloc_or_exit(ranks, sizeof(*r->serves));
	r->tables = alloc_or_exit((ranks + 1) * choices, 8);
	r->local = alloc_or_exit((size_t)arrivals, sizeof(*r->local));
}

void mpi_rank_free(struct mpi_rank *r)
{
	void *const all[] = {r->owner,  r->x,          r->y,         r->out,
	                     r->ids,    r->weights,    r->rows,      r->scales,
	                     r->counts, r->offsets,    r->scratch,   r->back,
	                     r->next,   r->counts_out, r->counts_in, r->tables,
	                     r->local,  r->serves};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		free(all[i]);
	lane_free(&r->send);
	lane_free(&r->recv);
}

void mpi_place_experts(struct mpi_rank *r)
{
	const bool padded = r->c->layout == FERRY_EXPERT_PADDED;

	for (int32_t s = 0; s < r->n_experts; s++)
		r->offsets[s + 1] = r->offsets[s] +
		                    (padded ? r->padded_rows : r->counts[s]);
}

const uint8_t *mpi_wire_row(struct mpi_rank *r, int32_t token)
{
	const uint16_t *x = r->x + (size_t)token * (size_t)r->c->hidden;

	if (!r->c->fp8)
		return (const void *)x;
	r->kernels->quantize(r->scratch, r->scratch + r->scale_at,
	                     FERRY_SCALE_FP32, x, (size_t)r->c->hidden);
	return r->scratch;
}

void mpi_deliver(struct mpi_rank *r, const uint8_t *wire, const int64_t *rows,
                 int n)
{
	void *to[FERRY_SUM_MAX] = {0};

	if (n == 0)
		return;
	for (int i = 0; i < n; i++)
		to[i] = r->rows + (size_t)rows[i] * r->row_bytes;
	r->kernels->copy(to, n, wire, r->row_bytes, true);
	for (int i = 0; r->scale_bytes && i < n; i++)
		memcpy(r->scales + (size_t)rows[i] * r->scale_bytes,
		       wire + r->scale_at, r->scale_bytes);
}

void mpi_lane_place(struct mpi_lane *lane, int32_t n_ranks, size_t row_bytes)
{
	for (int32_t q = 0; q < n_ranks; q++) {
		lane->first[q + 1] = lane->first[q] + lane->n[q];
		lane->bytes[q] = lane->n[q] * (int)row_bytes;
		lane->at[q] = (int)lane->first[q] * (int)row_bytes;
	}
}

void mpi_exchange(struct mpi_rank *r)
{
	MPI_Alltoallv(r->send.rows, r->send.bytes, r->send.at, MPI_BYTE,
	              r->recv.rows, r->recv.bytes, r->recv.at, MPI_BYTE,
	              MPI_COMM_WORLD);
}

uint64_t mpi_sent_bytes(const struct mpi_rank *r)
{
	uint64_t bytes = 0;

	for (int32_t q = 0; q < r->n_ranks; q++)
		bytes += (uint64_t)r->send.bytes[q];
	return bytes; /* the own rank's lane is empty */
}

void mpi_sum_choices(struct mpi_rank *r)
{
	const void *rows[FERRY_SUM_MAX];
	float weights[FERRY_SUM_MAX];

	for (int32_t t = 0; t < r->tokens; t++) {
		const size_t first = (size_t)t * (size_t)r->topk;
		int n = 0;

		for (size_t i = first; i < first + (size_t)r->topk; i++) {
			if (r->back[i] < 0)
				continue;
			const uint8_t *base = mpi_is_own(r, r->ids[i])
			                              ? (const uint8_t *)r->y
			                              : r->recv.rows;

			rows[n] = base + (size_t)r->back[i] * r->back_row;
			weights[n++] = r->weights[i];
		}
		r->kernels->sum((uint8_t *)r->out + (size_t)t * r->back_row,
		                FERRY_BF16, rows, FERRY_BF16, weights, n, NULL,
		                (size_t)r->c->hidden);
	}
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout function of the lean dispatch kernel: one warp finds the row of
 * one choice by counting the equal entries before it, and leaves it to the
 * copy engine and to combine.
 */
#ifndef FERRY_DISPATCH_LEAN_PLACE_CUH
#define FERRY_DISPATCH_LEAN_PLACE_CUH

#include "dispatch_lean_send.cuh"
#include "entries.cuh"

static __device__ __forceinline__ uint32_t
aligned_rows(const struct ferry_cuda_channel *ch, uint32_t rows)
{
	return (rows + (uint32_t)ch->alignment - 1) &
	       ~((uint32_t)ch->alignment - 1);
}

/* First row of an own slot in the output, by a warp. */
static __device__ __forceinline__ int64_t first_row(const struct lean *l,
                                                    uint32_t own_slot)
{
	const uint32_t *counts = lean_counts(l) + l->ch->first_slot[l->own];
	uint32_t sum = 0;

	if (l->ch->layout == FERRY_EXPERT_PADDED)
		return (int64_t)own_slot * l->ch->padded_rows;
#pragma unroll 1
	for (uint32_t first = 0; first < own_slot; first += 128)
#pragma unroll
		for (uint32_t j = 0; j < 4; j++) {
			const uint32_t s = first + j * 32 + l->lane;

			if (s < own_slot)
				sum += aligned_rows(l->ch, counts[s]);
		}
	return __reduce_add_sync(0xffffffffu, sum);
}

/*
 * The weight of entry `at` of a peer, from its line, which is waited for. By a
 * warp. False: the channel has ended.
 */
static __device__ __forceinline__ bool
receive_weight(const struct lean *l, uint32_t rank, uint32_t at, float *weight)
{
	const uint32_t byte = (uint32_t)sizeof(struct ferry_table) +
	                      (l->shared->n[rank] + at) * 4;
	const unsigned char *line = l->a->table_in[rank] + l->table_half +
	                            (size_t)(byte / LINE_DATA) * LINE_BYTES;
	const uint32_t word = byte % LINE_DATA / 4;
	uint32_t n_looks = 0;
	uint64_t a, b;

	/* Lanes of one load may see different values. */
	while (!__all_sync(0xffffffffu, line_load(line, l->team_lane, l->epoch,
	                                          0xffffffffu, &a, &b)))
		if (!lean_again(l, &n_looks, rank))
			return false;
	const uint64_t half = word % 4 < 2 ? a : b;

	*weight = __uint_as_float(__shfl_sync(
		0xffffffffu, (uint32_t)(word % 2 ? half >> 32 : half),
		(int)(word / 4), LINE_LANES));
	return true;
}

/* A row and its scales to a row of the output, by one thread. */
static __device__ __forceinline__ void
deliver(const struct lean *l, const unsigned char *image, int64_t row)
{
	const struct ferry_dispatch_out *out = &l->d->out;

	bulk_store((unsigned char *)out->rows + (size_t)row * out->row_stride,
	           image, l->a->row_bytes);
	if (l->a->scale_bytes && out->scales)
		bulk_store((unsigned char *)out->scales +
		                   (size_t)row * out->scales_stride,
		           image + l->a->row_bytes, l->a->scale_bytes);
}

/* Choice `task` of the block: which one it is. */
struct lean_task {
	uint32_t unit, source, token, choice;
};

static __device__ __forceinline__ struct lean_task task_of(const struct lean *l,
                                                           uint32_t i)
{
	const uint32_t q = lean_quotient(i, l->a->by_max_topk);
	struct lean_task t;

	t.unit = lean_quotient(q, l->a->by_ranks);
	t.source = q - t.unit * l->a->by_ranks.by;
	t.choice = i - q * l->a->by_max_topk.by;
	t.token = l->worker + t.unit * l->a->n_workers;
	return t;
}

static __device__ __forceinline__ uint32_t n_tasks(const struct lean *l)
{
	return l->a->n_units * l->a->by_ranks.by * l->a->by_max_topk.by;
}

static __device__ __forceinline__ int64_t *task_rows(const struct lean *l)
{
	return (int64_t *)(l->smem + l->a->at.rows);
}

/* Entries before entry `at` of a rank that are like it, this lane's share. */
template <int32_t PARTS>
static __device__ __forceinline__ uint32_t
count_before(const struct lean *l, uint32_t rank, uint32_t at, uint32_t slot)
{
	uint32_t count = 0;

	if (PARTS & LEAN_SEND) {
#pragma unroll 1
		for (uint32_t s = 0; s <= rank; s++)
			count += count_equal<4>(lean_entries(l, s),
			                        s < rank ? l->shared->n[s] : at,
			                        slot, l->lane);
	} else {
		/* What is behind the entries of a rank is like none. */
		count = count_equal_flat(lean_entries(l, 0),
		                         rank * l->a->at.entry_stride + at,
		                         slot, l->lane);
	}
	return count;
}

/* TOKEN: `row` is that of the index list. By one thread. */
static __device__ __forceinline__ void
list_task(const struct lean *l, const struct lean_task *t, int64_t row)
{
	const uint32_t half = (uint32_t)l->epoch & 1;

	/* As view_row_of, which divides by the size of groups. */
	if (row >= 0 && l->d->out.index)
		l->d->out.index[row] = (half * l->a->by_ranks.by + t->source) *
		                               (uint32_t)l->ch->cap +
		                       t->token;
}

/* Place, weight, and the row if it is here. By a warp. */
template <bool TOKEN, int32_t PARTS>
static __device__ __forceinline__ bool place_task(const struct lean *l,
                                                  const struct lean_task *t,
                                                  uint32_t i, bool here)
{
	const struct ferry_table *head = &l->shared->heads[t->source];
	const struct ferry_cuda_op *op = &l->d->op;
	const uint32_t topk = (uint32_t)head->topk;
	const uint32_t at = t->token * topk + t->choice;
	const uint32_t to =
		(t->source * (uint32_t)l->ch->max_tokens + t->token) *
			l->a->by_max_topk.by +
		t->choice;
	struct ferry_cuda_copy copy = {-1, 0};
	uint32_t slot = LEAN_NO_SLOT, count = 0;
	int64_t row = -1;
	float weight = 1;

	if (t->choice < topk)
		slot = lean_entries(l, t->source)[at];
	const uint32_t own_slot = lean_own_slot(l, slot);

	if (own_slot < (uint32_t)l->ch->own_expert_slots) {
		count = count_before<PARTS>(l, t->source, at, slot);
		copy.slot = (int32_t)own_slot;
		copy.index = (int32_t)__reduce_add_sync(0xffffffffu, count);
		row = first_row(l, own_slot) + copy.index;
		if (l->ch->bounded && copy.index >= l->ch->padded_rows) {
			/* The clerk of every rank refuses that. */
			copy = {-1, 0};
			row = -1;
		}
	}
	if (l->lane == 0) {
		if (TOKEN)
			list_task(l, t, row);
		else
			task_rows(l)[i] = row;
		if (!TOKEN && row >= 0 && (here || t->source == l->own)) {
			if (!(PARTS & LEAN_SEND) && !l->ch->quantize)
				barrier_wait(&l->shared->own_rows, 0);
			deliver(l, lean_row(l, t->unit, t->source), row);
		}
		op->copies[to] = copy;
	}
	if (!op->weights)
		return true;
	if (row >= 0 && head->has_weights &&
	    (!(PARTS & LEAN_SEND) || t->source != l->own) &&
	    !receive_weight(l, t->source, at, &weight))
		return false;
	if (PARTS & LEAN_SEND && row >= 0 && head->has_weights &&
	    t->source == l->own)
		weight = lean_weight(l, at);
	if (l->lane == 0)
		op->weights[to] = row < 0 ? 0 : weight;
	return true;
}

template <bool TOKEN, int32_t PARTS>
static __device__ __forceinline__ bool place_all(const struct lean *l,
                                                 bool here)
{
	const uint32_t n = n_tasks(l);

#pragma unroll 1
	for (uint32_t i = l->warp; i < n; i += LEAN_WARPS) {
		const struct lean_task t = task_of(l, i);

		if ((int32_t)t.token >= l->shared->heads[t.source].n_tokens) {
			if (!TOKEN && l->lane == 0)
				task_rows(l)[i] = -1;
			continue;
		}
		if (!place_task<TOKEN, PARTS>(l, &t, i, here))
			return false;
	}
	return true;
}

#endif

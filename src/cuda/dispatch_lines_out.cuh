/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What dispatch_recv on lines leaves behind: rows and scales at their places,
 * counts and offsets, an entry for each row, and what combine needs.
 */
#ifndef FERRY_DISPATCH_LINES_OUT_CUH
#define FERRY_DISPATCH_LINES_OUT_CUH

#include "dispatch_lines_place.cuh"

/* After a failure; by a whole block, and by every one that finds it. */
static __device__ inline void clear_counts(const struct lines *l)
{
	const struct ferry_dispatch_out *out = &l->d->out;
	const int32_t n = l->ch->own_expert_slots;

	/* Orders what another block wrote before it looked for a failure. */
	fence_sc_gpu();
#pragma unroll 1
	for (int32_t s = (int32_t)l->thread; s <= n; s += LINES_THREADS) {
		if (out->counts && s < n)
			out->counts[s] = 0;
		if (out->offsets)
			out->offsets[s] = 0;
	}
	if (l->thread == 0 && out->n_rows)
		*out->n_rows = 0;
	if (l->thread == 0 && out->n_dropped)
		*out->n_dropped = 0;
}

/*
 * Lacks any rank room, where that is an error? Every rank finds the same
 * lowest one. By a whole block, after the totals.
 */
static __device__ inline bool find_overflow(const struct lines *l)
{
	const struct ferry_cuda_channel *ch = l->ch;
	const bool padded = ch->layout == FERRY_EXPERT_PADDED;

	if (!ch->bounded || ch->overflow != FERRY_OVERFLOW_ERROR)
		return false;
	if (padded) {
#pragma unroll 1
		for (int32_t s = (int32_t)l->thread; s < ch->n_expert_slots;
		     s += LINES_THREADS)
			if (lines_totals(l)[s] > ch->padded_rows)
				atomicMin(&l->shared->bad_rank,
				          (uint32_t)rank_of_slot(ch, s));
	} else {
#pragma unroll 1
		for (int32_t r = (int32_t)l->thread; r < ch->n_ranks;
		     r += LINES_THREADS)
			if (lines_starts(l)[ch->first_slot[r + 1]] -
			            lines_starts(l)[ch->first_slot[r]] >
			    ch->recv_rows)
				atomicMin(&l->shared->bad_rank, (uint32_t)r);
	}
	__syncthreads();
	return l->shared->bad_rank != LINES_NOTHING;
}

static __device__ __noinline__ void refuse_overflow(const struct lines_args *a,
                                                    struct lines_shared *shared,
                                                    unsigned char *smem)
{
	const struct lines block = lines_begin(a, shared, smem, shared->epoch);
	const struct lines *l = &block;
	const struct ferry_cuda_channel *ch = l->ch;
	const int32_t rank = (int32_t)l->shared->bad_rank;
	const struct wait w =
		wait_begin(ch, FERRY_PHASE_DISPATCH_RECV, l->d->slot, l->epoch);
	struct ferry_cuda_record r =
		record_of(FERRY_OVERFLOW, rank, &w, FERRY_CUDA_NO_ROOM);
	const bool padded = ch->layout == FERRY_EXPERT_PADDED;

	r.value = 0;
#pragma unroll 1
	for (int32_t s = ch->first_slot[rank];
	     padded && s < ch->first_slot[rank + 1]; s++)
		if (lines_totals(l)[s] > r.value)
			r.value = lines_totals(l)[s];
	if (!padded)
		r.value = lines_starts(l)[ch->first_slot[rank + 1]] -
		          lines_starts(l)[ch->first_slot[rank]];
	r.limit = (int32_t)((padded ? ch->padded_rows : ch->recv_rows) + 1);
	fail(ch, &r);
}

/* Counts and offsets, by one block. */
static __device__ inline void store_counts(const struct lines *l)
{
	const struct ferry_cuda_channel *ch = l->ch;
	const struct ferry_dispatch_out *out = &l->d->out;
	const int32_t first = ch->first_slot[ch->rank];
	const int32_t n = ch->own_expert_slots;
	uint32_t rows = 0, wanted = 0;

#pragma unroll 1
	for (int32_t s = (int32_t)l->thread; s <= n; s += LINES_THREADS) {
		const int64_t start = packed_start(l, first + s, first);

		l->d->op.offsets[s] = start;
		if (out->offsets)
			out->offsets[s] = ch->layout == FERRY_EXPERT_PADDED
			                          ? s * ch->padded_rows
			                          : start;
		if (s == n)
			break;
		const int64_t kept = kept_rows(l, first + s, first);

		rows += (uint32_t)kept;
		wanted += lines_totals(l)[first + s];
		if (out->counts)
			out->counts[s] = (int32_t)kept;
	}
#pragma unroll 1
	for (int32_t g = (int32_t)l->thread; g < ch->n_groups;
	     g += LINES_THREADS)
		l->d->op.n_tokens[g] =
			lines_head(l, g * ch->group_size)->n_tokens;
	rows = __reduce_add_sync(0xffffffffu, rows);
	wanted = __reduce_add_sync(0xffffffffu, wanted);
	if (l->lane == 0 && wanted) {
		atomicAdd(&l->shared->n_rows, rows);
		atomicAdd(&l->shared->n_wanted, wanted);
	}
	__syncthreads();
	if (l->thread == 0 && out->n_rows)
		*out->n_rows = l->shared->n_rows;
	if (l->thread == 0 && out->n_dropped)
		*out->n_dropped = l->shared->n_wanted - l->shared->n_rows;
}

/* Where one row came from, and its line of the TOKEN tables. */
static __device__ inline void store_entry(const struct lines *l, int64_t row,
                                          const struct lines_unit *unit,
                                          int32_t own_slot, uint32_t choice,
                                          float weight)
{
	const struct ferry_dispatch_out *out = &l->d->out;
	const int32_t source = lines_carrier(l, unit->group, unit->token);
	const int64_t view =
		((int64_t)l->half * l->ch->n_ranks + source) * l->ch->cap +
		quotient((uint32_t)unit->token, &l->a->by_group);
	const int64_t at = view * l->ch->max_topk + choice;

	if (out->token_slots)
		out->token_slots[at] = row < 0 ? -1 : own_slot;
	if (out->token_weights)
		out->token_weights[at] = row < 0 ? 0 : weight;
	if (row < 0)
		return;
	if (out->row_expert_slot)
		out->row_expert_slot[row] = own_slot;
	if (out->row_source)
		out->row_source[row] = source;
	if (out->row_token)
		out->row_token[row] = unit->token;
	if (out->row_weight)
		out->row_weight[row] = weight;
	if (out->index)
		out->index[row] = view;
}

/*
 * The placed choices of n units: outputs, and what combine needs. By the last
 * threads first: the first warp has rows to deliver.
 */
static __device__ inline void store_places(const struct lines *l, uint32_t n)
{
	const struct ferry_cuda_channel *ch = l->ch;
	const struct ferry_cuda_op *op = &l->d->op;
	const uint32_t topk = l->a->by_max_topk.by;
	const int32_t first_slot = ch->first_slot[ch->rank];

#pragma unroll 1
	for (uint32_t i = LINES_THREADS - 1 - l->thread; i < n * topk;
	     i += LINES_THREADS) {
		const uint32_t u = quotient(i, &l->a->by_max_topk);
		const struct lines_unit unit = l->shared->units[u];
		const struct lines_place place = l->shared->places[i];
		const float weight = l->shared->weights[i];
		const int64_t row = l->shared->rows[i];
		const uint32_t choice = i - u * topk;
		const size_t own = (size_t)unit.token * topk + choice;
		const size_t at =
			(size_t)unit.group * ch->max_tokens * topk + own;
		struct ferry_cuda_copy copy = {-1, 0};

		if (unit.part)
			continue;
		if (row >= 0)
			copy = {place.slot - first_slot, place.index};
		op->copies[at] = copy;
		if (op->weights)
			op->weights[at] = row < 0 ? 0 : weight;
		if (op->dropped && unit.group == ch->group)
			op->dropped[own] =
				place.slot >= 0 && !has_room(l, &place);
		store_entry(l, row, &unit, copy.slot, choice, weight);
	}
}

/* Is this row of the output in use? */
static __device__ inline bool row_is_used(const struct lines *l, int64_t row)
{
	const struct ferry_cuda_channel *ch = l->ch;
	const int32_t first = ch->first_slot[ch->rank];
	int32_t low = 0, high = ch->own_expert_slots;

	if (ch->layout == FERRY_EXPERT_PADDED) {
		const int64_t s = row / ch->padded_rows;

		return s < ch->own_expert_slots &&
		       row - s * ch->padded_rows <
		               kept_rows(l, first + (int32_t)s, first);
	}
	/* The last slot that begins at or before it has rows, if any. */
	while (high - low > 1) {
		const int32_t middle = (low + high) / 2;

		if (packed_start(l, first + middle, first) <= row)
			low = middle;
		else
			high = middle;
	}
	return high > 0 && row - packed_start(l, first + low, first) <
	                           kept_rows(l, first + low, first);
}

static __device__ __forceinline__ bool
wants_padding(const struct ferry_dispatch_out *out)
{
	return out->row_expert_slot || out->row_source || out->row_token ||
	       out->row_weight || out->index;
}

/* Entries of rows that are not in use, by all blocks together. */
static __device__ inline void store_padding(const struct lines *l)
{
	const struct ferry_dispatch_out *out = &l->d->out;
	const int64_t n = l->ch->recv_rows;
	const int64_t step = (int64_t)gridDim.x * LINES_THREADS;

#pragma unroll 1
	for (int64_t i = (int64_t)blockIdx.x * LINES_THREADS + l->thread; i < n;
	     i += step) {
		if (row_is_used(l, i))
			continue;
		if (out->row_expert_slot)
			out->row_expert_slot[i] = -1;
		if (out->row_source)
			out->row_source[i] = -1;
		if (out->row_token)
			out->row_token[i] = -1;
		if (out->row_weight)
			out->row_weight[i] = 0;
		if (out->index)
			out->index[i] = -1;
	}
}

/* TOKEN tables of rows of the view that hold no token now. */
static __device__ inline void store_empty_tokens(const struct lines *l)
{
	const struct ferry_cuda_channel *ch = l->ch;
	const struct ferry_dispatch_out *out = &l->d->out;
	const uint32_t g = (uint32_t)ch->group_size;
	const uint32_t n = 2 * (uint32_t)ch->n_ranks * (uint32_t)ch->cap;

#pragma unroll 1
	for (uint32_t v = blockIdx.x * LINES_WARPS + l->warp; v < n;
	     v += gridDim.x * LINES_WARPS) {
		const uint32_t region = v / (uint32_t)ch->cap;
		const uint32_t rank = region % (uint32_t)ch->n_ranks;
		const uint32_t token = v % (uint32_t)ch->cap * g + rank % g;
		const int32_t n_tokens =
			lines_head(l, (int32_t)(rank - rank % g))->n_tokens;

		if (region / (uint32_t)ch->n_ranks == l->half &&
		    (int32_t)token < n_tokens)
			continue;
#pragma unroll 1
		for (uint32_t k = l->lane; k < (uint32_t)ch->max_topk;
		     k += 32) {
			const size_t at = (size_t)v * ch->max_topk + k;

			if (out->token_slots)
				out->token_slots[at] = -1;
			if (out->token_weights)
				out->token_weights[at] = 0;
		}
	}
}

/* Of a part that lies in shared memory: what of it is payload, and scales. */
struct lines_pieces {
	uint32_t begin, row_bytes;                   /* in the row */
	uint32_t scale_begin, scale_bytes, scale_at; /* scale_at: in the part */
};

static __device__ __forceinline__ struct lines_pieces
pieces_of(const struct lines *l, const struct lines_unit *unit)
{
	const struct row_image *image = &l->a->image;
	const uint32_t begin = unit->first_line * LINE_DATA;
	const uint32_t end = unit->end_line * LINE_DATA;
	const uint32_t row_end = min_u32(end, image->row_bytes);
	const uint32_t s = max_u32(begin, image->scale_offset);
	const uint32_t s_end = min_u32(end, image->bytes);
	struct lines_pieces p;

	p.begin = begin;
	p.row_bytes = row_end > begin ? row_end - begin : 0;
	p.scale_begin = s - image->scale_offset;
	p.scale_at = s - begin;
	p.scale_bytes = l->d->out.scales && image->scale_bytes && s_end > s
	                        ? s_end - s
	                        : 0;
	return p;
}

/* What the copy engine cannot store, by all threads. */
static __device__ __noinline__ void
deliver_slowly(const struct lines_args *a, const struct lines_shared *shared,
               const unsigned char *part, const struct lines_pieces *p,
               uint32_t at)
{
	const struct ferry_cuda_dispatch *d = &a->d;
	const uint32_t thread = threadIdx.x;

#pragma unroll 1
	for (int32_t k = 0; k < d->ch.max_topk; k++) {
		const int64_t row = shared->rows[at + k];
		unsigned char *to = (unsigned char *)d->out.rows +
		                    (size_t)row * d->out.row_stride + p->begin;

		if (row < 0)
			continue;
		if (!a->bulk_rows && p->row_bytes) {
			if (d->ch.weight_use == FERRY_WEIGHT_INPUT)
				row_store_weighted(
					to, part, p->row_bytes, d->ch.dtype,
					shared->weights[at + k],
					make_uint2(thread, LINES_THREADS));
			else
				row_store(to, part, p->row_bytes, thread,
				          LINES_THREADS);
		}
		if (!a->bulk_scales && p->scale_bytes)
			scales_store(d, row, part + p->scale_at,
			             make_uint2(p->scale_begin, p->scale_bytes),
			             thread, LINES_THREADS);
	}
}

/*
 * A part of a row, which lies in a buffer, to the places of its unit: by the
 * copy engine, a warp for each place, where addresses and arithmetic allow;
 * else by all threads.
 */
static __device__ inline void deliver(const struct lines *l,
                                      const struct lines_unit *unit,
                                      uint32_t at, uint32_t buffer)
{
	const struct ferry_cuda_dispatch *d = l->d;
	const unsigned char *part = lines_buffer(l, buffer);
	const struct lines_pieces p = pieces_of(l, unit);
	const bool bulk_rows = l->a->bulk_rows && p.row_bytes;
	const bool bulk_scales = l->a->bulk_scales && p.scale_bytes;

	/* One thread of a warp at a time can ask it; so each warp does. */
#pragma unroll 1
	for (uint32_t k = l->warp; k < l->a->by_max_topk.by && l->lane == 0;
	     k += LINES_WARPS) {
		const int64_t row = l->shared->rows[at + k];

		if (row < 0)
			continue;
		if (bulk_rows)
			bulk_store((unsigned char *)d->out.rows +
			                   (size_t)row * d->out.row_stride +
			                   p.begin,
			           part, p.row_bytes);
		if (bulk_scales)
			bulk_store((unsigned char *)d->out.scales +
			                   (size_t)row * d->out.scales_stride +
			                   p.scale_begin,
			           part + p.scale_at, p.scale_bytes);
	}
	bulk_commit();
	if ((p.row_bytes && !bulk_rows) || (p.scale_bytes && !bulk_scales))
		deliver_slowly(l->a, l->shared, part, &p, at);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows to their places: own tokens from x, those of others from the window, in
 * the order in which they are sent. Each row is loaded once into shared memory
 * and stored from there to each of its positions.
 */
#ifndef FERRY_DISPATCH_CHUNKS_RECV_CUH
#define FERRY_DISPATCH_CHUNKS_RECV_CUH

#include "dispatch_chunks_check.cuh"
#include "dispatch_chunks_send.cuh"

/* Until a chunk of rows of a source is here. */
static __device__ inline bool await_chunk(const struct chunks *c,
                                          int32_t source, int32_t chunk)
{
	const uint64_t *flag = row_flag_at(&c->a->ch, c->a->ch.rank, c->a->slot,
	                                   c->half, source, chunk);
	struct wait w = recv_wait(c);

	if (net_is_far(&c->a->ch, source))
		return net_await(
			&c->a->ch, &c->a->op, &w, FERRY_COUNT_ROW, source,
			load_relaxed_gpu(net_due_at(&c->a->ch, &c->a->op,
		                                    c->epoch, FERRY_COUNT_ROW,
		                                    source)));
	while (load_acquire_sys(flag) != c->epoch)
		if (!wait_again(&w, source))
			return false;
	return true;
}

static __device__ __forceinline__ int64_t
output_row(const struct ferry_cuda_dispatch *a, struct ferry_cuda_copy copy)
{
	if (a->ch.layout == FERRY_EXPERT_PADDED)
		return copy.slot * a->ch.padded_rows + copy.index;
	return a->op.offsets[copy.slot] + copy.index;
}

/* Output row of one choice, -1: none. */
static __device__ __forceinline__ int64_t position_of(const struct chunks *c,
                                                      int32_t group,
                                                      int32_t token, int32_t k)
{
	const struct ferry_cuda_dispatch *a = c->a;

	if (k >= a->ch.max_topk)
		return -1;
	const struct ferry_cuda_copy copy =
		copy_at(&a->ch, &a->op, group, token)[k];

	return copy.slot < 0 ? -1 : output_row(a, copy);
}

static __device__ __forceinline__ float
weight_of(const struct chunks *c, int32_t group, int32_t token, int32_t k)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const size_t row = (size_t)group * ch->max_tokens + token;

	return c->a->op.weights ? c->a->op.weights[row * ch->max_topk + k] : 1;
}

/* Rows of a batch on their way to the output. */
struct delivery {
	int32_t group;
	bool own; /* from x, else from the window */
	struct batch batch;
	struct x_form x;
	struct out_form out;
};

static __device__ __forceinline__ int32_t
delivery_token(const struct chunks *c, const struct delivery *d, int32_t i)
{
	return d->own ? d->batch.first + i
	              : token_of_row(c, d->batch.carrier, d->batch.first + i);
}

/* One row from its stage to the positions that the lanes hold. */
static __device__ __forceinline__ void
deliver_row(const struct chunks *c, const struct delivery *d,
            const unsigned char *stage, const struct piece *p, int32_t token,
            int32_t from, int64_t position)
{
	uint32_t some = __ballot_sync(~0u, position >= 0);

	for (; some; some &= some - 1) {
		const int32_t k = __ffs((int)some) - 1;
		const int64_t row = __shfl_sync(~0u, position, k);
		const float weight =
			d->out.weighted
				? weight_of(c, d->group, token, from + k)
				: 1;

		store_out(c, &d->out, stage, row, weight, p);
	}
}

/* Where row i of a batch of another rank has come to. */
static __device__ __forceinline__ const unsigned char *
arrived_row(const struct chunks *c, const struct batch *b, int32_t i)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;

	return net_from(ch, b->carrier,
	                row_at(ch, ch->rank, c->a->slot, c->half, b->carrier,
	                       b->first + i));
}

/* Loads the rows that have positions; bit i of the result: row i has. */
static __device__ inline void load_batch(const struct chunks *c,
                                         struct mover *m,
                                         const struct delivery *d,
                                         uint32_t some, int32_t index)
{
	mover_reuse(m);
	for (int32_t i = 0; i < d->batch.n; i++) {
		if (!(some >> i & 1))
			continue;
		if (d->own)
			load_x(c, m, &d->x, i, d->batch.first + i, index);
		else
			load_row(c, m, i, arrived_row(c, &d->batch, i), index);
	}
}

static __device__ inline void
deliver_batch(const struct chunks *c, struct mover *m, const struct delivery *d)
{
	const int32_t topk = c->a->ch.max_topk;
	int64_t position[CHUNKS_MAX_STAGES];
	uint32_t some = 0;

#pragma unroll
	for (int32_t i = 0; i < CHUNKS_MAX_STAGES; i++)
		position[i] =
			i < d->batch.n
				? position_of(c, d->group,
		                              delivery_token(c, d, i), m->lane)
				: -1;
#pragma unroll
	for (int32_t i = 0; i < CHUNKS_MAX_STAGES; i++) {
		bool any = position[i] >= 0;

		if (topk > 32 && i < d->batch.n)
			any |= position_of(c, d->group, delivery_token(c, d, i),
			                   m->lane + 32) >= 0;
		some |= (uint32_t)(__ballot_sync(~0u, any) != 0) << i;
	}
#pragma unroll 1
	for (int32_t index = 0; index < c->n_pieces; index++) {
		const struct piece p = piece_of(c, index);

		load_batch(c, m, d, some, index);
#pragma unroll 1
		for (int32_t i = 0; i < d->batch.n; i++) {
			const int32_t t = delivery_token(c, d, i);

			if (!(some >> i & 1))
				continue;
			mover_await(m, i);
#pragma unroll 1
			for (int32_t k = 0; k < topk; k += 32) {
				int64_t at = position[0];

#pragma unroll
				for (int32_t j = 1; j < CHUNKS_MAX_STAGES; j++)
					at = i == j ? position[j] : at;
				if (k > 0)
					at = position_of(c, d->group, t,
					                 m->lane + k);
				deliver_row(c, d, stage_at(c, m, i), &p, t, k,
				            at);
			}
		}
		if (m->lane == 0)
			bulk_commit();
		__syncwarp();
	}
}

/* The next of the own tokens, all of the group's. False: none is left. */
static __device__ inline bool take_own(const struct chunks *c,
                                       struct delivery *d, int32_t lane)
{
	d->own = true;
	d->group = c->a->ch.group;
	d->batch.carrier = c->a->ch.rank;
	d->batch.first =
		(int32_t)take_items(c, WORD_OWN, (uint32_t)c->batch_rows, lane);
	d->batch.n = min(c->batch_rows, c->n_tokens - d->batch.first);
	return d->batch.n > 0;
}

/* Number i of the ranks outside the own group. */
static __device__ __forceinline__ int32_t other_rank(const struct chunks *c,
                                                     uint32_t i)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const int32_t others = ch->n_ranks - ch->group_size;
	const int32_t first = (ch->group + 1) * ch->group_size;

	/* From the next group on, so that not all begin with the same. */
	return (first + (int32_t)i % others) % ch->n_ranks;
}

/*
 * The next rows of others, in the order in which they are sent; n may be 0.
 * False: none is left.
 */
static __device__ inline bool take_arrived(const struct chunks *c,
                                           struct delivery *d, int32_t lane)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const uint32_t others = (uint32_t)(ch->n_ranks - ch->group_size);
	const uint32_t each =
		(uint32_t)((ch->cap + c->batch_rows - 1) / c->batch_rows);
	const uint32_t item = others ? take_items(c, WORD_ARRIVED, 1, lane) : 0;

	if (item >= others * each)
		return false;
	const int32_t source = other_rank(c, item % others);
	const int32_t first = (int32_t)(item / others) * c->batch_rows;

	d->own = false;
	d->group = source / ch->group_size;
	d->batch.carrier = source;
	d->batch.first = first;
	d->batch.n = min(c->batch_rows,
	                 carried_by(ch, source, c->a->op.n_tokens[d->group]) -
	                         first);
	return true;
}

/* Until the rows of a batch are here. All lanes. */
static __device__ inline bool await_batch(const struct chunks *c,
                                          const struct batch *b, int32_t lane)
{
	const int32_t chunk = c->a->ch.row_chunk;
	const int32_t last = (b->first + b->n - 1) / chunk;
	bool here = true;

	for (int32_t k = b->first / chunk; lane == 0 && here && k <= last; k++)
		here = await_chunk(c, b->carrier, k);
	here = __shfl_sync(~0u, (int)here, 0);
	fence_proxy_async_global();
	return here;
}

/* Own tokens never pass the window, and are there at once. */
static __device__ inline bool deliver(const struct chunks *c, struct mover *m)
{
	struct delivery d;
	bool own = true;

	d.x = x_form_of(c->a);
	d.out = out_form_of(c->a);
	for (;;) {
		own = own && take_own(c, &d, m->lane);
		if (!own && !take_arrived(c, &d, m->lane))
			return true;
		if (d.batch.n <= 0)
			continue;
		if (!own && !await_batch(c, &d.batch, m->lane))
			return false;
		deliver_batch(c, m, &d);
	}
}

/* TOKEN: rows stay where they are; all flags of all sources are awaited. */
static __device__ inline bool await_all(const struct chunks *c, uint32_t thread,
                                        uint32_t n_threads)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const uint32_t others = (uint32_t)(ch->n_ranks - ch->group_size);
	const uint32_t n = others * (uint32_t)ch->row_chunks;

	for (uint32_t i = thread; i < n; i += n_threads) {
		const int32_t source = other_rank(c, i % others);
		const int32_t chunk = (int32_t)(i / others);
		const int32_t rows = carried_by(
			ch, source, c->a->op.n_tokens[source / ch->group_size]);

		if (chunk * ch->row_chunk < rows &&
		    !await_chunk(c, source, chunk))
			return false;
	}
	return true;
}

#endif

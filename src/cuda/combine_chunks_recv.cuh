/* SPDX-License-Identifier: Apache-2.0 */
/*
 * combine_recv by chunks.
 */
#ifndef FERRY_COMBINE_CHUNKS_RECV_CUH
#define FERRY_COMBINE_CHUNKS_RECV_CUH

#include "combine_chunks.cuh"

/* Until every other rank has sent what it has for a chunk of own tokens. */
static __device__ __forceinline__ bool wait_for_chunk(const struct combine *c,
                                                      int32_t chunk)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	struct wait w =
		wait_begin(ch, FERRY_PHASE_COMBINE_RECV, c->a->slot, c->epoch);
	bool good = true;

#pragma unroll 1
	for (int32_t r = c->lane; r < ch->n_ranks && good; r += 32) {
		const uint64_t *flag =
			back_flag_at(ch, ch->rank, c->a->slot, r, chunk);

		if (r == ch->rank)
			continue;
		if (net_is_far(ch, r)) {
			good = net_await(ch, &c->a->op, &w, FERRY_COUNT_BACK, r,
			                 *net_due_at(ch, &c->a->op, c->epoch,
			                             FERRY_COUNT_BACK, r));
			continue;
		}
#pragma unroll 1
		while (good && load_acquire_sys(flag) != c->epoch)
			good = wait_again(&w, r);
	}
	return __all_sync(ALL_LANES, good);
}

/* Adds BATCH blocks of up to 32 terms, all there, in order. */
template <int DTYPE, int HOW, int BATCH, int N>
static __device__ __forceinline__ void
add_terms(const struct combine *c, const struct terms *t,
          const uint4 own[BATCH], int32_t at, int32_t step,
          float acc[BATCH][BLOCK_MOST])
{
	struct terms part = *t;

	if (t->own >= 0) {
		part.all = t->all & ((1u << t->own) - 1);
		add_rows<DTYPE, HOW, BATCH, N>(c, &part, at, step, acc);
#pragma unroll
		for (int j = 0; j < BATCH; j++)
			add_block<DTYPE>(acc[j], own[j], 1);
		part.all = t->all & ~((2u << t->own) - 1);
	}
	add_rows<DTYPE, HOW, BATCH, N>(c, &part, at, step, acc);
}

/* Where a warp stands in an own token. */
struct own_token {
	const struct share *share;
	int32_t token, chunk;
	bool there; /* its chunk has come */
	struct own_choice x;
};

static __device__ __forceinline__ bool be_there(const struct combine *c,
                                                struct own_token *t)
{
	if (!t->there && !wait_for_chunk(c, t->chunk))
		return false;
	t->there = true;
	return true;
}

template <int DTYPE, int HOW, int BATCH>
static __device__ __forceinline__ void
finish_blocks(const struct combine *c, const struct own_token *t, int32_t at,
              float acc[BATCH][BLOCK_MOST])
{
#pragma unroll
	for (int j = 0; j < BATCH; j++) {
		const int32_t here = at + j * t->share->step;

		finish_block<DTYPE, HOW != HOW_ANY>(
			c->a, t->token, here, block_bytes(c, here), acc[j]);
	}
}

/* EXACT: choice after choice, from y and from `back`. */
template <int DTYPE, int HOW>
static __device__ __forceinline__ bool receive_exact(const struct combine *c,
                                                     struct own_token *t)
{
	constexpr int N = sums_at_once<HOW>();
	const struct share *s = t->share;

	if (!be_there(c, t))
		return false;
#pragma unroll 1
	for (int32_t at = s->first;
	     __any_sync(ALL_LANES, at < (int32_t)c->a->row_bytes);
	     at += N * s->step) {
		float acc[N][BLOCK_MOST] = {{0}};

#pragma unroll 1
		for (int32_t base = 0; base < (HOW == HOW_ANY ? c->a->topk : 1);
		     base += 32) {
			struct own_choice x = t->x;
			struct terms terms;

			if (base)
				x = load_own_choice(c, t->token, base);
			if (!exact_terms(c, &x, t->token, base, &terms))
				return false;
			add_rows<DTYPE, HOW, N, rows_at_once<HOW>()>(
				c, &terms, at, s->step, acc);
		}
		finish_blocks<DTYPE, HOW, N>(c, t, at, acc);
	}
	return true;
}

/* REDUCED: the own part, which is not waited for, and those of others. */
template <int DTYPE, int HOW, int BATCH, int N>
static __device__ __forceinline__ bool receive_parts(const struct combine *c,
                                                     struct own_token *t)
{
	const struct share *s = t->share;
	struct rank_walk walk = walk_begin<HOW>(c, &t->x, t->token);
	struct terms terms;

	reduced_terms(c, &walk, t->token, &terms);
#pragma unroll 1
	for (int32_t at = s->first;
	     __any_sync(ALL_LANES, at < (int32_t)c->a->row_bytes);
	     at += BATCH * s->step) {
		struct rank_walk w = walk;
		struct terms more = terms;
		float acc[BATCH][BLOCK_MOST] = {{0}};
		uint4 own[BATCH];

		if (!part_blocks<DTYPE, HOW, BATCH, N>(c, t->x.here,
		                                       c->a->ch.group, t->token,
		                                       at, s->step, own) ||
		    !be_there(c, t))
			return false;
		add_terms<DTYPE, HOW, BATCH, 2>(c, &more, own, at, s->step,
		                                acc);
#pragma unroll 1
		while (more.all == ALL_LANES &&
		       reduced_terms(c, &w, t->token, &more))
			add_terms<DTYPE, HOW, BATCH, 2>(c, &more, own, at,
			                                s->step, acc);
		finish_blocks<DTYPE, HOW, BATCH>(c, t, at, acc);
	}
	return true;
}

template <int DTYPE, int HOW>
static __device__ __forceinline__ bool receive_token(const struct combine *c,
                                                     struct own_token *t)
{
	if (is_exact<HOW>(c))
		return receive_exact<DTYPE, HOW>(c, t);
	if (is_presummed<HOW>(c))
		return receive_parts<DTYPE, HOW, copies_at_once<HOW>(), 1>(c,
		                                                           t);
	return receive_parts<DTYPE, HOW, sums_at_once<HOW>(),
	                     rows_at_once<HOW>()>(c, t);
}

template <int DTYPE, int HOW>
static __device__ __forceinline__ void receive_all(const struct combine *c,
                                                   const struct crew *crew)
{
	const int32_t group = c->a->ch.group;
	const int32_t n = n_chunks_of(c, group);

#pragma unroll 1
	for (int32_t chunk = (int32_t)blockIdx.x; chunk < n;
	     chunk += (int32_t)gridDim.x) {
		const struct share s = share_of(c, crew, group, chunk);
		struct own_token t = {&s, s.token, chunk, false};

#pragma unroll 1
		for (; t.token < s.end; t.token += s.token_step) {
			t.x = load_own_choice(c, t.token, 0);
			if (!receive_token<DTYPE, HOW>(c, &t))
				return;
		}
	}
}

#endif

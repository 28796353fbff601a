/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TOKEN layout in the lean dispatch kernel: rows go as they are to the views
 * of all ranks that serve them, a flag behind each, carried by a warp of its
 * own, which the others do not wait for.
 */
#ifndef FERRY_DISPATCH_LEAN_TOKEN_CUH
#define FERRY_DISPATCH_LEAN_TOKEN_CUH

#include "dispatch_lean_place.cuh"

/* The row of a token of this rank in the view of another. */
static __device__ __forceinline__ unsigned char *
view_to(const struct lean *l, uint32_t rank, uint32_t token)
{
	return l->a->row_to[rank] + l->row_half +
	       (size_t)token * l->ch->row_stride;
}

/*
 * By the carrier: lane r has what goes to rank r. A flag leaves when all rows
 * of the block have been acknowledged: the copy engine's word for that needs
 * no release, which would wait for what others of the block have under way
 * (128 rows of 7392 bytes: 8.1 instead of 8.7 us, two H200s, 2026-11-30).
 */
static __device__ __forceinline__ void carry_rows(const struct lean *l,
                                                  uint32_t n_tokens)
{
	const uint32_t topk = l->a->by_topk.by;
	const uint32_t rank = l->lane;
	uint32_t u;

#pragma unroll 1
	for (u = 0; u < l->a->n_units && token_of(l, u) < n_tokens; u++)
		if (serving(l, l->own, token_of(l, u), topk) >> rank & 1)
			bulk_store(view_to(l, rank, token_of(l, u)),
			           lean_own_row(l, u), l->a->carry_bytes);
	LEAN_MARK_OF(l, 16, LEAN_THREADS);
	bulk_commit();
	bulk_wait<0>();
	LEAN_MARK_OF(l, 17, LEAN_THREADS);
#pragma unroll 1
	while (u-- > 0)
		if (serving(l, l->own, token_of(l, u), topk) >> rank & 1 &&
		    rank != l->own)
			store_relaxed_sys(l->a->flag_to[rank] + l->flag_half +
			                          token_of(l, u),
			                  l->epoch);
	LEAN_MARK_OF(l, 18, LEAN_THREADS);
}

/* Flag of a token of a peer. */
static __device__ __forceinline__ const uint64_t *
flag_in(const struct lean *l, uint32_t source, uint32_t token)
{
	return l->a->flag_in[source] + l->flag_half + token;
}

/*
 * The flag that this warp will wait for first, as it is now: rows that were
 * sent long ago are not looked at again.
 */
static __device__ __forceinline__ uint64_t first_flag(const struct lean *l)
{
	const uint32_t i = l->warp;

	if (!l->works || i >= l->a->by_ranks.by || i == l->own)
		return ~l->epoch;
	return load_relaxed_sys(flag_in(l, i, l->worker));
}

/*
 * Rows of peers that this block answers for; what the flags say is read by
 * later kernels. False: the channel has ended.
 */
template <int32_t PARTS>
static __device__ __forceinline__ bool await_rows(const struct lean *l,
                                                  uint64_t seen)
{
	const uint32_t n_ranks = (uint32_t)l->ch->n_ranks;

#pragma unroll 1
	for (uint32_t i = l->warp; i < l->a->n_units * n_ranks;
	     i += LEAN_WARPS) {
		const uint32_t u = lean_quotient(i, l->a->by_ranks);
		const uint32_t s = i - u * n_ranks, token = token_of(l, u);
		const struct ferry_table *head = &l->shared->heads[s];
		uint32_t n_looks = 0;

		if (s == l->own || (int32_t)token >= head->n_tokens ||
		    !(serving(l, s, token, (uint32_t)head->topk) >> l->own & 1))
			continue;
		const uint64_t *flag = flag_in(l, s, token);

		/* Lanes of one load may see different values. */
		if (!(PARTS & LEAN_SEND) && i == l->warp &&
		    __all_sync(0xffffffffu, seen == l->epoch))
			continue;
		while (!__all_sync(0xffffffffu,
		                   load_acquire_sys(flag) == l->epoch))
			if (!lean_again(l, &n_looks, s))
				return false;
	}
	return true;
}

/* Entries of the index list behind those in use, by all workers together. */
static __device__ __forceinline__ void end_index(const struct lean *l)
{
	int64_t *index = l->d->out.index;

	if (!index)
		return;
	const int64_t used = first_row(l, (uint32_t)l->ch->own_expert_slots);
	const int64_t step = (int64_t)l->a->n_workers * LEAN_THREADS;

#pragma unroll 1
	for (int64_t i = used + (l->warp * l->a->n_workers + l->worker) * 32 +
	                 l->lane;
	     i < l->ch->recv_rows; i += step)
		index[i] = -1;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What dispatch on chunks does besides where some ranks are far: it counts what
 * their counters will be raised by, and brings TOKEN rows into the view.
 */
#ifndef FERRY_NET_DISPATCH_CUH
#define FERRY_NET_DISPATCH_CUH

#include "dispatch_chunks_recv.cuh"

/*
 * The epoch before this one is over on this rank: what it was owed becomes part
 * of the base of those counters, which this epoch does not use. Its combine
 * was left out unless it is over, too. One block; no other one of this launch
 * looks at these words.
 */
static __device__ inline void net_close_epoch(const struct chunks *c,
                                              uint32_t state)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const struct ferry_cuda_op *op = &c->a->op;
	const int32_t n = ch->n_ranks * FERRY_N_COUNTS;

	for (int32_t i = (int32_t)threadIdx.x; NET && i < n;
	     i += (int32_t)blockDim.x) {
		const int32_t kind = i / ch->n_ranks, r = i % ch->n_ranks;
		uint32_t *due = net_due_at(ch, op, c->epoch - 1, kind, r);

		if (kind != FERRY_COUNT_BACK || state == FERRY_SLOT_IDLE)
			*net_base_at(ch, op, c->epoch - 1, kind, r) += *due;
		*due = 0;
		if (kind == FERRY_COUNT_TABLE && net_is_far(ch, r))
			*net_due_at(ch, op, c->epoch, kind, r) =
				net_table_puts(ch);
	}
}

/* What far ranks send of n tokens of a table that has just been counted. */
static __device__ inline void net_count_rows(const struct chunks *c,
                                             const struct plan *p,
                                             int32_t group, int32_t first,
                                             int32_t n, int32_t topk)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const uint32_t each = NET ? net_pieces(ch, net_row_bytes(c->a)) : 0;

	for (int32_t t = team_thread(&p->team);
	     NET && group != ch->group && t < n; t += team_threads(&p->team)) {
		const int32_t r = carrier_of(ch, group, first + t);
		bool here = false;

		for (int32_t k = 0; k < topk; k++) {
			const int32_t s = p->slot[t * topk + k] - p->own;

			here |= p->slot[t * topk + k] >= 0 && s >= 0 &&
			        s < ch->own_expert_slots;
		}
		if (here && net_is_far(ch, r))
			atomicAdd(net_due_at(ch, &c->a->op, c->epoch,
			                     FERRY_COUNT_ROW, r),
			          each);
	}
}

/* Rank that answers choice k of an own token, -1: none. */
static __device__ __forceinline__ int32_t answering(const struct chunks *c,
                                                    const int32_t *slots,
                                                    int32_t token, int32_t k)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const uint8_t *dropped = c->a->op.dropped;

	if (slots[k] < 0 ||
	    (dropped && dropped[(size_t)token * ch->max_topk + k]))
		return -1;
	return rank_of_slot(ch, slots[k]);
}

/* Is it the first choice of the token that this rank answers? */
static __device__ __forceinline__ bool is_first_answer(const struct chunks *c,
                                                       const int32_t *slots,
                                                       int32_t token, int32_t k,
                                                       int32_t rank)
{
	for (int32_t i = 0; i < k; i++)
		if (answering(c, slots, token, i) == rank)
			return false;
	return true;
}

/* What far ranks will send back for n own tokens. */
static __device__ inline void net_count_back(const struct chunks *c,
                                             const struct team *team,
                                             int32_t first, int32_t n)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const struct ferry_table *own = table_of(c, ch->rank, ch->rank);
	const size_t element = ch->combine_dtype == FERRY_FP32 ? 4 : 2;
	const uint32_t each = net_pieces(ch, (size_t)own->hidden * element);

	for (int32_t i = team_thread(team); i < n; i += team_threads(team)) {
		const int32_t token = first + i;
		const int32_t *slots =
			(const int32_t *)(own + 1) + (size_t)token * own->topk;

		for (int32_t k = 0; k < own->topk; k++) {
			const int32_t r = answering(c, slots, token, k);

			if (r < 0 || !net_is_far(ch, r) ||
			    (ch->combine != FERRY_EXACT &&
			     !is_first_answer(c, slots, token, k, r)))
				continue;
			atomicAdd(net_due_at(ch, &c->a->op, c->epoch,
			                     FERRY_COUNT_BACK, r),
			          each);
		}
	}
}

/* Does a row of another rank stay here? All lanes. */
static __device__ inline bool is_kept(const struct chunks *c, int32_t group,
                                      int32_t token, int32_t lane)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const struct ferry_cuda_copy *copies =
		copy_at(ch, &c->a->op, group, token);
	bool here = false;

	for (int32_t k = lane; k < ch->max_topk; k += 32)
		here |= copies[k].slot >= 0;
	return __any_sync(~0u, here);
}

/* TOKEN: rows of far ranks into the window, a warp for each; all are here. */
static __device__ inline void net_copy_rows(const struct chunks *c,
                                            int32_t source, uint32_t warp,
                                            uint32_t n_warps)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const int32_t group = source / ch->group_size;
	const int32_t lane = (int32_t)threadIdx.x % 32;
	const int32_t n = carried_by(ch, source, c->a->op.n_tokens[group]);
	const uint32_t n_16 = (net_row_bytes(c->a) + 15) / 16;

	for (int32_t i = (int32_t)warp; i < n; i += (int32_t)n_warps) {
		const int32_t token =
			i * ch->group_size + source % ch->group_size;
		unsigned char *to =
			row_at(ch, ch->rank, c->a->slot, c->half, source, i);
		const unsigned char *from = net_from(ch, source, to);

		if (!is_kept(c, group, token, lane))
			continue;
		for (uint32_t j = (uint32_t)lane; j < n_16; j += 32)
			store_16((uint4 *)to + j,
			         load_once_16((const uint4 *)from + j));
	}
}

/* TOKEN: what has come over the network, into the view. Whole warps. */
static __device__ inline bool net_fill_view(const struct chunks *c,
                                            uint32_t thread, uint32_t n_threads)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;

	for (int32_t r = 0; NET && r < ch->n_ranks; r++) {
		bool here = true;

		if (!net_is_far(ch, r) || is_own_group(c, r))
			continue;
		if (thread % 32 == 0)
			here = await_chunk(c, r, 0);
		if (!__shfl_sync(~0u, (int)here, 0))
			return false;
		net_copy_rows(c, r, thread / 32, n_threads / 32);
	}
	return true;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What combine on chunks does besides where some ranks are far: rows for them
 * lie in `out`, once for all of a group, and are put from there when those of
 * a chunk are complete.
 */
#ifndef FERRY_NET_COMBINE_CUH
#define FERRY_NET_COMBINE_CUH

#include "combine_chunks.cuh"

/* Is a rank of the group far? */
static __device__ __forceinline__ bool
net_has_far(const struct ferry_cuda_channel *ch, int32_t group)
{
	const int32_t first = group * ch->group_size;
	bool far = false;

#pragma unroll 1
	for (int32_t r = first; NET && r < first + ch->group_size; r++)
		far |= net_is_far(ch, r);
	return far;
}

/* One row to all far ranks of a group; by one thread. */
template <int HOW>
static __device__ inline bool net_put_back(const struct combine *c,
                                           int32_t group, int32_t token,
                                           int32_t first_choice)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const int32_t first = group * ch->group_size;
	const int32_t j = is_exact<HOW>(c) ? first_choice : 0;
	struct wait w =
		wait_begin(ch, FERRY_PHASE_COMBINE_SEND, c->a->slot, c->epoch);
	struct net_put p;

	p.bytes = (uint32_t)c->a->row_bytes;
	p.n_signals = net_pieces(ch, p.bytes);
	p.counter = net_signal(ch, c->a->slot, c->epoch, FERRY_COUNT_BACK,
	                       ch->rank);
	p.from = net_out_back(ch, c->a->slot, group, token, j) - ch->net.out;
	for (p.peer = first; p.peer < first + ch->group_size; p.peer++) {
		if (!net_is_far(ch, p.peer))
			continue;
		p.to = net_offset(
			back_row_of<HOW>(c, p.peer, token, first_choice));
		if (!net_put(ch, &w, &p))
			return false;
	}
	return true;
}

/* The rows of a token. One warp; what it returns counts on lane 0. */
template <int HOW>
static __device__ inline bool net_put_token(const struct combine *c,
                                            int32_t group, int32_t token)
{
	struct choice x = load_choice(c, group, token, 0);
	bool good = true;

	if (!is_exact<HOW>(c)) {
		const int32_t k = first_here<HOW>(c, &x, group, token);

		if (k >= 0 && c->lane == 0)
			good = net_put_back<HOW>(c, group, token, k);
		return good;
	}
#pragma unroll 1
	for (int32_t base = 0; base < (HOW == HOW_ANY ? c->a->topk : 1);
	     base += 32) {
		if (base)
			x = load_choice(c, group, token, base);
#pragma unroll 1
		for (uint32_t left = __ballot_sync(ALL_LANES, x.slot >= 0);
		     left;) {
			const int32_t k = next_lane(&left);

			if (good && c->lane == 0)
				good = net_put_back<HOW>(c, group, token,
				                         base + k);
		}
	}
	return good;
}

/* Behind a barrier of all who stored rows of the chunk. One warp. */
template <int HOW>
static __device__ inline void net_put_chunk(const struct combine *c,
                                            int32_t group, int32_t chunk)
{
	const int32_t n = c->a->ch.back_chunk;
	const int32_t end = min((chunk + 1) * n, c->shared->n_tokens[group]);
	bool good = net_has_far(&c->a->ch, group);

#pragma unroll 1
	for (int32_t t = chunk * n; good && t < end; t++)
		good = __shfl_sync(ALL_LANES,
		                   (int)net_put_token<HOW>(c, group, t), 0);
}

#endif

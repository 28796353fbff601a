/* SPDX-License-Identifier: Apache-2.0 */
/*
 * combine_send by chunks with plain stores: sums, and rows that bulk copies do
 * not reach.
 */
#ifndef FERRY_COMBINE_CHUNKS_SEND_CUH
#define FERRY_COMBINE_CHUNKS_SEND_CUH

#include "net_combine.cuh"

/* Stores a block of row j to all ranks of a group but this one. */
template <int HOW>
static __device__ __forceinline__ void
store_to_group(const struct combine *c, int32_t group, int32_t token,
               int32_t first_choice, int32_t at, uint4 v)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const int32_t first = group * ch->group_size;

#pragma unroll 1
	for (int32_t r = first; r < first + ch->group_size; r++) {
		if (r == ch->rank || net_is_far(ch, r))
			continue;
		store_16(back_row_of<HOW>(c, r, token, first_choice) + at, v);
	}
	if (net_has_far(ch, group))
		store_16(net_out_back(ch, c->a->slot, group, token,
		                      is_exact<HOW>(c) ? first_choice : 0) +
		                 at,
		         v);
}

/* The choices of a token from `base` on, each as it is. */
template <int DTYPE, int HOW>
static __device__ __forceinline__ bool
send_choices(const struct combine *c, const struct choice *x,
             const struct share *s, int32_t group, int32_t token, int32_t base)
{
	const int32_t end = (int32_t)c->a->row_bytes;
	struct terms t;

	if (!here_terms(c, x, token, base, &t))
		return false;
#pragma unroll 1
	for (uint32_t left = t.all; left;) {
		const int32_t k = next_lane(&left);
		const unsigned char *row = row_of_lane(&t, k);

#pragma unroll 1
		for (int32_t at = s->first; at < end; at += s->step)
			store_to_group<HOW>(
				c, group, token, base + k, at,
				load_block<DTYPE, HOW != HOW_ANY>(
					row + at, block_bytes(c, at)));
		__syncwarp();
	}
	return true;
}

/* A token's part, N blocks of a lane at a time. */
template <int DTYPE, int HOW>
static __device__ __forceinline__ bool
send_part(const struct combine *c, const struct choice *x,
          const struct share *s, int32_t group, int32_t token)
{
	constexpr int N = sums_at_once<HOW>();
	const int32_t first = first_here<HOW>(c, x, group, token);
	const int32_t end = (int32_t)c->a->row_bytes;

	if (first < 0)
		return true;
#pragma unroll 1
	for (int32_t at = s->first; __any_sync(ALL_LANES, at < end);
	     at += N * s->step) {
		uint4 v[N];

		if (!part_blocks<DTYPE, HOW, N, rows_at_once<HOW>()>(
			    c, *x, group, token, at, s->step, v))
			return false;
#pragma unroll
		for (int j = 0; j < N; j++)
			if (at + j * s->step < end)
				store_to_group<HOW>(c, group, token, first,
				                    at + j * s->step, v[j]);
	}
	return true;
}

/* A token's rows, stored by this warp. False: the channel has ended. */
template <int DTYPE, int HOW>
static __device__ __forceinline__ bool send_token(const struct combine *c,
                                                  const struct share *s,
                                                  int32_t group, int32_t token)
{
	const struct choice x = load_choice(c, group, token, 0);

	if (!is_exact<HOW>(c))
		return send_part<DTYPE, HOW>(c, &x, s, group, token);
#pragma unroll 1
	for (int32_t base = 0; base < (HOW == HOW_ANY ? c->a->topk : 1);
	     base += 32) {
		const struct choice y =
			base ? load_choice(c, group, token, base) : x;

		if (!send_choices<DTYPE, HOW>(c, &y, s, group, token, base))
			return false;
	}
	return true;
}

/* Sums, and whatever bulk copies cannot reach. False: the channel has ended. */
template <int DTYPE, int HOW>
static __device__ __forceinline__ bool send_by_stores(const struct combine *c,
                                                      const struct crew *crew)
{
	int32_t chunk = (int32_t)blockIdx.x;
	uint32_t round = 0;

#pragma unroll 1
	for (int32_t i = 1; i <= c->a->ch.n_groups; i++) {
		const int32_t group = nth_group(c, i);

		if (!has_receivers(c, group))
			continue;
		const int32_t n = n_chunks_of(c, group);

#pragma unroll 1
		for (; chunk < n; chunk += (int32_t)gridDim.x, round++) {
			struct share s = share_of(c, crew, group, chunk);

#pragma unroll 1
			for (; s.token < s.end; s.token += s.token_step)
				if (!send_token<DTYPE, HOW>(c, &s, group,
				                            s.token))
					c->shared->stop_round = round;
			__barrier_sync_count(1, (unsigned)crew->n_warps * 32);
			/* One that is ahead may have stopped a later round. */
			if (*(volatile uint32_t *)&c->shared->stop_round <=
			    round)
				return false;
			if (crew->warp == 0 && c->lane == 0)
				raise_flags(c, group, chunk);
			if (crew->warp == 0)
				net_put_chunk<HOW>(c, group, chunk);
		}
		chunk -= n;
	}
	return true;
}

#endif

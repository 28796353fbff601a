/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout function on the device: ferry_route_build and ferry_route_drops,
 * to the row, in parallel. A stable counting sort of choices by expert slot:
 *
 *	1. each block of a table (table_chunk tokens of a group) is counted by
 *	   one team: a histogram, and for each choice its place among those of
 *	   its slot in this block
 *	2. when all blocks are counted: a block's rows of a slot begin where
 *	   the blocks before it end; what a slot may keep, and where it begins,
 *	   follow from the totals
 *	3. each choice gets its slot and index, or none
 *
 * Between 1 and 2 all teams must have finished 1; the kernel sees to that.
 * Bounded channels count the slots of all ranks, since each rank has to know
 * which of its choices others drop, and whether any rank lacks room.
 *
 * Within a block a warp takes 32 tokens, one to each lane, and sets the lane's
 * bit in the mask of each slot that its token names: the place of a choice is
 * the number of bits below its own. Tokens that name a slot twice are rare;
 * their 32 are counted again, one row of entries after the other.
 *
 * A CTA has the blocks [begin, end), neighbours, and CTA 0 the first of all.
 */
#ifndef FERRY_PLAN_CUH
#define FERRY_PLAN_CUH

#include "plan_count.cuh"

/* Blocks of a group that have tokens. */
static __device__ __forceinline__ int32_t
plan_parts(const struct ferry_cuda_channel *ch, int32_t n_tokens)
{
	return (n_tokens + ch->table_chunk - 1) / ch->table_chunk;
}

static __device__ __forceinline__ void add_4(uint4 *to, uint4 v)
{
	to->x += v.x;
	to->y += v.y;
	to->z += v.z;
	to->w += v.w;
}

/* The rows of the histogram that one warp adds, for 4 slots to a lane. */
static __device__ inline void sum_rows(const struct plan *p, int32_t column,
                                       uint4 *total, uint4 *base)
{
	const int32_t n = (int32_t)plan_blocks(p->ch);
	const uint32_t *h = p->histogram + column;

#pragma unroll 8
	for (int32_t b = p->team.warp; b < n; b += p->team.n_warps) {
		const uint4 v = *(const uint4 *)(h + (size_t)b * p->stride);

		add_4(total, v);
		if (b < p->begin)
			add_4(base, v);
	}
}

/* Step 2: totals of all blocks, and of those before the own. */
static __device__ inline void plan_total(const struct plan *p)
{
	const int32_t n_warps = p->team.n_warps;
	uint32_t *totals = p->mask, *bases = p->mask + n_warps * p->stride;

#pragma unroll 1
	for (int32_t s = p->team.lane * 4; s < p->stride; s += 128) {
		uint4 total = make_uint4(0, 0, 0, 0), base = total;
		const size_t at = (size_t)p->team.warp * p->stride + s;

		sum_rows(p, s, &total, &base);
		*(uint4 *)(totals + at) = total;
		*(uint4 *)(bases + at) = base;
	}
	team_sync(&p->team);
#pragma unroll 1
	for (int32_t s = team_thread(&p->team); s < p->stride;
	     s += team_threads(&p->team)) {
		uint32_t total = 0, base = 0;

#pragma unroll 1
		for (int32_t w = 0; w < n_warps; w++) {
			total += totals[w * p->stride + s];
			base += bases[w * p->stride + s];
		}
		p->keep[s] = total;
		p->base[s] = base;
	}
	team_sync(&p->team);
}

static __device__ __forceinline__ int64_t scan_warp(int64_t v, int32_t lane)
{
#pragma unroll
	for (int32_t d = 1; d < 32; d *= 2) {
		const int64_t below = __shfl_up_sync(~0u, v, (unsigned)d);

		v += lane >= d ? below : 0;
	}
	return v;
}

static __device__ __forceinline__ int64_t sum_warp(int64_t v)
{
#pragma unroll
	for (int32_t d = 16; d > 0; d /= 2)
		v += __shfl_xor_sync(~0u, v, d);
	return v;
}

static __device__ __forceinline__ int64_t max_warp(int64_t v)
{
#pragma unroll
	for (int32_t d = 16; d > 0; d /= 2)
		v = max(v, __shfl_xor_sync(~0u, v, d));
	return v;
}

/*
 * Rows that the slots of one rank keep, and where they begin. What is left of
 * the capacity when a slot's turn comes is the capacity less all that the
 * slots before it want, since whoever gets less than it wants takes the rest.
 * Returns what the rank needs, in the unit of its capacity. One warp.
 */
static __device__ inline int64_t keep_rank(const struct plan *p, int32_t rank)
{
	const struct ferry_cuda_channel *ch = p->ch;
	const bool padded = ch->layout == FERRY_EXPERT_PADDED;
	const int64_t mask = ch->alignment - 1;
	const int32_t first = ch->first_slot[rank];
	const int32_t n = ch->first_slot[rank + 1] - first;
	uint32_t *rows = p->keep + (first - p->first);
	const bool own = rank == ch->rank;
	int64_t end = 0, need = 0, kept = 0, lost = 0;

#pragma unroll 1
	for (int32_t from = 0; from < n; from += 32) {
		const int32_t s = from + p->team.lane;
		const int64_t wanted = s < n ? rows[s] : 0;
		int64_t keep = padded ? min(wanted, ch->padded_rows) : wanted;
		const int64_t step = (keep + mask) & ~mask;
		const int64_t sum = scan_warp(step, p->team.lane);
		int64_t at = end + sum - step;

		if (!padded) {
			at = min(at, ch->recv_rows);
			keep = min(keep, ch->recv_rows - at);
		}
		if (s < n)
			rows[s] = (uint32_t)keep;
		if (s < n && own)
			p->offset[s] = at;
		need = padded ? max(need, wanted) : need + step;
		kept += keep;
		lost += wanted - keep;
		end += __shfl_sync(~0u, sum, 31);
	}
	kept = sum_warp(kept);
	lost = sum_warp(lost);
	if (own && p->team.lane == 0) {
		p->offset[n] = padded ? end : min(end, ch->recv_rows);
		p->sums->n_rows = kept;
		p->sums->n_dropped = lost;
	}
	return padded ? max_warp(need) : sum_warp(need);
}

/* After plan_total: what is kept. */
static __device__ inline void plan_keep(const struct plan *p)
{
	const struct ferry_cuda_channel *ch = p->ch;
	const int64_t room = ch->layout == FERRY_EXPERT_PADDED ? ch->padded_rows
	                                                       : ch->recv_rows;
	int32_t lacking = ch->n_ranks;
	int64_t need = 0;

	/* Unbounded, there is nothing to know of others. */
	const int32_t first = ch->bounded ? 0 : ch->rank;
	const int32_t end = ch->bounded ? ch->n_ranks : ch->rank + 1;

#pragma unroll 1
	for (int32_t r = first + p->team.warp; r < end; r += p->team.n_warps) {
		const int64_t n = keep_rank(p, r);

		if (!ch->bounded || n <= room || lacking < ch->n_ranks)
			continue;
		lacking = r;
		need = n;
	}
	if (p->team.lane == 0) {
		p->sums->lacking[p->team.warp] = lacking;
		p->sums->need[p->team.warp] = need;
	}
	team_sync(&p->team);
}

/* Lowest rank that lacks room, n_ranks: none; and what it needs. */
static __device__ inline int32_t plan_lacking(const struct plan *p,
                                              int64_t *need)
{
	int32_t lacking = p->ch->n_ranks;

#pragma unroll 1
	for (int32_t w = 0; w < p->team.n_warps; w++) {
		if (p->sums->lacking[w] >= lacking)
			continue;
		lacking = p->sums->lacking[w];
		*need = p->sums->need[w];
	}
	return lacking;
}

/* Step 3 for entry i of the block at hand. */
static __device__ __forceinline__ struct ferry_cuda_copy
plan_place(const struct plan *p, int32_t i, bool *dropped)
{
	const int32_t s = p->slot[i];
	struct ferry_cuda_copy placed;

	placed.slot = -1;
	placed.index = 0;
	*dropped = false;
	if (s < 0)
		return placed;
	const uint32_t index = p->base[s] + (uint32_t)p->place[i];
	const int32_t own = s - p->own;

	*dropped = index >= p->keep[s];
	if (*dropped || own < 0 || own >= p->ch->own_expert_slots)
		return placed;
	placed.slot = own;
	placed.index = (int32_t)index;
	return placed;
}

/* From one block to the next. */
static __device__ inline void plan_next(const struct plan *p, int32_t block)
{
	const uint32_t *h = p->histogram + (size_t)block * p->stride;

	team_sync(&p->team);
#pragma unroll 1
	for (int32_t s = team_thread(&p->team); s < p->range;
	     s += team_threads(&p->team))
		p->base[s] += h[s];
	team_sync(&p->team);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout function on lines, for the choices of the units at hand: one warp
 * finds the row of one choice by counting the equal entries before it. The
 * order is that of proto/layout.h: group, token, choice.
 */
#ifndef FERRY_DISPATCH_LINES_PLACE_CUH
#define FERRY_DISPATCH_LINES_PLACE_CUH

#include "dispatch_lines_recv.cuh"
#include "entries.cuh"

/* The batches as the tables tell them, and how they are cut into units. */
struct lines_work {
	const struct lines_cut *own_cut, *in_cut;
	uint32_t n_own; /* units of the own group's tokens: they come first */
	uint32_t n;     /* all units */
};

static __device__ inline struct lines_work work_of(const struct lines *l)
{
	const struct ferry_cuda_channel *ch = l->ch;
	const bool raw = !ch->row_lines; /* rows are not moved any more */
	const uint32_t own = (uint32_t)lines_head(l, ch->rank)->n_tokens;
	uint32_t others = 0;
	struct lines_work w;

#pragma unroll 1
	for (int32_t g = 0; g < ch->n_groups; g++)
		if (g != ch->group)
			others += (uint32_t)lines_head(l, g * ch->group_size)
			                  ->n_tokens;
	w.own_cut = lines_cut_for(l, own);
	w.in_cut = lines_cut_for(l, others);
	w.n_own = own * (raw ? 1 : w.own_cut->n_parts.by);
	w.n = w.n_own + others * (raw ? 1 : w.in_cut->n_parts.by);
	return w;
}

/* Unit number i of this worker. */
static __device__ __forceinline__ struct lines_unit
unit_of(const struct lines *l, const struct lines_work *work, uint32_t i)
{
	const struct ferry_cuda_channel *ch = l->ch;
	const uint32_t u = (uint32_t)l->worker + i * l->a->n_workers;
	const bool own = u < work->n_own;
	const struct lines_cut *cut = own ? work->own_cut : work->in_cut;
	const uint32_t k = own ? u : u - work->n_own;
	const uint32_t t = ch->row_lines ? quotient(k, &cut->n_parts) : k;
	struct lines_unit unit;

	unit.is_here = 0;
	unit.group = ch->group;
	unit.token = (int32_t)t;
	lines_take_part(&unit, cut,
	                ch->row_lines ? k - t * cut->n_parts.by : 0);
	if (own)
		return unit;
	for (unit.group = 0;; unit.group++) {
		if (unit.group == ch->group)
			continue;
		const int32_t n =
			lines_head(l, unit.group * ch->group_size)->n_tokens;

		if (unit.token < n)
			return unit;
		unit.token -= n;
	}
}

/* The units first.. of this worker, for the block; synchronises. */
static __device__ __forceinline__ void take_units(const struct lines *l,
                                                  const struct lines_work *work,
                                                  uint32_t first, uint32_t n)
{
	if (l->thread < n)
		l->shared->units[l->thread] =
			unit_of(l, work, first + l->thread);
	__syncthreads();
}

/* Row of entry `at` of a group within its slot, by one warp. */
static __device__ inline int32_t
find_index(const struct lines *l, int32_t group, uint32_t at, uint32_t slot)
{
	uint32_t count = 0;

#pragma unroll 1
	for (int32_t g = 0; g < group; g++) {
		const struct ferry_table *t =
			lines_head(l, g * l->ch->group_size);

		count += count_equal<2>(lines_entries(l, g),
		                        (uint32_t)(t->n_tokens * t->topk), slot,
		                        l->lane);
	}
	count += count_equal<2>(lines_entries(l, group), at, slot, l->lane);
	return (int32_t)__reduce_add_sync(0xffffffffu, count);
}

/*
 * The weight of entry `at` of a group, by one warp: from its line, which is
 * waited for. False: the channel has ended.
 */
static __device__ inline bool
receive_weight(const struct lines *l, int32_t rank, uint32_t at, float *weight)
{
	const struct ferry_table *t = lines_head(l, rank);
	const uint32_t byte = (uint32_t)sizeof(*t) +
	                      ((uint32_t)(t->n_tokens * t->topk) + at) * 4;
	const unsigned char *line =
		table_at(l->ch, l->ch->rank, l->d->slot, l->half, rank) +
		(size_t)(byte / LINE_DATA) * LINE_BYTES;
	struct wait w = wait_begin(l->ch, FERRY_PHASE_DISPATCH_RECV, l->d->slot,
	                           l->epoch);
	uint32_t n_looks = 0;
	uint64_t a, b;

	/* Teams may see different values: all go on, or none. */
	while (!__all_sync(0xffffffffu, line_load(line, l->team_lane, l->epoch,
	                                          0xffffffffu, &a, &b)))
		if (!lines_again(l, &n_looks, rank))
			return false;
	const uint32_t word = byte % LINE_DATA / 4;
	const uint64_t half = word % 4 < 2 ? a : b;

	*weight = __uint_as_float(__shfl_sync(
		0xffffffffu, (uint32_t)(word % 2 ? half >> 32 : half),
		(int)(word / 4), LINE_LANES));
	return true;
}

static __device__ __forceinline__ bool is_own_slot(const struct lines *l,
                                                   int32_t slot)
{
	const int32_t first = l->ch->first_slot[l->ch->rank];

	return slot >= first && slot < first + l->ch->own_expert_slots;
}

/* First slot of the rank that a slot is on. */
static __device__ __forceinline__ int32_t first_slot_of(const struct lines *l,
                                                        int32_t slot)
{
	return l->ch->first_slot[lines_rank_of(l, slot)];
}

/* Is there room for the row? PADDED: known without the totals. */
static __device__ __forceinline__ bool has_room(const struct lines *l,
                                                const struct lines_place *p)
{
	if (l->ch->layout == FERRY_EXPERT_PADDED)
		return p->index < l->ch->padded_rows;
	return !l->ch->bounded ||
	       p->index < kept_rows(l, p->slot, first_slot_of(l, p->slot));
}

/* Row of the output, entry of TOKEN's lists; -1: not here, or dropped. */
static __device__ __forceinline__ int64_t row_of(const struct lines *l,
                                                 const struct lines_place *p)
{
	const int32_t first = l->ch->first_slot[l->ch->rank];

	if (!is_own_slot(l, p->slot) || !has_room(l, p))
		return -1;
	if (l->ch->layout == FERRY_EXPERT_PADDED)
		return (p->slot - first) * l->ch->padded_rows + p->index;
	return packed_start(l, p->slot, first) + p->index;
}

/* Place, row and weight of one choice, by one warp. */
static __device__ __forceinline__ bool place_choice(const struct lines *l,
                                                    struct lines_unit *unit,
                                                    uint32_t choice, uint32_t i)
{
	const struct ferry_cuda_channel *ch = l->ch;
	const int32_t group = unit->group;
	const int32_t rank = group * ch->group_size;
	const struct ferry_table *t = lines_head(l, rank);
	const int32_t topk = t->topk;
	const uint32_t at = (uint32_t)(unit->token * topk) + choice;
	const bool exists = choice < (uint32_t)topk;
	struct lines_place place = {-1, 0};
	float weight = 1;

	if (exists && lines_entries(l, group)[at] != LINES_NO_SLOT)
		place.slot = lines_entries(l, group)[at];
	const bool own = is_own_slot(l, place.slot);

	/* Of others' only where combine must know what is dropped. */
	if (own || (l->d->op.dropped && place.slot >= 0 && group == ch->group))
		place.index = find_index(l, group, at, (uint32_t)place.slot);
	if (exists && t->has_weights && !receive_weight(l, rank, at, &weight))
		return false;
	if (l->lane)
		return true;
	l->shared->places[i] = place;
	l->shared->rows[i] = row_of(l, &place);
	l->shared->weights[i] = weight;
	if (own)
		unit->is_here = 1;
	return true;
}

/* All choices of n units. False: the channel has ended. */
static __device__ inline bool place_units(const struct lines *l, uint32_t n)
{
	const uint32_t topk = l->a->by_max_topk.by;

#pragma unroll 1
	for (uint32_t i = l->warp; i < n * topk; i += LINES_WARPS) {
		const uint32_t u = quotient(i, &l->a->by_max_topk);

		if (!place_choice(l, &l->shared->units[u], i - u * topk, i))
			return false;
	}
	return true;
}

#endif

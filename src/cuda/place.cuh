/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where things lie: addresses in windows, who owns an expert slot, which slot
 * serves a choice. The device twins of proto/window.h and of
 * ferry_placement_resolve.
 */
#ifndef FERRY_PLACE_CUH
#define FERRY_PLACE_CUH

#include "../core/quota.h"
#include "cuda_args.h"

static __device__ __forceinline__ unsigned char *
slot_window(const struct ferry_cuda_channel *ch, int32_t rank, int32_t slot)
{
	return ch->window[rank] + (size_t)slot * ch->slot_bytes;
}

static __device__ __forceinline__ unsigned char *
table_at(const struct ferry_cuda_channel *ch, int32_t owner, int32_t slot,
         uint32_t half, int32_t source)
{
	return slot_window(ch, owner, slot) + ch->table_offset +
	       ((size_t)half * ch->n_ranks + source) * ch->table_stride;
}

/* Place of a source among those that have rows at `owner`. */
static __device__ __forceinline__ int32_t
source_place(const struct ferry_cuda_channel *ch, int32_t owner, int32_t source)
{
	const int32_t first = owner - owner % ch->group_size;

	if (ch->layout == FERRY_TOKEN || source < first)
		return source;
	return source - ch->group_size;
}

/* Row `index` = token / group_size of `source`, at `owner`. */
static __device__ __forceinline__ unsigned char *
row_at(const struct ferry_cuda_channel *ch, int32_t owner, int32_t slot,
       uint32_t half, int32_t source, int32_t index)
{
	const size_t region = (size_t)half * ch->row_sources +
	                      source_place(ch, owner, source);

	return slot_window(ch, owner, slot) + ch->row_offset +
	       (region * ch->cap + index) * ch->row_stride;
}

static __device__ __forceinline__ uint64_t *
row_flag_at(const struct ferry_cuda_channel *ch, int32_t owner, int32_t slot,
            uint32_t half, int32_t source, int32_t chunk)
{
	const size_t region = (size_t)half * ch->row_sources +
	                      source_place(ch, owner, source);

	return (uint64_t *)(slot_window(ch, owner, slot) +
	                    ch->row_flag_offset) +
	       region * ch->row_chunks + chunk;
}

static __device__ __forceinline__ unsigned char *
table_part_at(const struct ferry_cuda_channel *ch, int32_t owner, int32_t slot,
              uint32_t half, int32_t source, int32_t part)
{
	const size_t i =
		((size_t)half * ch->n_ranks + source) * ch->table_parts + part;

	return slot_window(ch, owner, slot) + ch->table_part_offset + i * 64;
}

/* Row j that comes back for a token of the owner. */
static __device__ __forceinline__ unsigned char *
back_at(const struct ferry_cuda_channel *ch, int32_t owner, int32_t slot,
        int32_t token, int32_t j)
{
	return slot_window(ch, owner, slot) + ch->back_offset +
	       ((size_t)token * ch->back_rows + j) * ch->back_stride;
}

static __device__ __forceinline__ uint64_t *
back_flag_at(const struct ferry_cuda_channel *ch, int32_t owner, int32_t slot,
             int32_t source, int32_t chunk)
{
	return (uint64_t *)(slot_window(ch, owner, slot) +
	                    ch->back_flag_offset) +
	       (size_t)source * ch->back_chunks + chunk;
}

/* Rank that owns an expert slot of the world (>= 0). */
static __device__ __forceinline__ int32_t
rank_of_slot(const struct ferry_cuda_channel *ch, int32_t slot)
{
	int32_t low = 0, high = ch->n_ranks;

	if (ch->even_slots)
		return slot / ch->even_slots;
	while (high - low > 1) {
		const int32_t middle = (low + high) / 2;

		if (ch->first_slot[middle] <= slot)
			low = middle;
		else
			high = middle;
	}
	/* Ranks without slots have the same first_slot as the next. */
	return low;
}

/* The rank of a group that sends a token. */
static __device__ __forceinline__ int32_t
carrier_of(const struct ferry_cuda_channel *ch, int32_t group, int32_t token)
{
	return group * ch->group_size + token % ch->group_size;
}

/* Row of the TOKEN view. */
static __device__ __forceinline__ int64_t
view_row_of(const struct ferry_cuda_channel *ch, uint32_t half, int32_t group,
            int32_t token)
{
	const int64_t carrier = carrier_of(ch, group, token);

	return ((int64_t)half * ch->n_ranks + carrier) * ch->cap +
	       token / ch->group_size;
}

/* What the choice of a replica goes by; the token is the own group's. */
static __device__ __forceinline__ uint32_t
turn_of(const struct ferry_cuda_channel *ch, int32_t token, int32_t choice)
{
	return (uint32_t)carrier_of(ch, ch->group, token) + (uint32_t)token +
	       (uint32_t)choice;
}

/* Expert slot that serves an expert, under split EVEN or no placement. */
static __device__ __forceinline__ int32_t
resolve_evenly(const struct ferry_cuda_channel *ch,
               const struct ferry_cuda_placement *placement, int32_t expert,
               int32_t token, int32_t choice)
{
	if (!placement->first)
		return expert;
	const int32_t first = placement->first[expert];
	const uint32_t n = (uint32_t)(placement->first[expert + 1] - first);

	if (n == 1)
		return placement->slots[first];
	return placement
	        ->slots[first + (int32_t)(turn_of(ch, token, choice) % n)];
}

/* Under split QUOTA. */
static __device__ __forceinline__ int32_t
resolve_by_quota(const struct ferry_cuda_channel *ch,
                 const struct ferry_cuda_placement *placement, int32_t expert,
                 int32_t token, int32_t choice)
{
	const int32_t first = placement->first[expert];
	const int32_t n = placement->first[expert + 1] - first;

	return placement
	        ->slots[first + quota_choose(placement->start + first, n,
	                                     turn_of(ch, token, choice))];
}

/* Under either. */
static __device__ __forceinline__ int32_t
resolve_expert(const struct ferry_cuda_channel *ch,
               const struct ferry_cuda_placement *placement, int32_t expert,
               int32_t token, int32_t choice)
{
	if (placement->start)
		return resolve_by_quota(ch, placement, expert, token, choice);
	return resolve_evenly(ch, placement, expert, token, choice);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data: entry ((slot * 2 + half) * n_ranks + r) of every rank is written by
 * rank r; the own one is the source of the puts. Signals are numbered alike.
 * Each half has its own counters, since puts of a slot's next round may
 * overtake those of the present one.
 */
#include "split_region.h"

#include "../core/bits.h"

enum { ENTRY_ALIGN = 64 };

static size_t index_of(const struct ferry_split_region *region,
                       struct ferry_split_round round, int32_t rank)
{
	const size_t half = (size_t)round.slot * 2 + (round.number & 1);

	return half * (size_t)region->world->n_ranks + (size_t)rank;
}

static unsigned char *entry_of(const struct ferry_split_region *region,
                               struct ferry_split_round round, int32_t rank)
{
	return (unsigned char *)ferry_segment_base(region->segment) +
	       index_of(region, round, rank) * region->stride;
}

enum ferry_status ferry_split_region_open(struct ferry_split_region *region,
                                          struct ferry_world *world,
                                          int32_t n_slots, size_t bytes)
{
	const size_t n = 2 * (size_t)n_slots * (size_t)world->n_ranks;

	region->world = world;
	region->stride = round_up(bytes, ENTRY_ALIGN);
	FERRY_TRY(ferry_segment_open(world, n * region->stride, (uint32_t)n,
	                             &region->segment));
	const size_t max_put = ferry_segment_max_put(region->segment);

	region->piece_bytes = max_put < bytes ? max_put : bytes;
	region->pieces = (bytes - 1) / region->piece_bytes + 1;
	return FERRY_OK;
}

void ferry_split_region_close(struct ferry_split_region *region)
{
	ferry_segment_close(region->segment);
}

void *ferry_split_region_own(const struct ferry_split_region *region,
                             struct ferry_split_round round)
{
	return entry_of(region, round, region->world->rank);
}

const void *ferry_split_region_entry(const struct ferry_split_region *region,
                                     struct ferry_split_round round,
                                     int32_t rank)
{
	return entry_of(region, round, rank);
}

static enum ferry_status put_to(struct ferry_split_region *region,
                                struct ferry_split_round round, int32_t peer,
                                size_t bytes)
{
	const size_t index = index_of(region, round, region->world->rank);
	const unsigned char *const source =
		entry_of(region, round, region->world->rank);

	for (uint64_t piece = 0; piece < region->pieces; piece++) {
		const size_t at = piece * region->piece_bytes;
		const size_t left = bytes > at ? bytes - at : 0;

		FERRY_TRY(ferry_segment_put(
			region->segment, peer, index * region->stride + at,
			source + at,
			left < region->piece_bytes ? left : region->piece_bytes,
			(uint32_t)index));
	}
	return FERRY_OK;
}

enum ferry_status ferry_split_region_send(struct ferry_split_region *region,
                                          struct ferry_split_round round,
                                          size_t bytes)
{
	const int32_t n_ranks = region->world->n_ranks;
	const int32_t rank = region->world->rank;

	for (int32_t i = 1; i < n_ranks; i++)
		FERRY_TRY(put_to(region, round, (rank + i) % n_ranks, bytes));
	return ferry_segment_kick(region->segment);
}

enum ferry_status ferry_split_region_recv(struct ferry_split_region *region,
                                          struct ferry_split_round round)
{
	int32_t n = 0;

	for (int32_t r = 0; r < region->world->n_ranks; r++)
		if (r != region->world->rank)
			region->items[n++] = (struct ferry_wait_item){
				.signal = (uint32_t)index_of(region, round, r),
				.peer = r,
				.value =
					(round.number / 2 + 1) * region->pieces,
			};
	FERRY_TRY(ferry_segment_wait_all(region->segment, region->items, n,
	                                 NULL));
	/* All may have the own message; the fabric may read it still. */
	return ferry_segment_flush(region->segment);
}

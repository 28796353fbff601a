/* SPDX-License-Identifier: Apache-2.0 */
/* See pairs.h. */
#include "pairs.h"

/*
 * The circle method: the last seat stays, and is empty where ranks are odd; the
 * others go round.
 */
int32_t ferry_pairs_partner(int32_t rank, int32_t n_ranks, int32_t step)
{
	const int32_t seats = n_ranks + n_ranks % 2;
	const int32_t ring = seats - 1;
	int32_t partner;

	if (rank == ring)
		partner = step * (seats / 2) % ring;
	else if (2 * rank % ring == step)
		partner = ring;
	else
		partner = (step + ring - rank) % ring;
	return partner < n_ranks ? partner : rank;
}

uint32_t ferry_pairs_signal(const struct ferry_pairs *pairs)
{
	return (uint32_t)pairs->segment->world->rank;
}

enum ferry_status ferry_pairs_say(const struct ferry_pairs *pairs, int32_t peer)
{
	FERRY_TRY(ferry_segment_signal(pairs->segment, peer,
	                               ferry_pairs_signal(pairs)));
	return ferry_segment_kick(pairs->segment);
}

enum ferry_status ferry_pairs_await(struct ferry_pairs *pairs, int32_t peer,
                                    uint64_t n)
{
	const struct ferry_wait_item item = {
		.signal = (uint32_t)peer,
		.peer = peer,
		.value = pairs->seen[peer] + n,
	};

	FERRY_TRY(ferry_segment_wait_all(pairs->segment, &item, 1, NULL));
	pairs->seen[peer] = item.value;
	return FERRY_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What a placement answers, and how a choice finds its slot. */
#include "ctx.h"
#include "placement_inner.h"
#include "quota.h"

uint64_t ferry_placement_hash(const struct ferry_placement *placement)
{
	return placement ? placement->hash : 0;
}

uint64_t ferry_placement_version(const struct ferry_placement *placement)
{
	return placement ? placement->version : 0;
}

int32_t ferry_placement_n_experts(const struct ferry_placement *placement)
{
	return placement ? placement->n_experts : 0;
}

int32_t ferry_placement_n_slots(const struct ferry_placement *placement)
{
	return placement ? placement->map.n_slots : 0;
}

int32_t ferry_placement_n_ranks(const struct ferry_placement *placement)
{
	return placement ? placement->map.n_ranks : 0;
}

enum ferry_split ferry_placement_split(const struct ferry_placement *placement)
{
	return placement ? placement->split : FERRY_SPLIT_EVEN;
}

int32_t ferry_placement_first_slot(const struct ferry_placement *placement,
                                   int32_t rank)
{
	if (!placement || rank < 0 || rank > placement->map.n_ranks)
		return -1;
	return placement->map.first_slot[rank];
}

int64_t ferry_placement_quota(const struct ferry_placement *placement,
                              int32_t slot)
{
	if (!placement || !placement->quota || slot < 0 ||
	    slot >= placement->map.n_slots)
		return 0;
	return placement->quota[slot];
}

enum ferry_status
ferry_placement_replicas(const struct ferry_placement *placement,
                         int32_t expert, const int32_t **slots, int32_t *n)
{
	if (!placement || !slots || !n)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "placement_replicas: %s is NULL",
		                  !placement ? "placement"
		                  : !slots   ? "slots"
		                             : "n");
	if (expert < 0 || expert >= placement->n_experts)
		return ferry_fail(NULL, FERRY_RANGE,
		                  "placement_replicas: expert is %d, experts "
		                  "are 0..%d",
		                  expert, placement->n_experts - 1);
	const int32_t first = placement->first_replica[expert];

	*slots = placement->replicas + first;
	*n = placement_n_replicas(placement, expert);
	return FERRY_OK;
}

int32_t ferry_placement_expert(const struct ferry_placement *placement,
                               int32_t slot)
{
	if (!placement || slot < 0 || slot >= placement->map.n_slots)
		return -1;
	return placement->slot_expert[slot];
}

int32_t ferry_placement_rank(const struct ferry_placement *placement,
                             int32_t slot)
{
	if (!placement || slot < 0 || slot >= placement->map.n_slots)
		return -1;
	return placement->map.slot_rank[slot];
}

int32_t ferry_placement_resolve(const struct ferry_placement *placement,
                                int32_t expert, int32_t rank, int32_t token,
                                int32_t choice)
{
	if (!placement || expert < 0 || expert >= placement->n_experts ||
	    placement->split == FERRY_SPLIT_EXACT)
		return -1;
	const int32_t first = placement->first_replica[expert];
	const int32_t n = placement_n_replicas(placement, expert);
	const uint32_t turn =
		(uint32_t)rank + (uint32_t)token + (uint32_t)choice;

	if (n == 1) /* most experts: no division */
		return placement->replicas[first];
	if (placement->start)
		return placement
		        ->replicas[first +
		                   quota_choose(placement->start + first, n,
		                                turn)];
	return placement->replicas[first + (int32_t)(turn % (uint32_t)n)];
}

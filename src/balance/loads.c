/* SPDX-License-Identifier: Apache-2.0 */
/* How many tokens each rank gets under each rule, and the quotas of slots. */
#include <stdlib.h>
#include <string.h>

#include "../core/ctx.h"
#include "../core/placement_inner.h"
#include "problem.h"
#include "sharing.h"

/* Shares out loads as the exact split would. */
static enum ferry_status share_exactly(struct ferry_sharing *sharing,
                                       const struct ferry_placement *placement,
                                       const int64_t *loads,
                                       const int32_t *speed, int64_t *level)
{
	FERRY_TRY(ferry_sharing_init(sharing, placement->n_experts,
	                             placement->map.n_slots,
	                             placement->map.n_ranks));
	ferry_sharing_ask(sharing, placement, loads, speed);
	*level = ferry_sharing_answer(sharing);
	return FERRY_OK;
}

static enum ferry_status count_exact(const struct ferry_placement *placement,
                                     const int64_t *loads, int64_t *rank_loads)
{
	struct ferry_sharing sharing;
	int64_t level;

	FERRY_TRY(share_exactly(&sharing, placement, loads, NULL, &level));
	memcpy(rank_loads, sharing.room.load,
	       (size_t)placement->map.n_ranks * sizeof(*rank_loads));
	ferry_sharing_destroy(&sharing);
	return FERRY_OK;
}

static enum ferry_status count_by_rule(const struct ferry_placement *p,
                                       const int64_t *loads,
                                       int64_t *rank_loads)
{
	int64_t *const slot_load =
		calloc((size_t)p->map.n_slots, sizeof(*slot_load));

	if (!slot_load)
		return ferry_fail(NULL, FERRY_NOMEM, "rank_loads: %d slots",
		                  p->map.n_slots);
	for (int32_t e = 0; e < p->n_experts; e++) {
		const int32_t *const slots = p->replicas + p->first_replica[e];
		const int32_t n = placement_n_replicas(p, e);

		if (p->split == FERRY_SPLIT_QUOTA)
			ferry_share_by_quota(loads[e], slots, n, p->quota,
			                     slot_load);
		else
			ferry_share_even(loads[e], slots, n, slot_load);
	}
	memset(rank_loads, 0, (size_t)p->map.n_ranks * sizeof(*rank_loads));
	for (int32_t s = 0; s < p->map.n_slots; s++)
		rank_loads[p->map.slot_rank[s]] += slot_load[s];
	free(slot_load);
	return FERRY_OK;
}

static enum ferry_status check(const char *call,
                               const struct ferry_placement *placement,
                               const int64_t *loads, const void *out,
                               const char *out_name)
{
	int64_t total;

	if (!placement || !out)
		return ferry_fail(NULL, FERRY_INVAL, "%s: %s is NULL", call,
		                  placement ? out_name : "placement");
	return ferry_check_loads(call, loads, placement->n_experts, &total);
}

enum ferry_status ferry_rank_loads(const struct ferry_placement *placement,
                                   const int64_t *loads, int64_t *rank_loads)
{
	FERRY_TRY(check("rank_loads", placement, loads, rank_loads,
	                "rank_loads"));
	return placement->split == FERRY_SPLIT_EXACT
	               ? count_exact(placement, loads, rank_loads)
	               : count_by_rule(placement, loads, rank_loads);
}

/* Shares of replicas are quotas of slots. */
static void give_quotas(const struct ferry_sharing *sharing,
                        const struct ferry_placement *p, const int64_t *loads,
                        int64_t *quota)
{
	for (int32_t s = 0; s < p->map.n_slots; s++)
		quota[s] = p->slot_expert[s] < 0 ? 0 : loads[p->slot_expert[s]];
	for (int32_t e = 0; e < sharing->in.n_experts; e++) {
		const int32_t *const slots =
			p->replicas + p->first_replica[sharing->expert[e]];
		const int32_t begin = sharing->first[e];

		for (int32_t i = begin; i < sharing->first[e + 1]; i++)
			quota[slots[i - begin]] = sharing->room.share[i];
	}
}

enum ferry_status ferry_split_quotas(const struct ferry_placement *placement,
                                     const int64_t *loads, const int32_t *speed,
                                     int64_t *quota, int64_t *max_load)
{
	struct ferry_sharing sharing;
	int64_t level;

	FERRY_TRY(check("split_quotas", placement, loads, quota, "quota"));
	FERRY_TRY(ferry_check_speed("split_quotas", speed,
	                            placement->map.n_ranks));
	FERRY_TRY(share_exactly(&sharing, placement, loads, speed, &level));
	give_quotas(&sharing, placement, loads, quota);
	if (max_load)
		*max_load = level;
	ferry_sharing_destroy(&sharing);
	return FERRY_OK;
}

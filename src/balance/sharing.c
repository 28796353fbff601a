/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for the question how tokens are shared, and the question itself. */
#include "sharing.h"

#include <stdlib.h>
#include <string.h>

#include "../core/ctx.h"
#include "../core/placement_inner.h"

enum ferry_status ferry_sharing_init(struct ferry_sharing *sharing,
                                     int32_t max_experts, int32_t max_slots,
                                     int32_t max_ranks)
{
	const size_t experts = (size_t)max_experts, slots = (size_t)max_slots;
	const size_t ranks = (size_t)max_ranks;
	const size_t n_wide = slots + experts + 3 * ranks;
	const size_t n_narrow = slots + 3 * experts + 1 + ranks;

	memset(sharing, 0, sizeof(*sharing));
	int64_t *const w =
		malloc(n_wide * sizeof(int64_t) + n_narrow * sizeof(int32_t));

	if (!w)
		return ferry_fail(NULL, FERRY_NOMEM,
		                  "quotas: %d experts in %d slots on %d ranks",
		                  max_experts, max_slots, max_ranks);
	int32_t *const n = (int32_t *)(w + n_wide);

	sharing->memory = w;
	sharing->room.share = w;
	sharing->load = w + slots;
	sharing->fixed = sharing->load + experts;
	sharing->room.load = sharing->fixed + ranks;
	sharing->room.cap = sharing->room.load + ranks;
	sharing->rank = n;
	sharing->expert = n + slots;
	sharing->first = sharing->expert + experts;
	sharing->room.expert_level = sharing->first + experts + 1;
	sharing->room.rank_level = sharing->room.expert_level + experts;
	sharing->in.first = sharing->first;
	sharing->in.rank = sharing->rank;
	sharing->in.load = sharing->load;
	sharing->in.fixed = sharing->fixed;
	return FERRY_OK;
}

void ferry_sharing_destroy(struct ferry_sharing *sharing)
{
	free(sharing->memory);
	memset(sharing, 0, sizeof(*sharing));
}

void ferry_sharing_map(struct ferry_sharing *sharing,
                       const struct ferry_placement *placement,
                       const int32_t *speed)
{
	const struct ferry_placement *const p = placement;
	int32_t n_experts = 0, n = 0;

	for (int32_t e = 0; e < p->n_experts; e++) {
		if (placement_n_replicas(p, e) == 1)
			continue;
		sharing->expert[n_experts] = e;
		sharing->first[n_experts++] = n;
		for (int32_t i = p->first_replica[e];
		     i < p->first_replica[e + 1]; i++)
			sharing->rank[n++] = p->map.slot_rank[p->replicas[i]];
	}
	sharing->first[n_experts] = n;
	sharing->in.n_ranks = p->map.n_ranks;
	sharing->in.n_experts = n_experts;
	sharing->in.speed = speed;
}

void ferry_sharing_ask(struct ferry_sharing *sharing,
                       const struct ferry_placement *placement,
                       const int64_t *loads, const int32_t *speed)
{
	const struct ferry_placement *const p = placement;

	ferry_sharing_map(sharing, placement, speed);
	for (int32_t i = 0; i < sharing->in.n_experts; i++)
		sharing->load[i] = loads[sharing->expert[i]];
	memset(sharing->fixed, 0, (size_t)p->map.n_ranks * sizeof(int64_t));
	for (int32_t e = 0; e < p->n_experts; e++) {
		const int32_t slot = p->replicas[p->first_replica[e]];

		if (placement_n_replicas(p, e) == 1)
			sharing->fixed[p->map.slot_rank[slot]] += loads[e];
	}
}

int64_t ferry_sharing_answer(struct ferry_sharing *sharing)
{
	const int64_t level =
		ferry_quota_level(&sharing->in, &sharing->room, INT64_MAX);

	ferry_quota_even(&sharing->in, &sharing->room);
	return level;
}

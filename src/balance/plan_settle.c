/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loads that moves leave, from the placement after them and its split.
 * Swaps alone need none of this: slots take their loads along.
 */
#include <string.h>

#include "../core/placement_inner.h"
#include "plan_inner.h"

/* Experts in slots after the moves. */
static void place(struct ferry_planner *pl)
{
	const struct ferry_problem *const p = &pl->problem;
	int32_t *const after = pl->slot_after;

	memcpy(after, p->slot_expert, (size_t)p->n_slots * sizeof(*after));
	for (int32_t i = 0; i < pl->n_moves; i++) {
		const struct plan_move m = pl->moves[i];

		after[m.to_slot] = p->slot_expert[m.from_slot];
		if (p->slot_expert[m.to_slot] >= 0)
			after[m.from_slot] = p->slot_expert[m.to_slot];
	}
}

/* Slots by expert, rising: replicas_after, from first_after. */
static void list_replicas(struct ferry_planner *pl)
{
	const struct ferry_problem *const p = &pl->problem;
	int32_t *const first = pl->first_after;

	memset(first, 0, ((size_t)p->n_experts + 1) * sizeof(*first));
	for (int32_t s = 0; s < p->n_slots; s++)
		if (pl->slot_after[s] >= 0)
			first[pl->slot_after[s] + 1]++;
	for (int32_t e = 0; e < p->n_experts; e++)
		first[e + 1] += first[e];
	for (int32_t s = 0; s < p->n_slots; s++)
		if (pl->slot_after[s] >= 0)
			pl->replicas_after[first[pl->slot_after[s]]++] = s;
	for (int32_t e = p->n_experts; e > 0; e--)
		first[e] = first[e - 1];
	first[0] = 0;
}

static void share_evenly(struct ferry_planner *pl)
{
	const struct ferry_problem *const p = &pl->problem;

	for (int32_t e = 0; e < p->n_experts; e++)
		ferry_share_even(p->loads[e],
		                 pl->replicas_after + pl->first_after[e],
		                 pl->first_after[e + 1] - pl->first_after[e],
		                 pl->slot_now);
	memset(pl->load, 0, (size_t)p->n_ranks * sizeof(*pl->load));
	for (int32_t s = 0; s < p->n_slots; s++)
		if (pl->slot_after[s] >= 0)
			pl->load[p->slot_rank[s]] += pl->slot_now[s];
}

static void share_exactly(struct ferry_planner *pl)
{
	struct ferry_problem *const p = &pl->problem;
	struct ferry_sharing *const sharing = &p->sharing;
	const int32_t *const slots = pl->replicas_after;
	int32_t n_experts = 0, n = 0;

	memset(sharing->fixed, 0, (size_t)p->n_ranks * sizeof(int64_t));
	for (int32_t e = 0; e < p->n_experts; e++) {
		const int32_t begin = pl->first_after[e];
		const int32_t end = pl->first_after[e + 1];

		if (end - begin == 1) {
			pl->slot_now[slots[begin]] = p->loads[e];
			sharing->fixed[p->slot_rank[slots[begin]]] +=
				p->loads[e];
			continue;
		}
		sharing->load[n_experts] = p->loads[e];
		sharing->expert[n_experts] = e;
		sharing->first[n_experts++] = n;
		for (int32_t i = begin; i < end; i++)
			sharing->rank[n++] = p->slot_rank[slots[i]];
	}
	sharing->first[n_experts] = n;
	sharing->in.n_ranks = p->n_ranks;
	sharing->in.n_experts = n_experts;
	/* ferry_plan_apply knows no speeds for the quotas that it computes. */
	sharing->in.speed =
		p->has_speed && p->placement->split == FERRY_SPLIT_EXACT
			? p->speed
			: NULL;
	ferry_sharing_answer(sharing);
	memcpy(pl->load, sharing->room.load,
	       (size_t)p->n_ranks * sizeof(*pl->load));
	for (int32_t i = 0; i < n_experts; i++) {
		const int32_t first = sharing->first[i];
		const int32_t *const at =
			slots + pl->first_after[sharing->expert[i]];

		for (int32_t j = first; j < sharing->first[i + 1]; j++)
			pl->slot_now[at[j - first]] = sharing->room.share[j];
	}
}

void ferry_plan_settle(struct ferry_planner *pl)
{
	place(pl);
	list_replicas(pl);
	memset(pl->slot_now, 0,
	       (size_t)pl->problem.n_slots * sizeof(*pl->slot_now));
	if (pl->problem.placement->split == FERRY_SPLIT_EVEN)
		share_evenly(pl);
	else
		share_exactly(pl);
}

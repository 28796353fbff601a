/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From one placement of a layer to any other: which experts must be brought,
 * and from where.
 */
#include <stdlib.h>
#include <string.h>

#include "experts_inner.h"

static int32_t n_slots_of(const struct ferry_placement *p, int32_t rank)
{
	return p->map.first_slot[rank + 1] - p->map.first_slot[rank];
}

static enum ferry_status check(const struct ferry_experts *x, int32_t layer,
                               const struct ferry_placement *from,
                               const struct ferry_placement *to)
{
	if (to->n_experts != from->n_experts)
		return ferry_fail(&x->world->ctx, FERRY_INVAL,
		                  "experts_start_placement: layer %d has %d "
		                  "experts, the placement %d",
		                  layer, from->n_experts, to->n_experts);
	if (to->map.n_ranks != from->map.n_ranks)
		return ferry_fail(&x->world->ctx, FERRY_INVAL,
		                  "experts_start_placement: layer %d is on %d "
		                  "ranks, the placement on %d",
		                  layer, from->map.n_ranks, to->map.n_ranks);
	for (int32_t r = 0; r < x->n_ranks; r++) {
		const int32_t has = n_slots_of(from, r);
		const int32_t wants = n_slots_of(to, r);

		if (has != wants)
			return ferry_fail(&x->world->ctx, FERRY_INVAL,
			                  "experts_start_placement: layer %d: "
			                  "rank %d has %d slots, by the "
			                  "placement %d",
			                  layer, r, has, wants);
	}
	return FERRY_OK;
}

/*
 * On the same rank if it is there; else where it is asked for; else the
 * replicas take turns.
 */
static int32_t source_of(const struct ferry_placement *from,
                         const struct experts_asked *asked, int32_t expert,
                         int32_t slot)
{
	const int32_t *replicas = from->replicas + from->first_replica[expert];
	const int32_t n = placement_n_replicas(from, expert);

	for (int32_t i = 0; i < n; i++)
		if (from->map.slot_rank[replicas[i]] ==
		    from->map.slot_rank[slot])
			return replicas[i];
	if (asked->sources && asked->sources[slot] >= 0)
		return asked->sources[slot];
	return replicas[slot % n];
}

static void list_transfers(const struct ferry_placement *from,
                           const struct experts_asked *asked,
                           struct experts_flight *flight)
{
	const struct ferry_placement *to = asked->to;
	const int32_t *rank = from->map.slot_rank;

	for (int32_t s = 0; s < from->map.n_slots; s++) {
		const int32_t e = to->slot_expert[s];

		if (e < 0 || e == from->slot_expert[s])
			continue;
		const int32_t source = source_of(from, asked, e, s);

		flight->transfers[flight->n_transfers++] =
			(struct experts_transfer){
				e, rank[source], source, rank[s], s, -1};
	}
}

/* The same content as the next version of `from`. */
static enum ferry_status copy_placement(const struct ferry_placement *from,
                                        const struct ferry_placement *to,
                                        struct ferry_placement **copy)
{
	const int32_t n_ranks = to->map.n_ranks;
	struct ferry_placement_config config = FERRY_PLACEMENT_CONFIG_INIT;
	int32_t *slots = calloc((size_t)n_ranks, sizeof(*slots));

	if (!slots)
		return ferry_fail(NULL, FERRY_NOMEM,
		                  "experts_start_placement: %d ranks", n_ranks);
	for (int32_t r = 0; r < n_ranks; r++)
		slots[r] = n_slots_of(to, r);
	config.n_experts = to->n_experts;
	config.n_ranks = n_ranks;
	config.expert_slots = slots;
	config.slot_expert = to->slot_expert;
	config.split = to->split;
	config.version = from->version + 1;
	config.quota = to->quota;
	const enum ferry_status status = ferry_placement_create(&config, copy);

	free(slots);
	return status;
}

enum ferry_status ferry_experts_flight_to(struct ferry_experts *x,
                                          const struct experts_asked *asked,
                                          struct experts_flight *flight)
{
	const struct ferry_placement *from =
		x->layers[asked->layer].newest->placement;
	struct ferry_placement *next;

	FERRY_TRY(check(x, asked->layer, from, asked->to));
	flight->plan_hash = asked->to->hash;
	if (asked->held_back || asked->to->hash == from->hash)
		return FERRY_OK;
	list_transfers(from, asked, flight);
	FERRY_TRY(copy_placement(from, asked->to, &next));
	return ferry_experts_flight_aim(x, asked->layer, next, flight);
}

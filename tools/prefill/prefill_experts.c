/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The experts of a rank: where their weights are, and the rows that go through
 * them. Under OFF they stay in the mapped file; otherwise each rank copies its
 * own into the library's pool, where they can move, and reads no others.
 */
#include <string.h>

#include "core/bits.h"
#include "prefill_rank.h"

static int32_t own_first(const struct prefill_rank *r,
                         const struct ferry_placement *placement)
{
	return ferry_placement_first_slot(placement, r->me->rank);
}

static void copy_layer(const struct prefill_rank *r, int32_t layer)
{
	const struct ferry_placement *first = r->first[layer];
	const int32_t slot = own_first(r, first);

	for (int32_t s = 0; s < r->setup->slots_of_rank[r->me->rank]; s++) {
		const int32_t e = ferry_placement_expert(first, slot + s);

		for (int32_t t = 0; e >= 0 && t < LM_EXPERT_TENSORS; t++)
			memcpy(ferry_experts_tensor(r->experts, layer, first, s,
			                            t),
			       r->model->layers[layer].experts[e][t].data,
			       (size_t)lm_expert_bytes(
				       r->model, (enum lm_expert_tensor)t));
	}
}

/* Alike on all ranks. */
static int32_t staging(const struct prefill_rank *r)
{
	int32_t most = 1;

	for (int32_t i = 0; i < r->me->crew->n_ranks; i++)
		most = (int32_t)max_i64(most, r->setup->slots_of_rank[i]);
	return prefill_staging(r->me->crew->n_ranks, most);
}

bool prefill_experts_open(struct prefill_rank *rank)
{
	struct ferry_experts_config config = FERRY_EXPERTS_CONFIG_INIT;
	size_t bytes[LM_EXPERT_TENSORS];

	for (int32_t t = 0; t < LM_EXPERT_TENSORS; t++)
		bytes[t] = (size_t)lm_expert_bytes(rank->model,
		                                   (enum lm_expert_tensor)t);
	config.n_layers = rank->model->config.n_layers;
	config.placements = (const struct ferry_placement *const *)rank->first;
	config.n_tensors = LM_EXPERT_TENSORS;
	config.tensor_bytes = bytes;
	config.n_staging = staging(rank);
	if (!crew_good(rank->me,
	               ferry_experts_open(rank->world, &config, &rank->experts),
	               "registering experts"))
		return false;
	for (int32_t l = 0; l < config.n_layers; l++)
		copy_layer(rank, l);
	/* Disks may take minutes, which opening anything does not wait. */
	return crew_good(rank->me, ferry_world_barrier(rank->world),
	                 "copying experts");
}

static void find(const struct prefill_rank *r, int32_t layer,
                 const struct ferry_placement *placement, int32_t own_slot,
                 const void *tensors[LM_EXPERT_TENSORS])
{
	const int32_t e = ferry_placement_expert(
		placement, own_first(r, placement) + own_slot);

	for (int32_t t = 0; t < LM_EXPERT_TENSORS; t++)
		tensors[t] =
			r->experts
				? ferry_experts_tensor(r->experts, layer,
		                                       placement, own_slot, t)
				: r->model->layers[layer].experts[e][t].data;
}

void prefill_experts_run(struct prefill_rank *rank, int32_t layer,
                         const struct ferry_placement *placement)
{
	const int64_t hidden = rank->model->config.hidden;
	const void *tensors[LM_EXPERT_TENSORS];

	for (int32_t s = 0; s < rank->setup->slots_of_rank[rank->me->rank];
	     s++) {
		const int64_t at = rank->offsets[s] * hidden;

		if (!rank->counts[s])
			continue;
		find(rank, layer, placement, s, tensors);
		lm_expert(rank->model, rank->work, tensors, rank->rows + at,
		          rank->counts[s], rank->y + at);
	}
}

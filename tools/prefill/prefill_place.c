/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where experts are when a run begins. Every rank has as many slots as is even,
 * the first ones one more, and the spare ones behind them, which are empty.
 */
#include <stdlib.h>

#include "prefill_inner.h"

#include "../alloc.h"

enum ferry_status prefill_placement(const struct prefill_setup *setup,
                                    const int32_t *slot_expert,
                                    const int64_t *quotas,
                                    struct ferry_placement **placement)
{
	const struct prefill_shape *shape = setup->job->shape;
	struct ferry_placement_config config = FERRY_PLACEMENT_CONFIG_INIT;
	int64_t *alike = NULL;

	config.n_experts = shape->n_experts;
	config.n_ranks = shape->n_ranks;
	config.expert_slots = setup->slots_of_rank;
	config.slot_expert = slot_expert;
	config.split = setup->split;
	if (setup->split == FERRY_SPLIT_QUOTA && !quotas)
		quotas = alike =
			alloc_or_exit((size_t)setup->n_slots, sizeof(*alike));
	config.quota = quotas;
	const enum ferry_status status =
		ferry_placement_create(&config, placement);

	free(alike);
	return status;
}

/* The fullest first; ties by id. */
static void order_by_load(const int64_t *loads, int32_t n, int32_t *experts)
{
	for (int32_t e = 0; e < n; e++) {
		int32_t at = e;

		for (; at > 0 && loads[experts[at - 1]] < loads[e]; at--)
			experts[at] = experts[at - 1];
		experts[at] = e;
	}
}

/* Into the slots of the ranks in turn, spare ones left out. */
static void fill(const struct prefill_setup *setup, const int32_t *experts,
                 int32_t *slot_expert)
{
	const struct prefill_shape *shape = setup->job->shape;

	for (int32_t r = 0; r < shape->n_ranks; r++)
		for (int32_t s = 0; s < setup->slots_of_rank[r]; s++) {
			const bool spare =
				s >= setup->slots_of_rank[r] - shape->replicas;

			*slot_expert++ = spare ? -1 : *experts++;
		}
}

/* The layers' loads of the first step; the caller frees what is allocated. */
static bool hot_loads(const struct prefill_job *job, const int64_t **loads,
                      int64_t **own, struct fault *fault)
{
	const struct prefill_shape *shape = job->shape;

	*own = NULL;
	*loads = job->start_loads;
	if (job->start != PREFILL_START_HOT || *loads)
		return true;
	*own = alloc_or_exit((size_t)shape->n_layers * (size_t)shape->n_experts,
	                     sizeof(**own));
	*loads = *own;
	return prefill_route_alone(job, 0, *own, fault);
}

bool prefill_place(struct prefill_setup *setup, struct fault *fault)
{
	const struct prefill_job *job = setup->job;
	const int32_t n_experts = job->shape->n_experts;
	int32_t *experts = alloc_or_exit((size_t)n_experts, sizeof(*experts));
	const int64_t *loads;
	int64_t *own;
	const bool good = hot_loads(job, &loads, &own, fault);

	for (int32_t e = 0; e < n_experts; e++)
		experts[e] = e;
	for (int32_t l = 0; good && l < job->shape->n_layers; l++) {
		if (job->start == PREFILL_START_HOT)
			order_by_load(loads + (int64_t)l * n_experts, n_experts,
			              experts);
		fill(setup, experts,
		     setup->first + (int64_t)l * setup->n_slots);
	}
	free(own);
	free(experts);
	return good;
}

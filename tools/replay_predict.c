/* SPDX-License-Identifier: Apache-2.0 */
/* What a replay knows of a step before it: predictions, and the past. */
#include <string.h>

#include "core/bits.h"
#include "replay_parts.h"

/* Assignments drawn one by one in a layer; more are drawn in bundles. */
enum { MAX_DRAWS = 1 << 20 };

/*
 * Each assignment stays with the probability, else goes to any expert. The same
 * noise for every policy.
 */
static void add_noise(struct replay_layer *l, int32_t step,
                      const int64_t *loads)
{
	const struct replay_config *const c = l->config;
	const uint64_t keep = (uint64_t)c->keep_ppm * (UINT64_MAX / 1000000);
	uint64_t rng =
		hash_u64(hash_u64(c->seed, (uint64_t)step), (uint64_t)l->layer);
	int64_t total = 0;

	for (int32_t e = 0; e < l->n_experts; e++)
		total += loads[e];
	const int64_t bundle = max_i64(div_up(total, MAX_DRAWS), 1);

	memset(l->predicted, 0, (size_t)l->n_experts * sizeof(*l->predicted));
	for (int32_t e = 0; e < l->n_experts; e++)
		for (int64_t left = loads[e]; left > 0; left -= bundle) {
			const bool kept = rng_next(&rng) <= keep;
			const int32_t any = (int32_t)(rng_next(&rng) %
			                              (uint64_t)l->n_experts);

			l->predicted[kept ? e : any] += min_i64(left, bundle);
		}
}

void replay_predict(struct replay_layer *l, int32_t step)
{
	const struct replay_config *const c = l->config;
	const int64_t *const loads =
		c->use_predicted ? route_predicted(c->route, step, l->layer)
				 : route_loads(c->route, step, l->layer);

	if (c->keep_ppm < 1000000)
		add_noise(l, step, loads);
	else
		memcpy(l->predicted, loads,
		       (size_t)l->n_experts * sizeof(*loads));
}

/* Adds the steps of all tasks, or of all but one. */
static void add_tasks(struct replay_layer *l, int32_t without)
{
	const struct route *const route = l->config->route;

	memset(l->past, 0, (size_t)l->n_experts * sizeof(*l->past));
	for (int32_t s = 0; s < route->n_steps; s++) {
		const int64_t *const loads = route_loads(route, s, l->layer);

		if (route->steps[s].task == without)
			continue;
		for (int32_t e = 0; e < l->n_experts; e++)
			l->past[e] =
				min_i64(l->past[e] + loads[e], FERRY_MAX_LOAD);
	}
}

bool replay_know(struct replay_layer *l, int32_t step)
{
	switch (l->config->past) {
	case REPLAY_OTHERS:
		add_tasks(l, l->config->route->steps[step].task);
		return true;
	case REPLAY_ALL:
		add_tasks(l, -1);
		return true;
	case REPLAY_PAST:
	case REPLAY_LAST:
		break;
	}
	return replay_check(l, ferry_history_loads(l->history, 0, l->past));
}

bool replay_learn(struct replay_layer *l, int32_t step)
{
	/* Here, so that a window of one step still has it when it is asked. */
	ferry_history_step(l->history);
	return replay_check(l, ferry_history_add(l->history, 0,
	                                         route_loads(l->config->route,
	                                                     step, l->layer)));
}

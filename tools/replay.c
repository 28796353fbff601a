/* SPDX-License-Identifier: Apache-2.0 */
/* The loop over layers and steps. */
#include <stdlib.h>
#include <string.h>

#include "core/bits.h"
#include "core/clock.h"
#include "replay_parts.h"

const char *const replay_policy_names[REPLAY_N_POLICIES + 1] = {
	"fixed", "eplb", "freebalance", "ferry", NULL};

bool replay_check(struct replay_layer *l, enum ferry_status status)
{
	return status == FERRY_OK ||
	       fault_set(l->fault, "%s", ferry_last_error());
}

/* A placement of these experts; under QUOTA shared by the predicted loads. */
static bool place(struct replay_layer *l, const int32_t *slot_expert,
                  struct ferry_placement **placement)
{
	struct ferry_placement_config config = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *exact;

	config.n_experts = l->n_experts;
	config.n_ranks = l->config->n_ranks;
	config.expert_slots = l->expert_slots;
	config.slot_expert = slot_expert;
	config.split = l->config->split;
	if (config.split != FERRY_SPLIT_QUOTA)
		return replay_check(l,
		                    ferry_placement_create(&config, placement));
	config.split = FERRY_SPLIT_EXACT;
	if (!replay_check(l, ferry_placement_create(&config, &exact)))
		return false;
	enum ferry_status status =
		ferry_split_quotas(exact, l->predicted, NULL, l->quota, NULL);

	ferry_placement_destroy(exact);
	config.split = FERRY_SPLIT_QUOTA;
	config.quota = l->quota;
	if (status == FERRY_OK)
		status = ferry_placement_create(&config, placement);
	return replay_check(l, status);
}

/* Fullest rank over mean under the true loads. */
static bool judge(struct replay_layer *l, const struct ferry_placement *p,
                  const int64_t *loads, double *ratio)
{
	const int32_t n_ranks = l->config->n_ranks;
	int64_t most = 0, total = 0;

	for (int32_t e = 0; e < l->n_experts; e++)
		total += loads[e];
	if (l->config->split == FERRY_SPLIT_EXACT) {
		if (!replay_check(l, ferry_split_quotas(p, loads, NULL,
		                                        l->quota, &most)))
			return false;
	} else if (!replay_check(l,
	                         ferry_rank_loads(p, loads, l->rank_loads))) {
		return false;
	} else {
		for (int32_t r = 0; r < n_ranks; r++)
			most = max_i64(most, l->rank_loads[r]);
	}
	*ratio = total ? (double)most * n_ranks / (double)total : 1;
	return true;
}

/* EPLB's placement of what history knows: experts of n_slots slots. */
static bool place_by_history(struct replay_layer *l, int32_t n_slots)
{
	struct ferry_eplb_config config = FERRY_EPLB_CONFIG_INIT;

	config.n_experts = l->n_experts;
	config.n_ranks = l->config->n_ranks;
	config.n_slots = n_slots;
	return replay_check(l, ferry_eplb(&config, l->past, l->target));
}

/* Spreads experts of ranks without spare slots over ranks that have some. */
static void add_spares(const struct replay_layer *l, const int32_t *dense,
                       int32_t *slot_expert)
{
	const int32_t spares = l->config->replicas;

	for (int32_t r = 0; r < l->config->n_ranks; r++) {
		for (int32_t s = 0; s < l->expert_slots[r] - spares; s++)
			*slot_expert++ = *dense++;
		for (int32_t s = 0; s < spares; s++)
			*slot_expert++ = -1;
	}
}

/* The start placement, which history may change from step to step. */
static bool find_start(struct replay_layer *l, int32_t step)
{
	if (l->config->start == REPLAY_GIVEN)
		return true;
	if (l->config->start == REPLAY_CONTIGUOUS)
		for (int32_t e = 0; e < l->n_experts; e++)
			l->target[e] = e;
	else if (!replay_know(l, step) || !place_by_history(l, l->n_experts))
		return false;
	add_spares(l, l->target, l->start);
	return true;
}

static void plan_for(const struct replay_layer *l,
                     const struct ferry_placement *before,
                     struct ferry_plan_in *in)
{
	const struct replay_config *const c = l->config;

	*in = (struct ferry_plan_in)FERRY_PLAN_IN_INIT;
	in->placement = before;
	in->loads = l->predicted;
	in->layer = l->layer;
	in->max_swaps = c->max_swaps;
	in->max_copies = c->replicas;
	in->cost = c->cost;
	in->window_ns = c->window_ns;
	in->threshold_ppm = c->threshold_ppm;
	in->tight_bound = c->tight_bound;
	in->spare_copies = c->fill;
	if (l->policy == REPLAY_FREEBALANCE) {
		in->cost = c->half_duplex;
		in->rule = c->rule;
		in->gamma_milli = c->gamma_milli;
		in->max_copies = 0; /* it has none */
	}
}

/*
 * The bound for the true loads: that of the plan where it knew them, else of
 * one made for the bound. A policy without moves is told what moves could do.
 */
static bool find_bound(struct replay_layer *l, struct ferry_plan_in *in,
                       const int64_t *loads, struct replay_cell *cell)
{
	const bool knew = !memcmp(loads, l->predicted,
	                          (size_t)l->n_experts * sizeof(*loads));

	if (l->policy < REPLAY_FREEBALANCE || !knew) {
		in->loads = loads;
		if (!replay_check(l, ferry_plan_make(l->planner, in, &l->plan)))
			return false;
	}
	cell->bound = l->plan.total
	                      ? (double)l->plan.bound * l->config->n_ranks /
	                                (double)l->plan.total
	                      : 1;
	return true;
}

/* Counts the moves, and makes the swaps where the next step begins. */
static void take_moves(struct replay_layer *l, struct replay_cell *cell)
{
	for (int32_t m = 0; m < l->plan.n_moves; m++) {
		const struct ferry_move *const move = &l->plan.moves[m];

		if (move->kind == FERRY_MOVE_COPY) {
			cell->n_copies++;
			cell->n_fetched++;
			continue;
		}
		cell->n_swaps++;
		cell->n_fetched += (move->expert >= 0) + (move->other >= 0);
		l->now[move->from_slot] = move->other;
		l->now[move->to_slot] = move->expert;
	}
}

static bool run_plan(struct replay_layer *l,
                     const struct ferry_placement *before,
                     struct ferry_plan_in *in, struct replay_cell *cell,
                     struct ferry_placement **after)
{
	const uint64_t begin_ns = ferry_now_ns();

	if (!replay_check(l, ferry_plan_make(l->planner, in, &l->plan)))
		return false;
	cell->plan_ns = (int64_t)(ferry_now_ns() - begin_ns);
	take_moves(l, cell);
	return replay_check(
		l, ferry_plan_apply(before, &l->plan, l->predicted, after));
}

static bool run_history(struct replay_layer *l, int32_t step,
                        const struct ferry_placement *before,
                        struct replay_cell *cell,
                        struct ferry_placement **after)
{
	if (!replay_know(l, step))
		return false;
	const uint64_t begin_ns = ferry_now_ns();

	if (!place_by_history(l, l->n_slots) ||
	    !replay_check(l, ferry_placement_align(before, l->target, l->target,
	                                           &cell->n_fetched)))
		return false;
	cell->plan_ns = (int64_t)(ferry_now_ns() - begin_ns);
	memcpy(l->now, l->target, (size_t)l->n_slots * sizeof(*l->now));
	return place(l, l->target, after);
}

/* One policy's placement for the step; *after stays NULL where it is before. */
static bool decide(struct replay_layer *l, int32_t step,
                   const struct ferry_placement *before,
                   struct ferry_plan_in *in, struct replay_cell *cell,
                   struct ferry_placement **after)
{
	switch (l->policy) {
	case REPLAY_EPLB:
		return run_history(l, step, before, cell, after);
	case REPLAY_FREEBALANCE:
	case REPLAY_FERRY:
		return run_plan(l, before, in, cell, after);
	default:
		return true;
	}
}

static bool run_step(struct replay_layer *l, int32_t step,
                     struct replay_cell *cell)
{
	const int64_t *const loads =
		route_loads(l->config->route, step, l->layer);
	struct ferry_placement *before = NULL, *after = NULL;
	struct ferry_plan_in in;
	bool good = true;

	*cell = (struct replay_cell){0};
	replay_predict(l, step);
	if (step == 0 || !l->config->persist) {
		good = find_start(l, step);
		memcpy(l->now, l->start, (size_t)l->n_slots * sizeof(*l->now));
	}
	good = good && place(l, l->now, &before);
	if (good) {
		plan_for(l, before, &in);
		good = decide(l, step, before, &in, cell, &after) &&
		       find_bound(l, &in, loads, cell) &&
		       judge(l, before, loads, &cell->before) &&
		       judge(l, after ? after : before, loads, &cell->ratio) &&
		       replay_learn(l, step);
	}
	ferry_placement_destroy(before);
	ferry_placement_destroy(after);
	return good;
}

/* Slots of each rank, and what is given of them. */
static void set_slots(struct replay_layer *l)
{
	const struct replay_config *const c = l->config;

	for (int32_t r = 0; r < c->n_ranks; r++) {
		if (c->given)
			l->expert_slots[r] =
				ferry_placement_first_slot(c->given, r + 1) -
				ferry_placement_first_slot(c->given, r);
		else
			l->expert_slots[r] = l->n_experts / c->n_ranks +
			                     (r < l->n_experts % c->n_ranks) +
			                     c->replicas;
	}
	for (int32_t s = 0; c->given && s < l->n_slots; s++)
		l->start[s] = ferry_placement_expert(c->given, s);
}

static bool open_layers(struct replay_layer *l)
{
	const struct replay_config *const c = l->config;
	struct ferry_history_config history = FERRY_HISTORY_CONFIG_INIT;
	const size_t n_experts = (size_t)l->n_experts;
	const size_t n_ranks = (size_t)c->n_ranks;

	l->n_slots = c->given ? ferry_placement_n_slots(c->given)
	                      : l->n_experts + c->replicas * c->n_ranks;
	const size_t n_slots = (size_t)max_i64(l->n_slots, l->n_experts);

	history.n_layers = 1;
	history.n_experts = l->n_experts;
	history.window = c->past == REPLAY_LAST;
	l->plan = (struct ferry_plan){.size = sizeof(l->plan)};
	return route_alloc(n_ranks, sizeof(*l->expert_slots), &l->expert_slots,
	                   l->fault) &&
	       route_alloc(n_slots, sizeof(*l->start), &l->start, l->fault) &&
	       route_alloc(n_slots, sizeof(*l->now), &l->now, l->fault) &&
	       route_alloc(n_slots, sizeof(*l->target), &l->target, l->fault) &&
	       route_alloc(n_experts, sizeof(*l->predicted), &l->predicted,
	                   l->fault) &&
	       route_alloc(n_experts, sizeof(*l->past), &l->past, l->fault) &&
	       route_alloc(n_slots, sizeof(*l->quota), &l->quota, l->fault) &&
	       route_alloc(n_ranks, sizeof(*l->rank_loads), &l->rank_loads,
	                   l->fault) &&
	       replay_check(l, ferry_planner_create(l->n_experts, l->n_slots,
	                                            c->n_ranks, &l->planner)) &&
	       replay_check(l, ferry_history_create(&history, &l->history));
}

static void close_layers(struct replay_layer *l)
{
	ferry_history_destroy(l->history);
	ferry_planner_destroy(l->planner);
	free(l->expert_slots);
	free(l->start);
	free(l->now);
	free(l->target);
	free(l->predicted);
	free(l->past);
	free(l->quota);
	free(l->rank_loads);
}

/* A layer begins with no past. */
static bool run_layer(struct replay_layer *l, struct replay_cell *cells)
{
	const struct route *const route = l->config->route;

	for (int32_t step = 0; step < route->n_steps; step++)
		if (!run_step(
			    l, step,
			    &cells[(int64_t)step * route->n_layers + l->layer]))
			return false;
	return true;
}

bool replay_run(const struct replay_config *config, enum replay_policy policy,
                struct replay_cell *cells, struct fault *fault)
{
	const int32_t n_layers = config->route->n_layers;
	bool good = true;

	for (int32_t layer = 0; good && layer < n_layers; layer++) {
		struct replay_layer l = {
			.config = config,
			.policy = policy,
			.layer = layer,
			.n_experts = config->route->n_experts,
			.fault = fault,
		};

		if (config->progress)
			config->progress(policy, layer, n_layers);
		good = open_layers(&l);
		if (good) {
			set_slots(&l);
			good = run_layer(&l, cells);
		}
		close_layers(&l);
	}
	return good;
}

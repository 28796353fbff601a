/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of a balancer: from predicted loads to the placement that a layer goes
 * to. Copies are transient: each plan may give those of the one before up,
 * which moves nothing, or keep them, whichever is better for the loads at hand.
 */
#include <stdlib.h>
#include <string.h>

#include "../core/bits.h"
#include "balancer_inner.h"

void ferry_balancer_slots(struct ferry_balancer *b, int32_t layer)
{
	const int32_t *first = b->experts->layers[layer].first_slot;

	for (int32_t r = 0; r < b->n_ranks; r++)
		b->slots[r] = first[r + 1] - first[r];
}

enum ferry_status ferry_balancer_build(struct ferry_balancer *b, int32_t layer,
                                       const int32_t *map, const int64_t *loads,
                                       struct ferry_placement **placement)
{
	const struct balancer_layer *l = &b->layers[layer];
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *exact;

	ferry_balancer_slots(b, layer);
	c.n_experts = l->n_experts;
	c.n_ranks = b->n_ranks;
	c.expert_slots = b->slots;
	c.slot_expert = map;
	c.split = l->split;
	if (l->split != FERRY_SPLIT_QUOTA)
		return ferry_placement_create(&c, placement);
	c.split = FERRY_SPLIT_EXACT;
	FERRY_TRY(ferry_placement_create(&c, &exact));
	enum ferry_status status =
		ferry_split_quotas(exact, loads, b->speed, b->quota, NULL);

	ferry_placement_destroy(exact);
	c.split = FERRY_SPLIT_QUOTA;
	c.quota = b->quota;
	if (status == FERRY_OK)
		status = ferry_placement_create(&c, placement);
	return status;
}

enum ferry_status ferry_balancer_level(const struct ferry_balancer *b,
                                       const struct ferry_placement *placement,
                                       const int64_t *loads, int64_t *level)
{
	int64_t *of_ranks;
	enum ferry_status status;

	if (placement->split == FERRY_SPLIT_EXACT)
		return ferry_split_quotas(placement, loads, b->speed, b->quota,
		                          level);
	of_ranks = calloc((size_t)b->n_ranks, sizeof(*of_ranks));
	if (!of_ranks)
		return ferry_fail(&b->world->ctx, FERRY_NOMEM,
		                  "balancer: loads of %d ranks", b->n_ranks);
	status = ferry_rank_loads(placement, loads, of_ranks);
	*level = 0;
	for (int32_t r = 0; r < b->n_ranks; r++)
		*level =
			max_i64(*level, div_up(of_ranks[r] * FERRY_SPEED_NORMAL,
		                               b->speed[r]));
	free(of_ranks);
	return status;
}

int64_t ferry_balancer_ppm(const struct ferry_balancer *b, int64_t level,
                           const int64_t *loads, int32_t n_experts)
{
	int64_t total = 0;

	for (int32_t e = 0; e < n_experts; e++)
		total += loads[e];
	if (!total)
		return 1000000;
	return (int64_t)((__int128_t)level * b->n_ranks * 1000000 / total);
}

/* What plan_make is asked about one placement. */
static enum ferry_status ask(struct ferry_balancer *b, int32_t layer,
                             const struct ferry_placement *from,
                             int32_t max_swaps, int64_t window_ns)
{
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;

	in.placement = from;
	in.loads = b->layers[layer].loads;
	in.speed = b->speed;
	in.layer = layer;
	in.max_swaps = max_swaps;
	in.max_copies = balancer_copies(b);
	in.cost = &b->cost;
	in.window_ns = window_ns;
	in.rule = b->config.rule;
	in.gamma_milli = b->config.gamma_milli;
	in.thorough = b->config.thorough;
	in.spare_copies = b->config.spare_copies;
	b->plan.size = sizeof(b->plan);
	return ferry_plan_make(b->planner, &in, &b->plan);
}

/* One way to go on, and what comes out of it. */
struct way {
	struct ferry_placement *target;
	int32_t *sources; /* [n_slots] */
	int64_t level;
	int64_t bound;
	int32_t n_swaps;
	int32_t n_copies;
};

/* Does staging of the ranks that it changes have room for a move? */
static bool admit(struct ferry_balancer *b, const struct ferry_move *m)
{
	const bool swap = m->kind == FERRY_MOVE_SWAP;

	if (b->coming[m->to_rank] >= b->most_in ||
	    (swap && b->coming[m->from_rank] >= b->most_in))
		return false;
	b->coming[m->to_rank]++;
	b->coming[m->from_rank] += swap;
	return true;
}

/*
 * Applies the plan to a map and, without its copies, to `home`, and notes where
 * experts come from. Moves are disjoint, so that any can be left out.
 */
static void apply(struct ferry_balancer *b, int32_t *map, int32_t *home,
                  struct way *way)
{
	memset(b->coming, 0, (size_t)b->n_ranks * sizeof(*b->coming));
	for (int32_t i = 0; i < b->plan.n_moves; i++) {
		const struct ferry_move *m = &b->plan.moves[i];

		if (!admit(b, m))
			continue;
		map[m->to_slot] = m->expert;
		way->sources[m->to_slot] = m->from_slot;
		if (m->kind == FERRY_MOVE_COPY) {
			way->n_copies++;
			continue;
		}
		map[m->from_slot] = m->other;
		way->sources[m->from_slot] = m->to_slot;
		home[m->to_slot] = m->expert;
		home[m->from_slot] = m->other;
		way->n_swaps++;
	}
}

static void read_map(const struct ferry_placement *p, int32_t *map)
{
	memcpy(map, p->slot_expert, (size_t)p->map.n_slots * sizeof(*map));
}

/* Where its own plan leads from a placement. */
static enum ferry_status try_way(struct ferry_balancer *b, int32_t layer,
                                 const struct ferry_placement *from,
                                 int32_t max_swaps, int64_t window_ns,
                                 struct way *way)
{
	struct balancer_layer *l = &b->layers[layer];

	FERRY_TRY(ask(b, layer, from, max_swaps, window_ns));
	read_map(from, b->change);
	for (int32_t s = 0; s < l->n_slots; s++)
		way->sources[s] = -1;
	apply(b, b->change, l->next, way);
	way->bound = b->plan.bound;
	FERRY_TRY(ferry_balancer_build(b, layer, b->change, l->loads,
	                               &way->target));
	return ferry_balancer_level(b, way->target, l->loads, &way->level);
}

static void reset_next(struct balancer_layer *l)
{
	memcpy(l->next, l->base, (size_t)l->n_slots * sizeof(*l->next));
}

/*
 * Two ways: to give up the copies at hand and plan from the base, or to keep
 * them and add some. Without copies at hand there is only the first.
 */
static enum ferry_status best_way(struct ferry_balancer *b, int32_t layer,
                                  const struct ferry_placement *now,
                                  int64_t window_ns, struct way *best)
{
	struct balancer_layer *l = &b->layers[layer];
	const size_t bytes = (size_t)l->n_slots * sizeof(*l->base);
	struct ferry_placement *base = NULL;
	struct way keep = {.sources = b->sources + l->n_slots};
	enum ferry_status status;

	if (!memcmp(now->slot_expert, l->base, bytes))
		return try_way(b, layer, now, b->config.max_swaps, window_ns,
		               best);
	status = try_way(b, layer, now, -1, window_ns, &keep);
	if (status == FERRY_OK)
		status = ferry_balancer_build(b, layer, l->base, l->loads,
		                              &base);
	if (status == FERRY_OK)
		status = try_way(b, layer, base, b->config.max_swaps, window_ns,
		                 best);
	ferry_placement_destroy(base);
	if (status == FERRY_OK && keep.level <= best->level) {
		ferry_placement_destroy(best->target);
		*best = keep;
		reset_next(l);
		return FERRY_OK;
	}
	ferry_placement_destroy(keep.target);
	return status;
}

/* Reports a way that gains, if it gains enough. */
static enum ferry_status weigh_way(struct ferry_balancer *b, int32_t layer,
                                   const struct ferry_placement *now,
                                   const struct way *way, bool *taken)
{
	struct balancer_layer *l = &b->layers[layer];
	struct ferry_balancer_report *report = &l->report;
	const int64_t before_ppm = report->before_ppm;

	report->bound_ppm =
		ferry_balancer_ppm(b, way->bound, l->loads, l->n_experts);
	report->after_ppm =
		ferry_balancer_ppm(b, way->level, l->loads, l->n_experts);
	if (ferry_placement_hash(way->target) != ferry_placement_hash(now))
		FERRY_TRY(ferry_balancer_promise(b, layer, way->target, taken));
	if (*taken) {
		report->n_swaps = way->n_swaps;
		report->n_copies = way->n_copies;
		return FERRY_OK;
	}
	report->after_ppm = before_ppm;
	report->below_margin = true;
	return FERRY_OK;
}

enum ferry_status ferry_balancer_plan(struct ferry_balancer *b, int32_t layer,
                                      int64_t window_ns,
                                      struct balancer_target *target)
{
	struct balancer_layer *l = &b->layers[layer];
	struct ferry_balancer_report *report = &l->report;
	const struct ferry_placement *now =
		ferry_experts_placement(b->experts, layer);
	struct way way = {.sources = b->sources};
	int64_t level;

	FERRY_TRY(ferry_balancer_level(b, now, l->loads, &level));
	report->before_ppm =
		ferry_balancer_ppm(b, level, l->loads, l->n_experts);
	report->after_ppm = report->before_ppm;
	l->quiet = report->before_ppm < b->config.threshold_ppm;
	report->left_alone = l->quiet;
	if (l->quiet)
		return FERRY_OK;
	enum ferry_status status = best_way(b, layer, now, window_ns, &way);
	bool taken = status == FERRY_OK && way.level <= level;

	if (taken)
		status = weigh_way(b, layer, now, &way, &taken);
	if (status == FERRY_OK && taken) {
		target->placement = way.target;
		target->sources = way.sources;
		return FERRY_OK;
	}
	ferry_placement_destroy(way.target);
	reset_next(l);
	return status;
}

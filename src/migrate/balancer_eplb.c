/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placements from history: EPLB's becomes a goal, which a layer approaches in
 * steps that its staging can hold, each of them a placement of its own.
 */
#include <stdlib.h>
#include <string.h>

#include "balancer_inner.h"

/* Slots of each rank that history leaves empty for copies. */
static int32_t reserve_of(const struct ferry_balancer *b, int32_t layer)
{
	const struct balancer_layer *l = &b->layers[layer];
	const int32_t spare = (l->n_slots - l->n_experts) / b->n_ranks;

	return balancer_copies(b) < spare ? balancer_copies(b) : spare;
}

/* EPLB's map of what the past has been, without reserves, into b->change. */
static enum ferry_status try_eplb(struct ferry_balancer *b, int32_t layer)
{
	const struct balancer_layer *l = &b->layers[layer];
	struct ferry_eplb_config c = FERRY_EPLB_CONFIG_INIT;

	c.n_experts = l->n_experts;
	c.n_ranks = b->n_ranks;
	c.n_slots = l->n_slots - reserve_of(b, layer) * b->n_ranks;
	c.n_groups = b->config.eplb_groups;
	c.n_nodes = b->config.n_nodes;
	return ferry_eplb(&c, b->past, b->change);
}

enum ferry_status ferry_balancer_fits_eplb(struct ferry_balancer *b,
                                           int32_t layer)
{
	const struct balancer_layer *l = &b->layers[layer];

	ferry_balancer_slots(b, layer);
	for (int32_t r = 0; r < b->n_ranks; r++) {
		const int32_t even =
			l->n_slots / b->n_ranks + (r < l->n_slots % b->n_ranks);

		if (b->slots[r] != even)
			return ferry_fail(&b->world->ctx, FERRY_INVAL,
			                  "balancer_open: layer %d: rank %d "
			                  "has %d slots, EPLB gives it %d",
			                  layer, r, b->slots[r], even);
	}
	return try_eplb(b, layer);
}

/* EPLB's slots, with each rank's reserve behind its own. */
static void spread(const struct ferry_balancer *b, int32_t reserve,
                   const int32_t *dense, int32_t *goal)
{
	for (int32_t r = 0; r < b->n_ranks; r++) {
		for (int32_t s = 0; s < b->slots[r] - reserve; s++)
			*goal++ = *dense++;
		for (int32_t s = 0; s < reserve; s++)
			*goal++ = -1;
	}
}

static enum ferry_status place(struct ferry_balancer *b, int32_t layer)
{
	struct balancer_layer *l = &b->layers[layer];
	const int32_t n_nodes = b->config.n_nodes ? b->config.n_nodes : 1;
	struct ferry_placement *from;

	FERRY_TRY(try_eplb(b, layer));
	ferry_balancer_slots(b, layer);
	spread(b, reserve_of(b, layer), b->change, l->goal);
	FERRY_TRY(ferry_balancer_build(b, layer, l->base, b->past, &from));
	const enum ferry_status status = ferry_placement_align_nodes(
		from, l->goal, n_nodes, l->goal, NULL);

	ferry_placement_destroy(from);
	return status;
}

enum ferry_status ferry_balancer_aim(struct ferry_balancer *b, int32_t layer)
{
	struct balancer_layer *l = &b->layers[layer];
	const int32_t every = b->config.eplb_every;
	int64_t total = 0;

	if (!balancer_has_history(b) || l->since < every)
		return FERRY_OK;
	FERRY_TRY(ferry_history_loads(b->history, layer, b->past));
	for (int32_t e = 0; e < l->n_experts; e++)
		total += b->past[e];
	l->since = 0;
	if (!total)
		return FERRY_OK;
	FERRY_TRY(place(b, layer));
	l->has_goal = true;
	return FERRY_OK;
}

enum ferry_status ferry_balancer_doubt(struct ferry_balancer *b, int32_t layer)
{
	struct balancer_layer *l = &b->layers[layer];
	struct ferry_placement *goal;
	int64_t now, then;

	FERRY_TRY(ferry_balancer_level(
		b, ferry_experts_placement(b->experts, layer), l->loads, &now));
	if (!now)
		return FERRY_OK; /* nothing is foreseen: history is all */
	FERRY_TRY(ferry_balancer_build(b, layer, l->goal, l->loads, &goal));
	const enum ferry_status status =
		ferry_balancer_level(b, goal, l->loads, &then);

	ferry_placement_destroy(goal);
	if (status == FERRY_OK && then >= now)
		l->has_goal = false;
	return status;
}

/* A map on its way. */
struct walk {
	struct ferry_balancer *b;
	const struct balancer_layer *l;
	const int32_t *rank; /* [n_slots] */
	int32_t *map;
};

/* A slot with the expert, beside `not`: one that need not have it first. */
static int32_t find(const struct walk *w, int32_t expert, int32_t not,
                    int32_t rank)
{
	int32_t found = -1;

	for (int32_t s = 0; s < w->l->n_slots; s++) {
		if (w->map[s] != expert || s == not ||
		    (rank >= 0 && w->rank[s] != rank))
			continue;
		if (w->l->goal[s] != expert)
			return s;
		found = s;
	}
	return found;
}

static bool take(struct walk *w, int32_t rank_a, int32_t n_a, int32_t rank_b,
                 int32_t n_b)
{
	int32_t *in = w->b->coming;

	in[rank_a] += n_a;
	in[rank_b] += n_b;
	if (in[rank_a] <= w->b->most_in && in[rank_b] <= w->b->most_in)
		return true;
	in[rank_a] -= n_a;
	in[rank_b] -= n_b;
	return false;
}

/*
 * Gives slot s what it has in the goal; false where that has to wait. What it
 * had goes to where the new one came from, or away, if that is elsewhere, too.
 */
static bool settle(struct walk *w, int32_t s)
{
	const int32_t had = w->map[s], wanted = w->l->goal[s];
	const bool spare = had < 0 || find(w, had, s, -1) >= 0;

	if (wanted < 0) {
		w->map[s] = spare ? -1 : had;
		return spare;
	}
	const int32_t here = find(w, wanted, s, w->rank[s]);
	const int32_t q = here >= 0 ? here : find(w, wanted, s, -1);
	const bool leaves = w->l->goal[q] != wanted; /* its slot */
	const bool twice = had >= 0 && w->rank[q] != w->rank[s] &&
	                   find(w, had, s, w->rank[q]) >= 0;
	const bool back = leaves && had >= 0 && !twice &&
	                  (!spare || w->l->goal[q] == had);

	if ((!leaves && !spare) ||
	    !take(w, w->rank[s], 1, w->rank[q], back ? 1 : 0))
		return false;
	w->map[s] = wanted;
	if (leaves)
		w->map[q] = back ? had : -1;
	return true;
}

enum ferry_status ferry_balancer_approach(struct ferry_balancer *b,
                                          int32_t layer,
                                          struct balancer_target *target)
{
	struct balancer_layer *l = &b->layers[layer];
	const struct ferry_placement *now =
		ferry_experts_placement(b->experts, layer);
	struct walk walk = {b, l, now->map.slot_rank, l->next};
	bool moved = false;

	memset(b->coming, 0, (size_t)b->n_ranks * sizeof(*b->coming));
	for (bool again = true; again;) {
		again = false;
		for (int32_t s = 0; s < l->n_slots; s++)
			if (l->next[s] != l->goal[s])
				again |= settle(&walk, s);
		moved |= again;
	}
	if (!moved) {
		l->has_goal = false;
		return FERRY_OK;
	}
	l->report.by_history = true;
	return ferry_balancer_build(b, layer, l->next, l->loads,
	                            &target->placement);
}

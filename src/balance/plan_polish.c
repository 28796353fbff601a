/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last step of the search: what lay below the resolution of the board, and
 * a little more. In a swap of the fullest rank one expert is replaced by
 * another one of its rank, so that the fuller of the two ranks is least full,
 * while that helps.
 */
#include "../core/bits.h"
#include "plan_inner.h"

enum { ROUNDS = 4 };

/* A swap in place of one of the plan. */
struct better {
	struct plan_move move;
	int64_t time; /* the fuller of its two ranks then */
};

static int32_t fullest_rank(const struct ferry_planner *pl)
{
	int32_t best = 0;

	for (int32_t r = 1; r < pl->problem.n_ranks; r++)
		if (plan_time(pl, r) > plan_time(pl, best))
			best = r;
	return best;
}

/* Whether a swap in place of the one that is taken back is the best so far. */
static void consider(const struct ferry_planner *pl, struct plan_move move,
                     struct better *best)
{
	const struct ferry_problem *const p = &pl->problem;
	const int32_t a = p->slot_rank[move.from_slot];
	const int32_t b = p->slot_rank[move.to_slot];
	const int64_t tokens =
		pl->slot_load[move.from_slot] - pl->slot_load[move.to_slot];
	const int64_t time = max_i64((pl->load[a] - tokens) * p->weight[a],
	                             (pl->load[b] + tokens) * p->weight[b]);

	if (time < best->time && p->slot_expert[move.from_slot] >= 0 &&
	    p->slot_expert[move.to_slot] >= 0 && ferry_plan_may_move(pl, move))
		*best = (struct better){move, time};
}

/* Other experts in place of one of a swap. */
static void try_others(const struct ferry_planner *pl, struct plan_move move,
                       struct better *best)
{
	const struct ferry_problem *const p = &pl->problem;
	const int32_t a = p->slot_rank[move.from_slot];
	const int32_t b = p->slot_rank[move.to_slot];

	for (int32_t s = p->first_slot[a]; s < p->first_slot[a + 1]; s++)
		consider(pl, (struct plan_move){s, move.to_slot}, best);
	for (int32_t s = p->first_slot[b]; s < p->first_slot[b + 1]; s++)
		consider(pl, (struct plan_move){move.from_slot, s}, best);
}

/* Replaces one swap of the fullest rank; false: that does not help. */
static bool polish_once(struct ferry_planner *pl)
{
	const struct ferry_problem *const p = &pl->problem;
	const int32_t full = fullest_rank(pl);

	for (int32_t i = 0; i < pl->n_moves; i++) {
		const struct plan_move old = pl->moves[i];

		if (p->slot_expert[old.to_slot] < 0)
			continue;
		struct better best = {old, plan_time(pl, full)};

		if (p->slot_rank[old.from_slot] != full &&
		    p->slot_rank[old.to_slot] != full)
			continue;
		ferry_plan_drop_swap(pl, i);
		try_others(pl, old, &best);
		ferry_plan_add_swap(pl, best.move);
		if (best.move.from_slot != old.from_slot ||
		    best.move.to_slot != old.to_slot)
			return true;
	}
	return false;
}

void ferry_plan_polish(struct ferry_planner *pl)
{
	for (int i = 0; i < ROUNDS && polish_once(pl); i++)
		ferry_plan_keep_better(pl);
}

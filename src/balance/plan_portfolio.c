/* SPDX-License-Identifier: Apache-2.0 */
/* Our own way to plan: the best of several. */
#include "plan_inner.h"

/* The bound as a time; none where weights are rounded. */
static int64_t least_time(const struct ferry_planner *pl)
{
	const struct ferry_problem *const p = &pl->problem;

	if (p->has_speed)
		return 0;
	return pl->simple_bound * p->speed[0] / FERRY_SPEED_NORMAL;
}

void plan_portfolio(struct ferry_planner *pl)
{
	const struct ferry_problem *const p = &pl->problem;

	pl->best_value = plan_value_of(pl);
	pl->best_n_moves = 0;
	pl->least_time = least_time(pl);
	pl->total_time = 0;
	for (int32_t r = 0; r < p->n_ranks; r++)
		pl->total_time += plan_time(pl, r);
	if (p->max_swaps > 0 && p->n_ranks > 1) {
		plan_board_fill(&pl->search.board, pl);
		plan_search_greedy(pl, false);
		plan_search_greedy(pl, true);
		plan_search_targets(pl);
		plan_take_best(pl);
		plan_polish(pl);
	}
	if (p->max_copies > 0) {
		plan_take_best(pl);
		plan_add_copies(pl);
		plan_reset(pl);
		plan_add_copies(pl);
	}
	plan_take_best(pl);
}

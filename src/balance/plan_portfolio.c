/* SPDX-License-Identifier: Apache-2.0 */
/* Our own way to plan: the best of several. */
#include "plan_inner.h"

void plan_portfolio(struct ferry_planner *pl)
{
	const struct ferry_problem *const p = &pl->problem;

	pl->best_value = plan_value_of(pl);
	pl->best_n_moves = 0;
	pl->total_time = 0;
	for (int32_t r = 0; r < p->n_ranks; r++)
		pl->total_time += plan_time(pl, r);
	if (p->max_swaps > 0 && p->n_ranks > 1) {
		plan_board_fill(&pl->search.board, pl);
		plan_search_greedy(pl);
		plan_search_targets(pl);
	}
	plan_take_best(pl);
}

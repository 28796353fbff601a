/* SPDX-License-Identifier: Apache-2.0 */
/* Our own way to plan: the best of several. */
#include "plan_inner.h"

enum { TIME_BITS = 15, OUR_GAMMA = 500 };

/* The bound as a time; none where weights are rounded. */
static int64_t least_time(const struct ferry_planner *pl)
{
	const struct ferry_problem *const p = &pl->problem;

	if (p->has_speed)
		return 0;
	return pl->simple_bound * p->speed[0] / FERRY_SPEED_NORMAL;
}

/* Adds swaps to the plan in the making, which has none; keeps the best. */
static void add_swaps(struct ferry_planner *pl)
{
	struct plan_search *const s = &pl->search;

	if (pl->problem.max_swaps == 0 || pl->problem.n_ranks == 1)
		return;
	ferry_board_fill(&s->board, pl);
	ferry_search_greedy(pl);
	ferry_search_targets(pl);
}

/*
 * FreeBalance's rule in both readings, so that a thorough plan is never worse:
 * with the gamma that the caller gives, ours, and none. Under costs, which our
 * search does not weigh against gains, its cheaper reading with the first
 * gamma; both where experts are not equally large, because the search gives up
 * on a pair that does not fit.
 */
static void add_freebalance(struct ferry_planner *pl)
{
	const struct ferry_problem *const p = &pl->problem;
	const int32_t gammas[] = {p->gamma_milli, OUR_GAMMA, 0};
	const int n = p->thorough       ? 6
	              : p->uneven_bytes ? 2
	              : p->has_cost     ? 1
	                                : 0;

	for (int i = 0; i < n; i++) {
		ferry_plan_freebalance(pl, i % 2, gammas[i / 2]);
		ferry_plan_keep_better(pl);
	}
}

/* Copies beside the best swaps, without swaps, and with swaps after them. */
static void add_copies(struct ferry_planner *pl)
{
	ferry_plan_take_best(pl);
	ferry_plan_add_copies(pl);
	ferry_plan_reset(pl);
	ferry_plan_add_copies(pl);
	pl->slot_load = pl->slot_now;
	add_swaps(pl);
	ferry_plan_take_best(pl);
	ferry_plan_add_copies(pl);
}

void ferry_plan_portfolio(struct ferry_planner *pl)
{
	const struct ferry_problem *const p = &pl->problem;

	pl->best_value = ferry_plan_value_of(pl);
	pl->best_n_moves = 0;
	pl->least_time = least_time(pl);
	pl->total_time = 0;
	for (int32_t r = 0; r < p->n_ranks; r++)
		pl->total_time += plan_time(pl, r);
	pl->search.time_shift = 0;
	while (pl->best_value.max_time >> pl->search.time_shift >> TIME_BITS)
		pl->search.time_shift++;
	add_swaps(pl);
	add_freebalance(pl);
	ferry_plan_take_best(pl);
	ferry_plan_polish(pl);
	if (p->max_copies > 0)
		add_copies(pl);
	ferry_plan_take_best(pl);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The planner's memory, and the way through a plan. */
#include <stdlib.h>
#include <string.h>

#include "../core/bits.h"
#include "../core/ctx.h"
#include "../core/sized.h"
#include "plan_inner.h"

static enum ferry_status allocate(struct ferry_planner *pl)
{
	const size_t n_ranks = (size_t)pl->problem.max_ranks;
	const size_t n_slots = (size_t)pl->problem.max_slots;
	const size_t n_experts = (size_t)pl->problem.max_experts;
	int64_t *const wide =
		malloc((4 * n_ranks + 2 * n_slots) * sizeof(*wide));
	int32_t *const narrow = malloc(
		(n_ranks + 2 * n_slots + 2 * n_experts + 1) * sizeof(*narrow));

	/* One block each, which begins with load and with slot_after. */
	pl->load = wide;
	pl->slot_after = narrow;
	pl->taken = malloc(n_experts);
	if (!wide || !narrow || !pl->taken)
		return ferry_fail(NULL, FERRY_NOMEM,
		                  "planner: %zu experts, %zu slots, %zu ranks",
		                  n_experts, n_slots, n_ranks);
	pl->left[0] = wide + n_ranks;
	pl->left[1] = pl->left[0] + n_ranks;
	pl->spilt_load = pl->left[1] + n_ranks;
	pl->slot_now = pl->spilt_load + n_ranks;
	pl->slot_left = pl->slot_now + n_slots;
	pl->replicas_after = narrow + n_slots;
	pl->free_slots = pl->replicas_after + n_slots;
	pl->first_after = pl->free_slots + n_ranks;
	pl->n_copies = pl->first_after + n_experts + 1;
	FERRY_TRY(ferry_bound_init(&pl->bound, pl->problem.max_slots,
	                           pl->problem.max_ranks));
	return ferry_board_init(&pl->search.board, pl->problem.max_slots,
	                        pl->problem.max_ranks);
}

enum ferry_status ferry_planner_create(int32_t max_experts, int32_t max_slots,
                                       int32_t max_ranks,
                                       struct ferry_planner **planner)
{
	if (!planner)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "planner_create: planner is NULL");
	struct ferry_planner *const pl = calloc(1, sizeof(*pl));

	if (!pl)
		return ferry_fail(NULL, FERRY_NOMEM, "planner: %zu bytes",
		                  sizeof(*pl));
	enum ferry_status status = ferry_problem_init(&pl->problem, max_experts,
	                                              max_slots, max_ranks);

	if (!status)
		status = allocate(pl);
	if (status) {
		ferry_planner_destroy(pl);
		return status;
	}
	*planner = pl;
	return FERRY_OK;
}

void ferry_planner_destroy(struct ferry_planner *planner)
{
	if (!planner)
		return;
	ferry_board_destroy(&planner->search.board);
	ferry_bound_destroy(&planner->bound);
	ferry_problem_destroy(&planner->problem);
	free(planner->load);
	free(planner->slot_after);
	free(planner->taken);
	free(planner);
}

static enum ferry_status check_plan(const struct ferry_plan *plan)
{
	if (!plan)
		return ferry_fail(NULL, FERRY_INVAL, "plan: plan is NULL");
	if (plan->size >= sizeof(*plan))
		return FERRY_OK;
	return ferry_fail(NULL, FERRY_INVAL,
	                  "plan: plan->size is %zu, allowed is sizeof(*plan), "
	                  "%zu, or more",
	                  plan->size, sizeof(*plan));
}

/* Whether the fullest rank is so near the mean that the layer stays as is. */
static bool is_below_threshold(const struct ferry_problem *p,
                               int64_t load_before)
{
	return (__int128_t)load_before * p->sum_speed * 1000000 <
	       (__int128_t)p->threshold_ppm * p->total * FERRY_SPEED_NORMAL;
}

/* Leaves the plan in the making, with what the rule finds to gain. */
static void choose_gains(struct ferry_planner *pl, int64_t load_before)
{
	if (load_before <= pl->simple_bound)
		return;
	if (pl->problem.rule == FERRY_RULE_PORTFOLIO)
		ferry_plan_portfolio(pl);
	else
		ferry_plan_freebalance(pl,
		                       pl->problem.rule == FERRY_RULE_SORTED,
		                       pl->problem.gamma_milli);
	if (ferry_plan_must_settle(pl))
		ferry_plan_settle(pl);
	/* Weights are rounded, and what is reported is not. */
	if (ferry_problem_max_load(&pl->problem, pl->load) > load_before)
		ferry_plan_reset(pl);
}

static void choose_moves(struct ferry_planner *pl, int64_t load_before)
{
	const struct ferry_problem *const p = &pl->problem;

	ferry_plan_reset(pl);
	if (is_below_threshold(p, load_before))
		return;
	choose_gains(pl, load_before);
	if (p->spare_copies)
		ferry_plan_add_spare_copies(pl);
}

static struct ferry_move describe(const struct ferry_problem *p,
                                  struct plan_move move)
{
	const struct plan_cost cost = ferry_plan_move_cost(p, move);
	const struct ferry_move m = {
		.kind = p->slot_expert[move.to_slot] < 0 ? FERRY_MOVE_COPY
	                                                 : FERRY_MOVE_SWAP,
		.expert = p->slot_expert[move.from_slot],
		.other = p->slot_expert[move.to_slot],
		.from_slot = move.from_slot,
		.to_slot = move.to_slot,
		.from_rank = p->slot_rank[move.from_slot],
		.to_rank = p->slot_rank[move.to_slot],
		.cost_ns = max_i64(cost.there_ns, cost.back_ns),
	};

	return m;
}

/* Makes the moves once more, one after the other, to see what each gains. */
static void write_moves(struct ferry_planner *pl, struct ferry_plan *plan)
{
	struct ferry_problem *const p = &pl->problem;
	const int32_t n = pl->n_moves;
	int64_t before = plan->load_before;

	ferry_plan_reset(pl);
	for (int32_t i = 0; i < n; i++) {
		struct ferry_move *const m = &plan->moves[i];

		*m = describe(p, pl->moves[i]);
		ferry_plan_add(pl, pl->moves[i]);
		/* No copy makes the fullest rank less full than the bound. */
		if (ferry_plan_must_settle(pl) &&
		    (m->kind == FERRY_MOVE_SWAP || before > pl->simple_bound))
			ferry_plan_settle(pl);
		const int64_t after = ferry_problem_max_load(p, pl->load);

		m->gain = before - after;
		before = after;
	}
	plan->n_moves = n;
	plan->load_after = before;
}

static uint64_t hash_moves(uint64_t h, const struct ferry_plan *plan)
{
	h = hash_u64(h, (uint64_t)plan->n_moves);
	for (int32_t i = 0; i < plan->n_moves; i++) {
		const struct ferry_move *const m = &plan->moves[i];

		h = hash_u64(h, (uint64_t)m->from_slot << 32 |
		                        (uint32_t)m->to_slot);
	}
	return h;
}

static int64_t bound_of(struct ferry_planner *pl, int64_t load_after)
{
	const int64_t bound = pl->simple_bound;

	if (!pl->problem.tight_bound || bound >= load_after)
		return bound;
	return ferry_bound_budget(&pl->bound, &pl->problem, bound, load_after);
}

enum ferry_status ferry_plan_make(struct ferry_planner *planner,
                                  const struct ferry_plan_in *in,
                                  struct ferry_plan *plan)
{
	struct ferry_plan_in own;

	if (!planner)
		return ferry_fail(NULL, FERRY_INVAL, "plan: planner is NULL");
	FERRY_TRY(check_plan(plan));
	FERRY_TRY(ferry_sized_copy(&own, sizeof(own), in, "plan input"));
	struct ferry_problem *const p = &planner->problem;

	FERRY_TRY(ferry_problem_fill(p, &own));
	plan->layer = p->layer;
	plan->total = (int64_t)((__int128_t)p->total * FERRY_SPEED_NORMAL *
	                        p->n_ranks / p->sum_speed);
	plan->load_before = ferry_problem_max_load(p, p->rank_load);
	planner->simple_bound = ferry_bound_simple(&planner->bound, p);
	choose_moves(planner, plan->load_before);
	write_moves(planner, plan);
	plan->bound = bound_of(planner, plan->load_after);
	plan->hash = hash_moves(ferry_plan_hash_inputs(p), plan);
	return FERRY_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A plan in the making: which moves may come, and what they leave. */
#include <string.h>

#include "../core/bits.h"
#include "plan_inner.h"

void ferry_plan_reset(struct ferry_planner *pl)
{
	const struct ferry_problem *const p = &pl->problem;
	const size_t bytes = (size_t)p->n_ranks * sizeof(int64_t);

	pl->n_moves = 0;
	pl->slot_load = p->slot_load;
	memcpy(pl->load, p->rank_load, bytes);
	memset(pl->taken, 0, (size_t)p->n_experts);
	if (!p->has_cost)
		return;
	memcpy(pl->left[0], p->window, bytes);
	memcpy(pl->left[1], p->window, bytes);
}

struct plan_cost ferry_plan_move_cost(const struct ferry_problem *p,
                                      struct plan_move move)
{
	const int32_t a = p->slot_rank[move.from_slot];
	const int32_t b = p->slot_rank[move.to_slot];
	const int32_t e = p->slot_expert[move.from_slot];
	const int32_t f = p->slot_expert[move.to_slot];
	struct plan_cost cost = {0, 0};

	if (!p->has_cost)
		return cost;
	cost.there_ns =
		ferry_problem_transfer_ns(p, a, b, ferry_problem_bytes(p, e));
	if (f >= 0)
		cost.back_ns = ferry_problem_transfer_ns(
			p, b, a, ferry_problem_bytes(p, f));
	if (!p->cost.half_duplex || f < 0)
		return cost;
	/* FreeBalance (9): one start, and both directions after each other. */
	cost.there_ns =
		min_i64(cost.there_ns + cost.back_ns -
	                        p->cost.alpha_ns[(int64_t)b * p->n_ranks + a],
	                FERRY_COST_NEVER);
	cost.back_ns = cost.there_ns;
	return cost;
}

static bool fits(const struct ferry_planner *pl, struct plan_move move)
{
	const struct ferry_problem *const p = &pl->problem;
	const int32_t a = p->slot_rank[move.from_slot];
	const int32_t b = p->slot_rank[move.to_slot];

	if (!p->has_cost)
		return true;
	const struct plan_cost cost = ferry_plan_move_cost(p, move);

	if (p->cost.half_duplex)
		return cost.there_ns <= pl->left[0][a] &&
		       cost.there_ns <= pl->left[0][b];
	return cost.there_ns <= pl->left[0][a] &&
	       cost.there_ns <= pl->left[1][b] &&
	       cost.back_ns <= pl->left[0][b] && cost.back_ns <= pl->left[1][a];
}

bool ferry_plan_may_pair(const struct ferry_planner *pl, int32_t a, int32_t b)
{
	const struct ferry_problem *const p = &pl->problem;

	if (!p->has_cost)
		return true;
	const int64_t there =
		ferry_problem_transfer_ns(p, a, b, p->least_bytes);
	const int64_t back = ferry_problem_transfer_ns(p, b, a, p->least_bytes);

	if (p->cost.half_duplex) {
		const int64_t both =
			there + back -
			p->cost.alpha_ns[(int64_t)b * p->n_ranks + a];

		return both <= pl->left[0][a] && both <= pl->left[0][b];
	}
	return there <= pl->left[0][a] && there <= pl->left[1][b] &&
	       back <= pl->left[0][b] && back <= pl->left[1][a];
}

static void pay(struct ferry_planner *pl, struct plan_move move, int64_t sign)
{
	const struct ferry_problem *const p = &pl->problem;
	const int32_t a = p->slot_rank[move.from_slot];
	const int32_t b = p->slot_rank[move.to_slot];

	if (!p->has_cost)
		return;
	const struct plan_cost cost = ferry_plan_move_cost(p, move);

	pl->left[0][a] -= sign * cost.there_ns;
	if (p->cost.half_duplex) {
		pl->left[0][b] -= sign * cost.there_ns;
		return;
	}
	pl->left[1][b] -= sign * cost.there_ns;
	pl->left[0][b] -= sign * cost.back_ns;
	pl->left[1][a] -= sign * cost.back_ns;
}

static bool is_on(const struct ferry_problem *p, int32_t expert, int32_t rank)
{
	for (int32_t i = p->first_replica[expert];
	     i < p->first_replica[expert + 1]; i++)
		if (p->slot_rank[p->replicas[i]] == rank)
			return true;
	return false;
}

bool ferry_plan_may_move(const struct ferry_planner *pl, struct plan_move move)
{
	const struct ferry_problem *const p = &pl->problem;
	const int32_t e = p->slot_expert[move.from_slot];
	const int32_t f = p->slot_expert[move.to_slot];

	if (pl->n_moves == FERRY_PLAN_MOVES)
		return false;
	if (f < 0 ? pl->taken[e] & PLAN_SWAPPED : pl->taken[e] | pl->taken[f])
		return false;
	if (p->has_replicas &&
	    (is_on(p, e, p->slot_rank[move.to_slot]) ||
	     (f >= 0 && is_on(p, f, p->slot_rank[move.from_slot]))))
		return false;
	return fits(pl, move);
}

static void shift(struct ferry_planner *pl, struct plan_move move, int64_t sign)
{
	const struct ferry_problem *const p = &pl->problem;
	const int64_t tokens = sign * (pl->slot_load[move.from_slot] -
	                               pl->slot_load[move.to_slot]);
	const uint8_t taken = sign > 0 ? PLAN_SWAPPED : 0;

	pl->load[p->slot_rank[move.from_slot]] -= tokens;
	pl->load[p->slot_rank[move.to_slot]] += tokens;
	pl->taken[p->slot_expert[move.from_slot]] = taken;
	pl->taken[p->slot_expert[move.to_slot]] = taken;
	pay(pl, move, sign);
}

void ferry_plan_add_swap(struct ferry_planner *pl, struct plan_move move)
{
	shift(pl, move, 1);
	pl->moves[pl->n_moves++] = move;
}

void ferry_plan_undo_swap(struct ferry_planner *pl)
{
	shift(pl, pl->moves[--pl->n_moves], -1);
}

void ferry_plan_add_copy(struct ferry_planner *pl, struct plan_move move)
{
	pl->taken[pl->problem.slot_expert[move.from_slot]] |= PLAN_COPIED;
	pay(pl, move, 1);
	pl->moves[pl->n_moves++] = move;
}

void ferry_plan_undo_copy(struct ferry_planner *pl)
{
	const int32_t *const slot_expert = pl->problem.slot_expert;
	const struct plan_move move = pl->moves[--pl->n_moves];
	const int32_t e = slot_expert[move.from_slot];

	pay(pl, move, -1);
	pl->taken[e] = 0;
	for (int32_t i = 0; i < pl->n_moves; i++)
		if (slot_expert[pl->moves[i].from_slot] == e)
			pl->taken[e] = PLAN_COPIED;
}

void ferry_plan_add(struct ferry_planner *pl, struct plan_move move)
{
	if (pl->problem.slot_expert[move.to_slot] < 0)
		ferry_plan_add_copy(pl, move);
	else
		ferry_plan_add_swap(pl, move);
}

bool ferry_plan_must_settle(const struct ferry_planner *pl)
{
	bool copies = pl->problem.has_replicas;

	for (int32_t i = 0; !copies && i < pl->n_moves; i++)
		copies = pl->problem.slot_expert[pl->moves[i].to_slot] < 0;
	return copies && pl->n_moves > 0;
}

void ferry_plan_drop_swap(struct ferry_planner *pl, int32_t i)
{
	shift(pl, pl->moves[i], -1);
	pl->n_moves--;
	memmove(&pl->moves[i], &pl->moves[i + 1],
	        (size_t)(pl->n_moves - i) * sizeof(*pl->moves));
}

struct plan_value ferry_plan_value_of(const struct ferry_planner *pl)
{
	struct plan_value v = {0, 0, pl->n_moves};

	for (int32_t r = 0; r < pl->problem.n_ranks; r++) {
		const int64_t t = plan_time(pl, r);

		v.max_time = max_i64(v.max_time, t);
		v.squares += (__uint128_t)t * (__uint128_t)t;
	}
	return v;
}

bool ferry_plan_is_better(const struct plan_value *a,
                          const struct plan_value *b)
{
	if (a->max_time != b->max_time)
		return a->max_time < b->max_time;
	if (a->squares != b->squares)
		return a->squares < b->squares;
	return a->n_moves < b->n_moves;
}

void ferry_plan_keep_better(struct ferry_planner *pl)
{
	const struct plan_value v = ferry_plan_value_of(pl);

	if (!ferry_plan_is_better(&v, &pl->best_value))
		return;
	pl->best_value = v;
	pl->best_n_moves = pl->n_moves;
	memcpy(pl->best, pl->moves, (size_t)pl->n_moves * sizeof(*pl->best));
}

void ferry_plan_take_best(struct ferry_planner *pl)
{
	ferry_plan_reset(pl);
	for (int32_t i = 0; i < pl->best_n_moves; i++)
		ferry_plan_add(pl, pl->best[i]);
	if (ferry_plan_must_settle(pl))
		ferry_plan_settle(pl);
}

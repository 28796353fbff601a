/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies into empty slots, after the swaps that are in the plan already.
 *
 * Under EXACT and QUOTA a copy may take over any part of what its expert
 * brings, so the question is who gives how much to whom: for a target, the
 * fullest rank spills its heaviest expert to whoever has most room, until no
 * rank is above. Bisection finds the least target. The shares of that are only
 * a proof; those of the plan are the optimum for its copies (quotas.h).
 *
 * Under EVEN a copy takes what the rule gives it: the best one of the fullest
 * rank, again and again.
 *
 * Spare copies come last. By the loads at hand they promise nothing; but the
 * exact split can shift tokens only between ranks that hold the same expert,
 * so the more of these there are, the more of a wrong prediction it repairs.
 */
#include <string.h>

#include "../core/bits.h"
#include "../core/placement_inner.h"
#include "plan_inner.h"

enum { BISECTIONS = 14 };

/* Of the placement after the moves, which is settled. */
static void count_free_slots(struct ferry_planner *pl)
{
	const struct ferry_problem *const p = &pl->problem;

	for (int32_t r = 0; r < p->n_ranks; r++) {
		int32_t empty = 0, copies = 0;

		for (int32_t s = p->first_slot[r]; s < p->first_slot[r + 1];
		     s++) {
			empty += pl->slot_after[s] < 0;
			copies +=
				pl->slot_after[s] >= 0 && p->slot_expert[s] < 0;
		}
		copies = p->max_copies - copies;
		pl->free_slots[r] = copies < empty ? copies : empty;
	}
}

/* The first empty slot of a rank that no copy goes to. */
static int32_t empty_slot(const struct ferry_planner *pl, int32_t rank)
{
	const struct ferry_problem *const p = &pl->problem;
	int32_t s = p->first_slot[rank];

	while (pl->slot_after[s] >= 0)
		s++;
	return s;
}

/* Whether a copy may go from a slot to a rank; *move is that. */
static bool may_copy(const struct ferry_planner *pl, int32_t slot, int32_t rank,
                     struct plan_move *move)
{
	const struct ferry_problem *const p = &pl->problem;

	if (pl->free_slots[rank] <= 0)
		return false;
	for (int32_t s = p->first_slot[rank]; s < p->first_slot[rank + 1]; s++)
		if (pl->slot_after[s] == p->slot_expert[slot])
			return false;
	*move = (struct plan_move){slot, empty_slot(pl, rank)};
	return ferry_plan_may_move(pl, *move);
}

static void add_copy(struct ferry_planner *pl, struct plan_move move)
{
	const struct ferry_problem *const p = &pl->problem;

	ferry_plan_add_copy(pl, move);
	pl->slot_after[move.to_slot] = p->slot_expert[move.from_slot];
	pl->free_slots[p->slot_rank[move.to_slot]]--;
}

/* Takes back copies until n moves are left. */
static void drop_copies(struct ferry_planner *pl, int32_t n)
{
	const struct ferry_problem *const p = &pl->problem;

	while (pl->n_moves > n) {
		const struct plan_move move = pl->moves[pl->n_moves - 1];

		pl->slot_after[move.to_slot] = -1;
		pl->free_slots[p->slot_rank[move.to_slot]]++;
		ferry_plan_undo_copy(pl);
	}
}

/* The slot of a rank with most left to give, -1: none. Swapped experts stay. */
static int32_t heaviest_slot(const struct ferry_planner *pl, int32_t rank)
{
	const struct ferry_problem *const p = &pl->problem;
	int32_t best = -1;

	for (int32_t s = p->first_slot[rank]; s < p->first_slot[rank + 1]; s++)
		if (p->slot_expert[s] >= 0 &&
		    !(pl->taken[p->slot_expert[s]] & PLAN_SWAPPED) &&
		    pl->slot_left[s] > 0 &&
		    (best < 0 || pl->slot_left[s] > pl->slot_left[best]))
			best = s;
	return best;
}

/* Copies the expert of a slot to the rank with most room below the target. */
static bool spill_one(struct ferry_planner *pl, int32_t slot, int64_t target,
                      int64_t need)
{
	const struct ferry_problem *const p = &pl->problem;
	struct plan_move move = {0, 0}, best = {0, 0};
	int64_t most = 0;

	for (int32_t r = 0; r < p->n_ranks; r++) {
		const int64_t room = target / p->weight[r] - pl->spilt_load[r];

		if (room > most && may_copy(pl, slot, r, &move)) {
			most = room;
			best = move;
		}
	}
	if (most <= 0)
		return false;
	const int64_t tokens =
		min_i64(need, min_i64(most, pl->slot_left[slot]));

	add_copy(pl, best);
	pl->spilt_load[p->slot_rank[slot]] -= tokens;
	pl->spilt_load[p->slot_rank[best.to_slot]] += tokens;
	pl->slot_left[slot] -= tokens;
	return true;
}

/* Brings one rank below the target. */
static bool spill_rank(struct ferry_planner *pl, int32_t rank, int64_t target)
{
	const int64_t cap = target / pl->problem.weight[rank];

	while (pl->spilt_load[rank] > cap) {
		const int32_t s = heaviest_slot(pl, rank);

		if (s < 0)
			return false;
		if (!spill_one(pl, s, target, pl->spilt_load[rank] - cap))
			pl->slot_left[s] = 0; /* nobody can take it */
	}
	return true;
}

/* Brings all ranks below the target, fullest first. */
static bool spill(struct ferry_planner *pl, int64_t target)
{
	const struct ferry_problem *const p = &pl->problem;

	memcpy(pl->spilt_load, pl->load,
	       (size_t)p->n_ranks * sizeof(*pl->load));
	memcpy(pl->slot_left, pl->slot_now,
	       (size_t)p->n_slots * sizeof(*pl->slot_left));
	for (;;) {
		int32_t a = 0;
		int64_t most = -1;

		for (int32_t r = 0; r < p->n_ranks; r++)
			if (pl->spilt_load[r] * p->weight[r] > most) {
				most = pl->spilt_load[r] * p->weight[r];
				a = r;
			}
		if (most <= target)
			return true;
		if (!spill_rank(pl, a, target))
			return false;
	}
}

/* The least target that spilling reaches; its copies are made. */
static void spill_to_least(struct ferry_planner *pl)
{
	const int32_t n_swaps = pl->n_moves;
	int64_t high = ferry_plan_value_of(pl).max_time;
	int64_t low = max_i64(0, pl->least_time - 1); /* not reached */
	int64_t reached = -1;

	for (int i = 0; i < BISECTIONS && high - low > 1; i++) {
		const int64_t target = low + (high - low) / 2;
		const bool good = spill(pl, target);

		drop_copies(pl, n_swaps);
		if (good)
			reached = high = target;
		else
			low = target;
	}
	if (reached >= 0)
		(void)spill(pl, reached);
}

/* A copy of the fullest rank, and the fuller of the two ranks after it. */
struct even_choice {
	struct plan_move move;
	int64_t time;
	bool found;
};

/* What ranks hold of an expert when one more shares it evenly. */
static int64_t even_part(const struct ferry_planner *pl, int32_t slot)
{
	const struct ferry_problem *const p = &pl->problem;
	const int32_t e = p->slot_expert[slot];
	int32_t n = p->first_replica[e + 1] - p->first_replica[e] + 1;

	for (int32_t i = 0; i < pl->n_moves; i++)
		n += p->slot_expert[pl->moves[i].from_slot] == e;
	return p->loads[e] / n;
}

static struct even_choice choose_even(struct ferry_planner *pl, int32_t rank)
{
	const struct ferry_problem *const p = &pl->problem;
	struct even_choice best = {{0, 0}, 0, false};

	for (int32_t s = p->first_slot[rank]; s < p->first_slot[rank + 1];
	     s++) {
		if (p->slot_expert[s] < 0)
			continue;
		const int64_t part = even_part(pl, s);

		for (int32_t r = 0; r < p->n_ranks; r++) {
			struct plan_move move;

			if (r == rank || !may_copy(pl, s, r, &move))
				continue;
			const int64_t here =
				(pl->load[rank] - pl->slot_now[s] + part) *
				p->weight[rank];
			const int64_t there =
				(pl->load[r] + part) * p->weight[r];
			const int64_t time = max_i64(here, there);

			if (!best.found || time < best.time)
				best = (struct even_choice){move, time, true};
		}
	}
	return best;
}

/* Copies while that makes the fullest rank less full. */
static void copy_evenly(struct ferry_planner *pl)
{
	const struct ferry_problem *const p = &pl->problem;

	for (;;) {
		int32_t a = 0;

		for (int32_t r = 1; r < p->n_ranks; r++)
			if (plan_time(pl, r) > plan_time(pl, a))
				a = r;
		const struct even_choice c = choose_even(pl, a);

		if (!c.found || c.time >= plan_time(pl, a))
			return;
		const struct plan_value before = ferry_plan_value_of(pl);

		add_copy(pl, c.move);
		ferry_plan_settle(pl);
		struct plan_value after = ferry_plan_value_of(pl);

		after.n_moves = before.n_moves;
		if (!ferry_plan_is_better(&after, &before)) {
			drop_copies(pl, pl->n_moves - 1);
			ferry_plan_settle(pl);
			return;
		}
	}
}

void ferry_plan_add_copies(struct ferry_planner *pl)
{
	const struct ferry_problem *const p = &pl->problem;

	if (p->max_copies <= 0 || p->n_ranks < 2)
		return;
	ferry_plan_settle(pl);
	count_free_slots(pl);
	if (p->placement->split == FERRY_SPLIT_EVEN)
		copy_evenly(pl);
	else
		spill_to_least(pl);
	ferry_plan_settle(pl);
	ferry_plan_keep_better(pl);
}

/* A copy of the expert to the rank with most slots left; false: none may be. */
static bool find_spare_rank(const struct ferry_planner *pl, int32_t expert,
                            struct plan_move *move)
{
	const struct ferry_problem *const p = &pl->problem;
	int32_t most = 0;

	for (int32_t r = 0; r < p->n_ranks; r++)
		for (int32_t i = p->first_replica[expert];
		     pl->free_slots[r] > most &&
		     i < p->first_replica[expert + 1];
		     i++) {
			struct plan_move m;

			if (!may_copy(pl, p->replicas[i], r, &m))
				continue;
			most = pl->free_slots[r];
			*move = m;
		}
	return most > 0;
}

/*
 * A copy of the expert with most tokens a slot. What may not be copied once may
 * not later, either: room only shrinks.
 */
static bool find_spare_copy(struct ferry_planner *pl, struct plan_move *best)
{
	const struct ferry_problem *const p = &pl->problem;
	int32_t found = -1;

	for (int32_t e = 0; e < p->n_experts; e++) {
		if (pl->n_copies[e] == 0 ||
		    (found >= 0 &&
		     (__int128_t)p->loads[e] * pl->n_copies[found] <=
		             (__int128_t)p->loads[found] * pl->n_copies[e]))
			continue;
		if (find_spare_rank(pl, e, best))
			found = e;
		else
			pl->n_copies[e] = 0;
	}
	return found >= 0;
}

void ferry_plan_add_spare_copies(struct ferry_planner *pl)
{
	const struct ferry_problem *const p = &pl->problem;
	struct plan_move move;

	if (p->placement->split != FERRY_SPLIT_EXACT)
		return;
	ferry_plan_settle(pl);
	count_free_slots(pl);
	for (int32_t e = 0; e < p->n_experts; e++)
		pl->n_copies[e] = pl->first_after[e + 1] - pl->first_after[e];
	while (find_spare_copy(pl, &move)) {
		add_copy(pl, move);
		pl->n_copies[p->slot_expert[move.from_slot]]++;
	}
}

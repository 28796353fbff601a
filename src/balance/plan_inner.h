/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the planner share: a plan in the making with the loads and
 * windows that it leaves, and the best one so far.
 *
 * A move is two slots. An empty to_slot gets a copy; else the two exchange
 * their experts. Everything else about a move follows from the problem.
 */
#ifndef FERRY_PLAN_INNER_H
#define FERRY_PLAN_INNER_H

#include "bound.h"
#include "plan_search.h"
#include "problem.h"

struct plan_move {
	int32_t from_slot;
	int32_t to_slot;
};

/* How good loads are: lower is better, the first difference decides. */
struct plan_value {
	int64_t max_time;
	__uint128_t squares; /* of the times of all ranks */
	int32_t n_moves;
};

/* An expert is in one swap, or in copies to different ranks. */
enum { PLAN_SWAPPED = 1, PLAN_COPIED = 2 };

struct ferry_planner {
	struct ferry_problem problem;
	/* The plan in the making. */
	int32_t n_moves;
	struct plan_move moves[FERRY_PLAN_MOVES];
	int64_t *load; /* [n_ranks] tokens after the moves */
	/* [n_slots] what a swap takes along: the problem's, or slot_now. */
	const int64_t *slot_load;
	int64_t *left[2]; /* [n_ranks] ns left of the window, out and in; with
	                   * half_duplex all of it is in left[0] */
	uint8_t *taken;   /* [n_experts] PLAN_SWAPPED, PLAN_COPIED */
	/* The best plan so far. */
	struct plan_value best_value;
	int32_t best_n_moves;
	struct plan_move best[FERRY_PLAN_MOVES];
	int64_t total_time; /* of all ranks, before any move */
	int64_t simple_bound;
	int64_t least_time; /* no plan brings the fullest rank below */
	struct plan_search search;
	struct ferry_bound bound;
	/* Of ferry_plan_settle: the placement after the moves. */
	int32_t *slot_after;     /* [n_slots] expert, -1: empty */
	int32_t *first_after;    /* [n_experts + 1], into replicas_after */
	int32_t *replicas_after; /* slots by (expert, slot) */
	int64_t *slot_now;       /* [n_slots] load of each slot */
	/* While copies are chosen. */
	int32_t *free_slots; /* [n_ranks] copies that may still come */
	int64_t *spilt_load; /* [n_ranks] loads, some of them given away */
	int64_t *slot_left;  /* [n_slots] what a slot has not given away */
	int32_t *n_copies;   /* [n_experts] slots with it, 0: no more of it */
};

static inline int64_t plan_time(const struct ferry_planner *pl, int32_t rank)
{
	return pl->load[rank] * pl->problem.weight[rank];
}

/* Forgets the plan in the making. */
void ferry_plan_reset(struct ferry_planner *pl);

/* What one move takes from the windows of two ranks. */
struct plan_cost {
	int64_t there_ns; /* from_rank to to_rank */
	int64_t back_ns;  /* 0 for a copy */
};

/* What a move costs by the tables; 0 where there are none. */
struct plan_cost ferry_plan_move_cost(const struct ferry_problem *p,
                                      struct plan_move move);

/* Whether the windows have room for a swap of the smallest experts. */
bool ferry_plan_may_pair(const struct ferry_planner *pl, int32_t a, int32_t b);

/*
 * Whether a move may be added: its experts are in no other move, each comes to
 * a rank that does not hold it, and the windows have room for it.
 */
bool ferry_plan_may_move(const struct ferry_planner *pl, struct plan_move move);

/* Adds a swap that ferry_plan_may_move allows, and takes back the last one. */
void ferry_plan_add_swap(struct ferry_planner *pl, struct plan_move move);
void ferry_plan_undo_swap(struct ferry_planner *pl);

/* Takes swap i back; later moves keep their order. */
void ferry_plan_drop_swap(struct ferry_planner *pl, int32_t i);

/* The same for a copy; it leaves loads as they are: see ferry_plan_settle. */
void ferry_plan_add_copy(struct ferry_planner *pl, struct plan_move move);
void ferry_plan_undo_copy(struct ferry_planner *pl);

/* Adds whichever of the two it is. */
void ferry_plan_add(struct ferry_planner *pl, struct plan_move move);

/*
 * Sets the loads to those of the placement after the moves. Needed where
 * experts have replicas, also by copies: ferry_plan_must_settle.
 */
void ferry_plan_settle(struct ferry_planner *pl);
bool ferry_plan_must_settle(const struct ferry_planner *pl);

/*
 * Adds copies to the plan in the making, and keeps it where it is better than
 * the best so far.
 */
void ferry_plan_add_copies(struct ferry_planner *pl);

/*
 * Under EXACT: adds copies to the plan in the making while any may come, and
 * leaves its loads as they were.
 */
void ferry_plan_add_spare_copies(struct ferry_planner *pl);

struct plan_value ferry_plan_value_of(const struct ferry_planner *pl);
bool ferry_plan_is_better(const struct plan_value *a,
                          const struct plan_value *b);

/* Makes the best plan so far the one in the making. */
void ferry_plan_take_best(struct ferry_planner *pl);

/* Keeps the plan in the making where it is better than the best so far. */
void ferry_plan_keep_better(struct ferry_planner *pl);

/* Improves the plan in the making, which has swaps only, and keeps it. */
void ferry_plan_polish(struct ferry_planner *pl);

/* FreeBalance's rule, either reading; leaves its plan in the making. */
void ferry_plan_freebalance(struct ferry_planner *pl, bool sorted,
                            int32_t gamma_milli);

/* Our own; leaves the best plan as best. */
void ferry_plan_portfolio(struct ferry_planner *pl);

/* Hash of the inputs, which that of the moves goes on from. */
uint64_t ferry_plan_hash_inputs(const struct ferry_problem *p);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our search for swaps: greedy for a first plan, then, again and again, a plan
 * that brings all ranks below a target somewhat under the best so far.
 */
#ifndef FERRY_PLAN_SEARCH_H
#define FERRY_PLAN_SEARCH_H

#include "plan_board.h"

enum { SEARCH_WIDTH = 24 };

/* A place gives that much more to another than it takes. */
struct search_choice {
	int32_t from;
	int32_t place;
	int32_t difference;
	int32_t key; /* lower is better */
};

/* Where a level of the search stands. */
struct search_stand {
	int32_t fullest; /* place */
	int32_t n_full;  /* places above the target */
	int32_t spare;   /* swaps left beyond one for each of them */
};

/* One move of the plan in the making, and what else may be in its place. */
struct search_level {
	struct search_stand stand;
	int32_t round; /* of looking for choices */
	int32_t n_choices;
	int32_t next; /* choice that is tried next */
	struct search_choice choice[SEARCH_WIDTH];
	struct board_swap swap;
};

struct plan_search {
	struct plan_board board;
	int32_t receivers;    /* emptiest places that are looked at */
	int32_t rounds;       /* of looking for choices, 2 or 3 */
	int32_t rounds_below; /* and after the first swap, 1 to 3 */
	int32_t width;        /* choices of a kind that are tried */
	int32_t depth;        /* moves made, which are off the board */
	int32_t time_shift;   /* leaves 15 bits of the largest time */
	struct search_level level[FERRY_PLAN_MOVES + 1];
};

/*
 * Both keep what is better than the planner's best plan. The board is filled;
 * the plan in the making is of no use afterwards.
 */
void ferry_search_greedy(struct ferry_planner *pl);
void ferry_search_targets(struct ferry_planner *pl);

/*
 * Makes one swap, where it is allowed, of experts of two places whose loads
 * differ by that much: adds it to the plan in the making and takes its experts
 * off the board.
 */
bool ferry_search_make(struct ferry_planner *pl, int32_t from, int32_t to,
                       int32_t difference);

/* Takes all swaps back. */
void ferry_search_undo(struct ferry_planner *pl);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Certified lower bounds on the fullest rank's load, in the unit of struct
 * ferry_plan_make: no plan of the allowed moves ends below them. Formulas and
 * proofs: docs/balance.md.
 *
 * They argue with items: what an occupied slot holds, and the least that it
 * can weigh. That is its expert's load, or, where this has replicas, its even
 * share rounded down (split EVEN), or nothing (QUOTA, EXACT: all of it may be
 * served elsewhere). A swap exchanges two items, so that a rank keeps its
 * number of them; a copy may lighten those of one expert.
 */
#ifndef FERRY_BOUND_H
#define FERRY_BOUND_H

#include "problem.h"

/* Memory for bounds, and what ferry_bound_simple found last. */
struct ferry_bound {
	int32_t max_slots;
	int32_t max_ranks;
	int32_t n_items;
	int32_t n_lightened; /* items that copies may lighten, at most */
	int32_t n_copies;    /* copies into all ranks, at most */
	int32_t n_holders;   /* ranks with an item */
	int32_t fewest;      /* items of a rank that has 1 or more */
	int32_t fewest_two;  /* of one that has 2 or more; 0: none has */
	int32_t fastest;     /* speed of a rank with an item, at most */
	int32_t fastest_any; /* of a rank with an item or a copy, at most */
	bool uniform;        /* equal speeds, and items of every rank */
	int64_t *sorted;     /* [n_items] all items and ranks, ascending */
	int64_t *light_sum;  /* [n_items + 1] of the first ones */
	int32_t *first;      /* [n_ranks + 1] first item of each rank */
	int64_t *load;       /* [n_ranks] sum of its items */
	int32_t *copies;     /* [n_ranks] copies that it may take */
	/* Of the budgeted bound. */
	int64_t *light;      /* [n_items] all items, ascending */
	int32_t *light_rank; /* [n_items] where each is */
	int64_t *heavy;      /* [n_items] items of each rank, descending */
	int64_t least_bytes; /* of an expert; 0: transfers cost nothing */
	int64_t n_moves;     /* moves that may lower a rank, at most */
	int32_t *most_moves; /* [n_ranks] that the rank's window lets through */
	int64_t *gain;       /* at first[r] + r: what 0, 1 .. moves save */
	int32_t *n_gain;     /* [n_ranks] moves that still save something */
	int32_t *needed;     /* [n_ranks] moves to get down to a load */
	int64_t *room;       /* [n_ranks] what it can take up */
	int64_t *heaviest;   /* [n_ranks] item that it can take up */
	int64_t *into;       /* [n_ranks] what one move can bring to it */
	int64_t *demand;     /* [n_ranks] what has nowhere else to go */
	int64_t *away;       /* [max_slots] what moving an item can save */
	int64_t *key;        /* [the larger of max_slots, max_ranks] to sort */
};

/* Memory for problems up to these sizes. Errors: NOMEM. */
enum ferry_status ferry_bound_init(struct ferry_bound *b, int32_t max_slots,
                                   int32_t max_ranks);
void ferry_bound_destroy(struct ferry_bound *b);

/*
 * The largest of the bounds that look at no budget: the mean, and heavy
 * experts with the lightest companions. Allocates nothing.
 */
int64_t ferry_bound_simple(struct ferry_bound *b,
                           const struct ferry_problem *p);

/*
 * The budgeted bound, after ferry_bound_simple of the same problem: not below
 * `least`, which is a bound already, and at most `most`, the fullest rank's
 * load after some plan; equal to it where that plan is proven best.
 */
int64_t ferry_bound_budget(struct ferry_bound *b, const struct ferry_problem *p,
                           int64_t least, int64_t most);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Random planning problems, the same from the same seed everywhere. */
#ifndef PLAN_CASE_H
#define PLAN_CASE_H

#include <ferry/plan.h>

enum { PLAN_CASE_RANKS = 64, PLAN_CASE_SLOTS = 768 };

/* What a random problem may have. */
struct plan_kind {
	int32_t min_ranks;
	int32_t max_ranks;
	int32_t max_slots; /* of all ranks */
	int32_t max_swaps; /* 1.. */
	bool uneven;       /* numbers of slots; else equal */
	bool empty;        /* some slots, and copies into them */
	bool replicas;     /* some experts have more than one */
	bool speeds;
	bool costs;
	bool spread; /* loads over ten powers of two, without ties; else small
	              * numbers, many of them alike */
	enum ferry_split split;
};

/* A problem; `in` points into the rest. */
struct plan_case {
	struct ferry_plan_in in;
	int32_t n_experts;
	int32_t n_ranks;
	int32_t n_slots;
	enum ferry_split split;
	int32_t slots_of[PLAN_CASE_RANKS];
	int32_t rank_of[PLAN_CASE_SLOTS];
	int32_t slot_expert[PLAN_CASE_SLOTS];
	int64_t quota[PLAN_CASE_SLOTS];
	int64_t loads[PLAN_CASE_SLOTS];
	int32_t speed[PLAN_CASE_RANKS];
	int64_t window[PLAN_CASE_RANKS];
	int64_t alpha[PLAN_CASE_RANKS * PLAN_CASE_RANKS];
	int64_t ps[PLAN_CASE_RANKS * PLAN_CASE_RANKS];
	int64_t bytes[PLAN_CASE_SLOTS];
	struct ferry_cost cost;
	struct ferry_placement *placement;
};

/* Draws a problem; plan_case_free it. *seed is that of core/bits.h. */
void plan_case_make(struct plan_case *c, const struct plan_kind *kind,
                    uint64_t *seed);

/* Makes in.placement, and what else `in` points to, of the arrays. */
void plan_case_bind(struct plan_case *c);
void plan_case_free(struct plan_case *c);

/* The problem in one line, for a test that fails. */
const char *plan_case_text(const struct plan_case *c);

#endif

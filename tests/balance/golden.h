/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads golden/optima.txt: planning problems whose optimum is proven. Some
 * have their loads in the tables of ../shared/data, and are left out where
 * these are not.
 */
#ifndef GOLDEN_H
#define GOLDEN_H

#include <ferry/plan.h>

enum { GOLDEN_RANKS = 64, GOLDEN_EXPERTS = 512, GOLDEN_NAME = 64 };

struct golden {
	char name[GOLDEN_NAME];
	int32_t n_ranks;
	int32_t n_experts;
	int32_t swaps;
	int32_t copies; /* into each rank */
	int32_t spare;  /* empty slots of each rank, its last ones */
	enum ferry_split split;
	int32_t experts[GOLDEN_RANKS]; /* of each rank, in order */
	int64_t loads[GOLDEN_EXPERTS];
	int32_t row; /* of the table; -1: loads are in the file */
	int64_t optimum;
	int64_t before;
};

/*
 * Calls fn for every problem, which it may read only now; returns how many were
 * left out for want of the table. Ends the program where the file is no good.
 */
int golden_each(void (*fn)(const struct golden *g, void *arg), void *arg);

/* The placement that a problem starts from. */
struct ferry_placement *golden_placement(const struct golden *g);

/* What to plan, from that placement. */
struct ferry_plan_in golden_plan_in(const struct golden *g,
                                    const struct ferry_placement *placement);

#endif

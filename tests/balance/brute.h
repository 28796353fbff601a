/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiny random planning problems, and the best plan of each by trying all: what
 * bounds and plans are held against.
 */
#ifndef BRUTE_H
#define BRUTE_H

#include <ferry/plan.h>

enum { BRUTE_RANKS = 4, BRUTE_SLOTS = 12 };

/* What a random problem may have. */
struct brute_kind {
	int32_t min_ranks;
	int32_t max_ranks;
	int32_t max_slots;
	int32_t max_swaps;
	bool uneven;   /* numbers of slots; else equal */
	bool empty;    /* some slots, and copies into them */
	bool replicas; /* some experts have two */
	bool speeds;
	bool costs;
	enum ferry_split split;
};

/* A problem; in points into the rest. */
struct brute {
	struct ferry_plan_in in;
	int32_t n_experts;
	int32_t n_ranks;
	int32_t n_slots;
	int32_t slots_of[BRUTE_RANKS];
	int32_t rank_of[BRUTE_SLOTS];
	int32_t slot_expert[BRUTE_SLOTS];
	int64_t loads[BRUTE_SLOTS];
	int32_t speed[BRUTE_RANKS];
	int64_t window[BRUTE_RANKS];
	int64_t alpha[BRUTE_RANKS * BRUTE_RANKS];
	int64_t ps[BRUTE_RANKS * BRUTE_RANKS];
	int64_t bytes[BRUTE_SLOTS];
	struct ferry_cost cost;
	enum ferry_split split;
	struct ferry_placement *placement;
};

/* Draws a problem; brute_free it. */
void brute_make(struct brute *b, const struct brute_kind *kind, uint64_t *seed);
void brute_free(struct brute *b);

/* Load of the fullest rank after the best plan that budget and windows let. */
int64_t brute_best(const struct brute *b);

/* The problem in one line, for a test that fails. */
const char *brute_text(const struct brute *b);

#endif

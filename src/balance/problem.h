/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is to be planned, checked and in plain arrays: the form of struct
 * ferry_plan_in that planner, bounds and quotas share. Only read once it is
 * filled.
 *
 * Loads are tokens. The time of a rank is its tokens times its weight, an
 * integer: 1 on ranks of one speed. Otherwise weights are in proportion to
 * 1 / speed as nearly as n_ranks times the largest time stays below 2^54, so
 * that objectives fit into 128 bits.
 */
#ifndef FERRY_PROBLEM_H
#define FERRY_PROBLEM_H

#include "sharing.h"

/* A time that is beyond every window. */
#define FERRY_COST_NEVER ((int64_t)1 << 60)

struct ferry_problem {
	const struct ferry_placement *placement;
	int32_t n_experts;
	int32_t n_ranks;
	int32_t n_slots;
	const int32_t *first_slot;    /* [n_ranks + 1] */
	const int32_t *slot_rank;     /* [n_slots] */
	const int32_t *slot_expert;   /* [n_slots], -1: empty */
	const int32_t *first_replica; /* [n_experts + 1], into replicas */
	const int32_t *replicas;      /* slots by (expert, slot) */
	const int64_t *loads;         /* [n_experts] */
	int64_t total;                /* of loads, <= FERRY_MAX_LOAD */
	int64_t *slot_load;           /* [n_slots] part of the expert's load */
	int64_t *rank_load;           /* [n_ranks] sum of slot_load */
	bool has_replicas;            /* some expert is in two slots */
	bool has_speed;               /* not all ranks are equally fast */
	int32_t *speed;               /* [n_ranks] */
	int64_t *weight;              /* [n_ranks] time of a token, >= 1 */
	int64_t sum_speed;
	int32_t layer;
	int32_t max_swaps;  /* 0..FERRY_PLAN_MOVES */
	int32_t max_copies; /* for each rank */
	bool has_cost;      /* else transfers cost nothing: no windows */
	struct ferry_cost cost;
	int64_t least_bytes; /* of an expert */
	bool uneven_bytes;   /* some experts are larger than others */
	int64_t *window;     /* [n_ranks] ns; -1: nothing may move */
	int64_t threshold_ppm;
	enum ferry_plan_rule rule;
	int32_t gamma_milli; /* 0: none */
	bool tight_bound;
	bool thorough;
	bool spare_copies;
	struct ferry_sharing sharing; /* of the loads, where split is EXACT */
	int32_t max_experts;          /* what there is memory for */
	int32_t max_slots;
	int32_t max_ranks;
};

/* Memory for problems up to these sizes. Errors: INVAL (by name), NOMEM. */
enum ferry_status ferry_problem_init(struct ferry_problem *p,
                                     int32_t max_experts, int32_t max_slots,
                                     int32_t max_ranks);
void ferry_problem_destroy(struct ferry_problem *p);

/*
 * Takes over the caller's input, which must live as long as it is used.
 * Allocates nothing. Errors: INVAL, RANGE.
 */
enum ferry_status ferry_problem_fill(struct ferry_problem *p,
                                     const struct ferry_plan_in *in);

/*
 * Refuses loads[n_experts] that are not 0..FERRY_MAX_LOAD, also in sum; *total
 * is the sum. `what` names the call. Errors: INVAL (NULL), RANGE.
 */
enum ferry_status ferry_check_loads(const char *what, const int64_t *loads,
                                    int32_t n_experts, int64_t *total);

/* As above: speed[n_ranks] in 1..1000000. */
enum ferry_status ferry_check_speed(const char *what, const int32_t *speed,
                                    int32_t n_ranks);

/*
 * Shares a load among the n replicas of an expert, in ascending slots[n], by
 * the rule EVEN or QUOTA: slot_load[slots[i]], whose sum is the load.
 */
void ferry_share_even(int64_t load, const int32_t *slots, int32_t n,
                      int64_t *slot_load);
void ferry_share_by_quota(int64_t load, const int32_t *slots, int32_t n,
                          const int64_t *quota, int64_t *slot_load);

/* Tokens of an ordinary rank that take as long as `tokens` at `speed`. */
static inline int64_t ferry_normal_load(int64_t tokens, int32_t speed)
{
	return (tokens * FERRY_SPEED_NORMAL + speed - 1) / speed;
}

/* The largest such number of all ranks. */
int64_t ferry_problem_max_load(const struct ferry_problem *p,
                               const int64_t *rank_load);

/* ns that `bytes` take from rank a to rank b; at most FERRY_COST_NEVER. */
int64_t ferry_problem_transfer_ns(const struct ferry_problem *p, int32_t a,
                                  int32_t b, int64_t bytes);

static inline int64_t ferry_problem_bytes(const struct ferry_problem *p,
                                          int32_t expert)
{
	return p->cost.expert_bytes ? p->cost.expert_bytes[expert]
	                            : p->cost.all_bytes;
}

#endif

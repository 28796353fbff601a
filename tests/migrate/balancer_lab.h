/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model whose layers run under a balancer, for tests: tokens that drift from
 * expert to expert, what an early router foresees of them, dispatch, experts
 * computed from the weights where they are now, combine EXACT. Every step
 * compares sums with those of no placement at all, bit for bit, and looks
 * whether every slot has its expert whole.
 */
#ifndef BALANCER_LAB_H
#define BALANCER_LAB_H

#include "lab_channel.h"

enum {
	BAL_HIDDEN = 6,
	BAL_TOKENS = 24,
	BAL_TOPK = 2,
	BAL_EXPERTS = 12,
	BAL_LAYERS = 3,
};

/* How to run; all ranks have it alike. */
struct bal_task {
	enum ferry_balance_policy policy;
	enum ferry_plan_rule rule;
	enum ferry_split split;
	enum ferry_experts_mode mode;
	int32_t spare; /* empty slots of each rank */
	int32_t n_staging;
	int32_t max_copies;
	int32_t noise; /* of 16 choices, those that are foreseen wrongly */
	int32_t eplb_every;
	int32_t n_steps;
	int64_t window_ns; /* of every rank; 0: no limit; -1: 0 */
	int64_t threshold_ppm;
	int64_t margin_ppm;
	bool measured; /* cost by the balancer; else 1 us and 1 ns a byte */
	bool spare_copies;
	bool biased; /* most of what even experts get is foreseen for odd ones */
	bool calibrate;
	bool always; /* predicts also when that is not wanted */
};

/* A batch of one rank, and its way through the channel. */
struct bal_batch {
	int32_t ids[BAL_TOKENS][BAL_TOPK];
	float weights[BAL_TOKENS][BAL_TOPK];
	float x[BAL_TOKENS][BAL_HIDDEN];
	struct lab_flow *flow;
};

struct bal {
	const struct bal_task *task;
	struct rank *rank;
	struct lab lab;
	struct lab_channel channel;
	struct ferry_balancer *balancer;
	struct bal_batch batches[2];
	uint64_t wrong; /* sum of |predicted - true| as the test knows it */
	uint64_t n_wanted;
	struct ferry_cost cost;
	int64_t alpha[RANKS_MAX * RANKS_MAX];
	int64_t beta[RANKS_MAX * RANKS_MAX];
	struct ferry_balancer_report report; /* of the last commit */
};

extern uint64_t bal_seed;

/* Opens all, closes when the body has ended. */
struct bal *bal_open(struct rank *rank);
/* The same without the balancer, and the config for it. */
struct bal *bal_make(struct rank *rank);
void bal_config(struct bal *bal, struct ferry_balancer_config *config);

/* The batch of this rank in a turn. */
void bal_batch(struct bal *bal, int32_t turn, struct bal_batch *batch);
/* Own counts of it: true ones, or as foreseen. */
void bal_counts(const struct bal *bal, int32_t of_rank, int32_t turn,
                bool foreseen, int32_t counts[BAL_EXPERTS]);
/* Counts that no seed makes even: only rank 0's experts get tokens. */
void bal_lopsided(const struct bal *bal, int32_t layer,
                  int32_t counts[BAL_EXPERTS]);

void bal_predict(struct bal *bal, int32_t layer, int32_t turn);
void bal_observe(struct bal *bal, int32_t layer, int32_t turn);
/* Commits and checks the weights of the placement that it gives. */
const struct ferry_placement *bal_commit(struct bal *bal, int32_t layer);
/* With the placement of the batch's flow. */
void bal_dispatch(struct bal *bal, struct bal_batch *batch);
void bal_send_back(struct bal *bal, int32_t layer, struct bal_batch *batch);
void bal_finish(struct bal *bal, int32_t layer, struct bal_batch *batch);

/* A layer in a turn, all of it. */
void bal_layer(struct bal *bal, int32_t layer, int32_t turn);
/* All steps of the task. */
void bal_run(struct bal *bal);

struct ferry_balancer_stats bal_stats(const struct bal *bal);

#endif

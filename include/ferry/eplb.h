/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry/eplb.h: placements from history. DeepSeek's Expert Parallelism Load
 * Balancer (hierarchical and global) with defined ties and never two copies of
 * an expert on one rank, the permutation that moves least, and the statistics
 * that such placements are made from.
 */
#ifndef FERRY_EPLB_H
#define FERRY_EPLB_H

#include <ferry/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What to place. Zero means default. */
struct ferry_eplb_config {
	size_t size;
	int32_t n_experts; /* 1..FERRY_MAX_EXPERTS */
	int32_t n_ranks;
	int32_t n_slots;  /* of all ranks, >= n_experts; 0: n_experts. As even
	                   * as possible over the ranks, the first one more */
	int32_t n_groups; /* expert groups of the router; 0: 1 */
	int32_t n_nodes;  /* hosts of n_ranks / n_nodes ranks each; 0: 1 */
	/*
	 * Exactly as published, which may put two copies of an expert on one
	 * rank: for comparison, not for ferry_placement_create.
	 */
	bool as_published;
};
#define FERRY_EPLB_CONFIG_INIT                                                 \
	{                                                                      \
		sizeof(struct ferry_eplb_config), 0, 0, 0, 0, 0, false         \
	}

/**
 * Places one layer: slot_expert[n_slots] from loads[n_experts]
 * (0..FERRY_MAX_LOAD). Hierarchical where n_groups is divisible by n_nodes:
 * groups are packed to hosts, experts replicated within a host, replicas packed
 * to its ranks; else global. Ties: the lower index. Slots that cannot hold a
 * copy without putting an expert twice on a rank are -1.
 * Errors: INVAL, RANGE, NOMEM.
 */
FERRY_API enum ferry_status ferry_eplb(const struct ferry_eplb_config *config,
                                       const int64_t *loads,
                                       int32_t *slot_expert) FERRY_MUST_CHECK;

/** Loads of the past, of all layers of a model. */
struct ferry_history;

/** How much of the past counts. */
struct ferry_history_config {
	size_t size;
	int32_t n_layers;  /* 1..65536 */
	int32_t n_experts; /* 1..FERRY_MAX_EXPERTS */
	int32_t window;    /* newest steps that count, 1..; 0: all */
	int32_t decay_ppm; /* a step counts this many millionths of the one
	                      * after it; 0: 1000000 (all alike) */
};
#define FERRY_HISTORY_CONFIG_INIT                                              \
	{                                                                      \
		sizeof(struct ferry_history_config), 0, 0, 0, 0                \
	}

/** Makes an empty history. Local. Errors: INVAL, RANGE, NOMEM. */
FERRY_API enum ferry_status
ferry_history_create(const struct ferry_history_config *config,
                     struct ferry_history **history) FERRY_MUST_CHECK;

/** Destroys a history; NULL is accepted. */
FERRY_API void ferry_history_destroy(struct ferry_history *history);

/**
 * Adds the loads[n_experts] of one layer in the current step; more than one
 * add of a step sums up, to FERRY_MAX_LOAD an expert at most. Padding must not
 * be in the counts (ferry_predict_counts leaves it out). Errors: INVAL, RANGE;
 * nothing was added then.
 */
FERRY_API enum ferry_status
ferry_history_add(struct ferry_history *history, int32_t layer,
                  const int64_t *loads) FERRY_MUST_CHECK;

/**
 * Ends the step. One to which nothing was added does not count. NULL is
 * accepted.
 */
FERRY_API void ferry_history_step(struct ferry_history *history);

/**
 * Weighted sums of a layer's loads over the steps that count, the current one
 * included as soon as something was added to it, rounded down: out[n_experts].
 * Where they would be more than FERRY_MAX_LOAD together, all are halved until
 * they are not. Equal adds give equal sums on every machine.
 * Errors: INVAL, RANGE.
 */
FERRY_API enum ferry_status
ferry_history_loads(const struct ferry_history *history, int32_t layer,
                    int64_t *out) FERRY_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays a trace under a policy of placing experts: layer by layer, step by
 * step, plans from what is predicted and judges by what came. No GPU, no ranks,
 * no weights.
 */
#ifndef FERRY_REPLAY_H
#define FERRY_REPLAY_H

#include <ferry/eplb.h>

#include "route.h"

enum replay_policy {
	REPLAY_FIXED,       /* the start placement */
	REPLAY_EPLB,        /* a placement from history */
	REPLAY_FREEBALANCE, /* FreeBalance's rule, from the start placement */
	REPLAY_FERRY,       /* the portfolio, from the start placement */
	REPLAY_N_POLICIES,
};

extern const char *const replay_policy_names[REPLAY_N_POLICIES + 1];

enum replay_start {
	REPLAY_CONTIGUOUS, /* expert e in slot e */
	REPLAY_HISTORY,    /* EPLB's placement from history */
	REPLAY_GIVEN,
};

/* Which steps a placement from history knows. */
enum replay_past {
	REPLAY_OTHERS, /* those of all other tasks, before and after */
	REPLAY_PAST,   /* those before */
	REPLAY_LAST,   /* the one before */
	REPLAY_ALL,    /* all, this one too */
};

struct replay_config {
	const struct route *route;
	int32_t n_ranks;
	int32_t max_swaps; /* as in struct ferry_plan_in */
	int32_t replicas;  /* empty slots of each rank, for copies */
	bool fill;         /* spare_copies, too */
	enum ferry_split split;
	const struct ferry_cost *cost;        /* NULL: moves cost nothing */
	const struct ferry_cost *half_duplex; /* FreeBalance's formula */
	int64_t window_ns;
	int64_t expert_bytes;
	int64_t threshold_ppm;
	bool use_predicted; /* the trace's own */
	int64_t keep_ppm;   /* of exact assignments; the rest is noise */
	enum replay_start start;
	const struct ferry_placement *given; /* for REPLAY_GIVEN */
	enum replay_past past;
	bool persist; /* a step starts where the one before ended */
	enum ferry_plan_rule rule; /* FreeBalance's */
	int32_t gamma_milli;
	bool tight_bound;
	uint64_t seed;
	/* Called before each layer; may be NULL. */
	void (*progress)(enum replay_policy policy, int32_t layer,
	                 int32_t n_layers);
};

/* One layer in one step. Ratios are the fullest rank's load over the mean. */
struct replay_cell {
	double ratio;  /* as it came */
	double before; /* had nothing moved */
	double bound;  /* what no plan could beat */
	int32_t n_swaps, n_copies;
	int32_t n_fetched; /* experts that ranks had to fetch */
	int64_t plan_ns;
};

/* Replays all steps: cells[n_steps][n_layers]. */
bool replay_run(const struct replay_config *config, enum replay_policy policy,
                struct replay_cell *cells, struct fault *fault);

/* What becomes of a run. */
struct replay_row {
	enum replay_policy policy;
	double ratio_mean, ratio_p95, ratio_worst;
	double before_mean, bound_mean, bound_worst_gap;
	double moves_mean, swaps_mean, copies_mean, fetched_mean;
	double fetched_bytes_mean; /* of a layer in a step, all ranks */
	double plan_us_p50, plan_us_p99;
	double moved_share;                 /* of layers: something moved */
	double improved_share;              /* of those: it helped */
	double *layer_before, *layer_ratio; /* [n_layers] means over steps */
};

bool replay_summarise(const struct replay_config *config,
                      enum replay_policy policy,
                      const struct replay_cell *cells, struct replay_row *row,
                      struct fault *fault);

void replay_row_free(struct replay_row *row);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry/balancer.h: what an engine calls to keep the ranks of its MoE layers
 * equally loaded. A balancer ties together sums over ranks and windows
 * (balance.h), plans (plan.h), history (eplb.h) and migration (experts.h),
 * layer by layer and step by step:
 *
 *	ferry_balancer_predict   before or beside attention, with the loads that
 *	                         an early router foresees: plans, starts to move
 *	ferry_balancer_commit    after attention: the placement to dispatch with
 *	ferry_balancer_observe   after the true router: what it has chosen
 *
 * The true router stays authoritative: outputs are those without a balancer.
 *
 * predict and commit meet the other ranks: one thread at a time calls them, and
 * all ranks in the same order, layer by layer, from any thread. observe, wants
 * and what reads may be called beside them. Up to FERRY_EXPERTS_PLANS layers
 * can be between predict and commit.
 *
 * A refusal with INVAL, RANGE or STATE has done nothing. Any other failure ends
 * the balancer on all ranks, in bounded time and naming who is missing; predict
 * and commit then answer BROKEN, while committed placements and their weights
 * stay valid (ferry_experts_placement) until the experts are closed.
 */
#ifndef FERRY_BALANCER_H
#define FERRY_BALANCER_H

#include <ferry/balance.h>
#include <ferry/experts.h>
#include <ferry/predict.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A balancer of registered experts, on this rank. */
struct ferry_balancer;

/** Who decides where experts are. */
enum ferry_balance_policy {
	/** Nobody: calls do nothing, placements stay as they are. */
	FERRY_BALANCE_OFF = 0,
	/** History alone: ferry_eplb anew every eplb_every steps. */
	FERRY_BALANCE_EPLB = 1,
	/** FreeBalance: swaps by its own rule, from predictions. */
	FERRY_BALANCE_FREEBALANCE = 2,
	/**
	 * History where it is better for what is foreseen than the placement
	 * in force, and FreeBalance's swaps in between.
	 */
	FERRY_BALANCE_EPLB_FREEBALANCE = 3,
	/** Swaps, and copies that last while they pay, from predictions. */
	FERRY_BALANCE_FERRY = 4,
	/** History, likewise, and those in between. */
	FERRY_BALANCE_EPLB_FERRY = 5,
};

/**
 * What to balance, and how. Zero means default. Equal on all ranks but for
 * experts, windows and stream. Arrays are copied; these three stay the
 * caller's, and must live as long as the balancer.
 */
struct ferry_balancer_config {
	size_t size;
	/* Nobody else starts plans of them while the balancer is open. */
	struct ferry_experts *experts;
	enum ferry_balance_policy policy;
	/* FREEBALANCE: RESELECT (0 too) or SORTED; FERRY: PORTFOLIO. */
	enum ferry_plan_rule rule;
	int32_t gamma_milli; /* FREEBALANCE: as in struct ferry_plan_in */
	int32_t max_swaps;   /* 0: FERRY_PLAN_MOVES; -1: none */
	/* FERRY: into each rank's empty slots; 0: all of them; -1: none. */
	int32_t max_copies;
	/* A layer whose predicted max/mean is below this many millionths is
	 * left as it is; 0: never. Then it need not be predicted for
	 * recheck_steps commits: ferry_balancer_wants. */
	int64_t threshold_ppm;
	int32_t recheck_steps; /* 1..; 0: 8 */
	/* n_ranks, alpha_ns, ps_per_byte, and half_duplex count; an expert's
	 * bytes are those of its tensors. NULL: measured at open. */
	const struct ferry_cost *cost;
	const struct ferry_windows *windows; /* of attention; NULL: unknown */
	const int32_t *speed;   /* [n_ranks] as in ferry_plan_in; NULL: equal */
	int32_t eplb_every;     /* commits of a layer, 1..; 0: 64 */
	int32_t eplb_groups;    /* n_groups of ferry_eplb_config */
	int32_t n_nodes;        /* the same */
	int32_t history_window; /* of ferry_history_config */
	int32_t history_decay_ppm;
	bool thorough;     /* FERRY: as in struct ferry_plan_in */
	bool spare_copies; /* the same; with split EXACT only */
	/* FREEBALANCE, FERRY: plan from predictions that are corrected by what
	 * those of past steps got wrong that looked alike, expert by expert. */
	bool calibrate;
	/* The same: what a plan has to gain, in millionths of what plans of the
	 * layer were wrong by (RMS), 0..1000000000; 0: whatever it promises. */
	int64_t margin_ppm;
	struct CUstream_st *stream; /* GPUs: of ferry_experts_start, _commit */
};
#define FERRY_BALANCER_CONFIG_INIT                                             \
	{                                                                      \
		sizeof(struct ferry_balancer_config), NULL, FERRY_BALANCE_OFF, \
			FERRY_RULE_PORTFOLIO, 0, 0, 0, 0, 0, NULL, NULL, NULL, \
			0, 0, 0, 0, 0, false, false, false, 0, NULL            \
	}

/**
 * Opens a balancer. Collective; returns when all ranks have opened, at most
 * after open_timeout_ms, and compares the configurations. With cost NULL, and
 * a policy that plans, it also measures the links (ferry_cost_measure).
 * Policies with EPLB want as many slots on each rank as ferry_eplb gives it:
 * as even as possible, besides max_copies empty ones on each.
 * Errors: INVAL, RANGE, MISMATCH (naming field and ranks), NOMEM, TIMEOUT,
 * PEER, ABORTED; UNSUPPORTED (worlds of GPUs without fabric p2p).
 */
FERRY_API enum ferry_status
ferry_balancer_open(struct ferry_world *world,
                    const struct ferry_balancer_config *config,
                    struct ferry_balancer **balancer) FERRY_MUST_CHECK;

/**
 * Closes: local, never hangs, before its experts are closed. A plan that was
 * started and not committed is never in force. NULL is accepted.
 */
FERRY_API void ferry_balancer_close(struct ferry_balancer *balancer);

/**
 * Does the layer want a prediction in this step? false under OFF, for a layer
 * below threshold_ppm until it is looked at again, and under EPLB alone until
 * its time has come. All ranks get the same answer at the same place of their
 * sequence of calls. Predicting all the same is no error. Any thread.
 */
FERRY_API bool ferry_balancer_wants(const struct ferry_balancer *balancer,
                                    int32_t layer);

/** What a rank foresees for a layer. */
struct ferry_balancer_in {
	size_t size;
	/* [n_experts] of the rank's own tokens, as ferry_predict_counts; or
	 * ids to count; both NULL: an idle rank, all 0. */
	const int32_t *counts;
	const struct ferry_ids *ids;
	/* In which experts may move; the least of all ranks counts. A window
	 * of 0 lets nothing move; INT64_MAX sets no limit. */
	int64_t window_ns;
	/* With n_tokens >= 1 also that of config.windows for this shape. */
	int32_t n_tokens;
	int32_t seq_len;
};
#define FERRY_BALANCER_IN_INIT                                                 \
	{                                                                      \
		sizeof(struct ferry_balancer_in), NULL, NULL, INT64_MAX, 0, 0  \
	}

/**
 * Sends this rank's part of a prediction, read before it returns, and what was
 * observed of the layer since the last one. Never waits for a peer. One layer
 * at a time is between send and start.
 * Errors: INVAL, RANGE, STATE (a plan of the layer, or another layer's
 * prediction, is under way; or the FERRY_EXPERTS_PLANS-th plan before was not
 * committed); BROKEN, and those of a segment.
 */
FERRY_API enum ferry_status ferry_balancer_predict_send(
	struct ferry_balancer *balancer, int32_t layer,
	const struct ferry_balancer_in *in) FERRY_MUST_CHECK;

/**
 * Waits for all ranks' parts, at most timeout_ms, plans, and pushes the own
 * experts that move: takes as long as copying them. One thread that drives
 * several ranks issues all sends first.
 * Errors: INVAL, RANGE, STATE (nothing was sent); MISMATCH (ranks speak of
 * different layers, placements or plans), NOMEM, BROKEN, and those of a
 * segment.
 */
FERRY_API enum ferry_status
ferry_balancer_predict_start(struct ferry_balancer *balancer,
                             int32_t layer) FERRY_MUST_CHECK;

/** Both in one call, with the errors of both. */
FERRY_API enum ferry_status
ferry_balancer_predict(struct ferry_balancer *balancer, int32_t layer,
                       const struct ferry_balancer_in *in) FERRY_MUST_CHECK;

/** What a step did for a layer. Ratios are max/mean in millionths. */
struct ferry_balancer_report {
	size_t size;
	bool predicted;  /* else the rest is 0 */
	bool left_alone; /* below threshold_ppm */
	bool by_history; /* the moves are those of EPLB */
	bool held_back;  /* nothing moved: too few free staging buffers */
	int32_t n_swaps; /* of the plan */
	int32_t n_copies;
	int64_t before_ppm;  /* loads planned from, placement before */
	int64_t after_ppm;   /* and after */
	int64_t bound_ppm;   /* the plan's bound; 0: nothing was planned */
	int64_t window_ns;   /* the least of all ranks */
	uint64_t plan_ns;    /* time for planning */
	uint64_t push_ns;    /* in predict: hidden if it ran beside attention */
	uint64_t exposed_ns; /* as in ferry_experts_report */
	uint64_t wait_ns;
	uint64_t bytes_in; /* of this rank */
	uint64_t bytes_out;
	uint64_t meet_ns;  /* as in ferry_experts_report */
	bool below_margin; /* nothing moved: the plan promised too little */
};
#define FERRY_BALANCER_REPORT_INIT                                             \
	{                                                                      \
		sizeof(struct ferry_balancer_report), false, false, false,     \
			false, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false    \
	}

/**
 * Ends a step of a layer: waits until what was started is staged on all ranks,
 * and switches (ferry_experts_commit). *placement is the one to dispatch with,
 * which lives as ferry_experts_placement says. Without a prediction it is the
 * newest, and nobody is waited for. Ranks that move experts meet here, so each
 * has a thread that calls it. *report may be NULL.
 * Errors: as ferry_experts_commit. FERRY_EXPERTS_COPY: STATE while an operation
 * of this rank uses the placement before; call again then.
 */
FERRY_API enum ferry_status
ferry_balancer_commit(struct ferry_balancer *balancer, int32_t layer,
                      const struct ferry_placement **placement,
                      struct ferry_balancer_report *report) FERRY_MUST_CHECK;

/**
 * Notes what the true router has chosen: counts[n_experts] of the rank's own
 * tokens. Local: it travels with the layer's next prediction, and then counts
 * for history and statistics. Every rank once a step; an idle one with NULL.
 * Errors: INVAL; RANGE (naming the count, or where the sum since the last
 * prediction exceeds an int32).
 */
FERRY_API enum ferry_status
ferry_balancer_observe(struct ferry_balancer *balancer, int32_t layer,
                       const int32_t *counts) FERRY_MUST_CHECK;

/**
 * Sets the speeds of ranks (ferry_speeds_gather), as in the config. Between
 * steps, alike on all ranks; a difference is a MISMATCH of the next prediction.
 * Errors: INVAL, RANGE.
 */
FERRY_API enum ferry_status
ferry_balancer_set_speed(struct ferry_balancer *balancer,
                         const int32_t *speed) FERRY_MUST_CHECK;

/**
 * Counters since open; loads and ratios are those of all ranks, times and bytes
 * this rank's.
 */
struct ferry_balancer_stats {
	size_t size;
	uint64_t n_commits;
	uint64_t n_predictions;
	uint64_t n_left_alone; /* of those: below threshold_ppm */
	uint64_t n_moved;      /* commits that moved an expert of any rank */
	uint64_t n_by_history; /* of those: towards EPLB's placement */
	uint64_t n_held_back;
	uint64_t n_swaps; /* committed */
	uint64_t n_copies;
	uint64_t before_ppm; /* sums over predictions, as in reports */
	uint64_t after_ppm;
	uint64_t plan_ns;
	uint64_t push_ns;
	uint64_t exposed_ns;
	uint64_t wait_ns;
	uint64_t bytes_in;
	uint64_t bytes_out;
	/* Of predictions whose truth every rank has observed once, when the
	 * layer is predicted again: */
	uint64_t n_compared;
	uint64_t true_tokens;    /* sum of true loads */
	uint64_t wrong_tokens;   /* sum of |predicted - true| over experts */
	uint64_t true_first_ppm; /* sums of the ratios of true loads: with the
	                          * placement at open, */
	uint64_t true_ppm;       /* and with the one that was committed */
	uint64_t wrong_planned_tokens; /* wrong_tokens of loads planned from */
	uint64_t n_below_margin; /* of n_predictions: promised too little */
};
#define FERRY_BALANCER_STATS_INIT                                              \
	{                                                                      \
		sizeof(struct ferry_balancer_stats), 0, 0, 0, 0, 0, 0, 0, 0,   \
			0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0            \
	}

/** Reads the counters. Any thread. Errors: INVAL. */
FERRY_API enum ferry_status
ferry_balancer_get_stats(const struct ferry_balancer *balancer,
                         struct ferry_balancer_stats *stats) FERRY_MUST_CHECK;

/**
 * Renders the counters as Prometheus text, as ferry_moe_metrics does: `name`
 * becomes the label balancer. Any thread.
 */
FERRY_API size_t ferry_balancer_metrics(const struct ferry_balancer *balancer,
                                        const char *name, char *buffer,
                                        size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
